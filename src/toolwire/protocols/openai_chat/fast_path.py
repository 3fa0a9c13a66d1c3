"""Fast paths for consecutive responses and chunks that share everything but their content.

`ResponseTemplateCache` reuses the decoded form of an earlier response; only content, calls, counts, id and time are
decoded. `ChunkTemplate` reuses the bytes around the delta of an earlier chunk, and `TextTemplate` those around the
text or arguments inside the delta.
"""

import re
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Text, ToolCall
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Candidate, Response, Usage
from toolwire.codec.losses import SharedExtras
from toolwire.codec.wire.reader import JSON_ERRORS
from toolwire.protocols.openai_chat.parts.calls import decode_call, is_json
from toolwire.protocols.openai_chat.wire import (
    ChunkShape,
    DeltaShape,
    ResponseChoiceShape,
    ResponseShape,
    StreamChoiceShape,
    UsageShape,
)

_MAX_TEMPLATES = 256
_MAX_RAW_BYTES = 1024

# Fields that vary between responses.
_varying_fields = attrgetter(
    *("id", "created", "usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens"),
    *("usage.prompt_tokens_details.cached_tokens", "usage.completion_tokens_details.reasoning_tokens"),
)
# All other fields of a typed read, except content and calls: equal in responses of one template.
_response_fields = attrgetter(
    *("object", "error", "service_tier", "system_fingerprint"),
    *("usage.prompt_tokens_details.cache_write_tokens", "usage.prompt_tokens_details.audio_tokens"),
    "usage.completion_tokens_details.accepted_prediction_tokens",
    "usage.completion_tokens_details.rejected_prediction_tokens",
    "usage.completion_tokens_details.audio_tokens",
)
_choice_fields = attrgetter(
    *("index", "logprobs", "error", "message.role", "message.name", "message.tool_call_id", "message.annotations"),
    *("message.refusal", "message.function_call", "message.reasoning_content", "message.reasoning"),
)
_other_content_fields = attrgetter("refusal", "function_call", "reasoning_content", "reasoning", "annotations")


class _ResponseTemplate(Struct, frozen=True):
    """A decoded response without the fields that vary."""

    fixed_fields: tuple[Any, ...]
    response: Response
    candidate: Candidate
    message: Message
    usage: Usage


class ResponseTemplateCache:
    """Templates of recent responses, one per model, finish reason and kind of content."""

    def __init__(self) -> None:
        self._templates: dict[tuple[Any, ...], _ResponseTemplate] = {}

    def decode(self, shape: ResponseShape) -> Response | None:
        """Decode a response like an earlier one from its template; None if there is no such template.

        `shape` must come from a read that rejects unknown fields.
        """
        try:
            (choice,) = shape.choices  # type: ignore[misc]
            template = self._templates.get(_template_key(shape, choice))
            if template is None or (_response_fields(shape), _choice_fields(choice)) != template.fixed_fields:
                return None
            varying = _varying_fields(shape)
        except (TypeError, ValueError, AttributeError):  # several choices, or missing counts
            return None
        if None in varying or UNSET in varying:
            return None
        message = choice.message
        parts: list[Part] = [Text(text=message.content, at="/content")] if type(message.content) is str else []
        for index, call_shape in enumerate(message.tool_calls or ()):
            call = decode_call(call_shape, index)
            if type(call) is not ToolCall or call.extras or not (call.arguments and is_json(call.arguments)):
                return None
            parts.append(call)
        id, created, input_tokens, output_tokens, total, cached, reasoning = varying
        usage = replace(
            template.usage,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            total=total,
            cache_read=cached,
            reasoning=reasoning,
        )
        candidate = replace(template.candidate, messages=(replace(template.message, parts=tuple(parts)),))
        return replace(template.response, id=id, created=created, candidates=(candidate,), usage=usage)

    def remember(self, shape: ResponseShape, response: Response) -> None:
        """Store a decoded response as a template, unless it has optional content."""
        try:
            (choice,), (candidate,) = shape.choices, response.candidates  # type: ignore[misc]
            fixed_fields, varying = (_response_fields(shape), _choice_fields(choice)), _varying_fields(shape)
        except (TypeError, ValueError, AttributeError):
            return
        usage, (message,) = response.usage, candidate.messages
        if usage is None or None in varying or UNSET in varying or not _is_cacheable(choice, message, fixed_fields):
            return
        if len(self._templates) >= _MAX_TEMPLATES:
            self._templates.clear()
        usage = replace(usage, extras=_copy_extras(usage.extras))
        extras = _copy_extras(response.extras)
        if extras and candidate.plain:
            extras = SharedExtras(extras, response.wire_form, usage)
        self._templates[_template_key(shape, choice)] = _ResponseTemplate(
            fixed_fields=tuple([tuple(map(_copy_raw, values)) for values in fixed_fields]),
            response=replace(response, candidates=(), usage=None, extras=extras),
            candidate=replace(candidate, messages=(), extras=_copy_extras(candidate.extras)),
            message=replace(message, parts=(), extras=_copy_extras(message.extras)),
            usage=usage,
        )


def _is_cacheable(choice: ResponseChoiceShape, message: Message, fixed_fields: tuple[tuple[Any, ...], ...]) -> bool:
    """Tell whether the response has only text and calls without optional fields, and small extras."""
    if type(choice.message.content) is list:
        return False
    if any(value not in (UNSET, None, []) for value in _other_content_fields(choice.message)):
        return False
    if any(part.extras or type(part) not in (Text, ToolCall) for part in message.parts):
        return False
    return sum(len(bytes(value)) for values in fixed_fields for value in values if type(value) is Raw) <= _MAX_RAW_BYTES


def _template_key(shape: ResponseShape, choice: ResponseChoiceShape) -> tuple[Any, ...]:
    """Return the cache key: the fields that responses with the same template have in common."""
    message = choice.message
    calls = message.tool_calls
    return shape.model, choice.finish_reason, type(message.content), len(calls) if type(calls) is list else calls


def _copy_raw(value: Any) -> Any:
    """Return a copy of a raw JSON value, since the original would keep its complete body in memory."""
    return value.copy() if type(value) is Raw else value


def _copy_extras(extras: Extras | None) -> Extras | None:
    """Return a copy of extras, since the raw values would keep their complete body in memory."""
    return extras and {family: {key: raw.copy() for key, raw in fields.items()} for family, fields in extras.items()}


_DELTA_KEY = b'"delta":'
# OpenAI pads chunks at their end to hide the length of the text.
_PADDING = b',"obfuscation":"'
_NULL = Raw(b"null")
_JSON_STRING = rb'"(?:[^"\\]|\\.)*"'
_TEXT_DELTA = re.compile(rb'(\{\s*"content"\s*:\s*)%b(\s*\})' % _JSON_STRING, re.DOTALL)
_ARGUMENTS_DELTA = re.compile(
    rb'(\{\s*"tool_calls"\s*:\s*\[\s*\{\s*"index"\s*:\s*(?P<call>\d{1,6})\s*,'
    rb'\s*"function"\s*:\s*\{\s*"arguments"\s*:\s*)%b(\s*\}\s*\}\s*\]\s*\})' % _JSON_STRING,
    re.DOTALL,
)


class _RawDelta(Struct):
    """A choice with its delta as bytes."""

    delta: Raw


class _RawDeltas(Struct):
    """A chunk with a single choice."""

    choices: tuple[_RawDelta]


_decode_delta = msgspec.json.Decoder(DeltaShape).decode
_decode_raw_deltas = msgspec.json.Decoder(_RawDeltas).decode
_decode_string = msgspec.json.Decoder(str).decode


class TextTemplate(Struct, frozen=True):
    """The bytes before and after the text of a delta."""

    head: bytes
    tail: bytes
    call_index: int | None  # of the call whose arguments continue, None for text
    has_padding: bool  # random letters follow the tail

    def next_text(self, data: bytes) -> str:
        """Return the text of a chunk that differs from the template only in its text, else an empty string."""
        if not data.startswith(self.head):
            return ""
        if self.has_padding:
            data = _strip_padding(data)
        if not data.endswith(self.tail):
            return ""
        try:
            return _decode_string(data[len(self.head) : -len(self.tail)])
        except JSON_ERRORS:
            return ""


class ChunkTemplate:
    """The bytes before and after the delta of a chunk."""

    def __init__(self, head: bytes, tail: bytes, choice: int, *, has_padding: bool = False) -> None:
        self.choice = choice
        # Set while chunks continue the text or arguments of the previous one.
        self.text_template: TextTemplate | None = None
        self._head = head
        self._tail = tail
        self._has_padding = has_padding

    def decode_delta(self, data: bytes) -> DeltaShape | None:
        """Decode the delta of a chunk that differs from the template only there; None for any other."""
        if not data.startswith(self._head):
            return None
        if self._has_padding:
            data = _strip_padding(data)
        if not data.endswith(self._tail):
            return None
        delta_bytes = data[len(self._head) : -len(self._tail)]
        try:
            delta = _decode_delta(delta_bytes)
        except JSON_ERRORS:
            return None
        self.text_template = self._build_text_template(delta_bytes)
        return delta

    def _build_text_template(self, delta: bytes) -> TextTemplate | None:
        """Return a template for chunks that differ only in text or arguments; None if the delta has more."""
        if (text := _TEXT_DELTA.fullmatch(delta)) is not None:
            return TextTemplate(self._head + text[1], text[2] + self._tail, None, self._has_padding)
        if (arguments := _ARGUMENTS_DELTA.fullmatch(delta)) is not None:
            return TextTemplate(
                self._head + arguments[1], arguments[3] + self._tail, int(arguments["call"]), self._has_padding
            )
        return None


def _strip_padding(data: bytes) -> bytes:
    """Return the chunk without its `obfuscation` padding; empty bytes if it has none."""
    data, _, padding = data.rpartition(_PADDING)
    return data if padding.endswith(b'"}') and (padding[:-2].isalnum() or padding == b'"}') else b""


def chunk_template(data: bytes, shape: ChunkShape) -> ChunkTemplate | None:
    """Return a template of the chunk; None if it holds more than the delta of one choice."""
    if not shape.choices or shape.unknown is not UNSET or isinstance(shape.usage, UsageShape):
        return None
    choice = shape.choices[0]
    if choice.unknown is not UNSET or isinstance(choice.finish_reason, str) or has_extras(choice):
        return None
    try:
        delta_bytes = bytes(_decode_raw_deltas(data).choices[0].delta)
    except JSON_ERRORS:
        return None
    # The key cannot occur inside a string, where its quotes would be escaped.
    head, _, after_key = data.partition(_DELTA_KEY)
    tail = after_key[len(delta_bytes) :]
    if not after_key.startswith(delta_bytes) or not delta_bytes.startswith(b"{") or _DELTA_KEY in tail:
        return None
    has_padding = isinstance(shape.obfuscation, str)
    if has_padding:
        tail, _, padding = tail.rpartition(_PADDING)
        if padding != b'%b"}' % str(shape.obfuscation).encode():
            return None
    return ChunkTemplate(head + _DELTA_KEY, tail, 0 if choice.index is UNSET else choice.index, has_padding=has_padding)


def has_extras(shape: StreamChoiceShape) -> bool:
    """Tell whether the choice has log probabilities or a native finish reason."""
    logprobs, native_reason = shape.logprobs, shape.native_finish_reason
    return not (logprobs is UNSET or logprobs == _NULL) or not (native_reason is UNSET or native_reason == _NULL)


def has_other_content(delta: DeltaShape) -> bool:
    """Tell whether the delta has content besides text and tool calls; nulls and empty values do not count."""
    return bool(
        delta.reasoning_content
        or delta.reasoning
        or delta.refusal
        or delta.function_call
        or delta.annotations
        or delta.unknown
    )
