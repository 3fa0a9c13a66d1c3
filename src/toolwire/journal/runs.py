"""Runs, and their named steps: one SQLite file that only its user may read.

1. A step is one row: its intent is there before its effect, its outcome after it. Both are on the disk when `begin` and
   `finish` return, also after a power cut (`synchronous = FULL`).
2. Whoever takes a run gets a token and a lease on it. A run that is held is refused to everybody else: to other threads
   and tasks of the same process, too.
3. Every write of a step checks the token: who lost the lease stops before the next effect.
"""

import secrets
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from .files import DatabaseUnusable, Schema, open_database, prepare, unusable
from .leases import Heartbeat, LeaseTerms, decode_holder, this_process
from .store import JournalError

_DAY = 86_400.0
SCHEMA = Schema(
    steps=(
        (
            "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, at REAL, about BLOB, ended BLOB, holder TEXT)",
            """CREATE TABLE IF NOT EXISTS steps (run TEXT, name TEXT, number INTEGER, intent BLOB, outcome BLOB,
            begun REAL, finished REAL, PRIMARY KEY (run, name)) WITHOUT ROWID""",
        ),
        ("ALTER TABLE runs ADD COLUMN token TEXT", "ALTER TABLE runs ADD COLUMN until REAL"),
    ),
    columns={
        "runs": frozenset({"id", "at", "about", "ended", "holder", "token", "until"}),
        "steps": frozenset({"run", "name", "number", "intent", "outcome", "begun", "finished"}),
    },
)
_HELD = "EXISTS (SELECT 1 FROM runs WHERE id = :run AND token = :token)"
_BEGIN = f"""
INSERT INTO steps (run, name, number, intent, begun) SELECT :run, :name, :number, :data, :now WHERE {_HELD}
ON CONFLICT DO UPDATE SET intent = :data, begun = :now
"""
_FINISH = f"""
INSERT INTO steps (run, name, number, intent, outcome, begun, finished)
SELECT :run, :name, :number, x'', :data, :now, :now WHERE {_HELD}
ON CONFLICT DO UPDATE SET outcome = :data, finished = :now
"""

T = TypeVar("T")


class RunHeld(JournalError):
    """Somebody else is at the run. `seconds`: how long the lease still lasts, if it is not renewed."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class LeaseLost(JournalError):
    """The run was taken over while its holder was not heard of: nothing more may be done for it here."""


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


def decode_entry(data: bytes, kind: type[T], name: str) -> T:
    """What was written to the journal as JSON; `name` says in an error which entry is damaged."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise JournalError(f"{name} can't be read from the journal: it is damaged ({error})") from None


class Connection:
    """A connection that several threads share: one statement at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock = threading.Lock()

    def select(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        return self._execute(statement, values)[0]

    def change(self, statement: str, values: Any = ()) -> int:
        """How many rows it changed."""
        return self._execute(statement, values)[1]

    def _execute(self, statement: str, values: Any) -> tuple[list[tuple[Any, ...]], int]:
        try:
            with self._lock:
                cursor = self._connection.execute(statement, values)
                return cursor.fetchall(), cursor.rowcount
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: {unusable(error)}") from None

    def close(self) -> None:
        self._connection.close()


class RunSteps:
    """The steps of one run, for whoever holds it under this token. The holder is alone with them: which steps there are
    is remembered, so that the file is not asked for what is not there."""

    def __init__(self, connection: Connection, run: str, token: str, heartbeat: Heartbeat) -> None:
        self._connection = connection
        self._run = run
        self._token = token
        self._heartbeat = heartbeat
        self._names = {name for (name,) in connection.select("SELECT name FROM steps WHERE run = ?", (run,))}

    def begun(self, name: str) -> bytes | None:
        return self._column("intent", name)

    def outcome(self, name: str) -> bytes | None:
        return self._column("outcome", name)

    def begin(self, name: str, intent: bytes) -> None:
        self._write(_BEGIN, name, intent)

    def finish(self, name: str, outcome: bytes) -> None:
        self._write(_FINISH, name, outcome)

    def end(self, ended: bytes) -> None:
        """Note how the run ended, and let go of it; nothing, if somebody else has it by now."""
        self._heartbeat.remove(self._token)
        statement = "UPDATE runs SET ended = ?, holder = NULL, token = NULL WHERE id = ? AND token = ?"
        self._connection.change(statement, (ended, self._run, self._token))

    def release(self) -> None:
        """Let go of a run that has not ended."""
        self._heartbeat.remove(self._token)
        statement = "UPDATE runs SET holder = NULL, token = NULL WHERE id = ? AND token = ?"
        self._connection.change(statement, (self._run, self._token))

    def _write(self, statement: str, name: str, data: bytes) -> None:
        held = {"run": self._run, "token": self._token}
        values = {"name": name, "number": len(self._names), "data": data, "now": time.time()}
        if self._connection.change(statement, held | values) != 1:
            self._heartbeat.remove(self._token)
            raise LeaseLost(f"the run {self._run} was taken up elsewhere meanwhile: it goes on there, and stops here")
        self._names.add(name)

    def _column(self, column: str, name: str) -> bytes | None:
        if name not in self._names:
            return None
        rows = self._connection.select(
            f"SELECT {column} FROM steps WHERE run = ? AND name = ?",  # noqa: S608 - one of two words of ours
            (self._run, name),
        )
        return rows[0][0] if rows else None


class Runs:
    """All runs there are. `days`: how long one is kept after it began; `lease`: for how long one is held."""

    def __init__(self, path: Path, *, days: float = 90.0, lease: LeaseTerms | None = None) -> None:
        try:
            prepare(path, SCHEMA)
            self._connection = Connection(path, open_database(path, SCHEMA, threads=True, durable=True, checked=True))
        except DatabaseUnusable as error:
            raise JournalError(f"{path}: {error}") from None
        self.path = path
        self._days = days
        self._lease = lease or LeaseTerms()
        self._heartbeat = Heartbeat(path, SCHEMA, self._lease)

    def begin(self, run: str, about: bytes) -> RunSteps:
        self._forget()
        token = secrets.token_hex(16)
        self._connection.change(
            "INSERT INTO runs (id, at, about, holder, token, until) VALUES (?, ?, ?, ?, ?, ?)",
            (run, time.time(), about, this_process().encode(), token, self._lease.until()),
        )
        return self._hold(run, token)

    def take_up(self, run: str) -> RunSteps:
        """The steps of a run that is to go on. Refused while anybody holds it, unless that process is surely gone."""
        rows = self._connection.select("SELECT holder, token, until FROM runs WHERE id = ?", (run,))
        if not rows:
            raise JournalError(f"there is no run {run!r} in {self.path}")
        holder, before, until = rows[0]
        self._refuse_held(run, holder, before, until)
        token = secrets.token_hex(16)
        taken = self._connection.change(
            """UPDATE runs SET holder = ?, token = ?, until = ?, ended = NULL
            WHERE id = ? AND token IS ? AND until IS ?""",
            (this_process().encode(), token, self._lease.until(), run, before, until),
        )
        if taken != 1:
            raise RunHeld(
                f"the run {run} is still going on, in a process that has just taken it up", self._lease.seconds
            )
        # The runs that it handed tasks to went with it, whatever is left of their leases.
        below = "UPDATE runs SET token = NULL WHERE id >= ? AND id < ? AND holder IS ? AND token IS NOT NULL"
        self._connection.change(below, (f"{run}/", f"{run}0", holder))
        return self._hold(run, token)

    def _hold(self, run: str, token: str) -> RunSteps:
        self._heartbeat.add(run, token)
        return self._steps(run, token)

    def _steps(self, run: str, token: str) -> RunSteps:
        return RunSteps(self._connection, run, token, self._heartbeat)

    def _refuse_held(self, run: str, text: str | None, token: str | None, until: float | None) -> None:
        left = self._left(text, token, until)
        if left <= 0:
            return
        holder = decode_holder(text)
        if holder is not None and holder.is_near:
            raise RunHeld(f"the run {run} is still going on, in {holder}", left)
        raise RunHeld(
            f"the run {run} is held by {holder or 'another process'}, which can't be seen from here: "
            f"if it is gone, the run can be taken up in {left:.0f} seconds",
            left,
        )

    def _left(self, text: str | None, token: str | None, until: float | None) -> float:
        """For how many seconds the run is still held; 0, if nobody holds it."""
        if token is None or until is None:
            return 0.0
        holder = decode_holder(text)
        if holder is not None and holder.is_gone:
            return 0.0
        return max(0.0, until - self._lease.clock())

    def latest(self, count: int = 20) -> list[KeptRun]:
        rows = self._connection.select(
            "SELECT id, at, about, ended FROM runs ORDER BY at DESC, id DESC LIMIT ?", (count,)
        )
        return [KeptRun(*row) for row in rows]

    def find(self, run: str) -> KeptRun:
        """By its id, or by how it begins if only one does; `last` is the latest."""
        if run == "last" and (found := self.latest(1)):
            return found[0]
        rows = self._connection.select(
            "SELECT id, at, about, ended FROM runs WHERE id >= ? AND id < ? ORDER BY id LIMIT 2",
            (run, run + chr(0x10FFFF)),
        )
        if not rows or not run:
            raise JournalError(f"there is no run {run!r} in {self.path}")
        if len(rows) > 1 and rows[0][0] != run:  # those of its agents begin as it does
            raise JournalError(f"more than one run begins with {run!r}")
        return KeptRun(*rows[0])

    def has(self, run: str) -> bool:
        return bool(self._connection.select("SELECT 1 FROM runs WHERE id = ?", (run,)))

    def steps(self, run: str) -> Sequence[KeptStep]:
        rows = self._connection.select(
            "SELECT name, intent, outcome, begun, finished FROM steps WHERE run = ? ORDER BY number, name", (run,)
        )
        return [KeptStep(*row) for row in rows]

    def is_held(self, run: str) -> bool:
        rows = self._connection.select("SELECT holder, token, until FROM runs WHERE id = ?", (run,))
        return bool(rows) and self._left(*rows[0]) > 0

    def close(self) -> None:
        self._heartbeat.close()
        self._connection.close()

    def _forget(self) -> None:
        oldest = time.time() - self._days * _DAY
        for (run,) in self._connection.select("SELECT id FROM runs WHERE at < ?", (oldest,)):
            self._connection.change("DELETE FROM steps WHERE run = ?", (run,))
            self._connection.change("DELETE FROM runs WHERE id = ?", (run,))
