"""Items and parts of a Responses stream while they are written."""

from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Citation, Message, Part, Reasoning, ReasoningText, Refusal, Seal, Text, ToolCall
from toolwire.canonical.events import PartEnd, PartStart
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.losses import Trail
from toolwire.codec.turns import Placed


class OpenItem:
    """An item that was announced. `places` are its parts as they ended."""

    def __init__(self, index: int, message: int, own: Message, kind: str) -> None:
        self.index = index
        self.message = message
        self.own = own
        self.kind = kind
        self.contents = 0
        self.places: list[Placed] = []

    def fields(self, content: int | None = None) -> dict[str, Any]:
        """What every event about the item says."""
        about: dict[str, Any] = {"item_id": self.own.id, "output_index": self.index}
        return about if content is None else about | {"content_index": content}


class OpenPart:
    """A part while it grows. `head` is its delta up to the number, where all its deltas are alike."""

    def __init__(self, start: PartStart, trail: Trail) -> None:
        self.start = start
        self.trail = trail
        self.item: OpenItem | None = None
        self.content = 0
        self.head = b""
        self.pieces = TextPieces()
        self.notes: list[Citation] = []
        self.seal: Seal | None = None
        self.call_id: str | None = None
        self.thoughts: dict[tuple[str, int], TextPieces] = {}
        self.speaking: tuple[str, int] | None = None

    def final(self, end: PartEnd) -> Part:
        part = self._grown() if end.final is None else end.final
        if isinstance(part, ToolCall) and self.call_id is not None:
            return replace(part, id=self.call_id)
        return part

    def _grown(self) -> Part:
        part, text = self.start.part, "".join(self.pieces)
        match part:
            case Text():
                notes = (*(part.annotations or ()), *self.notes)
                return replace(part, text=text, annotations=notes or part.annotations, seal=self.seal or part.seal)
            case Refusal():
                return replace(part, text=text)
            case ToolCall():
                return replace(part, arguments=text, seal=self.seal or part.seal)
            case Reasoning():
                said: list[Any] = [
                    ReasoningText(kind="summary" if kind == "summary" else "full", text="".join(pieces))
                    for (kind, _), pieces in self.thoughts.items()
                ]
                return replace(part, content=(*part.content, *said), seal=self.seal or part.seal)
            case _:
                return part
