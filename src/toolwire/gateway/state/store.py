"""The state store: rows by owner, kind and id, in SQLite, on disk or in memory.

1. An owner sees only its own rows. If the store is full, the owners with the most data lose their least recently used
   rows, so that no owner evicts another's.
2. One thread does all the work in order, so that a row is visible to every later read. Rows that arrive meanwhile are
   written in one transaction. Other processes may use the same file.
3. A locked file is waited for, up to a timeout that counts from the request. After that, requests fail at once until a
   write succeeds. After any other error the connection is reopened.
"""

import asyncio
import contextlib
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Protocol, TypeVar

from msgspec import Struct

from toolwire.canonical.errors import ApiError
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.state.eviction import evict_rows
from toolwire.journal.sqlite_files import (
    LOCK_TIMEOUT,
    DatabaseSchema,
    DatabaseUnusable,
    database_unusable,
    open_database,
    roll_back,
    transaction,
)

_RETRY_AFTER = 5.0


class Row(Struct, frozen=True):
    """A stored row."""

    owner: str
    """A digest of the key that created the row."""
    kind: str
    id: str
    body: bytes
    parent: str | None = None
    """The id of another row of the same kind, or of the object that the row belongs to."""


class StateUnavailable(RequestRejected):
    """State can't be read or written; requests that need it fail with 503."""

    def __init__(self, reason: str) -> None:
        message = f"the gateway's state is unavailable, and this request needs it: {reason}"
        super().__init__(ApiError(kind="overloaded", message=message, status=503, retry_after=_RETRY_AFTER))
        self.reason = reason


class StateStore(Protocol):
    """A store of rows, visible to later reads as soon as they are written or queued.

    Rows of one call are written together or not at all. Rows not used for their time to live are gone. Methods that
    wait raise `StateUnavailable` on failure.
    """

    @property
    def unavailable_reason(self) -> str | None:
        """Return why the store is unavailable, as far as is known."""

    def enqueue(self, rows: Sequence[Row]) -> None:
        """Write without waiting, for rows that no client relies on; rows that exceed the queue are dropped."""

    async def put(self, rows: Sequence[Row]) -> None:
        """Write rows, and return once they survive a crash: for ids that a client gets."""

    async def put_if(self, rows: Sequence[Row], accepts: Callable[[bytes | None], bool]) -> bool:
        """Write as `put` does if the first row's stored body is accepted; return whether it was.

        `accepts` gets None if no such row is stored. No other write comes between the check and this one.
        """

    def version(self) -> object:
        """Return a value that changes whenever rows may have been written, here or by another process."""

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the bodies of the rows that exist, by id."""

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        """Return a row and all its ancestors, the first one first; empty if any of them is missing."""

    async def children(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        """Return the rows with this parent, in the order written, whose id sorts after `after`."""

    async def has_children(self, owner: str, kind: str, parent: str) -> bool:
        """Return whether any row has this parent."""

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        """Delete a row, and return whether it existed."""

    async def delete_children(self, owner: str, kind: str, parent: str) -> None:
        """Delete all rows with this parent."""

    def enqueue_delete(self, owner: str, kind: str, id: str) -> None:
        """Delete a row without waiting."""

    async def check_writable(self) -> None:
        """Raise `StateUnavailable` unless a transaction can be opened."""

    def schedule_check(self) -> None:
        """Check without waiting whether the store is available again."""

    def close(self) -> None:
        """Write queued rows and close the store."""


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
_TRIM_RATIO = 0.9  # of the limits, after trimming
_EXPIRY_INTERVAL = 600.0  # seconds between deletions of expired rows
_MAX_DEPTH = 10_000
_TOUCH_INTERVAL = 60.0  # seconds after which a row that is read counts as used again
_REOPEN_INTERVAL = 5.0  # seconds between attempts to open an unusable file
_STOPPING_REASON = "the gateway is stopping"

T = TypeVar("T")
DatabaseTask = Callable[[sqlite3.Connection], T]


class StoreLimits(Struct, frozen=True):
    """Limits of a store."""

    ttl: float
    """Seconds since a row was last used."""
    rows: int
    bytes: int
    queue: int = 64 * 1024 * 1024
    """Bytes that may wait to be written."""


class SqliteStateStore:
    """A `StateStore` in SQLite."""

    def __init__(
        self,
        path: str,
        limits: StoreLimits,
        *,
        busy_timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        failure: DatabaseUnusable | None = None,
    ) -> None:
        """Configure the store, which is opened by its thread when first used.

        `busy_timeout` is how many seconds another program may lock the file; `failure` is a problem found before.
        """
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

    # ---- public interface

    @property
    def unavailable_reason(self) -> str | None:
        """Return the reason of the last failure, if it persists."""
        failure = self._failure
        return None if failure is None else failure.reason

    def enqueue(self, rows: Sequence[Row]) -> None:
        """Write rows without waiting; those that exceed the queue are dropped."""
        self._enqueue_rows(rows)

    async def put(self, rows: Sequence[Row]) -> None:
        """Write rows, and return once they survive a crash."""
        # If the caller is cancelled, the rows are still written, perhaps together with others.
        await asyncio.shield(asyncio.wrap_future(self._enqueue_rows(rows)))

    async def put_if(self, rows: Sequence[Row], accepts: Callable[[bytes | None], bool]) -> bool:
        self._write_count += 1
        return await asyncio.shield(self._run_task(lambda connection: self._insert_rows_if(connection, rows, accepts)))

    def version(self) -> object:
        """Return a value that changes whenever rows may have been written, here or by another process."""
        return (
            self._write_count
            if self._path == IN_MEMORY
            else (self._write_count, _file_version(self._path), _file_version(f"{self._path}-wal"))
        )

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the bodies of the rows that exist, by id."""
        return await self._run_task(lambda connection: self._get(connection, owner, kind, ids))

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        """Return a row and all its ancestors, the first one first; empty if any of them is missing."""
        return await self._run_task(lambda connection: self._lineage(connection, owner, kind, id))

    async def children(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        """Return the rows with this parent, in the order written, whose id sorts after `after`."""
        return await self._run_task(lambda connection: self._children(connection, owner, kind, parent, after))

    async def has_children(self, owner: str, kind: str, parent: str) -> bool:
        """Return whether any row has this parent."""
        query = "SELECT 1 FROM kept WHERE owner = ? AND kind = ? AND parent = ? AND used > ? LIMIT 1"
        values = (owner, kind, parent, self._expiry_cutoff())
        return await self._run_task(lambda connection: connection.execute(query, values).fetchone() is not None)

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        """Delete a row, and return whether it existed."""
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        values = (owner, kind, id, self._expiry_cutoff())
        return await self._run_task(lambda connection: connection.execute(query, values).rowcount > 0)

    async def delete_children(self, owner: str, kind: str, parent: str) -> None:
        """Delete all rows with this parent."""
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND parent = ?"
        await self._run_task(lambda connection: connection.execute(query, (owner, kind, parent)))

    def enqueue_delete(self, owner: str, kind: str, id: str) -> None:
        """Delete a row without waiting."""
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND id = ?"
        self._submit_task(lambda connection: connection.execute(query, (owner, kind, id)))

    async def check_writable(self) -> None:
        """Raise `StateUnavailable` unless a transaction can be opened."""
        await self._run_task(self._check_writable)

    def schedule_check(self) -> None:
        """Check without waiting whether the store is available again."""
        if not self._check_scheduled and not self._closed:
            self._check_scheduled = True
            self._thread.submit(self._run_check)

    def close(self) -> None:
        """Write queued rows and close the connection."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(self._close_connection)
        self._thread.shutdown()

    # ---- submitting work to the thread

    def _enqueue_rows(self, rows: Sequence[Row]) -> "Future[None]":
        """Queue rows; the future is done when they are written, together with others in the queue."""
        if self._closed:
            return _failed_future(StateUnavailable(_STOPPING_REASON))
        self._write_count += 1
        size = sum(len(row.body) for row in rows)
        with self._lock:
            is_first = not self._queued_rows
            fits = is_first or self._queued_bytes + size <= self._limits.queue
            if is_first:
                self._queued_since = self._clock()
                self._write_future = self._thread.submit(self._write_queue)
            if fits:
                self._queued_rows += rows
                self._queued_bytes += size
        newly_full, self._queue_full = not fits and not self._queue_full, not fits
        if fits:
            return self._write_future
        reason = f"more than {self._limits.queue} bytes are waiting to be written"
        if newly_full:
            _log(f"{len(rows)} rows not stored: {reason}")
        return _failed_future(StateUnavailable(reason))

    async def _run_task(self, task: DatabaseTask[T]) -> T:
        """Run a task in the thread, and return its result."""
        if self._closed:
            raise StateUnavailable(_STOPPING_REASON)
        since = self._clock()
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._perform_task(task, since))

    def _submit_task(self, task: DatabaseTask[object]) -> None:
        """Run a task in the thread without waiting, ignoring failures."""
        since = self._clock()

        def perform() -> None:
            """Run the task, ignoring failures of the store."""
            with contextlib.suppress(StateUnavailable):
                self._perform_task(task, since)

        if not self._closed:
            self._thread.submit(perform)

    # ---- in the thread

    def _perform_task(self, task: DatabaseTask[T], since: float) -> T:
        """Run a task submitted at the time `since`, and return its result; errors roll back.

        An unusable connection is closed.
        """
        try:
            connection = self._open_connection()
            self._set_busy_timeout(connection, 0.0 if self._failure else since + self._busy_timeout - self._clock())
            return task(connection)
        except DatabaseUnusable as error:
            raise self._handle_failure(error) from None
        except sqlite3.Error as error:
            raise self._handle_failure(database_unusable(error)) from None

    def _open_connection(self) -> sqlite3.Connection:
        """Return the connection, opening it if needed; after a failure, not too often."""
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
        """Roll back, close an unusable connection, and return the exception to raise."""
        if self._connection is not None:
            roll_back(self._connection)
            if not failure.busy and self._path != IN_MEMORY:
                self._close_connection()
        self._report_failure(failure)
        return StateUnavailable(failure.reason)

    def _close_connection(self) -> None:
        """Close the connection, if it is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _report_failure(self, failure: DatabaseUnusable) -> None:
        """Remember a failure, and log it once."""
        if self._reported_reason != failure.reason:
            self._reported_reason = failure.reason
            _log(f"unavailable: {self._path}: {failure}. Requests that need no state are still served.")
        self._failure = failure

    def _clear_failure(self) -> None:
        """Forget a failure after a successful write, and log the recovery."""
        if self._failure is not None:
            lost = f"; {self._lost_rows} rows were not stored meanwhile" if self._lost_rows else ""
            _log(f"available again{lost}")
        self._failure, self._reported_reason, self._lost_rows = None, "", 0

    def _check_writable(self, connection: sqlite3.Connection) -> None:
        """Open and close a transaction."""
        with transaction(connection):
            pass
        self._clear_failure()

    def _run_check(self) -> None:
        """Check whether the store is available again."""
        with contextlib.suppress(StateUnavailable):
            self._perform_task(self._check_writable, self._clock())
        self._check_scheduled = False

    def _write_queue(self) -> None:
        """Write all queued rows in one transaction."""
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
        """Insert or replace rows."""
        with transaction(connection):
            connection.executemany(_PUT, _row_values(rows))
        self._note_written(rows)

    def _insert_rows_if(
        self, connection: sqlite3.Connection, rows: Sequence[Row], accepts: Callable[[bytes | None], bool]
    ) -> bool:
        """Insert or replace rows if the body stored under the first row's id is accepted."""
        first = rows[0]
        query = "SELECT body FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        with transaction(connection):
            found = connection.execute(query, (first.owner, first.kind, first.id, self._expiry_cutoff())).fetchone()
            if accepted := accepts(None if found is None else found[0]):
                connection.executemany(_PUT, _row_values(rows))
        self._note_written(rows if accepted else ())
        return accepted

    def _note_written(self, rows: Sequence[Row]) -> None:
        """Add written rows to the totals, and mark the store as available again."""
        self._row_count += len(rows)
        self._byte_count += sum(len(row.body) for row in rows)
        self._clear_failure()

    def _expiry_cutoff(self) -> float:
        """Return the time before which unused rows are expired."""
        return time.time() - self._limits.ttl

    def _get(self, connection: sqlite3.Connection, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the bodies of rows that are not expired, and mark them as used."""
        query = "SELECT serial, used, body FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        bodies: dict[str, bytes] = {}
        used: list[tuple[int, float]] = []
        for id in dict.fromkeys(ids):
            for serial, last_used, body in connection.execute(query, (owner, kind, id, self._expiry_cutoff())):
                bodies[id] = body
                used.append((serial, last_used))
        self._mark_used(used)
        return bodies

    def _lineage(self, connection: sqlite3.Connection, owner: str, kind: str, id: str) -> list[Row]:
        """Return a row and its ancestors; empty if the chain is broken."""
        params = {"owner": owner, "kind": kind, "id": id, "since": self._expiry_cutoff(), "deepest": _MAX_DEPTH}
        rows = connection.execute(_LINEAGE, params).fetchall()
        if not rows or rows[0][3] is not None:
            return []
        self._mark_used((serial, last_used) for serial, last_used, *_ in rows)
        return [Row(owner, kind, id, body, parent) for _, _, id, parent, body in rows]

    def _children(self, connection: sqlite3.Connection, owner: str, kind: str, parent: str, after: str) -> list[Row]:
        """Return the rows with this parent in the order written, and mark them as used."""
        query = """SELECT serial, used, id, body FROM kept
            WHERE owner = ? AND kind = ? AND parent = ? AND id > ? AND used > ? ORDER BY serial"""
        rows = connection.execute(query, (owner, kind, parent, after, self._expiry_cutoff())).fetchall()
        self._mark_used((serial, last_used) for serial, last_used, *_ in rows)
        return [Row(owner, kind, id, body, parent) for _, _, id, body in rows]

    def _mark_used(self, rows: Iterable[tuple[int, float]]) -> None:
        """Renew rows that were read, all of them together: a conversation must not lose its beginning."""
        now = time.time()
        if stale := [serial for serial, last_used in rows if last_used < now - _TOUCH_INTERVAL]:
            values = [(now, serial) for serial in stale]
            self._schedule_maintenance(lambda connection: _touch_rows(connection, values))

    def _schedule_maintenance(self, task: DatabaseTask[None]) -> None:
        """Run a task later in the thread."""
        with contextlib.suppress(RuntimeError):  # the store is closing
            self._thread.submit(self._run_maintenance, task)

    def _run_maintenance(self, task: DatabaseTask[None]) -> None:
        """Run a task that may be skipped: it waits for no lock, and failures are ignored."""
        with contextlib.suppress(sqlite3.Error, DatabaseUnusable):
            connection = self._open_connection()
            self._set_busy_timeout(connection, 0.0)
            task(connection)

    # ---- limits

    def _load_counts(self, connection: sqlite3.Connection) -> None:
        """Count the stored rows and bytes."""
        query = "SELECT count(*), coalesce(sum(length(body)), 0) FROM kept"
        ((self._row_count, self._byte_count),) = connection.execute(query)

    def _needs_trim(self) -> bool:
        """Return whether expired rows are due for deletion, or a limit is exceeded."""
        limits = self._limits
        return (
            time.time() - self._last_expiry > _EXPIRY_INTERVAL
            or self._row_count > limits.rows
            or self._byte_count > limits.bytes
        )

    def _trim_rows(self, connection: sqlite3.Connection) -> None:
        """Delete expired rows, and the least recently used ones if a limit is exceeded."""
        now, limits = time.time(), self._limits
        if now - self._last_expiry > _EXPIRY_INTERVAL:
            connection.execute("DELETE FROM kept WHERE used <= ?", (now - limits.ttl,))
            self._last_expiry = now
            self._load_counts(connection)
        if self._row_count <= limits.rows and self._byte_count <= limits.bytes:
            return
        evict_rows(connection, int(limits.rows * _TRIM_RATIO), int(limits.bytes * _TRIM_RATIO))
        self._load_counts(connection)
        connection.execute("PRAGMA incremental_vacuum").fetchall()


def _row_values(rows: Sequence[Row]) -> list[tuple[str, str, str, str | None, bytes, float]]:
    now = time.time()
    return [(row.owner, row.kind, row.id, row.parent, row.body, now) for row in rows]


def _touch_rows(connection: sqlite3.Connection, values: Sequence[tuple[float, int]]) -> None:
    """Set when rows were last used: pairs of time and row number."""
    with transaction(connection):
        connection.executemany("UPDATE kept SET used = ? WHERE serial = ?", values)


def _failed_future(error: StateUnavailable) -> "Future[None]":
    """Return a future that has failed."""
    future: Future[None] = Future()
    future.set_exception(error)
    return future


def _log(text: str) -> None:
    """Write a line about the state store to stderr."""
    sys.stderr.write(f"state: {text}\n")


def _file_version(path: str) -> tuple[int, int]:
    """Return modification time and size of a file; zeros if it does not exist."""
    try:
        stat = Path(path).stat()
    except OSError:
        return (0, 0)
    return stat.st_mtime_ns, stat.st_size
