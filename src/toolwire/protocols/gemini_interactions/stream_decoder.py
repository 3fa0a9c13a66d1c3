"""Decode an Interactions stream (SSE) to canonical events; `stream_encoder` is the reverse.

  interaction.created  (status_update | step.start step.delta* step.stop)*  interaction.completed  [DONE]

1. A step is a message. A thought or call is one part, which opens with its step. Model output opens a part with its
first text delta, and another for each media content.
2. Steps of hosted tools come in deltas that each hold a complete field. They are passed on as a `Notice`, and the
combined part is emitted when the step stops.
3. The arguments of a call are the text of its deltas; those in `step.start` count only if there are no deltas.
4. Annotations count bytes of their text, so they are emitted when the text is complete.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    UNKNOWN_FRAME,
    CandidateEnd,
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
    UsageReport,
    append_text,
)
from toolwire.canonical.fold import TextPieces
from toolwire.codec.framing import SseSplitter
from toolwire.codec.interface import ResponseContext, StreamDecoder
from toolwire.codec.wire.extras import collect_extras, merge_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, UnknownVariant, decode_members
from toolwire.protocols.gemini_interactions.errors import decode_error
from toolwire.protocols.gemini_interactions.parts.content import decode_annotation, decode_block, decode_signature
from toolwire.protocols.gemini_interactions.parts.messages import (
    CONTENT_TYPES,
    decode_response_step,
    decode_response_steps,
)
from toolwire.protocols.gemini_interactions.response import (
    decode_created,
    decode_errors,
    decode_usage,
    is_open_call,
    response_extras,
    status_stop,
)
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
    ResponseShape,
    SignatureDelta,
    StartFrame,
    StatusFrame,
    StopFrame,
    SummaryDelta,
    TextContent,
    TextDelta,
)

INDEX_FORM = "gemini-interactions:index:"
"""Wire-form prefix for the index of a step, if it is not the next one."""

NO_CREATED = "gemini-interactions:absent:created"
EVENT_ID_FORM = "gemini-interactions:event_id:"


class OpenStep:
    """The decoding state of one open step."""

    def __init__(self, number: int, part: Part | None, members: dict[str, Raw]) -> None:
        self.number = number
        self.part = part  # set if the step itself is one part: a thought, a call or a result
        self.members = members  # fields of the step, completed by deltas
        # Canonical part indices of the open text, the call and the open part; -1 for none.
        self.text_index = -1
        self.call_index = -1
        self.open_index = -1
        self.has_deltas = False
        self.pieces = TextPieces()
        self.annotations: list[tuple[Raw, dict[str, Any]]] = []
        self.summary: list[ReasoningText | Media] = []
        self.signature: Signature | None = None
        self.block_count = 0


def frame_extras(shape: CreatedFrame | CompletedFrame | StartFrame) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments of a frame.

    The event id, which serves only to resume a stream, goes to the wire form.
    """
    form = () if shape.event_id is UNSET else (EVENT_ID_FORM + str(shape.event_id, "utf-8"),)
    return collect_extras(replace(shape, event_id=UNSET), FAMILY, *form)


def passthrough_notice(data: bytes, kind: str = "frame") -> Notice:
    """Return a notice that holds a frame which only Interactions clients can use."""
    return Notice(kind=kind, extras={FAMILY: {"frame": Raw(data)}})


def new_extras(interaction: ResponseShape, start: ResponseStart | None) -> dict[str, Any]:
    """Return extras for fields of the completed interaction that are new or changed since its start."""
    extras = dict((response_extras(interaction).get("extras") or {}).get(FAMILY, {}))
    if start is not None:
        start_values = {"id": start.id, "model": start.model, "agent": start.model}
        for name, start_value in start_values.items():
            if (value := getattr(interaction, name)) is not UNSET and value != start_value:
                extras[name] = Raw(msgspec.json.encode(value))
        if interaction.created is not UNSET and decode_created(interaction.created) != start.created:
            extras["created"] = Raw(msgspec.json.encode(interaction.created))
    return {"extras": {FAMILY: extras} if extras else None}


def encode_event_id(wire_form: tuple[str, ...]) -> dict[str, Any]:
    """Return the `event_id` field of a frame; empty if the provider's frame had none."""
    ids = [token[len(EVENT_ID_FORM) :].encode() for token in wire_form if token.startswith(EVENT_ID_FORM)]
    return {"event_id": Raw(ids[-1])} if ids else {}


_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode_typed = msgspec.json.Decoder(FrameUnion).decode
_read_frame = Reader[Any](FrameUnion, FAMILY).read
_read_content = Reader[Any](ContentUnion, FAMILY).read


class Decoder:
    """Stream decoder of the Interactions protocol."""

    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._start: ResponseStart | None = None
        self._ended = False
        self._steps: dict[int, OpenStep] = {}
        self._last_index = -1
        self._message_count = 0
        self._part_count = 0
        self._has_calls = False
        self._handlers: dict[type, Callable[[Any, bytes], list[Event]]] = {
            CreatedFrame: self._decode_created,
            StatusFrame: self._decode_status,
            StartFrame: self._start_step,
            DeltaFrame: self._decode_delta,
            StopFrame: self._stop_step,
            CompletedFrame: self._decode_completed,
            ErrorFrame: self._decode_error,
            UnknownVariant: lambda _, data: [passthrough_notice(data, UNKNOWN_FRAME)],
        }

    def feed(self, data: bytes) -> list[Event]:
        """Decode the next bytes into events."""
        try:
            return self._read(self._splitter.feed(data))
        except ValueError as error:
            return self._fail_stream(str(error))

    def close(self) -> list[Event]:
        """Return the remaining events, and a failure event if the stream is incomplete."""
        events = self._read(self._splitter.close())
        return (
            events if self._ended else events + self._fail_stream("the stream ended before the response was complete")
        )

    def _fail_stream(self, reason: str) -> list[Event]:
        """Return the failure event for a broken stream; nothing after this is decoded."""
        self._ended = True
        return [*self._ensure_started(), ResponseFailed(error=ApiError(kind="server", message=reason), broken=True)]

    def _read(self, frames: list[bytes]) -> list[Event]:
        """Decode frames; deltas of only text or arguments take a fast path."""
        events: list[Event] = []
        steps = self._steps
        for data in frames:
            if self._ended:
                break
            try:
                shape = _decode_typed(data)
            except _DECODE_ERRORS:
                events += self._decode_untyped(data)
                continue
            if type(shape) is DeltaFrame and shape.event_id is UNSET and shape.metadata is UNSET:
                step = steps.get(shape.index)  # type: ignore[arg-type]
                delta = shape.delta
                if step is not None and type(delta) is TextDelta and step.text_index >= 0:
                    step.pieces.append(delta.text)
                    append_text(events, step.text_index, delta.text)
                    continue
                if step is not None and type(delta) is ArgumentsDelta and step.call_index >= 0:
                    step.has_deltas = True
                    append_text(events, step.call_index, delta.arguments)
                    continue
            events += self._decode_frame(shape, data)
        return events

    def _decode_untyped(self, data: bytes) -> list[Event]:
        """Decode a frame that the typed wire objects do not cover."""
        if data.strip() in (b"[DONE]", b""):
            return []
        try:
            shape = _read_frame(data)
        except DecodeError as error:
            return self._fail_stream(str(error))
        return self._decode_frame(shape, data)

    def _decode_frame(self, shape: Any, data: bytes) -> list[Event]:
        """Decode a frame with its handler."""
        try:
            return self._handlers[type(shape)](shape, data)
        except (DecodeError, *_DECODE_ERRORS) as error:
            return self._fail_stream(str(error))

    # ---- the envelope

    def _ensure_started(self) -> list[Event]:
        """Return start events if the stream began without `interaction.created`, else an empty list."""
        if self._start is not None:
            return []
        self._start = ResponseStart(origin=FAMILY, wire_form=(NO_CREATED,))
        return [self._start]

    def _decode_created(self, shape: CreatedFrame, data: bytes) -> list[Event]:
        """Emit the start of the response."""
        interaction = shape.interaction
        if self._start is not None:
            return [passthrough_notice(data)]
        self._start = ResponseStart(
            origin=FAMILY,
            id=unset_to_none(interaction.id),
            model=unset_to_none(interaction.agent if interaction.model is UNSET else interaction.model),
            created=decode_created(interaction.created),
            usage=None if interaction.usage is UNSET else decode_usage(interaction.usage),
            status=unset_to_none(interaction.status),
            **merge_extras(response_extras(interaction), frame_extras(shape)),
        )
        return [self._start]

    def _decode_status(self, shape: StatusFrame, data: bytes) -> list[Event]:
        """Return a notice with the status update, and its token counts."""
        events: list[Event] = [*self._ensure_started(), passthrough_notice(data)]
        if shape.usage is not UNSET:
            events.append(UsageReport(usage=decode_usage(shape.usage)))
        return events

    def _decode_completed(self, shape: CompletedFrame, data: bytes) -> list[Event]:
        """End open steps and emit the end of the response."""
        interaction = shape.interaction
        events = self._ensure_started()
        for index in list(self._steps):
            events += self._end_step(index, {})
        if not self._message_count and interaction.steps is not UNSET:
            for message in decode_response_steps(interaction.steps, "/interaction/steps"):
                events += self._emit_message(message)
        self._ended = True
        if interaction.status is not UNSET:
            events.append(CandidateEnd(stop=status_stop(interaction.status, has_calls=self._has_calls)))
        if interaction.usage is not UNSET:
            events.append(UsageReport(usage=decode_usage(interaction.usage)))
        extras = merge_extras(new_extras(interaction, self._start), frame_extras(shape))
        if (error := decode_errors(interaction)) is not None:
            events.append(ResponseFailed(error=error, status=unset_to_none(interaction.status), **extras))
        else:
            events.append(ResponseEnd(status=unset_to_none(interaction.status), **extras))
        return events

    def _decode_error(self, shape: ErrorFrame, data: bytes) -> list[Event]:
        """Decode an `error` event, which ends the stream."""
        self._ended = True
        body = {"error": shape.error, **(shape.unknown or {})}
        if shape.event_id is not UNSET:
            body["event_id"] = shape.event_id
        try:
            error = decode_error(msgspec.json.encode(body), None)
        except DecodeError:
            error = ApiError(kind="server", message=bytes(shape.error).decode(errors="replace"))
        return [*self._ensure_started(), ResponseFailed(error=error)]

    # ---- steps

    def _start_step(self, shape: StartFrame, data: bytes) -> list[Event]:
        """Open a step, ending an earlier one with the same index."""
        index = self._last_index + 1 if shape.index is UNSET else shape.index
        events = self._ensure_started() + self._end_step(index, {})
        return events + self._open_step(index, shape.step, frame_extras(shape))

    def _open_step(self, index: int, raw: Raw, extras_and_form: dict[str, Any]) -> list[Event]:
        """Return the start of a step's message and, unless the step holds content, of its only part.

        `extras_and_form` are the `extras` and `wire_form` arguments of the frame.
        """
        message = decode_response_step(raw, "/step")
        number, self._message_count, self._last_index = self._message_count, self._message_count + 1, index
        only = message.parts[0] if len(message.parts) == 1 and message.parts[0].at == "" else None
        step = self._steps[index] = OpenStep(number, only, decode_members(raw))
        form = message.wire_form + extras_and_form.get("wire_form", ())
        if index != number:
            form = (*form, f"{INDEX_FORM}{index}")
        extras = (
            message.extras if only is not None else merge_extras({"extras": message.extras}, extras_and_form)["extras"]
        )
        events: list[Event] = [
            MessageStart(message=number, role=message.role, extras=extras, wire_form=form, at=message.at)
        ]
        if only is None:
            for part in message.parts:
                events += self._start_content_part(step, part)
        else:
            events.append(self._start_step_part(step, only, {"extras": extras_and_form.get("extras")}))
        return events

    def _start_step_part(self, open_step: OpenStep, part: Part, extras_and_form: dict[str, Any]) -> Event:
        """Return the start of the only part of a step such as a call or a thought.

        Such a step has no content list. The text that deltas repeat is left out of the part and collected in
        `open_step`. `extras_and_form` are the `extras` and `wire_form` arguments of the event.
        """
        if is_open_call(part) and isinstance(part, ToolCall):
            self._has_calls = True
            open_step.call_index = self._part_count
            part = replace(part, arguments="")
        elif isinstance(part, Reasoning):
            open_step.summary = list(part.content)
            open_step.signature = part.signature
            open_step.block_count = sum(isinstance(block, ReasoningText) for block in part.content)
            part = replace(part, hidden=None)
        open_step.open_index = self._part_count
        self._part_count += 1
        return PartStart(index=open_step.open_index, part=part, message=open_step.number, **extras_and_form)

    def _start_content_part(self, open_step: OpenStep, part: Part) -> list[Event]:
        """Return the end of the open part and the start of another content part of the step."""
        events = self._end_part(open_step, {})
        open_step.open_index = self._part_count
        self._part_count += 1
        if isinstance(part, Text):
            open_step.text_index, open_step.pieces = open_step.open_index, TextPieces([part.text])
        events.append(PartStart(index=open_step.open_index, part=part, message=open_step.number))
        return events

    def _emit_message(self, message: Message) -> list[Event]:
        """Return all events of a complete step that had no deltas."""
        number, self._message_count = self._message_count, self._message_count + 1
        events: list[Event] = [
            MessageStart(message=number, role=message.role, extras=message.extras, wire_form=message.wire_form)
        ]
        for part in message.parts:
            self._has_calls = self._has_calls or is_open_call(part)
            index, self._part_count = self._part_count, self._part_count + 1
            empty_part, text = part, ""
            if isinstance(part, Text):
                empty_part, text = replace(part, text=""), part.text
            elif isinstance(part, ToolCall):
                empty_part, text = replace(part, arguments=""), part.arguments
            events.append(PartStart(index=index, part=empty_part, message=number))
            if text:
                events.append(PartDelta(index=index, text=text))
            events.append(PartEnd(index=index, final=part))
        events.append(MessageEnd(message=number))
        return events

    # ---- deltas

    def _decode_delta(self, shape: DeltaFrame, data: bytes) -> list[Event]:
        """Decode one delta of a step."""
        index = self._last_index if shape.index is UNSET else shape.index
        events = self._ensure_started()
        delta = shape.delta
        step = self._steps.get(index)
        extras = collect_extras(shape, FAMILY)
        if not isinstance(delta, UnknownVariant):
            extras = merge_extras(extras, collect_extras(delta, FAMILY, prefix="delta/"))
        if step is None:
            if type(delta) is not TextDelta:
                return [*events, passthrough_notice(data)]
            events += self._open_step(index, Raw(b'{"type":"model_output"}'), {})
            step = self._steps[index]
        match delta:
            case TextDelta() if step.part is None:
                if step.text_index < 0:
                    events += self._start_content_part(step, Text(text=""))
                step.pieces.append(delta.text)
                events.append(PartDelta(index=step.text_index, text=delta.text, **extras))
            case ArgumentsDelta() if step.call_index >= 0:
                step.has_deltas = True
                events.append(PartDelta(index=step.call_index, text=delta.arguments, **extras))
            case AnnotationDelta() | OldAnnotationDelta() if step.part is None:
                events += self._collect_annotations(step, delta, extras)
            case SignatureDelta(signature=str() as signature) if isinstance(step.part, Reasoning | ToolCall):
                step.signature = decode_signature(signature)
                step.members["signature"] = Raw(msgspec.json.encode(signature))
                events.append(PartDelta(index=step.open_index, signature=step.signature, **extras))
            case SummaryDelta() if isinstance(step.part, Reasoning):
                events += self._decode_summary_delta(step, delta, extras, data)
            case UnknownVariant(tag=tag, body=body) if step.part is None and tag in CONTENT_TYPES:
                events += self._start_content_part(step, decode_block(_read_content(body, "/delta")))
            case _:
                self._collect_delta(step, delta)
                events.append(passthrough_notice(data))
        return events

    def _collect_annotations(
        self, open_step: OpenStep, delta: AnnotationDelta | OldAnnotationDelta, extras_and_form: dict[str, Any]
    ) -> list[Event]:
        """Collect annotations until their text is complete; the first one takes the extras of the delta."""
        events = [] if open_step.text_index >= 0 else self._start_content_part(open_step, Text(text=""))
        annotations = delta.annotations or []
        open_step.annotations += [(raw, {} if number else extras_and_form) for number, raw in enumerate(annotations)]
        return events

    def _decode_summary_delta(
        self, open_step: OpenStep, delta: SummaryDelta, extras_and_form: dict[str, Any], data: bytes
    ) -> list[Event]:
        """Decode a piece of a thought's summary."""
        block = delta.content
        if type(block) is not TextContent or block.unknown is not UNSET:
            part = None if block is UNSET else decode_block(block)
            if isinstance(part, Media):
                open_step.summary.append(part)
            return [passthrough_notice(data)]
        last = open_step.summary[-1] if len(open_step.summary) > 0 else None
        if open_step.has_deltas and isinstance(last, ReasoningText):
            open_step.summary[-1] = replace(last, text=last.text + block.text)
        else:
            open_step.summary.append(ReasoningText(kind="summary", text=block.text))
            open_step.has_deltas = True
        return [
            PartDelta(
                index=open_step.open_index,
                text=block.text,
                kind="summary",
                block=open_step.block_count,
                **extras_and_form,
            )
        ]

    def _collect_delta(self, open_step: OpenStep, delta: Any) -> None:
        """Store a delta that holds a complete field of the step."""
        if isinstance(delta, UnknownVariant):
            open_step.members |= {name: raw for name, raw in decode_members(delta.body).items() if name != "type"}
        elif isinstance(delta, ArgumentsDelta):
            open_step.pieces.append(delta.arguments)

    # ---- the end of a step

    def _stop_step(self, shape: StopFrame, data: bytes) -> list[Event]:
        """End a step."""
        index = self._last_index if shape.index is UNSET else shape.index
        return self._ensure_started() + self._end_step(index, collect_extras(shape, FAMILY))

    def _end_step(self, index: int, extras_and_form: dict[str, Any]) -> list[Event]:
        """Return the ends of the open part and of the message of a step."""
        step = self._steps.pop(index, None)
        if step is None:
            return []
        return [*self._end_part(step, extras_and_form), MessageEnd(message=step.number)]

    def _end_part(self, open_step: OpenStep, extras_and_form: dict[str, Any]) -> list[Event]:
        """Return the end of the open part of a step, with its annotations or complete value."""
        index, open_step.open_index = open_step.open_index, -1
        if index < 0:
            return []
        events: list[Event] = []
        final: Part | None = None
        if open_step.text_index == index:
            text = "".join(open_step.pieces)
            for raw, delta_extras in open_step.annotations:
                events.append(PartDelta(index=index, annotation=decode_annotation(raw, text), **delta_extras))
            open_step.text_index, open_step.pieces, open_step.annotations = -1, TextPieces(), []
        elif open_step.call_index == index:
            if not open_step.has_deltas:
                arguments = open_step.part.arguments if isinstance(open_step.part, ToolCall) else ""
                events.append(PartDelta(index=index, text=arguments or "{}"))
        elif isinstance(open_step.part, Reasoning):
            hidden: Any = None if open_step.summary else "omitted"
            final = replace(
                open_step.part, content=tuple(open_step.summary), hidden=hidden, signature=open_step.signature
            )
        elif open_step.part is not None:
            final = self._collected_part(open_step)
        events.append(PartEnd(index=index, final=final, **extras_and_form))
        return events

    def _collected_part(self, open_step: OpenStep) -> Part | None:
        """Decode the part from all collected fields of a step; the part it started as if they are invalid."""
        if open_step.pieces:
            open_step.members["arguments"] = Raw("".join(open_step.pieces).encode())
        try:
            (part,) = decode_response_step(Raw(msgspec.json.encode(open_step.members)), "/step").parts
        except (DecodeError, ValueError, *_DECODE_ERRORS):
            return open_step.part
        return part


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    """Create a stream decoder."""
    return Decoder()
