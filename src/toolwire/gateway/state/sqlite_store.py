"""The state store in SQLite, on disk or in memory: the default, for one machine."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from toolwire.gateway.state.sql_store import SqlStateStore
from toolwire.gateway.state.store import StoreLimits
from toolwire.journal.sqlite_files import (
    LOCK_TIMEOUT,
    DatabaseSchema,
    DatabaseUnusable,
    open_database,
    roll_back,
    transaction,
)

IN_MEMORY = ":memory:"
_TABLE = """
CREATE TABLE IF NOT EXISTS kept (
    serial INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    parent TEXT,
    body BLOB NOT NULL,
    used REAL NOT NULL,
    UNIQUE (owner, kind, id)
)
"""
STATE_SCHEMA = DatabaseSchema(
    migrations=(
        (
            _TABLE,
            "CREATE INDEX IF NOT EXISTS kept_under ON kept (owner, kind, parent)",
            "CREATE INDEX IF NOT EXISTS kept_used ON kept (used)",
        ),
    ),
    columns={"kept": frozenset({"serial", "owner", "kind", "id", "parent", "body", "used"})},
)


class SqliteStateStore(SqlStateStore[sqlite3.Connection]):
    """A `StateStore` in SQLite, which other processes on this machine may use."""

    def __init__(
        self,
        path: str,
        limits: StoreLimits,
        *,
        busy_timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        failure: DatabaseUnusable | None = None,
    ) -> None:
        super().__init__(path, limits, busy_timeout=busy_timeout, clock=clock, failure=failure)
        self._path = path
        self._busy_timeout_ms = -1

    def version(self) -> object:
        """Return a value that changes whenever rows may have been written, here or by another process."""
        return (
            self._write_count
            if self._path == IN_MEMORY
            else (self._write_count, _file_version(self._path), _file_version(f"{self._path}-wal"))
        )

    def _connect(self) -> sqlite3.Connection:
        connection = open_database(self._path, STATE_SCHEMA, create=self._path != IN_MEMORY, multithreaded=True)
        self._busy_timeout_ms = -1
        connection.execute("PRAGMA secure_delete = FAST")
        self._load_counts(connection)
        return connection

    def _transaction(self, connection: sqlite3.Connection) -> AbstractContextManager[None]:
        return transaction(connection)

    def _set_busy_timeout(self, connection: sqlite3.Connection, seconds: float) -> None:
        milliseconds = 100 * round(10 * max(0.0, seconds))
        if milliseconds != self._busy_timeout_ms:
            connection.execute(f"PRAGMA busy_timeout = {milliseconds:d}")
            self._busy_timeout_ms = milliseconds

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        roll_back(connection)

    def _may_reopen(self) -> bool:
        return self._path != IN_MEMORY

    def _vacuum(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA incremental_vacuum").fetchall()


def _file_version(path: str) -> tuple[int, int]:
    """Return modification time and size of a file; zeros if it does not exist."""
    try:
        stat = Path(path).stat()
    except OSError:
        return (0, 0)
    return stat.st_mtime_ns, stat.st_size
