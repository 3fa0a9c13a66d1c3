"""A state store in a SQL database: what SQLite and PostgreSQL share.

1. One thread writes, in order. Rows that arrive meanwhile are written in one transaction. Reads see all rows queued
   before them; they use the thread of the writer, or threads of their own if the database allows it. With threads of
   their own, they wait for the rows that they look for, but not for others.
2. A locked database, or a server that can't be reached, is waited for, up to a timeout that counts from the request.
   After that, requests fail at once until a write succeeds. After any other error the connection is reopened.
"""

import asyncio
import contextlib
import sqlite3
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from toolwire.gateway.state.eviction import evict_rows
from toolwire.gateway.state.store import ChildWait, Row, StateStore, StateUnavailable, StoreLimits
from toolwire.journal.sql import SqlConnection
from toolwire.journal.sqlite_files import LOCK_TIMEOUT, DatabaseUnusable, database_unusable

INSERT_ROW = """
INSERT INTO kept (owner, kind, id, parent, body, used) VALUES (:owner, :kind, :id, :parent, :body, :used)
ON CONFLICT (owner, kind, id) DO UPDATE SET parent = excluded.parent, body = excluded.body, used = excluded.used
"""
_SELECT_BODY = "SELECT body FROM kept WHERE owner = :owner AND kind = :kind AND id = :id AND used > :since"
_SELECT_ROW = (
    "SELECT serial, used, id, body FROM kept WHERE owner = :owner AND kind = :kind AND id = :id AND used > :since"
)
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
_CHILDREN = """
SELECT serial, used, id, body FROM kept
WHERE owner = :owner AND kind = :kind AND parent = :parent AND id > :after AND used > :since ORDER BY serial
"""
_HAS_CHILDREN = """
SELECT 1 FROM kept WHERE owner = :owner AND kind = :kind AND parent = :parent AND used > :since LIMIT 1
"""
_DELETE = "DELETE FROM kept WHERE owner = :owner AND kind = :kind AND id = :id AND used > :since"
_DELETE_CHILDREN = "DELETE FROM kept WHERE owner = :owner AND kind = :kind AND parent = :parent"
_TRIM_RATIO = 0.9  # of the limits, after trimming
_EXPIRY_INTERVAL = 600.0  # seconds between deletions of expired rows
_MAX_DEPTH = 10_000
_TOUCH_INTERVAL = 60.0  # seconds after which a row that is read counts as used again
_REOPEN_INTERVAL = 5.0  # seconds between attempts to open an unusable database
_POLL_INTERVAL = 0.1
_RETRY_INTERVAL = 0.1  # seconds between attempts while a server can't be reached
_STOPPING_REASON = "the gateway is stopping"

T = TypeVar("T")
C = TypeVar("C", bound=SqlConnection)
_Key = tuple[str, ...]


class SqlStateStore(StateStore, Generic[C]):
    """A `StateStore` in a SQL database."""

    is_shared = False
    """Whether other machines use the database."""
    lineage_statement = _LINEAGE
    """Selects a row and its ancestors."""

    def __init__(
        self,
        name: str,
        limits: StoreLimits,
        *,
        readers: int = 0,
        busy_timeout: float = LOCK_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        failure: DatabaseUnusable | None = None,
    ) -> None:
        """Configure the store, which is opened by its threads when first used.

        `name` is logged; `readers` is the number of threads that read beside the writer; `busy_timeout` is how many
        seconds another program may lock the database; `failure` is a problem found before.
        """
        self._name = name
        self._limits = limits
        self._busy_timeout = busy_timeout
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "toolwire-state")
        self._readers = ThreadPoolExecutor(readers, "toolwire-state-reader") if readers else self._thread
        self._local = threading.local()
        self._connections: list[C] = []
        self._failure = failure
        self._reported_reason = ""
        self._reopen_at = 0.0
        self._check_scheduled = False
        self._lost_rows = 0
        self._queued_rows: list[Row] = []
        self._queued_bytes = 0
        self._queued_since = 0.0
        self._queued_keys: set[_Key] = set()
        self._writing_keys: set[_Key] = set()
        self._write_future: Future[None] = Future()
        self._write_future.set_result(None)
        self._queue_full = False
        self._lock = threading.Lock()
        self._write_count = 0
        self._row_count = self._byte_count = 0
        self._last_expiry = 0.0
        self._closed = False

    # ---- what databases differ in

    @abstractmethod
    def _connect(self) -> C:
        """Open a connection, with current tables."""

    @abstractmethod
    def _transaction(self, connection: C) -> AbstractContextManager[None]:
        """Run a transaction that no other writer of the same rows comes between, rolled back on errors."""

    def _set_busy_timeout(self, connection: C, seconds: float) -> None:
        """Set how long the next statement waits for a lock."""

    def _roll_back(self, connection: C) -> None:
        """Roll back a transaction that an error left open."""

    def _vacuum(self, connection: C) -> None:
        """Return free space to the system after a trim."""

    @abstractmethod
    def version(self) -> object:
        """Return a value that changes whenever rows may have been written, here or by another process."""

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

    async def flush(self) -> None:
        """Wait until the rows enqueued so far are written, if other machines may ask for them."""
        if self.is_shared:
            await self._wait_for_writes()

    async def put_if(self, rows: Sequence[Row], accepts: Callable[[bytes | None], bool]) -> bool:
        self._write_count += 1
        return await asyncio.shield(self._run_task(lambda connection: self._insert_rows_if(connection, rows, accepts)))

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the bodies of the rows that exist, by id."""
        keys = [(owner, kind, id) for id in ids]
        return await self._run_read(lambda connection: self._get(connection, owner, kind, ids), *keys)

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        """Return a row and all its ancestors, the first one first; empty if any of them is missing."""
        return await self._run_read(lambda connection: self._lineage(connection, owner, kind, id), (owner, kind, id))

    async def children(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        """Return the rows with this parent, in the order written, whose id sorts after `after`."""
        key = (owner, kind, "", parent)
        return await self._run_read(lambda connection: self._children(connection, owner, kind, parent, after), key)

    async def has_children(self, owner: str, kind: str, parent: str) -> bool:
        """Return whether any row has this parent."""
        values = {"owner": owner, "kind": kind, "parent": parent, "since": self._expiry_cutoff()}
        key = (owner, kind, "", parent)
        return await self._run_read(
            lambda connection: connection.execute(_HAS_CHILDREN, values).fetchone() is not None, key
        )

    @contextlib.contextmanager
    def watch_children(self, owner: str, kind: str, parent: str) -> Iterator[ChildWait]:
        """Return a function that waits for a short time, since other processes write without telling."""
        yield lambda: asyncio.sleep(_POLL_INTERVAL)

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        """Delete a row, and return whether it existed."""
        values = {"owner": owner, "kind": kind, "id": id, "since": self._expiry_cutoff()}
        return await self._run_task(lambda connection: connection.execute(_DELETE, values).rowcount > 0)

    async def delete_children(self, owner: str, kind: str, parent: str) -> None:
        """Delete all rows with this parent."""
        values = {"owner": owner, "kind": kind, "parent": parent}
        await self._run_task(lambda connection: connection.execute(_DELETE_CHILDREN, values))

    def enqueue_delete(self, owner: str, kind: str, id: str) -> None:
        """Delete a row without waiting."""
        values = {"owner": owner, "kind": kind, "id": id, "since": 0.0}
        self._submit_task(lambda connection: connection.execute(_DELETE, values))

    async def check_writable(self) -> None:
        """Raise `StateUnavailable` unless a transaction can be opened."""
        await self._run_task(self._check_writable)

    def schedule_check(self) -> None:
        """Check without waiting whether the store is available again."""
        if not self._check_scheduled and not self._closed:
            self._check_scheduled = True
            self._thread.submit(self._run_check)

    def close(self) -> None:
        """Write queued rows and close all connections."""
        if self._closed:
            return
        self._closed = True
        if self._readers is not self._thread:
            self._readers.shutdown()
        self._thread.submit(self._close_connections)
        self._thread.shutdown()

    # ---- submitting work to the threads

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
                self._queued_keys.update(_find_keys(rows))
        newly_full, self._queue_full = not fits and not self._queue_full, not fits
        if fits:
            return self._write_future
        reason = f"more than {self._limits.queue} bytes are waiting to be written"
        if newly_full:
            _log(f"{len(rows)} rows not stored: {reason}")
        return _failed_future(StateUnavailable(reason))

    async def _wait_for_writes(self) -> None:
        """Wait until the rows enqueued so far are written, or could not be."""
        if not self._write_future.done():
            with contextlib.suppress(StateUnavailable):
                await asyncio.shield(asyncio.wrap_future(self._write_future))

    async def _run_read(self, task: Callable[[C], T], *keys: _Key) -> T:
        """Run a reading task and return its result. First wait until queued rows with these keys are written."""
        if self._readers is not self._thread:
            with self._lock:
                is_queued = any(key in self._queued_keys or key in self._writing_keys for key in keys)
            if is_queued:
                await self._wait_for_writes()
        return await self._run_task(task, self._readers)

    async def _run_task(self, task: Callable[[C], T], thread: ThreadPoolExecutor | None = None) -> T:
        """Run a task in the thread of the writer or another one, and return its result."""
        if self._closed:
            raise StateUnavailable(_STOPPING_REASON)
        since = self._clock()
        return await asyncio.get_running_loop().run_in_executor(
            thread or self._thread, lambda: self._perform_task(task, since)
        )

    def _submit_task(self, task: Callable[[C], object]) -> None:
        """Run a task in the thread of the writer without waiting, ignoring failures."""
        since = self._clock()

        def perform() -> None:
            """Run the task, ignoring failures of the store."""
            with contextlib.suppress(StateUnavailable):
                self._perform_task(task, since)

        if not self._closed:
            self._thread.submit(perform)

    # ---- in the threads

    def _perform_task(self, task: Callable[[C], T], since: float) -> T:
        """Run a task submitted at the time `since`, and return its result; errors roll back.

        An unusable connection is closed. While a server can't be reached, the task is tried again, so it has to be
        idempotent.
        """
        was_available = self._failure is None
        while True:
            try:
                connection = self._open_connection()
                self._set_busy_timeout(connection, 0.0 if self._failure else since + self._busy_timeout - self._clock())
                return task(connection)
            except DatabaseUnusable as error:
                if not (self.is_shared and was_available and error.busy and self._is_in_time(since)):
                    raise self._handle_failure(error) from None
            except sqlite3.Error as error:
                raise self._handle_failure(database_unusable(error)) from None
            time.sleep(_RETRY_INTERVAL)

    def _is_in_time(self, since: float) -> bool:
        """Return whether a task submitted at the time `since` may wait longer."""
        return not self._closed and self._clock() - since < self._busy_timeout

    def _open_connection(self) -> C:
        """Return the connection of this thread, opening it if needed; after a failure, not too often."""
        connection: C | None = getattr(self._local, "connection", None)
        if connection is None:
            if self._failure is not None and self._clock() < self._reopen_at:
                raise self._failure
            try:
                connection = self._local.connection = self._connect()
            except (sqlite3.Error, DatabaseUnusable):
                self._reopen_at = self._clock() + _REOPEN_INTERVAL
                raise
            self._connections.append(connection)
        return connection

    def _handle_failure(self, failure: DatabaseUnusable) -> StateUnavailable:
        """Roll back, close an unusable connection, and return the exception to raise."""
        connection: C | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._roll_back(connection)
            if not failure.busy and self._may_reopen():
                self._local.connection = None
                self._connections.remove(connection)
                connection.close()
        self._report_failure(failure)
        return StateUnavailable(failure.reason)

    def _may_reopen(self) -> bool:
        """Return whether rows outlive a connection, so that an unusable one may be closed."""
        return True

    def _close_connections(self) -> None:
        """Close the connections of all threads."""
        while self._connections:
            self._connections.pop().close()

    def _report_failure(self, failure: DatabaseUnusable) -> None:
        """Remember a failure, and log it once."""
        if self._reported_reason != failure.reason:
            self._reported_reason = failure.reason
            _log(f"unavailable: {self._name}: {failure}. Requests that need no state are still served.")
        self._failure = failure

    def _clear_failure(self) -> None:
        """Forget a failure after a successful write, and log the recovery."""
        if self._failure is not None:
            lost = f"; {self._lost_rows} rows were not stored meanwhile" if self._lost_rows else ""
            _log(f"available again{lost}")
        self._failure, self._reported_reason, self._lost_rows = None, "", 0

    def _check_writable(self, connection: C) -> None:
        """Open and close a transaction."""
        with self._transaction(connection):
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
            self._writing_keys, self._queued_keys = self._queued_keys, set()
        try:
            self._perform_task(lambda connection: self._insert_rows(connection, rows), since)
        except StateUnavailable:
            self._lost_rows += len(rows)
            raise
        finally:
            self._writing_keys = set()
        if self._needs_trim():
            self._schedule_maintenance(self._trim_rows)

    def _insert_rows(self, connection: C, rows: Sequence[Row]) -> None:
        """Insert or replace rows."""
        with self._transaction(connection):
            self._write_rows(connection, rows)
        self._note_written(rows)

    def _insert_rows_if(self, connection: C, rows: Sequence[Row], accepts: Callable[[bytes | None], bool]) -> bool:
        """Insert or replace rows if the body stored under the first row's id is accepted."""
        first = rows[0]
        values = {"owner": first.owner, "kind": first.kind, "id": first.id, "since": self._expiry_cutoff()}
        with self._transaction(connection):
            self._lock_row(connection, first)
            found = connection.execute(_SELECT_BODY, values).fetchone()
            body = None if found is None else found[0]
            # The answer to a first attempt may have been lost.
            if accepted := body == first.body or accepts(body):
                self._write_rows(connection, rows)
        self._note_written(rows if accepted else ())
        return accepted

    def _lock_row(self, connection: C, row: Row) -> None:
        """Keep others from writing a row, stored or not, until the end of the transaction."""

    def _write_rows(self, connection: C, rows: Sequence[Row]) -> None:
        """Insert or replace rows, inside a transaction."""
        now = time.time()
        connection.executemany(INSERT_ROW, [_row_values(row, now) for row in rows])

    def _note_written(self, rows: Sequence[Row]) -> None:
        """Add written rows to the totals, and mark the store as available again."""
        self._row_count += len(rows)
        self._byte_count += sum(len(row.body) for row in rows)
        self._clear_failure()

    def _expiry_cutoff(self) -> float:
        """Return the time before which unused rows are expired."""
        return time.time() - self._limits.ttl

    def _get(self, connection: C, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the bodies of rows that are not expired, and mark them as used."""
        rows = self._select_rows(connection, owner, kind, tuple(dict.fromkeys(ids)))
        self._mark_used((serial, last_used) for serial, last_used, _, _ in rows)
        return {id: body for _, _, id, body in rows}

    def _select_rows(self, connection: C, owner: str, kind: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return serial number, time of last use, id and body of rows that are not expired."""
        values = {"owner": owner, "kind": kind, "since": self._expiry_cutoff()}
        return [row for id in ids for row in connection.execute(_SELECT_ROW, {**values, "id": id})]

    def _lineage(self, connection: C, owner: str, kind: str, id: str) -> list[Row]:
        """Return a row and its ancestors; empty if the chain is broken."""
        values = {"owner": owner, "kind": kind, "id": id, "since": self._expiry_cutoff(), "deepest": _MAX_DEPTH}
        rows = connection.execute(self.lineage_statement, values).fetchall()
        if not rows or rows[0][3] is not None:
            return []
        self._mark_used((serial, last_used) for serial, last_used, *_ in rows)
        return [Row(owner, kind, id, body, parent) for _, _, id, parent, body in rows]

    def _children(self, connection: C, owner: str, kind: str, parent: str, after: str) -> list[Row]:
        """Return the rows with this parent in the order written, and mark them as used."""
        values = {"owner": owner, "kind": kind, "parent": parent, "after": after, "since": self._expiry_cutoff()}
        rows = connection.execute(_CHILDREN, values).fetchall()
        self._mark_used((serial, last_used) for serial, last_used, *_ in rows)
        return [Row(owner, kind, id, body, parent) for _, _, id, body in rows]

    def _mark_used(self, rows: Iterable[tuple[int, float]]) -> None:
        """Renew rows that were read, all of them together: a conversation must not lose its beginning."""
        now = time.time()
        if stale := [serial for serial, last_used in rows if last_used < now - _TOUCH_INTERVAL]:
            values = [{"used": now, "serial": serial} for serial in sorted(stale)]
            self._schedule_maintenance(lambda connection: self._touch_rows(connection, values))

    def _touch_rows(self, connection: C, values: Sequence[dict[str, Any]]) -> None:
        """Set when rows were last used."""
        with self._transaction(connection):
            connection.executemany("UPDATE kept SET used = :used WHERE serial = :serial", values)

    def _schedule_maintenance(self, task: Callable[[C], None]) -> None:
        """Run a task later in the thread of the writer."""
        with contextlib.suppress(RuntimeError):  # the store is closing
            self._thread.submit(self._run_maintenance, task)

    def _run_maintenance(self, task: Callable[[C], None]) -> None:
        """Run a task that may be skipped: it waits for no lock, and failures are ignored."""
        with contextlib.suppress(sqlite3.Error, DatabaseUnusable):
            connection = self._open_connection()
            self._set_busy_timeout(connection, 0.0)
            task(connection)

    # ---- limits

    def _load_counts(self, connection: C) -> None:
        """Count the stored rows and bytes."""
        query = "SELECT count(*), coalesce(sum(length(body)), 0) FROM kept"
        self._row_count, self._byte_count = map(int, connection.execute(query).fetchone())

    def _needs_trim(self) -> bool:
        """Return whether expired rows are due for deletion, or a limit is exceeded."""
        limits = self._limits
        return (
            time.time() - self._last_expiry > _EXPIRY_INTERVAL
            or self._row_count > limits.rows
            or self._byte_count > limits.bytes
        )

    def _trim_rows(self, connection: C) -> None:
        """Delete expired rows, and the least recently used ones if a limit is exceeded."""
        now, limits = time.time(), self._limits
        if now - self._last_expiry > _EXPIRY_INTERVAL:
            connection.execute("DELETE FROM kept WHERE used <= :since", {"since": now - limits.ttl})
            self._last_expiry = now
            self._load_counts(connection)
        if self._row_count <= limits.rows and self._byte_count <= limits.bytes:
            return
        rows, size = int(limits.rows * _TRIM_RATIO), int(limits.bytes * _TRIM_RATIO)
        evict_rows(connection, lambda: self._transaction(connection), rows, size)
        self._load_counts(connection)
        self._vacuum(connection)


def _find_keys(rows: Iterable[Row]) -> Iterator[_Key]:
    """Yield the keys by which readers find these rows: their ids and their parents."""
    for row in rows:
        yield row.owner, row.kind, row.id
        if row.parent is not None:
            yield row.owner, row.kind, "", row.parent


def _row_values(row: Row, used: float) -> dict[str, Any]:
    """Return a row as the parameters of `INSERT_ROW`."""
    return {
        "owner": row.owner,
        "kind": row.kind,
        "id": row.id,
        "parent": row.parent,
        "body": row.body,
        "used": used,
    }


def _failed_future(error: StateUnavailable) -> "Future[None]":
    """Return a future that has failed."""
    future: Future[None] = Future()
    future.set_exception(error)
    return future


def _log(text: str) -> None:
    """Write a line about the state store to stderr."""
    sys.stderr.write(f"state: {text}\n")
