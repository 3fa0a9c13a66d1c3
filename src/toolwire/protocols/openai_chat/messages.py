"""Chat's messages, to canonical messages and back: one for one at home, turns of another protocol as it wants them.

A message of the assistant says its reasoning, then its content, then its refusal, then its calls. Where another
protocol had another order, text that followed a call now stands before it.
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import (
    Citation,
    Foreign,
    Media,
    Message,
    Part,
    Reasoning,
    ReasoningText,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from toolwire.canonical.errors import DecodeError
from toolwire.codec.fields import known, restore
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Placed, Turn

from .calls import (
    CALL,
    LEGACY,
    decode_call,
    decode_legacy,
    decode_result,
    encode_call,
    encode_function,
    encode_result,
    encode_server_call,
    encode_server_result,
)
from .parts import (
    PART,
    STRING,
    THINKING,
    decode_citation,
    decode_parts,
    encode_citation,
    encode_parts,
    kept,
    report_text,
)
from .wire import FAMILY, FunctionCallShape, MessageShape, TextPart

LIST = "openai-chat:content:list"
NO_CALLS = "openai-chat:calls:empty"
# Servers that write every field they know say nothing by an empty one.
NO_REFUSAL = "openai-chat:refusal:empty"
NO_FUNCTION = "openai-chat:function_call:empty"
NO_NOTES = "openai-chat:annotations:empty"
DETAILS = "openai-chat:reasoning:details"
REASONING = "openai-chat:reasoning:"
NOTED = "openai-chat:name:text=content"

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}
_WANTS_REASONING = re.compile(r"deepseek|kimi|moonshot|mimo|glm-|qwen|qwq|minimax", re.IGNORECASE)
_SIMPLE = ((), (NOTED,))
_ELSEWHERE = ("tool_call_id", "tool_calls", "function_call", "refusal", "annotations", "reasoning_content", "reasoning")

_NO_FUNCTION = FunctionCallShape(name="", arguments="")
_decode_details = msgspec.json.Decoder(list[dict[str, Any]]).decode


# ---- decode


def decode_message(shape: MessageShape, path: str, at: str | None = None) -> Message:
    role = _ROLES.get(shape.role)
    if role is None:
        if shape.role not in ("tool", "function"):
            raise DecodeError(FAMILY, f"{path}/role", "system, developer, user, assistant or tool", repr(shape.role))
        found = _with(kept(shape), _unplaced(shape, _ELSEWHERE[1:]))
        return Message(role="user", parts=(decode_result(shape),), at=at, **found)
    if role == "assistant":
        return _decode_assistant(shape, at)
    if isinstance(shape.content, str):
        parts: tuple[Part, ...] = (Text(text=shape.content, at="/content"),)
        form: tuple[str, ...] = (STRING,)
    else:
        parts = decode_parts(shape.content) if isinstance(shape.content, list) else ()
        form = (LIST,) if shape.content == [] else ()
    found = _with(kept(shape, *form), _unplaced(shape, _ELSEWHERE))
    return Message(role=role, parts=parts, name=known(shape.name), at=at, **found)


def _decode_assistant(shape: MessageShape, at: str | None) -> Message:
    parts: list[Part] = []
    form: tuple[str, ...] = ()
    extras = _unplaced(shape, ("tool_call_id",))
    _decode_reasoning(shape, parts, extras)
    if isinstance(shape.content, str):
        parts.append(Text(text=shape.content, at="/content"))
        form = (STRING,)
    elif isinstance(shape.content, list):
        parts += decode_parts(shape.content, len(parts))
        form = () if shape.content else (LIST,)
    if isinstance(shape.annotations, list):
        form += _decode_notes(shape.annotations, parts, extras)
    if isinstance(shape.refusal, str):
        form += () if shape.refusal else (NO_REFUSAL,)
        parts += [Refusal(text=shape.refusal, at="/refusal")] if shape.refusal else []
    if isinstance(shape.function_call, FunctionCallShape):
        if shape.function_call == _NO_FUNCTION:
            form += (NO_FUNCTION,)
        else:
            parts.append(decode_legacy(shape.function_call))
    if isinstance(shape.tool_calls, list):
        parts += [decode_call(call, index) for index, call in enumerate(shape.tool_calls)]
        form += () if shape.tool_calls else (NO_CALLS,)
    found = _with(kept(shape, *form), extras)
    return Message(role="assistant", parts=tuple(parts), name=known(shape.name), at=at, **found)


def _decode_reasoning(shape: MessageShape, parts: list[Part], extras: dict[str, Raw]) -> None:
    """One part, whichever field has it. What else says the same stays as it is, beside it."""
    for name in ("reasoning_content", "reasoning"):
        text = getattr(shape, name)
        if isinstance(text, str):
            if parts:
                extras[name] = Raw(msgspec.json.encode(text))
                continue
            content = (ReasoningText(kind="full", text=text, at=""),) if text else ()
            parts.append(Reasoning(content=content, at=f"/{name}", form=(REASONING + name,)))
    if not parts and shape.unknown is not UNSET and (details := shape.unknown.get("reasoning_details")) is not None:
        texts = details_text(details)
        if texts:
            told = tuple(ReasoningText(kind="full", text=text, at="") for text in texts)
            parts.append(Reasoning(content=told, at="/reasoning_details/0", form=(DETAILS,)))


def details_text(raw: Raw) -> list[str]:
    """What can be read in OpenRouter's `reasoning_details`."""
    try:
        details = _decode_details(raw)
    except msgspec.DecodeError:
        return []
    texts = [one.get("text") or one.get("summary") for one in details]
    return [text for text in texts if isinstance(text, str) and text]


def _decode_notes(notes: list[Raw], parts: list[Part], extras: dict[str, Raw]) -> tuple[str, ...]:
    if not notes:
        return (NO_NOTES,)
    text = parts[-1] if parts else None
    if isinstance(text, Text) and text.at == "/content":
        cited = tuple(map(decode_citation, notes))
        parts[-1] = Text(text=text.text, annotations=cited, form=(NOTED,), at="")
    else:
        extras["annotations"] = Raw(msgspec.json.encode(notes))
    return ()


def _unplaced(shape: MessageShape, names: tuple[str, ...]) -> dict[str, Raw]:
    """Fields that this role has no use for, kept as they are."""
    found = {}
    for name in names:
        value = getattr(shape, name)
        if value is not UNSET and value is not None:
            found[name] = Raw(msgspec.json.encode(value))
    return found


def _with(found: dict[str, Any], extras: dict[str, Raw]) -> dict[str, Any]:
    if not extras:
        return found
    before = (found.get("extras") or {}).get(FAMILY, {})
    return {**found, "extras": {FAMILY: {**before, **extras}}}


# ---- encode


def encode_turn(turn: Turn, plan: Plan) -> list[Any]:
    """The messages of one turn."""
    if turn.role == "assistant":
        return _encode_assistant(turn, plan)
    messages: list[Any] = []
    hoisted: list[Any] = []
    said: list[Placed] = []
    for placed in turn.parts:
        part = placed.part
        if isinstance(part, ToolResult) and part.executor == "client":
            messages.append(encode_result(part, placed, plan, hoisted))
        else:
            said.append(placed)
    if hoisted:
        messages.append({"role": "user", "content": hoisted})
    if said or not messages:
        messages += _encode_said(turn, said, plan)
    if plan.home and turn.message is not None:
        restore(messages[-1], turn.message, FAMILY)
    return messages


def _encode_said(turn: Turn, said: list[Placed], plan: Plan) -> list[Any]:
    """The message of what is neither a result nor the assistant's."""
    writer = Content(plan)
    for placed in said:
        writer.add(placed)
    body: dict[str, Any] = {"role": turn.role}
    if plan.home and turn.message is not None:
        writer.write_own(body, turn.message)
    elif writer.parts:
        body["content"] = writer.plain()
    elif said:
        return []
    else:
        body["content"] = ""
    _encode_name(body, turn)
    return [body]


def report_message(message: Message, trail: Trail, plan: Plan) -> None:
    """What a message of another protocol says of itself that has no place here."""
    for field in ("id", "phase", "clear_at"):
        if getattr(message, field) is not None:
            plan.report.dropped(trail, field)
    if message.status is not None and message.status != "completed":
        plan.report.dropped(trail, "status")


def _encode_name(body: dict[str, Any], turn: Turn) -> None:
    if turn.message is not None and turn.message.name is not None:
        body["name"] = turn.message.name


class Content:
    """The content of a message as it grows: a string where that says all of it."""

    def __init__(self, plan: Plan, *, only_text: bool = False) -> None:
        self.parts: list[Any] = []
        self._plan = plan
        self._only_text = only_text and not plan.home
        self._simple = True

    def add(self, placed: Placed) -> None:
        part = placed.part
        if type(part) is Text and part.cache is None and not part.extras and part.form in _SIMPLE:
            if part.seal is not None or part.id is not None or part.annotations:
                report_text(part, placed, self._plan)
            self.parts.append(TextPart(text=part.text))
            return
        if self._only_text and isinstance(part, Media):
            self._plan.report.dropped(placed.trail, "", "the target's assistant says nothing but text")
            return
        if isinstance(part, ToolCall):
            made = encode_server_call(part, placed, self._plan)
            found = [] if made is None else [made]
        elif isinstance(part, ToolResult):
            made = encode_server_result(part, placed, self._plan)
            found = [] if made is None else [made]
        else:
            found = encode_parts([placed], self._plan)
        for one in found:
            self._simple = self._simple and type(one) is TextPart and one.prompt_cache_breakpoint is UNSET
            self.parts.append(one)

    def text(self) -> str | None:
        """All of it as one string, if it is nothing but text."""
        return "".join([one.text for one in self.parts]) if self._simple else None

    def plain(self) -> Any:
        return self.parts[0].text if self._simple and len(self.parts) == 1 else self.parts

    def write_own(self, body: dict[str, Any], message: Message) -> None:
        text = self.text() if STRING in message.form and self.parts else None
        if text is not None:
            body["content"] = text
        elif self.parts or LIST in message.form:
            body["content"] = self.parts


def _encode_assistant(turn: Turn, plan: Plan) -> list[Any]:
    body: dict[str, Any] = {"role": "assistant"}
    content = Content(plan, only_text=True)
    calls: list[Any] = []
    for placed in turn.parts:
        part = placed.part
        if type(part) is ToolCall and part.executor == "client":
            if LEGACY in part.form and plan.home:
                body["function_call"] = restore(encode_function(part), part, FAMILY)
            else:
                calls.append(encode_call(part, placed, plan))
        elif type(part) is Reasoning and THINKING not in part.form:
            _encode_reasoning(part, placed, plan, body)
        elif type(part) is Refusal and PART not in part.form:
            body["refusal"] = body.get("refusal", "") + part.text
        elif type(part) is Foreign and CALL in part.form and plan.home:
            calls.append(part.body)
        elif type(part) is Text and not part.text and not plan.home:
            continue
        else:
            if calls and type(part) is Text and not plan.home:
                plan.report.approximated(placed.trail, "", "text after calls is told before them")
            content.add(placed)
    return _finish_assistant(turn, plan, body, content, calls)


def _finish_assistant(turn: Turn, plan: Plan, body: dict[str, Any], content: Content, calls: list[Any]) -> list[Any]:
    message = turn.message
    if calls or (plan.home and message is not None and NO_CALLS in message.form):
        body["tool_calls"] = calls
    if plan.home and message is not None:
        content.write_own(body, message)
        _encode_notes(message, body)
        if NO_REFUSAL in message.form:
            body.setdefault("refusal", "")
        if NO_FUNCTION in message.form:
            body.setdefault("function_call", {"name": "", "arguments": ""})
        _encode_name(body, turn)
        return [restore(body, message, FAMILY)]
    if content.parts:
        body["content"] = content.text() if plan.answering else content.plain()
    elif calls or plan.answering or "refusal" in body:
        body["content"] = None
    elif all(isinstance(placed.part, Text) for placed in turn.parts):
        body["content"] = ""
    else:
        return []
    if plan.answering:
        _cite(turn, plan, body)
    if calls and not plan.answering and "reasoning_content" not in body and wants_reasoning(plan):
        body["reasoning_content"] = ""
        why = "the model wants its reasoning back with calls: there was none"
        plan.report.invented(turn.trail, "", "/reasoning_content", why)
    _encode_name(body, turn)
    return [body]


def wants_reasoning(plan: Plan) -> bool:
    """Whether the model refuses its own calls without the reasoning that led to them."""
    return plan.target.model is not None and _WANTS_REASONING.search(plan.target.model) is not None


def _encode_reasoning(part: Reasoning, placed: Placed, plan: Plan, body: dict[str, Any]) -> None:
    texts = [block.text for block in part.content if isinstance(block, ReasoningText)]
    if plan.home:
        if DETAILS not in part.form:
            name = next((token.removeprefix(REASONING) for token in part.form if token.startswith(REASONING)), None)
            body[name or "reasoning_content"] = "".join(texts)
        return
    if not plan.answering and not wants_reasoning(plan):
        plan.report.dropped(placed.trail, "", "the target has no place for reasoning")
        return
    report_reasoning(part, placed, plan)
    if texts:
        before = [body["reasoning_content"]] if "reasoning_content" in body else []
        body["reasoning_content"] = "\n\n".join([*before, *texts])


def report_reasoning(part: Reasoning, placed: Placed, plan: Plan) -> None:
    """What of a reasoning that is shown can't be shown."""
    if part.seal is not None:
        plan.report.dropped((*placed.trail, "seal"), "", "the target has no place for another issuer's proof")
    if part.id is not None:
        plan.report.dropped(placed.trail, "id")


def _encode_notes(message: Message, body: dict[str, Any]) -> None:
    notes = [note for part in message.parts if isinstance(part, Text) for note in part.annotations or ()]
    if notes or NO_NOTES in message.form:
        body["annotations"] = [encode_citation(note) for note in notes]


def _cite(turn: Turn, plan: Plan, body: dict[str, Any]) -> None:
    """Citations of another protocol stand on one text of several: here they count characters of all of it."""
    offset = 0
    notes: list[Any] = []
    for placed in turn.parts:
        part = placed.part
        if not isinstance(part, Text):
            continue
        for index, note in enumerate(part.annotations or ()):
            trail = (*placed.trail, "annotations", index)
            if (cited := cite(note, trail, plan, offset, offset + len(part.text))) is not None:
                notes.append(cited)
        offset += len(part.text)
    if notes:
        body["annotations"] = notes


def cite(note: Citation, trail: Trail, plan: Plan, start: int, end: int) -> Any:
    """A citation of the text between two places; None, reported, if it cites no page."""
    if note.url is None:
        plan.report.dropped(trail, "", "the target cites pages only")
        return None
    if note.quote is not None:
        plan.report.dropped(trail, "quote")
    if note.start is not None and note.end is not None:
        start, end = start + note.start, start + note.end
    title = note.title or ""
    found = {"url": note.url, "title": title, "start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": found}
