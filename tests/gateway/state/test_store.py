"""The state store: owners, lineages, limits, and concurrent processes."""

import asyncio
import contextlib
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.clock import Clock
from tests.support.deadlines import wait_until
from tests.support.gateway.state_store import (
    AMPLE_BOUNDS,
    StoreLocation,
    StoreScenario,
    open_store_at,
    response_row,
)
from tests.support.postgres import POSTGRES
from toolwire.gateway.config import ConfigError, StateSection
from toolwire.gateway.state.eviction import fair_share
from toolwire.gateway.state.sql_store import SqlStateStore
from toolwire.gateway.state.store import StateUnavailable, StoreLimits
from toolwire.gateway.state.store_file import open_store
from toolwire.journal.sqlite_files import create_private_file


def run(location: StoreLocation, work: StoreScenario, bounds: StoreLimits = AMPLE_BOUNDS) -> None:
    store = open_store_at(location, bounds)
    try:
        asyncio.run(work(store))
    finally:
        store.close()


@pytest.fixture(params=["memory", "file", POSTGRES])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return None if request.param == "memory" else tmp_path / "state.db"


@pytest.fixture(params=["file", POSTGRES])
def shared_location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return tmp_path / "state.db"


def test_rows_are_visible_to_their_owner_only(location: StoreLocation) -> None:
    async def work(store: SqlStateStore[Any]) -> None:
        store.enqueue([response_row("a", b"1"), response_row("b", b"2")])
        assert await store.get("me", "response", ["a", "b", "c"]) == {"a": b"1", "b": b"2"}
        for owner, kind in (("you", "response"), ("", "response"), ("me", "interaction")):
            assert await store.get(owner, kind, ["a"]) == {}
            assert await store.lineage(owner, kind, "a") == []
            assert not await store.delete(owner, kind, "a")
        store.enqueue([response_row("a", b"yours", owner="you")])
        assert await store.get("me", "response", ["a"]) == {"a": b"1"}

    run(location, work)


def test_put_if_writes_all_rows_or_none_by_what_is_stored_under_the_first(location: StoreLocation) -> None:
    async def work(store: SqlStateStore[Any]) -> None:
        rows = [response_row("a", b"2"), response_row("b", b"2")]
        assert not await store.put_if(rows, lambda body: body is not None)
        assert await store.get("me", "response", ["a", "b"]) == {}
        store.enqueue([response_row("a", b"1")])
        assert not await store.put_if(rows, lambda body: body == b"0")
        assert await store.get("me", "response", ["a", "b"]) == {"a": b"1"}
        assert await store.put_if(rows, lambda body: body == b"1")
        assert await store.get("me", "response", ["a", "b"]) == {"a": b"2", "b": b"2"}

    run(location, work)


def test_no_other_process_writes_between_the_check_and_the_write_of_put_if(tmp_path: Path) -> None:
    path, errors = tmp_path / "state.db", list[str]()

    def write_from_another_process(body: bytes | None) -> bool:
        with contextlib.closing(sqlite3.connect(path, timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                errors.append(str(error))
        return True

    async def work(store: SqlStateStore[Any]) -> None:
        assert await store.put_if([response_row("a", b"1")], write_from_another_process)

    run(path, work)
    assert errors == ["database is locked"]


def test_ids_are_bound_as_values(location: StoreLocation) -> None:
    odd = ["' OR 1=1 --", '"; DROP TABLE kept; --', "%", "_", "\0", "😀", "a\nb"]

    async def work(store: SqlStateStore[Any]) -> None:
        store.enqueue([response_row("safe")])
        for text in odd:
            assert await store.get("me", "response", [text]) == {}
            assert await store.lineage(text, text, text) == []
            assert await store.children("me", "response", text) == []
            assert not await store.delete("me", "response", text)
            store.enqueue([response_row(text, b"odd", text, text)])
            assert await store.get(text, "response", [text]) == {text: b"odd"}
        assert await store.get("me", "response", ["safe"]) == {"safe": b"{}"}

    run(location, work)


def test_lineage_is_complete_or_empty(location: StoreLocation) -> None:
    async def work(store: SqlStateStore[Any]) -> None:
        store.enqueue(
            [
                response_row("a", b"1"),
                response_row("b", b"2", "a"),
                response_row("c", b"3", "b"),
                response_row("other", b"4", "a"),
            ]
        )
        assert [one.body for one in await store.lineage("me", "response", "c")] == [b"1", b"2", b"3"]
        assert await store.delete("me", "response", "b")
        assert await store.lineage("me", "response", "c") == []
        assert [one.body for one in await store.lineage("me", "response", "other")] == [b"1", b"4"]
        store.enqueue(
            [response_row("x", b"", "y"), response_row("y", b"", "x")]
        )  # a cycle, which does not occur in practice
        assert await store.lineage("me", "response", "x") == []

    run(location, work)


def test_children_keep_their_order(location: StoreLocation) -> None:
    async def work(store: SqlStateStore[Any]) -> None:
        store.enqueue([response_row(f"{number}", b"%d" % number, "p", kind="item") for number in (3, 1, 2)])
        assert await store.has_children("me", "item", "p")
        assert not await store.has_children("you", "item", "p")
        assert [one.body for one in await store.children("me", "item", "p")] == [b"3", b"1", b"2"]
        await store.delete_children("you", "item", "p")
        assert len(await store.children("me", "item", "p")) == 3
        await store.delete_children("me", "item", "p")
        assert await store.children("me", "item", "p") == []

    run(location, work)


def test_expired_rows_are_not_found(location: StoreLocation, clock: Clock) -> None:
    async def work(store: SqlStateStore[Any]) -> None:
        store.enqueue([response_row("a"), response_row("b", parent="a")])
        assert await store.get("me", "response", ["a"])
        clock.advance(3601)
        assert await store.get("me", "response", ["a"]) == {}
        assert await store.lineage("me", "response", "b") == []
        assert await store.children("me", "response", "a") == []
        assert not await store.has_children("me", "response", "a")
        assert not await store.delete("me", "response", "a")

    run(location, work, AMPLE_BOUNDS)


@pytest.mark.parametrize(
    "bounds", [StoreLimits(3600, 50, 1_000_000), StoreLimits(3600, 1000, 5000)], ids=["rows", "bytes"]
)
def test_least_recently_used_rows_are_evicted(location: StoreLocation, bounds: StoreLimits) -> None:
    async def work(store: SqlStateStore[Any]) -> None:
        for number in range(200):
            store.enqueue([response_row(f"{number:03}", b"x" * 100)])
            await store.check_writable()  # so that each is a separate transaction
        rows = await store.get("me", "response", [f"{number:03}" for number in range(200)])
        assert 0 < len(rows) <= 50
        assert list(rows) == [f"{number:03}" for number in range(200 - len(rows), 200)]

    run(location, work, bounds)


def test_state_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.db"
    old = os.umask(0)
    try:
        create_private_file(path)

        async def work(store: SqlStateStore[Any]) -> None:
            store.enqueue([response_row("a")])
            await store.get("me", "response", ["a"])
            for file in path.parent.iterdir():
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file

        run(path, work)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_rows_outlive_the_process_and_are_shared(shared_location: StoreLocation) -> None:
    async def work(store: SqlStateStore[Any]) -> None:
        second_store = open_store_at(shared_location)
        before = second_store.version()
        store.enqueue([response_row("a", b"1")])
        assert await store.get("me", "response", ["a"])
        assert second_store.version() != before
        assert await second_store.get("me", "response", ["a"]) == {"a": b"1"}
        second_store.enqueue([response_row("b", b"2", "a")])
        second_store.close()
        assert [one.body for one in await store.lineage("me", "response", "b")] == [b"1", b"2"]
        store.enqueue([response_row("c", b"3")])  # and it is closed at once

    run(shared_location, work)

    async def later(store: SqlStateStore[Any]) -> None:
        assert await store.get("me", "response", ["a", "b", "c"]) == {"a": b"1", "b": b"2", "c": b"3"}

    run(shared_location, later)


def test_concurrent_writers_lose_nothing(shared_location: StoreLocation) -> None:
    async def work(store: SqlStateStore[Any]) -> None:
        second_store = open_store_at(shared_location)
        for number in range(100):
            store.enqueue([response_row(f"a{number}")])
            second_store.enqueue([response_row(f"b{number}")])
        names = [f"{who}{number}" for who in "ab" for number in range(100)]
        await second_store.get("me", "response", [])
        assert len(await store.get("me", "response", names)) == 200
        second_store.close()

    run(shared_location, work)


@pytest.mark.postgres
def test_reads_wait_only_for_the_rows_that_they_look_for(postgres_url: str) -> None:
    async def work(store: SqlStateStore[Any]) -> None:
        await store.put([response_row("a"), response_row("b", parent="a")])
        with psycopg.connect(postgres_url) as locker:
            locker.execute("LOCK TABLE toolwire.kept IN SHARE MODE")
            store.enqueue([response_row("c", b"1", parent="b"), response_row("a", b"2")])
            bodies = asyncio.ensure_future(store.get("me", "response", ["b", "a"]))
            line = asyncio.ensure_future(store.lineage("me", "response", "c"))
            children = asyncio.ensure_future(store.children("me", "response", "b"))
            has_children = asyncio.ensure_future(store.has_children("me", "response", "b"))
            store.enqueue([response_row("d")])
            assert await store.get("me", "response", ["b", "x"]) == {"b": b"{}"}
            assert [row.id for row in await store.lineage("me", "response", "b")] == ["a", "b"]
            assert [row.id for row in await store.children("me", "response", "a")] == ["b"]
            assert not any([bodies.done(), line.done(), children.done(), has_children.done()])
        assert await bodies == {"b": b"{}", "a": b"2"}
        assert [row.id for row in await line] == ["a", "b", "c"]
        assert ([row.id for row in await children], await has_children) == (["c"], True)
        assert await store.get("me", "response", ["d"]) == {"d": b"{}"}

    run(postgres_url, work)


def test_rows_of_one_put_are_atomic(location: StoreLocation, capsys: pytest.CaptureFixture[str]) -> None:
    """An error within a transaction ends it, even if no new connection can be opened."""

    async def work(store: SqlStateStore[Any]) -> None:
        bad: Any = object()
        store.enqueue([response_row("a"), response_row("b", parent=bad)])
        assert await store.get("me", "response", ["a", "b"]) == {}
        store.enqueue([response_row("c")])
        assert await store.get("me", "response", ["c"])

    run(location, work)
    assert "state: unavailable" in capsys.readouterr().err


def _wait_until_taken(store: SqlStateStore[Any]) -> None:
    wait_until(lambda: not store._queued_rows)


def test_write_queue_is_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "state.db"

    async def work(store: SqlStateStore[Any]) -> None:
        store.enqueue([response_row("first")])
        await store.get("me", "response", ["first"])
        busy = sqlite3.connect(path, isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        store.enqueue([response_row("written", b"1" * 100)])
        await asyncio.to_thread(_wait_until_taken, store)
        for number in range(50):
            store.enqueue([response_row(f"waits-{number}", b"2" * 100)])
        busy.execute("COMMIT")
        busy.close()
        rows = await store.get("me", "response", ["written", *(f"waits-{number}" for number in range(50))])
        assert list(rows) == ["written", *(f"waits-{number}" for number in range(10))]
        store.enqueue([response_row("after")])
        assert await store.get("me", "response", ["after"])

    run(path, work, StoreLimits(ttl=3600, rows=1000, bytes=1_000_000, queue=1000))
    assert capsys.readouterr().err == "state: 1 rows not stored: more than 1000 bytes are waiting to be written\n"


def test_invalid_file_is_reported_and_the_gateway_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"this is no database, whatever its name says" * 100)

    async def work(store: SqlStateStore[Any]) -> None:
        store.enqueue([response_row("a")])
        with pytest.raises(StateUnavailable, match="not a database"):
            await store.get("me", "response", ["a"])

    run(path, work)
    assert "state: unavailable" in capsys.readouterr().err


def test_open_store_chooses_the_path(tmp_path: Path) -> None:
    open_store(StateSection(), {"XDG_STATE_HOME": str(tmp_path)}).close()
    assert (tmp_path / "toolwire" / "state.db").exists()
    open_store(StateSection(path=str(tmp_path / "mine.db")), {}).close()
    assert (tmp_path / "mine.db").exists()
    blocked = tmp_path / "mine.db" / "below"
    with pytest.raises(ConfigError, match=r"state\.path"):
        open_store(StateSection(path=str(blocked)), {})
    open_store(StateSection(), {"XDG_STATE_HOME": str(blocked)}).close()  # falls back to memory


@pytest.mark.parametrize(
    "bounds", [StoreLimits(3600, 50, 1_000_000), StoreLimits(3600, 1000, 5000)], ids=["rows", "bytes"]
)
def test_one_key_does_not_evict_rows_of_others(location: StoreLocation, bounds: StoreLimits) -> None:
    """The owner with the most rows makes room, whoever writes or reads."""

    async def work(store: SqlStateStore[Any]) -> None:
        for owner in ("you", "they"):
            await store.put([response_row(f"{number:03}", b"x" * 100, owner=owner) for number in range(10)])
        for number in range(200):
            await store.put([response_row(f"{number:03}", b"x" * 100)])
        await store.check_writable()  # after the last eviction
        names = [f"{number:03}" for number in range(200)]
        assert [len(await store.get(owner, "response", names)) for owner in ("you", "they")] == [10, 10]
        assert 0 < len(rows := await store.get("me", "response", names)) <= 30
        assert list(rows) == names[200 - len(rows) :]

    run(location, work, bounds)


@pytest.mark.parametrize(
    ("amounts", "room", "share"),
    [([], 10, 0), ([3, 4], 10, 4), ([3, 4], 7, 4), ([100, 2], 10, 8), ([100, 100, 1], 11, 5), ([5, 5, 5], 6, 2)],
)
def test_fair_share_spares_small_owners(amounts: list[int], room: int, share: int) -> None:
    assert fair_share(amounts, room) == share
    assert sum(min(one, share) for one in amounts) <= room
