"""The databases of the run store: a SQLite file for one machine, or PostgreSQL for several.

Both execute the same statements, with named parameters. Statements that write steps lock the row of the run in
PostgreSQL (`FOR SHARE`), so that no other process takes the lease between the check of the token and the write. SQLite
needs no lock, because it has one writer at a time.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from toolwire.journal.listener import PostgresListener
from toolwire.journal.postgres import PostgresConnection, PostgresSchema, displayed_url
from toolwire.journal.sqlite_files import (
    LOCK_TIMEOUT,
    DatabaseSchema,
    DatabaseUnusable,
    database_unusable,
    open_database,
    prepare_database,
)
from toolwire.journal.store import JournalError, JournalUnavailable

SCHEMA = DatabaseSchema(
    migrations=(
        (
            "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, at REAL, about BLOB, ended BLOB, holder TEXT)",
            """CREATE TABLE IF NOT EXISTS steps (run TEXT, name TEXT, number INTEGER, intent BLOB, outcome BLOB,
            begun REAL, finished REAL, PRIMARY KEY (run, name)) WITHOUT ROWID""",
        ),
        ("ALTER TABLE runs ADD COLUMN token TEXT", "ALTER TABLE runs ADD COLUMN until REAL"),
        (
            "ALTER TABLE runs ADD COLUMN queue TEXT",
            "ALTER TABLE runs ADD COLUMN cancelled REAL",
            "ALTER TABLE runs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE runs ADD COLUMN progress INTEGER NOT NULL DEFAULT 0",
            "CREATE INDEX runs_queue ON runs (queue, at) WHERE queue IS NOT NULL AND ended IS NULL",
            """CREATE TABLE decisions (run TEXT, digest TEXT, answer TEXT, decided_by TEXT, at REAL,
            PRIMARY KEY (run, digest)) WITHOUT ROWID""",
        ),
        (
            "ALTER TABLE runs ADD COLUMN session TEXT",
            "CREATE INDEX runs_session ON runs (session) WHERE session IS NOT NULL",
            """CREATE TABLE sessions (id TEXT PRIMARY KEY, began REAL, updated REAL, version INTEGER, agent TEXT,
            run TEXT, history BLOB) WITHOUT ROWID""",
        ),
    ),
    columns={
        "runs": frozenset({"id", "at", "about", "ended", "holder", "token", "until", "queue", "cancelled", "session"}),
        "steps": frozenset({"run", "name", "number", "intent", "outcome", "begun", "finished"}),
        "decisions": frozenset({"run", "digest", "answer", "decided_by", "at"}),
        "sessions": frozenset({"id", "began", "updated", "version", "agent", "run", "history"}),
    },
)
POSTGRES_SCHEMA = PostgresSchema(
    "runs",
    migrations=(
        (
            """CREATE TABLE toolwire.runs (
                id text COLLATE "C" PRIMARY KEY,
                at double precision NOT NULL,
                about bytea NOT NULL,
                ended bytea,
                holder text,
                token text,
                until double precision,
                queue text,
                cancelled double precision,
                attempts integer NOT NULL DEFAULT 0,
                progress integer NOT NULL DEFAULT 0
            )""",
            "CREATE INDEX runs_at ON toolwire.runs (at)",
            "CREATE INDEX runs_queue ON toolwire.runs (queue, at) WHERE queue IS NOT NULL AND ended IS NULL",
            """CREATE TABLE toolwire.steps (
                run text COLLATE "C" NOT NULL,
                name text COLLATE "C" NOT NULL,
                number integer NOT NULL,
                intent bytea,
                outcome bytea,
                begun double precision,
                finished double precision,
                PRIMARY KEY (run, name)
            )""",
            """CREATE TABLE toolwire.decisions (
                run text COLLATE "C" NOT NULL,
                digest text NOT NULL,
                answer text NOT NULL,
                decided_by text NOT NULL,
                at double precision NOT NULL,
                PRIMARY KEY (run, digest)
            )""",
        ),
        (
            "ALTER TABLE toolwire.runs ADD COLUMN session text",
            "CREATE INDEX runs_session ON toolwire.runs (session) WHERE session IS NOT NULL",
            """CREATE TABLE toolwire.sessions (
                id text COLLATE "C" PRIMARY KEY,
                began double precision NOT NULL,
                updated double precision NOT NULL,
                version integer NOT NULL,
                agent text NOT NULL,
                run text,
                history bytea NOT NULL
            )""",
        ),
    ),
)
_CHANNEL = "toolwire_runs"
_LISTEN = "LISTEN toolwire_runs"
_POLL_INTERVAL = 0.5  # seconds between polls of a file
_RETRY_INTERVAL = 0.5  # seconds between attempts while PostgreSQL can't be reached
_CLOCK_INTERVAL = 60.0  # seconds between readings of the server's clock
_READ_CLOCK = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
_BEGIN_STEP = """
INSERT INTO steps (run, name, number, intent, begun) SELECT :run, :name, :number, :data, :at
WHERE EXISTS (SELECT 1 FROM runs WHERE id = :run AND token = :token AND cancelled IS NULL)
ON CONFLICT (run, name) DO UPDATE SET intent = excluded.intent, begun = excluded.begun
"""
_FINISH_STEP = """
INSERT INTO steps (run, name, number, intent, outcome, begun, finished)
SELECT :run, :name, :number, :empty, :data, :at, :at
WHERE EXISTS (SELECT 1 FROM runs WHERE id = :run AND token = :token)
ON CONFLICT (run, name) DO UPDATE SET outcome = excluded.outcome, finished = excluded.finished
"""
_BEGIN_STEP_LOCKED = """
INSERT INTO steps (run, name, number, intent, begun)
SELECT id, :name, CAST(:number AS integer), CAST(:data AS bytea), CAST(:at AS double precision)
FROM (SELECT id FROM runs WHERE id = :run AND token = :token AND cancelled IS NULL FOR SHARE) AS lease
ON CONFLICT (run, name) DO UPDATE SET intent = excluded.intent, begun = excluded.begun
"""
_FINISH_STEP_LOCKED = """
INSERT INTO steps (run, name, number, intent, outcome, begun, finished)
SELECT id, :name, CAST(:number AS integer), CAST(:empty AS bytea), CAST(:data AS bytea),
    CAST(:at AS double precision), CAST(:at AS double precision)
FROM (SELECT id FROM runs WHERE id = :run AND token = :token FOR SHARE) AS lease
ON CONFLICT (run, name) DO UPDATE SET outcome = excluded.outcome, finished = excluded.finished
"""

T = TypeVar("T")
WaitForChange = Callable[[], Awaitable[None]]
"""Waits for a change, for at most a second; it may return without one."""


class RunDatabase(Protocol):
    """A database with the tables of runs and steps; threads may share it. All errors are `JournalError`."""

    name: str
    """The path, or the URL without credentials, for messages."""
    is_shared: bool
    """Whether other machines use the database."""
    begin_step: str
    finish_step: str

    def now(self) -> float:
        """Return the time that leases are compared with, in seconds since the epoch."""
        ...

    def select(self, statement: str, values: Mapping[str, Any] = ..., /) -> list[tuple[Any, ...]]:
        """Execute a query, and return its rows."""
        ...

    def update(self, statement: str, values: Mapping[str, Any] = ..., /) -> int:
        """Execute an idempotent statement durably, and return the number of changed rows. It may be executed twice."""
        ...

    def renew(self, statement: str, values: Sequence[Mapping[str, Any]], /) -> None:
        """Execute a statement with each set of values, from the thread that renews leases."""
        ...

    def announce(self, topic: str) -> None:
        """Wake the watchers of a topic."""
        ...

    def watch(self, topic: str) -> AbstractContextManager[WaitForChange]:
        """Return a function that waits for an announcement of the topic since it was called last."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class SqliteRunDatabase:
    """A file that processes of one machine share. The connection closes when the last user is gone, or earlier."""

    is_shared = False
    begin_step = _BEGIN_STEP
    finish_step = _FINISH_STEP

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        try:
            prepare_database(path, SCHEMA)
            self._connection = open_database(path, SCHEMA, multithreaded=True, durable=True, skip_check=True)
        except DatabaseUnusable as error:
            raise JournalError(f"{path}: {error}") from None
        self._lock = threading.Lock()
        weakref.finalize(self, self._connection.close)

    def now(self) -> float:
        """Return the time of this machine."""
        return time.time()

    def select(self, statement: str, values: Mapping[str, Any] | None = None, /) -> list[tuple[Any, ...]]:
        """Execute a query, and return its rows."""
        return self._execute(statement, values)[0]

    def update(self, statement: str, values: Mapping[str, Any] | None = None, /) -> int:
        """Execute a statement, and return the number of changed rows."""
        return self._execute(statement, values)[1]

    def _execute(self, statement: str, values: Mapping[str, Any] | None) -> tuple[list[tuple[Any, ...]], int]:
        """Execute a statement; return the selected rows and the number of changed rows."""
        try:
            with self._lock:
                cursor = self._connection.execute(statement, values or {})
                return cursor.fetchall(), cursor.rowcount
        except sqlite3.Error as error:
            raise JournalError(f"{self.name}: {database_unusable(error)}") from None

    def renew(self, statement: str, values: Sequence[Mapping[str, Any]], /) -> None:
        """Execute a statement with each set of values, on a connection of its own."""
        try:
            with contextlib.closing(open_database(self._path, SCHEMA, skip_check=True)) as connection:
                connection.executemany(statement, values)
        except (sqlite3.Error, DatabaseUnusable) as error:
            raise JournalError(f"{self.name}: {error}") from None

    def announce(self, topic: str) -> None:
        """Do nothing: watchers poll the file."""

    @contextlib.contextmanager
    def watch(self, topic: str) -> Iterator[WaitForChange]:
        """Return a function that waits for half a second."""
        yield lambda: asyncio.sleep(_POLL_INTERVAL)

    def close(self) -> None:
        """Close the connection to the file."""
        self._connection.close()


class PostgresRunDatabase:
    """A PostgreSQL database. While it can't be reached, statements are tried again for `patience` seconds."""

    is_shared = True
    begin_step = _BEGIN_STEP_LOCKED
    finish_step = _FINISH_STEP_LOCKED

    def __init__(self, url: str, *, patience: float = 30.0) -> None:
        self.name = displayed_url(url)
        self._patience = patience
        self._connection = PostgresConnection(url, POSTGRES_SCHEMA)
        self._renewal_connection = PostgresConnection(url, POSTGRES_SCHEMA)
        self._listener = PostgresListener(url, POSTGRES_SCHEMA, _LISTEN, LOCK_TIMEOUT)
        self._clock_offset = 0.0
        self._clock_read_at = float("-inf")
        try:
            self._connection.open()
        except DatabaseUnusable as error:
            failure = JournalUnavailable if error.busy else JournalError
            raise failure(f"{self.name}: {error}") from None

    def now(self) -> float:
        """Return the time of the server."""
        if time.monotonic() - self._clock_read_at > _CLOCK_INTERVAL:
            ((server_time,),) = self.select(_READ_CLOCK)
            self._clock_read_at = time.monotonic()
            self._clock_offset = server_time - self._clock_read_at
        return time.monotonic() + self._clock_offset

    def select(self, statement: str, values: Mapping[str, Any] | None = None, /) -> list[tuple[Any, ...]]:
        """Execute a query, and return its rows."""
        return self._retry(lambda: self._connection.execute(statement, values).fetchall())

    def update(self, statement: str, values: Mapping[str, Any] | None = None, /) -> int:
        """Execute a statement, and return the number of changed rows."""
        return self._retry(lambda: self._connection.execute(statement, values).rowcount)

    def _retry(self, task: Callable[[], T]) -> T:
        """Run a task, and retry it while the server can't be reached: a restart should not end a run."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return task()
            except DatabaseUnusable as error:
                if not error.busy or time.monotonic() > deadline:
                    raise JournalError(f"{self.name}: {error}") from None
            time.sleep(_RETRY_INTERVAL)

    def renew(self, statement: str, values: Sequence[Mapping[str, Any]], /) -> None:
        """Execute a statement with each set of values, on a connection of its own."""
        try:
            self._renewal_connection.executemany(statement, values)
        except DatabaseUnusable as error:
            raise JournalError(f"{self.name}: {error}") from None

    def announce(self, topic: str) -> None:
        """Notify the watchers of a topic, on this and other machines."""
        with contextlib.suppress(DatabaseUnusable):  # watchers also poll
            self._connection.execute("SELECT pg_notify(:channel, :topic)", {"channel": _CHANNEL, "topic": topic})

    def watch(self, topic: str) -> AbstractContextManager[WaitForChange]:
        """Return a function that waits for an announcement of the topic, for a second at most."""
        return self._listener.watch(topic)

    def close(self) -> None:
        """Close all connections."""
        self._listener.close()
        self._connection.close()
        self._renewal_connection.close()
