"""Names of fields in either spelling: read in snake_case as in camelCase, and written back as they were.

Shapes are read in camelCase, so that what came in snake_case is first unknown to them. `Spelling.read` moves it to its
field and remembers the place; what a canonical value keeps (`extras`, nulls) is under the names of its source, so that
losses point there, and `write` spells the object again before it puts that back.
"""

from functools import cache
from typing import Any, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.node import Node
from toolwire.codec.wire.extras import as_dict, collect_extras, merge_extras, restore_extras
from toolwire.codec.wire.reader import (
    Extra,
    NullFields,
    Reader,
    UnknownFields,
    WireObject,
    escape_pointer,
    union_members,
)
from toolwire.protocols.gemini.wire import FAMILY

WIRE_NAMES = {
    "Request.messages": "/contents",
    "Request.system": "/systemInstruction/parts",
    "Request.tool_choice": "/toolConfig/functionCallingConfig",
    "Request.sampling": "",
    "Request.thinking": "",
    "Request.output": "",
    "Request.continuation": "",
    "Request.tier": "/serviceTier",
    "Request.labels": "/labels",
    "Request.tools": "/tools",
    "Continuation.id": "/cachedContent",
    "Continuation.store": "/store",
    "Sampling.max_tokens": "/generationConfig/maxOutputTokens",
    "Sampling.temperature": "/generationConfig/temperature",
    "Sampling.top_p": "/generationConfig/topP",
    "Sampling.top_k": "/generationConfig/topK",
    "Sampling.stop": "/generationConfig/stopSequences",
    "Sampling.n": "/generationConfig/candidateCount",
    "Sampling.seed": "/generationConfig/seed",
    "Sampling.frequency_penalty": "/generationConfig/frequencyPenalty",
    "Sampling.presence_penalty": "/generationConfig/presencePenalty",
    "Sampling.logprobs": "/generationConfig/responseLogprobs",
    "Sampling.top_logprobs": "/generationConfig/logprobs",
    "Thinking.enabled": "/generationConfig/thinkingConfig/thinkingBudget",
    "Thinking.budget_tokens": "/generationConfig/thinkingConfig/thinkingBudget",
    "Thinking.effort": "/generationConfig/thinkingConfig/thinkingLevel",
    "Thinking.visibility": "/generationConfig/thinkingConfig/includeThoughts",
    "OutputFormat.kind": "/generationConfig/responseMimeType",
    "OutputFormat.schema": "/generationConfig/responseJsonSchema",
    "OutputFormat.held": "/generationConfig/responseJsonSchema",
    "ToolChoice.mode": "/mode",
    "ToolChoice.required": "/mode",
    "ToolChoice.validated": "/mode",
    "ToolChoice.names": "/allowedFunctionNames",
    "FunctionTool.parameters": "/parametersJsonSchema",
    "FunctionTool.output_schema": "/responseJsonSchema",
    "FunctionTool.asynchronous": "/behavior",
    "Text.signature": "/thoughtSignature",
    "Media.signature": "/thoughtSignature",
    "Media.source": "/inlineData/data",
    "Media.media_type": "/inlineData/mimeType",
    "Media.name": "/inlineData/displayName",
    "Media.detail": "/mediaResolution/level",
    "Reasoning.content": "/text",
    "Reasoning.signature": "/thoughtSignature",
    "ToolCall.id": "/functionCall/id",
    "ToolCall.name": "/functionCall/name",
    "ToolCall.arguments": "/functionCall/args",
    "ToolCall.signature": "/thoughtSignature",
    "ToolResult.signature": "/thoughtSignature",
    "ToolResult.call_id": "/functionResponse/id",
    "ToolResult.name": "/functionResponse/name",
    "ToolResult.content": "/functionResponse/response",
    "ToolResult.status": "/functionResponse/response/error",
    "Response.id": "/responseId",
    "Response.model": "/modelVersion",
    "Response.created": "/createTime",
    "Response.usage": "/usageMetadata",
    "ResponseStart.id": "/responseId",
    "ResponseStart.model": "/modelVersion",
    "Candidate.messages": "/content",
    "Candidate.stop": "",
    "Stop.reason": "/finishReason",
    "Stop.raw": "/finishReason",
    "Usage.input_tokens": "/promptTokenCount",
    "Usage.output_tokens": "/candidatesTokenCount",
    "Usage.cache_read": "/cachedContentTokenCount",
    "Usage.reasoning": "/thoughtsTokenCount",
    "Usage.tool_use": "/toolUsePromptTokenCount",
    "Usage.total": "/totalTokenCount",
    "ApiError.raw": "/error/status",
    "ApiError.message": "/error/message",
    "ApiError.status": "/error/code",
}

_RESTORED_FORMS = ("gemini:snake:", "gemini:null:")
_SNAKE_FORM = "gemini:snake:"
_NULL = b"null"
_SETTINGS_PREFIX = "generationConfig/"


class FieldCase:
    """How one canonical value is spelled in its source: read each object that it is made of, then take `kept`."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.snake_names: dict[str, str] = {}

    def normalize(self, shape: WireObject, location: str = "") -> None:
        """Move what came in snake_case to its field. `place` is the object's pointer below the value."""
        if shape.unknown is UNSET:
            return
        fields = _snake_fields(type(shape))
        left = UnknownFields(shape.unknown)
        for name, value in shape.unknown.items():
            if (field := fields.get(name)) is None or getattr(shape, name) is not UNSET:
                continue
            camel, reader, structural = field
            pointer = f"{location}/{camel}" if location else camel
            if bytes(value) == _NULL and not structural[1]:
                shape.nulls = NullFields((*(shape.nulls or ()), name))
                del left[name]
                continue
            try:
                setattr(shape, name, reader.read(value, f"{self.path}/{self.source_pointer(location, '/')}{name}"))
            except DecodeError:
                if structural[0]:
                    raise
                continue
            self.snake_names[pointer] = name
            del left[name]
        shape.unknown = left or UNSET

    def adopt(self, other: "FieldCase", location: str) -> None:
        """What another spelling knows of the object at this place, as that of a value of its own."""
        prefix = location + "/"
        for pointer, name in other.snake_names.items():
            if pointer.startswith(prefix):
                self.snake_names[pointer[len(prefix) :]] = name

    def source_pointer(self, pointer: str, suffix: str = "") -> str:
        """A pointer below the value, without leading slash, as its source spells it."""
        if not pointer:
            return ""
        if not self.snake_names:
            return pointer + suffix
        steps = pointer.split("/")
        spelt = [self.snake_names.get("/".join(steps[: count + 1]), step) for count, step in enumerate(steps)]
        return "/".join(spelt) + suffix

    def extras_and_form(
        self, kind: str, *objects: tuple[WireObject, str], wire_form: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """`extras` and `form` of the value, which is of this canonical kind and made of these objects."""
        rests = [collect_extras(shape, FAMILY, prefix=self.source_pointer(place, "/")) for shape, place in objects]
        if not self.snake_names and not any(rests):
            return {"wire_form": wire_form} if wire_form else {}
        if self.snake_names:
            wire_form = (*wire_form, *self.form_tokens(), *self.name_tokens(kind))
        return merge_extras(*rests, {"wire_form": wire_form})

    def form_tokens(self) -> tuple[str, ...]:
        return tuple(_SNAKE_FORM + pointer for pointer in self.snake_names)

    def name_tokens(self, kind: str) -> tuple[str, ...]:
        """For losses: where fields of this canonical kind stand, if not under their ordinary names."""
        if not self.snake_names:
            return ()
        found = []
        for field, pointer in _field_pointers(kind):
            if (source := self.source_pointer(pointer)) != pointer:
                found.append(f"{FAMILY}:name:{field}={source}")
        return tuple(found)

    def setting_name_tokens(self, kind: str, prefix: str) -> tuple[str, ...]:
        """The same for settings, which stand under `place` and not in `generationConfig` where an SDK wrote them."""
        if not self.snake_names and prefix == _SETTINGS_PREFIX:
            return ()
        found = []
        for field, pointer in _field_pointers(kind):
            source = self.source_pointer(prefix + pointer.removeprefix(_SETTINGS_PREFIX))
            if source != pointer:
                found.append(f"{FAMILY}:name:{field}={source}")
        return tuple(found)

    def request_name_tokens(self, kind: str, prefix: str) -> tuple[str, ...]:
        """The same for what stands beside the contents, or in the `config` of an SDK."""
        if not self.snake_names and not prefix:
            return ()
        found = []
        for field, pointer in _field_pointers(kind):
            source = pointer if pointer == "contents" else self.source_pointer(prefix + pointer)
            if source != pointer:
                found.append(f"{FAMILY}:name:{field}={source}")
        return tuple(found)


@cache
def _field_pointers(kind: str) -> tuple[tuple[str, str], ...]:
    prefix = kind + "."
    return tuple(
        (name[len(prefix) :], place[1:]) for name, place in WIRE_NAMES.items() if name.startswith(prefix) and place
    )


@cache
def _snake_fields(kind: type[WireObject]) -> dict[str, tuple[str, Reader[Any], tuple[bool, bool]]]:
    """By the name in snake_case, where it is another one: the field's name, how to read it, and whether a value of
    another type is an error, and whether null is one of its own. What is only kept can stay unknown."""
    hints = get_type_hints(kind)
    kept = get_type_hints(kind, include_extras=True)
    found = {}
    for spec in msgspec.structs.fields(kind):
        if spec.encode_name != spec.name and not spec.encode_name.startswith("\x7f") and kept[spec.name] is not Extra:
            members = union_members(hints[spec.name])
            strict = any(get_origin(one) in (list, dict) or _is_wire(one) for one in members)
            found[spec.name] = (spec.encode_name, Reader[Any](hints[spec.name], FAMILY), (strict, Raw in members))
    return found


def _is_wire(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, WireObject)


# ---- encode


def encode_shape(shape: WireObject, node: Node | None) -> Any:
    """The object as its source spelled it, with what its canonical value kept."""
    if node is None or (not node.extras and not node.wire_form):
        return shape
    if not (node.extras and FAMILY in node.extras):
        for token in node.wire_form:
            if token.startswith(_RESTORED_FORMS):
                break
        else:
            return shape
    return restore_extras(restore_case(as_dict(shape), node), node, FAMILY)


def restore_case(out: dict[str, Any], node: Node) -> dict[str, Any]:
    """Snake case where the source had it, the innermost names first."""
    for token in reversed(node.wire_form):
        if token.startswith(_SNAKE_FORM):
            *parents, last = token[len(_SNAKE_FORM) :].split("/")
            inner: Any = out
            for name in parents:
                if isinstance(found := inner.get(name), WireObject):
                    found = inner[name] = as_dict(found)
                inner = found if isinstance(found, dict) else {}
            if last in inner:
                inner[_to_snake_case(last)] = inner.pop(last)
    return out


@cache
def _to_snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def with_unknown_fields(shape: WireObject) -> dict[str, Any]:
    """An object with everything that was read of it, at any depth."""
    out: dict[str, Any] = {}
    for name, value in as_dict(shape).items():
        if isinstance(value, WireObject):
            out[name] = with_unknown_fields(value)
        elif isinstance(value, list):
            out[name] = [with_unknown_fields(one) if isinstance(one, WireObject) else one for one in value]
        else:
            out[name] = value
    out.update((name, None) for name in shape.nulls or ())
    return {**out, **(shape.unknown or {})}


def make_extra(name: str, value: Any) -> dict[str, Any]:
    """One value that has no canonical home, as `joined` takes it."""
    raw = value if isinstance(value, Raw) else Raw(msgspec.json.encode(value))
    return {"extras": {FAMILY: {"/".join(map(escape_pointer, name.split("/"))): raw}}}
