"""The store in a file of SQLite, or in memory.

One thread does all of it, in order: what was kept is there for whoever asks next, and what is kept while it is busy
goes into one transaction. Other processes may use the same file.
"""

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TypeVar

from msgspec import Struct

from toolwire.journal.files import connected, lay_out

from .store import Row

MEMORY = ":memory:"
_SCHEMA = (
    "PRAGMA secure_delete = FAST",
    """
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
""",
    "CREATE INDEX IF NOT EXISTS kept_under ON kept (owner, kind, parent)",
    "CREATE INDEX IF NOT EXISTS kept_used ON kept (used)",
)
_PUT = """
INSERT INTO kept (owner, kind, id, parent, body, used) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, kind, id) DO UPDATE SET parent = excluded.parent, body = excluded.body, used = excluded.used
"""
_LINEAGE = """
WITH RECURSIVE line (serial, id, parent, body, depth) AS (
    SELECT serial, id, parent, body, 0 FROM kept WHERE owner = :owner AND kind = :kind AND id = :id AND used > :since
    UNION ALL
    SELECT kept.serial, kept.id, kept.parent, kept.body, depth + 1 FROM kept JOIN line ON kept.id = line.parent
    WHERE kept.owner = :owner AND kept.kind = :kind AND used > :since AND depth < :deepest
)
SELECT serial, id, parent, body FROM line ORDER BY depth DESC
"""
_LEFT = 0.9  # of its bounds, once it is trimmed
_PAUSE = 600.0  # seconds between two looks at what is too old
_DEEPEST = 10_000

T = TypeVar("T")


class Bounds(Struct, frozen=True):
    """`ttl`: seconds since a row was last used. `queue`: how many bytes may wait to be written."""

    ttl: float
    rows: int
    bytes: int
    queue: int = 64 * 1024 * 1024


class SqliteStore:
    def __init__(self, path: str, bounds: Bounds) -> None:
        self._path = path
        self._bounds = bounds
        self._thread = ThreadPoolExecutor(1, "toolwire-state")
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[Row] = []
        self._waiting_bytes = 0
        self._full = False
        self._lock = Lock()
        self._kept = 0
        self._rows = self._bytes = 0
        self._looked = 0.0
        self._closed = False

    # ---- what anyone may call

    def keep(self, rows: Sequence[Row]) -> None:
        if self._closed:
            return
        self._kept += 1
        size = sum(len(row.body) for row in rows)
        with self._lock:
            first = not self._waiting
            fits = first or self._waiting_bytes + size <= self._bounds.queue
            if fits:
                self._waiting += rows
                self._waiting_bytes += size
        if first:
            self._thread.submit(self._write)
        if not fits and not self._full:
            _complain(len(rows), f"more than {self._bounds.queue} bytes wait to be written")
        self._full = not fits

    def version(self) -> object:
        return self._kept if self._path == MEMORY else (self._kept, _touched(self._path), _touched(f"{self._path}-wal"))

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        return await self._run(lambda: self._get(owner, kind, ids))

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        return await self._run(lambda: self._lineage(owner, kind, id))

    async def under(self, owner: str, kind: str, parent: str) -> list[Row]:
        return await self._run(lambda: self._under(owner, kind, parent))

    async def has(self, owner: str, kind: str, parent: str) -> bool:
        query = "SELECT 1 FROM kept WHERE owner = ? AND kind = ? AND parent = ? AND used > ? LIMIT 1"
        return await self._run(lambda: bool(self._select(query, (owner, kind, parent, self._since()))))

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        return await self._run(lambda: self._change(query, (owner, kind, id, self._since())) > 0)

    async def delete_under(self, owner: str, kind: str, parent: str) -> None:
        query = "DELETE FROM kept WHERE owner = ? AND kind = ? AND parent = ?"
        await self._run(lambda: self._change(query, (owner, kind, parent)))

    def close(self) -> None:
        """Whatever was kept before is written first."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(self._shut)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # ---- what the thread does

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = connected(self._path, threads=True)
            lay_out(connection, _SCHEMA)
            self._connection = connection
            self._count()
        return self._connection

    def _shut(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self) -> None:
        with self._lock:
            rows, self._waiting, self._waiting_bytes = self._waiting, [], 0
        now = time.time()
        values = [(row.owner, row.kind, row.id, row.parent, row.body, now) for row in rows]
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany(_PUT, values)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            self._rows += len(rows)
            self._bytes += sum(len(row.body) for row in rows)
            self._trim(now)
        except (sqlite3.Error, OSError) as error:
            _complain(len(rows), error)

    def _since(self) -> float:
        return time.time() - self._bounds.ttl

    def _select(self, query: str, values: Sequence[object]) -> list[tuple[object, ...]]:
        return self._open().execute(query, values).fetchall()

    def _change(self, query: str, values: Sequence[object]) -> int:
        return self._open().execute(query, values).rowcount

    def _get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        query = "SELECT serial, body FROM kept WHERE owner = ? AND kind = ? AND id = ? AND used > ?"
        found: dict[str, bytes] = {}
        serials: list[int] = []
        for id in dict.fromkeys(ids):
            for serial, body in self._open().execute(query, (owner, kind, id, self._since())):
                found[id] = body
                serials.append(serial)
        self._use(serials)
        return found

    def _lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        named = {"owner": owner, "kind": kind, "id": id, "since": self._since(), "deepest": _DEEPEST}
        found = self._open().execute(_LINEAGE, named).fetchall()
        if not found or found[0][2] is not None:
            return []
        self._use([serial for serial, *_ in found])
        return [Row(owner, kind, id, body, parent) for _, id, parent, body in found]

    def _under(self, owner: str, kind: str, parent: str) -> list[Row]:
        query = (
            "SELECT serial, id, body FROM kept WHERE owner = ? AND kind = ? AND parent = ? AND used > ? ORDER BY serial"
        )
        found = self._open().execute(query, (owner, kind, parent, self._since())).fetchall()
        self._use([serial for serial, *_ in found])
        return [Row(owner, kind, id, body, parent) for _, id, body in found]

    def _use(self, serials: Sequence[int]) -> None:
        """What is in use lives on, all of it: a conversation does not lose its beginning."""
        connection, now = self._open(), time.time()
        connection.execute("BEGIN")
        # Once a minute is often enough.
        connection.executemany(
            "UPDATE kept SET used = ? WHERE serial = ? AND used < ?", [(now, one, now - 60) for one in serials]
        )
        connection.execute("COMMIT")

    # ---- bounds

    def _count(self) -> None:
        ((self._rows, self._bytes),) = self._open().execute("SELECT count(*), coalesce(sum(length(body)), 0) FROM kept")

    def _trim(self, now: float) -> None:
        connection, bounds = self._open(), self._bounds
        if now - self._looked > _PAUSE:
            self._looked = now
            connection.execute("DELETE FROM kept WHERE used <= ?", (now - bounds.ttl,))
            self._count()
        if self._rows <= bounds.rows and self._bytes <= bounds.bytes:
            return
        self._count()  # others may have kept, or trimmed, too
        while self._rows > bounds.rows * _LEFT or self._bytes > bounds.bytes * _LEFT:
            # The longest unused go first, a twentieth at a time.
            least = max(1, self._rows // 20)
            oldest = "DELETE FROM kept WHERE serial IN (SELECT serial FROM kept ORDER BY used, serial LIMIT ?)"
            if connection.execute(oldest, (least,)).rowcount < 1:
                break
            self._count()
        connection.execute("PRAGMA incremental_vacuum").fetchall()


def _complain(count: int, why: object) -> None:
    """The answer itself has arrived: what is missed later is told as not found."""
    sys.stderr.write(f"state: {count} not kept: {why}\n")


def _touched(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size
