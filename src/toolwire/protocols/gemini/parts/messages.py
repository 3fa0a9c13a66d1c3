"""Decode and encode contents and the system instruction."""

from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Role, Text, ToolCall, ToolResult
from toolwire.canonical.events import MessageStart
from toolwire.canonical.request import Request
from toolwire.codec.encoding.computer_request import adapt_turns
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import EMPTY_TEXT, LocatedPart, Turn, assemble, one_turn_per_message
from toolwire.codec.wire.extras import collect_extras, merge_extras
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.gemini.field_case import FieldCase, encode_shape, make_extra, with_unknown_fields
from toolwire.protocols.gemini.parts.calls import encode_fast_result, is_before_gemini_3
from toolwire.protocols.gemini.parts.content import decode_part, decode_parts, encode_parts
from toolwire.protocols.gemini.parts.signatures import DUMMY_SIGNATURE, move_signatures
from toolwire.protocols.gemini.wire import FAMILY, ContentShape, PartShape

STRING = "gemini:string"
SINGLE_STRING = "gemini:contents:string"
SINGLE_CONTENT = "gemini:contents:object"
NO_CONTENTS = "gemini:absent:contents"
NO_PARTS = "gemini:absent:parts"
_PART_FORM = "gemini:part"
_ROLE_FORM = "gemini:role:"
_SYSTEM_STRING = "gemini:system:string"

_ROLES: dict[str, Role] = {"user": "user", "model": "assistant", "function": "user"}
_WIRE_ROLES = {"assistant": "model"}

_read_part = Reader[PartShape](PartShape, FAMILY).read


# ---- decode


def decode_contents(contents: Any) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """Decode `contents`: a string, one content, or a list of strings, contents and parts.

    Return the messages and the wire-form tokens that record which of these the client sent.
    """
    if contents is UNSET:
        return (), (NO_CONTENTS,)
    if isinstance(contents, str):
        text = Text(text=contents, at="")
        return (Message(role="user", parts=(text,), at="/contents", wire_form=(STRING,)),), (SINGLE_STRING,)
    if isinstance(contents, ContentShape):
        return (replace(decode_content(contents, "/contents"), at="/contents"),), (SINGLE_CONTENT,)
    return tuple([_decode_element(element, f"/contents/{index}") for index, element in enumerate(contents)]), ()


def _decode_element(element: ContentShape | str, path: str) -> Message:
    """Decode one element of `contents`: a string, a content, or a bare part."""
    if isinstance(element, str):
        return Message(role="user", parts=(Text(text=element, at=""),), wire_form=(STRING,))
    has_no_content_fields = element.parts is UNSET and element.role is UNSET and element.nulls is UNSET
    if has_no_content_fields and element.unknown is not UNSET:
        # The SDKs accept a part in place of a content.
        part = decode_part(_read_part(msgspec.json.encode(element.unknown), path), path)
        if not isinstance(part, Text) or part.text:
            return Message(role="user", parts=(replace(part, at=""),), wire_form=(_PART_FORM,))
    return decode_content(element, path)


def decode_content(shape: ContentShape, path: str, role: Role | None = None) -> Message:
    """Decode one content; `role` replaces the role on the wire, which responses may omit."""
    parts = () if shape.parts is UNSET else decode_parts(shape.parts, path + "/parts")
    if shape.parts is not UNSET and shape.unknown is UNSET and shape.nulls is UNSET:
        if shape.role == "user" or (shape.role is UNSET and role is None):
            return Message(role=role or "user", parts=parts, wire_form=() if shape.role == "user" else (_ROLE_FORM,))
        if shape.role == "model":
            return Message(role="assistant", parts=parts, wire_form=())
    form: tuple[str, ...] = (NO_PARTS,) if shape.parts is UNSET else ()
    wire_role, role_form, role_extras = _decode_role(shape.role)
    extras = merge_extras(collect_extras(shape, FAMILY, *form, *role_form), role_extras)
    return Message(role=role or wire_role, parts=parts, **extras)


def _decode_role(role: Any) -> tuple[Role, tuple[str, ...], dict[str, Any]]:
    """Decode a role; return the canonical role, wire-form tokens, and an `extras` argument with an unknown role."""
    if role is UNSET:
        return "user", (_ROLE_FORM,), {}
    if role == "function":
        return "user", (_ROLE_FORM + "function",), {}
    if role not in _ROLES:
        return "user", (), make_extra("role", role)
    return _ROLES[role], (), {}


def decode_system(system: Any, field_case: FieldCase, location: str) -> tuple[tuple[Text, ...] | None, dict[str, Any]]:
    """Decode the system instruction; return its texts and the request's `extras` and `wire_form` arguments.

    The texts are None if the instruction is absent or holds more than text; it is then an extra.
    """
    source = field_case.source_pointer(location)
    if system is UNSET:
        return None, {}
    if isinstance(system, str):
        return (Text(text=system, at=f"/{source}"),), {"wire_form": (_SYSTEM_STRING,)}
    if any(part.text is UNSET or part.thought is True for part in system.parts or ()):
        return None, make_extra(source, with_unknown_fields(system))
    message = decode_content(system, f"/{source}")
    texts = [part for part in message.parts if isinstance(part, Text)]
    located_texts = tuple([replace(part, at=f"/{source}/parts/{index}") for index, part in enumerate(texts)])
    extras = collect_extras(system, FAMILY, prefix=f"{source}/")
    role = {} if system.role is UNSET else make_extra(f"{source}/role", system.role)
    if system.role in ("user", "system", "model"):
        role = {"wire_form": (f"gemini:system:role={system.role}",)}  # the server ignores the role
    absent = {"wire_form": (f"gemini:system:{NO_PARTS}",)} if system.parts is UNSET else {}
    return located_texts, merge_extras(extras, role, absent)


# ---- encode


def encode_system(request: Request, lifted_count: int, plan: EncodingPlan) -> Any:
    """Encode `systemInstruction`; for other protocols it includes the first `lifted_count` messages."""
    system = request.system
    if plan.same_protocol:
        return None if system is None else _encode_same_protocol_system(request, plan)
    located_parts = [LocatedPart(part, ("system", index)) for index, part in enumerate(system or ())]
    for number, message in enumerate(request.messages[:lifted_count]):
        located_parts.extend(
            LocatedPart(part, ("messages", number, "parts", index)) for index, part in enumerate(message.parts)
        )
    parts = encode_parts(located_parts, plan)
    return {"parts": parts} if parts else None


def _encode_same_protocol_system(request: Request, plan: EncodingPlan) -> Any:
    """Encode the system instruction of a Gemini client, as string or content like the client's."""
    system = request.system or ()
    if _SYSTEM_STRING in request.wire_form and len(system) == 1:
        return system[0].text
    parts = encode_parts([LocatedPart(part, ("system", index)) for index, part in enumerate(system)], plan)
    body: dict[str, Any] = {} if f"gemini:system:{NO_PARTS}" in request.wire_form and not parts else {"parts": parts}
    for token in request.wire_form:
        if token.startswith("gemini:system:role="):
            body["role"] = token.removeprefix("gemini:system:role=")
    return body


def encode_contents(request: Request, lifted_count: int, plan: EncodingPlan) -> Any:
    """Encode `contents` without the first `lifted_count` messages, which are in `systemInstruction`."""
    if not plan.same_protocol:
        encoder = ContentsEncoder(plan)
        for turn in adapt_turns(assemble(request, plan.report, skip=lifted_count), plan):
            encoder.add(turn)
        if not encoder.contents:
            plan.report.added((), "", "/contents/0", "the target requires a content")
            return [{"role": "user", "parts": [{"text": EMPTY_TEXT}]}]
        return encoder.contents
    contents = [_encode_same_protocol_content(turn, plan) for turn in one_turn_per_message(request.messages)]
    if len(contents) == 1 and (SINGLE_STRING in request.wire_form or SINGLE_CONTENT in request.wire_form):
        return contents[0]
    return contents


def _encode_same_protocol_content(turn: Turn, plan: EncodingPlan) -> Any:
    """Encode one message of a Gemini client as the string, part or content that the client sent."""
    message = turn.message
    if message is None:
        raise TypeError("a turn of the same protocol has exactly one message")
    if message.wire_form and len(message.parts) == 1:
        only = message.parts[0]
        if STRING in message.wire_form and isinstance(only, Text):
            return only.text
        if _PART_FORM in message.wire_form:
            return encode_parts(turn.parts, plan)[0]
    return encode_content(message, encode_parts(turn.parts, plan))


def encode_content(message: Message | MessageStart, parts: list[Any]) -> Any:
    """Build the content of one Gemini message from its encoded parts."""
    role: Any = _WIRE_ROLES.get(message.role, "user")
    for token in message.wire_form:
        if token.startswith(_ROLE_FORM):
            role = token.removeprefix(_ROLE_FORM) or UNSET
    if message.extras and "role" in message.extras.get(FAMILY, {}):
        role = UNSET
    shape = ContentShape(parts=UNSET if NO_PARTS in message.wire_form and not parts else parts, role=role)
    return encode_shape(shape, message)


class ContentsEncoder:
    """Encoder for the contents of a foreign conversation; results take the names of their calls."""

    def __init__(self, plan: EncodingPlan) -> None:
        self.contents: list[Any] = []
        self._plan = plan
        self._open_calls: dict[str | None, ToolCall] = {}

    def add(self, turn: Turn) -> None:
        """Append the contents of one turn of another protocol's request."""
        if turn.role in ("system", "developer"):
            self._add_reminder(turn)
        elif turn.role == "assistant":
            self._add_assistant(turn)
        else:
            self._add_user(turn)

    def _add_reminder(self, turn: Turn) -> None:
        """Append system text from within the conversation as a user turn."""
        parts = encode_parts(turn.parts, self._plan)
        if not parts:
            return
        self._plan.report.approximated(turn.path, "role", "mid-conversation system text sent as a user reminder")
        for part in parts:
            if isinstance(part, PartShape) and part.text is not UNSET:
                part.text = f"<system-reminder>\n{part.text}\n</system-reminder>"
        self.contents.append({"role": "user", "parts": parts})

    def _add_assistant(self, turn: Turn) -> None:
        """Append a model turn: calls last, and the first call of each step signed."""
        plan = self._plan
        others: list[LocatedPart] = []
        calls: list[LocatedPart] = []
        for located_part in move_signatures(turn.parts):
            part = located_part.part
            if isinstance(part, ToolCall) and part.executor == "client":
                calls.append(located_part)
                continue
            if calls and isinstance(part, Text) and part.text:
                plan.report.approximated(located_part.path, "", "text after tool calls moved before them")
            others.append(located_part)
        self._open_calls = {call.id: call for located_part in calls if isinstance(call := located_part.part, ToolCall)}
        parts = encode_parts(others, plan)
        first = len(parts)
        parts += encode_parts(calls, plan)
        if calls and not is_before_gemini_3(plan) and (shape := parts[first]).thought_signature is UNSET:
            shape.thought_signature = DUMMY_SIGNATURE
            target = f"/contents/{len(self.contents)}/parts/{first}/thoughtSignature"
            plan.report.added(
                calls[0].path,
                "",
                target,
                "the model requires signed calls; placeholder signature sent",
                severity="info",
            )
        if parts:
            self.contents.append({"role": "model", "parts": parts})

    def _add_user(self, turn: Turn) -> None:
        """Append a user turn; results go first and alone, because Gemini misreads mixed contents."""
        results: list[Any] = []
        others: list[LocatedPart] = []
        for located_part in turn.parts:
            part: Part = located_part.part
            if isinstance(part, ToolResult) and part.executor == "client":
                results += self._encode_result(part, located_part)
            else:
                others.append(located_part)
        if results:
            self.contents.append({"role": "user", "parts": results})
        if others and (parts := encode_parts(others, self._plan)):
            self.contents.append({"role": "user", "parts": parts})
        self._open_calls = {}

    def _encode_result(self, part: ToolResult, located_part: LocatedPart) -> list[Any]:
        """Encode a result under the name of its call."""
        if (call := self._open_calls.get(part.call_id)) is None:
            return encode_parts([located_part], self._plan)
        if part.name not in (None, call.name):
            self._plan.report.approximated(located_part.path, "name", "result sent under the name of its call")
        if part.namespace not in (None, call.namespace):
            self._plan.report.approximated(located_part.path, "namespace", "result sent under the name of its call")
        if (shape := encode_fast_result(part, call, self._plan)) is not None:
            return [shape]
        renamed = replace(part, name=call.name, namespace=call.namespace)
        return encode_parts([LocatedPart(renamed, located_part.path)], self._plan)
