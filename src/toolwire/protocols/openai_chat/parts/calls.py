"""Chat's tool calls and results, to canonical parts and back."""

from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import Media, Nested, OpaquePart, Part, Text, ToolCall, ToolResult
from toolwire.codec.encoding.fallbacks import call_as_text, call_name, result_as_text
from toolwire.codec.encoding.fallbacks import report_call as report_function_call
from toolwire.codec.encoding.fallbacks import report_result as report_function_result
from toolwire.codec.encoding.media import ERROR_MARK, ERROR_MARK_FORM, expand_nested_document, media_summary
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import as_dict, merge_extras, restore_extras, unset_to_none
from toolwire.protocols.openai_chat.parts.content import (
    STRING,
    collect_chat_extras,
    constant_extras,
    decode_parts,
    encode_parts,
    encode_text_content,
    restore_constant,
)
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    CallShape,
    CustomCallShape,
    FunctionCallShape,
    MessageShape,
    TextPart,
)

CALL_FORM = "openai-chat:call"
LEGACY_FORM = "openai-chat:legacy"
OBJECT_FORM = "openai-chat:object"
NO_NAME = "openai-chat:absent:name"
NO_ARGUMENTS = "openai-chat:absent:arguments"
CUSTOM_NAMES = ("openai-chat:name:name=custom/name", "openai-chat:name:arguments=custom/input")
LEGACY_NAMES = ("openai-chat:name:name=name", "openai-chat:name:arguments=arguments")

_WRAPPED_PREFIX = '{"_raw"'

# Most have nothing but what their protocols share: that is asked of all fields at once.
_call_fields = attrgetter("native", "executor", "shape", "signature", "cache", "toolset")
_PLAIN_CALL = (None, "client", "json", None, None, None)
_result_fields = attrgetter("status", "native", "executor", "name", "namespace", "cache", "caller", "toolset")
_PLAIN_RESULT = ("ok", None, "client", None, None, None, None, None)
_text_fields = attrgetter("cache", "extras", "annotations", "id")
_PLAIN_TEXT = (None, None, None, None)
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_validate_json = msgspec.json.Decoder(Raw).decode


def is_json(text: str) -> bool:
    try:
        _validate_json(text.encode(errors="surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


# ---- decode


def decode_call(shape: CallShape, index: int) -> ToolCall | OpaquePart:
    at = f"/tool_calls/{index}"
    function = shape.function
    if isinstance(shape.custom, CustomCallShape) and not (isinstance(function, FunctionCallShape) and function.name):
        return _decode_custom(shape, shape.custom, at)
    if not isinstance(function, FunctionCallShape):
        body = as_dict(shape) | (unset_to_none(shape.unknown) or {}) | dict.fromkeys(unset_to_none(shape.nulls) or ())
        raw = Raw(msgspec.json.encode(body))
        return OpaquePart(
            protocol=FAMILY, kind=unset_to_none(shape.type) or "", body=raw, wire_form=(CALL_FORM,), at=at
        )
    if _is_plain_shape(shape) and isinstance(function.name, str) and isinstance(function.arguments, str):
        return ToolCall(id=unset_to_none(shape.id), name=function.name, arguments=function.arguments, at=at)
    arguments, form = decode_arguments(function)
    form = (*form, *_absence_form(function.name))
    found = merge_extras(
        collect_chat_extras(shape, *form),
        constant_extras("type", shape.type, "function"),
        collect_chat_extras(function, prefix="function/"),
    )
    if shape.custom is not UNSET and shape.custom is not None:
        custom = {"custom": Raw(msgspec.json.encode(shape.custom))}
        found = merge_extras(found, {"extras": {FAMILY: custom}})
    return ToolCall(
        id=unset_to_none(shape.id), name=unset_to_none(function.name) or "", arguments=arguments, at=at, **found
    )


def _is_plain_shape(shape: CallShape) -> bool:
    """Whether there is nothing around a call's name and arguments whose spelling would have to be kept."""
    return (
        shape.type == "function"
        and shape.id is not None
        and shape.custom is UNSET
        and shape.unknown is UNSET
        and shape.nulls is UNSET
        and isinstance(shape.function, FunctionCallShape)
        and shape.function.unknown is UNSET
        and shape.function.nulls is UNSET
    )


def _decode_custom(shape: CallShape, custom: CustomCallShape, at: str) -> ToolCall:
    form = (*CUSTOM_NAMES, *_absence_form(custom.name))
    if custom.input is UNSET:
        form = (*form, NO_ARGUMENTS)
    found = merge_extras(
        collect_chat_extras(shape, *form),
        constant_extras("type", shape.type, "custom"),
        collect_chat_extras(custom, prefix="custom/"),
    )
    if isinstance(shape.function, FunctionCallShape):
        found = merge_extras(found, {"extras": {FAMILY: {"function": Raw(msgspec.json.encode(shape.function))}}})
    return ToolCall(
        id=unset_to_none(shape.id),
        name=unset_to_none(custom.name) or "",
        arguments=unset_to_none(custom.input) or "",
        shape="freeform",
        at=at,
        **found,
    )


def _absence_form(name: str | UnsetType | None) -> tuple[str, ...]:
    return (NO_NAME,) if name is UNSET else ()


def decode_arguments(shape: FunctionCallShape) -> tuple[str, tuple[str, ...]]:
    """The exact text that the model wrote, and how it was spelled if not as a string."""
    if isinstance(shape.arguments, str):
        return shape.arguments, ()
    if shape.arguments is UNSET and shape.unknown is not UNSET and "arguments" in shape.unknown:
        return str(shape.unknown.pop("arguments"), "utf-8"), (OBJECT_FORM,)
    return "", () if shape.arguments is None else (NO_ARGUMENTS,)


def decode_legacy(shape: FunctionCallShape) -> ToolCall:
    arguments, form = decode_arguments(shape)
    found = collect_chat_extras(shape, LEGACY_FORM, *LEGACY_NAMES, *form, *_absence_form(shape.name))
    return ToolCall(id=None, name=unset_to_none(shape.name) or "", arguments=arguments, at="/function_call", **found)


def decode_result(shape: MessageShape) -> ToolResult:
    """The result that a `tool` or `function` message is."""
    content: tuple[Part, ...] | None = None
    form: tuple[str, ...] = (LEGACY_FORM,) if shape.role == "function" else ()
    failed = False
    if isinstance(shape.content, str):
        failed = shape.content.startswith(ERROR_MARK)
        text = shape.content.removeprefix(ERROR_MARK) if failed else shape.content
        content = (Text(text=text, at="/content"),)
        form = (*form, STRING)
    elif isinstance(shape.content, list):
        content = decode_parts(shape.content)
        first = content[0] if content else None
        if isinstance(first, Text) and first.text.startswith(ERROR_MARK):
            failed = True
            content = (msgspec.structs.replace(first, text=first.text.removeprefix(ERROR_MARK)), *content[1:])
    return ToolResult(
        call_id=unset_to_none(shape.tool_call_id),
        content=content,
        name=unset_to_none(shape.name),
        status="error" if failed else "ok",
        wire_form=(*form, ERROR_MARK_FORM) if failed else form,
        at="",
    )


# ---- encode


def is_plain_call(part: ToolCall, plan: EncodingPlan) -> bool:
    """Whether a call of another protocol says no more than a call here can."""
    return (
        _call_fields(part) == _PLAIN_CALL
        and (part.caller is None or part.caller.kind == "direct")
        and not part.asynchronous
        and part.arguments != ""
        and not part.arguments.startswith(_WRAPPED_PREFIX)
        and (part.id in plan.legal_ids or plan.is_legal_id(part.id))
    )


def encode_fast_result(part: Part, plan: EncodingPlan) -> dict[str, Any] | None:
    """The message of a result that is one text, and nothing out of the ordinary; None for any other part."""
    if type(part) is not ToolResult or _result_fields(part) != _PLAIN_RESULT:
        return None
    content = part.content
    if content is None or len(content) != 1 or type(only := content[0]) is not Text:
        return None
    if _text_fields(only) != _PLAIN_TEXT or not (part.call_id in plan.legal_ids or plan.is_legal_id(part.call_id)):
        return None
    return {"role": "tool", "tool_call_id": part.call_id, "content": only.text}


def encode_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    if plan.same_protocol:
        return _encode_same_protocol_call(part)
    report_call(part, located_part, plan)
    id = plan.id_of(located_part)
    name = call_name(part, plan)
    if part.shape == "freeform":
        if plan.tools.freeform:
            return {"id": id, "type": "custom", "custom": {"name": name, "input": part.arguments}}
        return {
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": wrap_freeform_input(part.arguments)},
        }
    arguments = part.arguments if part.arguments and not part.arguments.isspace() else "{}"
    if arguments.startswith(_WRAPPED_PREFIX):
        arguments = _unwrap_invalid_arguments(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _unwrap_invalid_arguments(arguments: str) -> str:
    """The text that was no object and went to another protocol inside one, as it was."""
    try:
        members = _decode_object(arguments.encode())
    except msgspec.DecodeError:
        return arguments
    text = members.get("_raw")
    return text if len(members) == 1 and isinstance(text, str) else arguments


def report_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> None:
    report_function_call(part, located_part, plan, "the target has no cache marks on calls")


def _encode_same_protocol_call(part: ToolCall) -> Any:
    body: dict[str, Any] = {}
    if part.id is not None:
        body["id"] = part.id
    kind = "custom" if part.shape == "freeform" else "function"
    if (written := restore_constant(part, "type", kind)) is not UNSET:
        body["type"] = written
    body[kind] = encode_function(part, f"{kind}/")
    return restore_extras(body, part, FAMILY)


def encode_function(part: ToolCall, prefix: str = "") -> dict[str, Any]:
    """Name and arguments of a call, as its own server spelled them."""
    body: dict[str, Any] = {}
    inner = "input" if part.shape == "freeform" else "arguments"
    if part.name or not {NO_NAME, f"{FAMILY}:null:{prefix}name"} & set(part.wire_form):
        body["name"] = part.name
    if OBJECT_FORM in part.wire_form and is_json(part.arguments):
        body[inner] = Raw(part.arguments.encode())
    elif part.arguments or not {NO_ARGUMENTS, f"{FAMILY}:null:{prefix}{inner}"} & set(part.wire_form):
        body[inner] = part.arguments
    return body


def encode_server_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> TextPart | None:
    text = call_as_text(part, located_part, plan)
    return None if text is None else TextPart(text=text)


def encode_server_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> TextPart | None:
    text = result_as_text(part, located_part, plan)
    return None if text is None else TextPart(text=text)


def encode_result(
    part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, hoisted: list[Any]
) -> dict[str, Any]:
    """The message of one result. Media, which it can't hold, are put into `hoisted` to be shown after it."""
    body: dict[str, Any] = {"role": "tool"}
    if plan.same_protocol:
        if LEGACY_FORM in part.wire_form:
            body["role"] = "function"
        if part.call_id is not None:
            body["tool_call_id"] = part.call_id
        if part.name is not None:
            body["name"] = part.name
        _encode_same_protocol_content(part, located_part, plan, body)
        return body
    report_result(part, located_part, plan)
    body["tool_call_id"] = plan.call_id(part.call_id or "")
    content = part.content
    if content is not None and len(content) == 1 and type(only := content[0]) is Text and only.cache is None:
        text = only.text
        body["content"] = text if part.status == "ok" else ERROR_MARK + text
        return body
    texts: list[Any] = []
    for index, inner in enumerate(content or ()):
        within = LocatedPart(inner, (*located_part.path, "content", index))
        texts += _hoist_media(inner, within, part, plan, hoisted) or encode_parts([within], plan)
    _mark_error(texts, part)
    body["content"] = encode_text_content(texts, located_part.path, plan)
    return body


def report_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> None:
    report_function_result(part, located_part, plan, "the target has no cache marks on results")
    plan.report_result_name(part, located_part.path)


def _encode_same_protocol_content(
    part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, body: dict[str, Any]
) -> None:
    if part.content is None:
        return
    mark = ERROR_MARK if part.status != "ok" else ""
    if STRING in part.wire_form and all(isinstance(one, Text) for one in part.content):
        body["content"] = mark + "".join(one.text for one in part.content if isinstance(one, Text))
        return
    places = [LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(part.content)]
    body["content"] = encode_parts(places, plan)
    _mark_error(body["content"], part)


def _mark_error(texts: list[Any], part: ToolResult) -> None:
    if part.status == "ok":
        return
    first = texts[0] if texts else None
    if isinstance(first, TextPart):
        first.text = ERROR_MARK + first.text
    elif isinstance(first, dict) and isinstance(first.get("text"), str):
        first["text"] = ERROR_MARK + first["text"]
    else:
        texts.insert(0, TextPart(text=ERROR_MARK))


def _hoist_media(
    part: Part, located_part: LocatedPart, result: ToolResult, plan: EncodingPlan, hoisted: list[Any]
) -> list[Any]:
    """A line in place of media, which are hoisted; nothing if this is no media, or can be told as text."""
    if not isinstance(part, Media):
        return []
    if isinstance(part.source, Nested):
        inner = expand_nested_document(located_part, part, part.source, plan.report)
        told = [_hoist_media(one.part, one, result, plan, hoisted) or encode_parts([one], plan) for one in inner]
        return [one for parts in told for one in parts]
    if plan.target.binary_results == "summary":
        plan.report.approximated(located_part.path, "", "a line in place of binary content")
        return [TextPart(text=media_summary(part))]
    shown = encode_parts([LocatedPart(part, located_part.path)], plan)
    if not shown or isinstance(shown[0], TextPart):
        return shown or [TextPart(text=media_summary(part))]
    plan.report.approximated(located_part.path, "", "results hold text only: shown in a user message after them")
    label = f"{part.kind} of the result of {result.name or 'a tool'}, call {plan.call_id(result.call_id or '')}"
    hoisted += [TextPart(text=f"[{label}]"), *shown]
    return [TextPart(text=f"[{label}: see the next user message]")]
