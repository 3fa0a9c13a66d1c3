"""Measures how soon the runs of killed and paused workers are taken over.

While all workers are dead, starting or paused, or PostgreSQL is down, nobody can take a run over. This time is
measured, so that the rule does not depend on the load of the machine, which delays the start of programs.
"""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from tests.chaos.cluster import Node, connect
from tests.chaos.records import Adoption
from toolwire.journal.leases import LeaseTerms

_INTERVAL = 0.2
_SELECT_RUNS = "SELECT id, holder, token FROM toolwire.runs WHERE ended IS NULL"


@dataclass
class _Expectation:
    run: str
    token: str
    worker: str
    cause: str
    since: float
    waited: float = 0.0


class AdoptionWatch:
    """Looks at the leases several times a second, in a thread."""

    def __init__(self, url: str, workers: Sequence[Node]) -> None:
        self._url = url
        self._workers = workers
        self._served_since: float | None = None
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._held: dict[str, tuple[str, str]] = {}
        self._expected: list[_Expectation] = []
        self._adoptions: list[Adoption] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def expect(self, worker: str, cause: str, holder: tuple[int, str] | None) -> None:
        """Expect that others take over all runs that this process holds now, just before it is killed or paused."""
        if holder is None:
            return
        self._look()
        with self._lock:
            self._expected += [
                _Expectation(run, token, worker, cause, time.monotonic())
                for run, (held_by, token) in self._held.items()
                if _identity(held_by) == holder
            ]

    def close(self) -> list[Adoption]:
        """Stop, and return all adoptions; those that did not happen have no time."""
        self._closing.set()
        self._thread.join()
        missing = [Adoption(one.run, one.worker, one.cause, None, one.waited) for one in self._expected]
        return self._adoptions + missing

    def _watch(self) -> None:
        while not self._closing.wait(_INTERVAL):
            self._look()
        if self._connection is not None:
            self._connection.close()

    def _look(self) -> None:
        """Read the leases, and note which expected runs have another holder, or ended."""
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = connect(self._url)
                rows = self._connection.execute(_SELECT_RUNS).fetchall()
            except psycopg.Error:
                self._connection = self._served_since = None
                return
            self._count_waiting()
            tokens = {str(run): token for run, _, token in rows}
            self._held = {str(run): (str(holder), str(token)) for run, holder, token in rows if token is not None}
            for one in list(self._expected):
                if one.run not in tokens or tokens[one.run] not in (None, one.token):
                    self._expected.remove(one)
                    seconds = time.monotonic() - one.since
                    self._adoptions.append(Adoption(one.run, one.worker, one.cause, seconds, one.waited))

    def _count_waiting(self) -> None:
        """Add the time since the last look to what runs waited, if somebody could have taken them over."""
        now, since = time.monotonic(), self._served_since
        self._served_since = now if any(worker.is_ready for worker in self._workers) else None
        if since is None or self._served_since is None:
            return
        for one in self._expected:
            one.waited += max(0.0, now - max(since, one.since + LeaseTerms().seconds))


def _identity(holder: str) -> tuple[int, str]:
    """Return the pid and the PID namespace of a holder."""
    fields = json.loads(holder)
    return int(fields["pid"]), str(fields.get("pid_namespace", ""))
