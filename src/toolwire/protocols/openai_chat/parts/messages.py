"""Decode and encode messages: one to one for Chat, and turns of other protocols as Chat messages.

An assistant message has reasoning, content, refusal and calls, in this order. Text of another protocol that follows
a call is therefore moved before it.
"""

from collections.abc import Iterable
from operator import attrgetter
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
from toolwire.canonical.request import Request
from toolwire.codec.encoding.plan import FORM_REASON, EncodedSystemMemo, EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, Turn, parts_of, system_turns
from toolwire.codec.losses import SourcePath, element_pointers
from toolwire.codec.wire.extras import restore_extras, unset_to_none
from toolwire.protocols.openai_chat.parts.cache_control import CACHE_FIELD, lift_mark
from toolwire.protocols.openai_chat.parts.call_signatures import add_required_signature
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
from toolwire.protocols.openai_chat.parts.citations import (
    TEXT_AS_CONTENT,
    decode_annotations,
    encode_annotations,
    encode_foreign_citations,
)
from toolwire.protocols.openai_chat.parts.content import (
    PART,
    STRING,
    chat_extras_and_form,
    collect_chat_extras,
    decode_parts,
    encode_parts,
    encode_text_content,
    join_texts,
    report_text,
)
from toolwire.protocols.openai_chat.parts.details import (
    DETAILS_FIELD,
    EXTENSION_FIELDS,
    IMAGES,
    decode_extensions,
    encode_image,
    is_in_extras,
    report_image,
    restore_extensions,
)
from toolwire.protocols.openai_chat.parts.reasoning import (
    add_required_reasoning,
    decode_reasoning,
    encode_reasoning,
    is_content_reasoning,
    requires_reasoning,
)
from toolwire.protocols.openai_chat.parts.signed_reasoning import ReasoningEncoder, uses_details
from toolwire.protocols.openai_chat.wire import FAMILY, FunctionCallShape, MessageShape, RefusalPart, TextPart

CONTENT_LIST = "openai-chat:content:list"
NO_CALLS = "openai-chat:calls:empty"
# Some servers send every field they know, and leave unused ones empty.
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
_other_role_fields = attrgetter(*_OTHER_ROLE_FIELDS)
_NO_OTHER_FIELDS = (UNSET,) * len(_OTHER_ROLE_FIELDS)

_EMPTY_FUNCTION = FunctionCallShape(name="", arguments="")


# ---- decode


def decode_message(shape: MessageShape, path: str, at: str | None = None) -> Message:
    """Decode one message; `path` is for error messages, `at` overrides its pointer."""
    role = _ROLES.get(shape.role)
    if role is None:
        if shape.role not in ("tool", "function"):
            raise DecodeError(FAMILY, f"{path}/role", "system, developer, user, assistant or tool", repr(shape.role))
        extras = _with_extras(collect_chat_extras(shape), _unused_fields(shape, _OTHER_ROLE_FIELDS[1:]))
        return Message(role="user", parts=(decode_result(shape),), at=at, **extras)
    if role == "assistant":
        return _decode_assistant(shape, at)
    if isinstance(shape.content, str):
        parts: tuple[Part, ...] = (Text(text=shape.content, at="/content"),)
        wire_form: tuple[str, ...] = (STRING,)
    else:
        parts = decode_parts(shape.content) if isinstance(shape.content, list) else ()
        wire_form = (CONTENT_LIST,) if shape.content == [] else ()
    extras = collect_chat_extras(shape, *wire_form)
    if _other_role_fields(shape) != _NO_OTHER_FIELDS:
        extras = _with_extras(extras, _unused_fields(shape, _OTHER_ROLE_FIELDS))
    return Message(role=role, parts=parts, name=unset_to_none(shape.name), at=at, **extras)


def _decode_assistant(shape: MessageShape, at: str | None) -> Message:
    """Decode a message of the assistant; `at` is its JSON pointer in the source."""
    parts: list[Part] = []
    wire_form: tuple[str, ...] = ()
    unused = _unused_fields(shape, ("tool_call_id",))
    if shape.reasoning_content is not UNSET or shape.reasoning is not UNSET or shape.unknown is not UNSET:
        decode_reasoning(shape, parts, unused)
    if isinstance(shape.content, str):
        parts.append(Text(text=shape.content, at="/content"))
        wire_form = (STRING,)
    elif isinstance(shape.content, list):
        parts += decode_parts(shape.content, len(parts))
        wire_form = () if shape.content else (CONTENT_LIST,)
    if isinstance(shape.annotations, list):
        wire_form += decode_annotations(shape.annotations, parts, unused)
    if isinstance(shape.refusal, str) or isinstance(shape.function_call, FunctionCallShape):
        wire_form += _decode_refusal_and_function(shape, parts)
    if isinstance(shape.tool_calls, list):
        parts += [decode_call(call, index) for index, call in enumerate(shape.tool_calls)]
        wire_form += () if shape.tool_calls else (NO_CALLS,)
    extras, wire_form = chat_extras_and_form(shape, wire_form)
    extras = {**extras, **unused} if unused else extras
    message = Message(
        role="assistant",
        parts=tuple(parts),
        name=unset_to_none(shape.name),
        at=at,
        extras={FAMILY: extras} if extras else None,
        wire_form=wire_form,
    )
    return message if EXTENSION_FIELDS.isdisjoint(extras) else decode_extensions(message)


def _decode_refusal_and_function(shape: MessageShape, parts: list[Part]) -> tuple[str, ...]:
    """Append `refusal` and the deprecated `function_call` to `parts`.

    Return the wire-form tokens that record empty values of these fields.
    """
    wire_form: tuple[str, ...] = ()
    if isinstance(shape.refusal, str):
        if shape.refusal:
            parts.append(Refusal(text=shape.refusal, at="/refusal"))
        else:
            wire_form += (NO_REFUSAL,)
    if isinstance(shape.function_call, FunctionCallShape):
        if shape.function_call == _EMPTY_FUNCTION:
            wire_form += (NO_FUNCTION,)
        else:
            parts.append(decode_legacy(shape.function_call))
    return wire_form


def _unused_fields(shape: MessageShape, names: tuple[str, ...]) -> dict[str, Raw]:
    """Return as extras, by name, the fields that have no meaning for the message's role."""
    unused = {}
    for name in names:
        value = getattr(shape, name)
        if value is not UNSET and value is not None:
            unused[name] = Raw(msgspec.json.encode(value))
    return unused


def _with_extras(collected: dict[str, Any], extras: dict[str, Raw]) -> dict[str, Any]:
    """Return the collected `extras` and `wire_form` arguments with more Chat extras added."""
    if not extras:
        return collected
    collected_extras = (collected.get("extras") or {}).get(FAMILY, {})
    return {**collected, "extras": {FAMILY: {**collected_extras, **extras}}}


# ---- encode


def encode_turn(turn: Turn, plan: EncodingPlan) -> list[Any]:
    """Encode one turn as a list of messages, which may be empty."""
    message = turn.message
    if not plan.same_protocol and (message is None or message.name is None):
        parts = message.parts if message is not None and turn.located_parts is None else parts_of(turn)
        if turn.role == "assistant":
            encoded = _encode_fast_assistant(parts, plan)
        elif len(parts) != 1:
            encoded = _encode_fast_results(parts, plan)
        elif type(part := parts[0]) is not Text:
            encoded = None if (result := encode_fast_result(part, plan)) is None else [result]
        else:
            if turn.role == "user" and part.id is None and part.wire_form in _PLAIN_FORMS and _is_plain_text(part):
                return [{"role": "user", "content": part.text}]
            return _encode_results_and_content(turn, plan)
        if encoded is not None:
            return encoded
    if turn.role == "assistant":
        if not plan.same_protocol and uses_details(turn.parts, plan):
            return _encode_with_details(turn, plan)
        return _encode_assistant(turn, plan)
    return _encode_results_and_content(turn, plan)


def encode_system(request: Request, plan: EncodingPlan) -> list[Any]:
    """Encode as messages the system text that other protocols keep outside the messages."""
    return _system_memo.encode(request, plan, _encode_system) if request.system else []


def _encode_system(request: Request, plan: EncodingPlan) -> list[Any]:
    """Encode the system text."""
    return [message for turn in system_turns(request) for message in encode_turn(turn, plan)]


_system_memo = EncodedSystemMemo()


def _encode_results_and_content(turn: Turn, plan: EncodingPlan) -> list[Any]:
    """Encode tool results, then media that they cannot hold, then all other content, as messages."""
    messages: list[Any] = []
    hoisted: list[Any] = []
    other_parts: list[LocatedPart] = []
    for located_part in turn.parts:
        part = located_part.part
        if type(part) is ToolResult and part.executor == "client":
            messages.append(encode_result(part, located_part, plan, hoisted))
        else:
            other_parts.append(located_part)
    if hoisted:
        messages.append({"role": "user", "content": hoisted})
    if other_parts or not messages:
        messages += _encode_content_message(turn, other_parts, plan)
    if plan.same_protocol and turn.message is not None:
        restore_extras(messages[-1], turn.message, FAMILY)
    return messages


def _encode_fast_results(parts: Iterable[Part], plan: EncodingPlan) -> list[Any] | None:
    """Encode a turn of tool results without optional fields, None for any other; it has no losses."""
    results = []
    for part in parts:
        if (result := encode_fast_result(part, plan)) is None:
            return None
        results.append(result)
    return results or None


def _encode_fast_assistant(parts: Iterable[Part], plan: EncodingPlan) -> list[Any] | None:
    """Encode an assistant turn of at most one text, then calls, without optional fields; None for any other."""
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
    if plan.target.host.reasoning.call_signature is not None:
        return None
    if text is None and not plan.target.host.content.null_with_calls:
        text = ""
    return [{"role": "assistant", "content": text, "tool_calls": calls}]


def _is_plain_text(part: Text) -> bool:
    """Tell whether the text has neither cache mark, extras, annotations, signature nor id."""
    return (
        part.cache is None
        and part.extras is None
        and part.annotations is None
        and part.signature is None
        and not part.id
    )


def _encode_content_message(turn: Turn, located_parts: list[LocatedPart], plan: EncodingPlan) -> list[Any]:
    """Encode the parts of a user, system or developer turn that are not tool results."""
    content = ContentEncoder(plan)
    for located_part in located_parts:
        content.add(located_part)
    body: dict[str, Any] = {"role": turn.role}
    if plan.same_protocol and turn.message is not None:
        content.encode_same_protocol(body, turn)
    elif content.parts:
        body["content"] = content.encode(turn)
    elif located_parts:
        return []
    else:
        body["content"] = ""
    if plan.adapts and turn.role not in plan.target.host.messages.roles:
        plan.report.approximated(turn.path, "role", f"{plan.target.host.rejects('the developer role')}; sent as system")
        body["role"] = "system"
    _encode_name(body, turn, plan)
    return [body]


def report_message(message: Message, path: SourcePath, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's message that Chat lacks."""
    plan.report.dropped_fields(path, message, "id", "phase", "clear_at")
    if message.status is not None and message.status != "completed":
        plan.report.dropped(path, "status")


def report_message_extras(turn: Turn, plan: EncodingPlan) -> None:
    """Report as losses fields of this family that only a separate assistant message can hold.

    Parts represent those of assistant messages that were merged into one turn.
    """
    if turn.message is not None:
        messages = [] if turn.role == "assistant" else [(turn.path, turn.message)]
    else:
        messages = [(("messages", number), message) for number, message in turn.messages or ()]
    for path, message in messages:
        if not message.extras:
            continue
        for name, value in message.extras.get(FAMILY, {}).items():
            if not any(token.endswith(f":canonical:{name}") for token in message.wire_form):
                for pointer in element_pointers(value, name):
                    reason = "the target supports it only on single-message assistant turns"
                    plan.report.dropped(path, f"//{pointer}", reason)


def _encode_name(body: dict[str, Any], turn: Turn, plan: EncodingPlan) -> None:
    """Write `name` into `body` if the host supports it, else report it as a loss."""
    if turn.message is None or turn.message.name is None:
        return
    if not plan.adapts or plan.target.host.messages.names:
        body["name"] = turn.message.name
    else:
        plan.report.dropped(turn.path, "name", plan.target.host.rejects("names of speakers"))


class ContentEncoder:
    """Collect the content of one message, as a string if it is plain text."""

    def __init__(self, plan: EncodingPlan, *, only_text: bool = False) -> None:
        self.parts: list[Any] = []
        self._plan = plan
        self._is_assistant = only_text
        self._only_text = only_text and not plan.same_protocol
        self._is_plain_text = True
        self._marked: LocatedPart | None = None  # the last part with a cache mark

    def add(self, located_part: LocatedPart) -> None:
        """Encode a part and append it."""
        part = located_part.part
        if type(part) is Text and part.cache is None and not part.extras and part.wire_form in _PLAIN_FORMS:
            if part.signature is not None or part.id is not None or part.annotations:
                report_text(part, located_part, self._plan)
            self.parts.append(TextPart(text=part.text))
            return
        if self._only_text and isinstance(part, Media):
            self._plan.report.dropped(located_part.path, "", "assistant messages of the target are text only")
            return
        if type(part) is Text and part.cache is not None:
            self._marked = located_part
        for encoded in self._encode_other(part, located_part):
            is_plain = type(encoded) is TextPart and encoded.prompt_cache_breakpoint is UNSET
            self._is_plain_text = self._is_plain_text and is_plain
            self.parts.append(encoded)

    def _encode_other(self, part: Part, located_part: LocatedPart) -> list[Any]:
        """Encode a part that is not text, or text with optional fields, as content parts."""
        if type(part) is ToolCall:
            encoded = encode_server_call(part, located_part, self._plan)
        elif type(part) is ToolResult:
            encoded = encode_server_result(part, located_part, self._plan)
        else:
            return encode_parts([located_part], self._plan)
        return [] if encoded is None else [encoded]

    def text(self) -> str | None:
        """Return the content as one string; None if it holds more than text."""
        return "".join([part.text for part in self.parts]) if self._is_plain_text else None

    def encode(self, turn: Turn) -> Any:
        """Return the content of another protocol's turn, as a string or a list of parts."""
        only = self.parts[0] if len(self.parts) == 1 and turn.path != ("system",) else None
        if self._marked is not None and self._plan.has_moving_marks and type(only) is TextPart:
            if only.prompt_cache_breakpoint is not UNSET:
                self._plan.report.dropped((*self._marked.path, "cache"), "", FORM_REASON)
            return only.text
        if self._marked is not None and self._plan.has_moving_marks and type(only) is dict and CACHE_FIELD in only:
            if type(marked := self._marked.part) is Text and marked.cache is not None:
                lift_mark(marked.cache, self._marked.path, self._plan)
            return only["text"]
        return encode_text_content(self.parts, turn.path, self._plan, turn.role)

    def encode_same_protocol(self, body: dict[str, Any], turn: Turn) -> None:
        """Write the content into `body`, as string or list like the Chat client's."""
        wire_form = () if turn.message is None else turn.message.wire_form
        text = self.text() if STRING in wire_form and self.parts else None
        if text is not None:
            body["content"] = text
        elif self.parts or CONTENT_LIST in wire_form:
            body["content"] = join_texts(self.parts, turn.path, self._plan, turn.role)


def _encode_with_details(turn: Turn, plan: EncodingPlan) -> list[Any]:
    """Encode a turn whose reasoning and signatures are sent as `reasoning_details`.

    If a client of this family sent them, they are sent unchanged.
    """
    extras = {} if turn.message is None else (turn.message.extras or {}).get(FAMILY, {})
    reasoning = ReasoningEncoder(plan, plan.messages)
    images: list[Any] = []
    others: list[LocatedPart] = []
    for located_part in turn.parts:
        part, path = located_part.part, located_part.path
        if extras and part.at is not None and part.at.partition("/")[2].partition("/")[0] in extras:
            continue
        if isinstance(part, Reasoning):
            if DETAILS_FIELD in extras:
                reasoning.add_text(part)
            else:
                reasoning.add(part, located_part, follows_content=bool(others))
        elif plan.for_client and (image := encode_image(part, len(images))) is not None:
            images.append(image)
            report_image(part, path, plan.report)
        else:
            others.append(LocatedPart(reasoning.take_signature(part, located_part), path))
    # A turn of reasoning alone may still be in progress; messages already sent must not change when it continues.
    is_sent = others or extras or not turn.parts or plan.for_client
    messages = _encode_assistant(Turn(turn.role, others, turn.message, turn.path), plan) if is_sent else []
    fields = reasoning.finish(is_sent=bool(messages))
    if messages:
        messages[-1].update(fields, **({IMAGES: images} if images else {}), **extras)
    return messages


def _encode_assistant(turn: Turn, plan: EncodingPlan) -> list[Any]:
    """Encode a turn of the assistant."""
    body: dict[str, Any] = {"role": "assistant"}
    content = ContentEncoder(plan, only_text=True)
    calls: list[Any] = []
    if plan.same_protocol and turn.message is not None and turn.message.extras:
        turn = _restore_extensions(turn, turn.message)
    for located_part in turn.parts:
        part = located_part.part
        if type(part) is ToolCall and part.executor == "client":
            if LEGACY_FORM in part.wire_form and plan.same_protocol:
                body["function_call"] = restore_extras(encode_function(part), part, FAMILY)
            else:
                calls.append(encode_call(part, located_part, plan))
        elif type(part) is Reasoning and not is_content_reasoning(part, plan):
            encode_reasoning(part, located_part, plan, body)
        elif type(part) is Refusal:
            _encode_refusal(part, located_part, plan, body, content)
        elif type(part) is OpaquePart and CALL_FORM in part.wire_form and plan.same_protocol:
            calls.append(part.body)
        else:
            _add_content(located_part, plan, content, follows_calls=bool(calls))
    if plan.same_protocol and turn.message is not None:
        _finish_same_protocol_assistant(turn, turn.message, body, content, calls)
        _encode_name(body, turn, plan)
        restore_extras(body, turn.message, FAMILY)
        return _fit_same_protocol_assistant(body, turn, plan) if plan.adapts else [body]
    return _finish_assistant(turn, plan, body, content, calls)


def _restore_extensions(turn: Turn, message: Message) -> Turn:
    """Return a Chat turn with its message as it is written: without the parts that only repeat its extras."""
    if (restored := restore_extensions(message)) is message:
        return turn
    located_parts = [located_part for located_part in turn.parts if not is_in_extras(located_part.part)]
    return Turn(turn.role, located_parts, restored, turn.path)


def _encode_refusal(
    part: Refusal, located_part: LocatedPart, plan: EncodingPlan, body: dict[str, Any], content: ContentEncoder
) -> None:
    """Encode a refusal: in `refusal` or the content, or as text if the host may lack them."""
    if plan.adapts and not plan.for_client and not plan.target.host.messages.refusals:
        plan.report.approximated(located_part.path, "", "refusal sent as text")
        content.add(LocatedPart(Text(text=part.text), located_part.path))
    elif PART not in part.wire_form:
        body["refusal"] = body.get("refusal", "") + part.text
    else:
        content.add(located_part)


def _add_content(
    located_part: LocatedPart, plan: EncodingPlan, content: ContentEncoder, *, follows_calls: bool
) -> None:
    """Add a part to the content; empty text from other protocols is left out."""
    part = located_part.part
    if type(part) is Text and not plan.same_protocol:
        if not part.text:
            report_text(part, located_part, plan)
            return
        if follows_calls:
            plan.report.approximated(located_part.path, "", "text after tool calls moved before them")
    content.add(located_part)


def _fit_same_protocol_assistant(body: dict[str, Any], turn: Turn, plan: EncodingPlan) -> list[Any]:
    """Change what a known host rejects in an assistant message of a Chat client.

    Return the message in a list, which is empty if the host rejects it for its lack of content.
    """
    host = plan.target.host
    if body.get("tool_calls") and body.get("content") is None and not host.content.null_with_calls:
        body["content"] = ""
        plan.report.approximated(turn.path, "parts", f"{host.rejects('null content')}; sent as an empty text")
    if host.messages.members:
        for name in [name for name in body if name not in host.messages.members]:
            del body[name]
            plan.report.dropped(turn.path, f"//{name}", host.rejects(name))
    if _is_rejected_as_empty(body, turn, plan):
        return []
    add_required_reasoning(body, turn.path, plan)
    add_required_signature(body.get("tool_calls") or [], turn.path, plan)
    return [body]


def _is_rejected_as_empty(body: dict[str, Any], turn: Turn, plan: EncodingPlan) -> bool:
    """Tell whether the host rejects an assistant message because it has neither text nor calls; it is reported."""
    if plan.target.host.content.empty_assistant or body.get("content") or body.get("tool_calls"):
        return False
    if body.get("function_call") or body.get("refusal"):
        return False
    reason = plan.target.host.rejects("assistant messages without text and calls")
    plan.report.dropped(turn.path, "", reason, severity="info")
    return True


def _finish_same_protocol_assistant(
    turn: Turn, message: Message, body: dict[str, Any], content: ContentEncoder, calls: list[Any]
) -> None:
    """Write content and calls into the body of a Chat client's assistant message, spelled as received."""
    if calls or NO_CALLS in message.wire_form:
        body["tool_calls"] = calls
    content.encode_same_protocol(body, turn)
    encode_annotations(message, body)
    if NO_REFUSAL in message.wire_form:
        body.setdefault("refusal", "")
    if NO_FUNCTION in message.wire_form:
        body.setdefault("function_call", {"name": "", "arguments": ""})


def _finish_assistant(
    turn: Turn, plan: EncodingPlan, body: dict[str, Any], content: ContentEncoder, calls: list[Any]
) -> list[Any]:
    """Write content and calls into the body of another protocol's turn.

    Return the message in a list, which is empty if it has no content left.
    """
    if calls:
        body["tool_calls"] = calls
    if "refusal" in body and not calls and not content.parts and not plan.for_client:
        body["content"] = [RefusalPart(refusal=body.pop("refusal"))]  # the API rejects null content without calls
    elif content.parts:
        body["content"] = content.text() if plan.for_client else content.encode(turn)
    elif calls or plan.for_client:
        body["content"] = None if plan.for_client or plan.target.host.content.null_with_calls else ""
    elif all(isinstance(located_part.part, Text) for located_part in turn.parts):
        body["content"] = ""
        if _is_rejected_as_empty(body, turn, plan):
            return []
    else:
        return []
    if plan.for_client:
        encode_foreign_citations(turn, plan, body)
    else:
        add_required_reasoning(body, turn.path, plan)
        add_required_signature(calls, turn.path, plan)
    _encode_name(body, turn, plan)
    return [body]
