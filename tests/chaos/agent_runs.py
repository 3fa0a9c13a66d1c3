"""The agent runs of the chaos run: detached with plans of calls, for workers to execute."""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field

from tests.chaos.upstream import write_plan
from toolwire.journal.runs import RunStore
from toolwire.journal.store import JournalError

_MAX_OPEN = 12
_POLL_INTERVAL = 0.5


@dataclass(frozen=True)
class PlannedRun:
    """A detached run, and the tool and entry of each call that its model makes."""

    run: str
    plan: tuple[tuple[str, str], ...]


@dataclass
class AgentRuns:
    """Detaches runs until stopped, a few at a time."""

    store: RunStore
    seed: int
    planned: list[PlannedRun] = field(default_factory=list)

    async def run(self, stopping: asyncio.Event) -> None:
        """Detach runs until stopped."""
        from tests.chaos.clerk import clerk  # it reads its environment

        chance, number = random.Random(f"{self.seed} runs"), 0
        while not stopping.is_set():
            if await asyncio.to_thread(self._count_open) < _MAX_OPEN:
                number += 1
                tag, turns = f"run-{number}", _choose_turns(chance, number)
                plan = tuple((tool, entry) for turn in turns for tool, entry in turn)
                calls = [[f"{tool}:{entry}" for tool, entry in turn] for turn in turns]
                with contextlib.suppress(JournalError):
                    run = await asyncio.to_thread(clerk.run_detached, write_plan(tag, calls))
                    self.planned.append(PlannedRun(run, plan))
            else:
                await asyncio.sleep(_POLL_INTERVAL)

    async def wait_until_ended(self, seconds: float) -> None:
        """Wait until all runs have ended, for so long at most."""
        deadline = time.monotonic() + seconds
        while await asyncio.to_thread(self._count_open) and time.monotonic() < deadline:  # noqa: ASYNC110 - polls the store
            await asyncio.sleep(_POLL_INTERVAL)

    def _count_open(self) -> int:
        """Return the number of runs that have not ended."""
        with contextlib.suppress(JournalError):
            stored = self.store.latest(10_000)
            return sum(run.end_event is None for run in stored)
        return _MAX_OPEN


def _choose_turns(chance: random.Random, number: int) -> list[list[tuple[str, str]]]:
    """Return turns of one or two calls, most of which are payments."""
    turns, count = list[list[tuple[str, str]]](), 0
    for _ in range(chance.randint(2, 6)):
        turn = []
        for _ in range(chance.randint(1, 2)):
            count += 1
            turn.append((chance.choice(["pay", "pay", "pay", "label", "look"]), f"entry-{number}-{count}"))
        turns.append(turn)
    return turns
