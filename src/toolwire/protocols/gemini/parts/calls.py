"""Gemini's calls and results of functions, to canonical parts and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Data, Media, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.codec.encoding.ids import is_derived_id
from toolwire.codec.encoding.media import media_summary, summarize_binary
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import merge_extras, none_to_unset, unset_to_none
from toolwire.protocols.gemini.field_case import FieldCase, encode_shape, make_extra
from toolwire.protocols.gemini.parts.signatures import decode_signature, is_dummy
from toolwire.protocols.gemini.wire import FAMILY, ISSUER, CallShape, PartShape, ResultShape
from toolwire.protocols.vendors.google.computer import COMPUTER_USE_KIND as SCREEN
from toolwire.protocols.vendors.google.computer import encode_result_object

NO_ARGS = "gemini:absent:args"
SIBLING_FORM = "gemini:sibling"
"""Media beside the result that it belongs to, as models before Gemini 3 want it."""
_RESPONSE_FORM = "gemini:response:"
OUTPUT_FORM = (_RESPONSE_FORM + "output",)
_NO_PARTS = "gemini:parts:empty"
_OUTPUT_KEYS = ("output", "result")
EMPTY_FAILURE_TEXT = "The tool failed and said nothing."
_BEFORE_GEMINI_3 = re.compile(r"gemini-[12](?:\D|$)")

# In an object the server takes these for references to media of the result, and refuses others.
_REFERENCES = (b'"$ref"', b'"$defs"')

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_json = msgspec.json.Decoder().decode


def is_before_gemini_3(plan: EncodingPlan) -> bool:
    """Whether the model is older than Gemini 3: without signatures to check, and without media in results."""
    return plan.target.model is not None and _BEFORE_GEMINI_3.search(plan.target.model) is not None


# ---- decode


def sibling_extras(part: PartShape, field_case: FieldCase, *, has_signature: bool = True) -> dict[str, Any]:
    """What stands beside the data of a part and has no canonical home there."""
    found: list[dict[str, Any]] = []
    if part.thought_signature is not UNSET and (not has_signature or is_dummy(part.thought_signature)):
        found.append(make_extra(field_case.source_pointer("thoughtSignature"), part.thought_signature))
    if part.thought is not UNSET:
        found.append(make_extra("thought", part.thought) if part.thought else {"wire_form": ("gemini:thought:false",)})
    return merge_extras(*found) if found else {}


def decode_call(part: PartShape, field_case: FieldCase) -> ToolCall:
    call = part.function_call
    if call is UNSET:
        raise TypeError("no call")
    field_case.normalize(call, "functionCall")
    if call.name is UNSET:
        raise DecodeError(
            FAMILY, f"{field_case.path}/{field_case.source_pointer('functionCall')}/name", "a string", "nothing"
        )
    absent = (NO_ARGS,) if call.args is UNSET else ()
    return ToolCall(
        id=unset_to_none(call.id),
        name=call.name,
        arguments="{}" if call.args is UNSET else str(call.args, "utf-8"),
        signature=decode_signature(part),
        **part_extras("ToolCall", part, field_case, (call, "functionCall"), absent),
    )


def part_extras(
    kind: str,
    part: PartShape,
    field_case: FieldCase,
    inner: tuple[Any, str],
    wire_form: tuple[str, ...] = (),
    *other_extras: dict[str, Any],
) -> dict[str, Any]:
    found = field_case.extras_and_form(kind, (part, ""), inner, wire_form=wire_form)
    side = sibling_extras(part, field_case, has_signature=inner[1] != "functionResponse")
    return merge_extras(found, side, *other_extras) if side or other_extras else found


def decode_result(part: PartShape, field_case: FieldCase, decode_media: Any) -> ToolResult:
    """`media` decodes a part of the result."""
    result = part.function_response
    if result is UNSET:
        raise TypeError("no result")
    field_case.normalize(result, "functionResponse")
    place = "/" + field_case.source_pointer("functionResponse")
    content, error, form = _decode_response(result.response, place + "/response")
    parts: list[Part] = []
    for index, inner in enumerate(result.parts if result.parts is not UNSET else ()):
        at = f"{place}/parts/{index}"
        parts.append(replace(decode_media(inner, field_case.path + at), at=at))
    if result.parts == []:
        form = (*form, _NO_PARTS)
    return ToolResult(
        call_id=unset_to_none(result.id),
        name=unset_to_none(result.name),
        content=None if content is None and not parts else (*(content or ()), *parts),
        status="error" if error else "ok",
        **part_extras("ToolResult", part, field_case, (result, "functionResponse"), form),
    )


def _decode_response(raw: Any, location: str) -> tuple[tuple[Part, ...] | None, bool, tuple[str, ...]]:
    """The content of a result, whether it failed, and its form. By convention text is under `output` or `result`, and
    what went wrong under `error`; any other object is taken as it is."""
    if raw is UNSET:
        return None, False, (_RESPONSE_FORM + "absent",)
    if bytes(raw)[:1] != b"{":
        return (Data(json=raw, at=location),), False, (_RESPONSE_FORM + "whole",)
    members = _decode_members(raw)
    if not members:
        return (), False, (_RESPONSE_FORM + "empty",)
    if len(members) == 1:
        (name, value) = next(iter(members.items()))
        if name in (*_OUTPUT_KEYS, "error") and bytes(value)[:1] == b'"':
            text = Text(text=_decode_json(value), at=f"{location}/{name}")
            return (text,), name == "error", (_RESPONSE_FORM + name,)
        if name == "error" and bytes(value) != b"null":
            return (Data(json=value, at=f"{location}/error"),), True, (_RESPONSE_FORM + "error",)
    failed = "error" in members and "output" not in members and bytes(members["error"]) != b"null"
    return (Data(json=raw, at=location),), failed, (_RESPONSE_FORM + "whole",)


# ---- encode


def encode_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    id = part.id
    if not plan.same_protocol:
        id = None if not id or is_derived_id(id) else plan.call_id(id)
        _report_call(part, located_part, plan)
    arguments = Raw(part.arguments.encode()) if plan.same_protocol else _encode_arguments(part, located_part, plan)
    if plan.same_protocol and NO_ARGS in part.wire_form and part.arguments == "{}":
        args: Any = UNSET
    else:
        args = arguments
    shape = CallShape(name=plan.tool_name(part.name, part.namespace), args=args, id=none_to_unset(id))
    return [encode_shape(with_signature(PartShape(function_call=shape), part, located_part, plan), part)]


def with_signature(shape: PartShape, part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> PartShape:
    if part.signature is not None:
        if part.signature.issuer == ISSUER:
            shape.thought_signature = part.signature.data
        else:
            plan.report.dropped(located_part.path, "signature", "signatures are only valid for their issuer")
    if "gemini:thought:false" in part.wire_form:
        shape.thought = False
    return shape


def _report_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> None:
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(located_part.path, "caller", "the target has no programmatic tool calls")
    for field in ("toolset", "asynchronous", "cache"):
        if getattr(part, field):
            plan.report.dropped(located_part.path, field)


def _encode_arguments(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Raw:
    """The arguments as the object that this protocol has for them."""
    if part.native is not None:
        plan.report.approximated(located_part.path, "", f"{part.native} sent as a function call")
    if part.shape == "freeform":
        return Raw(wrap_freeform_input(part.arguments).encode())
    text = part.arguments.strip().encode(errors="replace")
    if text in (b"", b"null"):
        return Raw(b"{}")
    try:
        _decode_members(text)
    except (msgspec.DecodeError, RecursionError):
        plan.report.approximated(located_part.path, "arguments", "not a JSON object; sent as text under _raw")
        return Raw(msgspec.json.encode({"_raw": part.arguments}))
    return Raw(text)


def encode_fast_result(part: ToolResult, call: ToolCall, plan: EncodingPlan) -> PartShape | None:
    """The result of this call, where it is nothing but text; None for any other."""
    content = part.content
    if part.status != "ok" or part.extras or part.cache is not None or part.caller is not None or part.toolset:
        return None
    if content is None or len(content) != 1 or type(only := content[0]) is not Text or not only.text:
        return None
    if only.cache is not None or only.annotations is not None or only.signature is not None or only.id is not None:
        return None
    id = part.call_id
    return PartShape(
        function_response=ResultShape(
            id=UNSET if not id or is_derived_id(id) else plan.call_id(id),
            name=plan.tool_name(call.name, call.namespace),
            response={"output": only.text},  # type: ignore[arg-type]
        )
    )


def encode_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, encode_parts: Any) -> list[Any]:
    """The result, and the media that stand beside it for a model that wants them there."""
    if plan.same_protocol:
        return _encode_same_protocol_result(part, located_part, plan, encode_parts)
    _report_result(part, located_part, plan)
    if part.screen is not None and part.native != SCREEN:
        part = encode_result_object(part)  # from the newer protocol, which has the text of it
    places = [
        LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(part.content or ())
    ]
    if plan.target.binary_results == "summary":
        places = summarize_binary(places, plan.report)
    media: list[Any] = []
    words: list[Any] = []
    for inner in places:
        if isinstance(inner.part, Data) and not any(word in bytes(inner.part.json) for word in _REFERENCES):
            words.append(inner.part.json)
            continue
        if isinstance(inner.part, Media) and inner.part.detail is not None:
            plan.report.dropped(inner.path, "detail", "the target has no media resolution in tool results")
            inner = LocatedPart(replace(inner.part, detail=None), inner.path)  # noqa: PLW2901
        shapes = encode_parts([inner], plan)
        if not shapes and isinstance(inner.part, Media):
            words.append(media_summary(inner.part))
        for shape in shapes:
            if isinstance(shape, PartShape) and shape.text is not UNSET:
                words.append(shape.text)
            else:
                media.append(shape)
    id = part.call_id
    shape = ResultShape(
        id=UNSET if not id or is_derived_id(id) else plan.call_id(id),
        name=plan.tool_name(part.name or "", part.namespace),
        response=_encode_response(part, words),
    )
    if media and (part.native == SCREEN or not is_before_gemini_3(plan)):
        shape.parts, media = media, []
    return [encode_shape(PartShape(function_response=shape), part), *media]


def _encode_response(part: ToolResult, texts: list[Any]) -> Any:
    """Text as it is, whatever it looks like: an object that only looks like JSON, or one with `$ref` in it, would be
    refused."""
    if part.native == SCREEN and texts and not isinstance(texts[0], str):
        return texts[0]
    value: Any = texts[0] if len(texts) == 1 else "\n".join(w if isinstance(w, str) else str(w, "utf-8") for w in texts)
    if part.status != "ok":
        return {"error": value or EMPTY_FAILURE_TEXT}
    return {"output": value} if texts else {}


def _report_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> None:
    if part.status == "denied":
        plan.report.approximated(located_part.path, "status", "denied sent as an error")
    for field in ("toolset", "cache"):
        if getattr(part, field) is not None:
            plan.report.dropped(located_part.path, field)
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(located_part.path, "caller", "the target has no programmatic tool calls")


def _encode_same_protocol_result(
    part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, encode_parts: Any
) -> list[Any]:
    said = part.content
    if (
        part.wire_form == OUTPUT_FORM
        and not part.extras
        and said is not None
        and len(said) == 1
        and type(said[0]) is Text
    ):
        response: Any = {"output": said[0].text}
        own = ResultShape(id=none_to_unset(part.call_id), name=none_to_unset(part.name), response=response)
        return [PartShape(function_response=own)]
    kind = next(
        (token.removeprefix(_RESPONSE_FORM) for token in part.wire_form if token.startswith(_RESPONSE_FORM)), "output"
    )
    content = said or ()
    first = 0 if kind in ("absent", "empty") or not content else 1
    response = UNSET if kind == "absent" else {}
    if first:
        only = content[0]
        value = only.text if isinstance(only, Text) else only.json if isinstance(only, Data) else None
        response = value if kind == "whole" else {kind: value}
    media: list[Any] = []
    siblings: list[Any] = []
    for index, inner in enumerate(content[first:], first):
        found = encode_parts([LocatedPart(inner, (*located_part.path, "content", index))], plan)
        (siblings if SIBLING_FORM in inner.wire_form else media).extend(found)
    shape = ResultShape(id=none_to_unset(part.call_id), name=none_to_unset(part.name), response=response)
    if media or _NO_PARTS in part.wire_form:
        shape.parts = media
    outer = PartShape(function_response=shape)
    if "gemini:thought:false" in part.wire_form:
        outer.thought = False
    return [encode_shape(outer, part), *siblings]
