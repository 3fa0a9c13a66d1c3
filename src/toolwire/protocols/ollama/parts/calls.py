"""Ollama's tool calls and results, to canonical parts and back.

Many servers and clients of this protocol know no ids: results are told from each other by the name of their tool, and
by their order. An id that toolwire made is therefore never written here.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Media, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.codec.fields import told
from toolwire.codec.ids import is_made
from toolwire.codec.kept import joined, known, rest, restore
from toolwire.codec.media import ERROR_MARK, MARKED, summary
from toolwire.codec.plan import Plan
from toolwire.codec.telling import call_name, report_call, report_result
from toolwire.codec.tools import lower_input
from toolwire.codec.turns import UNANSWERED, Placed
from toolwire.protocols.ollama.wire import FAMILY, CallShape, MessageShape

from .content import Picture, decode_images, encode_parts, spelled

INDEX = "ollama:index:"
NO_ARGUMENTS = "ollama:absent:arguments"
_NULL_ARGUMENTS = "ollama:null:function/arguments"
_SAID_TYPE = "ollama:said:type"

# Such a result has the trail of its call.
_PLACEHOLDER = (Text(text=UNANSWERED),)

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
NO_MARKS = "the target has no cache marks"


# ---- decode


def decode_call(shape: CallShape, number: int, path: str) -> ToolCall:
    function = shape.function
    arguments = ""
    form: tuple[str, ...] = ()
    if function.arguments is UNSET:
        form = (NO_ARGUMENTS,)
    elif bytes(function.arguments) == b"null":
        form = (_NULL_ARGUMENTS,)
    elif bytes(function.arguments)[:1] == b"{":
        arguments = str(function.arguments, "utf-8")
    else:
        raise DecodeError(FAMILY, f"{path}/function/arguments", "an object", told(function.arguments))
    index: dict[str, Any] = {}
    if function.index == number:
        form = (*form, f"{INDEX}{number}")
    elif isinstance(function.index, int):
        index = {"extras": {FAMILY: {"function/index": Raw(str(function.index).encode())}}}
    found = joined(
        rest(shape, FAMILY, *form),
        rest(function, FAMILY, under="function/"),
        spelled("type", shape.type, "function"),
        index,
    )
    id = known(shape.id)
    return ToolCall(id=id, name=function.name, arguments=arguments, at=f"/tool_calls/{number}", **found)


def decode_result(shape: MessageShape) -> ToolResult:
    """The result that a `tool` message is."""
    parts: list[Part] = []
    failed = False
    if isinstance(shape.content, str):
        failed = shape.content.startswith(ERROR_MARK)
        parts.append(Text(text=shape.content.removeprefix(ERROR_MARK), at="/content"))
    if isinstance(shape.images, list):
        parts += decode_images(shape.images)
    return ToolResult(
        call_id=known(shape.tool_call_id),
        content=tuple(parts) if parts else None,
        name=known(shape.tool_name),
        status="error" if failed else "ok",
        form=(MARKED,) if failed else (),
        at="",
    )


# ---- encode


def encode_call(part: ToolCall, placed: Placed, plan: Plan, number: int) -> dict[str, Any]:
    if plan.home:
        return _encode_own(part)
    report_call(part, placed, plan, NO_MARKS)
    function = {"index": number, "name": call_name(part, plan), "arguments": _encode_arguments(part, placed, plan)}
    if part.id and not is_made(part.id):
        return {"id": plan.call_id(part.id), "function": function}
    return {"function": function}


def _encode_own(part: ToolCall) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if part.id is not None:
        body["id"] = part.id
    if _SAID_TYPE in part.form:
        body["type"] = "function"
    function: dict[str, Any] = {}
    for token in part.form:
        if token.startswith(INDEX):
            function["index"] = int(token.removeprefix(INDEX))
    function["name"] = part.name
    if part.arguments or not {NO_ARGUMENTS, _NULL_ARGUMENTS} & set(part.form):
        function["arguments"] = Raw(part.arguments.encode()) if _is_object(part.arguments) else {}
    body["function"] = function
    return restore(body, part, FAMILY)


def _is_object(text: str) -> bool:
    try:
        _decode_members(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _encode_arguments(part: ToolCall, placed: Placed, plan: Plan) -> Raw:
    """The arguments as the object that the protocol has for them."""
    if part.shape == "freeform":
        return Raw(lower_input(part.arguments).encode())
    text = part.arguments.strip()
    if text in ("", "null"):
        return Raw(b"{}")
    if _is_object(text):
        return Raw(text.encode())
    plan.report.approximated(placed.trail, "arguments", "not a JSON object: sent as text")
    return Raw(msgspec.json.encode({"_raw": part.arguments}))


class Asked:
    """The calls of the last turn that asked for something: their names by id, which most protocols' results lack."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def add(self, part: ToolCall, plan: Plan) -> None:
        name = call_name(part, plan)
        self._count[name] = self._count.get(name, 0) + 1
        if part.id:
            self._names[part.id] = name

    def name(self, result: ToolResult, plan: Plan) -> str | None:
        if result.name is not None:
            return plan.name(result.name, result.namespace)
        return self._names.get(result.call_id or "")

    def is_ambiguous(self, name: str | None) -> bool:
        return self._count.get(name or "", 0) > 1


def encode_result(part: ToolResult, placed: Placed, plan: Plan, asked: Asked) -> dict[str, Any]:
    """The message of one result."""
    body: dict[str, Any] = {"role": "tool"}
    if plan.home:
        _encode_own_result(part, placed, plan, body)
        return body
    report_result(part, placed, plan, NO_MARKS)
    name = asked.name(part, plan)
    said = bool(part.call_id) and not is_made(part.call_id or "")
    if asked.is_ambiguous(name):
        why = f"{name} was called more than once, and the target knows results by name: only their order tells"
        plan.report.approximated(placed.trail, "call_id" if said and part.content != _PLACEHOLDER else "", why)
    texts, images = _encode_content(part, placed, plan)
    body["content"] = (ERROR_MARK if part.status != "ok" else "") + "\n".join(texts)
    if images:
        body["images"] = images
    if name is not None:
        body["tool_name"] = name
    if said:
        body["tool_call_id"] = plan.call_id(part.call_id or "")
    return body


def _encode_content(part: ToolResult, placed: Placed, plan: Plan) -> tuple[list[str], list[str]]:
    texts: list[str] = []
    images: list[str] = []
    for index, inner in enumerate(part.content or ()):
        within = Placed(inner, (*placed.trail, "content", index))
        if isinstance(inner, Media) and plan.target.binary_results == "summary":
            plan.report.approximated(within.trail, "", "a line in place of binary content")
            texts.append(summary(inner))
            continue
        pieces = encode_parts([within], plan)
        texts += [piece for piece in pieces if isinstance(piece, str)]
        images += [piece.data for piece in pieces if isinstance(piece, Picture)]
        if isinstance(inner, Media) and not pieces:
            texts.append(summary(inner))
    return texts, images


def _encode_own_result(part: ToolResult, placed: Placed, plan: Plan, body: dict[str, Any]) -> None:
    places = [Placed(inner, (*placed.trail, "content", index)) for index, inner in enumerate(part.content or ())]
    pieces = encode_parts(places, plan)
    texts = [piece for piece in pieces if isinstance(piece, str)]
    images = [piece.data for piece in pieces if isinstance(piece, Picture)]
    if texts or part.status != "ok":
        body["content"] = (ERROR_MARK if part.status != "ok" else "") + "\n".join(texts)
    if images:
        body["images"] = images
    if part.name is not None:
        body["tool_name"] = part.name
    if part.call_id is not None:
        body["tool_call_id"] = part.call_id
