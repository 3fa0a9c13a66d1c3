"""Migration of files that several processes open at once."""

import contextlib
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from toolwire.journal.sqlite_files import DatabaseSchema, DatabaseUnusable, migrate, prepare_database

THINGS = DatabaseSchema((("CREATE TABLE IF NOT EXISTS things (name TEXT)",),), {"things": frozenset({"name"})})


def test_migration_waits_for_locks_that_sqlite_does_not(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    first = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    first.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.2, first.execute, ("COMMIT",))
    release.start()
    with contextlib.closing(first), contextlib.closing(sqlite3.connect(path, timeout=0)) as second:
        migrate(second, THINGS)
        assert second.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert second.execute("SELECT * FROM things").fetchall() == []
        release.join()


def test_permanent_errors_are_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.db"
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with pytest.raises(DatabaseUnusable, match="syntax error"):
        prepare_database(path, DatabaseSchema((("CREATE NONSENSE",),), {}))
    path.write_bytes(b"no database, but long enough to be looked at" * 100)
    with pytest.raises(DatabaseUnusable, match="not a database"):
        prepare_database(path, THINGS)
    assert waits == []
