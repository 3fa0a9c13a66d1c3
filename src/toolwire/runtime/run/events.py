"""What a run tells while it goes on: for who watches, and as JSON lines.

What a person can read of an answer, as it arrives.
"""

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from toolwire.canonical.content import Media, Part, Reasoning, Text
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.response import Response, Usage

StopCause = Literal[
    "finished",
    "steps",
    "time",
    "tokens",
    "repetition",
    "length",
    "filtered",
    "refused",
    "waiting",
    "cancelled",
    "failed",
]
"""Why a run ended: the answer is whole; a cap; the model's own length, filter or refusal; a person or an outcome is
waited for; somebody stopped it; a fault of protocol."""


class CallRecord(Struct, frozen=True, kw_only=True):
    """One call: what was run, who allowed it, and what came of it. It is for events and journal, never for the model.
    Times are seconds since the epoch; `summary` is the beginning of what the model was given; `edited`: who approved
    it changed the arguments. `response` is the provider's id of the answer that asked for the call, which its result
    continues; `provider` is the model as it was asked for, `version` what it calls itself. Nothing is left out of it
    where it is written: who reads it need not know what would be missing."""

    tool: str
    call_id: str
    arguments: Any = None
    approval: str = ""
    start: float = 0.0
    end: float = 0.0
    summary: str = ""
    error: str = ""
    retries: int = 0
    source: str = ""
    locus: str = "local"
    truncated: bool = False
    redacted: int = 0
    repairs: tuple[str, ...] = ()
    edited: bool = False
    response: str = ""
    provider: str = ""
    version: str = ""


class _EventStruct(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    pass


class RunStarted(_EventStruct, frozen=True, kw_only=True, tag="run_started"):
    run: str
    model: str
    resumed: bool = False


class TurnStarted(_EventStruct, frozen=True, kw_only=True, tag="turn_started"):
    """`recorded`: the run was taken up again, and what the model said then is told, without asking it."""

    turn: int
    recorded: bool = False


class TextDelta(_EventStruct, frozen=True, kw_only=True, tag="text"):
    text: str


class ThinkingDelta(_EventStruct, frozen=True, kw_only=True, tag="thinking"):
    text: str


class TurnEnded(_EventStruct, frozen=True, kw_only=True, tag="turn_ended"):
    """`response` and `model` are what the provider calls its answer, and itself."""

    turn: int
    stop: str
    usage: Usage | None = None
    response: str = ""
    model: str = ""


class CallProposed(_EventStruct, frozen=True, kw_only=True, tag="call_proposed"):
    """The model wants it. `verdict` is what the policy says, `by` why; `refused` why it can't be run at all."""

    call_id: str
    tool: str
    arguments: str
    verdict: str = ""
    by: str = ""
    refused: str = ""


class CallStarted(_EventStruct, frozen=True, kw_only=True, tag="call_started"):
    call_id: str
    tool: str


class CallProgressed(_EventStruct, frozen=True, kw_only=True, tag="call_progressed"):
    call_id: str
    text: str


class CallEnded(_EventStruct, frozen=True, kw_only=True, tag="call_ended"):
    """`denied` and `error` are told apart: nothing ran, or it did and failed."""

    call_id: str
    status: Literal["ok", "error", "denied"]
    record: CallRecord


class RunWarning(_EventStruct, frozen=True, kw_only=True, tag="warning"):
    """Something to know that stops nothing: a server that is not there, a loss."""

    text: str


class RunEnded(_EventStruct, frozen=True, kw_only=True, tag="run_ended"):
    run: str
    stopped: StopCause
    why: str = ""
    text: str = ""
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
    | CallEnded
    | RunWarning
    | RunEnded
)


class TextEventMapper:
    """Takes the events of one answer in order."""

    def __init__(self) -> None:
        self._part_types: dict[int, type] = {}
        self._emitted: set[int] = set()

    def map_event(self, event: Event) -> RunEvent | None:
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
        kind = self._part_types.get(index)
        if not text or kind not in (Text, Reasoning):
            return None
        self._emitted.add(index)
        return TextDelta(text=text) if kind is Text else ThinkingDelta(text=text)


def text_events(response: Response) -> Iterator[RunEvent]:
    """The same of an answer that is known already."""
    for message in response.candidates[0].messages if response.candidates else ():
        for part in message.parts:
            if text := _part_text(part):
                yield TextDelta(text=text) if isinstance(part, Text) else ThinkingDelta(text=text)


def _part_text(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Reasoning():
            return "".join("" if isinstance(one, Media) else one.text for one in part.content)
        case _:
            return ""
