"""Read field names in snake_case or camelCase, and restore the spelling of the source.

Wire shapes are declared in camelCase, so fields in snake_case are unknown to them at first. `FieldCase.normalize`
moves such values to their fields and records where it did. Extras and nulls of a canonical value keep the names of
the source, so that losses point there. `encode_shape` restores the spelling before it writes extras back.
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
    """The field spelling of one canonical value in its source.

    Call `normalize` for each wire object of the value, then `extras_and_form`.
    """

    def __init__(self, path: str = "") -> None:
        self.path = path
        # Snake_case names by their camelCase pointer below the value.
        self.snake_names: dict[str, str] = {}

    def normalize(self, shape: WireObject, location: str = "") -> None:
        """Move values of snake_case fields to their camelCase fields and record their names.

        `location` is the pointer of the object `shape` below the decoded value.
        """
        if shape.unknown is UNSET:
            return
        fields = _snake_fields(type(shape))
        unknown = UnknownFields(shape.unknown)
        for name, value in shape.unknown.items():
            if (field := fields.get(name)) is None or getattr(shape, name) is not UNSET:
                continue
            camel, reader, (is_structural, is_nullable) = field
            pointer = f"{location}/{camel}" if location else camel
            if bytes(value) == _NULL and not is_nullable:
                shape.nulls = NullFields((*(shape.nulls or ()), name))
                del unknown[name]
                continue
            try:
                setattr(shape, name, reader.read(value, f"{self.path}/{self.source_pointer(location, '/')}{name}"))
            except DecodeError:
                if is_structural:
                    raise
                continue
            self.snake_names[pointer] = name
            del unknown[name]
        shape.unknown = unknown or UNSET

    def adopt(self, parent: "FieldCase", location: str) -> None:
        """Copy the snake_case names that the parent value recorded for the object at `location`."""
        prefix = location + "/"
        for pointer, name in parent.snake_names.items():
            if pointer.startswith(prefix):
                self.snake_names[pointer[len(prefix) :]] = name

    def source_pointer(self, pointer: str, suffix: str = "") -> str:
        """Return a pointer with its field names as the source spelled them; it has no leading slash."""
        if not pointer:
            return ""
        if not self.snake_names:
            return pointer + suffix
        steps = pointer.split("/")
        names = [self.snake_names.get("/".join(steps[: count + 1]), step) for count, step in enumerate(steps)]
        return "/".join(names) + suffix

    def extras_and_form(
        self, kind: str, *objects: tuple[WireObject, str], wire_form: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return the `extras` and `wire_form` arguments of a canonical value made of these objects.

        Each object is given with its pointer below the value. `kind` names the canonical class.
        """
        extras = [
            collect_extras(shape, FAMILY, prefix=self.source_pointer(location, "/")) for shape, location in objects
        ]
        if not self.snake_names and not any(extras):
            return {"wire_form": wire_form} if wire_form else {}
        if self.snake_names:
            wire_form = (*wire_form, *self.form_tokens(), *self.name_tokens(kind))
        return merge_extras(*extras, {"wire_form": wire_form})

    def form_tokens(self) -> tuple[str, ...]:
        """Return one wire-form token for each snake_case field, so that encoding can restore its spelling."""
        return tuple(_SNAKE_FORM + pointer for pointer in self.snake_names)

    def name_tokens(self, kind: str) -> tuple[str, ...]:
        """Return wire-form tokens that map the fields of a canonical class to their pointers in the source.

        Loss reports use them; fields at their usual pointers need none.
        """
        if not self.snake_names:
            return ()
        tokens = []
        for field, pointer in _field_pointers(kind):
            if (source := self.source_pointer(pointer)) != pointer:
                tokens.append(f"{FAMILY}:name:{field}={source}")
        return tuple(tokens)

    def setting_name_tokens(self, kind: str, prefix: str) -> tuple[str, ...]:
        """Return name tokens, as `name_tokens` does, for settings below `prefix`.

        The prefix is `generationConfig`, or the SDK's `config`.
        """
        if not self.snake_names and prefix == _SETTINGS_PREFIX:
            return ()
        tokens = []
        for field, pointer in _field_pointers(kind):
            source = self.source_pointer(prefix + pointer.removeprefix(_SETTINGS_PREFIX))
            if source != pointer:
                tokens.append(f"{FAMILY}:name:{field}={source}")
        return tuple(tokens)

    def request_name_tokens(self, kind: str, prefix: str) -> tuple[str, ...]:
        """Return name tokens, as `name_tokens` does, for request fields other than the contents.

        With a prefix, they are in the SDK's `config`.
        """
        if not self.snake_names and not prefix:
            return ()
        tokens = []
        for field, pointer in _field_pointers(kind):
            source = pointer if pointer == "contents" else self.source_pointer(prefix + pointer)
            if source != pointer:
                tokens.append(f"{FAMILY}:name:{field}={source}")
        return tuple(tokens)


@cache
def _field_pointers(kind: str) -> tuple[tuple[str, str], ...]:
    """Return (field, pointer) for the fields of a canonical class, with their usual wire pointers."""
    prefix = kind + "."
    return tuple(
        (name[len(prefix) :], pointer[1:])
        for name, pointer in WIRE_NAMES.items()
        if name.startswith(prefix) and pointer
    )


@cache
def _snake_fields(kind: type[WireObject]) -> dict[str, tuple[str, Reader[Any], tuple[bool, bool]]]:
    """Map each snake_case name of a wire type to its camelCase name, its reader and two flags.

    The first flag: a value of another type is an error. The second: null is a value of its own. Fields that are only
    passed through (`Extra`) are left out: they can stay unknown.
    """
    hints = get_type_hints(kind)
    annotations = get_type_hints(kind, include_extras=True)
    fields = {}
    for spec in msgspec.structs.fields(kind):
        if (
            spec.encode_name != spec.name
            and not spec.encode_name.startswith("\x7f")
            and annotations[spec.name] is not Extra
        ):
            members = union_members(hints[spec.name])
            is_structural = any(get_origin(member) in (list, dict) or _is_wire(member) for member in members)
            fields[spec.name] = (
                spec.encode_name,
                Reader[Any](hints[spec.name], FAMILY),
                (is_structural, Raw in members),
            )
    return fields


def _is_wire(kind: Any) -> bool:
    """Check whether a type is a wire object."""
    return isinstance(kind, type) and issubclass(kind, WireObject)


# ---- encode


def encode_shape(shape: WireObject, node: Node | None) -> Any:
    """Return a wire object spelled as in its source, with the extras of its canonical value `node`."""
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
    """Rename the fields of `out` that were snake_case in the source back to it, innermost first."""
    for token in reversed(node.wire_form):
        if token.startswith(_SNAKE_FORM):
            *parents, last = token[len(_SNAKE_FORM) :].split("/")
            inner: Any = out
            for name in parents:
                if isinstance(child := inner.get(name), WireObject):
                    child = inner[name] = as_dict(child)
                inner = child if isinstance(child, dict) else {}
            if last in inner:
                inner[_to_snake_case(last)] = inner.pop(last)
    return out


@cache
def _to_snake_case(name: str) -> str:
    """Convert a camelCase name to snake_case."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def with_unknown_fields(shape: WireObject) -> dict[str, Any]:
    """Return the object as a dict with all fields that were read, at any depth."""
    out: dict[str, Any] = {}
    for name, value in as_dict(shape).items():
        if isinstance(value, WireObject):
            out[name] = with_unknown_fields(value)
        elif isinstance(value, list):
            out[name] = [
                with_unknown_fields(element) if isinstance(element, WireObject) else element for element in value
            ]
        else:
            out[name] = value
    out.update((name, None) for name in shape.nulls or ())
    return {**out, **(shape.unknown or {})}


def make_extra(name: str, value: Any) -> dict[str, Any]:
    """Return an `extras` argument with one source field that has no canonical counterpart."""
    raw = value if isinstance(value, Raw) else Raw(msgspec.json.encode(value))
    return {"extras": {FAMILY: {"/".join(map(escape_pointer, name.split("/"))): raw}}}
