"""Fast paths for consecutive responses and chunks that share everything but their content.

`ResponseTemplateCache` reuses the decoded form of an earlier response; only content, calls, usage, id and time are
decoded. `ChunkTemplate` reuses the bytes around the delta of an earlier chunk, and `TextTemplate` those around the
text or arguments inside the delta.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Candidate, Response, Usage
from toolwire.codec.losses import SharedExtras
from toolwire.codec.wire.reader import JSON_ERRORS, Reader
from toolwire.protocols.openai_chat.parts.calls import decode_call, is_json
from toolwire.protocols.openai_chat.parts.content import REASONING_FIELDS, reasoning_part
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    CallShape,
    ChunkShape,
    DeltaShape,
    ResponseShape,
    StreamChoiceShape,
    UsageShape,
)

_MAX_TEMPLATES = 256
_MAX_FIXED_BYTES = 2048
_NAMES = frozenset(ResponseShape.__struct_encode_fields__)

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_choices = msgspec.json.Decoder(tuple[dict[str, Raw]]).decode
_decode_calls = msgspec.json.Decoder(list[CallShape]).decode
_decode_string = msgspec.json.Decoder(str).decode
_decode_number = msgspec.json.Decoder(int | float).decode
_read_usage = Reader[UsageShape](UsageShape, FAMILY).read
_Members = dict[str, Raw]
_EMPTY = Raw(b'""')  # stands for reasoning among the fixed members


class ResponseParts(Struct):
    """The members of a response body with one choice: those that vary, and the fixed ones."""

    id: str
    created: int | float
    usage: Raw | None
    reasoning: Reasoning | None
    content: str | None
    calls: list[CallShape]
    unknown: _Members  # members of the response that no shape knows, by value only as far as `kinds`
    fixed: tuple[_Members, _Members, _Members, dict[str, bytes]]  # response, choice, message, kinds of `unknown`

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the fields by which a template is looked up, before all fixed members are compared."""
        members, choice, message, _ = self.fixed
        model, stop = bytes(members.get("model", b"")), bytes(choice.get("finish_reason", b""))
        return model, stop, len(self.calls), len(members), len(choice), len(message), self.content is None


def split_response(body: bytes) -> ResponseParts | None:
    """Split a response body; return None if it has no template: several choices, no id, or content of other types."""
    try:
        members = _decode_members(body)
        (choice,) = _decode_choices(members.pop("choices"))
        message = _decode_members(choice.pop("message"))
        calls = _decode_calls(message["tool_calls"]) if bytes(message.get("tool_calls", b""))[:1] == b"[" else []
        if calls:
            del message["tool_calls"]
        is_text = bytes(message.get("content", b""))[:1] == b'"'
        reasoning = None
        for name in REASONING_FIELDS:
            if name in message and bytes(message[name])[:1] == b'"' and reasoning is None:
                reasoning, message[name] = reasoning_part(name, _decode_string(message[name])), _EMPTY
        unknown = {name: members.pop(name) for name in members.keys() - _NAMES}
        return ResponseParts(
            id=_decode_string(members.pop("id")),
            created=_decode_number(members.pop("created")),
            usage=members.pop("usage", None) if bytes(members.get("usage", b""))[:1] == b"{" else None,
            reasoning=reasoning,
            content=_decode_string(message.pop("content")) if is_text else None,
            calls=calls,
            unknown=unknown,
            fixed=(members, choice, message, {name: _value_kind(raw) for name, raw in unknown.items()}),
        )
    except (KeyError, *JSON_ERRORS):
        return None


def _value_kind(raw: Raw) -> bytes:
    """Return the first byte of a value that is passed on as it is, or the value if it matters: null or with a list."""
    value = bytes(raw)
    return b"0" if value[:1].isdigit() else value[:1] if value[:1] in b'"{-' and b"[" not in value else value


class _ResponseTemplate(Struct, frozen=True):
    """A decoded response without the fields that vary."""

    fixed: tuple[_Members, _Members, _Members, dict[str, bytes]]
    response: Response
    candidate: Candidate
    message: Message
    usage: Usage | None
    usage_shape: UsageShape | None  # without counts

    def fill(self, parts: ResponseParts, decode_usage: Callable[[UsageShape], Usage]) -> Response | None:
        """Return the response with these parts; None if a call needs the general decoder."""
        content: list[Part] = [] if parts.reasoning is None else [parts.reasoning]
        if parts.content is not None:
            content.append(Text(text=parts.content, at="/content"))
        for index, shape in enumerate(parts.calls):
            call = decode_call(shape, index)
            if type(call) is not ToolCall or call.extras or not (call.arguments and is_json(call.arguments)):
                return None
            content.append(call)
        candidate = replace(self.candidate, messages=(replace(self.message, parts=tuple(content)),))
        response, usage = self.response, None
        if parts.usage is not None:
            usage_shape = _read_usage(parts.usage)
            counts = _take_counts(usage_shape)
            known = self.usage if usage_shape == self.usage_shape else None
            usage = replace(decode_usage(usage_shape) if known is None else known, **counts)
        extras = response.extras
        if parts.unknown and type(extras) is dict:
            fields = extras[FAMILY]
            extras = {FAMILY: {name: parts.unknown.get(name, raw) for name, raw in fields.items()}}
        return replace(
            response, id=parts.id, created=parts.created, candidates=(candidate,), usage=usage, extras=extras
        )


_COUNTS = (
    (None, "prompt_tokens", "input_tokens"),
    (None, "completion_tokens", "output_tokens"),
    (None, "total_tokens", "total"),
    ("prompt_tokens_details", "cached_tokens", "cache_read"),
    ("prompt_tokens_details", "cache_write_tokens", "cache_write"),
    ("completion_tokens_details", "reasoning_tokens", "reasoning"),
)
"""Object within the usage, wire name and canonical name of each count."""


def _take_counts(shape: UsageShape | None) -> dict[str, Any]:
    """Return the counts of a usage by canonical name, and set them to 0 in the shape."""
    counts: dict[str, int] = {}
    for owner_name, name, field in _COUNTS:
        owner = shape if owner_name is None else getattr(shape, owner_name, None)
        if type(count := getattr(owner, name, None)) is int:
            counts[field] = count
            setattr(owner, name, 0)
    return counts


class ResponseTemplateCache:
    """Templates of recent responses: a server sends the same members in each, and most of them with the same value.

    Content, calls, id, time and usage vary. So do unknown members, such as the timings of llama.cpp; only their kind is
    compared, since they are passed on as they are. Any member may be absent or null.
    """

    def __init__(self, decode_usage: Callable[[UsageShape], Usage]) -> None:
        self._decode_usage = decode_usage
        self._templates: dict[tuple[Any, ...], _ResponseTemplate] = {}

    def decode(self, parts: ResponseParts) -> Response | None:
        """Decode a response like an earlier one from its template; None if there is no such template."""
        template = self._templates.get(parts.key)
        if template is None or parts.fixed != template.fixed:
            return None
        try:
            return template.fill(parts, self._decode_usage)
        except DecodeError:
            return None

    def remember(self, parts: ResponseParts, response: Response) -> None:
        """Store a decoded response as a template, if that reproduces it."""
        varying = sum(len(bytes(raw)) for raw in parts.unknown.values()) + len(parts.usage or b"")
        if len(response.candidates) != 1 or len(response.candidates[0].messages) != 1:
            return
        if sum(len(bytes(raw)) for members in parts.fixed[:3] for raw in members.values()) + varying > _MAX_FIXED_BYTES:
            return
        (candidate,), usage, extras = response.candidates, response.usage, _copy_extras(response.extras)
        usage = usage and replace(usage, extras=_copy_extras(usage.extras))
        if (
            extras
            and candidate.plain
            and usage is not None
            and not parts.unknown.keys() & extras.get(FAMILY, {}).keys()
        ):
            extras = SharedExtras(extras, response.wire_form, usage)
        members, choice, message, kinds = parts.fixed
        usage_shape = None if parts.usage is None else _read_usage(parts.usage.copy())
        _take_counts(usage_shape)
        template = _ResponseTemplate(
            fixed=(_copy_members(members), _copy_members(choice), _copy_members(message), kinds),
            response=replace(response, candidates=(), usage=None, extras=extras),
            candidate=replace(candidate, messages=(), extras=_copy_extras(candidate.extras)),
            message=replace(candidate.messages[0], parts=(), extras=_copy_extras(candidate.messages[0].extras)),
            usage=usage,
            usage_shape=usage_shape,
        )
        if template.fill(parts, self._decode_usage) != response:
            return
        if len(self._templates) >= _MAX_TEMPLATES:
            self._templates.clear()
        self._templates[parts.key] = template


def _copy_members(members: _Members) -> _Members:
    """Return a copy of raw members, since the originals would keep their complete body in memory."""
    return {name: raw.copy() for name, raw in members.items()}


def _copy_extras(extras: Extras | None) -> Extras | None:
    """Return a copy of extras, for the same reason."""
    return extras and {family: _copy_members(fields) for family, fields in extras.items()}


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
