"""Decode and encode citations.

Chat puts them on the message, as `annotations`; canonically they belong to a text.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Citation, Message, Part, Text
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import Turn
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import encode_with_extras, merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.openai_chat.parts.content import collect_chat_extras, constant_extras, restore_constant
from toolwire.protocols.openai_chat.wire import FAMILY, CitationShape, UrlCitationShape

EMPTY_ANNOTATIONS = "openai-chat:annotations:empty"
NO_URL_CITATION = "openai-chat:absent:url_citation"
TEXT_AS_CONTENT = "openai-chat:name:text=content"

_read_citation = Reader[CitationShape](CitationShape, FAMILY).read


def decode_citation(raw: Raw, at: str | None = None) -> Citation:
    """Decode an annotation as a citation; `at` overrides its pointer."""
    shape = _read_citation(raw)
    type_extras = constant_extras("type", shape.type, "url_citation")
    if shape.url_citation is UNSET:
        return Citation(
            at=at, **merge_extras(collect_chat_extras(shape), type_extras, {"wire_form": (NO_URL_CITATION,)})
        )
    cited = shape.url_citation
    return Citation(
        url=unset_to_none(cited.url),
        title=unset_to_none(cited.title),
        quote=unset_to_none(cited.content),
        start=unset_to_none(cited.start_index),
        end=unset_to_none(cited.end_index),
        at=at,
        **merge_extras(collect_chat_extras(shape), type_extras, collect_chat_extras(cited, prefix="url_citation/")),
    )


def decode_annotations(annotations: list[Raw], parts: list[Part], extras: dict[str, Raw]) -> tuple[str, ...]:
    """Add annotations as citations to the last text in `parts`, or to `extras` if there is no text.

    Return the wire-form tokens that record empty annotations.
    """
    if not annotations:
        return (EMPTY_ANNOTATIONS,)
    text = parts[-1] if parts else None
    if isinstance(text, Text) and text.at == "/content":
        citations = tuple(map(decode_citation, annotations))
        parts[-1] = Text(text=text.text, annotations=citations, wire_form=(TEXT_AS_CONTENT,), at="")
    else:
        extras["annotations"] = Raw(msgspec.json.encode(annotations))
    return ()


def encode_citation(citation: Citation) -> Any:
    """Encode an annotation that a Chat server issued."""
    cited = UrlCitationShape(
        url=none_to_unset(citation.url), title=none_to_unset(citation.title), content=none_to_unset(citation.quote)
    )
    cited.start_index, cited.end_index = none_to_unset(citation.start), none_to_unset(citation.end)
    kind = restore_constant(citation, "type", "url_citation")
    shape = CitationShape(type=kind)
    if (kind == "url_citation" and NO_URL_CITATION not in citation.wire_form) or cited != UrlCitationShape():
        shape.url_citation = cited
    return encode_with_extras(shape, citation, FAMILY)


def encode_annotations(message: Message, body: dict[str, Any]) -> None:
    """Write the citations of a Chat message into `body` as `annotations`."""
    citations = [citation for part in message.parts if isinstance(part, Text) for citation in part.annotations or ()]
    if citations or EMPTY_ANNOTATIONS in message.wire_form:
        body["annotations"] = [encode_citation(citation) for citation in citations]


def encode_foreign_citations(turn: Turn, plan: EncodingPlan, body: dict[str, Any]) -> None:
    """Write another protocol's citations into `body`, with offsets into the joined text of the message."""
    offset = 0
    annotations: list[Any] = []
    for located_part in turn.parts:
        part = located_part.part
        if not isinstance(part, Text):
            continue
        for index, citation in enumerate(part.annotations or ()):
            path = (*located_part.path, "annotations", index)
            if (encoded := encode_foreign_citation(citation, path, plan, offset, offset + len(part.text))) is not None:
                annotations.append(encoded)
        offset += len(part.text)
    if annotations:
        body["annotations"] = annotations


def encode_foreign_citation(citation: Citation, path: SourcePath, plan: EncodingPlan, start: int, end: int) -> Any:
    """Encode another protocol's citation of the text from `start` to `end`; None if it cites no web page."""
    if citation.url is None:
        plan.report.dropped(path, "", "the target cites web pages only")
        return None
    if citation.quote is not None:
        plan.report.dropped(path, "quote")
    if citation.start is not None and citation.end is not None:
        start, end = start + citation.start, start + citation.end
    title = citation.title or ""
    page = {"url": citation.url, "title": title, "start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": page}
