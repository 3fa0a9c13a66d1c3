"""Recorded runs: turns, calls and approvals decoded from the step log, and a size budget for recorded images."""

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
from toolwire.runtime.calls.executor import IN_DOUBT, CallIntent, CallOutcome
from toolwire.runtime.run.state import unwrap_batched_calls, with_unique_ids
from toolwire.runtime.run.step_log import StepLog

T = TypeVar("T")
NOT_RUN = "not run: the run was stopped before this call"
INTERRUPTED = "interrupted: the run was stopped during this call. What it did before that remains in effect."


class RecordedCall(Struct, kw_only=True):
    """A call as recorded, possibly unfinished."""

    id: str
    approval_request: ApprovalRequest | None = None
    decision: RecordedApproval | None = None
    intent: CallIntent | None = None
    """Tool and arguments, if the call started."""
    started_at: float | None = None
    outcome: CallOutcome | None = None

    @property
    def is_in_doubt(self) -> bool:
        """True if the call was interrupted and may or may not have taken effect."""
        if self.outcome is not None:
            return self.outcome.record.error == "in_doubt"
        return self.intent is not None and not self.intent.resumable

    @property
    def is_resumable(self) -> bool:
        """True if the call was interrupted and runs again when the run resumes."""
        return self.outcome is None and self.intent is not None and self.intent.resumable

    @property
    def is_waiting(self) -> bool:
        """True if the call waits for an approval."""
        return self.approval_request is not None and self.decision is None and self.outcome is None


class RecordedTurn(Struct, kw_only=True):
    """A turn as recorded, possibly unfinished."""

    number: int
    started_at: float
    finished_at: float | None = None
    response: Response | None = None
    """None if the model did not finish its response."""
    calls: dict[str, RecordedCall]
    """Calls by id, in the order in which they were recorded."""
    prompt: str | None = None
    """Message of toolwire itself after the response, to continue or correct the answer."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the response, with batched calls unwrapped as in the run."""
        if self.response is None or not self.response.candidates:
            return ()
        tool_names = {call.intent.tool for call in self.calls.values() if call.intent is not None}
        messages = self.response.candidates[0].messages
        return unwrap_batched_calls(tuple(replace(message, at=None) for message in messages), tool_names)

    @property
    def proposed_calls(self) -> list[tuple[str, ToolCall]]:
        """The calls that the model made, with the ids that the runtime gave them."""
        calls = [part for message in self.messages for part in message.parts if isinstance(part, ToolCall)]
        return with_unique_ids(self.number, [call for call in calls if call.executor == "client"])


def read_turns(steps: Sequence[StoredStep]) -> list[RecordedTurn]:
    """Decode the recorded steps of a run, each a model turn or a tool call, to turns in order."""
    turns: dict[int, RecordedTurn] = {}
    for step in steps:
        kind, _, turn_and_id = step.name.partition("/")
        number, _, id = turn_and_id.partition("/")
        if not number.isdecimal():
            continue
        turn = turns.setdefault(int(number), RecordedTurn(number=int(number), started_at=step.started_at, calls={}))
        match kind:
            case "turn":
                turn.started_at, turn.finished_at = step.started_at, step.finished_at
                turn.response = _decode_step(step, step.outcome, Response)
            case "prompt":
                turn.prompt = _decode_step(step, step.outcome, str)
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
    return [turns[number] for number in sorted(turns)]


def _decode_step(step: StoredStep, data: bytes | None, expected_type: type[T]) -> T | None:
    """Decode the intent or outcome (`data`) of a stored step; None if it is not recorded."""
    return decode_stored(data, expected_type, f"step {step.name}") if data else None


def conversation(prompt: Sequence[Message], turns: Sequence[RecordedTurn]) -> tuple[Message, ...]:
    """Return the complete conversation, with a result for every call, so that a new run can continue it."""
    return (*prompt, *(message for turn in turns for message in _turn_messages(turn)))


def _turn_messages(turn: RecordedTurn) -> Iterator[Message]:
    """Yield the messages of a turn, followed by the results of its calls."""
    yield from turn.messages
    results = tuple(_call_result(turn, id, call) for id, call in turn.proposed_calls)
    if results:
        yield Message(role="user", parts=results)
    if turn.prompt is not None:
        yield Message(role="user", parts=(Text(text=turn.prompt),))


def _call_result(turn: RecordedTurn, id: str, call: ToolCall) -> ToolResult:
    """Return the recorded result of a call, or an error that says how far it got."""
    recorded = turn.calls.get(id)
    if recorded is not None and recorded.outcome is not None:
        return recorded.outcome.result
    native = "custom" if call.shape == "freeform" else call.native
    message = NOT_RUN
    if recorded is not None and recorded.intent is not None:
        message = INTERRUPTED if recorded.is_resumable else IN_DOUBT
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text=message),), status="error", native=native)


MAX_IMAGE_BYTES = 64 * 1024 * 1024
_MIN_COUNTED_BYTES = 16 * 1024
IMAGE_REMOVED = "[image removed: only the latest images of a long run are kept]"


class ImageBudget:
    """A step log that limits the recorded images, since a run that takes screenshots could fill the disk.

    Beyond `max_bytes`, a note replaces the oldest images.
    """

    def __init__(self, step_log: StepLog, max_bytes: int = MAX_IMAGE_BYTES) -> None:
        self._step_log = step_log
        self._max_bytes = max_bytes
        self._sizes: dict[str, int] = {}

    def intent(self, name: str) -> bytes | None:
        """Return the recorded intent of a step; None if it never started."""
        return self._step_log.intent(name)

    def begin(self, name: str, intent: bytes) -> None:
        """Record that a step starts."""
        self._step_log.begin(name, intent)

    def outcome(self, name: str) -> bytes | None:
        """Return the recorded outcome of a step, and count its size; None if it did not finish."""
        if (stored := self._step_log.outcome(name)) is not None:
            self._track_size(name, stored)
        return stored

    def finish(self, name: str, outcome: bytes) -> None:
        """Record the outcome of a step, and count its size."""
        self._step_log.finish(name, outcome)
        self._track_size(name, outcome)

    def _track_size(self, name: str, outcome: bytes) -> None:
        """Count a large outcome, and remove images of the oldest ones until the total fits."""
        if not name.startswith("call/") or len(outcome) < _MIN_COUNTED_BYTES:
            return
        self._sizes[name] = len(outcome)
        while sum(self._sizes.values()) > self._max_bytes and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            self._remove_images(oldest)

    def _remove_images(self, name: str) -> None:
        """Rewrite the outcome of a step without its images."""
        if (stored := self._step_log.outcome(name)) is None:
            return
        outcome = msgspec.json.decode(stored, type=CallOutcome)
        content = tuple(map(_without_image, outcome.result.content or ()))
        stripped = replace(outcome, result=replace(outcome.result, content=content))
        self._step_log.finish(name, msgspec.json.encode(stripped))


def _without_image(part: Part) -> Part:
    """Replace an inline image by a note."""
    return Text(text=IMAGE_REMOVED) if isinstance(part, Media) and isinstance(part.source, Inline) else part
