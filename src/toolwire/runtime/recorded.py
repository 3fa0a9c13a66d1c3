"""A run as it was recorded: its steps, read as turns, calls and what was asked of a person."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text, ToolCall, ToolResult
from toolwire.canonical.response import Response
from toolwire.journal.runs import KeptStep, decode_entry

from .approval import Ask
from .deciding import Decided
from .execute import IN_DOUBT, Intent, Outcome
from .expanding import expanded
from .state import identified

T = TypeVar("T")
NOT_RUN = "not run: the run was stopped before this call was carried out"
HALF_DONE = "not finished: the run was stopped while this was being carried out. What it did until then stays done."


class RecordedCall(Struct, kw_only=True):
    """`intent` is the tool and its arguments, if it was begun. Begun and without an outcome, it is in doubt, unless it
    is to be taken up again."""

    id: str
    ask: Ask | None = None
    decided: Decided | None = None
    intent: Intent | None = None
    begun: float | None = None
    outcome: Outcome | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Nobody knows whether it took effect."""
        if self.outcome is not None:
            return self.outcome.record.error == "in_doubt"
        return self.intent is not None and not self.intent.resumable

    @property
    def is_half_done(self) -> bool:
        """It is taken up again where it was left."""
        return self.outcome is None and self.intent is not None and self.intent.resumable

    @property
    def is_waiting(self) -> bool:
        return self.ask is not None and self.decided is None and self.outcome is None


class RecordedTurn(Struct, kw_only=True):
    """`response` is None if the model did not get to answer. `calls` are in the order in which they were begun."""

    number: int
    begun: float
    finished: float | None = None
    response: Response | None = None
    calls: dict[str, RecordedCall]

    @property
    def said(self) -> tuple[Message, ...]:
        found = () if self.response is None or not self.response.candidates else self.response.candidates[0].messages
        known = {call.intent.tool for call in self.calls.values() if call.intent is not None}
        return expanded(tuple(replace(message, at=None) for message in found), known)

    @property
    def proposed(self) -> list[tuple[str, ToolCall]]:
        """What the model asked for, by the ids that the runtime knows them by."""
        parts = [part for message in self.said for part in message.parts if isinstance(part, ToolCall)]
        wanted = [part for part in parts if part.executor == "client"]
        return identified(self.number, wanted)


def turns_of(steps: Sequence[KeptStep]) -> list[RecordedTurn]:
    found: dict[int, RecordedTurn] = {}
    for step in steps:
        kind, _, rest = step.name.partition("/")
        number, _, id = rest.partition("/")
        if not number.isdecimal():
            continue
        turn = found.setdefault(int(number), RecordedTurn(number=int(number), begun=step.begun, calls={}))
        match kind:
            case "turn":
                turn.begun, turn.finished = step.begun, step.finished
                turn.response = _decoded(step, step.outcome, Response)
            case "approval":
                call = turn.calls.setdefault(id, RecordedCall(id=id))
                call.ask = _decoded(step, step.intent, Ask)
                call.decided = _decoded(step, step.outcome, Decided)
            case "call":
                call = turn.calls.setdefault(id, RecordedCall(id=id))
                call.intent = _decoded(step, step.intent, Intent)
                call.begun = None if call.intent is None else step.begun
                call.outcome = _decoded(step, step.outcome, Outcome)
            case _:
                pass
    return [found[number] for number in sorted(found)]


def _decoded(step: KeptStep, data: bytes | None, kind: type[T]) -> T | None:
    return decode_entry(data, kind, f"the step {step.name}") if data else None


def conversation(asked: Sequence[Message], turns: Sequence[RecordedTurn]) -> tuple[Message, ...]:
    """All that was said, for another run to go on with: every call has a result."""
    return (*asked, *(message for turn in turns for message in _exchange(turn)))


def _exchange(turn: RecordedTurn) -> Iterator[Message]:
    yield from turn.said
    results = tuple(_result(turn, id, call) for id, call in turn.proposed)
    if results:
        yield Message(role="user", parts=results)


def _result(turn: RecordedTurn, id: str, call: ToolCall) -> ToolResult:
    recorded = turn.calls.get(id)
    if recorded is not None and recorded.outcome is not None:
        return recorded.outcome.result
    native = "custom" if call.shape == "freeform" else call.native
    said = NOT_RUN
    if recorded is not None and recorded.intent is not None:
        said = HALF_DONE if recorded.is_half_done else IN_DOUBT
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text=said),), status="error", native=native)
