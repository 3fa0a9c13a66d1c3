"""Decode Chat's stream of chunks into canonical events.

    chunk(role)  chunk(content | refusal | reasoning | tool_calls)*  chunk(finish_reason)  [chunk(usage)]  [DONE]

1. A part ends when one of another kind starts, or with its choice; `stream_calls` decides when a call ends.
2. Extras are emitted twice: as they arrive, on a delta or a notice, for Chat clients; and merged at the end, so that
   the folded response has them.
3. Without `[DONE]` a finish reason is enough. Without a finish reason `[DONE]` is, unless a call is cut off.
"""

import re
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import Part, Reasoning, Refusal, Text
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
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
)
from toolwire.canonical.response import Stop, StopReason
from toolwire.codec.fast_path import FrameDecoder, FrameTemplate, TextMember
from toolwire.codec.framing import SseSplitter
from toolwire.codec.interface import ResponseContext, StreamDecoder
from toolwire.codec.wire.extras import unset_to_none
from toolwire.codec.wire.reader import (
    JSON_ERRORS,
    Reader,
    WireObject,
    check_candidate_index,
    decode_json,
    escape_pointer,
)
from toolwire.protocols.openai_chat.errors import decode_error_object
from toolwire.protocols.openai_chat.parts.citations import decode_citation
from toolwire.protocols.openai_chat.parts.content import STRING, THINKING_FORM, collect_chat_extras, decode_parts
from toolwire.protocols.openai_chat.parts.details import (
    DETAILS_FIELD,
    IMAGES,
    REASONING_FORM,
    decode_images,
    represented_tokens,
)
from toolwire.protocols.openai_chat.parts.reasoning import REASONING_FIELDS
from toolwire.protocols.openai_chat.response import CANONICAL_STOPS, decode_usage
from toolwire.protocols.openai_chat.stream_calls import CallAssembler
from toolwire.protocols.openai_chat.stream_details import DetailsAssembler
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    ChunkShape,
    DeltaShape,
    FunctionCallShape,
    StreamChoiceShape,
    TextPart,
    ThinkingPart,
)

# Buffered responses have these fields even if they are empty.
_MESSAGE_FORM = (STRING, f"{FAMILY}:null:content", f"{FAMILY}:null:refusal")
_UNMERGED_FIELDS = frozenset({"type", "id", "index", "format", "role", "object"})
_NULL_VALUE = Raw(b"null")
_IMAGES_DELTA = f"delta/{IMAGES}"


class ChoiceDecoder:
    """Decode the deltas of one choice into the events of one candidate."""

    def __init__(self, candidate: int, response_id: str) -> None:
        self.candidate = candidate
        self.finished = False  # a finish reason has arrived
        self._started = False
        self._ended = False
        self._kind: str | None = None  # of the open part that text is appended to
        self._index = self._text_index = self._annotation_index = -1
        self._part_count = 0
        self._has_refusal = False
        self._calls = CallAssembler(candidate, response_id, self._open_index)
        self._details: DetailsAssembler | None = None  # set if the server sends `reasoning_details`
        self._delta_extras: dict[str, Any] = {}  # merged over all deltas
        self._choice_extras: dict[str, Any] = {}  # merged over all chunks

    def decode(self, shape: StreamChoiceShape, events: list[Event]) -> None:
        """Append the events of one chunk of this choice to `events`."""
        delta = shape.delta
        if isinstance(delta, DeltaShape):
            if not self._started:
                self._start(delta, events)
            first_event = len(events)
            self.decode_delta(delta, events)
            if shape.unknown is not UNSET or delta.unknown is not UNSET or _has_extras(shape):
                self._attach_extras(shape, delta, events, first_event)
        elif shape.unknown is not UNSET or _has_extras(shape):
            self._attach_extras(shape, None, events, len(events))
        if isinstance(shape.finish_reason, str):
            self.finished = True
            self.finish(shape.finish_reason, events)

    def frame_template(self, frame: bytes, delta: DeltaShape, event: PartDelta) -> FrameTemplate | None:
        """Return the template of a frame with this delta, of which `event` is the only one; None if there is none."""
        if event.index == self._index and (member := _TEXT_MEMBERS.get(self._kind)) is not None:
            return member.template(frame, event)
        if delta.tool_calls and len(delta.tool_calls) == 1:
            pieces = self._calls.continued_pieces(delta.tool_calls[0])
            return None if pieces is None else _ARGUMENTS.template(frame, event, pieces)
        return None

    def decode_delta(self, delta: DeltaShape, events: list[Event]) -> None:
        """Append the events of a delta to `events`; one with only text or only calls takes a fast path."""
        content, calls = delta.content, delta.tool_calls
        if (content and calls) or isinstance(content, list) or _has_other_content(delta):
            self._decode_delta_fields(delta, events)
        elif content:
            self._append("text", content, events)
        elif calls:
            for fragment in calls:
                self._calls.add_fragment(fragment, events)

    def _start(self, delta: DeltaShape, events: list[Event]) -> None:
        """Emit the start of the message."""
        self._started = True
        start = MessageStart(
            candidate=self.candidate, name=unset_to_none(delta.name), wire_form=_MESSAGE_FORM, at="/message"
        )
        events.append(start)

    def _decode_delta_fields(self, delta: DeltaShape, events: list[Event]) -> None:
        """Append the events of a delta with any combination of fields to `events`."""
        self._decode_reasoning(delta, events)
        if isinstance(delta.content, str):
            if delta.content:
                self._append("text", delta.content, events)
        elif isinstance(delta.content, list):
            self._decode_content_list(delta.content, events)
        if isinstance(delta.refusal, str) and delta.refusal:
            self._has_refusal = True
            self._append("refusal", delta.refusal, events)
        if isinstance(delta.function_call, FunctionCallShape):
            self._calls.add_legacy_fragment(delta.function_call, events)
        if isinstance(delta.tool_calls, list):
            for fragment in delta.tool_calls:
                self._calls.add_fragment(fragment, events)
        if isinstance(delta.annotations, list) and self._text_index >= 0:
            for raw in delta.annotations:
                self._annotation_index += 1
                citation = decode_citation(
                    raw, f"//choices/{self.candidate}/message/annotations/{self._annotation_index}"
                )
                events.append(PartDelta(index=self._text_index, candidate=self.candidate, annotation=citation))

    def _decode_reasoning(self, delta: DeltaShape, events: list[Event]) -> None:
        """Decode the reasoning of a delta, whichever field the server uses for it."""
        texts = {name: text for name in REASONING_FIELDS if isinstance(text := getattr(delta, name), str) and text}
        if delta.unknown is not UNSET and (details := delta.unknown.get(DETAILS_FIELD)) is not None:
            assembler = self._details or DetailsAssembler(self.candidate, self._next_index)
            if assembler.add(details, texts, events):
                self._details = assembler
                del delta.unknown[DETAILS_FIELD]
                return
        for name, text in texts.items():
            self._append(name, text, events)
            return

    def _decode_content_list(self, content: list[Any], events: list[Event]) -> None:
        """Decode content that is a list of parts."""
        for part in content:
            if isinstance(part, TextPart):
                if part.text:
                    self._append("text", part.text, events)
            elif isinstance(part, ThinkingPart):
                texts = [part.thinking] if isinstance(part.thinking, str) else _part_texts(part.thinking)
                for text in texts:
                    self._append("thinking", text, events)
            else:
                (decoded,) = decode_parts([part])
                index = self._open_part(None, decoded, events)
                events.append(PartEnd(index=index, candidate=self.candidate))

    def _append(self, kind: str, text: str, events: list[Event]) -> None:
        """Append text to the open part of that kind, opening one if needed."""
        if self._kind != kind:
            index = self._open_part(kind, _EMPTY_PARTS[kind], events)
            if kind == "text":
                self._text_index = index
        reasoning_kind = _REASONING_KINDS.get(kind)
        events.append(PartDelta(index=self._index, text=text, candidate=self.candidate, kind=reasoning_kind))

    def _open_part(self, kind: str | None, part: Part, events: list[Event]) -> int:
        """Emit the start of a part and return its index."""
        index = self._open_index(events)
        self._kind = kind
        events.append(PartStart(index=index, part=part, candidate=self.candidate))
        return index

    def _open_index(self, events: list[Event]) -> int:
        """End the open part and all entries of `reasoning_details`, and return the index of the next part."""
        self._end_part(events)
        if self._details is not None:
            self._details.end(events)
        self._index = self._next_index()
        return self._index

    def _next_index(self) -> int:
        """Return the index of a new part."""
        self._part_count += 1
        return self._part_count - 1

    def _end_part(self, events: list[Event]) -> None:
        """Emit the end of the open part, if there is one."""
        if self._kind is not None:
            events.append(PartEnd(index=self._index, candidate=self.candidate))
            self._kind = None

    def _attach_extras(
        self, shape: StreamChoiceShape, delta: DeltaShape | None, events: list[Event], start: int
    ) -> None:
        """Attach new extras to the first delta of the chunk, or append them as a notice.

        `start` is the index of the chunk's first event in `events`.
        """
        new_extras = _new_extras(shape, "", _CHOICE_EXTRAS, self._choice_extras)
        if delta is not None:
            new_extras |= _new_extras(delta, "delta/", (), self._delta_extras)
        if not new_extras:
            return
        notice: Notice | None = None
        for position in range(start, len(events)):
            event = events[position]
            if type(event) is Notice:
                notice, start = event, position  # of `reasoning_details`, which come first
        for position in range(start, len(events)):
            event = events[position]
            if type(event) is PartDelta and _IMAGES_DELTA not in new_extras:
                events[position] = msgspec.structs.replace(event, extras={FAMILY: new_extras})
                return
        if notice is not None:
            extras = {**(notice.extras or {})[FAMILY], **new_extras}
            events[start] = msgspec.structs.replace(notice, extras={FAMILY: extras})
            return
        events.append(Notice(kind=f"choice:{self.candidate}", extras={FAMILY: new_extras}))

    def finish(self, reason: str | None, events: list[Event]) -> None:
        """End all parts and the candidate; `reason` is None if the stream ended without one."""
        self._end_part(events)
        self._calls.finish(events, is_truncated=reason == "length")
        if self._ended:
            return
        self._ended = True
        self._end_message(events)
        if reason is not None:
            stop = Stop(reason=self._canonical_stop(reason), raw=reason)
            extras, wire_form = _encode_values(self._choice_extras), (f"{FAMILY}:null:logprobs",)
            events.append(CandidateEnd(stop=stop, candidate=self.candidate, extras=extras, wire_form=wire_form))

    def _end_message(self, events: list[Event]) -> None:
        """Append the end of the message, after those of `reasoning_details` and with a part for each image."""
        fields: dict[str, Any] = self._delta_extras
        wire_form: tuple[str, ...] = ()
        if self._details is not None:
            self._details.end(events)
            details, wire_form = self._details.merged_fields()
            fields = {**fields, **details}
        extras = _encode_values(fields)
        if extras is not None and IMAGES in extras[FAMILY]:
            images = decode_images(extras[FAMILY][IMAGES])
            wire_form += represented_tokens(IMAGES) if images else ()
            for image in images:
                index = self._next_index()
                events.append(PartStart(index=index, part=image, candidate=self.candidate))
                events.append(PartEnd(index=index, candidate=self.candidate))
        events.append(MessageEnd(candidate=self.candidate, extras=extras, wire_form=wire_form))

    def _canonical_stop(self, reason: str) -> StopReason:
        """Return the canonical stop reason; servers also say `stop` after calls and refusals."""
        stop_reason = CANONICAL_STOPS.get(reason, "other")
        if stop_reason == "end_turn":
            return "tool_use" if self._calls else "refusal" if self._has_refusal else stop_reason
        return stop_reason

    def is_broken(self) -> bool:
        """Tell whether the stream ended inside a call."""
        return not self._ended and self._calls.is_broken()


_EMPTY_PARTS: dict[str, Part] = {
    "text": Text(text="", at="/content"),
    "refusal": Refusal(text="", at="/refusal"),
    "reasoning_content": Reasoning(at="/reasoning_content", wire_form=(REASONING_FORM + "reasoning_content",)),
    "reasoning": Reasoning(at="/reasoning", wire_form=(REASONING_FORM + "reasoning",)),
    "thinking": Reasoning(at="/content", wire_form=(THINKING_FORM,)),
}
_TEXT_MEMBERS: dict[str | None, TextMember] = {
    "text": TextMember("content"),
    "refusal": TextMember("refusal"),
    "reasoning_content": TextMember("reasoning_content"),
    "reasoning": TextMember("reasoning"),
}
_ARGUMENTS = TextMember("arguments")
_REASONING_KINDS: dict[str, Any] = dict.fromkeys(("reasoning_content", "reasoning", "thinking"), "full")


_CHOICE_EXTRAS = ("logprobs", "native_finish_reason", "stop_reason", "token_ids")
_choice_extras = attrgetter(*_CHOICE_EXTRAS)
_NO_CHOICE_EXTRAS = (UNSET,) * len(_CHOICE_EXTRAS)


def _has_extras(shape: StreamChoiceShape) -> bool:
    """Tell whether a known field of the choice that has no canonical counterpart is set."""
    extras = _choice_extras(shape)
    return extras != _NO_CHOICE_EXTRAS and any(value is not UNSET and value != _NULL_VALUE for value in extras)


def _has_other_content(delta: DeltaShape) -> bool:
    """Tell whether the delta has content besides text and tool calls; nulls and empty values do not count."""
    return bool(
        delta.reasoning_content
        or delta.reasoning
        or delta.refusal
        or delta.function_call
        or delta.annotations
        or delta.unknown
    )


def _part_texts(parts: list[Any]) -> list[str]:
    """Return the texts of a list of parts."""
    return [part.text for part in parts if isinstance(part, TextPart) and part.text]


def _new_extras(
    wire: WireObject, prefix: str, names: tuple[str, ...], accumulated_extras: dict[str, Any]
) -> dict[str, Raw]:
    """Return the extras that are new or changed, by pointer, and merge them into `accumulated_extras`.

    Fields in `names` are also treated as extras.
    """
    fields = {name: value for name in names if (value := getattr(wire, name)) is not UNSET}
    if wire.unknown is not UNSET:
        fields.update(wire.unknown)
    new_extras: dict[str, Raw] = {}
    for name, raw in fields.items():
        if raw == _NULL_VALUE:
            continue
        value = decode_json(raw)
        if isinstance(value, dict | list):
            accumulated_extras[name] = (
                _merge_values(accumulated_extras[name], value) if name in accumulated_extras else value
            )
        elif accumulated_extras.get(name) == value:
            continue
        else:
            accumulated_extras[name] = value
        new_extras[prefix + escape_pointer(name)] = raw
    return new_extras


def _merge_values(previous: Any, fragment: Any) -> Any:
    """Merge a fragment into an earlier value as Chat clients do: strings are concatenated, lists joined by index."""
    if isinstance(previous, dict) and isinstance(fragment, dict):
        for name, value in fragment.items():
            is_replaced = name in _UNMERGED_FIELDS or previous.get(name) is None
            previous[name] = value if is_replaced else _merge_values(previous[name], value)
        return previous
    if isinstance(previous, list) and isinstance(fragment, list):
        _merge_lists(previous, fragment)
        return previous
    if isinstance(previous, str) and isinstance(fragment, str):
        return previous + fragment
    return previous if fragment is None else fragment


def _merge_lists(previous: list[Any], fragment: list[Any]) -> None:
    """Merge list items with an equal `index`, and append the others."""
    for item in fragment:
        index = item.get("index") if isinstance(item, dict) else None
        candidates = [value for value in previous if isinstance(value, dict)] if index is not None else []
        match = next((value for value in candidates if value.get("index") == index), None)
        if match is None:
            previous.append(item)
        else:
            _merge_values(match, item)


def _encode_values(values: dict[str, Any]) -> dict[str, dict[str, Raw]] | None:
    """Return accumulated extras as an `extras` value of raw JSON, None if there are none."""
    if not values:
        return None
    return {FAMILY: {escape_pointer(name): Raw(msgspec.json.encode(value)) for name, value in values.items()}}


_chunk_reader = Reader[ChunkShape](ChunkShape, FAMILY)
_decode_typed = msgspec.json.Decoder(ChunkShape).decode
_PADDING = re.compile(rb',"obfuscation":"[0-9A-Za-z]*"\}(?=\n\n|\Z)')
_FIRST_BYTES = 4096  # of a read, in which padding is looked for
_EXTRA_FIELDS = ("service_tier", "system_fingerprint", "provider")
_extra_fields = attrgetter(*_EXTRA_FIELDS)
_NULL = Raw(b"null")
LOGPROBS_FORM = "openai-chat:logprobs:said"


class Decoder(FrameDecoder):
    """Decode one response; bytes may be split anywhere."""

    def __init__(self, origin: str = FAMILY) -> None:
        super().__init__()
        self._origin = origin
        self._splitter = SseSplitter()
        self._started = False
        self._finished = False  # a choice has a finish reason
        self._id = ""
        self._choices: dict[int, ChoiceDecoder] = {}
        self._last_extras: tuple[Raw | UnsetType, ...] = ()
        self._seen_extras: dict[str, Raw] = {}  # latest value of each field
        self._early_extras: dict[str, Raw] = {}  # from chunks before the response starts
        self._late_extras: dict[str, Raw] = {}  # new or changed after the start

    def feed(self, data: bytes) -> list[Event]:
        """Decode the next bytes into events; an invalid stream yields `ResponseFailed`."""
        try:
            return self._read(self._splitter.complete_frames(data))
        except ValueError as error:
            return self._fail_stream(str(error))

    def close(self) -> list[Event]:
        """Decode the buffered bytes; return a failure event if the response is incomplete."""
        events = self._read(self._splitter.complete_frames(self._splitter.take_rest()))
        if self._ended:
            return events
        if not self._finished:
            return events + self._fail_stream("the stream ended before the response was complete")
        return events + self._finish()

    def _read(self, frames: bytes | None) -> list[Event]:
        """Decode complete frames, without the random letters that end OpenAI's to hide the length of the text."""
        if frames is not None and frames.find(b',"obfuscation":"', 0, _FIRST_BYTES) >= 0:
            frames = _PADDING.sub(b"}", frames)
        return super()._read(frames)

    def _read_frame(self, frame: bytes, data: bytes, events: list[Event]) -> None:
        """Append the events of one frame with this data to `events`; set the template if it gives one."""
        try:
            try:
                shape = _decode_typed(data)
            except JSON_ERRORS:
                if data.startswith(b"[DONE]"):
                    events += self._finish()
                    return
                shape = _chunk_reader.read(data)
            first_event = len(events)
            self._decode_chunk(shape, events)
            if shape.choices and len(shape.choices) == 1:
                self._template = self._find_template(frame, shape.choices[0], events[first_event:])
        except (DecodeError, *JSON_ERRORS) as error:
            if not self._finished:  # otherwise only this frame is skipped, however the bytes were split
                events += self._fail_stream(str(error))

    def _find_template(self, frame: bytes, choice: StreamChoiceShape, events: list[Event]) -> FrameTemplate | None:
        """Return the template for the next frames; None if this frame does more than to add one text."""
        if not events or type(last := events[-1]) is not PartDelta:
            return None
        if not isinstance(choice.delta, DeltaShape) or any(type(event) is PartDelta for event in events[:-1]):
            return None
        return self._choices[last.candidate].frame_template(frame, choice.delta, last)

    def _decode_chunk(self, shape: ChunkShape, events: list[Event]) -> None:
        """Append the events of one chunk to `events`."""
        if shape.error is not UNSET and shape.error != _NULL:
            events += self._fail(decode_error_object(shape.error, None))
            return
        if not self._started:
            self._start(shape, events)
        elif shape.unknown is not UNSET or _extra_fields(shape) != self._last_extras:
            self._collect_extras(shape)
        for position, choice in enumerate(shape.choices or ()):
            index = 0 if choice.index is UNSET else choice.index
            if (decoder := self._choices.get(index)) is None:
                check_candidate_index(index, FAMILY, f"/choices/{position}/index")
                decoder = self._choices[index] = ChoiceDecoder(index, self._id)
            decoder.decode(choice, events)
            if decoder.finished:
                self._finished = True
        if shape.usage is not UNSET and shape.usage is not None:
            events.append(UsageReport(usage=decode_usage(shape.usage)))

    def _start(self, shape: ChunkShape, events: list[Event]) -> None:
        """Append the start of the response, from its first chunk, to `events`."""
        collected = collect_chat_extras(shape)
        extras = (collected.get("extras") or {}).get(FAMILY, {})
        if not shape.choices and not shape.id:
            # Azure's first chunk holds only the content filter results of the prompt.
            self._early_extras.update(extras)
            return
        self._started = True
        self._id = unset_to_none(shape.id) or ""
        extras = {**self._early_extras, **extras}
        self._seen_extras = dict(extras)
        wire_form = tuple(token for token in collected.get("wire_form", ()) if not token.endswith(":obfuscation"))
        if shape.choices and shape.choices[0].logprobs is not UNSET:
            wire_form = (*wire_form, LOGPROBS_FORM)
        events.append(
            ResponseStart(
                origin=self._origin,
                id=unset_to_none(shape.id),
                model=unset_to_none(shape.model),
                created=unset_to_none(shape.created),
                extras={FAMILY: extras} if extras else None,
                wire_form=wire_form,
            )
        )

    def _collect_extras(self, shape: ChunkShape) -> None:
        """Collect response fields that a later chunk adds or changes."""
        self._last_extras = _extra_fields(shape)
        for name, value in zip(_EXTRA_FIELDS, self._last_extras, strict=True):
            if value is not UNSET:
                self._collect_extra(name, value)
        if shape.unknown is not UNSET:
            for name, value in shape.unknown.items():
                self._collect_extra(name, value)

    def _collect_extra(self, name: str, value: Raw) -> None:
        """Store an extra for the end of the response if its value is new."""
        if value not in (_NULL, self._seen_extras.get(name)):
            self._seen_extras[name] = value
            self._late_extras[name] = value

    def _finish(self) -> list[Event]:
        """Return the end events of all choices and of the response."""
        self._ended = True
        if not self._started or any(decoder.is_broken() for decoder in self._choices.values()):
            return self._fail_stream("the stream ended before the response was complete")
        events: list[Event] = []
        for decoder in self._choices.values():
            decoder.finish(None, events)
        return [*events, ResponseEnd(extras={FAMILY: self._late_extras} if self._late_extras else None)]

    def _fail(self, error: ApiError) -> list[Event]:
        """Return the failure event for an error of the provider, which ends the stream."""
        self._ended = True
        return [ResponseFailed(error=error)]

    def _fail_stream(self, reason: str) -> list[Event]:
        """Return the failure event for a broken stream; nothing after this is decoded."""
        self._ended = True
        return [ResponseFailed(error=ApiError(kind="server", message=reason), broken=True)]


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    """Return a decoder for one response."""
    return Decoder()
