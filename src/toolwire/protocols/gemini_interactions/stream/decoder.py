"""The Interactions API's event stream, to canonical events. `stream_encoder` is the way back.

    interaction.created  (status_update | step.start step.delta* step.stop)*  interaction.completed  [DONE]

1. A step is a message. Thoughts and calls are one part, which opens with its step; what is said opens a part with its
   first delta, and another with each medium.
2. Steps of Google's own tools come in deltas that hold a whole field each. They are passed on as a `Notice`, and what
   they add up to is told when the step stops.
3. The arguments of a call are the text of its deltas; those in `step.start` count only if there are none.
4. Annotations count bytes of their text, so they are told when it is whole.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Reasoning, ReasoningText, Text, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    UNKNOWN,
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    Stopped,
    UsageReport,
)
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.fields import Other, Reader
from toolwire.codec.interface import Context, StreamDecoder
from toolwire.codec.kept import joined, known, rest
from toolwire.codec.sse import SseSplitter
from toolwire.protocols.gemini_interactions.parts.content import decode_annotation, decode_block
from toolwire.protocols.gemini_interactions.parts.messages import CONTENT, decode_answer, decode_answers
from toolwire.protocols.gemini_interactions.parts.reasoning import decode_signature
from toolwire.protocols.gemini_interactions.response.body import (
    decode_created,
    decode_errors,
    decode_usage,
    envelope,
    is_open_call,
    stop_of,
)
from toolwire.protocols.gemini_interactions.response.errors import decode_error
from toolwire.protocols.gemini_interactions.wire import (
    FAMILY,
    AnnotationDelta,
    ArgumentsDelta,
    CompletedFrame,
    ContentUnion,
    CreatedFrame,
    DeltaFrame,
    ErrorFrame,
    FrameUnion,
    OldAnnotationDelta,
    SignatureDelta,
    StartFrame,
    StatusFrame,
    StopFrame,
    SummaryDelta,
    TextContent,
    TextDelta,
)

from .frames import INDEX, UNSTARTED, OpenStep, around, news, passed_on

_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_fast = msgspec.json.Decoder(FrameUnion).decode
_read_frame = Reader[Any](FrameUnion, FAMILY).read
_read_content = Reader[Any](ContentUnion, FAMILY).read
_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Decoder:
    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._start: ResponseStart | None = None
        self._ended = False
        self._steps: dict[int, OpenStep] = {}
        self._last = -1
        self._messages = 0
        self._parts = 0
        self._calls = False
        self._methods: dict[type, Callable[[Any, bytes], list[Event]]] = {
            CreatedFrame: self._created,
            StatusFrame: self._status,
            StartFrame: self._step_start,
            DeltaFrame: self._delta,
            StopFrame: self._step_stop,
            CompletedFrame: self._completed,
            ErrorFrame: self._error,
            Other: lambda _, data: [passed_on(data, UNKNOWN)],
        }

    def feed(self, data: bytes) -> list[Event]:
        try:
            return self._read(self._splitter.feed(data))
        except ValueError as error:
            return self._fail(str(error))

    def close(self) -> list[Event]:
        events = self._read(self._splitter.close())
        return events if self._ended else events + self._fail("the stream ended before its answer did")

    def _fail(self, why: str) -> list[Event]:
        """The stream itself is at fault: nothing after this is read."""
        self._ended = True
        return [*self._begin(), ResponseFailed(error=ApiError(kind="server", message=why), broken=True)]

    def _read(self, frames: list[bytes]) -> list[Event]:
        events: list[Event] = []
        steps = self._steps
        for data in frames:
            if self._ended:
                break
            try:
                shape = _fast(data)
            except _BAD:
                events += self._read_open(data)
                continue
            if type(shape) is DeltaFrame and shape.event_id is UNSET and shape.metadata is UNSET:
                step = steps.get(shape.index)  # type: ignore[arg-type]
                delta = shape.delta
                if step is not None and type(delta) is TextDelta and step.text >= 0:
                    step.pieces.append(delta.text)
                    events.append(PartDelta(index=step.text, text=delta.text, plain=True))
                    continue
                if step is not None and type(delta) is ArgumentsDelta and step.call >= 0:
                    step.grown = True
                    events.append(PartDelta(index=step.call, text=delta.arguments, plain=True))
                    continue
            events += self._told(shape, data)
        return events

    def _read_open(self, data: bytes) -> list[Event]:
        if data.strip() in (b"[DONE]", b""):
            return []
        try:
            shape = _read_frame(data)
        except DecodeError as error:
            return self._fail(str(error))
        return self._told(shape, data)

    def _told(self, shape: Any, data: bytes) -> list[Event]:
        try:
            return self._methods[type(shape)](shape, data)
        except (DecodeError, *_BAD) as error:
            return self._fail(str(error))

    # ---- the envelope

    def _begin(self) -> list[Event]:
        """A stream that starts in the middle still has a response."""
        if self._start is not None:
            return []
        self._start = ResponseStart(origin=FAMILY, form=(UNSTARTED,))
        return [self._start]

    def _created(self, shape: CreatedFrame, data: bytes) -> list[Event]:
        told = shape.interaction
        if self._start is not None:
            return [passed_on(data)]
        self._start = ResponseStart(
            origin=FAMILY,
            id=known(told.id),
            model=known(told.agent if told.model is UNSET else told.model),
            created=decode_created(told.created),
            usage=None if told.usage is UNSET else decode_usage(told.usage),
            status=known(told.status),
            **joined(envelope(told), around(shape)),
        )
        return [self._start]

    def _status(self, shape: StatusFrame, data: bytes) -> list[Event]:
        events: list[Event] = [*self._begin(), passed_on(data)]
        if shape.usage is not UNSET:
            events.append(UsageReport(usage=decode_usage(shape.usage)))
        return events

    def _completed(self, shape: CompletedFrame, data: bytes) -> list[Event]:
        told = shape.interaction
        events = self._begin()
        for index in list(self._steps):
            events += self._stopped(index, {})
        if not self._messages and told.steps is not UNSET:
            for message in decode_answers(told.steps, "/interaction/steps"):
                events += self._whole(message)
        self._ended = True
        if told.status is not UNSET:
            events.append(Stopped(stop=stop_of(told.status, calls=self._calls)))
        if told.usage is not UNSET:
            events.append(UsageReport(usage=decode_usage(told.usage)))
        kept = joined(news(told, self._start), around(shape))
        if (error := decode_errors(told)) is not None:
            events.append(ResponseFailed(error=error, status=known(told.status), **kept))
        else:
            events.append(ResponseEnd(status=known(told.status), **kept))
        return events

    def _error(self, shape: ErrorFrame, data: bytes) -> list[Event]:
        self._ended = True
        body = {"error": shape.error, **(shape.unknown or {})}
        if shape.event_id is not UNSET:
            body["event_id"] = shape.event_id
        try:
            error = decode_error(msgspec.json.encode(body), None)
        except DecodeError:
            error = ApiError(kind="server", message=bytes(shape.error).decode(errors="replace"))
        return [*self._begin(), ResponseFailed(error=error)]

    # ---- steps

    def _step_start(self, shape: StartFrame, data: bytes) -> list[Event]:
        index = self._last + 1 if shape.index is UNSET else shape.index
        events = self._begin() + self._stopped(index, {})
        return events + self._open(index, shape.step, around(shape))

    def _open(self, index: int, raw: Raw, kept: dict[str, Any]) -> list[Event]:
        """The message that a step is, and its part if it is one."""
        message = decode_answer(raw, "/step")
        number, self._messages, self._last = self._messages, self._messages + 1, index
        only = message.parts[0] if len(message.parts) == 1 and message.parts[0].at == "" else None
        step = self._steps[index] = OpenStep(number, only, _members(raw))
        form = message.form + kept.get("form", ())
        if index != number:
            form = (*form, f"{INDEX}{index}")
        extras = message.extras if only is not None else joined({"extras": message.extras}, kept)["extras"]
        events: list[Event] = [MessageStart(message=number, role=message.role, extras=extras, form=form, at=message.at)]
        if only is None:
            for part in message.parts:
                events += self._said(step, part)
        else:
            events.append(self._own(step, only, {"extras": kept.get("extras")}))
        return events

    def _own(self, step: OpenStep, part: Part, kept: dict[str, Any]) -> Event:
        """The start of a part that is the step itself."""
        if is_open_call(part) and isinstance(part, ToolCall):
            self._calls = True
            step.call = self._parts
            part = replace(part, arguments="")
        elif isinstance(part, Reasoning):
            step.summary = list(part.content)
            step.seal = part.seal
            step.blocks = sum(isinstance(block, ReasoningText) for block in part.content)
            part = replace(part, hidden=None)
        step.open = self._parts
        self._parts += 1
        return PartStart(index=step.open, part=part, message=step.number, **kept)

    def _said(self, step: OpenStep, part: Part) -> list[Event]:
        """The start of another part of what is said."""
        events = self._part_end(step, {})
        step.open = self._parts
        self._parts += 1
        if isinstance(part, Text):
            step.text, step.pieces = step.open, TextPieces([part.text])
        events.append(PartStart(index=step.open, part=part, message=step.number))
        return events

    def _whole(self, message: Message) -> list[Event]:
        """A step that nobody streamed."""
        number, self._messages = self._messages, self._messages + 1
        events: list[Event] = [
            MessageStart(message=number, role=message.role, extras=message.extras, form=message.form)
        ]
        for part in message.parts:
            self._calls = self._calls or is_open_call(part)
            index, self._parts = self._parts, self._parts + 1
            hollow, text = part, ""
            if isinstance(part, Text):
                hollow, text = replace(part, text=""), part.text
            elif isinstance(part, ToolCall):
                hollow, text = replace(part, arguments=""), part.arguments
            events.append(PartStart(index=index, part=hollow, message=number))
            if text:
                events.append(PartDelta(index=index, text=text))
            events.append(PartEnd(index=index, final=part))
        events.append(MessageEnd(message=number))
        return events

    # ---- deltas

    def _delta(self, shape: DeltaFrame, data: bytes) -> list[Event]:
        index = self._last if shape.index is UNSET else shape.index
        events = self._begin()
        delta = shape.delta
        step = self._steps.get(index)
        kept = rest(shape, FAMILY)
        if not isinstance(delta, Other):
            kept = joined(kept, rest(delta, FAMILY, under="delta/"))
        if step is None:
            if type(delta) is not TextDelta:
                return [*events, passed_on(data)]
            events += self._open(index, Raw(b'{"type":"model_output"}'), {})
            step = self._steps[index]
        match delta:
            case TextDelta() if step.part is None:
                if step.text < 0:
                    events += self._said(step, Text(text=""))
                step.pieces.append(delta.text)
                events.append(PartDelta(index=step.text, text=delta.text, **kept))
            case ArgumentsDelta() if step.call >= 0:
                step.grown = True
                events.append(PartDelta(index=step.call, text=delta.arguments, **kept))
            case AnnotationDelta() | OldAnnotationDelta() if step.part is None:
                if step.text < 0:
                    events += self._said(step, Text(text=""))
                notes = delta.annotations or []
                step.notes += [(raw, {} if number else kept) for number, raw in enumerate(notes)]
            case SignatureDelta(signature=str() as signature) if isinstance(step.part, Reasoning | ToolCall):
                step.seal = decode_signature(signature)
                step.members["signature"] = Raw(msgspec.json.encode(signature))
                events.append(PartDelta(index=step.open, seal=step.seal, **kept))
            case SummaryDelta() if isinstance(step.part, Reasoning):
                events += self._thought(step, delta, kept, data)
            case Other(tag=tag, body=body) if step.part is None and tag in CONTENT:
                events += self._said(step, decode_block(_read_content(body, "/delta")))
            case _:
                self._gathered(step, delta)
                events.append(passed_on(data))
        return events

    def _thought(self, step: OpenStep, delta: SummaryDelta, kept: dict[str, Any], data: bytes) -> list[Event]:
        block = delta.content
        if type(block) is not TextContent or block.unknown is not UNSET:
            part = None if block is UNSET else decode_block(block)
            if isinstance(part, Media):
                step.summary.append(part)
            return [passed_on(data)]
        last = step.summary[-1] if len(step.summary) > 0 else None
        if step.grown and isinstance(last, ReasoningText):
            step.summary[-1] = replace(last, text=last.text + block.text)
        else:
            step.summary.append(ReasoningText(kind="summary", text=block.text))
            step.grown = True
        return [PartDelta(index=step.open, text=block.text, kind="summary", block=step.blocks, **kept)]

    def _gathered(self, step: OpenStep, delta: Any) -> None:
        """A field of a step that comes whole."""
        if isinstance(delta, Other):
            step.members |= {name: raw for name, raw in _members(delta.body).items() if name != "type"}
        elif isinstance(delta, ArgumentsDelta):
            step.pieces.append(delta.arguments)

    # ---- the end of a step

    def _step_stop(self, shape: StopFrame, data: bytes) -> list[Event]:
        index = self._last if shape.index is UNSET else shape.index
        return self._begin() + self._stopped(index, rest(shape, FAMILY))

    def _stopped(self, index: int, kept: dict[str, Any]) -> list[Event]:
        step = self._steps.pop(index, None)
        if step is None:
            return []
        return [*self._part_end(step, kept), MessageEnd(message=step.number)]

    def _part_end(self, step: OpenStep, kept: dict[str, Any]) -> list[Event]:
        index, step.open = step.open, -1
        if index < 0:
            return []
        events: list[Event] = []
        final: Part | None = None
        if step.text == index:
            text = "".join(step.pieces)
            for raw, more in step.notes:
                events.append(PartDelta(index=index, annotation=decode_annotation(raw, text), **more))
            step.text, step.pieces, step.notes = -1, TextPieces(), []
        elif step.call == index:
            if not step.grown:
                said = step.part.arguments if isinstance(step.part, ToolCall) else ""
                events.append(PartDelta(index=index, text=said or "{}"))
        elif isinstance(step.part, Reasoning):
            hidden: Any = None if step.summary else "omitted"
            final = replace(step.part, content=tuple(step.summary), hidden=hidden, seal=step.seal)
        elif step.part is not None:
            final = self._gathered_part(step)
        events.append(PartEnd(index=index, final=final, **kept))
        return events

    def _gathered_part(self, step: OpenStep) -> Part | None:
        """What the deltas of a step add up to."""
        if step.pieces:
            step.members["arguments"] = Raw("".join(step.pieces).encode())
        try:
            (part,) = decode_answer(Raw(msgspec.json.encode(step.members)), "/step").parts
        except (DecodeError, ValueError, *_BAD):
            return step.part
        return part


def stream_decoder(context: Context) -> StreamDecoder:
    return Decoder()
