"""A run as its caller has it: awaited or followed by its events, and then what it came to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from typing import Any

from toolwire.canonical.content import Message
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.response import Usage
from toolwire.runtime.portal import run_sync
from toolwire.runtime.run.events import CallEnded, CallRecord, RunEnded, RunEvent, StopCause
from toolwire.runtime.run.loop import run_ended
from toolwire.runtime.run.state import RunState

_FAILURE_CAUSES: frozenset[StopCause] = frozenset(
    {"failed", "steps", "time", "tokens", "repetition", "length", "filtered"}
)
"""Ends at which there is no complete answer, through the provider or a limit. A refusal is the model's own answer."""


class RunFailed(ToolwireError):
    """The provider or a limit kept a run from its answer; `run` is that run."""

    def __init__(self, run: "Run") -> None:
        super().__init__(
            f"the run {run.id} {'failed' if run.stopped == 'failed' else f'stopped ({run.stopped})'}: {run.reason}"
        )
        self.run = run


class Run:
    """A run that ended, or, in asynchronous code, one that is to be awaited."""

    def __init__(self, state: RunState, *, check: bool = False) -> None:
        self._state = state
        self._check = check
        self._end_event: RunEnded | None = None
        self._task: Awaitable[None] | None = None
        self.calls: list[CallRecord] = []

    def __await__(self) -> Generator[Any, None, "Run"]:
        if self._task is not None:
            yield from self._task.__await__()
        return self.check_outcome()

    def check_outcome(self) -> "Run":
        """The run, unless it failed and was started with `check`."""
        if self._check:
            self.raise_for_failure()
        return self

    def attach_task(self, task: "asyncio.Future[None]") -> None:
        """The run goes on in this task, and is to be awaited."""
        task.add_done_callback(lambda _: self.mark_ended())  # cancelled before it began, nothing else notes its end
        self._task = task

    def raise_for_failure(self) -> None:
        """Raise `RunFailed` if the provider or a limit kept the run from its answer."""
        if self.stopped in _FAILURE_CAUSES:
            raise RunFailed(self)

    @property
    def ok(self) -> bool:
        """Whether the model came to the end of its answer."""
        return self.stopped == "finished"

    @property
    def id(self) -> str:
        return self._state.run

    @property
    def text(self) -> str:
        """The last thing that the model said."""
        return self._result.text

    @property
    def stopped(self) -> StopCause:
        return self._result.stopped

    @property
    def reason(self) -> str:
        return self._result.why

    @property
    def usage(self) -> Usage | None:
        return self._result.usage

    @property
    def turns(self) -> int:
        return self._result.turns

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, for another run to go on with."""
        return self._state.messages

    @property
    def state(self) -> RunState:
        return self._state

    def mark_ended(self) -> None:
        """Note the end of a run that was left before it told its own."""
        if self._end_event is None:
            if self._state.stopped is None:
                self._state.stopped, self._state.reason = "cancelled", "it was not followed to its end"
            self._end_event = run_ended(self._state)

    def on_event(self, event: RunEvent) -> None:
        if isinstance(event, RunEnded):
            self._end_event = event
        elif isinstance(event, CallEnded):
            self.calls.append(event.record)

    @property
    def _result(self) -> RunEnded:
        if self._end_event is None:
            raise ToolwireError("the run has not ended: await it first")
        return self._end_event


class RunStream:
    """The events of a run. Iterate it, or iterate it asynchronously; then see `run`."""

    def __init__(self, run: Run, events: AsyncIterator[RunEvent]) -> None:
        self.run = run
        self._events = events

    def __iter__(self) -> Iterator[RunEvent]:
        while (event := run_sync(_next_event(self._events))) is not None:
            yield event

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self._events


async def _next_event(events: AsyncIterator[RunEvent]) -> RunEvent | None:
    return await anext(events, None)
