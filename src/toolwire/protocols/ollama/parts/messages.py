"""Ollama's messages, to canonical messages and back: one for one at home, turns of another protocol as it wants them.

A message has one text, so that of another protocol's turn each text gets a message of its own, as the server's own
bridges do it. Files go with the text before them, or else with the first.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Media, Message, Part, Reasoning, ReasoningText, Role, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, Turn
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import collect_extras, merge_extras, restore_extras
from toolwire.codec.wire.reader import describe_json
from toolwire.protocols.ollama.parts.calls import CallIndex, decode_call, decode_result, encode_call, encode_result
from toolwire.protocols.ollama.parts.content import (
    ContentPiece,
    ImageData,
    decode_images,
    decode_thinking,
    encode_parts,
    with_unknown_fields,
)
from toolwire.protocols.ollama.wire import FAMILY, MessageShape

EMPTY_FORM = "ollama:empty:"
ROLE_FORM = "ollama:role:"
NO_ROLE = "ollama:absent:role"

_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}
_OTHER_ROLE_FIELDS = {
    "system": ("thinking", "tool_calls", "tool_name", "tool_call_id"),
    "user": ("thinking", "tool_calls", "tool_name", "tool_call_id"),
    "assistant": ("tool_name", "tool_call_id"),
    "tool": ("thinking", "tool_calls"),
}


# ---- decode


def decode_message(shape: MessageShape, path: str, at: str | None = None) -> Message:
    if not isinstance(shape.role, str):
        said = "nothing" if shape.role is UNSET else "null"
        raise DecodeError(FAMILY, f"{path}/role", "system, user, assistant or tool", said)
    # The server lowers the case of the role.
    name = shape.role.lower()
    role = _ROLES.get(name)
    if role is None:
        raise DecodeError(FAMILY, f"{path}/role", "system, user, assistant or tool", repr(shape.role))
    check_content(shape, path)
    form: tuple[str, ...] = () if name == shape.role else (ROLE_FORM + shape.role,)
    parts: tuple[Part, ...]
    if name == "tool":
        parts = (decode_result(shape),)
        form += (EMPTY_FORM + "images",) if shape.images == [] else ()
    else:
        parts, empty = decode_content(shape, path, is_assistant=name == "assistant")
        form += empty
    found = merge_extras(collect_extras(shape, FAMILY, *form), unused_fields(shape, _OTHER_ROLE_FIELDS[name]))
    return Message(role=role, parts=parts, at=at, **found)


def check_content(shape: MessageShape, path: str) -> None:
    if shape.unknown is not UNSET and (content := shape.unknown.get("content")) is not None:
        raise DecodeError(FAMILY, f"{path}/content", "a string", describe_json(content))


def decode_content(shape: MessageShape, path: str, *, is_assistant: bool) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """The parts of a message that is no result, and what is there but empty. Only the assistant thinks and calls."""
    parts: list[Part] = []
    empty: tuple[str, ...] = ()
    if is_assistant and isinstance(shape.thinking, str):
        if shape.thinking:
            parts.append(decode_thinking(shape.thinking))
        else:
            empty = (EMPTY_FORM + "thinking",)
    if isinstance(shape.content, str):
        # The server always writes it, also where there are only calls.
        if shape.content or not is_assistant:
            parts.append(Text(text=shape.content, at="/content"))
        else:
            empty += (EMPTY_FORM + "content",)
    if isinstance(shape.images, list):
        parts += decode_images(shape.images)
        empty += () if shape.images else (EMPTY_FORM + "images",)
    if is_assistant and isinstance(shape.tool_calls, list):
        calls = enumerate(shape.tool_calls)
        parts += [decode_call(call, number, f"{path}/tool_calls/{number}") for number, call in calls]
        empty += () if shape.tool_calls else (EMPTY_FORM + "tool_calls",)
    return tuple(parts), empty


def unused_fields(shape: MessageShape, names: tuple[str, ...]) -> dict[str, Any]:
    """Fields that this role has no use for, kept as they are."""
    found = {}
    for name in names:
        value = getattr(shape, name)
        if value is not UNSET and value is not None:
            found[name] = Raw(msgspec.json.encode(with_unknown_fields(value)))
    return {"extras": {FAMILY: found}} if found else {}


# ---- encode


class ConversationEncoder:
    """Writes turn after turn. Results need to know what the turn before them asked."""

    def __init__(self, plan: EncodingPlan) -> None:
        self._plan = plan
        self._call_index = CallIndex()

    def encode(self, turn: Turn) -> list[dict[str, Any]]:
        if self._plan.same_protocol and turn.message is not None and not _has_results(turn.message):
            return [self._encode_same_protocol(turn, turn.message)]
        if turn.role == "assistant":
            return self._encode_assistant(turn)
        messages: list[dict[str, Any]] = []
        said: list[LocatedPart] = []
        for placed in turn.parts:
            part = placed.part
            if isinstance(part, ToolResult) and part.executor == "client":
                messages.append(encode_result(part, placed, self._plan, self._call_index))
            else:
                said.append(placed)
        role = "user" if turn.role == "user" else "system"
        if said or not messages:
            messages += _encode_content_message(role, said, self._plan)
        return messages

    def _encode_assistant(self, turn: Turn) -> list[dict[str, Any]]:
        self._call_index = CallIndex()
        for placed in turn.parts:
            if isinstance(placed.part, ToolCall) and placed.part.executor == "client":
                self._call_index.add(placed.part, self._plan)
        return encode_assistant(turn.parts, self._plan)

    def _encode_same_protocol(self, turn: Turn, message: Message) -> dict[str, Any]:
        result = message.parts[0] if message.parts else None
        if isinstance(result, ToolResult):
            body = encode_result(result, turn.parts[0], self._plan, self._call_index)
        else:
            body = encode_same_protocol_message(message.role, turn.parts, self._plan)
        return restore_message(body, message)


def _has_results(message: Message) -> bool:
    """Several, which nobody said in this protocol: each is a message here."""
    return len(message.parts) > 1 and isinstance(message.parts[0], ToolResult)


def _encode_content_message(role: str, located_parts: list[LocatedPart], plan: EncodingPlan) -> list[dict[str, Any]]:
    """The messages of what is neither a result nor the assistant's."""
    messages = _group_pieces(role, encode_parts(located_parts, plan))
    if not messages and not located_parts:
        return [{"role": role, "content": ""}]
    return messages


def _group_pieces(role: str, pieces: list[ContentPiece]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, ImageData):
            if not messages:
                messages.append({"role": role, "content": ""})
            messages[-1].setdefault("images", []).append(piece.data)
        elif messages and not messages[0]["content"]:
            messages[0]["content"] = piece
        else:
            messages.append({"role": role, "content": piece})
    return messages


def encode_assistant(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[dict[str, Any]]:
    """The messages of a turn of another protocol: thinking goes with the first text, calls with the last."""
    thinking: list[str] = []
    calls: list[Any] = []
    said: list[LocatedPart] = []
    for placed in located_parts:
        part = placed.part
        if isinstance(part, ToolCall) and part.executor == "client":
            calls.append(encode_call(part, placed, plan, len(calls)))
        elif isinstance(part, Reasoning):
            thinking += encode_reasoning(part, placed, plan)
        elif isinstance(part, Text) and not part.text:
            if part.signature is not None:
                plan.report.dropped((*placed.path, "signature"), "", "signatures are only valid for their issuer")
        else:
            if calls and isinstance(part, Text):
                plan.report.approximated(placed.path, "", "text after tool calls moved before them")
            said.append(placed)
    pieces = encode_parts(said, plan)
    if plan.for_client:
        texts = "".join(piece for piece in pieces if isinstance(piece, str))
        pieces = [texts, *(piece for piece in pieces if isinstance(piece, ImageData))]
    messages = _group_pieces("assistant", pieces)
    if not messages:
        if not calls and not thinking and not all(isinstance(placed.part, Text) for placed in located_parts):
            return []
        messages = [{"role": "assistant", "content": ""}]
    if thinking:
        messages[0]["thinking"] = "\n\n".join(thinking)
    if calls:
        messages[-1]["tool_calls"] = calls
    return messages


def encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> list[str]:
    """What can be read of it. A provider gets back only what no other has sealed or shortened."""
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    if plan.for_client:
        report_reasoning(part, located_part, plan)
        return [block.text for block in texts]
    if part.signature is not None or part.hidden is not None or any(block.kind != "full" for block in texts):
        plan.report.dropped(located_part.path, "", "reasoning of another provider")
        return []
    report_reasoning(part, located_part, plan)
    return [block.text for block in texts]


def report_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """What of a reasoning that is shown can't be shown."""
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            plan.report.dropped((*located_part.path, "content", index), "", "thinking of the target is text only")
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if part.id is not None:
        plan.report.dropped(located_part.path, "id")


def report_message(message: Message, path: SourcePath, plan: EncodingPlan) -> None:
    """What a message of another protocol says of itself that has no place here."""
    for field in ("name", "id", "phase", "clear_at"):
        if getattr(message, field) is not None:
            plan.report.dropped(path, field)
    if message.status is not None and message.status != "completed":
        plan.report.dropped(path, "status")


def encode_same_protocol_message(role: str, located_parts: list[LocatedPart], plan: EncodingPlan) -> dict[str, Any]:
    """A message of this protocol's own, from its parts."""
    body: dict[str, Any] = {"role": role}
    calls = [
        encode_call(placed.part, placed, plan, number)
        for number, placed in enumerate(located_parts)
        if isinstance(placed.part, ToolCall)
    ]
    thinking = [
        block.text
        for placed in located_parts
        if isinstance(placed.part, Reasoning)
        for block in placed.part.content
        if isinstance(block, ReasoningText)
    ]
    others = [placed for placed in located_parts if not isinstance(placed.part, ToolCall | Reasoning)]
    pieces = encode_parts(others, plan)
    texts = [piece for piece in pieces if isinstance(piece, str)]
    images = [piece.data for piece in pieces if isinstance(piece, ImageData)]
    if texts:
        body["content"] = "".join(texts)
    if thinking:
        body["thinking"] = "".join(thinking)
    if images:
        body["images"] = images
    if calls:
        body["tool_calls"] = calls
    return body


def restore_message(body: dict[str, Any], message: Message) -> dict[str, Any]:
    for token in message.wire_form:
        if token.startswith(EMPTY_FORM):
            name = token.removeprefix(EMPTY_FORM)
            body.setdefault(name, "" if name in ("content", "thinking") else [])
        elif token.startswith(ROLE_FORM):
            body["role"] = token.removeprefix(ROLE_FORM)
        elif token == NO_ROLE:
            del body["role"]
    return restore_extras(body, message, FAMILY)
