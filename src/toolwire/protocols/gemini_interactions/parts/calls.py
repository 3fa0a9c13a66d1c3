"""Calls that the client runs, and their results, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Data, Media, Part, Seal, Text, ToolCall, ToolResult
from toolwire.codec.fields import Reader, tag_of
from toolwire.codec.kept import emit, given, known, rest
from toolwire.codec.media import summary, summed_up
from toolwire.codec.tools import lower_input
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini_interactions.wire import (
    FAMILY,
    ISSUER,
    ContentUnion,
    FunctionCall,
    FunctionResult,
    TextContent,
)

from .content import STRING, decode_content, encode_content
from .plan import StepPlan

NOT_ERROR = "gemini-interactions:is_error:false"
NO_ARGUMENTS = "gemini-interactions:absent:arguments"
_NO_RESULT = "gemini-interactions:absent:result"
_NO_SIGNATURE = "gemini-interactions:empty:signature"

_read_contents = Reader[list[Any]](list[ContentUnion], FAMILY).read
_elements = msgspec.json.Decoder(list[Raw]).decode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_whole = msgspec.json.Decoder(Raw).decode


# ---- decode


def decode_call(shape: FunctionCall) -> ToolCall:
    arguments = "" if shape.arguments is UNSET else str(shape.arguments, "utf-8")
    if shape.signature is UNSET and shape.unknown is UNSET and shape.nulls is UNSET and arguments:
        return ToolCall(id=known(shape.id), name=shape.name, arguments=arguments, at="")
    form = () if arguments else (NO_ARGUMENTS,)
    seal = None
    if shape.signature:
        seal = Seal(issuer=ISSUER, data=shape.signature, kind="signature", at="/signature")
    elif shape.signature is not UNSET:
        form = (*form, _NO_SIGNATURE)
    return ToolCall(
        id=known(shape.id), name=shape.name, arguments=arguments, seal=seal, at="", **rest(shape, FAMILY, *form)
    )


def decode_result(shape: FunctionResult, path: str, at: str | None = "") -> ToolResult:
    content, form = _decode_content(shape, path)
    if shape.is_error is False:
        form = (*form, NOT_ERROR)
    return ToolResult(
        call_id=known(shape.call_id),
        content=content,
        name=known(shape.name),
        status="error" if shape.is_error is True else "ok",
        at=at,
        **rest(shape, FAMILY, *form),
    )


def _decode_content(shape: FunctionResult, path: str) -> tuple[tuple[Part, ...] | None, tuple[str, ...]]:
    """A string, content, or any other JSON: what tools return is not always what the types say."""
    raw = shape.result
    if raw is UNSET:
        return None, (_NO_RESULT,)
    match bytes(raw)[:1]:
        case b'"':
            return (Text(text=_decode_text(raw), at="/result"),), (STRING,)
        case b"[" if all(tag_of(element) is not None for element in _elements(raw)):
            return decode_content(_read_contents(raw, f"{path}/result")), ()
        case _:
            return (Data(json=raw, at="/result"),), ()


# ---- encode


def plain_call(part: ToolCall, plan: StepPlan) -> FunctionCall | None:
    """An ordinary call of another protocol's; None if there is more to it."""
    text = part.arguments
    usual = ToolCall(id=part.id, name=part.name, arguments=text, extras=part.extras, form=part.form, at=part.at)
    if not part.id or part != usual or not text.startswith("{"):
        return None
    try:
        arguments = _whole(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    call_id = plan.call_id(part.id)
    plan.calls[call_id] = part.name
    return FunctionCall(id=call_id, name=plan.name(part.name), arguments=arguments)


def plain_result(part: ToolResult, plan: StepPlan) -> FunctionResult | None:
    """An ordinary result of another protocol's: one text."""
    content = part.content
    if content is None or len(content) != 1 or type(only := content[0]) is not Text or not only.text:
        return None
    if part.status == "denied" or part.executor == "server" or part.name is not None or part.namespace is not None:
        return None
    if part.caller is not None or part.toolset is not None or part.cache is not None:
        return None
    if only.cache is not None or only.annotations is not None or only.seal is not None or only.id is not None:
        return None
    call_id = plan.call_id(part.call_id or "")
    called = plan.calls.get(call_id)
    shape = FunctionResult(call_id=call_id, result=only.text)  # type: ignore[arg-type]
    shape.name = UNSET if called is None else plan.name(called)
    if part.status == "error":
        shape.is_error = True
    return shape


def encode_call(part: ToolCall, placed: Placed, plan: StepPlan) -> Any:
    call_id = given(part.id) if plan.home else plan.id_of(placed)
    if call_id is not UNSET:
        plan.calls[call_id] = part.name
    if not plan.home:
        _report_call(part, placed, plan)
        arguments = _encode_arguments(part, placed, plan)
        return FunctionCall(id=call_id, name=plan.name(part.name, part.namespace), arguments=arguments)
    shape = FunctionCall(id=call_id, name=part.name, arguments=home_arguments(part))
    shape.signature = "" if _NO_SIGNATURE in part.form else UNSET
    if part.seal is not None:
        shape.signature = part.seal.data
    return emit(shape, part, FAMILY)


def home_arguments(part: ToolCall) -> Any:
    """The object as it was; a stream may have told one that is no JSON."""
    if not part.arguments:
        return UNSET if NO_ARGUMENTS in part.form else Raw(b"{}")
    try:
        return _whole(part.arguments.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return wrapped(part.arguments)


def wrapped(arguments: str) -> Raw:
    return Raw(msgspec.json.encode({"_raw": arguments}))


def _report_call(part: ToolCall, placed: Placed, plan: StepPlan) -> None:
    if part.native is not None:
        plan.report.approximated(placed.trail, "", f"{part.native} as a call of a function")
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(placed.trail, "caller", "the target's models call directly")
    if part.seal is not None and part.seal.issuer != ISSUER:
        plan.report.dropped((*placed.trail, "seal"), "", "a seal goes only to its issuer")
    for field in ("toolset", "cache"):
        if getattr(part, field) is not None:
            plan.report.dropped(placed.trail, field)
    if part.asynchronous:
        plan.report.dropped(placed.trail, "asynchronous")


def _encode_arguments(part: ToolCall, placed: Placed, plan: StepPlan) -> Raw:
    """The arguments as the object that the protocol has."""
    if part.shape == "freeform":
        return Raw(lower_input(part.arguments).encode())
    text = part.arguments.strip().encode(errors="surrogatepass")
    if text in (b"", b"null"):
        return Raw(b"{}")
    try:
        _members(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        plan.report.approximated(placed.trail, "arguments", "not a JSON object: sent as text")
        return wrapped(part.arguments)
    return Raw(text)


def encode_result(part: ToolResult, placed: Placed, plan: StepPlan) -> Any:
    call_id = given(part.call_id) if plan.home else plan.call_id(part.call_id or "")
    shape = FunctionResult(call_id=call_id, result=_encode_content(part, placed, plan))
    if plan.home:
        shape.name = given(part.name)
    else:
        called = plan.calls.get(str(call_id), part.name)
        shape.name = UNSET if called is None else plan.name(called)
        _report_result(part, placed, plan, called)
    if part.status != "ok":
        shape.is_error = True
    elif NOT_ERROR in part.form:
        shape.is_error = False
    return emit(shape, part, FAMILY)


def _report_result(part: ToolResult, placed: Placed, plan: StepPlan, called: str | None) -> None:
    if part.name is not None and part.name != called:
        plan.report.dropped(placed.trail, "name", "the call that it answers has another name")
    for field in ("namespace", "toolset", "cache"):
        if getattr(part, field) is not None:
            plan.report.dropped(placed.trail, field)
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(placed.trail, "caller", "the target's models call directly")
    if part.status == "denied":
        plan.report.approximated(placed.trail, "status", "denied is told as an error")


def _encode_content(part: ToolResult, placed: Placed, plan: StepPlan) -> Any:
    content = part.content
    if content is None:
        return UNSET if plan.home and _NO_RESULT in part.form else ""
    only = content[0] if len(content) == 1 else None
    if isinstance(only, Data) and (plan.home or bytes(only.json)[:1] == b"{"):
        return only.json
    places = [Placed(inner, (*placed.trail, "content", index)) for index, inner in enumerate(content)]
    if plan.home:
        if STRING in part.form and isinstance(only, Text) and not only.extras and only.annotations is None:
            return only.text
        return encode_content(places, plan, spoken=False)
    if plan.target.binary_results == "summary":
        places = summed_up(places, plan.report)
    blocks: list[Any] = []
    for inner in places:
        shown = encode_content([inner], plan, spoken=False)
        if not shown and isinstance(inner.part, Media):
            shown = [TextContent(text=summary(inner.part))]
        blocks += shown
    if not blocks:
        return ""
    if len(blocks) == 1 and isinstance(told := blocks[0], TextContent):
        return told.text
    return blocks
