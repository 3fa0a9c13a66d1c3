"""The events of a Responses stream, and what reading and writing them share."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning, ReasoningText, Refusal, Text, ToolCall
from toolwire.canonical.events import Notice
from toolwire.codec.fields import Wire
from toolwire.codec.sse import frame
from toolwire.protocols.openai_responses.wire import FAMILY

_json = msgspec.json.Encoder().encode


class Frame(Wire, tag_field="type", kw_only=True):
    """The events of a stream that every token brings; all others are read by name."""

    sequence_number: int | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    obfuscation: Raw | UnsetType = UNSET


class TextDelta(Frame, tag="response.output_text.delta"):
    delta: str
    content_index: int | UnsetType = UNSET
    logprobs: Raw | UnsetType = UNSET


class RefusalDelta(Frame, tag="response.refusal.delta"):
    delta: str
    content_index: int | UnsetType = UNSET


class ArgumentsDelta(Frame, tag="response.function_call_arguments.delta"):
    delta: str


class InputDelta(Frame, tag="response.custom_tool_call_input.delta"):
    delta: str


class SummaryDelta(Frame, tag="response.reasoning_summary_text.delta"):
    delta: str
    summary_index: int | UnsetType = UNSET


class ThoughtDelta(Frame, tag="response.reasoning_text.delta"):
    delta: str
    content_index: int | UnsetType = UNSET


DeltaUnion = TextDelta | RefusalDelta | ArgumentsDelta | InputDelta | SummaryDelta | ThoughtDelta


class AnyFrame(Struct):
    """Any event, as far as anybody needs to look into it."""

    type: str = ""
    response: Raw | UnsetType = UNSET
    item: Raw | UnsetType = UNSET
    part: Raw | UnsetType = UNSET
    annotation: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    output_index: int | UnsetType | None = UNSET
    item_id: str | UnsetType | None = UNSET
    content_index: int | UnsetType | None = UNSET
    summary_index: int | UnsetType | None = UNSET
    delta: Raw | UnsetType = UNSET
    text: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    arguments: Raw | UnsetType = UNSET
    input: Raw | UnsetType = UNSET


open_frame = msgspec.json.Decoder(AnyFrame).decode


def kind_of(item: Raw) -> str:
    return open_frame(item).type


def passed_on(data: bytes, kind: str = "frame") -> Notice:
    return Notice(kind=kind, extras={FAMILY: {"frame": Raw(data)}})


def text_of(raw: Raw | UnsetType) -> str:
    """A text; some servers send arguments as the object itself, which then is its source text."""
    if raw is UNSET or bytes(raw) == b"null":
        return ""
    return str(msgspec.json.decode(raw)) if bytes(raw)[:1] == b'"' else str(raw, "utf-8")


def hollow(part: Part) -> Part:
    """The part before anything was said of it."""
    match part:
        case Text():
            return replace(part, text="", annotations=() if part.annotations else part.annotations)
        case Refusal():
            return replace(part, text="")
        case ToolCall():
            return replace(part, arguments="")
        case Reasoning():
            return replace(part, content=(), seal=None)
        case _:
            return part


def texts(part: Part) -> list[tuple[str, str | None, int]]:
    """The texts that deltas would have told: each with its kind and number."""
    match part:
        case Text() | Refusal():
            return [(part.text, None, 0)]
        case ToolCall():
            return [(part.arguments, None, 0)]
        case Reasoning():
            found: list[tuple[str, str | None, int]] = []
            counts = {"full": 0, "summary": 0}
            for block in part.content:
                if isinstance(block, ReasoningText):
                    found.append((block.text, block.kind, counts[block.kind]))
                    counts[block.kind] += 1
            return found
        case _:
            return []


class Frames:
    """Writes events under consecutive numbers."""

    def __init__(self) -> None:
        self.number = 0

    def write(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self.number, **fields}
        self.number += 1
        return frame(_json(body), kind.encode())

    def delta(self, head: bytes, text: str) -> bytes:
        """A delta, of which `head` has all but its number and its text."""
        number = self.number
        self.number = number + 1
        return b'%b%d,"delta":%b}\n\n' % (head, number, _json(text))


def delta_head(kind: str, **fields: Any) -> bytes:
    body = _json({"type": kind, **fields})
    return b'event: %b\ndata: %b,"sequence_number":' % (kind.encode(), body[:-1])
