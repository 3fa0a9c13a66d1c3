"""SQLite files that only their user may read, and that several processes may open at once."""

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

_PATIENCE = 5.0  # seconds, for others that use the same file


def prepare(path: Path, tables: Sequence[str]) -> None:
    """A file with these tables in it."""
    make_private(path)
    with contextlib.closing(connected(path)) as connection:
        lay_out(connection, tables)


def make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # SQLite gives its other files the same mode
    finally:
        os.close(descriptor)


def connected(path: Path | str, *, threads: bool = False) -> sqlite3.Connection:
    """`threads`: it may be used by several, one after the other."""
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=not threads)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def lay_out(connection: sqlite3.Connection, statements: Sequence[str]) -> None:
    """Statements that do nothing when they are repeated.

    Two that lay out the same new file at once are in each other's way while its journal's mode changes, and SQLite
    does not wait for that as it does for an ordinary lock.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            for statement in ("PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA journal_mode = WAL", *statements):
                connection.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def why(error: OSError | sqlite3.Error) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
