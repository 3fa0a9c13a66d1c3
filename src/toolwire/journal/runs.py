"""Runs, and their named steps: one SQLite file that only its user may read.

A step is one row: its intent is there before its effect, its outcome after it. WAL mode: what was written before the
process was killed is there afterwards.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from .files import connected, prepare, why
from .store import JournalError

_DAY = 86_400.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, at REAL, about BLOB, ended BLOB, holder TEXT)",
    """CREATE TABLE IF NOT EXISTS steps (run TEXT, name TEXT, number INTEGER, intent BLOB, outcome BLOB, begun REAL,
    finished REAL, PRIMARY KEY (run, name)) WITHOUT ROWID""",
)


class KeptRun(Struct, frozen=True):
    """`about` is how it was started, `ended` how it ended, if it did."""

    id: str
    at: float
    about: bytes
    ended: bytes | None


class KeptStep(Struct, frozen=True):
    name: str
    intent: bytes
    outcome: bytes | None
    begun: float
    finished: float | None


class RunSteps:
    """The steps of one run, as the loop wants them. Who holds a run is alone with it: which steps there are is
    remembered, so that the file is not asked for what is not there."""

    def __init__(self, connection: sqlite3.Connection, run: str) -> None:
        self._connection = connection
        self._run = run
        self._names = {name for (name,) in connection.execute("SELECT name FROM steps WHERE run = ?", (run,))}

    def begun(self, name: str) -> bytes | None:
        return self._column("intent", name)

    def outcome(self, name: str) -> bytes | None:
        return self._column("outcome", name)

    def begin(self, name: str, intent: bytes) -> None:
        self._connection.execute(
            "INSERT INTO steps (run, name, number, intent, begun) VALUES (?1, ?2, ?5, ?3, ?4)"
            " ON CONFLICT DO UPDATE SET intent = ?3, begun = ?4",
            (self._run, name, intent, time.time(), len(self._names)),
        )
        self._names.add(name)

    def finish(self, name: str, outcome: bytes) -> None:
        self._connection.execute(
            "INSERT INTO steps (run, name, number, intent, outcome, begun, finished)"
            " VALUES (?1, ?2, ?5, x'', ?3, ?4, ?4) ON CONFLICT DO UPDATE SET outcome = ?3, finished = ?4",
            (self._run, name, outcome, time.time(), len(self._names)),
        )
        self._names.add(name)

    def _column(self, column: str, name: str) -> bytes | None:
        if name not in self._names:
            return None
        row = self._connection.execute(
            f"SELECT {column} FROM steps WHERE run = ? AND name = ?",  # noqa: S608 - one of two words of ours
            (self._run, name),
        ).fetchone()
        return None if row is None else row[0]


class Runs:
    """All runs there are. `days`: how long one is kept after it began."""

    def __init__(self, path: Path, *, days: float = 90.0) -> None:
        try:
            prepare(path, _TABLES)
            self._connection = connected(path, threads=True)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"{path}: {why(error)}") from None
        self.path = path
        self._days = days

    def begin(self, run: str, about: bytes) -> RunSteps:
        self._forget()
        self._connection.execute(
            "INSERT INTO runs (id, at, about, holder) VALUES (?, ?, ?, ?)", (run, time.time(), about, _holder())
        )
        return RunSteps(self._connection, run)

    def take_up(self, run: str) -> RunSteps:
        """The steps of a run that is to go on: nobody else may be at it."""
        row = self._connection.execute("SELECT holder FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise JournalError(f"there is no run {run!r} in {self.path}")
        if row[0] and row[0] != _holder() and _is_alive(row[0]):
            raise JournalError(f"the run {run} is still going on, in process {row[0].partition(':')[0]}")
        taken = self._connection.execute(
            "UPDATE runs SET holder = ?, ended = NULL WHERE id = ? AND holder IS ?", (_holder(), run, row[0])
        )
        if taken.rowcount != 1:
            raise JournalError(f"the run {run} is still going on, in a process that has just taken it up")
        return RunSteps(self._connection, run)

    def end(self, run: str, ended: bytes) -> None:
        self._connection.execute("UPDATE runs SET ended = ?, holder = NULL WHERE id = ?", (ended, run))

    def latest(self, count: int = 20) -> list[KeptRun]:
        rows = self._connection.execute(
            "SELECT id, at, about, ended FROM runs ORDER BY at DESC, id DESC LIMIT ?", (count,)
        )
        return [KeptRun(*row) for row in rows]

    def find(self, run: str) -> KeptRun:
        """By its id, or by how it begins if only one does; `last` is the latest."""
        if run == "last" and (found := self.latest(1)):
            return found[0]
        rows = self._connection.execute(
            "SELECT id, at, about, ended FROM runs WHERE id >= ? AND id < ? ORDER BY id LIMIT 2",
            (run, run + chr(0x10FFFF)),
        ).fetchall()
        if not rows or not run:
            raise JournalError(f"there is no run {run!r} in {self.path}")
        if len(rows) > 1 and rows[0][0] != run:  # those of its agents begin as it does
            raise JournalError(f"more than one run begins with {run!r}")
        return KeptRun(*rows[0])

    def has(self, run: str) -> bool:
        return self._connection.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone() is not None

    def steps(self, run: str) -> Sequence[KeptStep]:
        rows = self._connection.execute(
            "SELECT name, intent, outcome, begun, finished FROM steps WHERE run = ? ORDER BY number, name", (run,)
        )
        return [KeptStep(*row) for row in rows]

    def is_held(self, run: str) -> bool:
        row = self._connection.execute("SELECT holder FROM runs WHERE id = ?", (run,)).fetchone()
        return row is not None and bool(row[0]) and _is_alive(row[0])

    def close(self) -> None:
        self._connection.close()

    def _forget(self) -> None:
        oldest = time.time() - self._days * _DAY
        for (run,) in self._old(oldest):
            self._connection.execute("DELETE FROM steps WHERE run = ?", (run,))
            self._connection.execute("DELETE FROM runs WHERE id = ?", (run,))

    def _old(self, oldest: float) -> Iterator[tuple[str]]:
        yield from self._connection.execute("SELECT id FROM runs WHERE at < ?", (oldest,)).fetchall()


def _holder() -> str:
    """Who we are: the number of the process, and when it started, since numbers come again."""
    return f"{os.getpid()}:{_started(os.getpid())}"


def _is_alive(holder: str) -> bool:
    number, _, started = holder.partition(":")
    try:
        os.kill(int(number), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return _started(int(number)) == started


def _started(process: int) -> str:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - no path of ours
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
