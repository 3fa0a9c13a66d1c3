"""Chat's messages, to canonical messages and back: one for one at home, turns of another protocol as it wants them.

A message of the assistant says its reasoning, then its content, then its refusal, then its calls. Where another
protocol had another order, text that followed a call now stands before it.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import (
    Foreign,
    Media,
    Message,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from toolwire.canonical.errors import DecodeError
from toolwire.codec.kept import known, restore
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Placed, Turn, said
from toolwire.protocols.openai_chat.wire import FAMILY, FunctionCallShape, MessageShape, TextPart

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
    is_ordinary,
    ordinary_result,
)
from .citations import NOTED, cite_all, decode_notes, encode_notes
from .content import (
    PART,
    STRING,
    THINKING,
    decode_parts,
    encode_parts,
    kept,
    left_over,
    report_text,
)
from .reasoning import decode_reasoning, encode_reasoning, wants_reasoning
from .texts import plain_content

LIST = "openai-chat:content:list"
NO_CALLS = "openai-chat:calls:empty"
# Servers that write every field they know say nothing by an empty one.
NO_REFUSAL = "openai-chat:refusal:empty"
NO_FUNCTION = "openai-chat:function_call:empty"

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}
_SIMPLE = ((), (NOTED,))
_ELSEWHERE = ("tool_call_id", "tool_calls", "function_call", "refusal", "annotations", "reasoning_content", "reasoning")

_NO_FUNCTION = FunctionCallShape(name="", arguments="")


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
    if shape.reasoning_content is not UNSET or shape.reasoning is not UNSET or shape.unknown is not UNSET:
        decode_reasoning(shape, parts, extras)
    if isinstance(shape.content, str):
        parts.append(Text(text=shape.content, at="/content"))
        form = (STRING,)
    elif isinstance(shape.content, list):
        parts += decode_parts(shape.content, len(parts))
        form = () if shape.content else (LIST,)
    if isinstance(shape.annotations, list):
        form += decode_notes(shape.annotations, parts, extras)
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
    own, form = left_over(shape, form)
    own = {**own, **extras} if extras else own
    return Message(
        role="assistant",
        parts=tuple(parts),
        name=known(shape.name),
        at=at,
        extras={FAMILY: own} if own else None,
        form=form,
    )


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
    if not plan.home and (ordinary := _ordinary(turn, plan)) is not None:
        return ordinary
    if turn.role == "assistant":
        return _encode_assistant(turn, plan)
    messages: list[Any] = []
    hoisted: list[Any] = []
    others: list[Placed] = []
    for placed in turn.parts:
        part = placed.part
        if isinstance(part, ToolResult) and part.executor == "client":
            messages.append(encode_result(part, placed, plan, hoisted))
        else:
            others.append(placed)
    if hoisted:
        messages.append({"role": "user", "content": hoisted})
    if others or not messages:
        messages += _encode_said(turn, others, plan)
    if plan.home and turn.message is not None:
        restore(messages[-1], turn.message, FAMILY)
    return messages


def _ordinary(turn: Turn, plan: Plan) -> list[Any] | None:
    """The messages of a turn in which nothing is out of the ordinary: most are like that, and nothing is to be reported
    of them. None for any other."""
    message = turn.message
    if message is not None and message.name is not None:
        return None
    parts = message.parts if message is not None and turn.placed is None else said(turn)
    if turn.role != "assistant":
        results = []
        for part in parts:
            if (result := ordinary_result(part, plan)) is None:
                return None
            results.append(result)
        return results or None
    text: str | None = None
    calls: list[Any] = []
    for part in parts:
        if type(part) is ToolCall and is_ordinary(part, plan):
            name = plan.name(part.name, part.namespace)
            function = {"name": name, "arguments": part.arguments}
            calls.append({"id": part.id, "type": "function", "function": function})
        elif type(part) is Text and text is None and not calls and part.text and _is_bare(part):
            text = part.text
        else:
            return None
    if not calls or plan.answering or wants_reasoning(plan):
        return None
    if text is None and not plan.target.host.null_content:
        text = ""
    return [{"role": "assistant", "content": text, "tool_calls": calls}]


def _is_bare(part: Text) -> bool:
    return part.cache is None and part.extras is None and part.annotations is None and part.seal is None and not part.id


def _encode_said(turn: Turn, places: list[Placed], plan: Plan) -> list[Any]:
    """The message of what is neither a result nor the assistant's."""
    writer = Content(plan)
    for placed in places:
        writer.add(placed)
    body: dict[str, Any] = {"role": turn.role}
    if plan.home and turn.message is not None:
        writer.write_own(body, turn.message)
    elif writer.parts:
        body["content"] = writer.plain(turn.trail)
    elif places:
        return []
    else:
        body["content"] = ""
    if turn.role == "developer" and not plan.home and not plan.target.host.developer:
        plan.report.approximated(turn.trail, "role", "the host may know no developer: sent as system")
        body["role"] = "system"
    _encode_name(body, turn, plan)
    return [body]


def report_message(message: Message, trail: Trail, plan: Plan) -> None:
    """What a message of another protocol says of itself that has no place here."""
    for field in ("id", "phase", "clear_at"):
        if getattr(message, field) is not None:
            plan.report.dropped(trail, field)
    if message.status is not None and message.status != "completed":
        plan.report.dropped(trail, "status")


def _encode_name(body: dict[str, Any], turn: Turn, plan: Plan) -> None:
    if turn.message is None or turn.message.name is None:
        return
    if plan.home or plan.target.host.names:
        body["name"] = turn.message.name
    else:
        plan.report.dropped(turn.trail, "name", "the host may take no names of speakers")


class Content:
    """The content of a message as it grows: a string where that says all of it."""

    def __init__(self, plan: Plan, *, only_text: bool = False) -> None:
        self.parts: list[Any] = []
        self._plan = plan
        self._speaks = only_text
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

    def plain(self, trail: Trail) -> Any:
        # A model's text may come in pieces that break anywhere.
        return plain_content(self.parts, trail, self._plan, "" if self._speaks else "\n\n")

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
            encode_reasoning(part, placed, plan, body)
        elif type(part) is Refusal and not plan.home and not plan.answering and not plan.target.host.names:
            plan.report.approximated(placed.trail, "", "the host may have no place for refusals: told as text")
            content.add(Placed(Text(text=part.text), placed.trail))
        elif type(part) is Refusal and PART not in part.form:
            body["refusal"] = body.get("refusal", "") + part.text
        elif type(part) is Foreign and CALL in part.form and plan.home:
            calls.append(part.body)
        elif type(part) is Text and not part.text and not plan.home:
            report_text(part, placed, plan)
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
        encode_notes(message, body)
        if NO_REFUSAL in message.form:
            body.setdefault("refusal", "")
        if NO_FUNCTION in message.form:
            body.setdefault("function_call", {"name": "", "arguments": ""})
        _encode_name(body, turn, plan)
        return [restore(body, message, FAMILY)]
    if content.parts:
        body["content"] = content.text() if plan.answering else content.plain(turn.trail)
    elif calls or plan.answering or "refusal" in body:
        body["content"] = None if plan.answering or plan.target.host.null_content else ""
    elif all(isinstance(placed.part, Text) for placed in turn.parts):
        body["content"] = ""
    else:
        return []
    if plan.answering:
        cite_all(turn, plan, body)
    if calls and not plan.answering and "reasoning_content" not in body and wants_reasoning(plan):
        body["reasoning_content"] = ""
        why = "the model wants its reasoning back with calls: there was none"
        plan.report.invented(turn.trail, "", f"/messages/{plan.count}/reasoning_content", why)
    _encode_name(body, turn, plan)
    return [body]
