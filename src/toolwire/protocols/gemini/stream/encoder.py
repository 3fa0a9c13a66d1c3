"""Gemini's stream from canonical events. The grammar is told in stream_decoder."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Citation, Part, Reasoning, ReasoningText, Refusal, Seal, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    Event,
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
from toolwire.canonical.response import Stop, Usage
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.ids import made_answer_id
from toolwire.codec.interface import Context, StreamEncoder, Target
from toolwire.codec.kept import given, restore
from toolwire.codec.losses import Report, Trail
from toolwire.codec.plan import Plan
from toolwire.codec.sequence import Sequence
from toolwire.codec.sse import frame
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini.parts.content import encode_parts, report_text
from toolwire.protocols.gemini.parts.grounding import grounding
from toolwire.protocols.gemini.parts.messages import encode_content
from toolwire.protocols.gemini.parts.signatures import HANDED_ON
from toolwire.protocols.gemini.parts.spelling import spell
from toolwire.protocols.gemini.request.body import RULES
from toolwire.protocols.gemini.response.body import BLOCKED, encode_created, encode_stop, encode_usage, report_message
from toolwire.protocols.gemini.response.errors import encode_error
from toolwire.protocols.gemini.wire import FAMILY, ISSUER, FeedbackShape, PartShape

_text = msgspec.json.Encoder().encode
_HEAD = b'data: {"candidates":[{"content":{"parts":[{"text":'
_TAIL = b'],"role":"model"},"index":%d}]%b}\n\n'


class Growing:
    """A part that is not told before it is complete."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.texts = TextPieces()

    def complete(self) -> Part:
        part, text = self.part, "".join(self.texts)
        if isinstance(part, ToolCall):
            return replace(part, arguments=part.arguments + text)
        if isinstance(part, Text | Refusal):
            return replace(part, text=part.text + text)
        if isinstance(part, Reasoning) and text:
            return replace(part, content=(*part.content, ReasoningText(kind="summary", text=text)))
        return part


class Encoder:
    def __init__(self, context: Context) -> None:
        self.report = Report()
        self._context = context
        self._plan = Plan(RULES, self.report, Target(), home=True, answering=True)
        self._sequence = Sequence()
        self._ended = False
        self._first: dict[str, Any] = {}
        self._head: dict[str, Any] = {}
        self._tail = b""
        self._tails: dict[tuple[int, int], tuple[bytes, TextPieces]] = {}
        self._growing: dict[tuple[int, int], Growing] = {}
        self._trails: dict[tuple[int, int], Trail] = {}
        self._counts: dict[tuple[int, int], int] = {}
        self._notes: dict[tuple[int, int], list[Citation]] = {}
        self._cited: dict[int, list[tuple[int, Text]]] = {}
        self._told: dict[int, int] = {}
        self._messages: dict[int, MessageStart] = {}
        self._stops: dict[int, Stopped] = {}
        self._proofs: dict[int, Seal] = {}
        self._usage: Usage | None = None

    @property
    def failure(self) -> ApiError | None:
        return self._sequence.failure

    def encode(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if type(event) is PartDelta and event.plain:
                # A part of another protocol that is open here is the one that may speak.
                key = (event.candidate, event.index)
                if (speaking := self._tails.get(key)) is not None and event.text and not self._first:
                    tail, texts = speaking
                    texts.append(event.text)
                    out += (_HEAD, _text(event.text), tail)
                    continue
                if (growing := self._growing.get(key)) is not None:
                    growing.texts.append(event.text)
                    continue
            out.append(self._encode(event))
        return b"".join(out)

    def _encode(self, event: Event) -> bytes:
        """One event; of another protocol with what waited for it, one part after the other."""
        if type(event) is ResponseStart:
            self._plan.home = event.origin == FAMILY
        return self._write((event,) if self._plan.home else self._sequence.order(event))

    def _write(self, events: Iterable[Event]) -> bytes:
        methods = self._METHODS
        return b"".join([methods[type(event)](self, event) for event in events if type(event) in methods])

    def close(self) -> bytes:
        if self._ended:
            return b""
        waiting = self._write(self._sequence.close())
        if self._ended:
            return waiting
        error = ApiError(kind="server", message="the upstream ended before its answer did")
        return waiting + self._fail(ResponseFailed(error=error))

    def _start(self, event: ResponseStart) -> bytes:
        self._plan.home = event.origin == FAMILY
        self._usage = event.usage
        if event.model is not None:
            self._head["modelVersion"] = event.model
        encode_created(event.created, event.form, self._head, self._plan)
        if event.id is not None or not self._plan.home:
            made = made_answer_id(self._context.request) if event.id is None else event.id
            self._head["responseId"] = made
        if self._plan.home:
            self._first = restore(spell(dict(self._head), event), event, FAMILY)
        elif event.extras:
            self.report.unclaimed(event, (FAMILY,))
        self._tail = b"," + _text(self._head)[1:-1] if self._head else b""
        return b""

    def _notice(self, event: Notice) -> bytes:
        # google-genai takes a comment for a part of the answer, and passes over an empty line.
        return b"\n\n" if event.kind == "ping" else b""

    def _chunk(self, body: dict[str, Any]) -> bytes:
        """The first one has all that is known of the response."""
        head, self._first = self._first or self._head, {}
        return frame(_text({**body, **head}))

    def _message_start(self, event: MessageStart) -> bytes:
        self._messages.setdefault(event.candidate, event)
        if not self._plan.home:
            trail = ("candidates", event.candidate, "messages", event.message)
            report_message(event, trail, self._plan)
        return b""

    def _part_start(self, event: PartStart) -> bytes:
        key, message = (event.candidate, event.index), (event.candidate, event.message)
        position = self._counts.get(message, 0)
        self._counts[message] = position + 1
        trail = ("candidates", event.candidate, "messages", event.message, "parts", position)
        self._trails[key] = trail
        part = event.part
        if not self._is_plain(part):
            self._growing[key] = Growing(part)
            return b""
        if isinstance(part, Refusal):
            self.report.approximated(trail, "", "a refusal is told as text")
        elif isinstance(part, Text) and not self._plan.home:
            report_text(part, trail, self._plan)
        elif isinstance(part, Reasoning) and not self._plan.home:
            self._report_thought(part, trail)
        ending = b',"thought":true}' if isinstance(part, Reasoning) else b"}"
        self._tails[key] = ending + _TAIL % (event.candidate, self._tail), TextPieces()
        text = part.text if isinstance(part, Text | Refusal) else _thought(part)
        return self._said(key, text)

    def _is_plain(self, part: Part) -> bool:
        """Whether it can be told as it grows."""
        if isinstance(part, Refusal):
            return True
        if not isinstance(part, Text | Reasoning):
            return False
        own = part.seal is not None and part.seal.issuer == ISSUER
        kept = self._plan.home and (part.extras or part.form)
        media = isinstance(part, Reasoning) and any(not isinstance(one, ReasoningText) for one in part.content)
        return not own and not kept and not media

    def _report_thought(self, part: Reasoning, trail: Trail) -> None:
        if part.seal is not None:
            self.report.dropped((*trail, "seal"), "", "the target has no place for another issuer's proof")
        if part.id is not None:
            self.report.dropped(trail, "id")

    def _said(self, key: tuple[int, int], text: str) -> bytes:
        if not text:
            return b""
        tail, texts = self._tails[key]
        texts.append(text)
        if self._first:
            body = _HEAD[len(b"data: ") :] + _text(text) + tail.rstrip(b"\n")
            return self._chunk(msgspec.json.decode(body))
        return _HEAD + _text(text) + tail

    def _delta(self, event: PartDelta) -> bytes:
        key = (event.candidate, event.index)
        if (growing := self._growing.get(key)) is not None:
            growing.texts.append(event.text)
            if event.seal is not None and isinstance(growing.part, Text | Reasoning | ToolCall):
                growing.part = replace(growing.part, seal=event.seal)
            return b""
        if key not in self._tails:
            return b""
        said = self._said(key, event.text)
        if event.seal is not None:
            said += self._sealed(event, key)
        if event.annotation is not None:
            self._notes.setdefault(key, []).append(event.annotation)
        return said

    def _sealed(self, event: PartDelta, key: tuple[int, int]) -> bytes:
        if event.seal is None:
            return b""
        if event.seal.issuer != ISSUER:
            self.report.dropped((*self._trails[key], "seal"), "", "the target has no place for another issuer's proof")
            return b""
        return self._hand_on(event.candidate, event.seal)

    def _hand_on(self, candidate: int, seal: Seal) -> bytes:
        """A proof that comes after the words stands on the call that comes next, or on a part of its own, as Google's
        own do. Before another one, it stands there at once."""
        before = self._proofs.get(candidate)
        self._proofs[candidate] = seal
        if before is None:
            return b""
        return self._parts(candidate, [PartShape(text="", thought=True, thought_signature=before.data)])

    def _part_end(self, event: PartEnd) -> bytes:
        key = (event.candidate, event.index)
        _, texts = self._tails.pop(key, (b"", TextPieces()))
        if (growing := self._growing.pop(key, None)) is None:
            if texts:
                self._cite(event, "".join(texts))
            return b""
        part = growing.complete() if event.final is None else event.final
        handed = b""
        if not self._plan.home and isinstance(part, Reasoning) and part.seal is not None and part.seal.issuer == ISSUER:
            handed = self._hand_on(event.candidate, part.seal)
            part = replace(part, seal=None, form=(*part.form, HANDED_ON))
        elif isinstance(part, ToolCall) and part.executor == "client" and part.seal is None:
            part = replace(part, seal=self._proofs.pop(event.candidate, None))
        return handed + self._parts(event.candidate, encode_parts([Placed(part, self._trails[key])], self._plan))

    def _cite(self, event: PartEnd, text: str) -> None:
        """What a text rests on is told at the end, beside all parts."""
        number = self._told[event.candidate] = self._told.get(event.candidate, -1) + 1
        notes = self._notes.pop((event.candidate, event.index), [])
        if isinstance(event.final, Text) and event.final.annotations:
            notes = list(event.final.annotations)
        if notes:
            cited = Text(text=text, annotations=tuple(notes))
            self._cited.setdefault(event.candidate, []).append((number, cited))

    def _parts(self, candidate: int, parts: list[Any]) -> bytes:
        if not parts:
            return b""
        self._told[candidate] = self._told.get(candidate, -1) + len(parts)
        content = {"parts": parts, "role": "model"}
        return self._chunk({"candidates": [{"content": content, "index": candidate}]})

    def _stop(self, event: Stopped) -> bytes:
        self._stops[event.candidate] = event
        return b""

    def _report_usage(self, event: UsageReport) -> bytes:
        self._usage = event.usage
        return b""

    def _end(self, event: ResponseEnd) -> bytes:
        self._ended = True
        body: dict[str, Any] = {}
        plan = self._plan
        numbers = sorted({*self._messages, *self._stops}) or ([] if plan.home else [0])
        candidates = [one for number in numbers if (one := self._last(number)) is not None]
        if candidates:
            body["candidates"] = candidates
        for stopped in self._stops.values():
            if BLOCKED in stopped.form and stopped.stop is not None:
                body["promptFeedback"] = FeedbackShape(block_reason=given(stopped.stop.raw))
                if isinstance(more := self._first.get("promptFeedback"), dict):
                    more.setdefault("blockReason", stopped.stop.raw)
        if self._usage is not None:
            body["usageMetadata"] = encode_usage(self._usage, plan)
        if plan.home:
            body = restore(spell(body, event), event, FAMILY)
        return self._chunk(body)

    def _last(self, number: int) -> Any:
        """The last that is said of a candidate."""
        plan, stopped = self._plan, self._stops.get(number)
        if stopped is not None and BLOCKED in stopped.form and plan.home:
            return None
        shape: dict[str, Any] = {}
        started = self._messages.get(number)
        if started is not None or not plan.home:
            shape["content"] = self._closing_content(started, number)
        stop = None if stopped is None else stopped.stop
        if stop is None and not plan.home:
            stop = Stop(reason="end_turn")
        if not plan.home and (found := grounding(self._cited.get(number, []))) is not None:
            shape["groundingMetadata"] = found
        if (word := encode_stop(stop, number, plan)) is not None:
            shape["finishReason"] = word
        shape["index"] = number
        return shape if stopped is None or not plan.home else restore(spell(shape, stopped), stopped, FAMILY)

    def _closing_content(self, started: MessageStart | None, number: int) -> Any:
        proof = self._proofs.pop(number, None)
        parts = [PartShape(text="", thought_signature=UNSET if proof is None else proof.data)]
        if started is None or not self._plan.home or not (started.extras or started.form):
            return {"parts": parts, "role": "model"}
        return encode_content(started, parts)

    def _fail(self, event: ResponseFailed) -> bytes:
        self._ended = True
        body = encode_error(event.error).body
        text = _text(body[0] if isinstance(body, list) else body)
        # Both official SDKs know a bare object for an error that ends a stream; Node's reads over one in an event.
        return frame(text) if self._plan.home and not event.broken else text + b"\n\n"

    _METHODS: ClassVar[dict[type, Callable[..., bytes]]] = {
        ResponseStart: _start,
        MessageStart: _message_start,
        PartStart: _part_start,
        PartDelta: _delta,
        PartEnd: _part_end,
        Stopped: _stop,
        UsageReport: _report_usage,
        ResponseEnd: _end,
        ResponseFailed: _fail,
        Notice: _notice,
    }


def _thought(part: Part) -> str:
    if not isinstance(part, Reasoning):
        return ""
    return "\n\n".join([one.text for one in part.content if isinstance(one, ReasoningText)])


def stream_encoder(context: Context) -> StreamEncoder:
    return Encoder(context)
