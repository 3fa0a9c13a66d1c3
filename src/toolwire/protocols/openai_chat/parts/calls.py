"""Decode and encode tool calls and tool results."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Media, Nested, OpaquePart, Part, Text, ToolCall, ToolResult
from toolwire.codec.encoding.arguments import WRAPPED_PREFIX, unwrap_invalid_arguments
from toolwire.codec.encoding.fallbacks import call_as_text, call_name, result_as_text
from toolwire.codec.encoding.fallbacks import report_call as report_function_call
from toolwire.codec.encoding.fallbacks import report_result as report_function_result
from toolwire.codec.encoding.media import (
    ERROR_MARK,
    ERROR_MARK_FORM,
    expand_nested_document,
    media_summary,
    summarize_binary,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import as_dict, merge_extras, restore_extras, unset_to_none
from toolwire.protocols.openai_chat.parts.cache_control import has_cache_control, lift_mark, mark_last_text
from toolwire.protocols.openai_chat.parts.call_signatures import accepts_signature, sign_call, with_signature
from toolwire.protocols.openai_chat.parts.content import (
    STRING,
    collect_chat_extras,
    constant_extras,
    decode_parts,
    encode_parts,
    encode_text_content,
    join_texts,
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

NO_RESULT_MARKS = "the target has no cache marks on results"
CALL_FORM = "openai-chat:call"
LEGACY_FORM = "openai-chat:legacy"
OBJECT_FORM = "openai-chat:object"
NO_NAME = "openai-chat:absent:name"
NO_ARGUMENTS = "openai-chat:absent:arguments"
CUSTOM_NAMES = ("openai-chat:name:name=custom/name", "openai-chat:name:arguments=custom/input")
LEGACY_NAMES = ("openai-chat:name:name=name", "openai-chat:name:arguments=arguments")


_validate_json = msgspec.json.Decoder(Raw).decode


def is_json(text: str) -> bool:
    """Tell whether the text is valid JSON."""
    try:
        _validate_json(text.encode(errors="surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


# ---- decode


def decode_call(shape: CallShape, index: int) -> ToolCall | OpaquePart:
    """Decode an element of `tool_calls`; it is opaque if it has neither a function nor custom input."""
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
    arguments, wire_form = decode_arguments(function)
    wire_form = (*wire_form, *_missing_name_token(function.name))
    extras = merge_extras(
        collect_chat_extras(shape, *wire_form),
        constant_extras("type", shape.type, "function"),
        collect_chat_extras(function, prefix="function/"),
    )
    if shape.custom is not UNSET and shape.custom is not None:
        custom = {"custom": Raw(msgspec.json.encode(shape.custom))}
        extras = merge_extras(extras, {"extras": {FAMILY: custom}})
    return ToolCall(
        id=unset_to_none(shape.id),
        name=unset_to_none(function.name) or "",
        arguments=arguments,
        at=at,
        **with_signature(extras),
    )


def _is_plain_shape(shape: CallShape) -> bool:
    """Tell whether a call has only id, name and arguments."""
    return (
        shape.type == "function"
        and shape.id is not None
        and shape.custom is UNSET
        and shape.index is UNSET
        and shape.unknown is UNSET
        and shape.nulls is UNSET
        and isinstance(shape.function, FunctionCallShape)
        and shape.function.unknown is UNSET
        and shape.function.nulls is UNSET
    )


def _decode_custom(shape: CallShape, custom: CustomCallShape, at: str) -> ToolCall:
    """Decode a call of a custom tool."""
    wire_form = (*CUSTOM_NAMES, *_missing_name_token(custom.name))
    if custom.input is UNSET:
        wire_form = (*wire_form, NO_ARGUMENTS)
    extras = merge_extras(
        collect_chat_extras(shape, *wire_form),
        constant_extras("type", shape.type, "custom"),
        collect_chat_extras(custom, prefix="custom/"),
    )
    if isinstance(shape.function, FunctionCallShape):
        extras = merge_extras(extras, {"extras": {FAMILY: {"function": Raw(msgspec.json.encode(shape.function))}}})
    return ToolCall(
        id=unset_to_none(shape.id),
        name=unset_to_none(custom.name) or "",
        arguments=unset_to_none(custom.input) or "",
        shape="freeform",
        at=at,
        **extras,
    )


def _missing_name_token(name: str | UnsetType | None) -> tuple[str, ...]:
    """Return the wire-form token that records a missing `name`, or an empty tuple if there is a name."""
    return (NO_NAME,) if name is UNSET else ()


def decode_arguments(shape: FunctionCallShape) -> tuple[str, tuple[str, ...]]:
    """Return the arguments as text, and the wire-form tokens that record a value that is not a string."""
    if isinstance(shape.arguments, str):
        return shape.arguments, ()
    if shape.arguments is UNSET and shape.unknown is not UNSET and "arguments" in shape.unknown:
        return str(shape.unknown.pop("arguments"), "utf-8"), (OBJECT_FORM,)
    return "", () if shape.arguments is None else (NO_ARGUMENTS,)


def decode_legacy(shape: FunctionCallShape) -> ToolCall:
    """Decode the deprecated `function_call`."""
    arguments, wire_form = decode_arguments(shape)
    extras = collect_chat_extras(shape, LEGACY_FORM, *LEGACY_NAMES, *wire_form, *_missing_name_token(shape.name))
    return ToolCall(id=None, name=unset_to_none(shape.name) or "", arguments=arguments, at="/function_call", **extras)


def decode_result(shape: MessageShape) -> ToolResult:
    """Decode a `tool` or `function` message as a result."""
    content: tuple[Part, ...] | None = None
    wire_form: tuple[str, ...] = (LEGACY_FORM,) if shape.role == "function" else ()
    is_error = False
    if isinstance(shape.content, str):
        is_error = shape.content.startswith(ERROR_MARK)
        text = shape.content.removeprefix(ERROR_MARK) if is_error else shape.content
        content = (Text(text=text, at="/content"),)
        wire_form = (*wire_form, STRING)
    elif isinstance(shape.content, list):
        content = decode_parts(shape.content)
        first = content[0] if content else None
        if isinstance(first, Text) and first.text.startswith(ERROR_MARK):
            is_error = True
            content = (msgspec.structs.replace(first, text=first.text.removeprefix(ERROR_MARK)), *content[1:])
    return ToolResult(
        call_id=unset_to_none(shape.tool_call_id),
        content=content,
        name=unset_to_none(shape.name),
        status="error" if is_error else "ok",
        wire_form=(*wire_form, ERROR_MARK_FORM) if is_error else wire_form,
        at="",
    )


# ---- encode


def is_plain_call(part: ToolCall, plan: EncodingPlan) -> bool:
    """Tell whether another protocol's call has only id, name and arguments, all valid in Chat."""
    return (
        part.native is None
        and part.executor == "client"
        and part.shape == "json"
        and part.signature is None
        and part.cache is None
        and part.toolset is None
        and (part.caller is None or part.caller.kind == "direct")
        and not part.asynchronous
        and part.arguments != ""
        and not part.arguments.startswith(WRAPPED_PREFIX)
        and _accepts_arguments(part.arguments, plan)
        and (part.id in plan.legal_ids or plan.is_legal_id(part.id))
    )


def encode_fast_result(part: Part, plan: EncodingPlan) -> dict[str, Any] | None:
    """Encode a result that is one text without optional fields, None for any other part."""
    if type(part) is not ToolResult or not _is_plain_result(part):
        return None
    content = part.content
    if content is None or len(content) != 1 or type(text := content[0]) is not Text:
        return None
    if text.cache is not None or text.extras is not None or text.annotations is not None or text.id is not None:
        return None
    if not (part.call_id in plan.legal_ids or plan.is_legal_id(part.call_id)):
        return None
    return {"role": "tool", "tool_call_id": part.call_id, "content": text.text}


def _is_plain_result(part: ToolResult) -> bool:
    """Tell whether a result of another protocol has only a call id and content."""
    return (
        part.status == "ok"
        and part.native is None
        and part.executor == "client"
        and part.name is None
        and part.namespace is None
        and part.cache is None
        and part.caller is None
        and part.toolset is None
    )


def encode_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a call that the client runs."""
    if plan.same_protocol:
        return _encode_same_protocol_call(part, plan)
    is_signed = accepts_signature(part, plan)
    report_call(replace(part, signature=None) if is_signed else part, located_part, plan)
    id, name = plan.id_of(located_part), call_name(part, plan)
    if part.shape == "freeform" and plan.tools.freeform:
        return {"id": id, "type": "custom", "custom": {"name": name, "input": part.arguments}}
    if part.shape == "freeform":
        arguments = wrap_freeform_input(part.arguments)
    else:
        text = part.arguments if part.arguments and not part.arguments.isspace() else "{}"
        arguments = unwrap_invalid_arguments(text)
    if not _accepts_arguments(arguments, plan):
        plan.report.approximated(located_part.path, "arguments", "not a JSON object; sent as text under _raw")
        arguments = msgspec.json.encode({"_raw": arguments}).decode()
    body: dict[str, Any] = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    if is_signed:
        sign_call(body, part, plan)
    return body


def _accepts_arguments(arguments: str, plan: EncodingPlan) -> bool:
    """Return whether the host accepts the arguments of an earlier call; known hosts require a JSON object."""
    return plan.for_client or plan.target.host.pass_through or (arguments.startswith("{") and is_json(arguments))


def report_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report as losses the fields of a call that Chat lacks."""
    report_function_call(part, located_part, plan, "the target has no cache marks on calls")


def _encode_same_protocol_call(part: ToolCall, plan: EncodingPlan) -> Any:
    """Encode a call that came from a Chat server or client."""
    body: dict[str, Any] = {}
    if part.id is not None:
        body["id"] = plan.call_id(part.id)
    kind = "custom" if part.shape == "freeform" else "function"
    if (wire_type := restore_constant(part, "type", kind)) is not UNSET:
        body["type"] = wire_type
    body[kind] = encode_function(part, f"{kind}/")
    return restore_extras(body, part, FAMILY)


def encode_function(part: ToolCall, prefix: str = "") -> dict[str, Any]:
    """Encode name and arguments of a call, spelled as in the source; `prefix` locates its extras."""
    body: dict[str, Any] = {}
    field = "input" if part.shape == "freeform" else "arguments"
    if part.name or not {NO_NAME, f"{FAMILY}:null:{prefix}name"} & set(part.wire_form):
        body["name"] = part.name
    if OBJECT_FORM in part.wire_form and is_json(part.arguments):
        body[field] = Raw(part.arguments.encode())
    elif part.arguments or not {NO_ARGUMENTS, f"{FAMILY}:null:{prefix}{field}"} & set(part.wire_form):
        body[field] = part.arguments
    return body


def encode_server_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> TextPart | None:
    """Encode a call that a provider ran itself as text; None if nothing is sent."""
    text = call_as_text(part, located_part, plan)
    return None if text is None else TextPart(text=text)


def encode_server_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> TextPart | None:
    """Encode the result of a call that a provider ran itself as text; None if nothing is sent."""
    text = result_as_text(part, located_part, plan)
    return None if text is None else TextPart(text=text)


def encode_result(
    part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, hoisted: list[Any]
) -> dict[str, Any]:
    """Encode a result as a `tool` message; media, which it cannot hold, are appended to `hoisted`."""
    body: dict[str, Any] = {"role": "tool"}
    if plan.same_protocol:
        if LEGACY_FORM in part.wire_form:
            body["role"] = "function"
        if part.call_id is not None:
            body["tool_call_id"] = plan.call_id(part.call_id)
        if part.name is not None:
            body["name"] = part.name
        _encode_same_protocol_content(part, located_part, plan, body)
        return body
    is_marked = has_cache_control(plan)
    report_result(replace(part, cache=None) if is_marked else part, located_part, plan)
    body["tool_call_id"] = plan.call_id(part.call_id or "")
    if is_marked or plan.target.host.tools.result_media:
        body["content"] = _encode_rich_content(part, located_part, plan)
        return body
    content = part.content
    if content is not None and len(content) == 1 and type(single := content[0]) is Text:
        if single.cache is not None:
            plan.report.dropped((*located_part.path, "content", 0, "cache"), "", NO_RESULT_MARKS)
        text = single.text
        body["content"] = text if part.status == "ok" else ERROR_MARK + text
        return body
    texts: list[Any] = []
    for index, inner in enumerate(content or ()):
        located_inner = LocatedPart(inner, (*located_part.path, "content", index))
        texts += _hoist_media(inner, located_inner, part, plan, hoisted) or encode_parts([located_inner], plan)
    _mark_error(texts, part)
    body["content"] = encode_text_content(texts, located_part.path, plan, "tool")
    return body


def _encode_rich_content(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Return the content of a result for a server that accepts media and cache marks in it."""
    content, path = part.content or (), located_part.path
    only = content[0] if len(content) == 1 else None
    if plan.has_moving_marks and isinstance(only, Text) and only.cache is not None:
        lift_mark(only.cache, (*path, "content", 0), plan)
        content = (replace(only, cache=None),)
    located_parts = [LocatedPart(inner, (*path, "content", index)) for index, inner in enumerate(content)]
    if plan.target.binary_results == "summary":
        located_parts = summarize_binary(located_parts, plan.report)
    encoded = encode_parts(located_parts, plan)
    _mark_error(encoded, part)
    if part.cache is not None and plan.has_moving_marks and len(encoded) == 1 and isinstance(encoded[0], TextPart):
        lift_mark(part.cache, path, plan)
    elif part.cache is not None:
        mark_last_text(encoded, part.cache, path, plan)
    return encode_text_content(encoded, path, plan, "tool")


def report_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report as losses the fields of a result that Chat lacks."""
    report_function_result(part, located_part, plan, NO_RESULT_MARKS)
    plan.report_result_name(part, located_part.path)


def _encode_same_protocol_content(
    part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, body: dict[str, Any]
) -> None:
    """Write the content of a Chat result into `body`, as string or list like the source's."""
    if part.content is None:
        return
    mark = ERROR_MARK if part.status != "ok" else ""
    if STRING in part.wire_form and all(isinstance(text, Text) for text in part.content):
        body["content"] = mark + "".join(text.text for text in part.content if isinstance(text, Text))
        return
    located_parts = [
        LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(part.content)
    ]
    texts = encode_parts(located_parts, plan)
    _mark_error(texts, part)
    body["content"] = join_texts(texts, located_part.path, plan, "tool")


def _mark_error(texts: list[Any], part: ToolResult) -> None:
    """Prefix the encoded texts of a failed result with an error mark, since Chat has no field for it."""
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
    """Append media of a result to `hoisted` for a later user message; return the text that replaces them.

    Return an empty list if the part is not media.
    """
    if not isinstance(part, Media):
        return []
    if isinstance(part.source, Nested):
        nested = expand_nested_document(located_part, part, part.source, plan.report)
        replaced = [
            _hoist_media(item.part, item, result, plan, hoisted) or encode_parts([item], plan) for item in nested
        ]
        return [item for parts in replaced for item in parts]
    if plan.target.binary_results == "summary":
        plan.report.approximated(located_part.path, "", "binary content replaced by a summary line")
        return [TextPart(text=media_summary(part))]
    encoded = encode_parts([LocatedPart(part, located_part.path)], plan)
    if not encoded or isinstance(encoded[0], TextPart):
        return encoded or [TextPart(text=media_summary(part))]
    plan.report.approximated(
        located_part.path, "", "results of the target are text only; media sent in a user message after them"
    )
    label = f"{part.kind} of the result of {result.name or 'a tool'}, call {plan.call_id(result.call_id or '')}"
    hoisted += [TextPart(text=f"[{label}]"), *encoded]
    return [TextPart(text=f"[{label}: see the next user message]")]
