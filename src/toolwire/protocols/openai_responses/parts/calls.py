"""The items with which a model asks for something and a client answers, to canonical calls and results and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Caller, Media, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.codec.fields import Reader
from toolwire.codec.kept import emit, given, known, rest
from toolwire.codec.media import ERROR_MARK, MARKED, summary, summed_up
from toolwire.codec.turns import UNANSWERED, Placed
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    CallerShape,
    CustomCall,
    CustomOutput,
    FunctionCall,
    FunctionOutput,
    InputText,
)

from .content import STRING, decode_content, encode_content
from .plan import ItemPlan

OBJECT = "openai-responses:object"
_FAILED = "openai-responses:marked:incomplete"
"""Besides the mark the status says it, with the nearest word that it has to a failure."""
_NO_ARGUMENTS = "openai-responses:absent:arguments"
_NO_OUTPUT = "openai-responses:absent:output"
_INPUT_NAME = "openai-responses:name:arguments=input"
_OWN_NAMESPACE = "openai-responses:namespace:own"
_PLAIN = ("json", "")
_WRAPPED = '{"_raw"'
_PROGRAM = "program"

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_read_caller = Reader[CallerShape](CallerShape, FAMILY).read


# ---- decode


def decode_function_call(shape: FunctionCall, groups: frozenset[str]) -> Message:
    text, form = _decode_arguments(shape, "arguments")
    namespace = known(shape.namespace)
    if namespace == shape.name and namespace not in groups:
        # A deferred tool without a namespace, once a search loaded it, is called as its own namespace.
        namespace, form = None, (*form, _OWN_NAMESPACE)
    call = ToolCall(
        id=known(shape.call_id),
        name=shape.name,
        arguments=text,
        namespace=namespace,
        caller=decode_caller(shape.caller),
        complete=shape.status != "incomplete",
        asynchronous=known(shape.asynchronous),
        at="",
        **rest(shape, FAMILY, *form),
    )
    return Message(role="assistant", parts=(call,), id=known(shape.id), status=known(shape.status))


def decode_custom_call(shape: CustomCall) -> Message:
    text, form = _decode_arguments(shape, "input")
    call = ToolCall(
        id=known(shape.call_id),
        name=shape.name,
        arguments=text,
        shape="freeform",
        namespace=known(shape.namespace),
        caller=decode_caller(shape.caller),
        complete=shape.status != "incomplete",
        asynchronous=known(shape.asynchronous),
        at="",
        **rest(shape, FAMILY, *form, _INPUT_NAME),
    )
    return Message(role="assistant", parts=(call,), id=known(shape.id), status=known(shape.status))


def _decode_arguments(shape: FunctionCall | CustomCall, field: str) -> tuple[str, tuple[str, ...]]:
    """The text of the arguments. Some servers send the object itself: then it is its source text."""
    text = getattr(shape, field)
    if isinstance(text, str):
        return text, ()
    if shape.unknown is not UNSET and field in shape.unknown:
        return str(shape.unknown.pop(field), "utf-8"), (OBJECT,)
    return "", (_NO_ARGUMENTS,)


def decode_caller(shape: CallerShape | UnsetType) -> Caller | None:
    if shape is UNSET:
        return None
    return Caller(kind=shape.type, id=known(shape.caller_id), **rest(shape, FAMILY))


def read_caller(raw: Raw) -> Caller | None:
    try:
        return decode_caller(_read_caller(raw))
    except DecodeError:
        return None


def decode_result(shape: FunctionOutput | CustomOutput, path: str) -> Message:
    content, failed, form = _decode_content(shape.output, f"{path}/output")
    status = known(shape.status)
    if failed and status == "incomplete":
        status, form = None, (*form, _FAILED)
    result = ToolResult(
        call_id=known(shape.call_id),
        content=content,
        name=known(shape.name),
        namespace=known(shape.namespace),
        status="error" if failed else "ok",
        native="custom" if isinstance(shape, CustomOutput) else None,
        caller=decode_caller(shape.caller),
        at="",
        **rest(shape, FAMILY, *form),
    )
    return Message(role="user", parts=(result,), id=known(shape.id), status=status)


def _decode_content(
    output: str | list[Any] | UnsetType, path: str
) -> tuple[tuple[Part, ...] | None, bool, tuple[str, ...]]:
    """The content of a result, whether it is marked as an error, and how it was spelt."""
    if isinstance(output, str):
        if output.startswith(ERROR_MARK):
            return (Text(text=output[len(ERROR_MARK) :], at="/output"),), True, (STRING, MARKED)
        return (Text(text=output, at="/output"),), False, (STRING,)
    if output is UNSET:
        return None, False, (_NO_OUTPUT,)
    content = decode_content(output, path, spoken=False)
    if content and isinstance(first := content[0], Text) and first.text.startswith(ERROR_MARK):
        return (replace(first, text=first.text[len(ERROR_MARK) :]), *content[1:]), True, (MARKED,)
    return content, False, ()


# ---- encode


def plain_call(part: ToolCall, plan: ItemPlan) -> dict[str, Any] | None:
    """An ordinary call of another protocol's; None if there is more to it."""
    text = part.arguments
    usual = ToolCall(id=part.id, name=part.name, arguments=text, extras=part.extras, form=part.form, at=part.at)
    if not part.id or part != usual or not text.startswith("{") or text.startswith(_WRAPPED):
        return None
    call_id = plan.call_id(part.id)
    plan.calls[call_id] = "json", part.name
    return {"type": "function_call", "call_id": call_id, "name": plan.tools.alias(part.name), "arguments": text}


def plain_result(part: ToolResult, plan: ItemPlan) -> dict[str, Any] | None:
    """An ordinary result of another protocol's: one text."""
    content = part.content
    if content is None or len(content) != 1 or type(only := content[0]) is not Text:
        return None
    if part.status != "ok" or part.native is not None or part.executor == "server":
        return None
    if part.name is not None or part.caller is not None or part.toolset is not None or part.cache is not None:
        return None
    if only.cache is not None or only.annotations is not None or only.seal is not None:
        return None
    call_id = plan.call_id(part.call_id or "")
    if plan.calls.get(call_id, _PLAIN)[0] != "json":
        return None
    return {"type": "function_call_output", "call_id": call_id, "output": only.text}


def encode_call(part: ToolCall, placed: Placed, plan: ItemPlan, message: Message) -> Any:
    """A call as an item; `message` holds the item's own id and status."""
    call_id = given(part.id) if plan.home else plan.id_of(placed)
    if call_id is not UNSET:
        plan.calls[call_id] = part.shape, part.name
    if not plan.home:
        _report_call(part, placed, plan)
    shape: FunctionCall | CustomCall
    if part.shape == "freeform":
        shape = CustomCall(name=_name(part, plan), call_id=call_id, input=_encode_text(part, plan))
    else:
        shape = FunctionCall(name=_name(part, plan), call_id=call_id, arguments=_encode_arguments(part, plan))
    if _NO_ARGUMENTS in part.form and not part.arguments:
        setattr(shape, "input" if part.shape == "freeform" else "arguments", UNSET)
    shape.id, shape.status = given(message.id), given(message.status)
    shape.namespace = part.name if _OWN_NAMESPACE in part.form and plan.home else given(part.namespace)
    shape.caller = encode_caller(part, placed, plan)
    shape.asynchronous = given(part.asynchronous)
    return emit(shape, part, FAMILY)


def _name(part: ToolCall, plan: ItemPlan) -> str:
    # A namespace has a field of its own here: only the name is made legal. In an answer the tools are the client's own.
    return part.name if plan.home or plan.answering else plan.tools.alias(part.name)


def _encode_text(part: ToolCall, plan: ItemPlan) -> Any:
    return Raw(part.arguments.encode()) if OBJECT in part.form and plan.home else part.arguments


def _encode_arguments(part: ToolCall, plan: ItemPlan) -> Any:
    if plan.home:
        return _encode_text(part, plan)
    if part.arguments.strip() in ("", "null"):
        return "{}"
    return unwrapped(part.arguments)


def unwrapped(arguments: str) -> str:
    """The arguments; what was put into an object as it was not JSON, on its way to a protocol that takes objects only,
    comes out again."""
    if not arguments.startswith(_WRAPPED):
        return arguments
    try:
        members = _decode(arguments.encode())
    except msgspec.DecodeError:
        return arguments
    text = members.get("_raw")
    return text if isinstance(text, str) and len(members) == 1 else arguments


def _report_call(part: ToolCall, placed: Placed, plan: ItemPlan) -> None:
    if part.native is not None:
        plan.report.approximated(placed.trail, "", f"{part.native} as a call of a function")
    if part.toolset is not None:
        plan.report.dropped(placed.trail, "toolset")
    if part.seal is not None:
        plan.report.dropped((*placed.trail, "seal"), "", "a seal goes only to its issuer")
    if part.cache is not None:
        plan.report.dropped(placed.trail, "cache", "the target marks no calls")


def encode_caller(part: ToolCall | ToolResult, placed: Placed, plan: ItemPlan) -> Any:
    caller = part.caller
    if caller is None or (not plan.home and caller.kind == "direct"):
        return UNSET  # that is who calls where nobody is named
    if not plan.home and caller.kind != _PROGRAM:
        plan.report.dropped(placed.trail, "caller", "the target's programs are another vendor's")
        return UNSET
    return emit(CallerShape(type=caller.kind, caller_id=given(caller.id)), caller, FAMILY)


def encode_result(part: ToolResult, placed: Placed, plan: ItemPlan, message: Message) -> Any:
    call_id = given(part.call_id) if plan.home else plan.call_id(part.call_id or "")
    shaped, called = plan.calls.get(call_id or "", ("json", None))
    kind = CustomOutput if part.native == "custom" or shaped == "freeform" else FunctionOutput
    if plan.home:
        output = _encode_home_output(part, placed, plan)
    else:
        output = _encode_foreign_output(part, placed, plan)
        for field in ("toolset", "cache"):
            if getattr(part, field) is not None:
                plan.report.dropped(placed.trail, field)
    shape = kind(call_id=call_id, output=output, caller=encode_caller(part, placed, plan))
    shape.id, shape.status = given(message.id), given(message.status)
    if part.status != "ok" and (not plan.home or _FAILED in part.form):
        shape.status = "incomplete"
    if plan.home or part.name != called:
        shape.name, shape.namespace = given(part.name), given(part.namespace)
    return emit(shape, part, FAMILY)


def _encode_home_output(part: ToolResult, placed: Placed, plan: ItemPlan) -> Any:
    if part.content is None or (not part.content and _NO_OUTPUT in part.form):
        return UNSET if _NO_OUTPUT in part.form else ""
    content = _marked(part.content) if MARKED in part.form and part.status != "ok" else part.content
    if STRING in part.form and len(content) == 1 and isinstance(only := content[0], Text) and not only.extras:
        return only.text
    return encode_content(_inside(content, placed), plan, spoken=False)


def _inside(content: tuple[Part, ...], placed: Placed) -> list[Placed]:
    return [Placed(inner, (*placed.trail, "content", index)) for index, inner in enumerate(content)]


def _marked(content: tuple[Part, ...]) -> tuple[Part, ...]:
    if content and isinstance(first := content[0], Text):
        return (replace(first, text=ERROR_MARK + first.text), *content[1:])
    return (Text(text=ERROR_MARK.rstrip()), *content)


def _encode_foreign_output(part: ToolResult, placed: Placed, plan: ItemPlan) -> Any:
    """The content of another protocol's result: one string where it is text alone, since not every server that speaks
    this protocol takes a list."""
    content: list[Any] = []
    for inner in _told(part, placed, plan):
        shown = encode_content([inner], plan, spoken=False)
        content += shown or ([InputText(text=summary(inner.part))] if isinstance(inner.part, Media) else [])
    texts = [block.text for block in content if isinstance(block, InputText) and _is_bare(block)]
    if part.status != "ok":
        # A placeholder for a missing result has no place of its own in the source.
        invented = part.content == (Text(text=UNANSWERED),)
        why = f"{part.status} is told in the text: the target has no flag for it"
        if not invented and MARKED not in part.form:
            plan.report.approximated(placed.trail, "status", why)
        if len(texts) == len(content):
            return ERROR_MARK + "\n".join(texts)
        if isinstance(first := content[0], InputText):
            first.text = ERROR_MARK + first.text
            return content
        return [InputText(text=ERROR_MARK), *content]
    if len(texts) < len(content):
        return content
    if len(texts) > 1:
        plan.report.approximated(placed.trail, "content", "several texts are told as one")
    return "\n".join(texts)


def _is_bare(block: InputText) -> bool:
    return block.prompt_cache_breakpoint is UNSET


def _told(part: ToolResult, placed: Placed, plan: ItemPlan) -> list[Placed]:
    places = _inside(part.content or (), placed)
    return places if plan.target.binary_results == "native" else summed_up(places, plan.report)
