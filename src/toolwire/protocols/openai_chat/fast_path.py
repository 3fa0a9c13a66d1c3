"""Answers that are told alike: a server says the same of itself, in the same spelling, in one after the other.

What an answer was found to say besides its words is remembered. Of one that differs from it in its words, its calls and
its counts only, just those are read.

Chunks that differ from one before them in their delta only, as nearly all do: the rest of them is not read again.

And of those, most only go on with a text, or with the arguments of a call: of them just that string is read.
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

# What is each answer's own.
_varying_fields = attrgetter(
    *("id", "created", "usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens"),
    *("usage.prompt_tokens_details.cached_tokens", "usage.completion_tokens_details.reasoning_tokens"),
)
# All else that a typed reading finds, but its words and calls.
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
    """An answer without what is its own: as it was written, and as it was read."""

    fixed_fields: tuple[Any, ...]
    response: Response
    candidate: Candidate
    message: Message
    usage: Usage


class ResponseTemplateCache:
    """The latest answers, one of each kind."""

    def __init__(self) -> None:
        self._templates: dict[tuple[Any, ...], _ResponseTemplate] = {}

    def decode(self, shape: ResponseShape) -> Response | None:
        """The answer, if one like it was read before. The shape is of a typed reading, which takes all or nothing."""
        try:
            (choice,) = shape.choices  # type: ignore[misc]
            like = self._templates.get(_template_key(shape, choice))
            if like is None or (_response_fields(shape), _choice_fields(choice)) != like.fixed_fields:
                return None
            own = _varying_fields(shape)
        except (TypeError, ValueError, AttributeError):  # it has not one choice, or not all counts
            return None
        if None in own or UNSET in own:
            return None
        said = choice.message
        parts: list[Part] = [Text(text=said.content, at="/content")] if type(said.content) is str else []
        for index, shown in enumerate(said.tool_calls or ()):
            call = decode_call(shown, index)
            if type(call) is not ToolCall or call.extras or not (call.arguments and is_json(call.arguments)):
                return None
            parts.append(call)
        id, created, given, taken, total, cached, reasoning = own
        usage = replace(
            like.usage, input_tokens=given, output_tokens=taken, total=total, cache_read=cached, reasoning=reasoning
        )
        candidate = replace(like.candidate, messages=(replace(like.message, parts=tuple(parts)),))
        return replace(like.response, id=id, created=created, candidates=(candidate,), usage=usage)

    def remember(self, shape: ResponseShape, response: Response) -> None:
        """How this one was read."""
        try:
            (choice,), (candidate,) = shape.choices, response.candidates  # type: ignore[misc]
            written, own = (_response_fields(shape), _choice_fields(choice)), _varying_fields(shape)
        except (TypeError, ValueError, AttributeError):
            return
        usage, (message,) = response.usage, candidate.messages
        raws = [value for values in written for value in values if type(value) is Raw]
        if (
            usage is None
            or None in own
            or UNSET in own
            or type(choice.message.content) is list
            or any(one not in (UNSET, None, []) for one in _other_content_fields(choice.message))
            or any(part.extras or type(part) not in (Text, ToolCall) for part in message.parts)
            or sum(len(bytes(raw)) for raw in raws) > _MAX_RAW_BYTES
        ):
            return
        if len(self._templates) >= _MAX_TEMPLATES:
            self._templates.clear()
        usage = replace(usage, extras=_copy_extras(usage.extras))
        extras = _copy_extras(response.extras)
        if extras and candidate.plain:
            extras = SharedExtras(extras, response.wire_form, usage)
        self._templates[_template_key(shape, choice)] = _ResponseTemplate(
            fixed_fields=tuple([tuple(map(_copy_raw, values)) for values in written]),
            response=replace(response, candidates=(), usage=None, extras=extras),
            candidate=replace(candidate, messages=(), extras=_copy_extras(candidate.extras)),
            message=replace(message, parts=(), extras=_copy_extras(message.extras)),
            usage=usage,
        )


def _template_key(shape: ResponseShape, choice: ResponseChoiceShape) -> tuple[Any, ...]:
    said = choice.message
    calls = said.tool_calls
    return shape.model, choice.finish_reason, type(said.content), len(calls) if type(calls) is list else calls


def _copy_raw(value: Any) -> Any:
    """What is raw holds on to all of the body that it is from."""
    return value.copy() if type(value) is Raw else value


def _copy_extras(extras: Extras | None) -> Extras | None:
    return extras and {family: {key: raw.copy() for key, raw in kept.items()} for family, kept in extras.items()}


_DELTA_KEY = b'"delta":'
# OpenAI hides the lengths of its chunks from eavesdroppers, at their very end.
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
    delta: Raw


class _RawDeltas(Struct):
    choices: tuple[_RawDelta]


_decode_delta = msgspec.json.Decoder(DeltaShape).decode
_decode_raw_deltas = msgspec.json.Decoder(_RawDeltas).decode
_decode_string = msgspec.json.Decoder(str).decode


class TextTemplate(Struct, frozen=True):
    """What stands before and after a string that goes on: of a text, or of the arguments of this call."""

    head: bytes
    tail: bytes
    call_index: int | None
    has_padding: bool

    def next_text(self, data: bytes) -> str:
        """The string of a chunk that is otherwise the same; empty for any other."""
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
    """What stands before and after the delta, and whose it is. `padded`: random letters follow, and say nothing.

    `words` tells where the string is in chunks that go on as the last one did.
    """

    def __init__(self, head: bytes, tail: bytes, choice: int, *, has_padding: bool = False) -> None:
        self.choice = choice
        self.text_template: TextTemplate | None = None
        self._head = head
        self._tail = tail
        self._has_padding = has_padding

    def decode_delta(self, data: bytes) -> DeltaShape | None:
        """The delta of a chunk that is otherwise the same; None for any other."""
        if not data.startswith(self._head):
            return None
        if self._has_padding:
            data = _strip_padding(data)
        if not data.endswith(self._tail):
            return None
        written = data[len(self._head) : -len(self._tail)]
        try:
            delta = _decode_delta(written)
        except JSON_ERRORS:
            return None
        self.text_template = self._build_text_template(written)
        return delta

    def _build_text_template(self, delta: bytes) -> TextTemplate | None:
        if (text := _TEXT_DELTA.fullmatch(delta)) is not None:
            return TextTemplate(self._head + text[1], text[2] + self._tail, None, self._has_padding)
        if (arguments := _ARGUMENTS_DELTA.fullmatch(delta)) is not None:
            return TextTemplate(
                self._head + arguments[1], arguments[3] + self._tail, int(arguments["call"]), self._has_padding
            )
        return None


def _strip_padding(data: bytes) -> bytes:
    """A chunk up to where its padding begins; nothing, if that is none."""
    data, _, padding = data.rpartition(_PADDING)
    return data if padding.endswith(b'"}') and (padding[:-2].isalnum() or padding == b'"}') else b""


def chunk_template(data: bytes, shape: ChunkShape) -> ChunkTemplate | None:
    """What others may have in common with this chunk, if all that it says is in its delta."""
    if not shape.choices or shape.unknown is not UNSET or isinstance(shape.usage, UsageShape):
        return None
    choice = shape.choices[0]
    if choice.unknown is not UNSET or isinstance(choice.finish_reason, str) or has_extras(choice):
        return None
    try:
        written = bytes(_decode_raw_deltas(data).choices[0].delta)
    except JSON_ERRORS:
        return None
    # No string can hold the key: its quotes would be escaped.
    head, _, rest = data.partition(_DELTA_KEY)
    tail = rest[len(written) :]
    if not rest.startswith(written) or not written.startswith(b"{") or _DELTA_KEY in tail:
        return None
    padded = isinstance(shape.obfuscation, str)
    if padded:
        tail, _, padding = tail.rpartition(_PADDING)
        if padding != b'%b"}' % str(shape.obfuscation).encode():
            return None
    return ChunkTemplate(head + _DELTA_KEY, tail, 0 if choice.index is UNSET else choice.index, has_padding=padded)


def has_extras(shape: StreamChoiceShape) -> bool:
    probabilities, native = shape.logprobs, shape.native_finish_reason
    return not (probabilities is UNSET or probabilities == _NULL) or not (native is UNSET or native == _NULL)


def has_other_content(delta: DeltaShape) -> bool:
    """Whether it has more to say than text and calls; nulls, empty strings and lists say nothing."""
    return bool(
        delta.reasoning_content
        or delta.reasoning
        or delta.refusal
        or delta.function_call
        or delta.annotations
        or delta.unknown
    )
