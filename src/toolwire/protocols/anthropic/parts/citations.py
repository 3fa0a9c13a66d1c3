"""Anthropic's citations, each of a whole text, to canonical ones and back."""

from typing import Any

from msgspec import Raw

from toolwire.canonical.content import Citation
from toolwire.codec.fields import Reader
from toolwire.codec.kept import emit, given, known, rest
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.protocols.anthropic.wire import FAMILY, CitationShape

_read_citation = Reader[CitationShape](CitationShape, FAMILY).read


def decode_citation(raw: Raw) -> Citation:
    shape = _read_citation(raw)
    return Citation(
        url=known(shape.url), title=known(shape.title), quote=known(shape.cited_text), **rest(shape, FAMILY)
    )


def cite(note: Citation, trail: Trail, place: str, plan: Plan) -> dict[str, Any] | None:
    """A citation of another protocol, for a client to read: here it is of a whole text. None, reported, for a provider,
    who takes only its own. `place` is where it will stand."""
    if note.url is None or not plan.answering:
        plan.report.dropped(trail, "", "citations only go back to their issuer")
        return None
    for field in ("start", "end"):
        if getattr(note, field) is not None:
            plan.report.dropped(trail, field, "the target cites for whole texts")
    plan.report.invented(trail, "", f"{place}/encrypted_index", "there is no proof of what others found: it is empty")
    told = {"url": note.url, "title": note.title, "cited_text": note.quote or "", "encrypted_index": ""}
    return {"type": "web_search_result_location", **told}


def encode_citation(note: Citation) -> Any:
    shape = CitationShape(url=given(note.url), title=given(note.title), cited_text=given(note.quote))
    return emit(shape, note, FAMILY)
