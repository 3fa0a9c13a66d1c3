"""Counts of uses in progress that several workers share."""

import pytest

from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.in_flight_counts import SharedInFlightCounts
from toolwire.gateway.limits import BodyBudget, Quota

ALICE, BOB = "a" * 16, "b" * 16


def quotas(board: SharedInFlightCounts, limit: int, share: int, workers: int = 2) -> list[Quota]:
    return [Quota("streams", limit, share, board.counts("streams", worker)) for worker in range(workers)]


def refusal(quota: Quota, tenant: str) -> tuple[int | None, str]:
    with pytest.raises(RequestRejected) as caught:
        quota.acquire(tenant)
    return caught.value.error.status, caught.value.error.message


def test_workers_share_a_limit() -> None:
    first, second = quotas(SharedInFlightCounts(2), limit=2, share=2)
    first.acquire(ALICE)
    second.acquire(BOB)
    for quota in (first, second):
        assert refusal(quota, ALICE) == (503, "too many streams at once")
    first.release(ALICE)
    second.acquire(BOB)
    assert refusal(first, ALICE)[0] == 503
    assert (first.used, second.used) == (0, 2)


@pytest.mark.parametrize("tenant", [ALICE, ""])
def test_share_of_a_key_counts_in_all_workers(tenant: str) -> None:
    first, second = quotas(SharedInFlightCounts(2), limit=10, share=2)
    first.acquire(tenant)
    second.acquire(tenant)
    for quota in (first, second):
        status, message = refusal(quota, tenant)
        assert (status, "this key already has 2 streams" in message) == (429, True)
    second.acquire(BOB)
    second.release(tenant)
    first.acquire(tenant)
    assert refusal(second, tenant)[0] == 429


def test_kinds_are_counted_apart() -> None:
    board = SharedInFlightCounts(2)
    sockets = Quota("websockets", 1, 1, board.counts("websockets", 1))
    first, _ = quotas(board, limit=1, share=1)
    first.acquire(ALICE)
    sockets.acquire(ALICE)
    assert refusal(sockets, BOB)[0] == 503


def test_rows_of_keys_are_used_again() -> None:
    first, second = quotas(SharedInFlightCounts(2), limit=10_000, share=1)
    for number in range(2000):
        tenant = f"{number:016x}"
        first.acquire(tenant)
        assert refusal(second, tenant)[0] == 429
        first.release(tenant)
    second.acquire(f"{1999:016x}")


def test_uses_of_a_dead_worker_are_cleared() -> None:
    board = SharedInFlightCounts(2)
    first, second = quotas(board, limit=1, share=1)
    first.acquire(ALICE)
    board.clear(0)
    second.acquire(ALICE)


def test_app_after_a_reload_continues_the_counts() -> None:
    board = SharedInFlightCounts(1)
    (before,) = quotas(board, limit=1, share=1, workers=1)
    before.acquire(ALICE)
    (after,) = quotas(board, limit=1, share=1, workers=1)
    assert refusal(after, BOB)[0] == 503
    before.release(ALICE)
    after.acquire(BOB)


def test_bytes_of_bodies_are_limited_over_all_workers() -> None:
    board = SharedInFlightCounts(2)
    first, second = (BodyBudget(3_000_000, board.counts("bodies", worker)) for worker in range(2))
    reserved = first.reserve(0, 2_000_000)
    with pytest.raises(RequestRejected, match=r"limits\.bodies"):
        second.reserve(0, 2_000_000)
    assert second.used == 0
    first.release(reserved)
    assert second.reserve(0, 2_000_000) == 2_000_000
