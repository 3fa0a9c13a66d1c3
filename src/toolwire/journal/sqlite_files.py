"""SQLite files with mode 0600 that several processes may open at once.

A file stores the version of its schema in `user_version`. Opening a file migrates an older schema, refuses a newer one,
and checks that the file is usable.
"""

import contextlib
import errno
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from toolwire.canonical.errors import ToolwireError

LOCK_TIMEOUT = 5.0  # seconds to wait for other processes
MAX_CHECKED_BYTES = 64 * 1024 * 1024
"""Larger files are not checked when opened: `quick_check` takes more than a millisecond per megabyte."""

LOCATION_ADVICE = "set a file in a folder that can be written to"
_REPLACE_ADVICE = "move the file away to start a new one, or restore it from a backup"


class DatabaseSchema(Struct, frozen=True):
    """The tables of one kind of file."""

    migrations: tuple[tuple[str, ...], ...]
    """`migrations[n]` are the statements from version n to n + 1; the first must also work on unversioned files."""
    columns: Mapping[str, frozenset[str]]
    """Required columns by table."""

    @property
    def version(self) -> int:
        """The current version of the schema."""
        return len(self.migrations)


class DatabaseUnusable(ToolwireError):
    """A database file can't be used.

    `advice` says how to fix it. `busy` means that another process holds a lock, so a retry may succeed. `lost` means
    that the connection to a server broke: a new one may work, and a write may have taken effect.
    """

    def __init__(self, reason: str, advice: str = "", *, busy: bool = False, lost: bool = False) -> None:
        super().__init__(f"{reason}; {advice}" if advice else reason)
        self.reason = reason
        self.advice = advice
        self.busy = busy
        self.lost = lost


def prepare_database(path: Path, schema: DatabaseSchema) -> None:
    """Create the file unless it exists, migrate it and check it."""
    open_database(path, schema, create=True).close()


def create_private_file(path: Path) -> None:
    """Create a file with mode 0600, and set that mode if it exists; symbolic links are refused."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:  # the system's "File exists" would be about the folder
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent)) from None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # SQLite creates its WAL and shared-memory files with the same mode
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
    """Open a file, migrated to the current version of its schema.

    `create` creates a missing file. `multithreaded` allows use by several threads, one at a time. `durable` makes
    commits survive a power failure, not only the end of the process. `skip_check` omits the integrity check.
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
    """Open an existing file, or a database in memory. SQLite would create a missing file readable by everyone."""
    uri = "file::memory:" if path == ":memory:" else f"{Path(path).absolute().as_uri()}?mode=rw"
    return sqlite3.connect(
        uri, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=not multithreaded, uri=True
    )


def inspect_database(path: Path, schema: DatabaseSchema) -> None:
    """Check that a file can be read and written, without changing it; raise `DatabaseUnusable` if not."""
    try:
        with contextlib.closing(_connect(path)) as connection:
            _refuse_newer(version := _schema_version(connection), schema)
            _check_database(connection, schema if version == schema.version else DatabaseSchema((), {}))
            with transaction(connection):
                pass
    except sqlite3.Error as error:
        raise database_unusable(error) from None


def inspect_missing_database(path: Path) -> None:
    """Check that a file could be created, and leave nothing behind; raise `DatabaseUnusable` if not."""
    if path.is_symlink():
        raise DatabaseUnusable("symbolic links are refused", LOCATION_ADVICE)
    if path.is_dir():
        raise DatabaseUnusable(os.strerror(errno.EISDIR), LOCATION_ADVICE)
    try:
        folder = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
        tempfile.TemporaryDirectory(dir=folder).cleanup()
    except OSError as error:
        raise DatabaseUnusable(os_error_reason(error), LOCATION_ADVICE) from None


def migrate(connection: sqlite3.Connection, schema: DatabaseSchema) -> None:
    """Migrate a file to the current version of the schema; a current one is not written to.

    SQLite does not wait for the lock that a change of `journal_mode` needs, so that two processes may collide on a new
    file. Hence the retries.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            _migrate_once(connection, schema)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate_once(connection: sqlite3.Connection, schema: DatabaseSchema) -> None:
    """Try once to migrate the file to the current version of the schema, in one transaction."""
    _refuse_newer(_schema_version(connection), schema)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    if _schema_version(connection) == schema.version:
        return
    with transaction(connection):
        _refuse_newer(version := _schema_version(connection), schema)  # another process may have migrated it
        for statements in schema.migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        version = schema.version
        connection.execute(f"PRAGMA user_version = {version:d}")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction, rolled back on errors; a failing rollback does not hide the error."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def roll_back(connection: sqlite3.Connection) -> None:
    """Roll back the open transaction, if any; on a full disk, SQLite has already done so."""
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _schema_version(connection: sqlite3.Connection) -> int:
    """Return the schema version that the file states (`user_version`); 0 for a new file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _refuse_newer(version: int, schema: DatabaseSchema) -> None:
    """Raise `DatabaseUnusable` if a newer toolwire wrote the file."""
    if version > schema.version:
        raise DatabaseUnusable(
            f"the file was written by a newer toolwire (schema version {version}, supported: {schema.version})",
            "upgrade toolwire, or use another file",
        )


def _check_database(connection: sqlite3.Connection, schema: DatabaseSchema) -> None:
    """Check the columns, and the integrity of a small file; raise `DatabaseUnusable` if they are wrong."""
    for table, required in schema.columns.items():
        existing = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        if missing := sorted(required - existing):
            problem = f"has no column {', '.join(missing)}" if existing else "is missing"
            raise DatabaseUnusable(
                f"the file is damaged or was not created by toolwire: table {table} {problem}", _REPLACE_ADVICE
            )
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    if pages * connection.execute("PRAGMA page_size").fetchone()[0] > MAX_CHECKED_BYTES:
        return
    (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if result != "ok":
        raise DatabaseUnusable(f"the file is damaged ({_collapse_whitespace(result)})", _REPLACE_ADVICE)


def is_busy(error: sqlite3.Error) -> bool:
    """Return True if another process holds a lock on the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def database_unusable(error: OSError | sqlite3.Error) -> DatabaseUnusable:
    """Convert an error of the system or of SQLite to `DatabaseUnusable`, with advice where there is any."""
    if isinstance(error, OSError):
        return DatabaseUnusable(os_error_reason(error))
    if is_busy(error):
        return DatabaseUnusable("another process holds a lock on the file (database is locked)", busy=True)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return DatabaseUnusable(
            "the file is damaged or not a SQLite database (file is not a database)", _REPLACE_ADVICE
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return DatabaseUnusable(f"the file is damaged ({error})", _REPLACE_ADVICE)
    if code == sqlite3.SQLITE_ERROR:  # the tables differ from what a statement expects
        return DatabaseUnusable(f"the file is damaged or was not created by toolwire ({error})", _REPLACE_ADVICE)
    return DatabaseUnusable(str(error))


def os_error_reason(error: OSError) -> str:
    """Return the system's description of an error, without number and path."""
    return error.strerror or str(error)


def _collapse_whitespace(text: str) -> str:
    """Return a message on one line, cut to 200 characters."""
    return " ".join(text.split())[:200]
