"""Circuit breakers: backends that keep failing are skipped for a while, as long as their route has others.

A breaker opens after `limits.failures` consecutive failures, or at once if the backend names a time (`retry-after`).
After the cooldown it is half-open: one request passes as a probe, whose outcome closes or reopens the breaker. Each
worker has its own breakers.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.routing import Backend

LIMIT_BREAKERS = 1024
"""Backends whose failures are counted; a client may choose the model's name."""

MAX_COOLDOWN = 600.0
"""Seconds that a `retry-after` keeps a breaker open at most."""

_STREAM_FAULTS: frozenset[ErrorKind] = frozenset({"server", "timeout", "overloaded", "rate_limit", "other"})
_FAULTS_OF_BACKEND: frozenset[ErrorKind] = frozenset({"authentication", "billing", "permission"})
BreakerCallback = Callable[[Backend, bool], None]


class _Breaker(Struct):
    """The recent failures of one backend."""

    failures: int = 0
    retry_at: float | None = None  # when the next request may pass; None while the breaker is closed


class Breakers:
    """The circuit breakers of all backends. `on_change` learns of each that opens or closes."""

    def __init__(self, limits: LimitsSection, on_change: BreakerCallback = lambda _backend, _is_open: None) -> None:
        self._limits = limits
        self._breakers: dict[tuple[str, str | None], _Breaker] = {}
        self.on_change = on_change

    def admitted(self, backends: Iterable[Backend]) -> Iterator[Backend]:
        """Yield the backends to try, without those whose breaker is open; all of them if no other is left."""
        skipped: list[Backend] = []
        has_admitted = False
        for backend in backends:
            if self._admits(backend):
                has_admitted = True
                yield backend
            else:
                skipped.append(backend)
        if not has_admitted:
            yield from skipped

    def _admits(self, backend: Backend) -> bool:
        """Return whether a request may be sent to a backend; after the cooldown, that is true for one request."""
        breaker = self._breakers.get(_key(backend)) if self._breakers else None
        if breaker is None or breaker.retry_at is None:
            return True
        now = time.monotonic()
        if now < breaker.retry_at:
            return False
        # The others wait for the probe's outcome, or for another cooldown if it has none: its client may leave.
        breaker.retry_at = now + self._limits.cooldown
        return True

    def record_start(self, backend: Backend) -> None:
        """Close the breaker of a backend whose stream has begun; its failures count until the stream is complete."""
        breaker = self._breakers.get(_key(backend)) if self._breakers else None
        if breaker is not None and breaker.retry_at is not None:
            breaker.retry_at = None
            self.on_change(backend, False)  # noqa: FBT003 - a callback

    def record_end(self, backend: Backend, error: ApiError | None) -> None:
        """Count the outcome of a stream."""
        if error is None:
            self.record_success(backend)
        elif error.kind in _STREAM_FAULTS:
            self.record_failure(backend)

    def record_success(self, backend: Backend) -> None:
        """Close the breaker of a backend that responded."""
        breaker = self._breakers.pop(_key(backend), None) if self._breakers else None
        if breaker is not None and breaker.retry_at is not None:
            self.on_change(backend, False)  # noqa: FBT003 - a callback

    def record_rejection(self, backend: Backend, rejection: RequestRejected) -> None:
        """Count a failure of the backend; a rejection that the request itself caused proves that it works."""
        error = rejection.error
        if backend.provider.client_credential is not None and (error.status or 500) < 500:
            return  # it concerns the key of one client
        if rejection.attempt == "rejected" and error.kind not in _FAULTS_OF_BACKEND:
            self.record_success(backend)
        else:
            self.record_failure(backend, (error.retry_after or None) if rejection.attempt == "unprocessed" else None)

    def record_failure(self, backend: Backend, retry_after: float | None = None) -> None:
        """Count a failure, and open the breaker if there are too many, or if the backend names a time."""
        key = _key(backend)
        if (breaker := self._breakers.get(key)) is None:
            while len(self._breakers) >= LIMIT_BREAKERS:
                del self._breakers[next(iter(self._breakers))]
            breaker = self._breakers[key] = _Breaker()
        breaker.failures += 1
        was_open = breaker.retry_at is not None
        if not was_open and retry_after is None and breaker.failures < self._limits.failures:
            return
        cooldown = self._limits.cooldown if retry_after is None else min(retry_after, MAX_COOLDOWN)
        breaker.retry_at = time.monotonic() + cooldown
        if not was_open:
            self.on_change(backend, True)  # noqa: FBT003 - a callback


def _key(backend: Backend) -> tuple[str, str | None]:
    """Return the key of a backend's breaker."""
    return backend.provider.name, backend.model
