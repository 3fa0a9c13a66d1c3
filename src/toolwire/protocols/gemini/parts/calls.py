"""Decode and encode function calls and function responses."""

import re
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Data, Media, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.codec.encoding.arguments import encode_object_arguments
from toolwire.codec.encoding.media import media_summary, summarize_binary
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, is_derived_id
from toolwire.codec.wire.extras import merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import decode_json, decode_members
from toolwire.protocols.gemini.field_case import FieldCase, encode_shape, make_extra
from toolwire.protocols.gemini.parts.signatures import decode_signature, is_dummy
from toolwire.protocols.gemini.wire import FAMILY, ISSUER, CallShape, PartShape, ResultShape
from toolwire.protocols.vendors.google.computer import COMPUTER_USE_KIND, encode_result_object

NO_ARGS = "gemini:absent:args"
SIBLING_FORM = "gemini:sibling"
"""Marks media sent as sibling parts of their result, as models before Gemini 3 require."""
_RESPONSE_FORM = "gemini:response:"
OUTPUT_FORM = (_RESPONSE_FORM + "output",)
_NO_PARTS = "gemini:parts:empty"
_OUTPUT_KEYS = ("output", "result")
EMPTY_FAILURE_TEXT = "The tool failed and said nothing."  # sent to the model
_BEFORE_GEMINI_3 = re.compile(r"gemini-[12](?:\D|$)")

# The server resolves these keys as references to media of the result and rejects other targets.
_REFERENCES = (b'"$ref"', b'"$defs"')


def is_before_gemini_3(plan: EncodingPlan) -> bool:
    """Check whether the target model is older than Gemini 3.

    Such a model checks no signatures and takes no media in results.
    """
    return plan.target.model is not None and _BEFORE_GEMINI_3.search(plan.target.model) is not None


# ---- decode


def sibling_extras(part: PartShape, field_case: FieldCase, *, has_signature: bool = True) -> dict[str, Any]:
    """Collect the extras of a part: fields next to its data field that have no canonical counterpart."""
    extras: list[dict[str, Any]] = []
    if part.thought_signature is not UNSET and (not has_signature or is_dummy(part.thought_signature)):
        extras.append(make_extra(field_case.source_pointer("thoughtSignature"), part.thought_signature))
    if part.thought is not UNSET:
        extras.append(make_extra("thought", part.thought) if part.thought else {"wire_form": ("gemini:thought:false",)})
    return merge_extras(*extras) if extras else {}


def decode_call(part: PartShape, field_case: FieldCase) -> ToolCall:
    """Decode a `functionCall` part."""
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
    data_object: tuple[Any, str],
    wire_form: tuple[str, ...] = (),
    *other_extras: dict[str, Any],
) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments for a part.

    `data_object` is the wire object of its data field, with the name of that field. `kind` names the canonical class.
    """
    extras = field_case.extras_and_form(kind, (part, ""), data_object, wire_form=wire_form)
    siblings = sibling_extras(part, field_case, has_signature=data_object[1] != "functionResponse")
    return merge_extras(extras, siblings, *other_extras) if siblings or other_extras else extras


def decode_result(part: PartShape, field_case: FieldCase, decode_media: Any) -> ToolResult:
    """Decode a `functionResponse` part; `decode_media` decodes a part inside the result."""
    result = part.function_response
    if result is UNSET:
        raise TypeError("no result")
    field_case.normalize(result, "functionResponse")
    location = "/" + field_case.source_pointer("functionResponse")
    content, error, form = _decode_response(result.response, location + "/response")
    parts: list[Part] = []
    for index, inner in enumerate(result.parts if result.parts is not UNSET else ()):
        at = f"{location}/parts/{index}"
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
    """Decode a response object; return its content, whether it is a failure, and wire-form tokens.

    By convention text is under `output` or `result`, and a failure under `error`. Any other object becomes JSON data.
    """
    if raw is UNSET:
        return None, False, (_RESPONSE_FORM + "absent",)
    if bytes(raw)[:1] != b"{":
        return (Data(json=raw, at=location),), False, (_RESPONSE_FORM + "whole",)
    members = decode_members(raw)
    if not members:
        return (), False, (_RESPONSE_FORM + "empty",)
    if len(members) == 1:
        (name, value) = next(iter(members.items()))
        if name in (*_OUTPUT_KEYS, "error") and bytes(value)[:1] == b'"':
            text = Text(text=decode_json(value), at=f"{location}/{name}")
            return (text,), name == "error", (_RESPONSE_FORM + name,)
        if name == "error" and bytes(value) != b"null":
            return (Data(json=value, at=f"{location}/error"),), True, (_RESPONSE_FORM + "error",)
    has_error = "error" in members and "output" not in members and bytes(members["error"]) != b"null"
    return (Data(json=raw, at=location),), has_error, (_RESPONSE_FORM + "whole",)


# ---- encode


def encode_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode a call of a client-side function as parts."""
    id = part.id
    if not plan.same_protocol:
        id = None if not id or is_derived_id(id) else plan.call_id(id)
        _report_call(part, located_part, plan)
    arguments = (
        Raw(part.arguments.encode()) if plan.same_protocol else encode_object_arguments(part, located_part, plan)
    )
    if plan.same_protocol and NO_ARGS in part.wire_form and part.arguments == "{}":
        args: Any = UNSET
    else:
        args = arguments
    shape = CallShape(name=plan.tool_name(part.name, part.namespace), args=args, id=none_to_unset(id))
    return [encode_shape(with_signature(PartShape(function_call=shape), part, located_part, plan), part)]


def with_signature(shape: PartShape, part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> PartShape:
    """Return the part with the thought signature of its call; report one that Google did not issue."""
    if part.signature is not None:
        if part.signature.issuer == ISSUER:
            shape.thought_signature = part.signature.data
        else:
            plan.report.dropped(located_part.path, "signature", "signatures are only valid for their issuer")
    if "gemini:thought:false" in part.wire_form:
        shape.thought = False
    return shape


def _report_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's call that Gemini does not have."""
    if part.native is not None:
        plan.report.approximated(located_part.path, "", f"{part.native} sent as a function call")
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(located_part.path, "caller", "the target has no programs that call tools")
    for field in ("toolset", "asynchronous", "cache"):
        if getattr(part, field):
            plan.report.dropped(located_part.path, field)


def encode_fast_result(part: ToolResult, call: ToolCall, plan: EncodingPlan) -> PartShape | None:
    """Encode a result of `call` that is one plain text; return None for any other."""
    content = part.content
    if part.status != "ok" or part.extras or part.cache is not None or part.caller is not None or part.toolset:
        return None
    if content is None or len(content) != 1 or type(only := content[0]) is not Text or not is_bare_text(only):
        return None
    id = part.call_id
    return PartShape(
        function_response=ResultShape(
            id=UNSET if not id or is_derived_id(id) else plan.call_id(id),
            name=plan.tool_name(call.name, call.namespace),
            response={"output": only.text},  # type: ignore[arg-type]
        )
    )


def is_bare_text(text: Text) -> bool:
    """Check that a text is not empty and has no citations, signature, id or cache mark."""
    if text.cache is not None or text.annotations is not None:
        return False
    return bool(text.text) and text.signature is None and text.id is None


def encode_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, encode_parts: Any) -> list[Any]:
    """Encode a result as parts; media come after it for models that do not take them inside it."""
    if plan.same_protocol:
        return _encode_same_protocol_result(part, located_part, plan, encode_parts)
    _report_result(part, located_part, plan)
    if part.screen is not None and part.native != COMPUTER_USE_KIND:
        part = encode_result_object(part)  # Interactions sends this object as text
    texts, media = _encode_result_content(part, located_part, plan, encode_parts)
    id = part.call_id
    shape = ResultShape(
        id=UNSET if not id or is_derived_id(id) else plan.call_id(id),
        name=plan.tool_name(part.name or "", part.namespace),
        response=_encode_response(part, texts),
    )
    if media and (part.native == COMPUTER_USE_KIND or not is_before_gemini_3(plan)):
        shape.parts, media = media, []
    return [encode_shape(PartShape(function_response=shape), part), *media]


def _encode_result_content(
    part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, encode_parts: Any
) -> tuple[list[Any], list[Any]]:
    """Encode the content of a result; return its texts or raw JSON values, and its media parts."""
    inner_parts = [
        LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(part.content or ())
    ]
    if plan.target.binary_results == "summary":
        inner_parts = summarize_binary(inner_parts, plan.report)
    texts: list[Any] = []
    media: list[Any] = []
    for inner in inner_parts:
        if isinstance(inner.part, Data) and not any(key in bytes(inner.part.json) for key in _REFERENCES):
            texts.append(inner.part.json)
            continue
        if isinstance(inner.part, Media) and inner.part.detail is not None:
            plan.report.dropped(inner.path, "detail", "the target has no media resolution in tool results")
            inner = LocatedPart(replace(inner.part, detail=None), inner.path)  # noqa: PLW2901
        shapes = encode_parts([inner], plan)
        if not shapes and isinstance(inner.part, Media):
            texts.append(media_summary(inner.part))
        for shape in shapes:
            if isinstance(shape, PartShape) and shape.text is not UNSET:
                texts.append(shape.text)
            else:
                media.append(shape)
    return texts, media


def _encode_response(part: ToolResult, texts: list[Any]) -> Any:
    """Build the response object of a result from its texts and raw JSON values.

    Text stays text even if it looks like JSON: the server rejects some objects, such as those with `$ref`.
    """
    if part.native == COMPUTER_USE_KIND and texts and not isinstance(texts[0], str):
        return texts[0]
    if len(texts) == 1:
        value: Any = texts[0]
    else:
        value = "\n".join(text if isinstance(text, str) else str(text, "utf-8") for text in texts)
    if part.status != "ok":
        return {"error": value or EMPTY_FAILURE_TEXT}
    return {"output": value} if texts else {}


def _report_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's result that Gemini does not have."""
    if part.status == "denied":
        plan.report.approximated(located_part.path, "status", "denied sent as an error")
    plan.report.dropped_fields(located_part.path, part, "toolset", "cache")
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(located_part.path, "caller", "the target has no programs that call tools")


def _encode_same_protocol_result(
    part: ToolResult, located_part: LocatedPart, plan: EncodingPlan, encode_parts: Any
) -> list[Any]:
    """Encode a result that came from a Gemini client, with its original spelling."""
    content = part.content or ()
    if part.wire_form == OUTPUT_FORM and not part.extras and len(content) == 1 and type(only := content[0]) is Text:
        response: Any = {"output": only.text}
        result = ResultShape(id=none_to_unset(part.call_id), name=none_to_unset(part.name), response=response)
        return [PartShape(function_response=result)]
    response, media_start = _restore_response(part)
    media: list[Any] = []
    siblings: list[Any] = []
    for index, inner in enumerate(content[media_start:], media_start):
        shapes = encode_parts([LocatedPart(inner, (*located_part.path, "content", index))], plan)
        (siblings if SIBLING_FORM in inner.wire_form else media).extend(shapes)
    shape = ResultShape(id=none_to_unset(part.call_id), name=none_to_unset(part.name), response=response)
    if media or _NO_PARTS in part.wire_form:
        shape.parts = media
    outer = PartShape(function_response=shape)
    if "gemini:thought:false" in part.wire_form:
        outer.thought = False
    return [encode_shape(outer, part), *siblings]


def _restore_response(part: ToolResult) -> tuple[Any, int]:
    """Return the response object of a Gemini client's result, and the index of its first media part."""
    form = next(
        (token.removeprefix(_RESPONSE_FORM) for token in part.wire_form if token.startswith(_RESPONSE_FORM)), "output"
    )
    if form in ("absent", "empty") or not part.content:
        return (UNSET if form == "absent" else {}), 0
    first = part.content[0]
    value = first.text if isinstance(first, Text) else first.json if isinstance(first, Data) else None
    return (value if form == "whole" else {form: value}), 1
