"""SQLite files that only their user may read, and that several processes may open at once.

A file carries the version of its schema in `user_version`. Opening it brings an older one up to date, refuses one that
a newer program wrote, and checks that it can be used, so that later statements fail for reasons of the moment only.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from toolwire.canonical.errors import ToolwireError

LOCK_TIMEOUT = 5.0  # seconds, for others that use the same file
MAX_CHECKED_BYTES = 64 * 1024 * 1024
"""Larger files are not read through when they are opened: `quick_check` takes more than a millisecond per megabyte."""

_REPLACE_ADVICE = "move the file away to start with a new one, or restore it from a copy"


class DatabaseSchema(Struct, frozen=True):
    """The tables of one kind of file.

    `steps[n]` are the statements that bring version n to version n + 1. Files from before versions count as 0, so that
    the first step repeats harmlessly. `columns` are those that the program uses, by table.
    """

    migrations: tuple[tuple[str, ...], ...]
    columns: Mapping[str, frozenset[str]]

    @property
    def version(self) -> int:
        return len(self.migrations)


class DatabaseUnusable(ToolwireError):
    """A file can't be used. `advice` is for who looks after it; `busy`: another program holds it, which may pass."""

    def __init__(self, reason: str, advice: str = "", *, busy: bool = False) -> None:
        super().__init__(f"{reason}; {advice}" if advice else reason)
        self.reason = reason
        self.advice = advice
        self.busy = busy


def prepare_database(path: Path, schema: DatabaseSchema) -> None:
    """Make the file if there is none, and check it."""
    open_database(path, schema, create=True).close()


def create_private_file(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # SQLite gives its other files the same mode
    finally:
        os.close(descriptor)


def open_database(
    path: Path | str,
    schema: DatabaseSchema,
    *,
    create: bool = False,
    multithreaded: bool = False,
    durable: bool = False,
    skip_check: bool = False,
) -> sqlite3.Connection:
    """Open a file at the present version of its schema.

    `make`: it is made for its user alone, should it not be there (any more). `threads`: several may use the connection,
    one after the other. `durable`: what was committed survives a power cut, not only the end of the process. `checked`:
    the file was found sound a moment ago.
    """
    try:
        if create:
            create_private_file(Path(path))
        connection = _connect(path, multithreaded=multithreaded)
    except (OSError, sqlite3.Error) as error:
        raise database_unusable(error) from None
    try:
        connection.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
        migrate(connection, schema)
        if not skip_check:
            _check_database(connection, schema)
    except sqlite3.Error as error:
        connection.close()
        raise database_unusable(error) from None
    except DatabaseUnusable:
        connection.close()
        raise
    return connection


def _connect(path: Path | str, *, multithreaded: bool = False) -> sqlite3.Connection:
    """Open a file that is there, or a database in memory. SQLite itself would make a missing file for all to read."""
    uri = "file::memory:" if path == ":memory:" else f"{Path(path).absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, LOCK_TIMEOUT, isolation_level=None, check_same_thread=not multithreaded, uri=True)


def inspect_database(path: Path, schema: DatabaseSchema) -> None:
    """Check that a file can be read and written, without changing it; raises `DatabaseUnusable`."""
    try:
        with contextlib.closing(_connect(path)) as connection:
            _refuse_newer(version := _schema_version(connection), schema)
            _check_database(connection, schema if version == schema.version else DatabaseSchema((), {}))
            with transaction(connection):
                pass
    except sqlite3.Error as error:
        raise database_unusable(error) from None


def migrate(connection: sqlite3.Connection, schema: DatabaseSchema) -> None:
    """Bring a file to the version of this schema; one that is there already is not written to.

    Two processes that lay out the same new file at once are in each other's way while its journal's mode changes, and
    SQLite does not wait for that as it does for other locks.
    """
    until = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            _migrate_once(connection, schema)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate_once(connection: sqlite3.Connection, schema: DatabaseSchema) -> None:
    _refuse_newer(_schema_version(connection), schema)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    if _schema_version(connection) == schema.version:
        return
    with transaction(connection):
        _refuse_newer(version := _schema_version(connection), schema)  # another process may have been faster
        for step in schema.migrations[version:]:
            for statement in step:
                connection.execute(statement)
        version = schema.version
        connection.execute(f"PRAGMA user_version = {version:d}")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing: an error leaves no transaction open, and is not hidden by a rollback that fails as well."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction, if there is still one: on a full disk SQLite has ended it by itself."""
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _refuse_newer(version: int, schema: DatabaseSchema) -> None:
    if version > schema.version:
        raise DatabaseUnusable(
            f"a newer toolwire wrote it (schema version {version}; this one knows {schema.version})",
            "upgrade toolwire, or name another file",
        )


def _check_database(connection: sqlite3.Connection, schema: DatabaseSchema) -> None:
    for table, wanted in schema.columns.items():
        there = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        if missing := sorted(wanted - there):
            what = f"has no column {', '.join(missing)}" if there else "is missing"
            raise DatabaseUnusable(f"the file is damaged, or not of toolwire: table {table} {what}", _REPLACE_ADVICE)
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    if pages * connection.execute("PRAGMA page_size").fetchone()[0] > MAX_CHECKED_BYTES:
        return
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise DatabaseUnusable(f"the file is damaged ({_collapse_whitespace(found)})", _REPLACE_ADVICE)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another program holds the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def database_unusable(error: OSError | sqlite3.Error) -> DatabaseUnusable:
    """An error of the system or of SQLite, with what to do about it."""
    if isinstance(error, OSError):
        return DatabaseUnusable(os_error_reason(error))
    if is_busy(error):
        return DatabaseUnusable("another program holds a lock on the file (database is locked)", busy=True)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return DatabaseUnusable("the file is damaged, or not of SQLite (file is not a database)", _REPLACE_ADVICE)
    if code == sqlite3.SQLITE_CORRUPT:
        return DatabaseUnusable(f"the file is damaged ({error})", _REPLACE_ADVICE)
    if code == sqlite3.SQLITE_ERROR:  # a statement and the tables do not fit
        return DatabaseUnusable(f"the file is damaged, or not of toolwire ({error})", _REPLACE_ADVICE)
    return DatabaseUnusable(str(error))


def os_error_reason(error: OSError) -> str:
    return error.strerror or str(error)


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())[:200]
