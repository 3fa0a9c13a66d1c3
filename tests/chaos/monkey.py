"""The monkey: kills, pauses and restarts programs of the cluster, by chance from a seed."""

import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from tests.chaos.adoption import AdoptionWatch
from tests.chaos.cluster import Cluster, Node, connect
from toolwire.journal.leases import LeaseTerms

_PAUSE_SECONDS = LeaseTerms().seconds + 11
"""Past the lease, and past the time that others have to adopt its runs."""
_MAX_PAUSED = 2
_FIRST_WAIT = 5.0  # seconds, until everything has something to do
_CUT_CONNECTIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolwire'"


@dataclass
class Monkey:
    """Acts until it is stopped; then it lets all programs run again."""

    cluster: Cluster
    seed: int
    adoptions: AdoptionWatch
    log: Callable[[str], None]
    actions: list[str] = field(default_factory=list)
    kills: list[tuple[str, float]] = field(default_factory=list)
    """The addresses of gateways that were killed, and when."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _repairs: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Act for this many seconds: first each action once, then at random; return when all is repaired."""
        chance = random.Random(f"{self.seed} monkey")
        kinds = [self._pause_worker, self._kill_worker, self._kill_gateway, self._restart_database, self._cut]
        first_round = [self._pause_worker, *chance.sample(kinds[1:], len(kinds) - 1)]
        deadline = time.monotonic() + seconds
        self._wait(min(deadline, time.monotonic() + _FIRST_WAIT))
        while time.monotonic() < deadline:
            act = first_round.pop(0) if first_round else chance.choice(kinds)
            act(chance)
            self._wait(min(deadline, time.monotonic() + chance.uniform(1.0, 4.0)))
        while self._repairs:
            self._wait(time.monotonic() + 0.5)

    def _wait(self, until: float) -> None:
        """Wait, and repair what is due meanwhile."""
        while True:
            due = [repair for at, repair in self._repairs if at <= time.monotonic()]
            self._repairs = [(at, repair) for at, repair in self._repairs if at > time.monotonic()]
            for repair in due:
                repair()
            if time.monotonic() >= until:
                return
            time.sleep(0.05)

    def _note(self, text: str) -> None:
        """Record an action."""
        self.actions.append(text)
        self.log(text)

    def _choose(self, chance: random.Random, nodes: "list[Node]") -> Node | None:
        """Choose a running program, unless it is the only one."""
        running = [node for node in nodes if node.pid is not None and not node.is_paused]
        return chance.choice(running) if len(running) > 1 else None

    def _restart_later(self, node: Node, seconds: float) -> None:
        def start() -> None:
            node.start()
            self.log(f"start {node.name}")

        self._repairs.append((time.monotonic() + seconds, start))

    def _kill_gateway(self, chance: random.Random) -> None:
        if (node := self._choose(chance, [*self.cluster.gateways])) is not None:
            self._note(f"kill {node.name}")
            node.kill()
            address = self.cluster.gateway_roots[self.cluster.gateways.index(node)].removeprefix("http://")
            self.kills.append((address, time.time()))
            self._restart_later(node, chance.uniform(0.5, 3))

    def _kill_worker(self, chance: random.Random) -> None:
        if (node := self._choose(chance, [*self.cluster.workers])) is not None:
            self._note(f"kill {node.name}")
            self.adoptions.expect(node.name, "killed", node.identity())
            node.kill()
            self._restart_later(node, chance.uniform(0.5, 3))

    def _pause_worker(self, chance: random.Random) -> None:
        paused = sum(node.is_paused for node in self.cluster.workers)
        node = self._choose(chance, [*self.cluster.workers])
        if node is None or paused >= _MAX_PAUSED:
            return
        self._note(f"pause {node.name}")
        self.adoptions.expect(node.name, "paused", node.identity())
        node.pause()

        def wake() -> None:
            self.log(f"wake {node.name}")
            node.wake()

        self._repairs.append((time.monotonic() + _PAUSE_SECONDS, wake))

    def _restart_database(self, chance: random.Random) -> None:
        self._note("restart PostgreSQL immediately")
        self.cluster.database.stop("immediate")
        self._wait(time.monotonic() + chance.uniform(0, 2))
        self.cluster.database.start()

    def _cut(self, chance: random.Random) -> None:
        self._note("cut the connections of PostgreSQL")
        try:
            with connect(self.cluster.database.url) as connection:
                connection.execute(_CUT_CONNECTIONS)
        except psycopg.Error as error:
            self.log(f"not cut: {error}")


def wake_all(cluster: Cluster) -> None:
    """Let all suspended programs continue, for the case that the run is interrupted."""
    for node in (*cluster.gateways, *cluster.workers):
        node.send(signal.SIGCONT)
