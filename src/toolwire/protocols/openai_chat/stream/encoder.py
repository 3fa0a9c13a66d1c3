"""Canonical events, to Chat's chunks.

Clients add up what they read, so role, id and name are said once, call indices have no gaps, and usage is on the last
chunk. That one has no choices, and is sent only to clients that asked for it: others read `chunk.choices[0]` of all.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from toolwire.canonical.content import Citation, Foreign, Reasoning, ReasoningText, Refusal, Text, ToolCall, ToolResult
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
from toolwire.codec.interface import Context, StreamEncoder, Target
from toolwire.codec.kept import restore
from toolwire.codec.losses import Report, Trail
from toolwire.codec.plan import Plan
from toolwire.codec.sequence import Sequence
from toolwire.codec.sse import frame
from toolwire.codec.telling import call_name
from toolwire.codec.turns import Placed
from toolwire.protocols.openai_chat.parts.calls import (
    LEGACY,
    encode_server_call,
    encode_server_result,
    report_call,
)
from toolwire.protocols.openai_chat.parts.citations import cite, encode_citation
from toolwire.protocols.openai_chat.parts.content import THINKING, encode_parts
from toolwire.protocols.openai_chat.parts.reasoning import DETAILS, REASONING, report_reasoning
from toolwire.protocols.openai_chat.request.body import RULES
from toolwire.protocols.openai_chat.response.body import encode_stop, encode_usage
from toolwire.protocols.openai_chat.response.errors import encode_error
from toolwire.protocols.openai_chat.wire import FAMILY

from .choiceless import CLOSING
from .chunks import NO_CHUNKS, Chunks, chunks_of, delta_of, text_of


class _Part(Struct):
    """An open part: what stands before and after the text of its deltas."""

    trail: Trail
    kind: type
    before: bytes = b""
    after: bytes = b""
    block: int = 0
    silent: bool = True
    start: int = 0
    length: int = 0
    notes: list[tuple[Citation, Trail]] = msgspec.field(default_factory=list)


_NO_PART = _Part((), type(None))


class Encoder:
    def __init__(self, context: Context) -> None:
        self.report = Report()
        self._plan = Plan(RULES, self.report, Target(), home=True, answering=True)
        self._context = context
        self._counts = context.request is None or context.request.include_usage is True
        self._sequence = Sequence()
        self._chunks = NO_CHUNKS
        self._parts: dict[tuple[int, int], _Part] = {}
        self._open, self._candidate, self._index = _NO_PART, -1, -1
        self._roles: set[int] = set()
        self._calls: dict[int, int] = {}
        self._positions: dict[tuple[int, int], int] = {}
        self._lengths: dict[int, int] = {}
        self._notes: dict[int, list[Any]] = {}
        self._stops: dict[int, Stopped] = {}
        self._refused: set[int] = set()
        self._told: set[tuple[int, str]] = set()
        self._usage: Usage | None = None
        self._ended = False

    @property
    def failure(self) -> ApiError | None:
        return self._sequence.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        part, index, candidate = self._open, self._index, self._candidate
        before, after, length = part.before, part.after, 0
        for event in events:
            if type(event) is PartDelta and event.plain and event.index == index and event.candidate == candidate:
                if text := event.text:
                    length += len(text)
                    out += (before, text_of(text), after)
                continue
            if length:
                self._spoke(part, length)
            out.append(self._encode(event))
            part, index, candidate = self._open, self._index, self._candidate
            before, after, length = part.before, part.after, 0
        if length:
            self._spoke(part, length)
        return b"".join(out)

    @staticmethod
    def _spoke(part: _Part, length: int) -> None:
        part.silent = False
        part.length += length

    def _encode(self, event: Event) -> bytes:
        """One event; of another protocol with what waited for it, one part after the other."""
        if self._plan.home:
            return self._METHODS[type(event)](self, event)
        return b"".join([self._METHODS[type(one)](self, one) for one in self._sequence.order(event)])

    def close(self) -> bytes:
        if self._ended:
            return b""
        waiting = b"".join([self._METHODS[type(one)](self, one) for one in self._sequence.close()])
        if self._ended:
            return waiting
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail(ResponseFailed(error=error))

    def _start(self, event: ResponseStart) -> bytes:
        plan = self._plan
        plan.home = event.origin == FAMILY
        self._usage = event.usage
        self._chunks = chunks_of(event, plan, self._context, counts=self._counts)
        return b"" if plan.home else self._role(0)

    def _chunk_with(self, candidate: int, delta: dict[str, Any], extras: dict[str, Any]) -> bytes:
        self._told.update((candidate, name) for name in extras)
        return self._chunks.with_extras(candidate, delta, extras)

    # ---- messages

    def _message_start(self, event: MessageStart) -> bytes:
        # A first chunk that has only choice 1 breaks clients: the choices below it are opened too.
        opened = b"".join([self._role(number) for number in range(event.candidate + 1)])
        kept = _own(event.extras)
        if kept and self._plan.home:
            opened += self._chunk_with(event.candidate, {}, {f"delta/{name}": value for name, value in kept.items()})
        return opened

    def _role(self, candidate: int) -> bytes:
        if candidate in self._roles:
            return b""
        self._roles.add(candidate)
        return self._chunks.of(candidate, {"role": "assistant", "content": None})

    def _message_end(self, event: MessageEnd) -> bytes:
        return self._rest(event.candidate, event.extras, "delta/") if self._plan.home else b""

    def _rest(self, candidate: int, extras: Extras | None, under: str) -> bytes:
        """What was not told as it arrived."""
        kept = {under + name: value for name, value in _own(extras).items()}
        untold = {name: value for name, value in kept.items() if (candidate, name) not in self._told}
        return self._chunk_with(candidate, {}, untold) if untold else b""

    def _notice(self, event: Notice) -> bytes:
        if event.kind == "ping":
            return b": ping\n\n"
        kept = _own(event.extras)
        if not kept or not event.kind.startswith("choice:"):
            return b""
        return self._chunk_with(int(event.kind.removeprefix("choice:")), {}, kept)

    # ---- parts

    def _part_start(self, event: PartStart) -> bytes:
        part, candidate = event.part, event.candidate
        message = (candidate, event.message)
        position = self._positions[message] = self._positions.get(message, -1) + 1
        trail: Trail = ("candidates", candidate, "messages", event.message, "parts", position)
        opened = self._role(candidate)
        state = _Part(trail, type(part))
        before, after = self._chunks.around(candidate)
        said = ""
        match part:
            case Text():
                state.before, state.after = before + b'{"content":', b"}" + after
                state.start = self._lengths.get(candidate, 0)
                said = part.text
                if part.seal is not None and not self._plan.home:
                    self.report.dropped((*trail, "seal"), "", "the target has no place for another issuer's proof")
            case Refusal():
                self._refused.add(candidate)
                state.before, state.after = before + b'{"refusal":', b"}" + after
                said = part.text
            case Reasoning():
                self._open_reasoning(part, state, before, after)
                said = "".join(block.text for block in part.content if isinstance(block, ReasoningText))
            case ToolCall() if part.executor == "client":
                opened += self._open_call(part, state, candidate)
                said = part.arguments
            case _:
                return opened + self._whole(event, trail)
        self._parts[candidate, event.index] = state
        self._open, self._candidate, self._index = state, candidate, event.index
        return opened + (self._say(state, said) if said else b"")

    def _say(self, state: _Part, text: str) -> bytes:
        state.silent = False
        state.length += len(text)
        return state.before + text_of(text) + state.after if state.before else b""

    def _open_reasoning(self, part: Reasoning, state: _Part, before: bytes, after: bytes) -> None:
        if not self._plan.home:
            report_reasoning(part, Placed(part, state.trail), self._plan)
            state.before, state.after = before + b'{"reasoning_content":', b"}" + after
        elif THINKING in part.form:
            state.before = before + b'{"content":[{"type":"thinking","thinking":[{"type":"text","text":'
            state.after = b"}]}]}" + after
        elif DETAILS not in part.form:
            found = (token.removeprefix(REASONING) for token in part.form if token.startswith(REASONING))
            name = next(found, "reasoning_content")
            state.before, state.after = before + b"{" + text_of(name) + b":", b"}" + after
        else:
            state.block = -1

    def _open_call(self, part: ToolCall, state: _Part, candidate: int) -> bytes:
        plan = self._plan
        before, after = self._chunks.around(candidate)
        if plan.home and LEGACY in part.form:
            state.before, state.after = before + b'{"function_call":{"arguments":', b"}}" + after
            return self._chunks.of(candidate, {"function_call": {"name": part.name, "arguments": ""}})
        placed = Placed(part, state.trail)
        if not plan.home:
            report_call(part, placed, plan)
        index = self._calls[candidate] = self._calls.get(candidate, -1) + 1
        kind, inner = ("custom", "input") if part.shape == "freeform" else ("function", "arguments")
        named = {"name": call_name(part, plan), inner: ""}
        call: dict[str, Any] = {"index": index, "id": part.id if plan.home else plan.id_of(placed), "type": kind}
        if call["id"] is None:
            del call["id"]
        call[kind] = named
        restore(call, part, FAMILY)
        state.before = before + b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (index, kind.encode(), inner.encode())
        state.after = b"}}]}" + after
        return self._chunks.of(candidate, {"tool_calls": [call]})

    def _whole(self, event: PartStart, trail: Trail) -> bytes:
        """A part that has no deltas: only this protocol's own can be told."""
        placed = Placed(event.part, trail)
        match event.part:
            case ToolCall():
                encode_server_call(event.part, placed, self._plan)
            case ToolResult():
                encode_server_result(event.part, placed, self._plan)
            case Foreign() if event.part.protocol == FAMILY and self._plan.home:
                return self._chunks.of(event.candidate, {"content": [event.part.body]})
            case _ if self._plan.home:
                return self._chunks.of(event.candidate, {"content": encode_parts([placed], self._plan)})
            case _:
                self.report.dropped(trail, "", "the target's answers have no place for it")
        return b""

    def _delta(self, event: PartDelta) -> bytes:
        part = self._parts.get((event.candidate, event.index))
        if part is None:
            return b""
        kept = _own(event.extras)
        if kept:
            plain = self._say(part, event.text) if event.text else b""
            delta = delta_of(plain) if plain else {}
            return self._chunk_with(event.candidate, delta, kept)
        if event.annotation is not None:
            return self._cite(part, event)
        if event.seal is not None and not self._plan.home:
            self.report.dropped((*part.trail, "seal"), "", "the target has no place for another issuer's proof")
        if not event.text:
            return b""
        text = event.text
        if event.block != part.block and part.kind is Reasoning and part.before:
            # Several texts of one reasoning are told as paragraphs.
            part.block = event.block
            text = text if part.silent else "\n\n" + text
        return self._say(part, text)

    def _cite(self, part: _Part, event: PartDelta) -> bytes:
        if event.annotation is None:
            return b""
        if self._plan.home:
            return self._chunks.of(event.candidate, {"annotations": [encode_citation(event.annotation)]})
        trail = (*part.trail, "annotations", len(part.notes))
        part.notes.append((event.annotation, trail))
        return b""

    def _part_end(self, event: PartEnd) -> bytes:
        part = self._parts.get((event.candidate, event.index))
        if self._open is part:
            self._open, self._candidate, self._index = _NO_PART, -1, -1
        if part is None:
            return b""
        final = event.final
        if part.kind is Text:
            self._lengths[event.candidate] = part.start + part.length
            if self._plan.home and isinstance(final, Text) and final.annotations:
                # Of an answer that came whole.
                notes = [encode_citation(note) for note in final.annotations]
                return self._chunks.of(event.candidate, {"annotations": notes})
            self._collect(part, event)
        if isinstance(final, Reasoning) and not self._plan.home:
            report_reasoning(final, Placed(final, part.trail), self._plan)
        if part.kind is ToolCall and part.silent:
            if isinstance(final, ToolCall) and final.arguments:
                return self._say(part, final.arguments)
            # Clients parse the arguments of every call.
            return b"" if self._plan.home or b'"custom"' in part.before[-20:] else self._say(part, "{}")
        return b""

    def _collect(self, part: _Part, event: PartEnd) -> None:
        """The citations of a text, now that its end is known."""
        final = event.final
        if not part.notes and isinstance(final, Text) and not self._plan.home:
            notes = final.annotations or ()
            part.notes = [(note, (*part.trail, "annotations", index)) for index, note in enumerate(notes)]
        for note, trail in part.notes:
            cited = cite(note, trail, self._plan, part.start, part.start + part.length)
            if cited is not None:
                self._notes.setdefault(event.candidate, []).append(cited)
        part.notes = []

    # ---- the end

    def _stop(self, event: Stopped) -> bytes:
        self._stops[event.candidate] = event
        return b""

    def _finish(self, candidate: int, chunks: Chunks) -> bytes:
        stopped = self._stops.get(candidate)
        finish = encode_stop(
            None if stopped is None else stopped.stop,
            ("candidates", candidate, "stop"),
            self._plan,
            calls=candidate in self._calls,
            refused=candidate in self._refused,
        )
        return chunks.finish(candidate, finish)

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    def _end(self, event: ResponseEnd) -> bytes:
        self._ended = True
        out = b"" if self._plan.home else self._role(0)
        finished = list(self._stops) if self._plan.home else sorted(self._roles | {0})
        late = _own(event.extras)
        chunks = self._chunks.extended(late)
        for number in finished:
            out += self._finish_one(number, chunks if number == finished[-1] else self._chunks)
        if late and not finished:
            out += chunks.of(0, {})
        if self._usage is not None and self._counts:
            usage = encode_usage(self._usage, self._plan)
            out += frame(text_of({**chunks.envelope, "choices": [], "usage": usage}))
        return out + CLOSING

    def _finish_one(self, candidate: int, chunks: Chunks) -> bytes:
        notes = self._notes.get(candidate)
        cited = self._chunks.of(candidate, {"annotations": notes}) if notes else b""
        stopped = self._stops.get(candidate)
        untold = b"" if stopped is None else self._rest(candidate, stopped.extras, "")
        return cited + untold + self._finish(candidate, chunks)

    def _fail(self, event: ResponseFailed) -> bytes:
        self._ended = True
        finished = list(self._stops) if self._plan.home else []
        told = [self._finish_one(number, self._chunks) for number in finished]
        return b"".join([*told, frame(text_of(encode_error(event.error).body))])

    _METHODS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartDelta: _delta,
        PartEnd: _part_end,
        MessageEnd: _message_end,
        Stopped: _stop,
        UsageReport: _report_usage,
        Notice: _notice,
        ResponseEnd: _end,
        ResponseFailed: _fail,
    }


def _own(extras: Extras | None) -> dict[str, Any]:
    return dict((extras or {}).get(FAMILY, {}))


def stream_encoder(context: Context) -> StreamEncoder:
    return Encoder(context)
