"""Canonical events, to Ollama's lines.

All lines of a stream begin alike: that is made once, and a delta only fills in its text. A call has one line, once it
is whole.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning, ReasoningText, Refusal, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    Event,
    MessageEnd,
    MessageStart,
    Notice,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    Stopped,
    UsageReport,
)
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Usage
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.interface import Context, StreamEncoder, Target
from toolwire.codec.kept import restore
from toolwire.codec.losses import Report, Trail
from toolwire.codec.ndjson import line
from toolwire.codec.plan import Plan
from toolwire.codec.sequence import Sequence
from toolwire.codec.turns import Placed
from toolwire.protocols.ollama.parts.calls import encode_call
from toolwire.protocols.ollama.parts.content import Picture, encode_parts
from toolwire.protocols.ollama.parts.messages import report_reasoning
from toolwire.protocols.ollama.request.body import RULES
from toolwire.protocols.ollama.response.body import encode_created, encode_stop, encode_usage
from toolwire.protocols.ollama.response.errors import encode_error
from toolwire.protocols.ollama.wire import FAMILY

from .decoder import ENDED

_text = msgspec.json.Encoder().encode
_FIELDS = {Text: "content", Refusal: "content", Reasoning: "thinking"}


class _Part(Struct):
    """An open part: what stands before and after the text of its deltas, or what its deltas have brought."""

    part: Part
    trail: Trail
    before: bytes = b""
    after: bytes = b""
    pieces: TextPieces = msgspec.field(default_factory=TextPieces)
    block: int = 0
    silent: bool = True
    notes: int = 0


class Encoder:
    def __init__(self, context: Context) -> None:
        self.report = Report()
        self._plan = Plan(RULES, self.report, Target(), home=True, answering=True)
        self._created = context.created
        self._sequence = Sequence()
        self._envelope: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._parts: dict[int, _Part] = {}
        self._positions: dict[int, int] = {}
        self._candidates: set[int] = set()
        self._calls = 0
        self._stop: Stopped | None = None
        self._usage: Usage | None = None
        self._told: set[str] = set()
        self._ended = False

    @property
    def failure(self) -> ApiError | None:
        return self._sequence.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self._ended:
                break
            if type(event) is PartDelta and event.plain and event.candidate == 0:
                # A part of another protocol that is open here is the one that may speak.
                state = self._parts.get(event.index)
                if state is None or not event.text:
                    pass
                elif state.before:
                    state.silent = False
                    out += (state.before, _text(event.text), state.after)
                    continue
                elif isinstance(state.part, ToolCall):
                    state.pieces.append(event.text)
                    continue
            if self._plan.home:
                out.append(self._write(event))
            else:
                out += [self._write(one) for one in self._sequence.order(event)]
        return b"".join(out)

    def _write(self, event: Event) -> bytes:
        if candidate := getattr(event, "candidate", 0):
            if candidate not in self._candidates:
                self._candidates.add(candidate)
                self.report.dropped(("candidates", candidate), "", "the target has one answer only")
            return b""
        return self._METHODS[type(event)](self, event)

    def close(self) -> bytes:
        if self._ended:
            return b""
        waiting = b"".join([self._write(one) for one in self._sequence.close()])
        if self._ended:
            return waiting
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail(ResponseFailed(error=error))

    # ---- the envelope

    def _start(self, event: ResponseStart) -> bytes:
        plan = self._plan
        plan.home = event.origin == FAMILY
        envelope: dict[str, Any] = {}
        if event.model is not None or not plan.home:
            envelope["model"] = event.model or ""
        created = encode_created(event, self._created, home=plan.home)
        if created is not None:
            envelope["created_at"] = created
        restore(envelope, event, FAMILY)
        for name in ("message", "done", "error"):
            envelope.pop(name, None)
        self._last = {name: envelope.pop(name) for name in ("logprobs",) if name in envelope}
        self._envelope = envelope
        self._usage = event.usage
        if not plan.home:
            if event.id is not None:
                self.report.dropped((), "id", "the target's answers have no id")
            if event.continuation is not None and event.continuation.id is not None:
                self.report.dropped(("continuation",), "id")
        return b""

    def _line(self, message: dict[str, Any], extras: dict[str, Any] | None = None) -> bytes:
        """A line; the keys of extras are pointers below it."""
        said = {"role": "assistant", "content": "", **message}
        body: dict[str, Any] = {**self._envelope, "message": said, "done": False}
        if extras:
            self._told.update(extras)
            for name in extras.keys() & self._envelope.keys():
                del body[name]
            restore(body, Notice(kind="", extras={FAMILY: extras}), FAMILY)
        return line(_text(body))

    def _around(self, field: str) -> tuple[bytes, bytes]:
        """What stands before and after a text in this field."""
        before, _, after = self._line({field: "\0"}).partition(b'"\\u0000"')
        return before, after

    # ---- messages

    def _message_start(self, event: MessageStart) -> bytes:
        if not self._plan.home:
            for field in ("id", "name", "phase"):
                if getattr(event, field) is not None:
                    self.report.dropped(("candidates", 0, "messages", event.message), field)
        kept = {f"message/{name}": value for name, value in _own(event.extras).items()}
        return self._line({}, kept) if kept else b""

    def _message_end(self, event: MessageEnd) -> bytes:
        kept = {f"message/{name}": value for name, value in _own(event.extras).items()}
        untold = {name: value for name, value in kept.items() if name not in self._told}
        return self._line({}, untold) if untold else b""

    def _notice(self, event: Notice) -> bytes:
        kept = _own(event.extras)
        # There are no comments in this framing: a line that says nothing keeps a connection awake.
        return self._line({}, kept) if kept or event.kind == "ping" else b""

    # ---- parts

    def _part_start(self, event: PartStart) -> bytes:
        part = event.part
        position = self._positions[event.message] = self._positions.get(event.message, -1) + 1
        trail: Trail = ("candidates", 0, "messages", event.message, "parts", position)
        state = _Part(part, trail)
        if isinstance(part, ToolCall) and part.executor == "client":
            self._parts[event.index] = state
            return b""
        if (field := _FIELDS.get(type(part))) is None:
            return self._whole(Placed(part, trail))
        self._parts[event.index] = state
        state.before, state.after = self._around(field)
        return _said(state, self._opening(part, trail))

    def _opening(self, part: Part, trail: Trail) -> str:
        """The text that a part starts with. What can't be said of it is reported."""
        placed = Placed(part, trail)
        if isinstance(part, Reasoning):
            if not self._plan.home:
                report_reasoning(part, placed, self._plan)
            return "".join(block.text for block in part.content if isinstance(block, ReasoningText))
        (said,) = encode_parts([placed], self._plan)
        return said if isinstance(said, str) else ""

    def _whole(self, placed: Placed) -> bytes:
        """A part that has no deltas."""
        out = b""
        for piece in encode_parts([placed], self._plan):
            out += self._line({"images": [piece.data]} if isinstance(piece, Picture) else {"content": piece})
        return out

    def _delta(self, event: PartDelta) -> bytes:
        state = self._parts.get(event.index)
        if state is None:
            return b""
        if event.annotation is not None and not self._plan.home:
            trail = (*state.trail, "annotations", state.notes)
            self.report.dropped(trail, "", "the target has no place for citations")
            state.notes += 1
        if event.seal is not None:
            self.report.dropped((*state.trail, "seal"), "", "the target has no place for another issuer's proof")
        if isinstance(state.part, ToolCall):
            state.pieces.append(event.text)
            return b""
        kept = _own(event.extras)
        if kept and self._plan.home:
            state.silent = False
            return self._line({_FIELDS[type(state.part)]: event.text}, kept)
        text = event.text
        if text and event.block != state.block and isinstance(state.part, Reasoning):
            # Several texts of one reasoning are told as paragraphs.
            state.block = event.block
            text = text if state.silent else "\n\n" + text
        return _said(state, text)

    def _part_end(self, event: PartEnd) -> bytes:
        state = self._parts.pop(event.index, None)
        if state is None:
            return b""
        if isinstance(state.part, ToolCall):
            return self._call(state, state.part, event.final)
        final = event.final
        if isinstance(final, Text) and not state.notes and not self._plan.home:
            for number in range(len(final.annotations or ())):
                trail = (*state.trail, "annotations", number)
                self.report.dropped(trail, "", "the target has no place for citations")
        if isinstance(final, Reasoning) and not self._plan.home:
            report_reasoning(final, Placed(final, state.trail), self._plan)
        return b""

    def _call(self, state: _Part, part: ToolCall, final: Part | None) -> bytes:
        whole = replace(part, arguments=part.arguments + "".join(state.pieces))
        if isinstance(final, ToolCall):
            whole = final
        call = encode_call(whole, Placed(whole, state.trail), self._plan, self._calls)
        self._calls += 1
        return self._line({"tool_calls": [call]})

    # ---- the end

    def _stopped(self, event: Stopped) -> bytes:
        self._stop = event
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    def _end(self, event: ResponseEnd) -> bytes:
        self._ended = True
        said = {"role": "assistant", "content": ""}
        last: dict[str, Any] = {**self._envelope, "message": said, "done": True, **self._last}
        for token in event.form if self._plan.home else ():
            if token.startswith(ENDED):
                last["created_at"] = token.removeprefix(ENDED)
        reason = encode_stop(None if self._stop is None else self._stop.stop, self._plan)
        if reason is not None:
            last["done_reason"] = reason
        last.update((name, value) for name, value in _own(event.extras).items() if name not in self._told)
        encode_usage(self._usage, last, self._plan)
        return line(_text(last))

    def _fail(self, event: ResponseFailed) -> bytes:
        self._ended = True
        return line(_text(encode_error(event.error).body))

    _METHODS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartDelta: _delta,
        PartEnd: _part_end,
        MessageEnd: _message_end,
        Stopped: _stopped,
        UsageReport: _report_usage,
        Notice: _notice,
        ResponseEnd: _end,
        ResponseFailed: _fail,
    }


def _said(state: _Part, text: str) -> bytes:
    if not text:
        return b""
    state.silent = False
    return state.before + _text(text) + state.after


def _own(extras: Extras | None) -> dict[str, Any]:
    return dict((extras or {}).get(FAMILY, {}))


def stream_encoder(context: Context) -> StreamEncoder:
    return Encoder(context)
