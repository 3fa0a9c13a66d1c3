"""The store of runs and their steps: one SQLite file, with a lease for each run in progress.

1. A step is one row: its intent is written before its effect, its outcome after it. Both are durable when `begin` and
   `finish` return, even after a power failure (`synchronous = FULL`).
2. A process that starts or resumes a run gets a token and a lease. Until the lease ends, no other process, thread or
   task can resume the run.
3. Every write checks the token, so a process that lost its lease stops before the next effect.
4. A thread renews the leases. A pid is only meaningful in its PID namespace, so only a holder of the same boot and
   namespace can be found dead. Any other holder keeps the run until its lease expires.
"""

import contextlib
import os
import platform
import secrets
import sqlite3
import threading
import time
import weakref
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
    """The duration of leases, in seconds."""

    seconds: float = 30.0
    """Time until a lease expires."""
    renewal_interval: float = 5.0
    clock: Callable[[], float] = time.time
    """Wall clock, because other machines compare with it."""

    def expiry(self) -> float:
        """Return when a lease that starts now expires, in seconds since the epoch."""
        return self.clock() + self.seconds


class LeaseHolder(Struct, frozen=True):
    """The process that holds a lease. Fields are empty where the system does not provide them."""

    pid: int
    start_ticks: str = ""
    """Start of the process in clock ticks since boot, since pids are reused."""
    boot_id: str = ""
    pid_namespace: str = ""
    host: str = ""

    def encode(self) -> str:
        """Encode the holder as JSON text, as it is stored with the lease."""
        return msgspec.json.encode(self).decode()

    @property
    def is_local(self) -> bool:
        """True if the pid is meaningful here: same boot and PID namespace."""
        return bool(self.boot_id and self.pid_namespace) and (self.boot_id, self.pid_namespace) == (
            _boot_id(),
            _pid_namespace(),
        )

    @property
    def is_dead(self) -> bool:
        """True if the process has certainly ended."""
        return self.is_local and bool(self.start_ticks) and _process_start(self.pid) != self.start_ticks

    def __str__(self) -> str:
        """Name the process for messages, with its host if it runs elsewhere."""
        return f"process {self.pid}" if self.is_local else f"process {self.pid} on {self.host or 'a machine'}"


def current_holder() -> LeaseHolder:
    """Return this process as a lease holder."""
    pid, host = os.getpid(), platform.node()
    try:
        proc_pid = os.readlink("/proc/self")  # noqa: PTH115 - the target is a pid, not a path
    except OSError:
        proc_pid = ""
    if proc_pid != str(pid):  # no /proc, or that of another PID namespace: pids can't be looked up
        return LeaseHolder(pid, host=host)
    return LeaseHolder(pid, _process_start(pid), _boot_id(), _pid_namespace(), host)


def decode_holder(text: str | None) -> LeaseHolder | None:
    """Decode a stored lease holder; None if there is none or it is not readable."""
    try:
        return None if text is None else msgspec.json.decode(text, type=LeaseHolder)
    except msgspec.MsgspecError:
        return None


def _boot_id() -> str:
    """Return the id that Linux gives this boot of the machine; empty on other systems."""
    try:
        return Path(_BOOT_ID_PATH).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    """Return the name of this process's PID namespace; empty if the system has none."""
    try:
        return os.readlink(_PID_NAMESPACE_PATH)  # noqa: PTH115 - the target is an id, not a path
    except OSError:
        return ""


def _process_start(pid: int) -> str:
    """Return when a process started, as text in clock ticks since boot; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


class LeaseHeartbeat:
    """A thread that renews this process's leases on the runs of one file, while it holds any."""

    def __init__(self, path: Path, schema: DatabaseSchema, terms: LeaseTerms) -> None:
        self._path = path
        self._schema = schema
        self._terms = terms
        self._lock = threading.Lock()
        self._tokens: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, run: str, token: str) -> None:
        """Renew the lease of a run from now on; `token` proves that this process holds it."""
        with self._lock:
            self._tokens[token] = run
            if self._thread is None or not self._thread.is_alive():  # threads do not survive a fork
                self._thread = threading.Thread(target=self._renew_leases, name="toolwire-leases", daemon=True)
                self._thread.start()

    def remove(self, token: str) -> None:
        """Stop renewing the lease with this token."""
        with self._lock:
            self._tokens.pop(token, None)

    def close(self) -> None:
        """Tell the thread to stop renewing leases, without waiting for it."""
        self._closing.set()

    def _renew_leases(self) -> None:
        """Renew all held leases at each interval, until closed or none is left, as the body of the thread."""
        while not self._closing.wait(self._terms.renewal_interval):
            with self._lock:
                if not self._tokens:
                    self._thread = None
                    return
                renewals = [(self._terms.expiry(), run, token) for token, run in self._tokens.items()]
            # A lease outlasts several renewals, so one that fails does no harm.
            with contextlib.suppress(sqlite3.Error, DatabaseUnusable):
                connection = open_database(self._path, self._schema, skip_check=True)
                with contextlib.closing(connection):
                    connection.executemany(_RENEW_LEASE, renewals)


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
INSERT INTO steps (run, name, number, intent, begun) SELECT :run, :name, :number, :data, :at WHERE {_HOLDS_LEASE}
ON CONFLICT DO UPDATE SET intent = :data, begun = :at
"""
_FINISH_STEP = f"""
INSERT INTO steps (run, name, number, intent, outcome, begun, finished)
SELECT :run, :name, :number, x'', :data, :at, :at WHERE {_HOLDS_LEASE}
ON CONFLICT DO UPDATE SET outcome = :data, finished = :at
"""

T = TypeVar("T")


class RunInUse(JournalError):
    """Another process holds the run. `lease_seconds` is the remaining time of its lease, unless renewed."""

    def __init__(self, message: str, lease_seconds: float) -> None:
        super().__init__(message)
        self.lease_seconds = lease_seconds


class LeaseLost(JournalError):
    """Another process resumed the run after the lease expired, so this one must stop."""


class StoredRun(Struct, frozen=True):
    """A run as stored."""

    id: str
    at: float
    """Start of the run, in seconds since the epoch."""
    metadata: bytes
    """Prompt and settings, as JSON."""
    end_event: bytes | None
    """The `RunEnded` event as JSON; None while the run is unfinished."""


class StoredStep(Struct, frozen=True):
    """A step of a run as stored; `outcome` is None if it did not finish."""

    name: str
    intent: bytes
    outcome: bytes | None
    started_at: float
    finished_at: float | None


def decode_stored(data: bytes, expected_type: type[T], name: str) -> T:
    """Decode JSON from the journal; `name` identifies the entry in the error for damaged data."""
    try:
        return msgspec.json.decode(data, type=expected_type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise JournalError(f"the journal is damaged: {name}: {error}") from None


class SharedConnection:
    """A SQLite connection that threads share, one statement at a time; closed at the latest with its last user."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock = threading.Lock()
        weakref.finalize(self, connection.close)

    def select(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Execute a query, and return its rows."""
        return self._execute(statement, values)[0]

    def update(self, statement: str, values: Any = ()) -> int:
        """Execute a statement, and return the number of changed rows."""
        return self._execute(statement, values)[1]

    def _execute(self, statement: str, values: Any) -> tuple[list[tuple[Any, ...]], int]:
        """Execute a statement; return the selected rows and the number of changed rows."""
        try:
            with self._lock:
                cursor = self._connection.execute(statement, values)
                return cursor.fetchall(), cursor.rowcount
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: {database_unusable(error)}") from None

    def close(self) -> None:
        """Close the connection to the file."""
        self._connection.close()


class RunStepLog:
    """The durable step log of one run, for the holder of its lease.

    No other process writes steps meanwhile, so their names are cached to avoid queries for missing ones.
    """

    def __init__(self, connection: SharedConnection, run: str, token: str, heartbeat: LeaseHeartbeat) -> None:
        self._connection = connection
        self._run = run
        self._token = token
        self._heartbeat = heartbeat
        self._step_names = {name for (name,) in connection.select("SELECT name FROM steps WHERE run = ?", (run,))}

    def intent(self, name: str) -> bytes | None:
        """Return the recorded intent of a step, encoded; None if the step never started."""
        return self._column("intent", name)

    def outcome(self, name: str) -> bytes | None:
        """Return the recorded outcome of a step, encoded; None if the step did not finish."""
        return self._column("outcome", name)

    def begin(self, name: str, intent: bytes) -> None:
        """Record that a step starts, before it takes effect."""
        self._write(_BEGIN_STEP, name, intent)

    def finish(self, name: str, outcome: bytes) -> None:
        """Record the outcome of a step."""
        self._write(_FINISH_STEP, name, outcome)

    def end(self, end_event: bytes) -> None:
        """Record the last event of the run, and release the lease; without effect if the lease was lost."""
        self._heartbeat.remove(self._token)
        statement = "UPDATE runs SET ended = ?, holder = NULL, token = NULL WHERE id = ? AND token = ?"
        self._connection.update(statement, (end_event, self._run, self._token))

    def release(self) -> None:
        """Release the lease of an unfinished run."""
        self._heartbeat.remove(self._token)
        statement = "UPDATE runs SET holder = NULL, token = NULL WHERE id = ? AND token = ?"
        self._connection.update(statement, (self._run, self._token))

    def _write(self, statement: str, name: str, data: bytes) -> None:
        """Write the intent or outcome of a step; raise `LeaseLost` if another process holds the run."""
        step = {"name": name, "number": len(self._step_names), "data": data, "at": time.time()}
        values = {"run": self._run, "token": self._token, **step}
        if self._connection.update(statement, values) != 1:
            self._heartbeat.remove(self._token)
            raise LeaseLost(f"another process resumed run {self._run}: it continues there and stops here")
        self._step_names.add(name)

    def _column(self, column: str, name: str) -> bytes | None:
        """Return the encoded intent or outcome of a step, as `column` says; None if it is not recorded."""
        if name not in self._step_names:
            return None
        rows = self._connection.select(
            f"SELECT {column} FROM steps WHERE run = ? AND name = ?",  # noqa: S608 - `intent` or `outcome`
            (self._run, name),
        )
        return rows[0][0] if rows else None


class RunStore:
    """The store of all runs, which are deleted `max_age_days` after they began."""

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
        """Store a new run, and return its step log with a lease."""
        self._prune()
        token = secrets.token_hex(16)
        self._connection.update(
            "INSERT INTO runs (id, at, about, holder, token, until) VALUES (?, ?, ?, ?, ?, ?)",
            (run, time.time(), metadata, current_holder().encode(), token, self._lease_terms.expiry()),
        )
        return self._start_heartbeat(run, token)

    def resume(self, run: str) -> RunStepLog:
        """Take the lease of an existing run, and return its step log.

        Raises `RunInUse` while another process holds the run, unless that process has certainly ended.
        """
        rows = self._connection.select("SELECT holder, token, until FROM runs WHERE id = ?", (run,))
        if not rows:
            raise JournalError(f"no run {run!r} in {self.path}")
        holder, old_token, until = rows[0]
        self._refuse_if_held(run, holder, old_token, until)
        token = secrets.token_hex(16)
        changed_rows = self._connection.update(
            """UPDATE runs SET holder = ?, token = ?, until = ?, ended = NULL
            WHERE id = ? AND token IS ? AND until IS ?""",
            (current_holder().encode(), token, self._lease_terms.expiry(), run, old_token, until),
        )
        if changed_rows != 1:
            raise RunInUse(
                f"run {run} is still running, in a process that has just resumed it", self._lease_terms.seconds
            )
        # Its sub-agents' runs (`RUN/...`) had the same holder, so their leases end as well.
        release_children = "UPDATE runs SET token = NULL WHERE id >= ? AND id < ? AND holder IS ? AND token IS NOT NULL"
        self._connection.update(release_children, (f"{run}/", f"{run}0", holder))
        return self._start_heartbeat(run, token)

    def _start_heartbeat(self, run: str, token: str) -> RunStepLog:
        """Keep the lease of a run renewed from now on, and return the run's step log."""
        self._heartbeat.add(run, token)
        return self._step_log(run, token)

    def _step_log(self, run: str, token: str) -> RunStepLog:
        """Build the step log of a run whose lease this process holds under `token`."""
        return RunStepLog(self._connection, run, token, self._heartbeat)

    def _refuse_if_held(self, run: str, encoded_holder: str | None, token: str | None, until: float | None) -> None:
        """Raise `RunInUse` if the stored lease shows that another process holds the run."""
        lease_seconds = self._lease_seconds_left(encoded_holder, token, until)
        if lease_seconds <= 0:
            return
        holder = decode_holder(encoded_holder)
        if holder is not None and holder.is_local:
            raise RunInUse(f"run {run} is still running, in {holder}", lease_seconds)
        raise RunInUse(
            f"run {run} is held by {holder or 'another process'}, which can't be checked from here: "
            f"if it has ended, the run can be resumed in {lease_seconds:.0f} seconds",
            lease_seconds,
        )

    def _lease_seconds_left(self, encoded_holder: str | None, token: str | None, until: float | None) -> float:
        """Return the remaining seconds of a lease; 0 if there is none or its holder has ended."""
        if token is None or until is None:
            return 0.0
        holder = decode_holder(encoded_holder)
        if holder is not None and holder.is_dead:
            return 0.0
        return max(0.0, until - self._lease_terms.clock())

    def latest(self, count: int = 20) -> list[StoredRun]:
        """Return the latest runs, newest first."""
        rows = self._connection.select(
            "SELECT id, at, about, ended FROM runs ORDER BY at DESC, id DESC LIMIT ?", (count,)
        )
        return [StoredRun(*row) for row in rows]

    def find(self, run: str) -> StoredRun:
        """Return a run by its id or a unique prefix of it; `last` is the latest run."""
        if run == "last" and (latest := self.latest(1)):
            return latest[0]
        rows = self._connection.select(
            "SELECT id, at, about, ended FROM runs WHERE id >= ? AND id < ? ORDER BY id LIMIT 2",
            (run, run + chr(0x10FFFF)),
        )
        if not rows or not run:
            raise JournalError(f"no run {run!r} in {self.path}")
        if len(rows) > 1 and rows[0][0] != run:  # an exact id wins: ids of its sub-agents begin with it
            raise JournalError(f"more than one run begins with {run!r}")
        return StoredRun(*rows[0])

    def has(self, run: str) -> bool:
        """Return True if a run with this id is stored."""
        return bool(self._connection.select("SELECT 1 FROM runs WHERE id = ?", (run,)))

    def steps(self, run: str) -> Sequence[StoredStep]:
        """Return the steps of a run in the order in which they began."""
        rows = self._connection.select(
            "SELECT name, intent, outcome, begun, finished FROM steps WHERE run = ? ORDER BY number, name", (run,)
        )
        return [StoredStep(*row) for row in rows]

    def is_held(self, run: str) -> bool:
        """Return True while a process holds the lease of the run."""
        rows = self._connection.select("SELECT holder, token, until FROM runs WHERE id = ?", (run,))
        return bool(rows) and self._lease_seconds_left(*rows[0]) > 0

    def close(self) -> None:
        """Stop renewing leases, and close the file."""
        self._heartbeat.close()
        self._connection.close()

    def _prune(self) -> None:
        """Delete runs past their age limit."""
        cutoff = time.time() - self._max_age_days * _DAY
        for (run,) in self._connection.select("SELECT id FROM runs WHERE at < ?", (cutoff,)):
            self._connection.update("DELETE FROM steps WHERE run = ?", (run,))
            self._connection.update("DELETE FROM runs WHERE id = ?", (run,))
