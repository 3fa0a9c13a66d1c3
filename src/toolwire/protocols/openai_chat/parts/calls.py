"""Chat's tool calls and results, to canonical parts and back."""

from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import Foreign, Media, Nested, Part, Text, ToolCall, ToolResult
from toolwire.codec.kept import as_object, joined, known, restore
from toolwire.codec.media import ERROR_MARK, MARKED, opened, summary
from toolwire.codec.plan import Plan
from toolwire.codec.telling import call_in_words, call_name, result_in_words
from toolwire.codec.telling import report_call as report_function_call
from toolwire.codec.telling import report_result as report_function_result
from toolwire.codec.tools import lower_input
from toolwire.codec.turns import Placed
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    CallShape,
    CustomCallShape,
    FunctionCallShape,
    MessageShape,
    TextPart,
)

from .content import STRING, decode_parts, encode_parts, kept, spelled, spelling
from .texts import plain_content

CALL = "openai-chat:call"
LEGACY = "openai-chat:legacy"
OBJECT = "openai-chat:object"
NO_NAME = "openai-chat:absent:name"
NO_ARGUMENTS = "openai-chat:absent:arguments"
CUSTOM_NAMES = ("openai-chat:name:name=custom/name", "openai-chat:name:arguments=custom/input")
LEGACY_NAMES = ("openai-chat:name:name=name", "openai-chat:name:arguments=arguments")

_WRAPPED = '{"_raw"'

# Most have nothing but what their protocols share: that is asked of all fields at once.
_of_call = attrgetter("native", "executor", "shape", "seal", "cache", "toolset")
_USUAL_CALL = (None, "client", "json", None, None, None)
_of_result = attrgetter("status", "native", "executor", "name", "namespace", "cache", "caller", "toolset")
_USUAL_RESULT = ("ok", None, "client", None, None, None, None, None)
_of_text = attrgetter("cache", "extras", "annotations", "id")
_USUAL_TEXT = (None, None, None, None)
_decode_members = msgspec.json.Decoder(dict[str, Any]).decode
_is_json = msgspec.json.Decoder(Raw).decode


def is_json(text: str) -> bool:
    try:
        _is_json(text.encode(errors="surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


# ---- decode


def decode_call(shape: CallShape, index: int) -> ToolCall | Foreign:
    at = f"/tool_calls/{index}"
    function = shape.function
    if isinstance(shape.custom, CustomCallShape) and not (isinstance(function, FunctionCallShape) and function.name):
        return _decode_custom(shape, shape.custom, at)
    if not isinstance(function, FunctionCallShape):
        body = as_object(shape) | (known(shape.unknown) or {}) | dict.fromkeys(known(shape.nulls) or ())
        raw = Raw(msgspec.json.encode(body))
        return Foreign(protocol=FAMILY, kind=known(shape.type) or "", body=raw, form=(CALL,), at=at)
    if _is_usual(shape) and isinstance(function.name, str) and isinstance(function.arguments, str):
        return ToolCall(id=known(shape.id), name=function.name, arguments=function.arguments, at=at)
    arguments, form = decode_arguments(function)
    form = (*form, *_unnamed(function.name))
    found = joined(kept(shape, *form), spelled("type", shape.type, "function"), kept(function, under="function/"))
    if shape.custom is not UNSET and shape.custom is not None:
        custom = {"custom": Raw(msgspec.json.encode(shape.custom))}
        found = joined(found, {"extras": {FAMILY: custom}})
    return ToolCall(id=known(shape.id), name=known(function.name) or "", arguments=arguments, at=at, **found)


def _is_usual(shape: CallShape) -> bool:
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
    form = (*CUSTOM_NAMES, *_unnamed(custom.name))
    if custom.input is UNSET:
        form = (*form, NO_ARGUMENTS)
    found = joined(kept(shape, *form), spelled("type", shape.type, "custom"), kept(custom, under="custom/"))
    if isinstance(shape.function, FunctionCallShape):
        found = joined(found, {"extras": {FAMILY: {"function": Raw(msgspec.json.encode(shape.function))}}})
    return ToolCall(
        id=known(shape.id),
        name=known(custom.name) or "",
        arguments=known(custom.input) or "",
        shape="freeform",
        at=at,
        **found,
    )


def _unnamed(name: str | UnsetType | None) -> tuple[str, ...]:
    return (NO_NAME,) if name is UNSET else ()


def decode_arguments(shape: FunctionCallShape) -> tuple[str, tuple[str, ...]]:
    """The exact text that the model wrote, and how it was spelled if not as a string."""
    if isinstance(shape.arguments, str):
        return shape.arguments, ()
    if shape.arguments is UNSET and shape.unknown is not UNSET and "arguments" in shape.unknown:
        return str(shape.unknown.pop("arguments"), "utf-8"), (OBJECT,)
    return "", () if shape.arguments is None else (NO_ARGUMENTS,)


def decode_legacy(shape: FunctionCallShape) -> ToolCall:
    arguments, form = decode_arguments(shape)
    found = kept(shape, LEGACY, *LEGACY_NAMES, *form, *_unnamed(shape.name))
    return ToolCall(id=None, name=known(shape.name) or "", arguments=arguments, at="/function_call", **found)


def decode_result(shape: MessageShape) -> ToolResult:
    """The result that a `tool` or `function` message is."""
    content: tuple[Part, ...] | None = None
    form: tuple[str, ...] = (LEGACY,) if shape.role == "function" else ()
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
        call_id=known(shape.tool_call_id),
        content=content,
        name=known(shape.name),
        status="error" if failed else "ok",
        form=(*form, MARKED) if failed else form,
        at="",
    )


# ---- encode


def is_ordinary(part: ToolCall, plan: Plan) -> bool:
    """Whether a call of another protocol says no more than a call here can."""
    return (
        _of_call(part) == _USUAL_CALL
        and (part.caller is None or part.caller.kind == "direct")
        and not part.asynchronous
        and part.arguments != ""
        and not part.arguments.startswith(_WRAPPED)
        and (part.id in plan.legal or plan.is_legal(part.id))
    )


def ordinary_result(part: Part, plan: Plan) -> dict[str, Any] | None:
    """The message of a result that is one text, and nothing out of the ordinary; None for any other part."""
    if type(part) is not ToolResult or _of_result(part) != _USUAL_RESULT:
        return None
    content = part.content
    if content is None or len(content) != 1 or type(only := content[0]) is not Text:
        return None
    if _of_text(only) != _USUAL_TEXT or not (part.call_id in plan.legal or plan.is_legal(part.call_id)):
        return None
    return {"role": "tool", "tool_call_id": part.call_id, "content": only.text}


def encode_call(part: ToolCall, placed: Placed, plan: Plan) -> Any:
    if plan.home:
        return _encode_own(part)
    report_call(part, placed, plan)
    id = plan.id_of(placed)
    name = call_name(part, plan)
    if part.shape == "freeform":
        if plan.tools.freeform:
            return {"id": id, "type": "custom", "custom": {"name": name, "input": part.arguments}}
        return {"id": id, "type": "function", "function": {"name": name, "arguments": lower_input(part.arguments)}}
    arguments = part.arguments if part.arguments and not part.arguments.isspace() else "{}"
    if arguments.startswith(_WRAPPED):
        arguments = _unwrapped(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _unwrapped(arguments: str) -> str:
    """The text that was no object and went to another protocol inside one, as it was."""
    try:
        members = _decode_members(arguments.encode())
    except msgspec.DecodeError:
        return arguments
    text = members.get("_raw")
    return text if len(members) == 1 and isinstance(text, str) else arguments


def report_call(part: ToolCall, placed: Placed, plan: Plan) -> None:
    report_function_call(part, placed, plan, "the target has no cache marks on calls")


def _encode_own(part: ToolCall) -> Any:
    body: dict[str, Any] = {}
    if part.id is not None:
        body["id"] = part.id
    kind = "custom" if part.shape == "freeform" else "function"
    if (written := spelling(part, "type", kind)) is not UNSET:
        body["type"] = written
    body[kind] = encode_function(part, f"{kind}/")
    return restore(body, part, FAMILY)


def encode_function(part: ToolCall, under: str = "") -> dict[str, Any]:
    """Name and arguments of a call, as its own server spelled them."""
    body: dict[str, Any] = {}
    inner = "input" if part.shape == "freeform" else "arguments"
    if part.name or not {NO_NAME, f"{FAMILY}:null:{under}name"} & set(part.form):
        body["name"] = part.name
    if OBJECT in part.form and is_json(part.arguments):
        body[inner] = Raw(part.arguments.encode())
    elif part.arguments or not {NO_ARGUMENTS, f"{FAMILY}:null:{under}{inner}"} & set(part.form):
        body[inner] = part.arguments
    return body


def encode_server_call(part: ToolCall, placed: Placed, plan: Plan) -> TextPart | None:
    text = call_in_words(part, placed, plan)
    return None if text is None else TextPart(text=text)


def encode_server_result(part: ToolResult, placed: Placed, plan: Plan) -> TextPart | None:
    text = result_in_words(part, placed, plan)
    return None if text is None else TextPart(text=text)


def encode_result(part: ToolResult, placed: Placed, plan: Plan, hoisted: list[Any]) -> dict[str, Any]:
    """The message of one result. Media, which it can't hold, are put into `hoisted` to be shown after it."""
    body: dict[str, Any] = {"role": "tool"}
    if plan.home:
        if LEGACY in part.form:
            body["role"] = "function"
        if part.call_id is not None:
            body["tool_call_id"] = part.call_id
        if part.name is not None:
            body["name"] = part.name
        _encode_own_content(part, placed, plan, body)
        return body
    report_result(part, placed, plan)
    body["tool_call_id"] = plan.call_id(part.call_id or "")
    content = part.content
    if content is not None and len(content) == 1 and type(only := content[0]) is Text and only.cache is None:
        text = only.text
        body["content"] = text if part.status == "ok" else ERROR_MARK + text
        return body
    texts: list[Any] = []
    for index, inner in enumerate(content or ()):
        within = Placed(inner, (*placed.trail, "content", index))
        texts += _encode_media(inner, within, part, plan, hoisted) or encode_parts([within], plan)
    _mark(texts, part)
    body["content"] = plain_content(texts, placed.trail, plan)
    return body


def report_result(part: ToolResult, placed: Placed, plan: Plan) -> None:
    report_function_result(part, placed, plan, "the target has no cache marks on results")
    plan.report_name(part, placed.trail)


def _encode_own_content(part: ToolResult, placed: Placed, plan: Plan, body: dict[str, Any]) -> None:
    if part.content is None:
        return
    mark = ERROR_MARK if part.status != "ok" else ""
    if STRING in part.form and all(isinstance(one, Text) for one in part.content):
        body["content"] = mark + "".join(one.text for one in part.content if isinstance(one, Text))
        return
    places = [Placed(inner, (*placed.trail, "content", index)) for index, inner in enumerate(part.content)]
    body["content"] = encode_parts(places, plan)
    _mark(body["content"], part)


def _mark(texts: list[Any], part: ToolResult) -> None:
    if part.status == "ok":
        return
    first = texts[0] if texts else None
    if isinstance(first, TextPart):
        first.text = ERROR_MARK + first.text
    elif isinstance(first, dict) and isinstance(first.get("text"), str):
        first["text"] = ERROR_MARK + first["text"]
    else:
        texts.insert(0, TextPart(text=ERROR_MARK))


def _encode_media(part: Part, placed: Placed, result: ToolResult, plan: Plan, hoisted: list[Any]) -> list[Any]:
    """A line in place of media, which are hoisted; nothing if this is no media, or can be told as text."""
    if not isinstance(part, Media):
        return []
    if isinstance(part.source, Nested):
        inner = opened(placed, part, part.source, plan.report)
        told = [_encode_media(one.part, one, result, plan, hoisted) or encode_parts([one], plan) for one in inner]
        return [one for parts in told for one in parts]
    if plan.target.binary_results == "summary":
        plan.report.approximated(placed.trail, "", "a line in place of binary content")
        return [TextPart(text=summary(part))]
    shown = encode_parts([Placed(part, placed.trail)], plan)
    if not shown or isinstance(shown[0], TextPart):
        return shown or [TextPart(text=summary(part))]
    plan.report.approximated(placed.trail, "", "results hold text only: shown in a user message after them")
    label = f"{part.kind} of the result of {result.name or 'a tool'}, call {plan.call_id(result.call_id or '')}"
    hoisted += [TextPart(text=f"[{label}]"), *shown]
    return [TextPart(text=f"[{label}: see the next user message]")]
