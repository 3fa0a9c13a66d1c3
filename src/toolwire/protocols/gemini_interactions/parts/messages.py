"""Decode and encode the steps of an interaction: one message for each step."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    HostedUse,
    ItemRef,
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    SettingChange,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
)
from toolwire.canonical.errors import DecodeError
from toolwire.codec.encoding.fallbacks import readable_text, report_setting_change
from toolwire.codec.encoding.tools import report_tool_change
from toolwire.codec.encoding.turns import EMPTY_TEXT, LocatedPart, Turn
from toolwire.codec.wire.extras import collect_extras, encode_with_extras
from toolwire.codec.wire.reader import (
    Reader,
    UnknownVariant,
    decode_elements,
    decode_string,
    describe_json,
    tag_of,
)
from toolwire.protocols.gemini_interactions.parts.calls import (
    decode_call,
    decode_result,
    encode_call,
    encode_fast_call,
    encode_fast_result,
    encode_result,
)
from toolwire.protocols.gemini_interactions.parts.content import (
    READABLE_FIELDS,
    STRING,
    StepPlan,
    decode_block,
    decode_reasoning,
    encode_content,
    encode_reasoning,
)
from toolwire.protocols.gemini_interactions.parts.hosted_calls import (
    decode_server_call,
    decode_server_result,
    encode_hosted_use,
    encode_server_call,
    encode_server_result,
)
from toolwire.protocols.gemini_interactions.wire import (
    FAMILY,
    ISSUER,
    FunctionCall,
    FunctionResult,
    InputUnion,
    ModelOutput,
    ServerCall,
    StepUnion,
    TextContent,
    Thought,
    UserInput,
)

CONTENT_TYPES = ("text", "image", "audio", "document", "video")
_INPUT_STRING = "gemini-interactions:input:string"
_INPUT_OBJECT = "gemini-interactions:input:object"
_INPUT_LIST = "gemini-interactions:input:list"
_BARE_FORM = "gemini-interactions:bare"
_NO_CONTENT = "gemini-interactions:absent:content"

_decode_typed = msgspec.json.Decoder(StepUnion).decode
_read_step = Reader[Any](StepUnion, FAMILY).read
_read_block = Reader[Any](InputUnion, FAMILY).read


# ---- decode


def decode_input(raw: Raw) -> tuple[Message, ...]:
    """Decode `input`: steps, or one user message given as a string, content or list of content."""
    match bytes(raw)[:1]:
        case b'"':
            text = Text(text=decode_string(raw), at="/input")
            return (Message(role="user", parts=(text,), at="", wire_form=(_INPUT_STRING,)),)
        case b"{":
            part = _decode_input_block(_read_block(raw, "/input"), "/input", "/input")
            return (Message(role="user", parts=(part,), at="", wire_form=(_INPUT_OBJECT,)),)
        case b"[":
            elements = decode_elements(raw)
            if elements and tag_of(elements[0]) in CONTENT_TYPES:
                blocks = [_read_block(element, f"/input/{index}") for index, element in enumerate(elements)]
                parts = [
                    _decode_input_block(block, f"/input/{index}", f"/input/{index}")
                    for index, block in enumerate(blocks)
                ]
                return (Message(role="user", parts=tuple(parts), at="", wire_form=(_INPUT_LIST,)),)
            return decode_steps(elements, "/input")
        case _:
            raise DecodeError(FAMILY, "/input", "a string, content or an array", describe_json(raw))


def _decode_input_block(block: Any, path: str, at: str | None) -> Part:
    """Decode a content object of `input`, which may also be a function result."""
    if type(block) is FunctionResult:
        return decode_result(block, path, at)
    part = decode_block(block)
    return part if at is None else replace(part, at=at)


def decode_steps(steps: list[Raw], path: str) -> tuple[Message, ...]:
    """Decode the steps of a request."""
    return tuple([decode_step(raw, f"{path}/{index}") for index, raw in enumerate(steps)])


def decode_response_steps(steps: list[Raw], path: str) -> tuple[Message, ...]:
    """Decode the steps of a response."""
    return tuple([decode_response_step(raw, f"{path}/{index}") for index, raw in enumerate(steps)])


def decode_step(raw: Raw, path: str) -> Message:
    """Decode one step of a request as a message."""
    try:
        shape = _decode_typed(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        shape = _read_step(raw, path)
    kind = type(shape)
    if kind is FunctionCall:
        return Message(role="assistant", parts=(decode_call(shape),))
    if kind is FunctionResult:
        return Message(role="user", parts=(decode_result(shape, path),))
    if kind is ModelOutput or kind is UserInput:
        return _decode_content_step(shape, path)
    if kind is Thought:
        thought = decode_reasoning(shape)
        return Message(role="assistant", parts=(_opaque_part("thought", raw) if thought is None else thought,))
    return _decode_unknown(shape, path)


def decode_response_step(raw: Raw, path: str) -> Message:
    """Decode a step of a response; user input that the server repeats becomes an `OpaquePart`."""
    message = decode_step(raw, path)
    if message.role == "assistant":
        return message
    echo = OpaquePart(protocol=FAMILY, kind=tag_of(raw) or "", body=raw, at="")
    return Message(role="assistant", parts=(echo,))


def _decode_content_step(shape: UserInput | ModelOutput, path: str) -> Message:
    """Decode user input or model output."""
    parts: tuple[Part, ...] = ()
    form: tuple[str, ...] = ()
    content = shape.content
    if isinstance(content, str):
        parts, form = (Text(text=content, at="/content"),), (STRING,)
    elif content is UNSET:
        form = (_NO_CONTENT,)
    else:
        blocks: list[Any] = content
        parts = tuple(
            [_decode_input_block(block, f"{path}/content/{index}", None) for index, block in enumerate(blocks)]
        )
    role: Any = "user" if isinstance(shape, UserInput) else "assistant"
    return Message(role=role, parts=parts, **collect_extras(shape, FAMILY, *form))


def _decode_unknown(step: UnknownVariant, path: str) -> Message:
    """Decode a step of another type: a hosted call or result, bare content, or else an opaque step."""
    kind, raw = step.tag, step.body
    if kind in CONTENT_TYPES:
        # The server accepts content among steps, as user input.
        part = _decode_input_block(_read_block(raw, path), path, "")
        return Message(role="user", parts=(part,), wire_form=(_BARE_FORM,))
    if kind.endswith("_call"):
        return Message(role="assistant", parts=(decode_server_call(raw, path),))
    if kind.endswith("_result"):
        return Message(role="assistant", parts=(decode_server_result(raw, path),))
    return Message(role="assistant", parts=(_opaque_part(kind, raw),))


def _opaque_part(kind: str, raw: Raw) -> OpaquePart:
    """Build an opaque part that keeps a step without canonical counterpart."""
    return OpaquePart(protocol=FAMILY, kind=kind, body=raw, gist=readable_text(raw, READABLE_FIELDS), at="")


# ---- encode


def encode_input(turns: list[Turn], plan: StepPlan) -> Any:
    """Encode `input`: as the string or content that an Interactions client sent, else as steps."""
    if plan.same_protocol and len(turns) == 1 and (message := turns[0].message) is not None:
        content = _encode_input_content(message, turns[0], plan)
        if content is not None:
            return content
    if plan.same_protocol:
        return [step for turn in turns for step in encode_turn(turn, plan)]
    steps = [] if turns else [_add_placeholder(plan)]
    for number, turn in enumerate(turns):
        turn_steps = encode_turn(turn, plan)
        if not turn_steps and number == 0 and turn.role == "user":
            turn_steps = [_add_placeholder(plan)]
        steps += turn_steps
    return steps


def _add_placeholder(plan: StepPlan) -> dict[str, Any]:
    """Return the step that stands for missing user input, and report it."""
    plan.report.added((), "", "/input/0", "the target requires a user turn first")
    return {"type": "user_input", "content": [{"type": "text", "text": EMPTY_TEXT}]}


def _encode_input_content(message: Message, turn: Turn, plan: StepPlan) -> Any:
    """Encode a client's message as string or content, like the client did; return None if it sent steps."""
    form = message.wire_form
    only = message.parts[0] if len(message.parts) == 1 else None
    if _INPUT_STRING in form and isinstance(only, Text) and not only.extras and only.annotations is None:
        return only.text
    if _INPUT_OBJECT in form and only is not None:
        return _encode_same_protocol_content(turn.parts, plan)[0]
    if _INPUT_LIST in form:
        return _encode_same_protocol_content(turn.parts, plan)
    return None


def encode_turn(turn: Turn, plan: StepPlan) -> list[Any]:
    """Encode one turn as steps."""
    if plan.same_protocol and turn.message is not None:
        return [encode_step(turn.message, turn.parts, plan)]
    if turn.role in ("system", "developer"):
        return _encode_reminder(turn, plan)
    is_output = turn.role == "assistant"
    if turn.located_parts is None and turn.message is not None:
        steps = _encode_fast(turn.message.parts, plan, is_output=is_output)
        if steps is not None:
            return steps
    return encode_parts(turn.parts, plan, is_output=is_output)


def _encode_fast(parts: tuple[Part, ...], plan: StepPlan, *, is_output: bool) -> list[Any] | None:
    """Encode texts, calls and results without optional fields as steps; return None for any other parts.

    The parts are another protocol's. Nothing is reported if None is returned.
    """
    steps: list[Any] = []
    content: list[Any] = []
    for part in parts:
        kind = type(part)
        step: Any = None
        if kind is Text:
            if not part.text or part != Text(text=part.text, extras=part.extras, wire_form=part.wire_form, at=part.at):  # type: ignore[union-attr]
                return None
            if not content:
                steps.append(ModelOutput(content=content) if is_output else UserInput(content=content))
            content.append(TextContent(text=part.text))
            continue
        if kind is ToolCall:
            step = encode_fast_call(part, plan)  # type: ignore[arg-type]
        elif kind is ToolResult:
            step = encode_fast_result(part, plan)  # type: ignore[arg-type]
        if step is None:
            return None
        steps.append(step)
        content = []
    return steps


def encode_step(message: Message, located_parts: list[LocatedPart], plan: StepPlan) -> Any:
    """Encode one message that came from the Interactions API as the same kind of step.

    That is a call, result, thought or hosted step if the message is one such part, otherwise user input or model
    output, whose content may be a string or a list, as received.
    """
    if len(located_parts) == 1 and located_parts[0].part.at == "":
        step = _encode_same_protocol_part(located_parts[0].part, located_parts[0], plan)
        if step is not None:
            return step
    content: Any = _encode_same_protocol_content(located_parts, plan)
    only = message.parts[0] if len(message.parts) == 1 else None
    if _BARE_FORM in message.wire_form and len(content) == 1:
        return content[0]
    if not content and _NO_CONTENT in message.wire_form:
        content = UNSET
    elif STRING in message.wire_form and isinstance(only, Text) and not only.extras and only.annotations is None:
        content = only.text
    kind = ModelOutput if message.role == "assistant" else UserInput
    return encode_with_extras(kind(content=content), message, FAMILY)


def _encode_same_protocol_part(part: Part, located_part: LocatedPart, plan: StepPlan) -> Any:
    """Encode an Interactions part that is a step, such as a call; return None if it is content."""
    match part:
        case ToolCall():
            return (encode_server_call if part.executor == "server" else encode_call)(part, located_part, plan)
        case ToolResult():
            return (encode_server_result if part.executor == "server" else encode_result)(part, located_part, plan)
        case Reasoning():
            return encode_reasoning(part, located_part, plan)
        case OpaquePart():
            return part.body
        case _:
            return None


def _encode_same_protocol_content(located_parts: list[LocatedPart], plan: StepPlan) -> list[Any]:
    """Encode the content of an Interactions message, which may include function results."""
    blocks: list[Any] = []
    for located_part in located_parts:
        if isinstance(located_part.part, ToolResult):
            blocks.append(encode_result(located_part.part, located_part, plan))
        else:
            blocks += encode_content([located_part], plan, is_output=True)
    return blocks


def encode_parts(located_parts: list[LocatedPart], plan: StepPlan, *, is_output: bool) -> list[Any]:
    """Encode the parts of another protocol's message as steps; consecutive content parts share a step."""
    steps: list[Any] = []
    content: list[Any] = []

    def flush() -> None:
        """Append the content parts collected so far as one step."""
        if content:
            steps.append(ModelOutput(content=list(content)) if is_output else UserInput(content=list(content)))
            content.clear()

    for located_part in located_parts:
        part = located_part.part
        step: Any = None
        match part:
            case ToolCall() | ToolResult() | Reasoning():
                step = _encode_same_protocol_part(part, located_part, plan)
            case OpaquePart(called=(_, *_) as calls) if plan.for_client:
                flush()
                steps += [
                    _encode_same_protocol_part(call, LocatedPart(call, located_part.path), plan) for call in calls
                ]
            case OpaquePart(use=HostedUse() as use) if plan.for_client:
                plan.report.approximated(
                    located_part.path, "", "server-side call of another provider, sent as a call and its result"
                )
                flush()
                steps += encode_hosted_use(use, plan)
            case OpaquePart(media=Media() as media) if plan.for_client:
                plan.report.approximated(located_part.path, "", "tool output sent as output of the model")
                content += encode_content(
                    [LocatedPart(media, (*located_part.path, "media"))], plan, is_output=is_output
                )
            case ToolChange():
                report_tool_change(part, located_part.path, plan.report)
            case SettingChange():
                report_setting_change(part, located_part.path, plan)
            case ItemRef():
                plan.report.dropped(located_part.path, "id", "stored by another provider")
            case _:
                blocks = encode_content([located_part], plan, is_output=is_output)
                if _has_signature(part):
                    flush()
                    _add_signature_step(part, steps)
                content += blocks
        if isinstance(step, TextContent):
            content.append(step)
        elif step is not None:
            flush()
            if _has_signature(part) and not isinstance(step, ServerCall):
                _add_signature_step(part, steps)
            steps.append(step)
    flush()
    return steps


def _has_signature(part: Part) -> bool:
    """Check for a signature that Google issued."""
    return isinstance(part, ToolCall | Text | Media) and part.signature is not None and part.signature.issuer == ISSUER


def _add_signature_step(part: Part, steps: list[Any]) -> None:
    """Append a thought step with the signature of a part, which is to follow it, to `steps`.

    `generateContent` puts signatures on the part itself.
    """
    if not isinstance(part, ToolCall | Text | Media) or part.signature is None:
        return
    signature = part.signature.data
    previous = steps[-1] if steps else None
    if isinstance(previous, Thought) and previous.signature is UNSET:
        previous.signature = signature
    else:
        steps.append(Thought(signature=signature))


def _encode_reminder(turn: Turn, plan: StepPlan) -> list[Any]:
    """Encode system text from within the conversation as user input."""
    steps = encode_parts(turn.parts, plan, is_output=False)
    if steps:
        plan.report.approximated(turn.path, "role", "mid-conversation system text sent as a user reminder")
    for step in steps:
        content = step.content if isinstance(step, UserInput) else ()
        for block in content if isinstance(content, list) else ():
            if isinstance(block, TextContent):
                block.text = f"<system-reminder>\n{block.text}\n</system-reminder>"
    return steps
