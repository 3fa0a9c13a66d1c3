"""Files that several processes lay out at once."""

import contextlib
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from toolwire.journal.sqlite_files import DatabaseSchema, DatabaseUnusable, migrate, prepare_database

THINGS = DatabaseSchema((("CREATE TABLE IF NOT EXISTS things (name TEXT)",),), {"things": frozenset({"name"})})


def test_who_lays_out_a_file_waits_even_where_sqlite_would_not(tmp_path: Path) -> None:
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


def test_what_no_waiting_mends_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.db"
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with pytest.raises(DatabaseUnusable, match="syntax error"):
        prepare_database(path, DatabaseSchema((("CREATE NONSENSE",),), {}))
    path.write_bytes(b"no database, but long enough to be looked at" * 100)
    with pytest.raises(DatabaseUnusable, match="not a database"):
        prepare_database(path, THINGS)
    assert waits == []
