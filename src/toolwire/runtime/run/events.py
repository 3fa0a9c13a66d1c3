"""Events of a run, for callers and as JSON lines."""

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from toolwire.canonical.content import Citation, Media, Part, Reasoning, Text
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.response import Response, Usage

StopCause = Literal[
    "finished",
    "turns",
    "seconds",
    "tokens",
    "requests",
    "cost",
    "repeats",
    "output",
    "length",
    "filtered",
    "denied",
    "refused",
    "waiting",
    "cancelled",
    "failed",
]
"""Why a run ended: a complete answer, a limit, an answer that does not match the output type, the model's length limit
or filter, a hook that denied, a refusal of the model, a pending approval, cancellation, or a failure."""


class CallRecord(Struct, frozen=True, kw_only=True):
    """The record of one call, for events and the journal; never sent to the model.

    Times are seconds since the epoch. Fields with default values are encoded, too.
    """

    tool: str
    call_id: str
    arguments: Any = None
    """Arguments without secrets, long strings truncated."""
    approval: str = ""
    """The decision on the call, and its author: `approved by person`."""
    start: float = 0.0
    end: float = 0.0
    summary: str = ""
    """The beginning of the result."""
    error: str = ""
    """One-word error class; empty on success."""
    retries: int = 0
    source: str = ""
    locus: str = "local"
    truncated: bool = False
    redacted: int = 0
    """Number of secrets redacted in the result."""
    repairs: tuple[str, ...] = ()
    edited: bool = False
    """The approver changed the arguments."""
    hook_changes: tuple[str, ...] = ()
    """The parts that hooks changed: `arguments`, `result`."""
    sources: tuple[Citation, ...] = ()
    """Web pages that the call found or read."""
    response: str = ""
    """Provider's id of the response that made the call."""
    provider: str = ""
    """Model as requested."""
    version: str = ""
    """Model as reported by the provider."""


class _EventStruct(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of the events; encoded with their tag as `event` and without default values."""


class RunStarted(_EventStruct, frozen=True, kw_only=True, tag="run_started"):
    """The run starts or resumes."""

    run: str
    model: str
    resumed: bool = False


class TurnStarted(_EventStruct, frozen=True, kw_only=True, tag="turn_started"):
    """A turn of the model starts."""

    turn: int
    recorded: bool = False
    """The response comes from the record of a resumed run, without a model request."""


class TextDelta(_EventStruct, frozen=True, kw_only=True, tag="text"):
    """A piece of the model's answer."""

    text: str


class ThinkingDelta(_EventStruct, frozen=True, kw_only=True, tag="thinking"):
    """A piece of the model's reasoning."""

    text: str


class TurnEnded(_EventStruct, frozen=True, kw_only=True, tag="turn_ended"):
    """The model's response is complete."""

    turn: int
    stop: str
    """Stop reason."""
    usage: Usage | None = None
    response: str = ""
    """Provider's id of the response."""
    model: str = ""
    """Model as reported by the provider."""


class CallProposed(_EventStruct, frozen=True, kw_only=True, tag="call_proposed"):
    """The model requests a tool call."""

    call_id: str
    tool: str
    arguments: str
    verdict: str = ""
    """Verdict of the policy."""
    by: str = ""
    """Reason for the verdict."""
    rejected: str = ""
    """Why the call can't run at all, if so."""


class CallStarted(_EventStruct, frozen=True, kw_only=True, tag="call_started"):
    """The tool starts running."""

    call_id: str
    tool: str


class CallProgressed(_EventStruct, frozen=True, kw_only=True, tag="call_progressed"):
    """The tool reports progress."""

    call_id: str
    text: str


class CallLogged(_EventStruct, frozen=True, kw_only=True, tag="call_logged"):
    """The tool, or the MCP server that runs it, logs a message."""

    call_id: str
    level: str
    """Severity as in MCP, such as `info`, `warning` or `error`."""
    text: str


class CallEnded(_EventStruct, frozen=True, kw_only=True, tag="call_ended"):
    """The call has a result."""

    call_id: str
    status: Literal["ok", "error", "denied"]
    """`denied` means that the tool was not run, `error` that it failed or could not run."""
    record: CallRecord


class HandedOff(_EventStruct, frozen=True, kw_only=True, tag="handed_off"):
    """The conversation moves to another agent."""

    agent: str
    """Name of the agent that continues."""
    previous: str


class SubAgentEvent(_EventStruct, frozen=True, kw_only=True, tag="sub_agent"):
    """An event of a sub-agent, during the call that runs it."""

    agent: str
    """Name of the sub-agent."""
    call_id: str
    """Id of the call."""
    inner: "RunEvent"
    """The event as the sub-agent's own run has it."""


class RunWarning(_EventStruct, frozen=True, kw_only=True, tag="warning"):
    """A problem that does not stop the run, such as an MCP server that can't be reached."""

    text: str
    subject: Literal["tools", "conversation"] = "tools"
    """The subject: a tool that is missing or works differently, or the conversation as the model receives it."""


class RunEnded(_EventStruct, frozen=True, kw_only=True, tag="run_ended"):
    """The run ended or pauses for an approval."""

    run: str
    stopped: StopCause
    reason: str = ""
    """Details of the stop cause."""
    text: str = ""
    """Text of the last response."""
    usage: Usage | None = None
    turns: int = 0
    calls: int = 0


RunEvent = (
    RunStarted
    | TurnStarted
    | TextDelta
    | ThinkingDelta
    | TurnEnded
    | CallProposed
    | CallStarted
    | CallProgressed
    | CallLogged
    | CallEnded
    | HandedOff
    | SubAgentEvent
    | RunWarning
    | RunEnded
)


class TextEventMapper:
    """Maps the canonical events of one response to text and thinking events."""

    def __init__(self) -> None:
        self._part_types: dict[int, type] = {}
        self._emitted: set[int] = set()

    def map_event(self, event: Event) -> RunEvent | None:
        """Return the run event for a canonical event; None if it carries no text."""
        match event:
            case PartStart(candidate=0):
                self._part_types[event.index] = type(event.part)
                return self._text_event(event.index, _part_text(event.part))
            case PartDelta(candidate=0):
                return self._text_event(event.index, event.text)
            case PartEnd(candidate=0) if event.final is not None and event.index not in self._emitted:
                return self._text_event(event.index, _part_text(event.final))
            case _:
                return None

    def _text_event(self, index: int, text: str) -> RunEvent | None:
        """Return the event for a piece of text of the part at `index`; None for other parts or empty text."""
        part_type = self._part_types.get(index)
        if not text or part_type not in (Text, Reasoning):
            return None
        self._emitted.add(index)
        return TextDelta(text=text) if part_type is Text else ThinkingDelta(text=text)


def text_events(response: Response) -> Iterator[RunEvent]:
    """Yield the text and thinking events of a complete response."""
    for message in response.candidates[0].messages if response.candidates else ():
        for part in message.parts:
            if text := _part_text(part):
                yield TextDelta(text=text) if isinstance(part, Text) else ThinkingDelta(text=text)


def _part_text(part: Part) -> str:
    """Return the text of a text or reasoning part; empty for others."""
    match part:
        case Text():
            return part.text
        case Reasoning():
            return "".join("" if isinstance(content, Media) else content.text for content in part.content)
        case _:
            return ""
