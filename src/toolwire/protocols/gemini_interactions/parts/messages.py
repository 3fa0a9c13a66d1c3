"""The steps of an interaction, to canonical messages and back: one message for each step."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Foreign,
    HostedUse,
    ItemRef,
    Media,
    Message,
    Part,
    Reasoning,
    SettingChange,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
)
from toolwire.canonical.errors import DecodeError
from toolwire.codec.fields import Other, Reader, tag_of, told
from toolwire.codec.kept import emit, rest
from toolwire.codec.settings import report_setting
from toolwire.codec.tools import report_change
from toolwire.codec.turns import Placed, Turn
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

from .calls import (
    decode_call,
    decode_result,
    encode_call,
    encode_result,
    plain_call,
    plain_result,
)
from .content import STRING, decode_block, encode_content, gist
from .hosted import decode_server_call, decode_server_result, encode_server_call, encode_server_result, encode_used
from .plan import StepPlan
from .reasoning import decode_thought, encode_thought

CONTENT = ("text", "image", "audio", "document", "video")
_INPUT_STRING = "gemini-interactions:input:string"
_INPUT_OBJECT = "gemini-interactions:input:object"
_INPUT_LIST = "gemini-interactions:input:list"
_BARE = "gemini-interactions:bare"
_NO_CONTENT = "gemini-interactions:absent:content"

_fast = msgspec.json.Decoder(StepUnion).decode
_elements = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_read_step = Reader[Any](StepUnion, FAMILY).read
_read_block = Reader[Any](InputUnion, FAMILY).read

NOTHING_SAID = "(nothing)"


# ---- decode


def decode_input(raw: Raw) -> tuple[Message, ...]:
    """A string, one content, a list of content: one message of the user. Else steps."""
    match bytes(raw)[:1]:
        case b'"':
            said = Text(text=_decode_text(raw), at="/input")
            return (Message(role="user", parts=(said,), at="", form=(_INPUT_STRING,)),)
        case b"{":
            part = _decode_input_block(_read_block(raw, "/input"), "/input", "/input")
            return (Message(role="user", parts=(part,), at="", form=(_INPUT_OBJECT,)),)
        case b"[":
            elements = _elements(raw)
            if elements and tag_of(elements[0]) in CONTENT:
                blocks = [_read_block(element, f"/input/{index}") for index, element in enumerate(elements)]
                parts = [
                    _decode_input_block(block, f"/input/{index}", f"/input/{index}")
                    for index, block in enumerate(blocks)
                ]
                return (Message(role="user", parts=tuple(parts), at="", form=(_INPUT_LIST,)),)
            return decode_steps(elements, "/input")
        case _:
            raise DecodeError(FAMILY, "/input", "a string, content or an array", told(raw))


def _decode_input_block(block: Any, path: str, at: str | None) -> Part:
    if type(block) is FunctionResult:
        return decode_result(block, path, at)
    part = decode_block(block)
    return part if at is None else replace(part, at=at)


def decode_steps(steps: list[Raw], path: str) -> tuple[Message, ...]:
    return tuple([decode_step(raw, f"{path}/{index}") for index, raw in enumerate(steps)])


def decode_answers(steps: list[Raw], path: str) -> tuple[Message, ...]:
    return tuple([decode_answer(raw, f"{path}/{index}") for index, raw in enumerate(steps)])


def decode_step(raw: Raw, path: str) -> Message:
    try:
        shape = _fast(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        shape = _read_step(raw, path)
    kind = type(shape)
    if kind is FunctionCall:
        return Message(role="assistant", parts=(decode_call(shape),))
    if kind is FunctionResult:
        return Message(role="user", parts=(decode_result(shape, path),))
    if kind is ModelOutput or kind is UserInput:
        return _decode_said(shape, path)
    if kind is Thought:
        thought = decode_thought(shape)
        return Message(role="assistant", parts=(_foreign("thought", raw) if thought is None else thought,))
    return _decode_other(shape, path)


def decode_answer(raw: Raw, path: str) -> Message:
    """A step of an answer. What the client said itself, where the server repeats it, is none of the model's words."""
    message = decode_step(raw, path)
    if message.role == "assistant":
        return message
    repeated = Foreign(protocol=FAMILY, kind=tag_of(raw) or "", body=raw, at="")
    return Message(role="assistant", parts=(repeated,))


def _decode_said(shape: UserInput | ModelOutput, path: str) -> Message:
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
    return Message(role=role, parts=parts, **rest(shape, FAMILY, *form))


def _decode_other(other: Other, path: str) -> Message:
    kind, raw = other.tag, other.body
    if kind in CONTENT:
        # Content beside steps, which the server takes: a word of the user.
        part = _decode_input_block(_read_block(raw, path), path, "")
        return Message(role="user", parts=(part,), form=(_BARE,))
    if kind.endswith("_call"):
        return Message(role="assistant", parts=(decode_server_call(raw, path),))
    if kind.endswith("_result"):
        return Message(role="assistant", parts=(decode_server_result(raw, path),))
    return Message(role="assistant", parts=(_foreign(kind, raw),))


def _foreign(kind: str, raw: Raw) -> Foreign:
    return Foreign(protocol=FAMILY, kind=kind, body=raw, gist=gist(raw), at="")


# ---- encode


def encode_input(turns: list[Turn], plan: StepPlan) -> Any:
    """The whole input: at home as it was spelt, else steps."""
    if plan.home and len(turns) == 1 and (message := turns[0].message) is not None:
        form = message.form
        only = message.parts[0] if len(message.parts) == 1 else None
        if _INPUT_STRING in form and isinstance(only, Text) and not only.extras and only.annotations is None:
            return only.text
        if _INPUT_OBJECT in form and only is not None:
            return _encode_said(turns[0].parts, plan)[0]
        if _INPUT_LIST in form:
            return _encode_said(turns[0].parts, plan)
    steps: list[Any] = []
    for number, turn in enumerate(turns):
        made = encode_turn(turn, plan)
        if not made and number == 0 and turn.role == "user" and not plan.home:
            made = [{"type": "user_input", "content": [{"type": "text", "text": NOTHING_SAID}]}]
            plan.report.invented((), "", "/input/0", "the target wants a user to begin")
        steps += made
    return steps


def encode_turn(turn: Turn, plan: StepPlan) -> list[Any]:
    """The steps of one turn."""
    if plan.home and turn.message is not None:
        return [encode_step(turn.message, turn.parts, plan)]
    if turn.role in ("system", "developer"):
        return _encode_reminder(turn, plan)
    spoken = turn.role == "assistant"
    if turn.placed is None and turn.message is not None:
        plain = _plain_steps(turn.message.parts, plan, spoken=spoken)
        if plain is not None:
            return plain
    return encode_parts(turn.parts, plan, spoken=spoken)


def _plain_steps(parts: tuple[Part, ...], plan: StepPlan, *, spoken: bool) -> list[Any] | None:
    """The steps of a message of another protocol, if it is what most are: texts, plain calls, plain results. None if
    there is more to say; nothing is reported then."""
    steps: list[Any] = []
    content: list[Any] = []
    for part in parts:
        kind = type(part)
        step: Any = None
        if kind is Text:
            if not part.text or part != Text(text=part.text, extras=part.extras, form=part.form, at=part.at):  # type: ignore[union-attr]
                return None
            if not content:
                steps.append(ModelOutput(content=content) if spoken else UserInput(content=content))
            content.append(TextContent(text=part.text))
            continue
        if kind is ToolCall:
            step = plain_call(part, plan)  # type: ignore[arg-type]
        elif kind is ToolResult:
            step = plain_result(part, plan)  # type: ignore[arg-type]
        if step is None:
            return None
        steps.append(step)
        content = []
    return steps


def encode_step(message: Message, places: list[Placed], plan: StepPlan) -> Any:
    """A step of this protocol, as it was."""
    if len(places) == 1 and places[0].part.at == "":
        step = _encode_own(places[0].part, places[0], plan)
        if step is not None:
            return step
    content: Any = _encode_said(places, plan)
    only = message.parts[0] if len(message.parts) == 1 else None
    if _BARE in message.form and len(content) == 1:
        return content[0]
    if not content and _NO_CONTENT in message.form:
        content = UNSET
    elif STRING in message.form and isinstance(only, Text) and not only.extras and only.annotations is None:
        content = only.text
    kind = ModelOutput if message.role == "assistant" else UserInput
    return emit(kind(content=content), message, FAMILY)


def _encode_own(part: Part, placed: Placed, plan: StepPlan) -> Any:
    """A part that is a step of its own; None if it is not."""
    match part:
        case ToolCall():
            return (encode_server_call if part.executor == "server" else encode_call)(part, placed, plan)
        case ToolResult():
            return (encode_server_result if part.executor == "server" else encode_result)(part, placed, plan)
        case Reasoning():
            return encode_thought(part, placed, plan)
        case Foreign():
            return part.body
        case _:
            return None


def _encode_said(places: list[Placed], plan: StepPlan) -> list[Any]:
    """Content of this protocol's own, in which results may stand."""
    blocks: list[Any] = []
    for placed in places:
        if isinstance(placed.part, ToolResult):
            blocks.append(encode_result(placed.part, placed, plan))
        else:
            blocks += encode_content([placed], plan, spoken=True)
    return blocks


def encode_parts(places: list[Placed], plan: StepPlan, *, spoken: bool) -> list[Any]:
    """The steps that parts of one speaker of another protocol make: those that are steps of their own, and input or
    output around the rest."""
    steps: list[Any] = []
    content: list[Any] = []

    def flush() -> None:
        if content:
            steps.append(ModelOutput(content=list(content)) if spoken else UserInput(content=list(content)))
            content.clear()

    for placed in places:
        part = placed.part
        step: Any = None
        match part:
            case ToolCall() | ToolResult() | Reasoning():
                step = _encode_own(part, placed, plan)
            case Foreign(called=(_, *_) as called) if plan.answering:
                flush()
                steps += [_encode_own(one, placed, plan) for one in called]
            case Foreign(use=HostedUse() as use) if plan.answering:
                plan.report.approximated(placed.trail, "", "what another provider ran, told as a call and its result")
                flush()
                steps += encode_used(use, plan)
            case Foreign(media=Media() as media) if plan.answering:
                plan.report.approximated(placed.trail, "", "what a tool made, told as the model's own")
                content += encode_content([Placed(media, (*placed.trail, "media"))], plan, spoken=spoken)
            case ToolChange():
                report_change(part, placed.trail, plan.report)
            case SettingChange():
                report_setting(part, placed.trail, plan)
            case ItemRef():
                plan.report.dropped(placed.trail, "id", "what another provider stored can't be named to this one")
            case _:
                blocks = encode_content([placed], plan, spoken=spoken)
                if _is_sealed(part):
                    flush()
                    _prove(part, steps)
                content += blocks
        if isinstance(step, TextContent):
            content.append(step)
        elif step is not None:
            flush()
            if _is_sealed(part) and not isinstance(step, ServerCall):
                _prove(part, steps)
            steps.append(step)
    flush()
    return steps


def _is_sealed(part: Part) -> bool:
    return isinstance(part, ToolCall | Text | Media) and part.seal is not None and part.seal.issuer == ISSUER


def _prove(part: Part, steps: list[Any]) -> None:
    """Google's other protocol has its proof on the part itself; here it is a thought before it."""
    if not isinstance(part, ToolCall | Text | Media) or part.seal is None:
        return
    signature = part.seal.data
    last = steps[-1] if steps else None
    if isinstance(last, Thought) and last.signature is UNSET:
        last.signature = signature
    else:
        steps.append(Thought(signature=signature))


def _encode_reminder(turn: Turn, plan: StepPlan) -> list[Any]:
    """System text within a conversation has no place here: it is told in the user's words."""
    steps = encode_parts(turn.parts, plan, spoken=False)
    if steps:
        plan.report.approximated(turn.trail, "role", "system text within the conversation is told as a reminder")
    for step in steps:
        content = step.content if isinstance(step, UserInput) else ()
        for block in content if isinstance(content, list) else ():
            if isinstance(block, TextContent):
                block.text = f"<system-reminder>\n{block.text}\n</system-reminder>"
    return steps
