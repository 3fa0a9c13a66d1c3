"""Temporarily or permanently unusable state: nothing blocks, and the store recovers where possible."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway.state_store import AMPLE_BOUNDS, StoreScenario, response_row
from toolwire.gateway.config import StateSection
from toolwire.gateway.state.sql_store import SqlStateStore
from toolwire.gateway.state.sqlite_store import SqliteStateStore
from toolwire.gateway.state.store import StateUnavailable
from toolwire.gateway.state.store_file import open_store

SHORT = 0.05
AN_HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(path: Path, work: StoreScenario, patience: float = SHORT, clock: Clock | None = None) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await work(store)

    store = SqliteStateStore(str(path), AMPLE_BOUNDS, busy_timeout=patience, clock=clock or Clock())
    try:
        asyncio.run(whole())
    finally:
        store.close()


@contextlib.contextmanager
def other_program(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
        yield connection


def test_reads_continue_while_another_program_writes(tmp_path: Path) -> None:
    """Reads take no write lock; rows are marked as used later, if possible."""
    path = tmp_path / "state.db"

    async def work(store: SqlStateStore[Any]) -> None:
        await store.put([response_row("a", b"1"), response_row("b", b"2", "a")])
        with other_program(path) as connection:
            connection.execute("UPDATE kept SET used = used - 1000")  # so that reading marks them as used
            connection.execute("BEGIN IMMEDIATE")
            for _ in range(3):
                assert await store.get("me", "response", ["a"]) == {"a": b"1"}
                assert [one.id for one in await store.lineage("me", "response", "b")] == ["a", "b"]
                assert [one.id for one in await store.children("me", "response", "a")] == ["b"]
            connection.execute("ROLLBACK")
            (before,) = connection.execute("SELECT min(used) FROM kept").fetchone()
            assert await store.lineage("me", "response", "b")
            await store.check_writable()  # all marks are written
            assert connection.execute("SELECT min(used) FROM kept").fetchone()[0] > before
        assert store.unavailable_reason is None

    run(path, work, AN_HOUR)


def test_lasting_lock_is_a_temporary_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After "database is locked" no transaction stays open, and the next write succeeds."""
    path = tmp_path / "state.db"

    async def work(store: SqlStateStore[Any]) -> None:
        await store.put([response_row("a")])
        with other_program(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(StateUnavailable, match="database is locked") as refused:
                await store.put([response_row("b")])
            assert (refused.value.error.status, refused.value.error.kind) == (503, "overloaded")
            assert store.unavailable_reason is not None
            with pytest.raises(StateUnavailable, match="database is locked"):
                await store.delete("me", "response", "a")
            assert await store.get("me", "response", ["a", "b"]) == {"a": b"{}"}
            connection.execute("ROLLBACK")
        await store.put([response_row("c")])
        assert store.unavailable_reason is None
        assert list(await store.get("me", "response", ["a", "b", "c"])) == ["a", "c"]

    run(path, work)
    log_lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[2].split()[0] for line in log_lines] == ["unavailable:", "available"]
    assert "1 rows were not stored meanwhile" in log_lines[1]


def test_only_the_first_request_waits_for_a_lock(tmp_path: Path) -> None:
    """The first request waits for the lock; the others would otherwise wait one after another."""
    path = tmp_path / "state.db"

    async def work(store: SqlStateStore[Any]) -> None:
        await store.put([response_row("a")])
        with other_program(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(StateUnavailable):
                await store.put([response_row("b")])
            store._busy_timeout = AN_HOUR
            for number in range(10):
                with pytest.raises(StateUnavailable):
                    await store.put([response_row(f"c{number}")])
            connection.execute("ROLLBACK")
        await store.put([response_row("d")])

    run(path, work)


def test_lock_timeout_counts_from_the_request(tmp_path: Path) -> None:
    """A task that was queued for the full timeout does not wait for the lock as well."""
    path, clock = tmp_path / "state.db", Clock()

    async def work(store: SqlStateStore[Any]) -> None:
        await store.put([response_row("a")])
        with other_program(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            busy, free = threading.Event(), threading.Event()

            def hold_up() -> None:
                busy.set()
                free.wait(60)

            store._thread.submit(hold_up)
            busy.wait(60)
            writing = asyncio.ensure_future(store.put([response_row("b")]))
            await asyncio.sleep(0)  # now it is queued behind the task that blocks the thread
            clock.now = AN_HOUR
            free.set()
            with pytest.raises(StateUnavailable, match="locked"):
                await writing
            connection.execute("ROLLBACK")

    run(path, work, AN_HOUR, clock)


def test_full_disk_is_reported(tmp_path: Path) -> None:
    """SQLite rolls back by itself, so an explicit ROLLBACK fails and would hide the reason."""
    path = tmp_path / "state.db"

    async def work(store: SqlStateStore[Any]) -> None:
        await store.put([response_row("a")])
        await store._run_task(lambda connection: connection.execute("PRAGMA max_page_count = 1"))
        with pytest.raises(StateUnavailable, match="database or disk is full"):
            await store.put([response_row("b", b"x" * 500_000)])
        await store.put([response_row("c", b"x" * 500_000)])  # on a connection without that limit
        assert list(await store.get("me", "response", ["a", "b", "c"])) == ["a", "c"]

    run(path, work)


def test_damaged_file_is_reopened_once_repaired(tmp_path: Path) -> None:
    """The connection is dropped after an error, and reopening is rate-limited."""
    path, clock = tmp_path / "state.db", Clock()
    path.write_bytes(b"this is no database, whatever its name says" * 100)

    async def work(store: SqlStateStore[Any]) -> None:
        for _ in range(2):
            with pytest.raises(StateUnavailable, match="not a database"):
                await store.get("me", "response", ["a"])
        path.unlink()
        with pytest.raises(StateUnavailable):
            await store.put([response_row("a")])
        clock.now += 10
        await store.put([response_row("a")])
        assert store.unavailable_reason is None
        assert await store.get("me", "response", ["a"])

    run(path, work, clock=clock)


def test_damage_found_while_reading(tmp_path: Path) -> None:
    """A page overwritten under an open connection is reported as unavailable state."""
    path = tmp_path / "state.db"

    async def work(store: SqlStateStore[Any]) -> None:
        await store.put([response_row(f"{number}", b"x" * 2000) for number in range(200)])
        with other_program(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
        with other_program(path) as connection:  # makes others read the file again
            connection.execute("PRAGMA user_version = 1")
        with pytest.raises(StateUnavailable, match="malformed"):
            await store.get("me", "response", [f"{number}" for number in range(200)])
        assert store.unavailable_reason is not None
        with pytest.raises(StateUnavailable):
            await store.get("me", "response", ["1"])

    run(path, work)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("PRAGMA user_version = 99", "the file was written by a newer toolwire (schema version 99"),
        ("ALTER TABLE kept DROP COLUMN body", "table kept has no column body"),
        ("DROP TABLE kept", "table kept is missing"),
    ],
)
def test_file_is_checked_at_startup(
    change: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Schema version and columns are checked, with a readable message."""
    path = tmp_path / "state.db"
    section = StateSection(path=str(path))
    open_store(section, {}).close()
    with other_program(path) as connection:
        connection.execute(change)
    store = open_store(section, {})
    assert message in (store.unavailable_reason or "")
    assert str(path) not in (store.unavailable_reason or "")
    with pytest.raises(StateUnavailable):
        asyncio.run(store.get("me", "response", ["a"]))
    store.close()
    log_lines = capsys.readouterr().err
    assert f"state: unavailable: {path}: " in log_lines
    assert message in log_lines


def test_file_without_a_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    section = StateSection(path=str(path))
    open_store(section, {}).close()
    with other_program(path) as connection:
        connection.execute("PRAGMA user_version = 0")
    store = open_store(section, {})
    assert store.unavailable_reason is None
    store.close()
    with other_program(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_failed_write_raises_for_the_waiting_caller(tmp_path: Path) -> None:
    """No caller waits forever, whatever fails in the thread."""

    async def work(store: SqlStateStore[Any]) -> None:
        with pytest.raises(UnicodeEncodeError):
            await store.put([response_row("\ud800")])
        await store.put([response_row("a")])
        assert await store.get("me", "response", ["a"])

    run(tmp_path / "state.db", work)


def test_rows_are_written_even_if_the_caller_is_cancelled(tmp_path: Path) -> None:
    """A client that disconnects loses neither its own response nor those of others."""

    async def work(store: SqlStateStore[Any]) -> None:
        busy, free = threading.Event(), threading.Event()

        def hold_up() -> None:
            busy.set()
            free.wait(60)

        store._thread.submit(hold_up)
        busy.wait(60)
        leaving = [asyncio.ensure_future(store.put([response_row(id)])) for id in "ab"]
        staying = asyncio.ensure_future(store.put([response_row("c")]))
        await asyncio.sleep(0)
        for one in leaving:
            one.cancel()
        await asyncio.sleep(0)
        free.set()
        await staying
        assert list(await store.get("me", "response", ["a", "b", "c"])) == ["a", "b", "c"]

    run(tmp_path / "state.db", work)
