"""Decode and encode client-side function calls and their results."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Data, Media, Part, Signature, Text, ToolCall, ToolResult
from toolwire.codec.encoding.arguments import encode_object_arguments, wrap_invalid_arguments
from toolwire.codec.encoding.media import media_summary, summarize_binary
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_elements, decode_string, tag_of
from toolwire.protocols.gemini_interactions.parts.content import STRING, StepPlan, decode_content, encode_content
from toolwire.protocols.gemini_interactions.wire import (
    FAMILY,
    ISSUER,
    ContentUnion,
    FunctionCall,
    FunctionResult,
    TextContent,
)

NOT_ERROR = "gemini-interactions:is_error:false"
NO_ARGUMENTS = "gemini-interactions:absent:arguments"
_NO_RESULT = "gemini-interactions:absent:result"
_NO_SIGNATURE = "gemini-interactions:empty:signature"

_read_contents = Reader[list[Any]](list[ContentUnion], FAMILY).read
_validate_json = msgspec.json.Decoder(Raw).decode


# ---- decode


def decode_call(shape: FunctionCall) -> ToolCall:
    """Decode a `function_call` step."""
    arguments = "" if shape.arguments is UNSET else str(shape.arguments, "utf-8")
    if shape.signature is UNSET and shape.unknown is UNSET and shape.nulls is UNSET and arguments:
        return ToolCall(id=unset_to_none(shape.id), name=shape.name, arguments=arguments, at="")
    form = () if arguments else (NO_ARGUMENTS,)
    signature = None
    if shape.signature:
        signature = Signature(issuer=ISSUER, data=shape.signature, kind="signature", at="/signature")
    elif shape.signature is not UNSET:
        form = (*form, _NO_SIGNATURE)
    return ToolCall(
        id=unset_to_none(shape.id),
        name=shape.name,
        arguments=arguments,
        signature=signature,
        at="",
        **collect_extras(shape, FAMILY, *form),
    )


def decode_result(shape: FunctionResult, path: str, at: str | None = "") -> ToolResult:
    """Decode a `function_result`; `at` is its pointer in the message, empty if it is a step."""
    content, form = _decode_content(shape, path)
    if shape.is_error is False:
        form = (*form, NOT_ERROR)
    return ToolResult(
        call_id=unset_to_none(shape.call_id),
        content=content,
        name=unset_to_none(shape.name),
        status="error" if shape.is_error is True else "ok",
        at=at,
        **collect_extras(shape, FAMILY, *form),
    )


def _decode_content(shape: FunctionResult, path: str) -> tuple[tuple[Part, ...] | None, tuple[str, ...]]:
    """Decode the JSON value of a result; return its content and wire-form tokens.

    Any type is accepted, because tools return more than the documented ones.
    """
    raw = shape.result
    if raw is UNSET:
        return None, (_NO_RESULT,)
    match bytes(raw)[:1]:
        case b'"':
            return (Text(text=decode_string(raw), at="/result"),), (STRING,)
        case b"[" if all(tag_of(element) is not None for element in decode_elements(raw)):
            return decode_content(_read_contents(raw, f"{path}/result")), ()
        case _:
            return (Data(json=raw, at="/result"),), ()


# ---- encode


def encode_fast_call(part: ToolCall, plan: StepPlan) -> FunctionCall | None:
    """Encode another protocol's call of id, name and arguments only; return None if it has anything else."""
    text = part.arguments
    plain_call = ToolCall(
        id=part.id, name=part.name, arguments=text, extras=part.extras, wire_form=part.wire_form, at=part.at
    )
    if not part.id or part != plain_call or not text.startswith("{"):
        return None
    try:
        arguments = _validate_json(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    call_id = plan.call_id(part.id)
    plan.calls[call_id] = part.name
    return FunctionCall(id=call_id, name=plan.tool_name(part.name), arguments=arguments)


def encode_fast_result(part: ToolResult, plan: StepPlan) -> FunctionResult | None:
    """Encode another protocol's result of one text; return None for any other."""
    content = part.content
    if content is None or len(content) != 1 or type(only := content[0]) is not Text:
        return None
    if not only.text or only != Text(text=only.text, extras=only.extras, wire_form=only.wire_form, at=only.at):
        return None
    if part.status == "denied" or part.executor == "server" or not _is_plain_result(part):
        return None
    call_id = plan.call_id(part.call_id or "")
    name = plan.calls.get(call_id)
    shape = FunctionResult(call_id=call_id, result=only.text)  # type: ignore[arg-type]
    shape.name = UNSET if name is None else plan.tool_name(name)
    if part.status == "error":
        shape.is_error = True
    return shape


def _is_plain_result(part: ToolResult) -> bool:
    """Check that a result has no name, caller, toolset or cache mark."""
    if part.name is not None or part.namespace is not None:
        return False
    return part.caller is None and part.toolset is None and part.cache is None


def encode_call(part: ToolCall, located_part: LocatedPart, plan: StepPlan) -> Any:
    """Encode a function call as a step."""
    call_id = none_to_unset(part.id) if plan.same_protocol else plan.id_of(located_part)
    if call_id is not UNSET:
        plan.calls[call_id] = part.name
    if not plan.same_protocol:
        _report_call(part, located_part, plan)
        arguments = encode_object_arguments(part, located_part, plan)
        return FunctionCall(id=call_id, name=plan.tool_name(part.name, part.namespace), arguments=arguments)
    shape = FunctionCall(id=call_id, name=part.name, arguments=same_protocol_arguments(part))
    shape.signature = "" if _NO_SIGNATURE in part.wire_form else UNSET
    if part.signature is not None:
        shape.signature = part.signature.data
    return encode_with_extras(shape, part, FAMILY)


def same_protocol_arguments(part: ToolCall) -> Any:
    """Return the arguments of an Interactions call as raw JSON; text that is no JSON is wrapped."""
    if not part.arguments:
        return UNSET if NO_ARGUMENTS in part.wire_form else Raw(b"{}")
    try:
        return _validate_json(part.arguments.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return wrap_invalid_arguments(part.arguments)


def _report_call(part: ToolCall, located_part: LocatedPart, plan: StepPlan) -> None:
    """Report as losses the fields of another protocol's call that the Interactions API does not have."""
    if part.native is not None:
        plan.report.approximated(located_part.path, "", f"{part.native} sent as a function call")
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(located_part.path, "caller", "the target has no programs that call tools")
    if part.signature is not None and part.signature.issuer != ISSUER:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    plan.report.dropped_fields(located_part.path, part, "toolset", "cache")
    if part.asynchronous:
        plan.report.dropped(located_part.path, "asynchronous")


def encode_result(part: ToolResult, located_part: LocatedPart, plan: StepPlan) -> Any:
    """Encode a function result as a `function_result`, which can be a step or content."""
    call_id = none_to_unset(part.call_id) if plan.same_protocol else plan.call_id(part.call_id or "")
    shape = FunctionResult(call_id=call_id, result=_encode_content(part, located_part, plan))
    if plan.same_protocol:
        shape.name = none_to_unset(part.name)
    else:
        call_name = plan.calls.get(str(call_id), part.name)
        shape.name = UNSET if call_name is None else plan.tool_name(call_name)
        _report_result(part, located_part, plan, call_name)
    if part.status != "ok":
        shape.is_error = True
    elif NOT_ERROR in part.wire_form:
        shape.is_error = False
    return encode_with_extras(shape, part, FAMILY)


def _report_result(part: ToolResult, located_part: LocatedPart, plan: StepPlan, call_name: str | None) -> None:
    """Report as losses the fields of another protocol's result that the Interactions API does not have."""
    if part.name is not None and part.name != call_name:
        plan.report.dropped(located_part.path, "name", "the name differs from that of its call")
    plan.report.dropped_fields(located_part.path, part, "namespace", "toolset", "cache")
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(located_part.path, "caller", "the target has no programs that call tools")
    if part.status == "denied":
        plan.report.approximated(located_part.path, "status", "denied sent as an error")


def _encode_content(part: ToolResult, located_part: LocatedPart, plan: StepPlan) -> Any:
    """Encode the content of a result as a string, an object, or a list of content."""
    content = part.content
    if content is None:
        return UNSET if plan.same_protocol and _NO_RESULT in part.wire_form else ""
    only = content[0] if len(content) == 1 else None
    if isinstance(only, Data) and (plan.same_protocol or bytes(only.json)[:1] == b"{"):
        return only.json
    inner_parts = [LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(content)]
    if not plan.same_protocol:
        return _encode_foreign_content(inner_parts, plan)
    if STRING in part.wire_form and isinstance(only, Text) and not only.extras and only.annotations is None:
        return only.text
    return encode_content(inner_parts, plan, is_output=False)


def _encode_foreign_content(inner_parts: list[LocatedPart], plan: StepPlan) -> Any:
    """Encode the content of another protocol's result; media that the API rejects become a text summary."""
    if plan.target.binary_results == "summary":
        inner_parts = summarize_binary(inner_parts, plan.report)
    blocks: list[Any] = []
    for inner in inner_parts:
        encoded = encode_content([inner], plan, is_output=False)
        if not encoded and isinstance(inner.part, Media):
            encoded = [TextContent(text=media_summary(inner.part))]
        blocks += encoded
    if not blocks:
        return ""
    if len(blocks) == 1 and isinstance(only := blocks[0], TextContent):
        return only.text
    return blocks
