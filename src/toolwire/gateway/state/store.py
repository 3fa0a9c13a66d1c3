"""Where it is kept: rows by owner, kind and id, each perhaps under a parent. An owner sees no row but its own.

Room for new rows: the owners that hold the most give up what they used least, so that nobody evicts another.

The store in a file of SQLite, or in memory.

One thread does all of it, in order: what was kept is there for whoever asks next, and what is kept while it is busy
goes into one transaction. Other processes may use the same file.

A file that another program holds is waited for, up to a bound that counts from when the request came; after that
nobody waits until a write succeeds again. After any other error the connection is opened anew.

Opening the store that the configuration names.
"""

import asyncio
import contextlib
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Protocol, TypeVar

from msgspec import Struct

from toolwire.canonical.errors import ApiError
from toolwire.gateway.config import ConfigError, StateSection, state_directory
from toolwire.gateway.errors import RequestRejected
from toolwire.journal.sqlite_files import (
    LOCK_TIMEOUT,
    DatabaseSchema,
    DatabaseUnusable,
    create_private_file,
    database_unusable,
    open_database,
    roll_back,
    transaction,
)

_RETRY_AFTER = 5.0


class Row(Struct, frozen=True):
    """`owner` is a digest of the key that made it, `parent` the id of another row of the same kind, or whatever else
    it belongs to."""

    owner: str
    kind: str
    id: str
    body: bytes
    parent: str | None = None


class StateUnavailable(RequestRejected):
    """State can't be read or written at the moment. A request that needs it gets this as its answer (503)."""

    def __init__(self, reason: str) -> None:
        message = f"the gateway's state is unavailable, and this request needs it: {reason}"
        super().__init__(ApiError(kind="overloaded", message=message, status=503, retry_after=_RETRY_AFTER))
        self.reason = reason


class StateStore(Protocol):
    """Rows of one `keep` or `put` are kept together or not at all, and whoever asks afterwards sees them. A row that
    was not used for longer than its time to live is not there. What waits for an answer raises `Unavailable`."""

    @property
    def unavailable_reason(self) -> str | None:
        """Why it is unavailable, as far as is known."""

    def enqueue(self, rows: Sequence[Row]) -> None:
        """Write without waiting: for rows that nobody was promised. What does not fit in the queue is dropped."""

    async def put(self, rows: Sequence[Row]) -> None:
        """Write, and return once the rows survive the end of the process: for what a client is told an id of."""

    async def put_if(self, rows: Sequence[Row], accepts: Callable[[bytes | None], bool]) -> bool:
        """Write as `put` does, if `accepts` takes the body that is stored under the first row's id, or None if there
        is none. Return whether it did. No other write comes between the check and this one."""

    def version(self) -> object:
        """Another one, whenever anything may have been kept, here or by another process."""

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]: ...

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        """The row with all those before it, the first one first. Empty, if it or any of them is not there."""

    async def children(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        """The rows that have this parent, in the order in which they were kept; only those whose id is behind `after`
        in the order of text."""

    async def has_children(self, owner: str, kind: str, parent: str) -> bool:
        """Whether there is any row under this parent."""

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        """Whether it was there."""

    async def delete_children(self, owner: str, kind: str, parent: str) -> None: ...

    def enqueue_delete(self, owner: str, kind: str, id: str) -> None:
        """Delete without waiting."""

    async def check_writable(self) -> None:
        """Try to write nothing."""

    def schedule_check(self) -> None:
        """Find out, without waiting, whether the trouble is over."""

    def close(self) -> None: ...


_ROWS_PER_TRANSACTION = 1000  # rows of one transaction: other processes wait for the lock meanwhile


def evict_rows(connection: sqlite3.Connection, rows: int, size: int) -> None:
    """Delete until at most so many rows, of so many bytes together, are left."""
    held = connection.execute("SELECT owner, count(*), coalesce(sum(length(body)), 0) FROM kept GROUP BY owner")
    owners = held.fetchall()
    most_rows = fair_share([count for _, count, _ in owners], rows)
    most_bytes = fair_share([taken for _, _, taken in owners], size)
    for owner, count, taken in owners:
        if count > most_rows or taken > most_bytes:
            _evict_owner_rows(connection, owner, count - most_rows, taken - most_bytes)


def fair_share(amounts: Sequence[int], capacity: int) -> int:
    """The most that one owner may hold so that all of them fit in `room`. Whoever holds less keeps all of it."""
    for place, amount in enumerate(ascending := sorted(amounts)):
        share = capacity // (len(ascending) - place)
        if amount > share:
            return share
        capacity -= amount
    return max(amounts, default=0)


def _evict_owner_rows(connection: sqlite3.Connection, owner: str, rows: int, size: int) -> None:
    """Delete so many rows, and so many bytes, of one owner: those that were unused longest."""
    query = "SELECT serial, length(body) FROM kept WHERE owner = ? ORDER BY used, serial"
    gone: list[tuple[int]] = []
    for serial, length in connection.execute(query, (owner,)).fetchall():
        if rows <= 0 and size <= 0:
            break
        gone.append((serial,))
        rows, size = rows - 1, size - length
    for start in range(0, len(gone), _ROWS_PER_TRANSACTION):
        with transaction(connection):
            connection.executemany("DELETE FROM kept WHERE serial = ?", gone[start : start + _ROWS_PER_TRANSACTION])


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
_PUT = """
INSERT INTO kept (owner, kind, id, parent, body, used) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, kind, id) DO UPDATE SET parent = excluded.parent, body = excluded.body, used = excluded.used
"""
_LINEAGE = """
WITH RECURSIVE line (serial, used, id, parent, body, depth) AS (
    SELECT serial, used, id, parent, body, 0 FROM kept
    WHERE owner = :owner AND kind = :kind AND id = :id AND used > :since
    UNION ALL
    SELECT kept.serial, kept.used, kept.id, kept.parent, kept.body, depth + 1
    FROM kept JOIN line ON kept.id = line.parent
    WHERE kept.owner = :owner AND kept.kind = :kind AND kept.used > :since AND depth < :deepest
)
SELECT serial, used, id, parent, body FROM line ORDER BY depth DESC
"""
_TRIM_RATIO = 0.9  # of its bounds, once it is trimmed
_EXPIRY_INTERVAL = 600.0  # seconds between two looks at what is too old
_MAX_DEPTH = 10_000
_TOUCH_INTERVAL = 60.0  # seconds for which a row counts as used just now
_REOPEN_INTERVAL = 5.0  # seconds between two tries to open a file that can't be used
_STOPPING_REASON = "the gateway is being stopped"

T = TypeVar("T")
DatabaseTask = Callable[[sqlite3.Connection], T]


class StoreLimits(Struct, frozen=True):
    """`ttl`: seconds since a row was last used. `queue`: how many bytes may wait to be written."""

    ttl: float
    rows: int
    bytes: int
    queue: int = 64 * 1024 * 1024


class SqliteStateStore:
    """`patience`: how many seconds another program may hold the file; `trouble`: what was wrong when it was checked."""

    def __init__(
        self,
        path: str,
        limits: StoreLimits,
        *,
        busy_timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        failure: DatabaseUnusable | None = None,
    ) -> None:
        self._path = path
        self._limits = limits
        self._busy_timeout = busy_timeout
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "toolwire-state")
        self._connection: sqlite3.Connection | None = None
        self._busy_timeout_ms = -1
        self._failure = failure
        self._reported_reason = ""
        self._reopen_at = 0.0
        self._check_scheduled = False
        self._lost_rows = 0
        self._queued_rows: list[Row] = []
        self._queued_bytes = 0
        self._queued_since = 0.0
        self._write_future: Future[None] = Future()
        self._queue_full = False
        self._lock = Lock()
        self._write_count = 0
        self._row_count = self._byte_count = 0
        self._last_expiry = 0.0
        self._closed = False

    # ---- what anyone may call

    @property
    def unavailable_reason(self) -> str | None:
        trouble = self._failure
        return None if trouble is None else trouble.reason

    def enqueue(self, rows: Sequence[Row]) -> None:
        self._enqueue_rows(rows)

    async def put(self, rows: Sequence[Row]) -> None:
        # Who waits may be cancelled, and the rows are written all the same: with others, perhaps.
        await asyncio.shield(asyncio.wrap_future(self._enqueue_rows(rows)))

    async def put_if(self, rows: Sequence[Row], accepts: Callable[[bytes | None], bool]) -> bool:
        self._write_count += 1
        return await asyncio.shield(self._run_task(lambda connection: self._insert_rows_if(connection, rows, accepts)))

    def version(self) -> object:
        return (
            self._write_count
            if self._path == IN_MEMORY
            else (self._write_count, _file_version(self._path), _file_version(f"{self._path}-wal"))
        )

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        return await self._run_task(lambda connection: self._get(connection, owner, kind, ids))

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        return await self._run_task(lambda connection: self._lineage(connection, owner, kind, id))

    async def children(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        return await self._run_task(lambda connection: self._children(connection, owner, kind, parent, after))

    async def has_children(self, owner: str, kind: str, parent: str) -> bool:
        query = "SELECT 1 FROM kept WHERE owner = ? AND kind = ? AND parent = ? AND used > ? LIMIT 1"
        values = (owner, kind, parent, self._expiry_cutoff())
        return await self._run_task(lambda connection: connection.execute(query, values).fetchone() is not None)

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        values = (owner, kind, id, self._expiry_cutoff())
        return await self._run_task(lambda connection: connection.execute(query, values).rowcount > 0)

    async def delete_children(self, owner: str, kind: str, parent: str) -> None:
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND parent = ?"
        await self._run_task(lambda connection: connection.execute(query, (owner, kind, parent)))

    def enqueue_delete(self, owner: str, kind: str, id: str) -> None:
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND id = ?"
        self._submit_task(lambda connection: connection.execute(query, (owner, kind, id)))

    async def check_writable(self) -> None:
        await self._run_task(self._check_writable)

    def schedule_check(self) -> None:
        if not self._check_scheduled and not self._closed:
            self._check_scheduled = True
            self._thread.submit(self._run_check)

    def close(self) -> None:
        """Whatever was kept before is written first."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(self._close_connection)
        self._thread.shutdown()

    # ---- from the event loop to the thread

    def _enqueue_rows(self, rows: Sequence[Row]) -> "Future[None]":
        """Have rows written with those that wait already; what is done then is all of them."""
        if self._closed:
            return _failed_future(StateUnavailable(_STOPPING_REASON))
        self._write_count += 1
        size = sum(len(row.body) for row in rows)
        with self._lock:
            first = not self._queued_rows
            fits = first or self._queued_bytes + size <= self._limits.queue
            if first:
                self._queued_since = self._clock()
                self._write_future = self._thread.submit(self._write_queue)
            if fits:
                self._queued_rows += rows
                self._queued_bytes += size
        overfull, self._queue_full = not fits and not self._queue_full, not fits
        if fits:
            return self._write_future
        why = f"more than {self._limits.queue} bytes wait to be written"
        if overfull:
            _log(f"{len(rows)} rows are not stored: {why}")
        return _failed_future(StateUnavailable(why))

    async def _run_task(self, task: DatabaseTask[T]) -> T:
        if self._closed:
            raise StateUnavailable(_STOPPING_REASON)
        since = self._clock()
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._perform_task(task, since))

    def _submit_task(self, task: DatabaseTask[object]) -> None:
        """Have something done that nobody waits for; where it can't be done, it is left."""
        since = self._clock()

        def perform() -> None:
            with contextlib.suppress(StateUnavailable):
                self._perform_task(task, since)

        if not self._closed:
            self._thread.submit(perform)

    # ---- what the thread does

    def _perform_task(self, task: DatabaseTask[T], since: float) -> T:
        """Do what came at `since`. No error leaves a transaction open, or a connection that is of no more use."""
        try:
            connection = self._open_connection()
            self._set_busy_timeout(connection, 0.0 if self._failure else since + self._busy_timeout - self._clock())
            return task(connection)
        except DatabaseUnusable as error:
            raise self._handle_failure(error) from None
        except sqlite3.Error as error:
            raise self._handle_failure(database_unusable(error)) from None

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._failure is not None and self._clock() < self._reopen_at:
                raise self._failure
            try:
                self._connection = open_database(
                    self._path, STATE_SCHEMA, create=self._path != IN_MEMORY, multithreaded=True
                )
                self._busy_timeout_ms = -1
                self._connection.execute("PRAGMA secure_delete = FAST")
                self._load_counts(self._connection)
            except (sqlite3.Error, DatabaseUnusable):
                self._reopen_at = self._clock() + _REOPEN_INTERVAL
                raise
        return self._connection

    def _set_busy_timeout(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Set how long SQLite waits for a lock."""
        milliseconds = 100 * round(10 * max(0.0, seconds))
        if milliseconds != self._busy_timeout_ms:
            connection.execute(f"PRAGMA busy_timeout = {milliseconds:d}")
            self._busy_timeout_ms = milliseconds

    def _handle_failure(self, failure: DatabaseUnusable) -> StateUnavailable:
        if self._connection is not None:
            roll_back(self._connection)
            if not failure.busy and self._path != IN_MEMORY:
                self._close_connection()
        self._report_failure(failure)
        return StateUnavailable(failure.reason)

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _report_failure(self, failure: DatabaseUnusable) -> None:
        if self._reported_reason != failure.reason:
            self._reported_reason = failure.reason
            _log(f"unavailable: {self._path}: {failure}. Requests that need no state go on.")
        self._failure = failure

    def _clear_failure(self) -> None:
        if self._failure is not None:
            lost = f"; {self._lost_rows} rows were not stored meanwhile" if self._lost_rows else ""
            _log(f"available again{lost}")
        self._failure, self._reported_reason, self._lost_rows = None, "", 0

    def _check_writable(self, connection: sqlite3.Connection) -> None:
        with transaction(connection):
            pass
        self._clear_failure()

    def _run_check(self) -> None:
        with contextlib.suppress(StateUnavailable):
            self._perform_task(self._check_writable, self._clock())
        self._check_scheduled = False

    def _write_queue(self) -> None:
        with self._lock:
            rows, since = self._queued_rows, self._queued_since
            self._queued_rows, self._queued_bytes = [], 0
        try:
            self._perform_task(lambda connection: self._insert_rows(connection, rows), since)
        except StateUnavailable:
            self._lost_rows += len(rows)
            raise
        if self._needs_trim():
            self._schedule_maintenance(self._trim_rows)

    def _insert_rows(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
        with transaction(connection):
            connection.executemany(_PUT, _row_values(rows))
        self._note_written(rows)

    def _insert_rows_if(
        self, connection: sqlite3.Connection, rows: Sequence[Row], accepts: Callable[[bytes | None], bool]
    ) -> bool:
        first = rows[0]
        query = "SELECT body FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        with transaction(connection):
            found = connection.execute(query, (first.owner, first.kind, first.id, self._expiry_cutoff())).fetchone()
            if accepted := accepts(None if found is None else found[0]):
                connection.executemany(_PUT, _row_values(rows))
        self._note_written(rows if accepted else ())
        return accepted

    def _note_written(self, rows: Sequence[Row]) -> None:
        self._row_count += len(rows)
        self._byte_count += sum(len(row.body) for row in rows)
        self._clear_failure()

    def _expiry_cutoff(self) -> float:
        return time.time() - self._limits.ttl

    def _get(self, connection: sqlite3.Connection, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        query = "SELECT serial, used, body FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        found: dict[str, bytes] = {}
        used: list[tuple[int, float]] = []
        for id in dict.fromkeys(ids):
            for serial, last, body in connection.execute(query, (owner, kind, id, self._expiry_cutoff())):
                found[id] = body
                used.append((serial, last))
        self._mark_used(used)
        return found

    def _lineage(self, connection: sqlite3.Connection, owner: str, kind: str, id: str) -> list[Row]:
        named = {"owner": owner, "kind": kind, "id": id, "since": self._expiry_cutoff(), "deepest": _MAX_DEPTH}
        found = connection.execute(_LINEAGE, named).fetchall()
        if not found or found[0][3] is not None:
            return []
        self._mark_used((serial, last) for serial, last, *_ in found)
        return [Row(owner, kind, id, body, parent) for _, _, id, parent, body in found]

    def _children(self, connection: sqlite3.Connection, owner: str, kind: str, parent: str, after: str) -> list[Row]:
        query = """SELECT serial, used, id, body FROM kept
            WHERE owner = ? AND kind = ? AND parent = ? AND id > ? AND used > ? ORDER BY serial"""
        found = connection.execute(query, (owner, kind, parent, after, self._expiry_cutoff())).fetchall()
        self._mark_used((serial, last) for serial, last, *_ in found)
        return [Row(owner, kind, id, body, parent) for _, _, id, body in found]

    def _mark_used(self, rows: Iterable[tuple[int, float]]) -> None:
        """Have what is in use live on, all of it: a conversation does not lose its beginning."""
        now = time.time()
        if stale := [serial for serial, last in rows if last < now - _TOUCH_INTERVAL]:
            values = [(now, serial) for serial in stale]
            self._schedule_maintenance(lambda connection: _touch_rows(connection, values))

    def _schedule_maintenance(self, task: DatabaseTask[None]) -> None:
        with contextlib.suppress(RuntimeError):  # it is being closed
            self._thread.submit(self._run_maintenance, task)

    def _run_maintenance(self, task: DatabaseTask[None]) -> None:
        """Do what may as well be done later: it waits for no other program, and its failure is no trouble."""
        with contextlib.suppress(sqlite3.Error, DatabaseUnusable):
            connection = self._open_connection()
            self._set_busy_timeout(connection, 0.0)
            task(connection)

    # ---- bounds

    def _load_counts(self, connection: sqlite3.Connection) -> None:
        query = "SELECT count(*), coalesce(sum(length(body)), 0) FROM kept"
        ((self._row_count, self._byte_count),) = connection.execute(query)

    def _needs_trim(self) -> bool:
        bounds = self._limits
        return (
            time.time() - self._last_expiry > _EXPIRY_INTERVAL
            or self._row_count > bounds.rows
            or self._byte_count > bounds.bytes
        )

    def _trim_rows(self, connection: sqlite3.Connection) -> None:
        now, bounds = time.time(), self._limits
        if now - self._last_expiry > _EXPIRY_INTERVAL:
            connection.execute("DELETE FROM kept WHERE used <= ?", (now - bounds.ttl,))
            self._last_expiry = now
            self._load_counts(connection)
        if self._row_count <= bounds.rows and self._byte_count <= bounds.bytes:
            return
        evict_rows(connection, int(bounds.rows * _TRIM_RATIO), int(bounds.bytes * _TRIM_RATIO))
        self._load_counts(connection)
        connection.execute("PRAGMA incremental_vacuum").fetchall()


def _row_values(rows: Sequence[Row]) -> list[tuple[str, str, str, str | None, bytes, float]]:
    now = time.time()
    return [(row.owner, row.kind, row.id, row.parent, row.body, now) for row in rows]


def _touch_rows(connection: sqlite3.Connection, values: Sequence[tuple[float, int]]) -> None:
    """Prolong the life of rows that were read."""
    with transaction(connection):
        connection.executemany("UPDATE kept SET used = ? WHERE serial = ?", values)


def _failed_future(error: StateUnavailable) -> "Future[None]":
    failed: Future[None] = Future()
    failed.set_exception(error)
    return failed


def _log(text: str) -> None:
    sys.stderr.write(f"state: {text}\n")


def _file_version(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size


def require_shared_file(section: StateSection, environment: Mapping[str, str]) -> None:
    """Raise a `ConfigError` unless the state is a file that several workers can share."""
    if section.path == IN_MEMORY:
        raise ConfigError('state.path: ":memory:" is not shared: --workers needs a file, or one worker')
    path = state_path(section, environment)
    try:
        create_private_file(path)
    except OSError as error:
        why = f"state.path: {path}: {error.strerror}: --workers needs a state file that can be written, or one worker"
        raise ConfigError(why) from None


def open_store(section: StateSection, environment: Mapping[str, str]) -> SqliteStateStore:
    """Open the store. Where there is no place for a file, and none was named, it is in memory.

    A file that is damaged or in use is reported, and the gateway serves what needs no state.
    """
    bounds = StoreLimits(section.ttl, section.rows, section.bytes, section.queue)
    if section.path == IN_MEMORY:
        return SqliteStateStore(IN_MEMORY, bounds)
    path = state_path(section, environment)
    try:
        create_private_file(path)
    except OSError as error:
        if section.path is not None:
            raise ConfigError(f"state.path: {section.path}: {error.strerror}") from None
        return SqliteStateStore(IN_MEMORY, bounds)
    try:
        open_database(path, STATE_SCHEMA).close()  # a connection can't be taken along by a process that forks
    except DatabaseUnusable as trouble:
        return SqliteStateStore(str(path), bounds, failure=trouble)
    return SqliteStateStore(str(path), bounds)


def state_path(section: StateSection, environment: Mapping[str, str]) -> Path:
    return state_directory(environment) / "state.db" if section.path is None else Path(section.path)
