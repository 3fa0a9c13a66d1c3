"""Leases: who holds a run, for how long, and whether it is certain that a holder is gone.

A holder renews its leases from a thread of its own. A process number says nothing beyond its own PID namespace, so that
only the death of a process of the same system and namespace is certain; any other holder is believed until its lease
has run out.

Runs, and their named steps: one SQLite file that only its user may read.

1. A step is one row: its intent is there before its effect, its outcome after it. Both are on the disk when `begin` and
   `finish` return, also after a power cut (`synchronous = FULL`).
2. Whoever takes a run gets a token and a lease on it. A run that is held is refused to everybody else: to other threads
   and tasks of the same process, too.
3. Every write of a step checks the token: who lost the lease stops before the next effect.
"""

import contextlib
import os
import platform
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from toolwire.journal.sqlite_files import (
    DatabaseSchema,
    DatabaseUnusable,
    database_unusable,
    open_database,
    prepare_database,
)
from toolwire.journal.store import JournalError

_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
_PID_NAMESPACE_PATH = "/proc/self/ns/pid"
_RENEW_LEASE = "UPDATE runs SET until = ? WHERE id = ? AND token = ?"


class LeaseTerms(Struct, frozen=True):
    """`seconds` that a lease lasts, and between two renewals. `clock` is that of the day: other machines read it."""

    seconds: float = 30.0
    renewal_interval: float = 5.0
    clock: Callable[[], float] = time.time

    def expiry(self) -> float:
        return self.clock() + self.seconds


class LeaseHolder(Struct, frozen=True):
    """A process. `boot` and `namespace` say where its number means anything; empty where the system does not tell."""

    pid: int
    start_ticks: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    host: str = ""

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def is_local(self) -> bool:
        """Whether its number can be looked up from here."""
        return bool(self.boot_id and self.pid_namespace) and (self.boot_id, self.pid_namespace) == (
            _boot_id(),
            _pid_namespace(),
        )

    @property
    def is_dead(self) -> bool:
        """Whether it is certain that the process has ended. Numbers come again, moments of start do not."""
        return self.is_local and bool(self.start_ticks) and _process_start(self.pid) != self.start_ticks

    def __str__(self) -> str:
        return f"process {self.pid}" if self.is_local else f"process {self.pid} on {self.host or 'a machine'}"


def current_holder() -> LeaseHolder:
    number, host = os.getpid(), platform.node()
    try:
        seen = os.readlink("/proc/self")  # noqa: PTH115 - it leads to no file
    except OSError:
        seen = ""
    if seen != str(number):  # no /proc, or that of another namespace: numbers can't be looked up
        return LeaseHolder(number, host=host)
    return LeaseHolder(number, _process_start(number), _boot_id(), _pid_namespace(), host)


def decode_holder(text: str | None) -> LeaseHolder | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=LeaseHolder)
    except msgspec.MsgspecError:  # from before leases
        return None


def _boot_id() -> str:
    try:
        return Path(_BOOT_ID_PATH).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink(_PID_NAMESPACE_PATH)  # noqa: PTH115 - it leads to no file
    except OSError:
        return ""


def _process_start(pid: int) -> str:
    """When a process started, in ticks since the system did; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


class LeaseHeartbeat:
    """Renews the leases of one process on the runs of one file, for as long as it holds any."""

    def __init__(self, path: Path, schema: DatabaseSchema, terms: LeaseTerms) -> None:
        self._path = path
        self._schema = schema
        self._terms = terms
        self._lock = threading.Lock()
        self._tokens: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, run: str, token: str) -> None:
        with self._lock:
            self._tokens[token] = run
            if self._thread is None or not self._thread.is_alive():  # a process that forked took none along
                self._thread = threading.Thread(target=self._renew_leases, name="toolwire-leases", daemon=True)
                self._thread.start()

    def remove(self, token: str) -> None:
        with self._lock:
            self._tokens.pop(token, None)

    def close(self) -> None:
        self._closing.set()

    def _renew_leases(self) -> None:
        while not self._closing.wait(self._terms.renewal_interval):
            with self._lock:
                if not self._tokens:
                    self._thread = None
                    return
                held = [(self._terms.expiry(), run, token) for token, run in self._tokens.items()]
            # A renewal that fails is made up for by the next one: a lease outlasts several.
            with contextlib.suppress(sqlite3.Error, DatabaseUnusable):
                connection = open_database(self._path, self._schema, skip_check=True)
                with contextlib.closing(connection):
                    connection.executemany(_RENEW_LEASE, held)


_DAY = 86_400.0
SCHEMA = DatabaseSchema(
    migrations=(
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
_HOLDS_LEASE = "EXISTS (SELECT 1 FROM runs WHERE id = :run AND token = :token)"
_BEGIN_STEP = f"""
INSERT INTO steps (run, name, number, intent, begun) SELECT :run, :name, :number, :data, :now WHERE {_HOLDS_LEASE}
ON CONFLICT DO UPDATE SET intent = :data, begun = :now
"""
_FINISH_STEP = f"""
INSERT INTO steps (run, name, number, intent, outcome, begun, finished)
SELECT :run, :name, :number, x'', :data, :now, :now WHERE {_HOLDS_LEASE}
ON CONFLICT DO UPDATE SET outcome = :data, finished = :now
"""

T = TypeVar("T")


class RunInUse(JournalError):
    """Somebody else is at the run. `seconds`: how long the lease still lasts, if it is not renewed."""

    def __init__(self, message: str, lease_seconds: float) -> None:
        super().__init__(message)
        self.lease_seconds = lease_seconds


class LeaseLost(JournalError):
    """The run was taken over while its holder was not heard of: nothing more may be done for it here."""


class StoredRun(Struct, frozen=True):
    """`about` is how it was started, `ended` how it ended, if it did."""

    id: str
    at: float
    metadata: bytes
    end_event: bytes | None


class StoredStep(Struct, frozen=True):
    name: str
    intent: bytes
    outcome: bytes | None
    started_at: float
    finished_at: float | None


def decode_stored(data: bytes, expected_type: type[T], name: str) -> T:
    """What was written to the journal as JSON; `name` says in an error which entry is damaged."""
    try:
        return msgspec.json.decode(data, type=expected_type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise JournalError(f"{name} can't be read from the journal: it is damaged ({error})") from None


class SharedConnection:
    """A connection that several threads share: one statement at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock = threading.Lock()

    def select(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        return self._execute(statement, values)[0]

    def update(self, statement: str, values: Any = ()) -> int:
        """How many rows it changed."""
        return self._execute(statement, values)[1]

    def _execute(self, statement: str, values: Any) -> tuple[list[tuple[Any, ...]], int]:
        try:
            with self._lock:
                cursor = self._connection.execute(statement, values)
                return cursor.fetchall(), cursor.rowcount
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: {database_unusable(error)}") from None

    def close(self) -> None:
        self._connection.close()


class RunStepLog:
    """The steps of one run, for whoever holds it under this token. The holder is alone with them: which steps there are
    is remembered, so that the file is not asked for what is not there."""

    def __init__(self, connection: SharedConnection, run: str, token: str, heartbeat: LeaseHeartbeat) -> None:
        self._connection = connection
        self._run = run
        self._token = token
        self._heartbeat = heartbeat
        self._step_names = {name for (name,) in connection.select("SELECT name FROM steps WHERE run = ?", (run,))}

    def intent(self, name: str) -> bytes | None:
        return self._column("intent", name)

    def outcome(self, name: str) -> bytes | None:
        return self._column("outcome", name)

    def begin(self, name: str, intent: bytes) -> None:
        self._write(_BEGIN_STEP, name, intent)

    def finish(self, name: str, outcome: bytes) -> None:
        self._write(_FINISH_STEP, name, outcome)

    def end(self, end_event: bytes) -> None:
        """Note how the run ended, and let go of it; nothing, if somebody else has it by now."""
        self._heartbeat.remove(self._token)
        statement = "UPDATE runs SET ended = ?, holder = NULL, token = NULL WHERE id = ? AND token = ?"
        self._connection.update(statement, (end_event, self._run, self._token))

    def release(self) -> None:
        """Let go of a run that has not ended."""
        self._heartbeat.remove(self._token)
        statement = "UPDATE runs SET holder = NULL, token = NULL WHERE id = ? AND token = ?"
        self._connection.update(statement, (self._run, self._token))

    def _write(self, statement: str, name: str, data: bytes) -> None:
        held = {"run": self._run, "token": self._token}
        values = {"name": name, "number": len(self._step_names), "data": data, "now": time.time()}
        if self._connection.update(statement, held | values) != 1:
            self._heartbeat.remove(self._token)
            raise LeaseLost(f"the run {self._run} was taken up elsewhere meanwhile: it goes on there, and stops here")
        self._step_names.add(name)

    def _column(self, column: str, name: str) -> bytes | None:
        if name not in self._step_names:
            return None
        rows = self._connection.select(
            f"SELECT {column} FROM steps WHERE run = ? AND name = ?",  # noqa: S608 - one of two words of ours
            (self._run, name),
        )
        return rows[0][0] if rows else None


class RunStore:
    """All runs there are. `days`: how long one is kept after it began; `lease`: for how long one is held."""

    def __init__(self, path: Path, *, max_age_days: float = 90.0, lease_terms: LeaseTerms | None = None) -> None:
        try:
            prepare_database(path, SCHEMA)
            self._connection = SharedConnection(
                path, open_database(path, SCHEMA, multithreaded=True, durable=True, skip_check=True)
            )
        except DatabaseUnusable as error:
            raise JournalError(f"{path}: {error}") from None
        self.path = path
        self._max_age_days = max_age_days
        self._lease_terms = lease_terms or LeaseTerms()
        self._heartbeat = LeaseHeartbeat(path, SCHEMA, self._lease_terms)

    def begin(self, run: str, metadata: bytes) -> RunStepLog:
        self._prune()
        token = secrets.token_hex(16)
        self._connection.update(
            "INSERT INTO runs (id, at, about, holder, token, until) VALUES (?, ?, ?, ?, ?, ?)",
            (run, time.time(), metadata, current_holder().encode(), token, self._lease_terms.expiry()),
        )
        return self._start_heartbeat(run, token)

    def resume(self, run: str) -> RunStepLog:
        """The steps of a run that is to go on. Refused while anybody holds it, unless that process is surely gone."""
        rows = self._connection.select("SELECT holder, token, until FROM runs WHERE id = ?", (run,))
        if not rows:
            raise JournalError(f"there is no run {run!r} in {self.path}")
        holder, before, until = rows[0]
        self._refuse_if_held(run, holder, before, until)
        token = secrets.token_hex(16)
        taken = self._connection.update(
            """UPDATE runs SET holder = ?, token = ?, until = ?, ended = NULL
            WHERE id = ? AND token IS ? AND until IS ?""",
            (current_holder().encode(), token, self._lease_terms.expiry(), run, before, until),
        )
        if taken != 1:
            raise RunInUse(
                f"the run {run} is still going on, in a process that has just taken it up", self._lease_terms.seconds
            )
        # The runs that it handed tasks to went with it, whatever is left of their leases.
        below = "UPDATE runs SET token = NULL WHERE id >= ? AND id < ? AND holder IS ? AND token IS NOT NULL"
        self._connection.update(below, (f"{run}/", f"{run}0", holder))
        return self._start_heartbeat(run, token)

    def _start_heartbeat(self, run: str, token: str) -> RunStepLog:
        self._heartbeat.add(run, token)
        return self._step_log(run, token)

    def _step_log(self, run: str, token: str) -> RunStepLog:
        return RunStepLog(self._connection, run, token, self._heartbeat)

    def _refuse_if_held(self, run: str, encoded_holder: str | None, token: str | None, until: float | None) -> None:
        left = self._lease_seconds_left(encoded_holder, token, until)
        if left <= 0:
            return
        holder = decode_holder(encoded_holder)
        if holder is not None and holder.is_local:
            raise RunInUse(f"the run {run} is still going on, in {holder}", left)
        raise RunInUse(
            f"the run {run} is held by {holder or 'another process'}, which can't be seen from here: "
            f"if it is gone, the run can be taken up in {left:.0f} seconds",
            left,
        )

    def _lease_seconds_left(self, encoded_holder: str | None, token: str | None, until: float | None) -> float:
        """For how many seconds the run is still held; 0, if nobody holds it."""
        if token is None or until is None:
            return 0.0
        holder = decode_holder(encoded_holder)
        if holder is not None and holder.is_dead:
            return 0.0
        return max(0.0, until - self._lease_terms.clock())

    def latest(self, count: int = 20) -> list[StoredRun]:
        rows = self._connection.select(
            "SELECT id, at, about, ended FROM runs ORDER BY at DESC, id DESC LIMIT ?", (count,)
        )
        return [StoredRun(*row) for row in rows]

    def find(self, run: str) -> StoredRun:
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
        return StoredRun(*rows[0])

    def has(self, run: str) -> bool:
        return bool(self._connection.select("SELECT 1 FROM runs WHERE id = ?", (run,)))

    def steps(self, run: str) -> Sequence[StoredStep]:
        rows = self._connection.select(
            "SELECT name, intent, outcome, begun, finished FROM steps WHERE run = ? ORDER BY number, name", (run,)
        )
        return [StoredStep(*row) for row in rows]

    def is_held(self, run: str) -> bool:
        rows = self._connection.select("SELECT holder, token, until FROM runs WHERE id = ?", (run,))
        return bool(rows) and self._lease_seconds_left(*rows[0]) > 0

    def close(self) -> None:
        self._heartbeat.close()
        self._connection.close()

    def _prune(self) -> None:
        oldest = time.time() - self._max_age_days * _DAY
        for (run,) in self._connection.select("SELECT id FROM runs WHERE at < ?", (oldest,)):
            self._connection.update("DELETE FROM steps WHERE run = ?", (run,))
            self._connection.update("DELETE FROM runs WHERE id = ?", (run,))
