"""Chat's citations, which stand on the message, to canonical ones, which stand on a text, and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Citation, Message, Part, Text
from toolwire.codec.fields import Reader
from toolwire.codec.kept import emit, given, joined, known
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Turn
from toolwire.protocols.openai_chat.wire import FAMILY, CitationShape, UrlCitationShape

from .content import kept, spelled, spelling

NO_NOTES = "openai-chat:annotations:empty"
UNCITED = "openai-chat:absent:url_citation"
NOTED = "openai-chat:name:text=content"

_read_citation = Reader[CitationShape](CitationShape, FAMILY).read


def decode_citation(raw: Raw, at: str | None = None) -> Citation:
    shape = _read_citation(raw)
    kind = spelled("type", shape.type, "url_citation")
    if shape.url_citation is UNSET:
        return Citation(at=at, **joined(kept(shape), kind, {"form": (UNCITED,)}))
    cited = shape.url_citation
    return Citation(
        url=known(cited.url),
        title=known(cited.title),
        quote=known(cited.content),
        start=known(cited.start_index),
        end=known(cited.end_index),
        at=at,
        **joined(kept(shape), kind, kept(cited, under="url_citation/")),
    )


def decode_notes(notes: list[Raw], parts: list[Part], extras: dict[str, Raw]) -> tuple[str, ...]:
    if not notes:
        return (NO_NOTES,)
    text = parts[-1] if parts else None
    if isinstance(text, Text) and text.at == "/content":
        cited = tuple(map(decode_citation, notes))
        parts[-1] = Text(text=text.text, annotations=cited, form=(NOTED,), at="")
    else:
        extras["annotations"] = Raw(msgspec.json.encode(notes))
    return ()


def encode_citation(note: Citation) -> Any:
    cited = UrlCitationShape(url=given(note.url), title=given(note.title), content=given(note.quote))
    cited.start_index, cited.end_index = given(note.start), given(note.end)
    kind = spelling(note, "type", "url_citation")
    shape = CitationShape(type=kind)
    if (kind == "url_citation" and UNCITED not in note.form) or cited != UrlCitationShape():
        shape.url_citation = cited
    return emit(shape, note, FAMILY)


def encode_notes(message: Message, body: dict[str, Any]) -> None:
    notes = [note for part in message.parts if isinstance(part, Text) for note in part.annotations or ()]
    if notes or NO_NOTES in message.form:
        body["annotations"] = [encode_citation(note) for note in notes]


def cite_all(turn: Turn, plan: Plan, body: dict[str, Any]) -> None:
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
