"""Decode and encode messages.

A message has one text, so each text of a foreign turn becomes a message of its own, as in Ollama's own OpenAI bridge.
Images go with the text before them, or else with the first.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Message, Part, Reasoning, ReasoningText, Role, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.codec.encoding.fallbacks import report_reasoning
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
    """Decode one message of a request."""
    if not isinstance(shape.role, str):
        actual = "nothing" if shape.role is UNSET else "null"
        raise DecodeError(FAMILY, f"{path}/role", "system, user, assistant or tool", actual)
    # The server ignores the case of the role.
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
        parts, empty_form = decode_content(shape, path, is_assistant=name == "assistant")
        form += empty_form
    extras = merge_extras(collect_extras(shape, FAMILY, *form), unused_fields(shape, _OTHER_ROLE_FIELDS[name]))
    return Message(role=role, parts=parts, at=at, **extras)


def check_content(shape: MessageShape, path: str) -> None:
    """Raise `DecodeError` if the content is not a string."""
    if shape.unknown is not UNSET and (content := shape.unknown.get("content")) is not None:
        raise DecodeError(FAMILY, f"{path}/content", "a string", describe_json(content))


def decode_content(shape: MessageShape, path: str, *, is_assistant: bool) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Decode text and images, and for the assistant also thinking and calls.

    Return the parts and wire-form tokens.
    """
    parts: list[Part] = []
    form: tuple[str, ...] = ()
    if is_assistant and isinstance(shape.thinking, str):
        if shape.thinking:
            parts.append(decode_thinking(shape.thinking))
        else:
            form = (EMPTY_FORM + "thinking",)
    if isinstance(shape.content, str):
        # The server always writes `content`, even if there are only calls.
        if shape.content or not is_assistant:
            parts.append(Text(text=shape.content, at="/content"))
        else:
            form += (EMPTY_FORM + "content",)
    if isinstance(shape.images, list):
        parts += decode_images(shape.images)
        form += () if shape.images else (EMPTY_FORM + "images",)
    if is_assistant and isinstance(shape.tool_calls, list):
        calls = enumerate(shape.tool_calls)
        parts += [decode_call(call, number, f"{path}/tool_calls/{number}") for number, call in calls]
        form += () if shape.tool_calls else (EMPTY_FORM + "tool_calls",)
    return tuple(parts), form


def unused_fields(shape: MessageShape, names: tuple[str, ...]) -> dict[str, Any]:
    """Return an `extras` argument with the named fields, which have no meaning for the message's role."""
    extras = {}
    for name in names:
        value = getattr(shape, name)
        if value is not UNSET and value is not None:
            extras[name] = Raw(msgspec.json.encode(with_unknown_fields(value)))
    return {"extras": {FAMILY: extras}} if extras else {}


# ---- encode


class ConversationEncoder:
    """Encoder of turns in order; it remembers the calls of the last turn for their results."""

    def __init__(self, plan: EncodingPlan) -> None:
        self._plan = plan
        self._call_index = CallIndex()

    def encode(self, turn: Turn) -> list[dict[str, Any]]:
        """Encode one turn as messages, tool results before other content."""
        if self._plan.same_protocol and turn.message is not None and not _has_results(turn.message):
            return [self._encode_same_protocol(turn, turn.message)]
        if turn.role == "assistant":
            return self._encode_assistant(turn)
        messages: list[dict[str, Any]] = []
        others: list[LocatedPart] = []
        for located_part in turn.parts:
            part = located_part.part
            if isinstance(part, ToolResult) and part.executor == "client":
                messages.append(encode_result(part, located_part, self._plan, self._call_index))
            else:
                others.append(located_part)
        role = "user" if turn.role == "user" else "system"
        if others or not messages:
            messages += _encode_content_message(role, others, self._plan)
        return messages

    def _encode_assistant(self, turn: Turn) -> list[dict[str, Any]]:
        """Encode an assistant turn, and record its calls to name their results."""
        self._call_index = CallIndex()
        for located_part in turn.parts:
            if isinstance(located_part.part, ToolCall) and located_part.part.executor == "client":
                self._call_index.add(located_part.part, self._plan)
        return encode_assistant(turn.parts, self._plan)

    def _encode_same_protocol(self, turn: Turn, message: Message) -> dict[str, Any]:
        """Encode one message that came from an Ollama client."""
        result = message.parts[0] if message.parts else None
        if isinstance(result, ToolResult):
            body = encode_result(result, turn.parts[0], self._plan, self._call_index)
        else:
            body = encode_same_protocol_message(message.role, turn.parts, self._plan)
        return restore_message(body, message)


def _has_results(message: Message) -> bool:
    """Check for a message of several tool results, which Ollama sends as one message each."""
    return len(message.parts) > 1 and isinstance(message.parts[0], ToolResult)


def _encode_content_message(role: str, located_parts: list[LocatedPart], plan: EncodingPlan) -> list[dict[str, Any]]:
    """Encode the texts and images of a user or system turn as messages."""
    messages = _group_pieces(role, encode_parts(located_parts, plan))
    if not messages and not located_parts:
        return [{"role": role, "content": ""}]
    return messages


def _group_pieces(role: str, pieces: list[ContentPiece]) -> list[dict[str, Any]]:
    """Group texts and images into messages of one text each."""
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
    """Encode another protocol's assistant turn as messages.

    Thinking goes with the first text, calls with the last.
    """
    thinking: list[str] = []
    calls: list[Any] = []
    others: list[LocatedPart] = []
    for located_part in located_parts:
        part = located_part.part
        if isinstance(part, ToolCall) and part.executor == "client":
            calls.append(encode_call(part, located_part, plan, len(calls)))
        elif isinstance(part, Reasoning):
            thinking += encode_reasoning(part, located_part, plan)
        elif not isinstance(part, Text):
            others.append(located_part)
        elif part.text:
            if calls:
                plan.report.approximated(located_part.path, "", "text after tool calls moved before them")
            others.append(located_part)
        elif part.signature is not None:
            plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    messages = _group_pieces("assistant", _assistant_pieces(others, plan))
    if not messages:
        if not (calls or thinking or _has_only_texts(located_parts)):
            return []
        messages = [{"role": "assistant", "content": ""}]
    if thinking:
        messages[0]["thinking"] = "\n\n".join(thinking)
    if calls:
        messages[-1]["tool_calls"] = calls
    return messages


def _has_only_texts(located_parts: list[LocatedPart]) -> bool:
    """Check that all parts are texts; true of an empty list."""
    return all(isinstance(located_part.part, Text) for located_part in located_parts)


def _assistant_pieces(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[ContentPiece]:
    """Encode the assistant's parts as texts and images.

    In a response to a client all texts are joined into one, since the client reads a single `content` string.
    """
    pieces = encode_parts(located_parts, plan)
    if not plan.for_client:
        return pieces
    text = "".join(piece for piece in pieces if isinstance(piece, str))
    return [text, *(piece for piece in pieces if isinstance(piece, ImageData))]


def encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> list[str]:
    """Return the texts of a thought; report what is lost.

    A provider gets only complete thoughts that no other provider has signed.
    """
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    if plan.for_client:
        report_reasoning(part, located_part, plan)
        return [block.text for block in texts]
    if part.signature is not None or part.hidden is not None or any(block.kind != "full" for block in texts):
        plan.report.dropped(located_part.path, "", "reasoning of another provider")
        return []
    report_reasoning(part, located_part, plan)
    return [block.text for block in texts]


def report_message(message: Message, path: SourcePath, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's message that Ollama does not have."""
    plan.report.dropped_fields(path, message, "name", "id", "phase", "clear_at")
    if message.status is not None and message.status != "completed":
        plan.report.dropped(path, "status")


def encode_same_protocol_message(role: str, located_parts: list[LocatedPart], plan: EncodingPlan) -> dict[str, Any]:
    """Encode a message that came from Ollama, given its parts."""
    body: dict[str, Any] = {"role": role}
    calls: list[Any] = []
    thinking: list[str] = []
    others: list[LocatedPart] = []
    for number, located_part in enumerate(located_parts):
        part = located_part.part
        if isinstance(part, ToolCall):
            calls.append(encode_call(part, located_part, plan, number))
        elif isinstance(part, Reasoning):
            thinking += [block.text for block in part.content if isinstance(block, ReasoningText)]
        else:
            others.append(located_part)
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
    """Return the body with the empty fields, role and extras of the Ollama message that it encodes."""
    for token in message.wire_form:
        if token.startswith(EMPTY_FORM):
            name = token.removeprefix(EMPTY_FORM)
            body.setdefault(name, "" if name in ("content", "thinking") else [])
        elif token.startswith(ROLE_FORM):
            body["role"] = token.removeprefix(ROLE_FORM)
        elif token == NO_ROLE:
            del body["role"]
    return restore_extras(body, message, FAMILY)
