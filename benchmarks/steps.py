"""Overhead of the runtime for a tool step: an instant model, a no-op tool and a real journal."""

import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from toolwire import Agent, Policy, RunLimits, tool
from toolwire.canonical.content import Message, Text, ToolCall
from toolwire.canonical.events import Event
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop

STEPS, ROUNDS = 200, 5


class _Instant:
    """A model that calls the tool a number of times, then stops."""

    name = "instant"

    def __init__(self, calls: int) -> None:
        self._turns = [self._turn(number) for number in range(calls)] + [self._turn(None)]
        self._next = 0

    @staticmethod
    def _turn(number: int | None) -> list[Event]:
        part = Text(text="done")
        part_sent: Text | ToolCall = part
        if number is not None:
            part_sent = ToolCall(
                id=f"call_{number}", name="note", arguments=f'{{"number": {number}, "text": "some words"}}'
            )
        candidate = Candidate(
            messages=(Message(role="assistant", parts=(part_sent,)),),
            stop=Stop(reason="end_turn" if number is None else "tool_use"),
        )
        return list(unfold(Response(origin="", id="r", candidates=(candidate,))))

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        turn = self._turns[self._next]
        self._next += 1
        for event in turn:
            yield event

    async def close(self) -> None:
        pass


@tool
async def note(number: int, text: str) -> str:
    return text


MEMORY = "/dev/shm"
"""A directory in memory, to avoid waiting for a disk."""


def step_milliseconds(folder: str | None = MEMORY) -> float:
    """Return wall-clock milliseconds per step. A step is four synchronous writes, most of the time on a disk."""
    directory = folder if folder is not None and Path(folder).is_dir() else None
    return statistics.median(_round(directory) for _ in range(ROUNDS))


def sync_milliseconds() -> float:
    """Return the time of the temporary directory's disk to sync one page."""
    with tempfile.NamedTemporaryFile() as file:
        times = [_synced(file.fileno()) for _ in range(50)]
    return 1000 * statistics.median(times)


def _synced(descriptor: int) -> float:
    os.write(descriptor, bytes(4096))
    start = time.perf_counter()
    os.fsync(descriptor)
    return time.perf_counter() - start


def _round(directory: str | None) -> float:
    def seconds(calls: int) -> float:
        caps = RunLimits(turns=10 * STEPS)
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            agent = Agent(
                _Instant(calls),
                tools=[note],
                policy=Policy(allow=["note"]),
                limits=caps,
                journal=Path(folder) / "runs.db",
            )
            start = time.perf_counter()
            run = agent.run("go")
            took = time.perf_counter() - start
            assert len(run.calls) == calls
            return took

    return 1000 * (seconds(STEPS) - seconds(0)) / STEPS
