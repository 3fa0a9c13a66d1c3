"""Chat's messages, to canonical messages and back: one for one at home, turns of another protocol as it wants them.

A message of the assistant says its reasoning, then its content, then its refusal, then its calls. Where another
protocol had another order, text that followed a call now stands before it.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import (
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from toolwire.canonical.errors import DecodeError
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, Turn, parts_of
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import restore_extras, unset_to_none
from toolwire.protocols.openai_chat.parts.calls import (
    CALL_FORM,
    LEGACY_FORM,
    decode_call,
    decode_legacy,
    decode_result,
    encode_call,
    encode_fast_result,
    encode_function,
    encode_result,
    encode_server_call,
    encode_server_result,
    is_plain_call,
)
from toolwire.protocols.openai_chat.parts.content import (
    PART,
    STRING,
    TEXT_AS_CONTENT,
    THINKING_FORM,
    chat_extras_and_form,
    collect_chat_extras,
    decode_annotations,
    decode_parts,
    decode_reasoning,
    encode_annotations,
    encode_foreign_citations,
    encode_parts,
    encode_reasoning,
    encode_text_content,
    report_text,
    requires_reasoning,
)
from toolwire.protocols.openai_chat.wire import FAMILY, FunctionCallShape, MessageShape, TextPart

CONTENT_LIST = "openai-chat:content:list"
NO_CALLS = "openai-chat:calls:empty"
# Servers that write every field they know say nothing by an empty one.
NO_REFUSAL = "openai-chat:refusal:empty"
NO_FUNCTION = "openai-chat:function_call:empty"

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}
_PLAIN_FORMS = ((), (TEXT_AS_CONTENT,))
_OTHER_ROLE_FIELDS = (
    "tool_call_id",
    "tool_calls",
    "function_call",
    "refusal",
    "annotations",
    "reasoning_content",
    "reasoning",
)

_EMPTY_FUNCTION = FunctionCallShape(name="", arguments="")


# ---- decode


def decode_message(shape: MessageShape, path: str, at: str | None = None) -> Message:
    role = _ROLES.get(shape.role)
    if role is None:
        if shape.role not in ("tool", "function"):
            raise DecodeError(FAMILY, f"{path}/role", "system, developer, user, assistant or tool", repr(shape.role))
        found = _with_extras(collect_chat_extras(shape), _unused_fields(shape, _OTHER_ROLE_FIELDS[1:]))
        return Message(role="user", parts=(decode_result(shape),), at=at, **found)
    if role == "assistant":
        return _decode_assistant(shape, at)
    if isinstance(shape.content, str):
        parts: tuple[Part, ...] = (Text(text=shape.content, at="/content"),)
        form: tuple[str, ...] = (STRING,)
    else:
        parts = decode_parts(shape.content) if isinstance(shape.content, list) else ()
        form = (CONTENT_LIST,) if shape.content == [] else ()
    found = _with_extras(collect_chat_extras(shape, *form), _unused_fields(shape, _OTHER_ROLE_FIELDS))
    return Message(role=role, parts=parts, name=unset_to_none(shape.name), at=at, **found)


def _decode_assistant(shape: MessageShape, at: str | None) -> Message:
    parts: list[Part] = []
    form: tuple[str, ...] = ()
    extras = _unused_fields(shape, ("tool_call_id",))
    if shape.reasoning_content is not UNSET or shape.reasoning is not UNSET or shape.unknown is not UNSET:
        decode_reasoning(shape, parts, extras)
    if isinstance(shape.content, str):
        parts.append(Text(text=shape.content, at="/content"))
        form = (STRING,)
    elif isinstance(shape.content, list):
        parts += decode_parts(shape.content, len(parts))
        form = () if shape.content else (CONTENT_LIST,)
    if isinstance(shape.annotations, list):
        form += decode_annotations(shape.annotations, parts, extras)
    if isinstance(shape.refusal, str):
        form += () if shape.refusal else (NO_REFUSAL,)
        parts += [Refusal(text=shape.refusal, at="/refusal")] if shape.refusal else []
    if isinstance(shape.function_call, FunctionCallShape):
        if shape.function_call == _EMPTY_FUNCTION:
            form += (NO_FUNCTION,)
        else:
            parts.append(decode_legacy(shape.function_call))
    if isinstance(shape.tool_calls, list):
        parts += [decode_call(call, index) for index, call in enumerate(shape.tool_calls)]
        form += () if shape.tool_calls else (NO_CALLS,)
    own, form = chat_extras_and_form(shape, form)
    own = {**own, **extras} if extras else own
    return Message(
        role="assistant",
        parts=tuple(parts),
        name=unset_to_none(shape.name),
        at=at,
        extras={FAMILY: own} if own else None,
        wire_form=form,
    )


def _unused_fields(shape: MessageShape, names: tuple[str, ...]) -> dict[str, Raw]:
    """Fields that this role has no use for, kept as they are."""
    found = {}
    for name in names:
        value = getattr(shape, name)
        if value is not UNSET and value is not None:
            found[name] = Raw(msgspec.json.encode(value))
    return found


def _with_extras(extras_and_form: dict[str, Any], extras: dict[str, Raw]) -> dict[str, Any]:
    if not extras:
        return extras_and_form
    before = (extras_and_form.get("extras") or {}).get(FAMILY, {})
    return {**extras_and_form, "extras": {FAMILY: {**before, **extras}}}


# ---- encode


def encode_turn(turn: Turn, plan: EncodingPlan) -> list[Any]:
    """The messages of one turn."""
    if not plan.same_protocol and (ordinary := _encode_fast(turn, plan)) is not None:
        return ordinary
    if turn.role == "assistant":
        return _encode_assistant(turn, plan)
    messages: list[Any] = []
    hoisted: list[Any] = []
    others: list[LocatedPart] = []
    for placed in turn.parts:
        part = placed.part
        if isinstance(part, ToolResult) and part.executor == "client":
            messages.append(encode_result(part, placed, plan, hoisted))
        else:
            others.append(placed)
    if hoisted:
        messages.append({"role": "user", "content": hoisted})
    if others or not messages:
        messages += _encode_content_message(turn, others, plan)
    if plan.same_protocol and turn.message is not None:
        restore_extras(messages[-1], turn.message, FAMILY)
    return messages


def _encode_fast(turn: Turn, plan: EncodingPlan) -> list[Any] | None:
    """The messages of a turn in which nothing is out of the ordinary: most are like that, and nothing is to be reported
    of them. None for any other."""
    message = turn.message
    if message is not None and message.name is not None:
        return None
    parts = message.parts if message is not None and turn.located_parts is None else parts_of(turn)
    if turn.role != "assistant":
        results = []
        for part in parts:
            if (result := encode_fast_result(part, plan)) is None:
                return None
            results.append(result)
        return results or None
    text: str | None = None
    calls: list[Any] = []
    for part in parts:
        if type(part) is ToolCall and is_plain_call(part, plan):
            name = plan.tool_name(part.name, part.namespace)
            function = {"name": name, "arguments": part.arguments}
            calls.append({"id": part.id, "type": "function", "function": function})
        elif type(part) is Text and text is None and not calls and part.text and _is_plain_text(part):
            text = part.text
        else:
            return None
    if not calls or plan.for_client or requires_reasoning(plan):
        return None
    if text is None and not plan.target.host.null_content:
        text = ""
    return [{"role": "assistant", "content": text, "tool_calls": calls}]


def _is_plain_text(part: Text) -> bool:
    return (
        part.cache is None
        and part.extras is None
        and part.annotations is None
        and part.signature is None
        and not part.id
    )


def _encode_content_message(turn: Turn, located_parts: list[LocatedPart], plan: EncodingPlan) -> list[Any]:
    """The message of what is neither a result nor the assistant's."""
    writer = ContentEncoder(plan)
    for placed in located_parts:
        writer.add(placed)
    body: dict[str, Any] = {"role": turn.role}
    if plan.same_protocol and turn.message is not None:
        writer.encode_same_protocol(body, turn.message)
    elif writer.parts:
        body["content"] = writer.encode(turn.path)
    elif located_parts:
        return []
    else:
        body["content"] = ""
    if turn.role == "developer" and not plan.same_protocol and not plan.target.host.developer_role:
        plan.report.approximated(turn.path, "role", "the host may know no developer: sent as system")
        body["role"] = "system"
    _encode_name(body, turn, plan)
    return [body]


def report_message(message: Message, path: SourcePath, plan: EncodingPlan) -> None:
    """What a message of another protocol says of itself that has no place here."""
    for field in ("id", "phase", "clear_at"):
        if getattr(message, field) is not None:
            plan.report.dropped(path, field)
    if message.status is not None and message.status != "completed":
        plan.report.dropped(path, "status")


def _encode_name(body: dict[str, Any], turn: Turn, plan: EncodingPlan) -> None:
    if turn.message is None or turn.message.name is None:
        return
    if plan.same_protocol or plan.target.host.message_names:
        body["name"] = turn.message.name
    else:
        plan.report.dropped(turn.path, "name", "the host may take no names of speakers")


class ContentEncoder:
    """The content of a message as it grows: a string where that says all of it."""

    def __init__(self, plan: EncodingPlan, *, only_text: bool = False) -> None:
        self.parts: list[Any] = []
        self._plan = plan
        self._is_assistant = only_text
        self._only_text = only_text and not plan.same_protocol
        self._is_plain_text = True

    def add(self, located_part: LocatedPart) -> None:
        part = located_part.part
        if type(part) is Text and part.cache is None and not part.extras and part.wire_form in _PLAIN_FORMS:
            if part.signature is not None or part.id is not None or part.annotations:
                report_text(part, located_part, self._plan)
            self.parts.append(TextPart(text=part.text))
            return
        if self._only_text and isinstance(part, Media):
            self._plan.report.dropped(located_part.path, "", "the target's assistant says nothing but text")
            return
        if isinstance(part, ToolCall):
            made = encode_server_call(part, located_part, self._plan)
            found = [] if made is None else [made]
        elif isinstance(part, ToolResult):
            made = encode_server_result(part, located_part, self._plan)
            found = [] if made is None else [made]
        else:
            found = encode_parts([located_part], self._plan)
        for one in found:
            self._is_plain_text = self._is_plain_text and type(one) is TextPart and one.prompt_cache_breakpoint is UNSET
            self.parts.append(one)

    def text(self) -> str | None:
        """All of it as one string, if it is nothing but text."""
        return "".join([one.text for one in self.parts]) if self._is_plain_text else None

    def encode(self, path: SourcePath) -> Any:
        # A model's text may come in pieces that break anywhere.
        return encode_text_content(self.parts, path, self._plan, "" if self._is_assistant else "\n\n")

    def encode_same_protocol(self, body: dict[str, Any], message: Message) -> None:
        text = self.text() if STRING in message.wire_form and self.parts else None
        if text is not None:
            body["content"] = text
        elif self.parts or CONTENT_LIST in message.wire_form:
            body["content"] = self.parts


def _encode_assistant(turn: Turn, plan: EncodingPlan) -> list[Any]:
    body: dict[str, Any] = {"role": "assistant"}
    content = ContentEncoder(plan, only_text=True)
    calls: list[Any] = []
    for placed in turn.parts:
        part = placed.part
        if type(part) is ToolCall and part.executor == "client":
            if LEGACY_FORM in part.wire_form and plan.same_protocol:
                body["function_call"] = restore_extras(encode_function(part), part, FAMILY)
            else:
                calls.append(encode_call(part, placed, plan))
        elif type(part) is Reasoning and THINKING_FORM not in part.wire_form:
            encode_reasoning(part, placed, plan, body)
        elif (
            type(part) is Refusal
            and not plan.same_protocol
            and not plan.for_client
            and not plan.target.host.message_names
        ):
            plan.report.approximated(placed.path, "", "the host may have no place for refusals: told as text")
            content.add(LocatedPart(Text(text=part.text), placed.path))
        elif type(part) is Refusal and PART not in part.wire_form:
            body["refusal"] = body.get("refusal", "") + part.text
        elif type(part) is OpaquePart and CALL_FORM in part.wire_form and plan.same_protocol:
            calls.append(part.body)
        elif type(part) is Text and not part.text and not plan.same_protocol:
            report_text(part, placed, plan)
        else:
            if calls and type(part) is Text and not plan.same_protocol:
                plan.report.approximated(placed.path, "", "text after calls is told before them")
            content.add(placed)
    return _finish_assistant(turn, plan, body, content, calls)


def _finish_assistant(
    turn: Turn, plan: EncodingPlan, body: dict[str, Any], content: ContentEncoder, calls: list[Any]
) -> list[Any]:
    message = turn.message
    if calls or (plan.same_protocol and message is not None and NO_CALLS in message.wire_form):
        body["tool_calls"] = calls
    if plan.same_protocol and message is not None:
        content.encode_same_protocol(body, message)
        encode_annotations(message, body)
        if NO_REFUSAL in message.wire_form:
            body.setdefault("refusal", "")
        if NO_FUNCTION in message.wire_form:
            body.setdefault("function_call", {"name": "", "arguments": ""})
        _encode_name(body, turn, plan)
        return [restore_extras(body, message, FAMILY)]
    if content.parts:
        body["content"] = content.text() if plan.for_client else content.encode(turn.path)
    elif calls or plan.for_client or "refusal" in body:
        body["content"] = None if plan.for_client or plan.target.host.null_content else ""
    elif all(isinstance(placed.part, Text) for placed in turn.parts):
        body["content"] = ""
    else:
        return []
    if plan.for_client:
        encode_foreign_citations(turn, plan, body)
    if calls and not plan.for_client and "reasoning_content" not in body and requires_reasoning(plan):
        body["reasoning_content"] = ""
        why = "the model wants its reasoning back with calls: there was none"
        plan.report.added(turn.path, "", f"/messages/{plan.output_index}/reasoning_content", why)
    _encode_name(body, turn, plan)
    return [body]
