"""The store of runs and their steps, with a lease for each run in progress.

1. A step is one row: its intent is written before its effect, its outcome after it. Both are durable when `begin` and
   `finish` return, even after a power failure.
2. A process that starts, resumes or takes a run gets a fencing token and a lease. Until the lease ends, no other
   process, thread or task can continue the run.
3. Every write checks the token, so a process that lost its lease stops before the next effect.
4. Runs in a queue are taken by workers (`take_next`), also after the process that held them has died.
"""

import secrets
import shlex
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from toolwire.codec.options import require_text
from toolwire.journal.leases import LeaseHeartbeat, LeaseTerms, current_holder, decode_holder
from toolwire.journal.postgres import is_postgres_url
from toolwire.journal.run_database import PostgresRunDatabase, RunDatabase, SqliteRunDatabase, WaitForChange
from toolwire.journal.sessions import SessionStore
from toolwire.journal.store import JournalError

_DAY = 86_400.0
_QUEUE_TOPIC = "queue"
_MAX_CANDIDATES = 1000
_RENEW_LEASE = "UPDATE runs SET until = :until WHERE id = :run AND token = :token"
_INSERT_RUN = """
INSERT INTO runs (id, at, about, holder, token, until, queue)
VALUES (:run, :at, :metadata, :holder, :token, :until, :queue) ON CONFLICT (id) DO NOTHING
"""
_TAKE_LEASE = """
UPDATE runs SET holder = :holder, token = :token, until = :until, ended = NULL, cancelled = NULL
WHERE id = :run AND coalesce(token, '') = :old_token AND coalesce(until, 0.0) = :old_until
"""
_TAKE_QUEUED = """
UPDATE runs SET holder = :holder, token = :token, until = :until,
    attempts = CASE WHEN (SELECT count(outcome) FROM steps WHERE run = id) > progress THEN 1 ELSE attempts + 1 END,
    progress = (SELECT count(outcome) FROM steps WHERE run = id)
WHERE id = :run AND coalesce(token, '') = :old_token AND coalesce(until, 0.0) = :old_until AND ended IS NULL
"""
_SELECT_CANDIDATES = """
SELECT id, holder, token, until FROM runs WHERE queue = :queue AND ended IS NULL
ORDER BY CASE WHEN token IS NULL OR until <= :now THEN 0 ELSE 1 END, at, id LIMIT :limit
"""
# A run's sub-agents (`RUN/...`) had the same holder, so their leases end as well.
_RELEASE_CHILDREN = """
UPDATE runs SET token = NULL
WHERE id >= :first AND id < :last AND coalesce(holder, '') = :holder AND token IS NOT NULL
"""
_END_RUN = """
UPDATE runs SET ended = :event, holder = NULL, token = NULL, attempts = 0 WHERE id = :run AND token = :token
"""
_SELECT_LEASE = "SELECT holder, token, until FROM runs WHERE id = :run"
_RUN_COLUMNS = "id, at, about, ended, queue, cancelled"

T = TypeVar("T")


class RunInUse(JournalError):
    """Another process holds the run. `lease_seconds` is the remaining time of its lease, unless renewed."""

    def __init__(self, message: str, lease_seconds: float) -> None:
        super().__init__(message)
        self.lease_seconds = lease_seconds


class LeaseLost(JournalError):
    """Another process resumed the run after the lease expired, so this one must stop."""


class RunCancelled(JournalError):
    """The run was cancelled by `toolwire runs cancel`, so its next step does not start."""


class RunPaused(JournalError):
    """The process stops, so the next turn of the run is left to another one."""


class StoredRun(Struct, frozen=True):
    """A run as stored."""

    id: str
    at: float
    """Start of the run, in seconds since the epoch."""
    metadata: bytes
    """Prompt and settings, as JSON."""
    end_event: bytes | None
    """The `RunEnded` event as JSON; None while the run is unfinished."""
    queue: str | None = None
    """The queue whose workers execute the run; None if the process that started it does."""
    cancelled_at: float | None = None


class StoredStep(Struct, frozen=True):
    """A step of a run as stored; `outcome` is None if it did not finish."""

    name: str
    intent: bytes
    outcome: bytes | None
    started_at: float
    finished_at: float | None


class StoredDecision(Struct, frozen=True):
    """An answer to an approval request of a queued run."""

    answer: str
    decided_by: str


class TakenRun(Struct, frozen=True):
    """A run of a queue that this process took."""

    run: StoredRun
    lease: "RunStepLog"
    attempts: int
    """The number of times the run was taken since a step of it last finished."""


def approval_command(run: str, call: str, queue: str | None) -> str:
    """Return the command that approves a call, quoted for a shell, since models choose the ids of calls."""
    if queue is not None:
        return f"toolwire runs approve {shlex.quote(run)} {shlex.quote(call)}"
    return f"toolwire runs resume {shlex.quote(run)} --approve {shlex.quote(call)}"


def decode_stored(data: bytes, expected_type: type[T], name: str) -> T:
    """Decode JSON from the journal; `name` identifies the entry in the error for damaged data."""
    try:
        return msgspec.json.decode(data, type=expected_type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise JournalError(f"the journal is damaged: {name}: {error}") from None


class RunStepLog:
    """The durable step log of one run, for the holder of its lease.

    No other process writes steps meanwhile, so their names are cached to avoid queries for missing ones.
    """

    is_pausing = False
    """Whether the next turn is left to another process (`RunPaused`)."""
    is_released = False
    """Whether this process has ended the run or given it back."""

    def __init__(self, database: RunDatabase, run: str, token: str, heartbeat: LeaseHeartbeat) -> None:
        self._database = database
        self._run = run
        self._token = token
        self._heartbeat = heartbeat
        rows = database.select("SELECT name FROM steps WHERE run = :run", {"run": run})
        self._step_names = {name for (name,) in rows}

    def intent(self, name: str) -> bytes | None:
        """Return the recorded intent of a step, encoded; None if the step never started."""
        return self._column("intent", name)

    def outcome(self, name: str) -> bytes | None:
        """Return the recorded outcome of a step, encoded; None if the step did not finish."""
        return self._column("outcome", name)

    def begin(self, name: str, intent: bytes) -> None:
        """Record that a step starts, before it takes effect."""
        if self.is_pausing and name.startswith("turn/"):
            raise RunPaused(f"run {self._run} continues in another process")
        self._write(self._database.begin_step, name, intent)

    def finish(self, name: str, outcome: bytes) -> None:
        """Record the outcome of a step."""
        self._write(self._database.finish_step, name, outcome)
        self._database.announce(self._run)

    def end(self, end_event: bytes) -> None:
        """Record the last event of the run, and release the lease; without effect if the lease was lost."""
        self.is_released = True
        self._heartbeat.remove(self._token)
        self._database.update(_END_RUN, {"event": end_event, "run": self._run, "token": self._token})
        self._database.announce(self._run)

    def release(self) -> None:
        """Release the lease of an unfinished run."""
        self.is_released = True
        self._heartbeat.remove(self._token)
        statement = "UPDATE runs SET holder = NULL, token = NULL WHERE id = :run AND token = :token"
        self._database.update(statement, {"run": self._run, "token": self._token})
        self._database.announce(_QUEUE_TOPIC)

    def is_cancelled(self) -> bool:
        """Return whether the run was cancelled, or its lease is lost."""
        if self.is_released:
            return False
        statement = "SELECT 1 FROM runs WHERE id = :run AND token = :token AND cancelled IS NULL"
        is_held = bool(self._database.select(statement, {"run": self._run, "token": self._token}))
        return not is_held and not self.is_released  # it may have ended during the query

    def decision(self, digest: str) -> StoredDecision | None:
        """Return the answer to an approval request; None if there is none yet."""
        statement = "SELECT answer, decided_by FROM decisions WHERE run = :run AND digest = :digest"
        rows = self._database.select(statement, {"run": self._run, "digest": digest})
        return StoredDecision(*rows[0]) if rows else None

    def _write(self, statement: str, name: str, data: bytes) -> None:
        """Write the intent or outcome of a step; raise an error if another process holds the run."""
        step = {"name": name, "number": len(self._step_names), "data": data, "empty": b"", "at": time.time()}
        if self._database.update(statement, {"run": self._run, "token": self._token, **step}) != 1:
            self._refuse_write()
        self._step_names.add(name)

    def _refuse_write(self) -> None:
        """Raise the reason why a step could not be written."""
        statement = "SELECT 1 FROM runs WHERE id = :run AND token = :token AND cancelled IS NOT NULL"
        if self._database.select(statement, {"run": self._run, "token": self._token}):
            raise RunCancelled("cancelled by `toolwire runs cancel`")
        self._heartbeat.remove(self._token)
        raise LeaseLost(f"another process resumed run {self._run}: it continues there and stops here")

    def _column(self, column: str, name: str) -> bytes | None:
        """Return the encoded intent or outcome of a step, as `column` says; None if it is not recorded."""
        if name not in self._step_names:
            return None
        rows = self._database.select(
            f"SELECT {column} FROM steps WHERE run = :run AND name = :name",  # noqa: S608 - `intent` or `outcome`
            {"run": self._run, "name": name},
        )
        return rows[0][0] if rows else None


class RunStore:
    """The store of all runs, which are deleted `max_age_days` after they began.

    It is a SQLite file, or the PostgreSQL database of a URL (`postgresql://...`).
    """

    def __init__(
        self, location: Path | str, *, max_age_days: float = 90.0, lease_terms: LeaseTerms | None = None
    ) -> None:
        self._lease_terms = lease_terms or LeaseTerms()
        self._database: RunDatabase = (
            PostgresRunDatabase(location, patience=self._lease_terms.seconds)
            if isinstance(location, str) and is_postgres_url(location)
            else SqliteRunDatabase(Path(location))
        )
        self.path = None if self._database.is_shared else Path(location)
        """The file; None for PostgreSQL."""
        self.name = self._database.name
        """The path, or the URL without credentials."""
        self._max_age_days = max_age_days
        self.sessions = SessionStore(self._database, max_age_days)
        self._heartbeat = LeaseHeartbeat(self._renew_leases, self._lease_terms)

    @property
    def is_shared(self) -> bool:
        """Whether other machines use the store."""
        return self._database.is_shared

    def begin(self, run: str, metadata: bytes) -> RunStepLog:
        """Store a new run, and return its step log with a lease."""
        lease = self._new_lease()
        self._insert(run, metadata, lease)
        return self._start_heartbeat(run, lease["token"])

    def enqueue(self, run: str, metadata: bytes, queue: str) -> None:
        """Store a new run for the workers of a queue."""
        self._insert(run, metadata, {"holder": None, "token": None, "until": None}, queue)
        self._database.announce(_QUEUE_TOPIC)

    def resume(self, run: str) -> RunStepLog:
        """Take the lease of an existing run, and return its step log.

        Raises `RunInUse` while another process holds the run, unless that process has certainly ended.
        """
        rows = self._database.select(_SELECT_LEASE, {"run": run})
        if not rows:
            raise JournalError(f"no run {run!r} in {self.name}")
        holder, old_token, until = rows[0]
        self._refuse_if_held(run, holder, old_token, until)
        token = self._take_lease(_TAKE_LEASE, run, holder, old_token, until)
        if token is None:
            raise RunInUse(
                f"run {run} is still running, in a process that has just resumed it", self._lease_terms.seconds
            )
        return self._start_heartbeat(run, token)

    def take_next(self, queues: Sequence[str]) -> TakenRun | None:
        """Take the oldest run of these queues that no living process holds; None if there is none."""
        for queue in queues:
            values = {"queue": queue, "now": self._now(), "limit": _MAX_CANDIDATES}
            for run, holder, old_token, until in self._database.select(_SELECT_CANDIDATES, values):
                if self._lease_seconds_left(holder, old_token, until) > 0:
                    continue
                token = self._take_lease(_TAKE_QUEUED, run, holder, old_token, until)
                if token is not None:
                    lease = self._start_heartbeat(run, token)
                    ((attempts,),) = self._database.select("SELECT attempts FROM runs WHERE id = :run", {"run": run})
                    return TakenRun(self.find(run), lease, attempts)
        return None

    def cancel(self, run: str) -> None:
        """Request the end of a run, wherever it is executed: it stops before its next step."""
        self._database.update("UPDATE runs SET cancelled = :at WHERE id = :run", {"at": time.time(), "run": run})
        self._database.announce(run)
        self._database.announce(_QUEUE_TOPIC)

    def decide(self, run: str, digest: str, decision: StoredDecision) -> None:
        """Store the answer to an approval request of a queued run, and let a worker continue the run."""
        statement = """
            INSERT INTO decisions (run, digest, answer, decided_by, at) VALUES (:run, :digest, :answer, :by, :at)
            ON CONFLICT (run, digest) DO NOTHING
        """
        by = decision.decided_by
        self._database.update(
            statement, {"run": run, "digest": digest, "answer": decision.answer, "by": by, "at": time.time()}
        )
        self.requeue(run)

    def requeue(self, run: str) -> None:
        """Let a worker continue a queued run that ended, unless one holds it already."""
        statement = "UPDATE runs SET ended = NULL WHERE id = :run AND token IS NULL AND queue IS NOT NULL"
        self._database.update(statement, {"run": run})
        self._database.announce(_QUEUE_TOPIC)

    def watch_run(self, run: str) -> AbstractContextManager[WaitForChange]:
        """Return a function that waits until the run may have changed, for a second at most."""
        return self._database.watch(run)

    def watch_queues(self) -> AbstractContextManager[WaitForChange]:
        """Return a function that waits until a run may be available to workers, for a second at most."""
        return self._database.watch(_QUEUE_TOPIC)

    def _insert(self, run: str, metadata: bytes, lease: dict[str, Any], queue: str | None = None) -> None:
        """Store a new run."""
        self._prune()
        values = {"run": run, "at": time.time(), "metadata": metadata, "queue": queue, **lease}
        if self._database.update(_INSERT_RUN, values) == 1 or self._holds(run, lease["token"] or ""):
            return
        if queue is None or self.find(run).metadata != metadata:  # not the same statement, executed twice
            raise JournalError(f"a run {run!r} is stored already")

    def _now(self) -> float:
        """Return the time that leases are compared with."""
        clock = self._lease_terms.clock
        return self._database.now() if clock is None else clock()

    def _new_lease(self) -> dict[str, Any]:
        """Return the columns of a lease that starts now."""
        until = self._now() + self._lease_terms.seconds
        return {"holder": current_holder().encode(), "token": secrets.token_hex(16), "until": until}

    def _take_lease(
        self, statement: str, run: str, holder: str | None, old_token: str | None, until: float | None
    ) -> str | None:
        """Take the lease of a run if it is unchanged, and return its token; None if another process was faster."""
        lease = self._new_lease()
        values = {"run": run, "old_token": old_token or "", "old_until": until or 0.0, **lease}
        if self._database.update(statement, values) != 1 and not self._holds(run, lease["token"]):
            return None
        self._database.update(_RELEASE_CHILDREN, {"first": f"{run}/", "last": f"{run}0", "holder": holder or ""})
        return str(lease["token"])

    def _holds(self, run: str, token: str) -> bool:
        """Return whether a lease has this token: the answer to the statement that took it may have been lost."""
        statement = "SELECT 1 FROM runs WHERE id = :run AND token = :token"
        return bool(self._database.select(statement, {"run": run, "token": token}))

    def _start_heartbeat(self, run: str, token: str) -> RunStepLog:
        """Keep the lease of a run renewed from now on, and return the run's step log."""
        self._heartbeat.add(run, token)
        return self._step_log(run, token)

    def _step_log(self, run: str, token: str) -> RunStepLog:
        """Build the step log of a run whose lease this process holds under `token`."""
        return RunStepLog(self._database, run, token, self._heartbeat)

    def _renew_leases(self, leases: Sequence[Any]) -> None:
        """Renew leases, from the thread of the heartbeat."""
        until = self._now() + self._lease_terms.seconds
        self._database.renew(_RENEW_LEASE, [{**lease, "until": until} for lease in leases])

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
        return max(0.0, until - self._now())

    def latest(self, count: int = 20) -> list[StoredRun]:
        """Return the latest runs, newest first."""
        statement = f"SELECT {_RUN_COLUMNS} FROM runs ORDER BY at DESC, id DESC LIMIT :count"  # noqa: S608 - constant
        return [StoredRun(*row) for row in self._database.select(statement, {"count": count})]

    def find(self, run: str) -> StoredRun:
        """Return a run by its id or a unique prefix of it; `last` is the latest run."""
        require_text("run", run)
        if run == "last" and (latest := self.latest(1)):
            return latest[0]
        statement = f"SELECT {_RUN_COLUMNS} FROM runs WHERE id >= :run AND id < :last ORDER BY id LIMIT 2"  # noqa: S608 - constant
        rows = self._database.select(statement, {"run": run, "last": run + chr(0x10FFFF)})
        if not rows or not run:
            raise JournalError(f"no run {run!r} in {self.name}")
        if len(rows) > 1 and rows[0][0] != run:  # an exact id wins: ids of its sub-agents begin with it
            raise JournalError(f"more than one run begins with {run!r}")
        return StoredRun(*rows[0])

    def has(self, run: str) -> bool:
        """Return True if a run with this id is stored."""
        return bool(self._database.select("SELECT 1 FROM runs WHERE id = :run", {"run": run}))

    def steps(self, run: str) -> Sequence[StoredStep]:
        """Return the steps of a run in the order in which they began."""
        statement = "SELECT name, intent, outcome, begun, finished FROM steps WHERE run = :run ORDER BY number, name"
        return [StoredStep(*row) for row in self._database.select(statement, {"run": run})]

    def is_held(self, run: str) -> bool:
        """Return True while a process holds the lease of the run."""
        rows = self._database.select(_SELECT_LEASE, {"run": run})
        return bool(rows) and self._lease_seconds_left(*rows[0]) > 0

    def delete(self, run: str) -> None:
        """Delete a run with its steps and decisions."""
        for statement in (
            "DELETE FROM steps WHERE run = :run",
            "DELETE FROM decisions WHERE run = :run",
            "DELETE FROM runs WHERE id = :run",
        ):
            self._database.update(statement, {"run": run})

    def delete_session(self, session: str) -> None:
        """Delete a session with its runs."""
        for run in self.sessions.runs(session):
            self.delete(run)
        self.sessions.delete(session)

    def close(self) -> None:
        """Stop renewing leases, and close the database."""
        self._heartbeat.close()
        self._database.close()

    def _prune(self) -> None:
        """Delete runs past their age limit."""
        cutoff = time.time() - self._max_age_days * _DAY
        for (run,) in self._database.select("SELECT id FROM runs WHERE at < :cutoff", {"cutoff": cutoff}):
            self.delete(run)
