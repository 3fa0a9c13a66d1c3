"""Function and custom tool calls and their outputs, to canonical calls and results and back."""

from typing import Any

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Caller, Media, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.codec.encoding.arguments import WRAPPED_PREFIX, unwrap_invalid_arguments
from toolwire.codec.encoding.media import ERROR_MARK, ERROR_MARK_FORM, media_summary, summarize_binary
from toolwire.codec.encoding.tools import wrap_freeform_input
from toolwire.codec.encoding.turns import UNANSWERED_TEXT, LocatedPart
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.openai_responses.parts.content import STRING, decode_content, encode_content
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    CallerShape,
    CustomCall,
    CustomOutput,
    FunctionCall,
    FunctionOutput,
    InputText,
)

OBJECT_FORM = "openai-responses:object"
_FAILED_FORM = "openai-responses:marked:incomplete"
"""Wire-form token of a failed result whose status is `incomplete`, the nearest status to a failure."""
_NO_ARGUMENTS = "openai-responses:absent:arguments"
_NO_OUTPUT = "openai-responses:absent:output"
_INPUT_NAME = "openai-responses:name:arguments=input"
_NO_MOVING_MARKS = "marks move with every turn, and would change the form of results"
_NAMESPACE_FORM = "openai-responses:namespace:name"
_PLAIN_CALL = ("json", "")
_NO_DETAILS = (None, None, None, None)
_PROGRAM_CALLER = "program"

_read_caller = Reader[CallerShape](CallerShape, FAMILY).read


# ---- decode


def decode_function_call(shape: FunctionCall, groups: frozenset[str]) -> Message:
    """Decode a function call; `groups` are the names of declared namespaces."""
    text, form = _decode_arguments(shape, "arguments")
    namespace = unset_to_none(shape.namespace)
    if namespace == shape.name and namespace not in groups:
        # A deferred tool without a namespace, once loaded by tool search, has its own name as namespace.
        namespace, form = None, (*form, _NAMESPACE_FORM)
    call = ToolCall(
        id=unset_to_none(shape.call_id),
        name=shape.name,
        arguments=text,
        namespace=namespace,
        caller=decode_caller(shape.caller),
        complete=shape.status != "incomplete",
        asynchronous=unset_to_none(shape.asynchronous),
        at="",
        **collect_extras(shape, FAMILY, *form),
    )
    return Message(role="assistant", parts=(call,), id=unset_to_none(shape.id), status=unset_to_none(shape.status))


def decode_custom_call(shape: CustomCall) -> Message:
    """Decode a call of a custom tool."""
    text, form = _decode_arguments(shape, "input")
    call = ToolCall(
        id=unset_to_none(shape.call_id),
        name=shape.name,
        arguments=text,
        shape="freeform",
        namespace=unset_to_none(shape.namespace),
        caller=decode_caller(shape.caller),
        complete=shape.status != "incomplete",
        asynchronous=unset_to_none(shape.asynchronous),
        at="",
        **collect_extras(shape, FAMILY, *form, _INPUT_NAME),
    )
    return Message(role="assistant", parts=(call,), id=unset_to_none(shape.id), status=unset_to_none(shape.status))


def _decode_arguments(shape: FunctionCall | CustomCall, field: str) -> tuple[str, tuple[str, ...]]:
    """Return the arguments in `field` as text, and wire-form tokens.

    An object, which some servers send, becomes its JSON text; a token records that.
    """
    text = getattr(shape, field)
    if isinstance(text, str):
        return text, ()
    if shape.unknown is not UNSET and field in shape.unknown:
        return str(shape.unknown.pop(field), "utf-8"), (OBJECT_FORM,)
    return "", (_NO_ARGUMENTS,)


def decode_caller(shape: CallerShape | UnsetType) -> Caller | None:
    """Decode `caller`, which tells whether the model or a program that it wrote made a call."""
    if shape is UNSET:
        return None
    return Caller(kind=shape.type, id=unset_to_none(shape.caller_id), **collect_extras(shape, FAMILY))


def read_caller(raw: Raw) -> Caller | None:
    """Parse and decode `caller`, which tells who made a call: the model or its program; None if invalid."""
    try:
        return decode_caller(_read_caller(raw))
    except DecodeError:
        return None


def decode_result(shape: FunctionOutput | CustomOutput, path: str) -> Message:
    """Decode the output of a function or custom tool call."""
    content, failed, form = _decode_content(shape.output, f"{path}/output")
    status = unset_to_none(shape.status)
    if failed and status == "incomplete":
        status, form = None, (*form, _FAILED_FORM)
    result = ToolResult(
        call_id=unset_to_none(shape.call_id),
        content=content,
        name=unset_to_none(shape.name),
        namespace=unset_to_none(shape.namespace),
        status="error" if failed else "ok",
        native="custom" if isinstance(shape, CustomOutput) else None,
        caller=decode_caller(shape.caller),
        at="",
        **collect_extras(shape, FAMILY, *form),
    )
    return Message(role="user", parts=(result,), id=unset_to_none(shape.id), status=status)


def _decode_content(
    output: str | list[Any] | UnsetType, path: str
) -> tuple[tuple[Part, ...] | None, bool, tuple[str, ...]]:
    """Decode the output of a call; return its content, whether it has the error mark, and wire-form tokens."""
    if isinstance(output, str):
        if output.startswith(ERROR_MARK):
            return (Text(text=output[len(ERROR_MARK) :], at="/output"),), True, (STRING, ERROR_MARK_FORM)
        return (Text(text=output, at="/output"),), False, (STRING,)
    if output is UNSET:
        return None, False, (_NO_OUTPUT,)
    content = decode_content(output, path, is_output=False)
    if content and isinstance(first := content[0], Text) and first.text.startswith(ERROR_MARK):
        return (replace(first, text=first.text[len(ERROR_MARK) :]), *content[1:]), True, (ERROR_MARK_FORM,)
    return content, False, ()


# ---- encode


def encode_fast_call(part: ToolCall, plan: ItemPlan) -> dict[str, Any] | None:
    """Encode another protocol's call of id, name and arguments only; None if it has other fields."""
    text = part.arguments
    plain_call = ToolCall(
        id=part.id, name=part.name, arguments=text, extras=part.extras, wire_form=part.wire_form, at=part.at
    )
    if not part.id or part != plain_call or not text.startswith("{") or text.startswith(WRAPPED_PREFIX):
        return None
    call_id = plan.call_id(part.id)
    plan.calls[call_id] = "json", part.name
    return {"type": "function_call", "call_id": call_id, "name": plan.tool_name(part.name), "arguments": text}


def encode_fast_result(part: ToolResult, plan: ItemPlan) -> dict[str, Any] | None:
    """Encode another protocol's result of a single text; None if it has more."""
    content = part.content
    if content is None or len(content) != 1 or type(text := content[0]) is not Text:
        return None
    if part.status != "ok" or part.native is not None or part.executor == "server":
        return None
    if (part.name, part.caller, part.toolset, part.cache) != _NO_DETAILS:
        return None
    if text.cache is not None or text.annotations is not None or text.signature is not None:
        return None
    call_id = plan.call_id(part.call_id or "")
    if plan.calls.get(call_id, _PLAIN_CALL)[0] != "json":
        return None
    return {"type": "function_call_output", "call_id": call_id, "output": text.text}


def encode_call(part: ToolCall, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    """Encode a call as an item with the id and status of `message`."""
    call_id = none_to_unset(part.id) if plan.same_protocol else plan.id_of(located_part)
    if call_id is not UNSET:
        plan.calls[call_id] = part.shape, part.name
    if not plan.same_protocol:
        _report_call(part, located_part, plan)
    shape: FunctionCall | CustomCall
    if not plan.tools.freeform:
        return _encode_function_call(part, located_part, call_id, plan)
    if part.shape == "freeform":
        shape = CustomCall(name=_call_name(part, plan), call_id=call_id, input=_encode_input(part, plan))
    else:
        shape = FunctionCall(
            name=_call_name(part, plan), call_id=call_id, arguments=_encode_arguments(part, located_part, plan)
        )
    if _NO_ARGUMENTS in part.wire_form and not part.arguments:
        setattr(shape, "input" if part.shape == "freeform" else "arguments", UNSET)
    shape.id, shape.status = none_to_unset(message.id), none_to_unset(message.status)
    shape.namespace = (
        part.name if _NAMESPACE_FORM in part.wire_form and plan.same_protocol else none_to_unset(part.namespace)
    )
    shape.caller = encode_caller(part, located_part, plan)
    shape.asynchronous = none_to_unset(part.asynchronous)
    return encode_with_extras(shape, part, FAMILY)


def _encode_function_call(part: ToolCall, located_part: LocatedPart, call_id: Any, plan: ItemPlan) -> FunctionCall:
    """Encode a call for a host that has only functions, without namespaces."""
    name = plan.tools.alias(part.name, part.namespace) if part.namespace is not None else plan.tool_name(part.name)
    arguments = (
        wrap_freeform_input(part.arguments) if part.shape == "freeform" else _encode_arguments(part, located_part, plan)
    )
    return FunctionCall(name=name, call_id=call_id, arguments=arguments)


def _call_name(part: ToolCall, plan: ItemPlan) -> str:
    """Return the name under which the target knows the called tool."""
    # The namespace has its own field, so only the name is made legal. In responses the names are the client's.
    return plan.tool_name(part.name)


def _encode_input(part: ToolCall, plan: ItemPlan) -> Any:
    """Return the input of a custom call: text, or JSON if this API's source sent an object."""
    return Raw(part.arguments.encode()) if OBJECT_FORM in part.wire_form and plan.same_protocol else part.arguments


def _encode_arguments(part: ToolCall, located_part: LocatedPart, plan: ItemPlan) -> Any:
    """Return the arguments of a function call; other protocols' empty ones become `{}`."""
    if plan.same_protocol:
        return _encode_input(part, plan)
    if part.arguments.strip() in ("", "null"):
        plan.report_empty_arguments(part, located_part.path)
        return "{}"
    return unwrap_invalid_arguments(part.arguments)


def _report_call(part: ToolCall, located_part: LocatedPart, plan: ItemPlan) -> None:
    """Report as losses the fields of another protocol's call that this API lacks."""
    if part.native is not None:
        plan.report.approximated(located_part.path, "", f"{part.native} sent as a function call")
    if part.toolset is not None:
        plan.report.dropped(located_part.path, "toolset")
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if part.cache is not None:
        plan.report.dropped(located_part.path, "cache", "the target has no cache marks on calls")


def encode_caller(part: ToolCall | ToolResult, located_part: LocatedPart, plan: ItemPlan) -> Any:
    """Encode `caller`, which made the call: the model or its program; UNSET without one."""
    caller = part.caller
    if caller is None or (not plan.same_protocol and caller.kind == "direct"):
        return UNSET  # the default caller
    if not plan.same_protocol and caller.kind != _PROGRAM_CALLER:
        plan.report.dropped(located_part.path, "caller", "the target cannot run programs of another vendor")
        return UNSET
    return encode_with_extras(CallerShape(type=caller.kind, caller_id=none_to_unset(caller.id)), caller, FAMILY)


def encode_result(part: ToolResult, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    """Encode a result as an item with the id and status of `message`."""
    call_id = none_to_unset(part.call_id) if plan.same_protocol else plan.call_id(part.call_id or "")
    call_shape, called_name = plan.calls.get(call_id or "", ("json", None))
    is_custom = part.native == "custom" or call_shape == "freeform"
    kind = CustomOutput if is_custom and plan.tools.freeform else FunctionOutput
    if plan.same_protocol:
        output = _encode_same_protocol_output(part, located_part, plan)
    else:
        output = _encode_foreign_output(part, located_part, plan)
        plan.report.dropped_fields(located_part.path, part, "toolset", "cache")
    shape = kind(call_id=call_id, output=output, caller=encode_caller(part, located_part, plan))
    shape.id, shape.status = none_to_unset(message.id), none_to_unset(message.status)
    if part.status != "ok" and (not plan.same_protocol or _FAILED_FORM in part.wire_form):
        shape.status = "incomplete"
    if plan.same_protocol or part.name != called_name:
        shape.name, shape.namespace = none_to_unset(part.name), none_to_unset(part.namespace)
    return encode_with_extras(shape, part, FAMILY)


def _encode_same_protocol_output(part: ToolResult, located_part: LocatedPart, plan: ItemPlan) -> Any:
    """Encode the output of a result from this API, as string or list like the source's."""
    if part.content is None or (not part.content and _NO_OUTPUT in part.wire_form):
        return UNSET if _NO_OUTPUT in part.wire_form else ""
    content = _mark_error(part.content) if ERROR_MARK_FORM in part.wire_form and part.status != "ok" else part.content
    if (
        STRING in part.wire_form
        and len(content) == 1
        and isinstance(part_text := content[0], Text)
        and not part_text.extras
    ):
        return part_text.text
    return encode_content(_locate_content(content, located_part), plan, is_output=False)


def _locate_content(content: tuple[Part, ...], located_part: LocatedPart) -> list[LocatedPart]:
    """Return the parts of a result with their paths, for loss reports."""
    return [LocatedPart(part, (*located_part.path, "content", index)) for index, part in enumerate(content)]


def _mark_error(content: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the content with the error mark before its first text."""
    if content and isinstance(first := content[0], Text):
        return (replace(first, text=ERROR_MARK + first.text), *content[1:])
    return (Text(text=ERROR_MARK.rstrip()), *content)


def _encode_foreign_output(part: ToolResult, located_part: LocatedPart, plan: ItemPlan) -> Any:
    """Encode the content of another protocol's result as `output`.

    Text alone is sent as a string, since not every compatible server accepts a list.
    """
    content: list[Any] = []
    for inner in _result_parts(part, located_part, plan):
        if plan.has_moving_marks and isinstance(inner.part, Text) and inner.part.cache is not None:
            plan.report.dropped((*inner.path, "cache"), "", _NO_MOVING_MARKS)
            inner = LocatedPart(replace(inner.part, cache=None), inner.path)  # noqa: PLW2901
        blocks = encode_content([inner], plan, is_output=False)
        content += blocks or ([InputText(text=media_summary(inner.part))] if isinstance(inner.part, Media) else [])
    texts = [block.text for block in content if isinstance(block, InputText) and _is_plain_text(block)]
    if part.status != "ok":
        # A placeholder for a missing result is not in the source, so nothing is reported for it.
        is_placeholder = part.content == (Text(text=UNANSWERED_TEXT),)
        if not is_placeholder and ERROR_MARK_FORM not in part.wire_form:
            reason = f"the target has no error flag; {part.status} sent as text"
            plan.report.approximated(located_part.path, "status", reason)
        if len(texts) == len(content):
            return ERROR_MARK + "\n".join(texts)
        if isinstance(first := content[0], InputText):
            first.text = ERROR_MARK + first.text
            return content
        return [InputText(text=ERROR_MARK), *content]
    if len(texts) < len(content):
        return content
    if len(texts) > 1:
        plan.report.approximated(located_part.path, "content", "several texts are joined into one", severity="info")
    return "\n".join(texts)


def _is_plain_text(block: InputText) -> bool:
    """Return whether a text has no cache breakpoint."""
    return block.prompt_cache_breakpoint is UNSET


def _result_parts(part: ToolResult, located_part: LocatedPart, plan: ItemPlan) -> list[LocatedPart]:
    """Return the parts of a result with their paths; media become text summaries if the target requires it."""
    located_parts = _locate_content(part.content or (), located_part)
    return located_parts if plan.target.binary_results == "native" else summarize_binary(located_parts, plan.report)
