"""What surrounds the steps of an Interactions stream, and a step while it is told."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Media, Part, ReasoningText, Seal
from toolwire.canonical.events import Notice, ResponseStart
from toolwire.canonical.text_pieces import TextPieces
from toolwire.codec.kept import rest
from toolwire.protocols.gemini_interactions.response.body import decode_created, envelope
from toolwire.protocols.gemini_interactions.wire import FAMILY, CompletedFrame, CreatedFrame, ResponseShape, StartFrame

INDEX = "gemini-interactions:index:"
"""Where a step stands in the source's own count, if it is not the next."""

UNSTARTED = "gemini-interactions:absent:created"
EVENT_ID = "gemini-interactions:event_id:"


class OpenStep:
    """A step while it is told."""

    def __init__(self, number: int, part: Part | None, members: dict[str, Raw]) -> None:
        self.number = number
        self.part = part  # the one that the step itself is
        self.members = members
        self.text = -1
        self.call = -1
        self.open = -1
        self.grown = False
        self.pieces = TextPieces()
        self.notes: list[tuple[Raw, dict[str, Any]]] = []
        self.summary: list[ReasoningText | Media] = []
        self.seal: Seal | None = None
        self.blocks = 0


def around(shape: CreatedFrame | CompletedFrame | StartFrame) -> dict[str, Any]:
    """What stands beside an interaction or a step: the place to resume from is the stream's own, and says nothing."""
    form = () if shape.event_id is UNSET else (EVENT_ID + str(shape.event_id, "utf-8"),)
    return rest(replace(shape, event_id=UNSET), FAMILY, *form)


def passed_on(data: bytes, kind: str = "frame") -> Notice:
    return Notice(kind=kind, extras={FAMILY: {"frame": Raw(data)}})


def news(told: ResponseShape, start: ResponseStart | None) -> dict[str, Any]:
    """What the end of an interaction says that its start did not."""
    extras = dict((envelope(told).get("extras") or {}).get(FAMILY, {}))
    if start is not None:
        same = {"id": start.id, "model": start.model, "agent": start.model}
        for name, before in same.items():
            if (value := getattr(told, name)) is not UNSET and value != before:
                extras[name] = Raw(msgspec.json.encode(value))
        if told.created is not UNSET and decode_created(told.created) != start.created:
            extras["created"] = Raw(msgspec.json.encode(told.created))
    return {"extras": {FAMILY: extras} if extras else None}


def event_id(form: tuple[str, ...]) -> dict[str, Any]:
    ids = [token[len(EVENT_ID) :].encode() for token in form if token.startswith(EVENT_ID)]
    return {"event_id": Raw(ids[-1])} if ids else {}
