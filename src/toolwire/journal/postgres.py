"""PostgreSQL databases, which processes on several machines may share (extra `postgres`).

Statements are written once for SQLite and PostgreSQL, with named parameters (`:name`). All tables are in the database
schema `toolwire`, where the table `versions` has a row for each group of tables. Opening a connection creates or
migrates its tables, forwards only and under an advisory lock, and refuses those of a newer toolwire.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolwire.installation import require_extra
from toolwire.journal.sql import Cursor
from toolwire.journal.sqlite_files import LOCK_TIMEOUT, DatabaseUnusable

if TYPE_CHECKING:
    import psycopg

URL_SCHEMES = ("postgresql://", "postgres://")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_MIGRATION_LOCK = 0x746F6F6C77697265  # "toolwire"
_RECONNECT_INTERVAL = 1.0  # seconds between attempts to connect after a failure
_VERSIONS = """
CREATE SCHEMA IF NOT EXISTS toolwire;
CREATE TABLE IF NOT EXISTS toolwire.versions (name text PRIMARY KEY, version integer NOT NULL)
"""


class PostgresSchema(Struct, frozen=True):
    """A group of tables that is migrated together."""

    name: str
    migrations: tuple[tuple[str, ...], ...]
    """`migrations[n]` are the statements from version n to n + 1."""

    @property
    def version(self) -> int:
        """The current version of the tables."""
        return len(self.migrations)


class PostgresConnection:
    """A connection to PostgreSQL, opened when first used, and again after it was lost.

    Threads may share it, one statement or transaction at a time. All errors are `DatabaseUnusable`.
    """

    def __init__(
        self,
        url: str,
        schema: PostgresSchema,
        *,
        timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout` limits the seconds to connect, and those of each statement and each wait for a lock."""
        self._url = url
        self._schema = schema
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None
        self._failure: DatabaseUnusable | None = None
        self._reconnect_at = 0.0

    def open(self) -> "psycopg.Connection[Any]":
        """Return the open connection, with current tables; after a failure, a new one is tried once a second."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._failure is not None and self._clock() < self._reconnect_at:
            raise self._failure
        try:
            self._connection = self._connect()
        except DatabaseUnusable as failure:
            self._failure, self._reconnect_at = failure, self._clock() + _RECONNECT_INTERVAL
            raise
        self._failure = None
        return self._connection

    def execute(self, statement: str, values: Mapping[str, Any] | None = None, /) -> Cursor:
        """Execute a statement."""
        with self._lock, self._convert_errors():
            adapted = adapt_statement(statement)
            return self.open().execute(adapted, values and _storable_values(values))

    def executemany(self, statement: str, values: Iterable[Mapping[str, Any]], /) -> Cursor:
        """Execute a statement with each set of values, sent together."""
        with self._lock, self._convert_errors():
            cursor, adapted = self.open().cursor(), adapt_statement(statement)
            cursor.executemany(adapted, [_storable_values(one) for one in values])
            return cursor

    @contextlib.contextmanager
    def transaction(self, *, pipelined: bool = False) -> Iterator[None]:
        """Run a transaction, rolled back on errors.

        If it is pipelined, the server's answer to a statement is waited for when its rows are fetched, and the number
        of changed rows is known after that.
        """
        with self._lock, self._convert_errors():
            connection = self.open()
            with _pipeline(connection) if pipelined else contextlib.nullcontext(), connection.transaction():
                yield

    def receive_notifications(self, timeout: float) -> list[str]:
        """Wait for notifications, and return their payloads; none after `timeout` seconds."""
        with self._lock, self._convert_errors():
            if self._connection is None or self._connection.closed:
                raise DatabaseUnusable("the connection was lost", busy=True)  # a new one would receive nothing
            return [one.payload for one in self._connection.notifies(timeout=timeout, stop_after=1)]

    def close(self) -> None:
        """Close the connection, if it is open."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __del__(self) -> None:
        self.close()

    def _connect(self) -> "psycopg.Connection[Any]":
        """Connect, and create or migrate the tables."""
        with require_extra("postgres", "A PostgreSQL database"):
            import psycopg  # noqa: PLC0415 - optional
        milliseconds = round(1000 * self._timeout)
        settings = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds} -c search_path=toolwire"
        with self._convert_errors():
            connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=max(2, round(self._timeout)),
                application_name="toolwire",
                options=settings,
                keepalives_idle=15,
                keepalives_interval=5,
                keepalives_count=3,
            )
            try:
                migrate(connection, self._schema)
            except BaseException:
                connection.close()
                raise
            return connection

    @contextlib.contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Turn errors of the driver into `DatabaseUnusable`, and close a connection that was lost."""
        import psycopg  # noqa: PLC0415 - optional, and installed if there is a connection

        try:
            yield
        except psycopg.Error as error:
            failure = postgres_unusable(error, self._url)
            if self._connection is not None and (self._connection.broken or self._connection.closed):
                self._connection.close()
                self._connection = None
                failure.lost = True
            raise failure from None


def _pipeline(connection: "psycopg.Connection[Any]") -> contextlib.AbstractContextManager[object]:
    """Return the pipeline mode of a connection, if the installed libpq has one."""
    import psycopg  # noqa: PLC0415 - optional, and installed if there is a connection

    return connection.pipeline() if psycopg.Pipeline.is_supported() else contextlib.nullcontext()


def migrate(connection: "psycopg.Connection[Any]", schema: PostgresSchema) -> None:
    """Migrate a group of tables to its current version; a current one is only read."""
    if _stored_version(connection, schema) == schema.version:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        connection.execute(_VERSIONS)
        version = _stored_version(connection, schema)  # another process may have migrated the tables
        for statements in schema.migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(
            "INSERT INTO toolwire.versions VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET version = excluded.version",
            (schema.name, schema.version),
        )


def inspect_tables(url: str, schemas: Iterable[PostgresSchema]) -> None:
    """Check that a database can be reached and that its tables are not newer, without changing it.

    Raises `DatabaseUnusable`.
    """
    connection = PostgresConnection(url, PostgresSchema("", ()))
    try:
        for schema in schemas:
            _stored_version(connection.open(), schema)
    finally:
        connection.close()


def _stored_version(connection: "psycopg.Connection[Any]", schema: PostgresSchema) -> int:
    """Return the version of stored tables, 0 if there are none; raise `DatabaseUnusable` if it is newer."""
    exists = connection.execute("SELECT to_regclass('toolwire.versions')").fetchone()
    if exists is None or exists[0] is None:
        return 0
    row = connection.execute("SELECT version FROM toolwire.versions WHERE name = %s", (schema.name,)).fetchone()
    version = 0 if row is None else int(row[0])
    if version > schema.version:
        raise DatabaseUnusable(
            f"the tables were written by a newer toolwire ({schema.name} version {version}, "
            f"supported: {schema.version})",
            "upgrade toolwire, or use another database",
        )
    return version


@lru_cache(maxsize=256)
def adapt_statement(statement: str) -> bytes:
    """Return a statement with the driver's form of named parameters."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%")).encode()


def storable_text(text: str) -> str:
    """Return a text as PostgreSQL can store it: without NUL characters."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _storable_values(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parameters whose texts PostgreSQL can store."""
    return {name: _storable_value(value) for name, value in values.items()}


def _storable_value(value: Any) -> Any:
    """Return a parameter, or a list of them, whose texts PostgreSQL can store."""
    if isinstance(value, list):
        return [_storable_value(item) for item in value]
    return storable_text(value) if isinstance(value, str) else value


def postgres_unusable(error: "psycopg.Error", url: str) -> DatabaseUnusable:
    """Convert an error of the driver; a lost connection and a time-out are `busy`, as a retry may succeed."""
    import psycopg  # noqa: PLC0415 - optional, and installed if there is an error

    text = " ".join(str(error).split())
    is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or error.sqlstate == "57014"
    if (password := _password(url)) is not None:
        text = text.replace(password, "***")
    reason = text[:300] or type(error).__name__
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return DatabaseUnusable(reason, "grant the user CREATE on the database, or on the schema toolwire")
    return DatabaseUnusable(f"PostgreSQL: {reason}", busy=is_lost)


def is_postgres_url(url: str) -> bool:
    """Return True for the URL of a PostgreSQL database."""
    return url.startswith(URL_SCHEMES)


def displayed_url(url: str) -> str:
    """Return the URL without user, password and options."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def _password(url: str) -> str | None:
    """Return the password in a URL, if it has one."""
    user, at, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    return user.partition(":")[2] or None if at else None
