"""A run as it was recorded: its steps, read as turns, calls and what was asked of a person.

Steps whose pictures together stay below a size: a run that watches a screen would fill any disk.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Inline, Media, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.response import Response
from toolwire.journal.runs import StoredStep, decode_stored
from toolwire.runtime.calls.admission import RecordedApproval
from toolwire.runtime.calls.approval import ApprovalRequest
from toolwire.runtime.calls.batched_calls import unwrap_batched_calls
from toolwire.runtime.calls.executor import IN_DOUBT, CallIntent, CallOutcome
from toolwire.runtime.run.state import with_unique_ids
from toolwire.runtime.run.step_log import StepLog

T = TypeVar("T")
NOT_RUN = "not run: the run was stopped before this call was carried out"
INTERRUPTED = "not finished: the run was stopped while this was being carried out. What it did until then stays done."


class RecordedCall(Struct, kw_only=True):
    """`intent` is the tool and its arguments, if it was begun. Begun and without an outcome, it is in doubt, unless it
    is to be taken up again."""

    id: str
    approval_request: ApprovalRequest | None = None
    decision: RecordedApproval | None = None
    intent: CallIntent | None = None
    started_at: float | None = None
    outcome: CallOutcome | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Nobody knows whether it took effect."""
        if self.outcome is not None:
            return self.outcome.record.error == "in_doubt"
        return self.intent is not None and not self.intent.resumable

    @property
    def is_resumable(self) -> bool:
        """It is taken up again where it was left."""
        return self.outcome is None and self.intent is not None and self.intent.resumable

    @property
    def is_waiting(self) -> bool:
        return self.approval_request is not None and self.decision is None and self.outcome is None


class RecordedTurn(Struct, kw_only=True):
    """`response` is None if the model did not get to answer. `calls` are in the order in which they were begun."""

    number: int
    started_at: float
    finished_at: float | None = None
    response: Response | None = None
    calls: dict[str, RecordedCall]

    @property
    def messages(self) -> tuple[Message, ...]:
        found = () if self.response is None or not self.response.candidates else self.response.candidates[0].messages
        known = {call.intent.tool for call in self.calls.values() if call.intent is not None}
        return unwrap_batched_calls(tuple(replace(message, at=None) for message in found), known)

    @property
    def proposed_calls(self) -> list[tuple[str, ToolCall]]:
        """What the model asked for, by the ids that the runtime knows them by."""
        parts = [part for message in self.messages for part in message.parts if isinstance(part, ToolCall)]
        wanted = [part for part in parts if part.executor == "client"]
        return with_unique_ids(self.number, wanted)


def read_turns(steps: Sequence[StoredStep]) -> list[RecordedTurn]:
    found: dict[int, RecordedTurn] = {}
    for step in steps:
        kind, _, rest = step.name.partition("/")
        number, _, id = rest.partition("/")
        if not number.isdecimal():
            continue
        turn = found.setdefault(int(number), RecordedTurn(number=int(number), started_at=step.started_at, calls={}))
        match kind:
            case "turn":
                turn.started_at, turn.finished_at = step.started_at, step.finished_at
                turn.response = _decode_step(step, step.outcome, Response)
            case "approval":
                call = turn.calls.setdefault(id, RecordedCall(id=id))
                call.approval_request = _decode_step(step, step.intent, ApprovalRequest)
                call.decision = _decode_step(step, step.outcome, RecordedApproval)
            case "call":
                call = turn.calls.setdefault(id, RecordedCall(id=id))
                call.intent = _decode_step(step, step.intent, CallIntent)
                call.started_at = None if call.intent is None else step.started_at
                call.outcome = _decode_step(step, step.outcome, CallOutcome)
            case _:
                pass
    return [found[number] for number in sorted(found)]


def _decode_step(step: StoredStep, data: bytes | None, expected_type: type[T]) -> T | None:
    return decode_stored(data, expected_type, f"the step {step.name}") if data else None


def conversation(prompt: Sequence[Message], turns: Sequence[RecordedTurn]) -> tuple[Message, ...]:
    """All that was said, for another run to go on with: every call has a result."""
    return (*prompt, *(message for turn in turns for message in _turn_messages(turn)))


def _turn_messages(turn: RecordedTurn) -> Iterator[Message]:
    yield from turn.messages
    results = tuple(_call_result(turn, id, call) for id, call in turn.proposed_calls)
    if results:
        yield Message(role="user", parts=results)


def _call_result(turn: RecordedTurn, id: str, call: ToolCall) -> ToolResult:
    recorded = turn.calls.get(id)
    if recorded is not None and recorded.outcome is not None:
        return recorded.outcome.result
    native = "custom" if call.shape == "freeform" else call.native
    said = NOT_RUN
    if recorded is not None and recorded.intent is not None:
        said = INTERRUPTED if recorded.is_resumable else IN_DOUBT
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text=said),), status="error", native=native)


MAX_IMAGE_BYTES = 64 * 1024 * 1024
_MIN_COUNTED_BYTES = 16 * 1024
IMAGE_REMOVED = "[a picture was here: of a long run only the latest are kept]"


class ImageBudget:
    """The steps of a run. `most` is in bytes; the oldest pictures go first, and a note stays in their place."""

    def __init__(self, step_log: StepLog, max_bytes: int = MAX_IMAGE_BYTES) -> None:
        self._step_log = step_log
        self._max_bytes = max_bytes
        self._sizes: dict[str, int] = {}

    def intent(self, name: str) -> bytes | None:
        return self._step_log.intent(name)

    def begin(self, name: str, intent: bytes) -> None:
        self._step_log.begin(name, intent)

    def outcome(self, name: str) -> bytes | None:
        if (known := self._step_log.outcome(name)) is not None:
            self._track_size(name, known)
        return known

    def finish(self, name: str, outcome: bytes) -> None:
        self._step_log.finish(name, outcome)
        self._track_size(name, outcome)

    def _track_size(self, name: str, outcome: bytes) -> None:
        if not name.startswith("call/") or len(outcome) < _MIN_COUNTED_BYTES:
            return
        self._sizes[name] = len(outcome)
        while sum(self._sizes.values()) > self._max_bytes and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            self._remove_images(oldest)

    def _remove_images(self, name: str) -> None:
        if (known := self._step_log.outcome(name)) is None:
            return
        whole = msgspec.json.decode(known, type=CallOutcome)
        content = tuple(map(_without_image, whole.result.content or ()))
        self._step_log.finish(name, msgspec.json.encode(replace(whole, result=replace(whole.result, content=content))))


def _without_image(part: Part) -> Part:
    return Text(text=IMAGE_REMOVED) if isinstance(part, Media) and isinstance(part.source, Inline) else part
