"""Decode and encode tool calls and results.

Many servers and clients of this protocol have no call ids: results are matched by tool name and by order. Ids that
toolwire derived are therefore never written.
"""

from typing import Any

from msgspec import UNSET, Raw

from toolwire.canonical.content import Media, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.codec.encoding.arguments import encode_object_arguments, is_object
from toolwire.codec.encoding.fallbacks import call_name, report_call, report_result
from toolwire.codec.encoding.media import ERROR_MARK, ERROR_MARK_FORM, media_summary
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import UNANSWERED_TEXT, LocatedPart, is_derived_id
from toolwire.codec.wire.extras import collect_extras, merge_extras, restore_extras, unset_to_none
from toolwire.codec.wire.reader import describe_json
from toolwire.protocols.ollama.parts.content import ImageData, constant_extras, decode_images, encode_parts
from toolwire.protocols.ollama.wire import FAMILY, CallShape, MessageShape

INDEX_FORM = "ollama:index:"
NO_ARGUMENTS = "ollama:absent:arguments"
_NULL_ARGUMENTS = "ollama:null:function/arguments"
_TYPE_FORM = "ollama:explicit:type"

# A result that toolwire adds for an unanswered call has the path of that call.
_UNANSWERED_CONTENT = (Text(text=UNANSWERED_TEXT),)

NO_CACHE_REASON = "the target has no cache marks"


# ---- decode


def decode_call(shape: CallShape, number: int, path: str) -> ToolCall:
    """Decode the tool call at index `number`; its arguments must be an object."""
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
        raise DecodeError(FAMILY, f"{path}/function/arguments", "an object", describe_json(function.arguments))
    index: dict[str, Any] = {}
    if function.index == number:
        form = (*form, f"{INDEX_FORM}{number}")
    elif isinstance(function.index, int):
        index = {"extras": {FAMILY: {"function/index": Raw(str(function.index).encode())}}}
    extras = merge_extras(
        collect_extras(shape, FAMILY, *form),
        collect_extras(function, FAMILY, prefix="function/"),
        constant_extras("type", shape.type, "function"),
        index,
    )
    id = unset_to_none(shape.id)
    return ToolCall(id=id, name=function.name, arguments=arguments, at=f"/tool_calls/{number}", **extras)


def decode_result(shape: MessageShape) -> ToolResult:
    """Decode a `tool` message as a result."""
    parts: list[Part] = []
    failed = False
    if isinstance(shape.content, str):
        failed = shape.content.startswith(ERROR_MARK)
        parts.append(Text(text=shape.content.removeprefix(ERROR_MARK), at="/content"))
    if isinstance(shape.images, list):
        parts += decode_images(shape.images)
    return ToolResult(
        call_id=unset_to_none(shape.tool_call_id),
        content=tuple(parts) if parts else None,
        name=unset_to_none(shape.tool_name),
        status="error" if failed else "ok",
        wire_form=(ERROR_MARK_FORM,) if failed else (),
        at="",
    )


# ---- encode


def encode_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan, number: int) -> dict[str, Any]:
    """Encode one tool call."""
    if plan.same_protocol:
        return _encode_same_protocol_call(part)
    report_call(part, located_part, plan, NO_CACHE_REASON)
    function = {
        "index": number,
        "name": call_name(part, plan),
        "arguments": encode_object_arguments(part, located_part, plan),
    }
    if part.id and not is_derived_id(part.id):
        return {"id": plan.call_id(part.id), "function": function}
    return {"function": function}


def _encode_same_protocol_call(part: ToolCall) -> dict[str, Any]:
    """Encode a call that came from Ollama."""
    body: dict[str, Any] = {}
    if part.id is not None:
        body["id"] = part.id
    if _TYPE_FORM in part.wire_form:
        body["type"] = "function"
    function: dict[str, Any] = {}
    for token in part.wire_form:
        if token.startswith(INDEX_FORM):
            function["index"] = int(token.removeprefix(INDEX_FORM))
    function["name"] = part.name
    if part.arguments or not {NO_ARGUMENTS, _NULL_ARGUMENTS} & set(part.wire_form):
        function["arguments"] = Raw(text) if is_object(text := part.arguments.encode(errors="replace")) else {}
    body["function"] = function
    return restore_extras(body, part, FAMILY)


class CallIndex:
    """The calls of the last assistant turn, to name results that only have a call id."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def add(self, part: ToolCall, plan: EncodingPlan) -> None:
        """Record the tool name of a call, so that its result can be named."""
        name = call_name(part, plan)
        self._counts[name] = self._counts.get(name, 0) + 1
        if part.id:
            self._names[part.id] = name

    def name_for(self, result: ToolResult, plan: EncodingPlan) -> str | None:
        """Return the tool name of a result, or None if its call is unknown."""
        if result.name is not None:
            return plan.tool_name(result.name, result.namespace)
        return self._names.get(result.call_id or "")

    def is_ambiguous(self, name: str | None) -> bool:
        """Check whether the tool was called more than once, so that its name does not identify a call."""
        return self._counts.get(name or "", 0) > 1


def encode_result(
    part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, call_index: CallIndex
) -> dict[str, Any]:
    """Encode one result as a `tool` message."""
    body: dict[str, Any] = {"role": "tool"}
    if plan.same_protocol:
        _encode_same_protocol_result(part, located_part, plan, body)
        return body
    report_result(part, located_part, plan, NO_CACHE_REASON)
    name = call_index.name_for(part, plan)
    has_id = bool(part.call_id) and not is_derived_id(part.call_id or "")
    if call_index.is_ambiguous(name):
        reason = f"{name} was called more than once and the target matches results by name; matched by order"
        plan.report.approximated(
            located_part.path,
            "call_id" if has_id and part.content != _UNANSWERED_CONTENT else "",
            reason,
            severity="info",
        )
    texts, images = _encode_content(part, located_part, plan)
    body["content"] = (ERROR_MARK if part.status != "ok" else "") + "\n".join(texts)
    if images:
        body["images"] = images
    if name is not None:
        body["tool_name"] = name
    if has_id:
        body["tool_call_id"] = plan.call_id(part.call_id or "")
    return body


def _encode_content(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> tuple[list[str], list[str]]:
    """Encode the content of a result; return its texts and its images as base64."""
    texts: list[str] = []
    images: list[str] = []
    for index, inner in enumerate(part.content or ()):
        located_inner = LocatedPart(inner, (*located_part.path, "content", index))
        if isinstance(inner, Media) and plan.target.binary_results == "summary":
            plan.report.approximated(located_inner.path, "", "binary content replaced by a summary line")
            texts.append(media_summary(inner))
            continue
        pieces = encode_parts([located_inner], plan)
        texts += [piece for piece in pieces if isinstance(piece, str)]
        images += [piece.data for piece in pieces if isinstance(piece, ImageData)]
        if isinstance(inner, Media) and not pieces:
            texts.append(media_summary(inner))
    return texts, images


def _encode_same_protocol_result(
    part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, body: dict[str, Any]
) -> None:
    """Write the content of an Ollama result into `body`, with the fields it had."""
    inner_parts = [
        LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(part.content or ())
    ]
    pieces = encode_parts(inner_parts, plan)
    texts = [piece for piece in pieces if isinstance(piece, str)]
    images = [piece.data for piece in pieces if isinstance(piece, ImageData)]
    if texts or part.status != "ok":
        body["content"] = (ERROR_MARK if part.status != "ok" else "") + "\n".join(texts)
    if images:
        body["images"] = images
    if part.name is not None:
        body["tool_name"] = part.name
    if part.call_id is not None:
        body["tool_call_id"] = part.call_id
