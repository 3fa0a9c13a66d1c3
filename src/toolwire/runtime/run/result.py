"""Handles for callers: a `Run` to await and inspect, and a `RunStream` of its events."""

import asyncio
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, cast

from toolwire.canonical.content import Citation, Message
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.response import Usage
from toolwire.codec.options import require_bool
from toolwire.runtime.portal import has_running_loop, run_sync
from toolwire.runtime.run.citations import find_citations
from toolwire.runtime.run.events import CallEnded, CallRecord, RunEnded, RunEvent, RunWarning, StopCause, TextDelta
from toolwire.runtime.run.state import RunState, run_ended

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT_co = TypeVar("OutputT_co", default=str, covariant=True)
else:
    from typing import TypeVar

    OutputT_co = TypeVar("OutputT_co", covariant=True)

T = TypeVar("T")
_FAILURE_CAUSES: frozenset[StopCause] = frozenset(
    {"failed", "turns", "seconds", "tokens", "requests", "cost", "repeats", "output", "length", "filtered", "denied"}
)
"""Stop causes without a complete answer. A refusal is an answer of the model, so it is not among them."""


class AgentWarning(UserWarning):
    """A run continues without a tool that its agent has; for example, because an MCP server did not start."""


def warn_of(event: RunEvent) -> None:
    """Emit a Python warning for a `RunWarning` about tools."""
    if isinstance(event, RunWarning) and event.subject == "tools":
        warnings.warn(event.text, AgentWarning, stacklevel=2)


class RunFailed(ToolwireError):
    """A provider error or a limit stopped `run` before its answer was complete."""

    def __init__(self, run: "Run[Any]") -> None:
        outcome = "failed" if run.stopped == "failed" else f"stopped ({run.stopped})"
        super().__init__(f"run {run.id} {outcome}: {run.reason}")
        self.run = run


class Run(Generic[OutputT_co]):
    """The result of a run. In asynchronous code, await it first."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._check = False
        self._end_event: RunEnded | None = None
        self._task: asyncio.Future[None] | None = None
        self.calls: list[CallRecord] = []
        self.warnings: list[str] = []
        """Problems that did not stop the run."""

    def __await__(self) -> Generator[Any, None, "Run[OutputT_co]"]:
        """Wait for the end of the run, and return the run."""
        if self._task is not None:
            yield from self._task.__await__()
        return self.check_outcome()

    def __repr__(self) -> str:
        """Show how the run ended, with its answer or the reason."""
        if self._end_event is None:
            return f"<Run {self.id}, in progress>"
        return f"<Run {self.id}, {self.stopped}: {(self.text if self.ok else self.reason)!r:.200}>"

    def check_outcome(self) -> "Run[OutputT_co]":
        """Return the run; with `check`, raise `RunFailed` if it failed."""
        if self._check:
            self.raise_for_failure()
        return self

    def complete(self, consumption: Coroutine[Any, Any, None], *, check: bool) -> "Run[OutputT_co]":
        """Run to the end and return the run; if an event loop is running, do so in a task, and return at once."""
        self._check = check
        if has_running_loop():
            self._task = asyncio.ensure_future(consumption)
            self._task.add_done_callback(lambda _: self.mark_ended())  # a task cancelled at once emits no events
            return self
        run_sync(consumption)
        return self.check_outcome()

    def raise_for_failure(self) -> None:
        """Raise `RunFailed` if a provider error or a limit stopped the run before its answer was complete."""
        if self.stopped in _FAILURE_CAUSES:
            raise RunFailed(self)

    @property
    def ok(self) -> bool:
        """True if the model completed its answer."""
        return self.stopped == "finished"

    @property
    def id(self) -> str:
        """Id of the run."""
        return self._state.run

    @property
    def agent(self) -> str:
        """Name of the agent that has the conversation: the last one after hand-offs."""
        return self._state.agent

    @property
    def model(self) -> str:
        """Name of the model that gave the last response, as its provider reports it."""
        return self._state.last_response.reported_model or self._state.last_response.requested_model

    @property
    def text(self) -> str:
        """Text of the last response."""
        return self._result.text

    @property
    def output(self) -> OutputT_co:
        """The answer: a value of the agent's output type, or the text; raise `RunFailed` if there is none."""
        if self.stopped != "finished":
            raise RunFailed(self)
        return cast("OutputT_co", self._state.output)

    @property
    def stopped(self) -> StopCause:
        """Why the run stopped, as a code such as `finished`."""
        return self._result.stopped

    @property
    def reason(self) -> str:
        """A sentence that explains `stopped`."""
        return self._result.reason

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The web pages that the answer cites, each with the part of `text` that cites it.

        They are the provider's citations, and pages of toolwire's web tools whose URL is in the answer.
        """
        return find_citations(self.text, self.messages, self.calls)

    @property
    def usage(self) -> Usage:
        """Tokens used by all turns and by models inside tools; without counts if no model answered."""
        return self._result.usage or Usage()

    @property
    def turns(self) -> int:
        """Number of model turns."""
        return self._result.turns

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, which another run can continue."""
        return self._state.messages

    @property
    def state(self) -> RunState:
        """The state of the run."""
        return self._state

    def mark_ended(self) -> None:
        """Set the end of a run whose events were not consumed to the end."""
        if self._end_event is None:
            if self._state.stopped is None:
                self._state.stopped, self._state.reason = "cancelled", "its events were not consumed to the end"
            self._end_event = run_ended(self._state)

    def on_event(self, event: RunEvent) -> None:
        """Collect call records and the end of the run."""
        if isinstance(event, RunEnded):
            self._end_event = event
        elif isinstance(event, CallEnded):
            self.calls.append(event.record)
        elif isinstance(event, RunWarning):
            self.warnings.append(event.text)

    @property
    def _result(self) -> RunEnded:
        """The last event of the run; raise `ToolwireError` if the run has not ended."""
        if self._end_event is None:
            raise ToolwireError("the run has not ended; await it first")
        return self._end_event


class RunStream(Generic[OutputT_co]):
    """The events of a run, for `for` or `async for`. Afterward, `run` holds the result.

    The run proceeds as its events are read. `finish()`, or `await` in asynchronous code, reads them to the end and
    returns the run. As a context manager (`with` or `async with`), the stream cancels a run whose events were not
    consumed to the end.
    """

    def __init__(self, run: Run[OutputT_co], events: AsyncGenerator[RunEvent, None]) -> None:
        self.run = run
        self._events = events

    def __iter__(self) -> Iterator[RunEvent]:
        """Yield the events in synchronous code."""
        while (event := run_sync(_next_item(self._events))) is not None:
            yield event

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        """Return the events for `async for`."""
        return self._events

    def __await__(self) -> Generator[Any, None, Run[OutputT_co]]:
        """Execute the run to its end, and return it; raise `RunFailed` if it ends without an answer."""
        return self.finish().__await__()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError` with the places of the attributes that a run has."""
            hint = ""
            if hasattr(Run, name) and not name.startswith("_"):
                hint = f": use `.run.{name}` once the events are read, or `.finish().{name}`, or `await` the stream"
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        run_sync(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the run, unless it has ended."""
        await self._events.aclose()
        self.run.mark_ended()

    def stream_events(self) -> Self:
        """Return the stream of events itself, for `for` or `async for`."""
        return self

    def stream_text(self, *, check: bool = True) -> "TextStream":
        """Return the pieces of the model's answer, for `for` or `async for`.

        Raises `RunFailed` at the end if the run ends without an answer; with `check=False`, inspect `run`.
        """
        return TextStream(self.run, self._events, check=check)

    def finish(self, *, check: bool = True) -> Run[OutputT_co]:
        """Execute the run to its end, and return it. In asynchronous code, await the result, as that of `Agent.run`."""
        require_bool("check", check)
        return self.run.complete(_consume(self._events), check=check)


class TextStream:
    """The pieces of text of a run, for `for` or `async for`."""

    def __init__(self, run: Run[Any], events: AsyncIterator[RunEvent], *, check: bool) -> None:
        require_bool("check", check)
        self._run = run
        self._events = events
        self._check = check

    def __iter__(self) -> Iterator[str]:
        """Yield the texts in synchronous code."""
        texts = aiter(self)
        while (text := run_sync(_next_item(texts))) is not None:
            yield text

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the texts in asynchronous code."""
        async for event in self._events:
            if isinstance(event, TextDelta):
                yield event.text
        if self._check:
            self._run.raise_for_failure()


async def _consume(events: AsyncIterator[RunEvent]) -> None:
    """Read events to the end, and emit their warnings as Python warnings: the caller sees no events."""
    async for event in events:
        warn_of(event)


async def _next_item(items: AsyncIterator[T]) -> T | None:
    """Return the next item; None at the end."""
    return await anext(items, None)
