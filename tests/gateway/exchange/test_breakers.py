"""Circuit breakers: when they open, whom they let through, and what closes them."""

import pytest
from msgspec.structs import replace

from tests.support.clock import Clock
from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import Attempt, RequestRejected
from toolwire.gateway.exchange.breakers import LIMIT_BREAKERS, MAX_COOLDOWN, Breakers
from toolwire.gateway.exchange.routing import Backend
from toolwire.upstream.provider import Provider

LIMITS = LimitsSection(failures=3, cooldown=60)
ONE, TWO = (
    Backend(Provider(name=name, protocol="openai-chat", base_url="http://127.0.0.1:1"), "m") for name in ("one", "two")
)
BOTH = (ONE, TWO)


def rejection(
    attempt: Attempt = "unknown", kind: ErrorKind = "server", retry_after: float | None = None
) -> RequestRejected:
    return RequestRejected(ApiError(kind=kind, message="no", retry_after=retry_after), attempt=attempt)


def opened(breakers: Breakers) -> Breakers:
    for _ in range(LIMITS.failures):
        breakers.record_rejection(ONE, rejection())
    return breakers


def test_breaker_opens_after_consecutive_failures() -> None:
    breakers = Breakers(LIMITS)
    for _ in range(LIMITS.failures - 1):
        breakers.record_rejection(ONE, rejection())
    breakers.record_success(ONE)
    for _ in range(LIMITS.failures - 1):
        breakers.record_rejection(ONE, rejection())
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]
    breakers.record_rejection(ONE, rejection())
    assert list(breakers.admitted(BOTH)) == [TWO]


@pytest.mark.usefixtures("clock")
def test_backends_are_tried_although_all_breakers_are_open() -> None:
    breakers = opened(Breakers(LIMITS))
    assert list(breakers.admitted([ONE])) == [ONE]


def test_one_request_probes_the_backend_after_the_cooldown(clock: Clock) -> None:
    breakers = opened(Breakers(LIMITS))
    clock.advance(61)
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]
    assert list(breakers.admitted(BOTH)) == [TWO]
    breakers.record_success(ONE)
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]


def test_failed_probe_opens_the_breaker_again(clock: Clock) -> None:
    breakers = opened(Breakers(LIMITS))
    clock.advance(61)
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]
    breakers.record_rejection(ONE, rejection())
    clock.advance(59)
    assert list(breakers.admitted(BOTH)) == [TWO]
    clock.advance(2)
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]


def test_probe_without_outcome_is_repeated_after_another_cooldown(clock: Clock) -> None:
    """Its client may have left."""
    breakers = opened(Breakers(LIMITS))
    clock.advance(61)
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]
    clock.advance(61)
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]


@pytest.mark.parametrize(("seconds", "effective"), [(120.0, 120.0), (1e6, MAX_COOLDOWN)])
def test_retry_after_opens_the_breaker_at_once(clock: Clock, seconds: float, effective: float) -> None:
    breakers = Breakers(LIMITS)
    breakers.record_rejection(ONE, rejection("unprocessed", "rate_limit", seconds))
    clock.advance(effective - 1)
    assert list(breakers.admitted(BOTH)) == [TWO]
    clock.advance(2)
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]


@pytest.mark.parametrize("kind", ["invalid_request", "not_found", "context_length", "too_large"])
def test_errors_that_the_request_causes_do_not_count(kind: ErrorKind) -> None:
    breakers = Breakers(LIMITS)
    for _ in range(10):
        breakers.record_rejection(ONE, rejection("rejected", kind))
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]


@pytest.mark.parametrize("kind", ["authentication", "billing", "permission"])
def test_rejected_accounts_count(kind: ErrorKind) -> None:
    breakers = Breakers(LIMITS)
    for _ in range(LIMITS.failures):
        breakers.record_rejection(ONE, rejection("rejected", kind))
    assert list(breakers.admitted(BOTH)) == [TWO]


def test_streams_that_keep_breaking_open_the_breaker() -> None:
    breakers = Breakers(LIMITS)
    for _ in range(LIMITS.failures):
        breakers.record_start(ONE)
        breakers.record_end(ONE, ApiError(kind="server", message="cut"))
    assert list(breakers.admitted(BOTH)) == [TWO]
    breakers.record_start(ONE)
    assert list(breakers.admitted(BOTH)) == [ONE, TWO]
    breakers.record_end(ONE, ApiError(kind="server", message="cut"))
    assert list(breakers.admitted(BOTH)) == [TWO]


def test_changes_are_reported_once() -> None:
    changes: list[tuple[str, bool]] = []
    breakers = Breakers(LIMITS, lambda backend, is_open: changes.append((backend.name, is_open)))
    for _ in range(5):
        breakers.record_failure(ONE)
    breakers.record_success(ONE)
    breakers.record_success(ONE)
    assert changes == [("one/m", True), ("one/m", False)]


def test_number_of_breakers_is_bounded() -> None:
    breakers = Breakers(LIMITS)
    for number in range(LIMIT_BREAKERS + 10):
        breakers.record_failure(replace(ONE, model=f"m{number}"))
    assert len(breakers._breakers) == LIMIT_BREAKERS
