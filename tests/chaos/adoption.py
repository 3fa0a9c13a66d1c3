"""Measures how soon the runs of killed and paused workers are taken over."""

import json
import threading
import time
from dataclasses import dataclass

import psycopg

from tests.chaos.cluster import connect
from tests.chaos.records import Adoption

_INTERVAL = 0.2
_SELECT_RUNS = "SELECT id, holder, token FROM toolwire.runs WHERE ended IS NULL"


@dataclass
class _Expectation:
    run: str
    token: str
    worker: str
    cause: str
    since: float


class AdoptionWatch:
    """Looks at the leases several times a second, in a thread."""

    def __init__(self, url: str) -> None:
        self._url = url
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
        missing = [Adoption(one.run, one.worker, one.cause, None) for one in self._expected]
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
                self._connection = None
                return
            tokens = {str(run): token for run, _, token in rows}
            self._held = {str(run): (str(holder), str(token)) for run, holder, token in rows if token is not None}
            for one in list(self._expected):
                if one.run not in tokens or tokens[one.run] not in (None, one.token):
                    self._expected.remove(one)
                    self._adoptions.append(Adoption(one.run, one.worker, one.cause, time.monotonic() - one.since))


def _identity(holder: str) -> tuple[int, str]:
    """Return the pid and the PID namespace of a holder."""
    fields = json.loads(holder)
    return int(fields["pid"]), str(fields.get("pid_namespace", ""))
