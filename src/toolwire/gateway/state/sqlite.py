"""The store in a file of SQLite, or in memory.

One thread does all of it, in order: what was kept is there for whoever asks next, and what is kept while it is busy
goes into one transaction. Other processes may use the same file.

A file that another program holds is waited for, up to a bound that counts from when the request came; after that
nobody waits until a write succeeds again. After any other error the connection is opened anew.
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
from typing import TypeVar

from msgspec import Struct

from toolwire.journal.files import (
    PATIENCE,
    DatabaseUnusable,
    Schema,
    open_database,
    roll_back,
    transaction,
    unusable,
)

from .eviction import evict_rows
from .store import Row, Unavailable

MEMORY = ":memory:"
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
SCHEMA = Schema(
    steps=(
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
_LEFT = 0.9  # of its bounds, once it is trimmed
_PAUSE = 600.0  # seconds between two looks at what is too old
_DEEPEST = 10_000
_FRESH = 60.0  # seconds for which a row counts as used just now
_REOPEN = 5.0  # seconds between two tries to open a file that can't be used
_STOPPING = "the gateway is being stopped"

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class Bounds(Struct, frozen=True):
    """`ttl`: seconds since a row was last used. `queue`: how many bytes may wait to be written."""

    ttl: float
    rows: int
    bytes: int
    queue: int = 64 * 1024 * 1024


class SqliteStore:
    """`patience`: how many seconds another program may hold the file; `trouble`: what was wrong when it was checked."""

    def __init__(
        self,
        path: str,
        bounds: Bounds,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        trouble: DatabaseUnusable | None = None,
    ) -> None:
        self._path = path
        self._bounds = bounds
        self._patience = patience
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "toolwire-state")
        self._connection: sqlite3.Connection | None = None
        self._timeout = -1
        self._trouble = trouble
        self._reported = ""
        self._reopen = 0.0
        self._checking = False
        self._lost = 0
        self._waiting: list[Row] = []
        self._waiting_bytes = 0
        self._waiting_since = 0.0
        self._writing: Future[None] = Future()
        self._full = False
        self._lock = Lock()
        self._kept = 0
        self._rows = self._bytes = 0
        self._looked = 0.0
        self._closed = False

    # ---- what anyone may call

    @property
    def trouble(self) -> str | None:
        trouble = self._trouble
        return None if trouble is None else trouble.why

    def keep(self, rows: Sequence[Row]) -> None:
        self._enqueue(rows)

    async def put(self, rows: Sequence[Row]) -> None:
        # Who waits may be cancelled, and the rows are written all the same: with others, perhaps.
        await asyncio.shield(asyncio.wrap_future(self._enqueue(rows)))

    def version(self) -> object:
        return self._kept if self._path == MEMORY else (self._kept, _touched(self._path), _touched(f"{self._path}-wal"))

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        return await self._run(lambda connection: self._get(connection, owner, kind, ids))

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        return await self._run(lambda connection: self._lineage(connection, owner, kind, id))

    async def under(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        return await self._run(lambda connection: self._under(connection, owner, kind, parent, after))

    async def has(self, owner: str, kind: str, parent: str) -> bool:
        query = "SELECT 1 FROM kept WHERE owner = ? AND kind = ? AND parent = ? AND used > ? LIMIT 1"
        values = (owner, kind, parent, self._since())
        return await self._run(lambda connection: connection.execute(query, values).fetchone() is not None)

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        values = (owner, kind, id, self._since())
        return await self._run(lambda connection: connection.execute(query, values).rowcount > 0)

    async def delete_under(self, owner: str, kind: str, parent: str) -> None:
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND parent = ?"
        await self._run(lambda connection: connection.execute(query, (owner, kind, parent)))

    def discard(self, owner: str, kind: str, id: str) -> None:
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND id = ?"
        self._submit(lambda connection: connection.execute(query, (owner, kind, id)))

    async def check(self) -> None:
        await self._run(self._check)

    def recheck(self) -> None:
        if not self._checking and not self._closed:
            self._checking = True
            self._thread.submit(self._recheck)

    def close(self) -> None:
        """Whatever was kept before is written first."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(self._shut)
        self._thread.shutdown()

    # ---- from the event loop to the thread

    def _enqueue(self, rows: Sequence[Row]) -> "Future[None]":
        """Have rows written with those that wait already; what is done then is all of them."""
        if self._closed:
            return _failed(Unavailable(_STOPPING))
        self._kept += 1
        size = sum(len(row.body) for row in rows)
        with self._lock:
            first = not self._waiting
            fits = first or self._waiting_bytes + size <= self._bounds.queue
            if first:
                self._waiting_since = self._clock()
                self._writing = self._thread.submit(self._write)
            if fits:
                self._waiting += rows
                self._waiting_bytes += size
        overfull, self._full = not fits and not self._full, not fits
        if fits:
            return self._writing
        why = f"more than {self._bounds.queue} bytes wait to be written"
        if overfull:
            _say(f"{len(rows)} rows are not stored: {why}")
        return _failed(Unavailable(why))

    async def _run(self, work: Work[T]) -> T:
        if self._closed:
            raise Unavailable(_STOPPING)
        since = self._clock()
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._perform(work, since))

    def _submit(self, work: Work[object]) -> None:
        """Have something done that nobody waits for; where it can't be done, it is left."""
        since = self._clock()

        def perform() -> None:
            with contextlib.suppress(Unavailable):
                self._perform(work, since)

        if not self._closed:
            self._thread.submit(perform)

    # ---- what the thread does

    def _perform(self, work: Work[T], since: float) -> T:
        """Do what came at `since`. No error leaves a transaction open, or a connection that is of no more use."""
        try:
            connection = self._open()
            self._wait_for_others(connection, 0.0 if self._trouble else since + self._patience - self._clock())
            return work(connection)
        except DatabaseUnusable as error:
            raise self._give_up(error) from None
        except sqlite3.Error as error:
            raise self._give_up(unusable(error)) from None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._trouble is not None and self._clock() < self._reopen:
                raise self._trouble
            try:
                self._connection = open_database(self._path, SCHEMA, make=self._path != MEMORY, threads=True)
                self._timeout = -1
                self._connection.execute("PRAGMA secure_delete = FAST")
                self._count(self._connection)
            except (sqlite3.Error, DatabaseUnusable):
                self._reopen = self._clock() + _REOPEN
                raise
        return self._connection

    def _wait_for_others(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Set how long SQLite waits for a lock."""
        milliseconds = 100 * round(10 * max(0.0, seconds))
        if milliseconds != self._timeout:
            connection.execute(f"PRAGMA busy_timeout = {milliseconds:d}")
            self._timeout = milliseconds

    def _give_up(self, trouble: DatabaseUnusable) -> Unavailable:
        if self._connection is not None:
            roll_back(self._connection)
            if not trouble.busy and self._path != MEMORY:
                self._shut()
        self._report(trouble)
        return Unavailable(trouble.why)

    def _shut(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _report(self, trouble: DatabaseUnusable) -> None:
        if self._reported != trouble.why:
            self._reported = trouble.why
            _say(f"unavailable: {self._path}: {trouble}. Requests that need no state go on.")
        self._trouble = trouble

    def _recovered(self) -> None:
        if self._trouble is not None:
            lost = f"; {self._lost} rows were not stored meanwhile" if self._lost else ""
            _say(f"available again{lost}")
        self._trouble, self._reported, self._lost = None, "", 0

    def _check(self, connection: sqlite3.Connection) -> None:
        with transaction(connection):
            pass
        self._recovered()

    def _recheck(self) -> None:
        with contextlib.suppress(Unavailable):
            self._perform(self._check, self._clock())
        self._checking = False

    def _write(self) -> None:
        with self._lock:
            rows, since = self._waiting, self._waiting_since
            self._waiting, self._waiting_bytes = [], 0
        try:
            self._perform(lambda connection: self._insert(connection, rows), since)
        except Unavailable:
            self._lost += len(rows)
            raise
        if self._is_to_be_trimmed():
            self._tidy_later(self._trim)

    def _insert(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
        now = time.time()
        with transaction(connection):
            connection.executemany(_PUT, [(row.owner, row.kind, row.id, row.parent, row.body, now) for row in rows])
        self._rows += len(rows)
        self._bytes += sum(len(row.body) for row in rows)
        self._recovered()

    def _since(self) -> float:
        return time.time() - self._bounds.ttl

    def _get(self, connection: sqlite3.Connection, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        query = "SELECT serial, used, body FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        found: dict[str, bytes] = {}
        used: list[tuple[int, float]] = []
        for id in dict.fromkeys(ids):
            for serial, last, body in connection.execute(query, (owner, kind, id, self._since())):
                found[id] = body
                used.append((serial, last))
        self._use(used)
        return found

    def _lineage(self, connection: sqlite3.Connection, owner: str, kind: str, id: str) -> list[Row]:
        named = {"owner": owner, "kind": kind, "id": id, "since": self._since(), "deepest": _DEEPEST}
        found = connection.execute(_LINEAGE, named).fetchall()
        if not found or found[0][3] is not None:
            return []
        self._use((serial, last) for serial, last, *_ in found)
        return [Row(owner, kind, id, body, parent) for _, _, id, parent, body in found]

    def _under(self, connection: sqlite3.Connection, owner: str, kind: str, parent: str, after: str) -> list[Row]:
        query = """SELECT serial, used, id, body FROM kept
            WHERE owner = ? AND kind = ? AND parent = ? AND id > ? AND used > ? ORDER BY serial"""
        found = connection.execute(query, (owner, kind, parent, after, self._since())).fetchall()
        self._use((serial, last) for serial, last, *_ in found)
        return [Row(owner, kind, id, body, parent) for _, _, id, body in found]

    def _use(self, rows: Iterable[tuple[int, float]]) -> None:
        """Have what is in use live on, all of it: a conversation does not lose its beginning."""
        now = time.time()
        if stale := [serial for serial, last in rows if last < now - _FRESH]:
            values = [(now, serial) for serial in stale]
            self._tidy_later(lambda connection: _touch(connection, values))

    def _tidy_later(self, work: Work[None]) -> None:
        with contextlib.suppress(RuntimeError):  # it is being closed
            self._thread.submit(self._tidy, work)

    def _tidy(self, work: Work[None]) -> None:
        """Do what may as well be done later: it waits for no other program, and its failure is no trouble."""
        with contextlib.suppress(sqlite3.Error, DatabaseUnusable):
            connection = self._open()
            self._wait_for_others(connection, 0.0)
            work(connection)

    # ---- bounds

    def _count(self, connection: sqlite3.Connection) -> None:
        query = "SELECT count(*), coalesce(sum(length(body)), 0) FROM kept"
        ((self._rows, self._bytes),) = connection.execute(query)

    def _is_to_be_trimmed(self) -> bool:
        bounds = self._bounds
        return time.time() - self._looked > _PAUSE or self._rows > bounds.rows or self._bytes > bounds.bytes

    def _trim(self, connection: sqlite3.Connection) -> None:
        now, bounds = time.time(), self._bounds
        if now - self._looked > _PAUSE:
            connection.execute("DELETE FROM kept WHERE used <= ?", (now - bounds.ttl,))
            self._looked = now
            self._count(connection)
        if self._rows <= bounds.rows and self._bytes <= bounds.bytes:
            return
        evict_rows(connection, int(bounds.rows * _LEFT), int(bounds.bytes * _LEFT))
        self._count(connection)
        connection.execute("PRAGMA incremental_vacuum").fetchall()


def _touch(connection: sqlite3.Connection, values: Sequence[tuple[float, int]]) -> None:
    """Prolong the life of rows that were read."""
    with transaction(connection):
        connection.executemany("UPDATE kept SET used = ? WHERE serial = ?", values)


def _failed(error: Unavailable) -> "Future[None]":
    failed: Future[None] = Future()
    failed.set_exception(error)
    return failed


def _say(text: str) -> None:
    sys.stderr.write(f"state: {text}\n")


def _touched(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size
