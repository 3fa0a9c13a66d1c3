"""The fast path for consecutive responses that share everything but their content.

`ResponseTemplateCache` reuses the decoded form of an earlier response; only content, calls, usage, id and time are
decoded.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, defstruct, field
from msgspec.structs import astuple, replace

from toolwire.canonical.content import Message, Part, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Candidate, Response, Usage
from toolwire.codec.losses import SharedExtras
from toolwire.codec.wire.reader import JSON_ERRORS, Reader, WireObject
from toolwire.protocols.openai_chat.parts.calls import decode_call, is_json
from toolwire.protocols.openai_chat.parts.content import REASONING_FIELDS, reasoning_part
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    CallShape,
    UsageShape,
)

_MAX_TEMPLATES = 256
_MAX_FIXED_BYTES = 2048
_MAX_NAMES = 64

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_choices = msgspec.json.Decoder(tuple[dict[str, Raw]]).decode
_decode_string = msgspec.json.Decoder(str).decode
_read_usage = Reader[UsageShape](UsageShape, FAMILY).read
_ABSENT = Raw(b"")
_SEPARATOR = b"\0"  # occurs in no JSON value
_NULLS = b"\0nul"  # nulls and absent values consist of these bytes only

# Members that vary, by name, with their types and defaults.
_MESSAGE_MEMBERS: dict[str, tuple[Any, ...]] = {
    "content": (str | UnsetType | None, UNSET),
    "tool_calls": (list[CallShape] | UnsetType | None, UNSET),
    **dict.fromkeys(REASONING_FIELDS, (str | UnsetType | None, UNSET)),
}
_CHOICE_MEMBERS: dict[str, tuple[Any, ...]] = {"message": ()}
_RESPONSE_MEMBERS: dict[str, tuple[Any, ...]] = {
    "id": (str,),
    "created": (int | float,),
    "choices": (),
    "usage": (UsageShape | UnsetType | None, UNSET),
}
_MESSAGE_START, _CHOICE_START, _FIXED_START = len(_MESSAGE_MEMBERS), len(_CHOICE_MEMBERS), len(_RESPONSE_MEMBERS)
_FIXED_NAMES = ("model", "object", "system_fingerprint", "service_tier", "error")
_UNKNOWN_START = _FIXED_START + len(_FIXED_NAMES)


class _MemberNames(Struct, frozen=True):
    """Names of the members whose raw values are compared, except those of every response."""

    unknown: tuple[str, ...] = ()  # members of the response that no shape knows
    choice: tuple[str, ...] = ("index", "finish_reason", "logprobs")
    message: tuple[str, ...] = ("role", "refusal", "annotations")

    def extend(self, body: bytes) -> "_MemberNames":
        """Return the names with those of a body; the same if they are too many, or there is not one choice."""
        try:
            members = _decode_members(body)
            (choice,) = _decode_choices(members["choices"])
            message = _decode_members(choice["message"])
        except (KeyError, *JSON_ERRORS):
            return self
        names = _MemberNames(
            unknown=tuple(dict.fromkeys([*self.unknown, *members.keys() - _RESPONSE_MEMBERS.keys() - {*_FIXED_NAMES}])),
            choice=tuple(dict.fromkeys([*self.choice, *choice.keys() - _CHOICE_MEMBERS.keys()])),
            message=tuple(dict.fromkeys([*self.message, *message.keys() - _MESSAGE_MEMBERS.keys()])),
        )
        # Names that a JSON pointer escapes are spelled differently in the extras.
        has_pointer = any("/" in name or "~" in name for name in names.unknown)
        is_short = len(names.unknown + names.choice + names.message) <= _MAX_NAMES
        return names if is_short and not has_pointer else self


_Key = tuple[Any, ...]
_Varying = tuple[str, int | float, UsageShape | Raw | UnsetType | None, Any, tuple[Raw, ...]]
"""Id, time, usage, message (with `_MESSAGE_MEMBERS`), and values of the unknown members unless all are null."""


class _ResponseLayout:
    """A typed decoder for responses whose members are all known by name, and the templates of such responses."""

    def __init__(self, names: _MemberNames) -> None:
        self.names = names
        self.templates: dict[_Key, _ResponseTemplate] = {}
        message = _define_struct("Message", _MESSAGE_MEMBERS, names.message)
        choice = _define_struct("Choice", _CHOICE_MEMBERS | {"message": (message,)}, names.choice)
        varying = _RESPONSE_MEMBERS | {"choices": (tuple.__class_getitem__((choice,)),)}
        fixed = _FIXED_NAMES + names.unknown
        self._decode = msgspec.json.Decoder(_define_struct("Response", varying, fixed)).decode
        varying["usage"] = (Raw,)  # with members that `UsageShape` lacks
        self._decode_with_raw_usage = msgspec.json.Decoder(_define_struct("Response", varying, fixed)).decode

    def split(self, body: bytes) -> tuple[_Key, _Varying] | None:
        """Split a response body; return None if it has other members, or varying ones of other types."""
        try:
            members = astuple(self._decode(body))
        except JSON_ERRORS:
            try:
                members = astuple(self._decode_with_raw_usage(body))
            except JSON_ERRORS:
                return None
        id, created, (choice,), usage = members[:_FIXED_START]
        choice_members = astuple(choice)
        message = choice_members[0]
        message_members = astuple(message)
        content, calls, reasoning_content, reasoning = message_members[:_MESSAGE_START]
        fixed = members[_FIXED_START:_UNKNOWN_START] + choice_members[_CHOICE_START:] + message_members[_MESSAGE_START:]
        unknown = members[_UNKNOWN_START:]
        kinds = _SEPARATOR.join(unknown)
        if kinds.strip(_NULLS):
            kinds = _SEPARATOR.join([_value_kind(bytes(raw)) for raw in unknown])
        else:
            unknown = ()
        key = (
            _SEPARATOR.join(fixed),
            kinds,
            usage if usage is None else type(usage),
            type(content),
            len(calls) if type(calls) is list else calls,
            type(reasoning_content),
            type(reasoning),
        )
        return key, (id, created, usage, message, unknown)


def _define_struct(name: str, varying: dict[str, tuple[Any, ...]], fixed: tuple[str, ...]) -> Any:
    """Return a struct type with the varying members and raw fixed ones, which may be absent, but no others."""
    fields: list[Any] = [(member, *definition) for member, definition in varying.items()]
    fields += [(f"raw_{index}", Raw, field(default=_ABSENT, name=member)) for index, member in enumerate(fixed)]
    return defstruct(name, fields, kw_only=True, forbid_unknown_fields=True, gc=False)


def _value_kind(value: bytes) -> bytes:
    """Return the first byte of a value that is passed on as it is, or the value if it matters: null or with a list."""
    return b"0" if value[:1].isdigit() else value[:1] if value[:1] in b'"{-' and b"[" not in value else value


_COUNTS = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_tokens": "total",
    "prompt_tokens_details.cached_tokens": "cache_read",
    "prompt_tokens_details.cache_write_tokens": "cache_write",
    "completion_tokens_details.reasoning_tokens": "reasoning",
}
"""Canonical name of each count, by its path in the usage."""


class _UsageTemplate(Struct, frozen=True):
    """A decoded usage whose counts vary."""

    usage: Usage
    names: tuple[str, ...]  # canonical names of the counts
    counts: Callable[[UsageShape], tuple[Any, ...]]
    fixed: Callable[[UsageShape], Any]  # returns all other members
    fixed_values: Any

    def fill(self, shape: UsageShape) -> Usage | None:
        """Return the usage with these counts; None if it differs in more."""
        try:
            counts = self.counts(shape)
            if self.fixed(shape) != self.fixed_values or None in counts or UNSET in counts:
                return None
        except AttributeError:  # no details
            return None
        return replace(self.usage, **dict(zip(self.names, counts, strict=True)))


def _usage_template(shape: UsageShape, usage: Usage) -> _UsageTemplate | None:
    """Return a template of a usage; None if it has less than two counts."""
    counts: list[str] = []
    fixed: list[str] = []
    for name, value in zip(shape.__struct_fields__, astuple(shape), strict=True):
        is_object = isinstance(value, WireObject)
        for path in [f"{name}.{inner}" for inner in value.__struct_fields__] if is_object else [name]:
            (counts if path in _COUNTS and type(attrgetter(path)(shape)) is int else fixed).append(path)
    if len(counts) < 2:
        return None
    values = attrgetter(*fixed)(shape)
    return _UsageTemplate(
        usage=usage,
        names=tuple([_COUNTS[path] for path in counts]),
        counts=attrgetter(*counts),
        fixed=attrgetter(*fixed),
        fixed_values=tuple([value.copy() if type(value) is Raw else value for value in values]),
    )


class _ResponseTemplate(Struct, frozen=True):
    """A decoded response without the members that vary."""

    response: Response
    candidate: Candidate
    message: Message
    usage: _UsageTemplate | None
    unknown: tuple[str, ...]  # names of unknown members

    def fill(self, varying: _Varying, decode_usage: Callable[[UsageShape], Usage]) -> Response | None:
        """Return the response with these members; None if a call needs the general decoder."""
        id, created, usage_shape, message, unknown = varying
        content: list[Part] = []
        if type(message.reasoning_content) is str:
            content.append(reasoning_part("reasoning_content", message.reasoning_content))
        elif type(message.reasoning) is str:
            content.append(reasoning_part("reasoning", message.reasoning))
        if type(message.content) is str:
            content.append(Text(text=message.content, at="/content"))
        for index, shape in enumerate(message.tool_calls or ()):
            call = decode_call(shape, index)
            if type(call) is not ToolCall or call.extras or not (call.arguments and is_json(call.arguments)):
                return None
            content.append(call)
        response, usage = self.response, None
        if type(usage_shape) is UsageShape:
            usage = (self.usage and self.usage.fill(usage_shape)) or decode_usage(usage_shape)
        elif type(usage_shape) is Raw:
            usage = decode_usage(_read_usage(usage_shape))
        extras = response.extras
        if unknown and extras:
            values = dict(zip(self.unknown, unknown, strict=True))
            extras = {FAMILY: {name: values.get(name, raw) for name, raw in extras[FAMILY].items()}}
        return replace(
            response,
            id=id,
            created=created,
            candidates=(replace(self.candidate, messages=(replace(self.message, parts=tuple(content)),)),),
            usage=usage,
            extras=extras,
        )


class ResponseTemplateCache:
    """Templates of recent responses: a server sends the same members in each, and most of them with the same value.

    Content, calls, reasoning, id, time and usage vary. So do unknown members, such as the timings of llama.cpp; only
    their kind is compared, since they are passed on as they are. Any member may be absent or null.
    """

    def __init__(self, decode_usage: Callable[[UsageShape], Usage]) -> None:
        self._decode_usage = decode_usage
        self._layout = _ResponseLayout(_MemberNames())

    def decode(self, body: bytes) -> Response | None:
        """Decode a response like an earlier one from its template; None if there is no such template."""
        layout = self._layout
        if (parts := layout.split(body)) is None or (template := layout.templates.get(parts[0])) is None:
            return None
        try:
            return template.fill(parts[1], self._decode_usage)
        except DecodeError:
            return None

    def remember(self, body: bytes, response: Response) -> None:
        """Store a decoded response as a template, if that reproduces it."""
        if len(response.candidates) != 1 or len(response.candidates[0].messages) != 1:
            return
        if (parts := self._layout.split(body)) is None:
            if (names := self._layout.names.extend(body)) == self._layout.names:
                return
            self._layout = _ResponseLayout(names)
            if (parts := self._layout.split(body)) is None:
                return
        layout = self._layout
        key, varying = parts
        _, _, usage_shape, _, unknown = varying
        if sum(map(len, key[:2])) + sum(map(len, unknown)) > _MAX_FIXED_BYTES:
            return
        (candidate,), usage, extras = response.candidates, response.usage, _copy_extras(response.extras)
        usage = usage and replace(usage, extras=_copy_extras(usage.extras))
        if extras and candidate.plain and usage is not None and not unknown:
            extras = SharedExtras(extras, response.wire_form, usage)
        template = _ResponseTemplate(
            response=replace(response, candidates=(), usage=None, extras=extras),
            candidate=replace(candidate, messages=(), extras=_copy_extras(candidate.extras)),
            message=replace(candidate.messages[0], parts=(), extras=_copy_extras(candidate.messages[0].extras)),
            usage=_usage_template(usage_shape, usage) if usage and type(usage_shape) is UsageShape else None,
            unknown=layout.names.unknown,
        )
        try:
            if template.fill(varying, self._decode_usage) != response:
                return
        except DecodeError:
            return
        if len(layout.templates) >= _MAX_TEMPLATES:
            layout.templates.clear()
        layout.templates[key] = template


def _copy_extras(extras: Extras | None) -> Extras | None:
    """Return a copy of extras, since raw values keep their complete body in memory."""
    return extras and {family: {name: raw.copy() for name, raw in fields.items()} for family, fields in extras.items()}
