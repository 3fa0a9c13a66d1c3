"""Decode and encode content (text and media) and thought steps.

Decisions shared by the encoders of one Interactions request or response.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import (
    Citation,
    Data,
    FileId,
    Inline,
    Media,
    Nested,
    OpaquePart,
    Part,
    PlainText,
    Reasoning,
    ReasoningText,
    Refusal,
    Signature,
    Source,
    Text,
    Url,
)
from toolwire.canonical.tools import ToolRef
from toolwire.codec.encoding.fallbacks import opaque_as_text, readable_text, report_flattened_document
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, merge_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader, UnknownVariant
from toolwire.protocols.gemini_interactions.wire import (
    FAMILY,
    ISSUER,
    AnnotationShape,
    AudioContent,
    DocumentContent,
    ImageContent,
    MediaContent,
    TextContent,
    Thought,
    VideoContent,
)
from toolwire.protocols.vendors.google.request import RESOLUTIONS


class StepPlan(EncodingPlan):
    """An encoding plan for steps."""

    def __init__(
        self,
        rules: IdAndNameRules,
        report: LossReport,
        target: Target,
        *,
        same_protocol: bool,
        for_client: bool = False,
        from_gemini: bool = False,
    ) -> None:
        super().__init__(rules, report, target, same_protocol=same_protocol, for_client=for_client)
        # Tool names by call id, for results.
        self.calls: dict[str, str] = {}
        # The source is `generateContent`, so unsigned thoughts are Google's as well.
        self.from_gemini = from_gemini
        # Coordinates for `google_maps` tools, which `generateContent` keeps in `toolConfig`.
        self.map_location: dict[str, Raw] = {}


STRING = "gemini-interactions:string"

_NO_SOURCE = "gemini-interactions:nowhere"
_URI_NAME = "gemini-interactions:name:source=uri"
_TYPE_FORM = "gemini-interactions:type:"
_NO_TYPE = "gemini-interactions:absent:type"
_BYTES_FORM = "gemini-interactions:bytes:"
_NAME_FORM = "gemini-interactions:name:"
# Fields for URL and title by annotation type; others use `url` and `title`.
_CITATION_FIELDS = {"file_citation": ("document_uri", "file_name"), "place_citation": ("url", "name")}
_CITATION_NAMES = ("url", "title", "file_name", "document_uri", "name")

_MEDIA_KINDS: dict[type, Any] = {
    ImageContent: "image",
    AudioContent: "audio",
    DocumentContent: "document",
    VideoContent: "video",
}
_MEDIA_SHAPES: dict[str, type[MediaContent]] = {
    "image": ImageContent,
    "audio": AudioContent,
    "document": DocumentContent,
    "video": VideoContent,
}

_read_annotation = Reader[AnnotationShape](AnnotationShape, FAMILY).read

# ---- decode


def decode_content(blocks: list[Any]) -> tuple[Part, ...]:
    """Decode a list of content."""
    return tuple([decode_block(block) for block in blocks])


def decode_block(block: Any) -> Part:
    """Decode one content object; unknown types become an `OpaquePart`."""
    if type(block) is TextContent:
        return _decode_text(block)
    if type(block) is UnknownVariant:
        return OpaquePart(
            protocol=FAMILY, kind=block.tag, body=block.body, gist=readable_text(block.body, READABLE_FIELDS)
        )
    return _decode_media(block)


def _decode_text(block: TextContent) -> Text:
    """Decode text with its annotations."""
    if block.annotations is UNSET and block.unknown is UNSET and block.nulls is UNSET:
        return Text(text=block.text)
    citations = None
    if block.annotations is not UNSET:
        citations = tuple([decode_annotation(raw, block.text) for raw in block.annotations])
    return Text(text=block.text, annotations=citations, **collect_extras(block, FAMILY))


def decode_annotation(raw: Raw, text: str) -> Citation:
    """Decode an annotation as a citation; wire offsets count bytes of `text`."""
    shape = _read_annotation(raw)
    extras = collect_extras(shape, FAMILY)
    form: tuple[str, ...] = () if shape.type == "url_citation" else (_NO_TYPE,)
    if isinstance(shape.type, str) and shape.type != "url_citation":
        form = (_TYPE_FORM + shape.type,)
        if shape.type not in _CITATION_FIELDS:
            extras = add_extras(extras, type=shape.type)
    url_field, title_field = _CITATION_FIELDS.get(str(shape.type), ("url", "title"))
    form += tuple(
        f"{_NAME_FORM}{field}={wire_name}"
        for field, wire_name in (("url", url_field), ("title", title_field))
        if field != wire_name
    )
    others = {name: getattr(shape, name) for name in _CITATION_NAMES if name not in (url_field, title_field)}
    extras = add_extras(extras, **others)
    start, end = _character_offsets(shape, text)
    if (start, end) != (unset_to_none(shape.start_index), unset_to_none(shape.end_index)):
        form = (*form, f"{_BYTES_FORM}{shape.start_index},{shape.end_index}")
    return Citation(
        url=unset_to_none(getattr(shape, url_field)),
        title=unset_to_none(getattr(shape, title_field)),
        start=start,
        end=end,
        **merge_extras(extras, {"wire_form": form}),
    )


def add_extras(extras_and_form: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the arguments with known fields added to `extras`, since they have no canonical counterpart here.

    `extras_and_form` holds the `extras` and `wire_form` arguments collected so far.
    """
    encoded = {name: Raw(msgspec.json.encode(value)) for name, value in fields.items() if value is not UNSET}
    return merge_extras(extras_and_form, {"extras": {FAMILY: encoded}}) if encoded else extras_and_form


def _character_offsets(shape: AnnotationShape, text: str) -> tuple[int | None, int | None]:
    """Convert the byte offsets of an annotation to character offsets; offsets outside the text stay unchanged."""
    start, end = unset_to_none(shape.start_index), unset_to_none(shape.end_index)
    if text.isascii():
        return start, end
    data = text.encode(errors="surrogatepass")
    first, last = (
        None if index is None else len(data[:index].decode(errors="ignore")) if 0 <= index <= len(data) else index
        for index in (start, end)
    )
    return first, last


def _decode_media(block: MediaContent) -> Media:
    """Decode image, audio, document or video content."""
    extras = collect_extras(block, FAMILY)
    source: Source
    if block.data is not UNSET:
        source = Inline(data=block.data)
        extras = add_extras(extras, uri=block.uri)
    elif block.uri is not UNSET:
        source = Url(url=block.uri)
        extras = merge_extras(extras, {"wire_form": (_URI_NAME,)})
    else:
        source = Url(url="", wire_form=(_NO_SOURCE,))
    return Media(
        kind=_MEDIA_KINDS[type(block)],
        source=source,
        media_type=unset_to_none(block.mime_type),
        name=unset_to_none(getattr(block, "name", UNSET)),
        detail=unset_to_none(getattr(block, "resolution", UNSET)),
        **extras,
    )


READABLE_FIELDS = frozenset(
    {"text", "title", "url", "queries", "urls", "code", "result", "name", "output", "review_snippets"}
)


# ---- encode


def encode_content(located_parts: list[LocatedPart], plan: EncodingPlan, *, is_output: bool) -> list[Any]:
    """Encode parts as content; only model output (`is_output`) may have citations."""
    blocks: list[Any] = []
    for located_part in located_parts:
        part, path = located_part.part, located_part.path
        match part:
            case Text():
                block = encode_text(part, path, plan, is_output=is_output)
            case Media(source=Nested() as nested) if not plan.same_protocol:
                nested_parts = [
                    LocatedPart(inner, (*path, "source", "parts", index)) for index, inner in enumerate(nested.parts)
                ]
                report_flattened_document(part, path, plan)
                blocks += encode_content(nested_parts, plan, is_output=is_output)
                continue
            case Media():
                block = encode_media(part, path, plan)
            case Refusal():
                plan.report.approximated(path, "", "refusal sent as text")
                block = TextContent(text=part.text) if part.text else None
            case Data():
                block = TextContent(text=str(part.json, "utf-8"))
            case ToolRef():
                plan.report.approximated(path, "name", "the target has no tool references; name sent as text")
                block = TextContent(text=f"[tool {part.name}]")
            case OpaquePart():
                block = _encode_opaque(part, path, plan)
            case _:
                plan.report.dropped(path, "", "the target does not accept this content here")
                block = None
        if block is not None:
            blocks.append(block)
    return blocks


def encode_text(part: Text, path: SourcePath, plan: EncodingPlan, *, is_output: bool) -> Any:
    """Encode text as content; None for empty text from other protocols."""
    if plan.same_protocol:
        annotations: Any = UNSET
        if part.annotations is not None:
            annotations = [encode_annotation(citation) for citation in part.annotations]
        return encode_with_extras(TextContent(text=part.text, annotations=annotations), part, FAMILY)
    is_signed = part.signature is not None and part.signature.issuer == ISSUER
    if part.signature is not None and not is_signed:
        plan.report.dropped((*path, "signature"), "", "signatures are only valid for their issuer")
    if not part.text:
        if not is_signed:
            plan.report.dropped(path, "", "empty text")
        return None
    if part.cache is not None:
        plan.report.dropped((*path, "cache"), "", "the target caches automatically")
    if part.id is not None:
        plan.report.dropped(path, "id")
    return TextContent(text=part.text, annotations=_encode_citations(part, path, plan, is_output=is_output) or UNSET)


def _encode_citations(part: Text, path: SourcePath, plan: EncodingPlan, *, is_output: bool) -> list[Any]:
    """Encode the citations of another protocol's text; report those that the API cannot express."""
    annotations: list[Any] = []
    for index, citation in enumerate(part.annotations or ()):
        at = (*path, "annotations", index)
        if citation.url is None or not is_output:
            plan.report.dropped(at, "", "the target cites URLs only, and only in model output")
            continue
        if citation.quote is not None:
            plan.report.dropped(at, "quote")
        annotations.append(encode_annotation(citation, part.text))
    return annotations


def encode_annotation(citation: Citation, text: str | None = None) -> Any:
    """Encode a citation; `text` converts the character offsets of other protocols to bytes."""
    if text is not None:
        shape = AnnotationShape(
            type="url_citation", url=none_to_unset(citation.url), title=none_to_unset(citation.title)
        )
        shape.start_index = _byte_offset(citation.start or 0, text)
        shape.end_index = _byte_offset(len(text) if citation.end is None else citation.end, text)
        return shape
    kind = next(
        (token[len(_TYPE_FORM) :] for token in citation.wire_form if token.startswith(_TYPE_FORM)), "url_citation"
    )
    url_field, title_field = _CITATION_FIELDS.get(kind, ("url", "title"))
    shape = AnnotationShape(start_index=none_to_unset(citation.start), end_index=none_to_unset(citation.end))
    if _NO_TYPE not in citation.wire_form:
        shape.type = kind
    setattr(shape, url_field, none_to_unset(citation.url))
    setattr(shape, title_field, none_to_unset(citation.title))
    for token in citation.wire_form:
        if token.startswith(_BYTES_FORM):
            start, end = (UNSET if index == "UNSET" else int(index) for index in token[len(_BYTES_FORM) :].split(","))
            shape.start_index, shape.end_index = start, end
    return encode_with_extras(shape, citation, FAMILY)


def _byte_offset(index: int, text: str) -> int:
    """Convert a character offset to a byte offset."""
    if index < 0 or text.isascii():
        return index
    return len(text[:index].encode(errors="surrogatepass")) + max(index - len(text), 0)


def encode_media(part: Media, path: SourcePath, plan: EncodingPlan) -> Any:
    """Encode media; report it and return None if the protocol does not accept its source."""
    source = part.source
    if not plan.same_protocol and isinstance(source, PlainText):
        plan.report.dropped_fields(path, part, "name", "detail", "cache", reason="text document sent as text")
        plan.report.approximated(path, "source", "text document sent as text")
        return TextContent(text=source.text)
    shape = _MEDIA_SHAPES[part.kind](mime_type=none_to_unset(part.media_type))
    if not _encode_source(source, shape, path, plan):
        return None
    for field, name in (("name", "name"), ("detail", "resolution")):
        if (value := getattr(part, field)) is None:
            continue
        if hasattr(shape, name) and (plan.same_protocol or field == "name" or value in RESOLUTIONS):
            setattr(shape, name, value)
        else:
            plan.report.dropped(path, field)
    if part.cache is not None:
        plan.report.dropped((*path, "cache"), "", "the target caches automatically")
    if part.signature is not None and part.signature.issuer != ISSUER:
        plan.report.dropped((*path, "signature"), "", "signatures are only valid for their issuer")
    return encode_with_extras(shape, part, FAMILY)


def _encode_source(source: Source, shape: MediaContent, path: SourcePath, plan: EncodingPlan) -> bool:
    """Write the source of media into `shape`; report it and return False if the API does not accept it."""
    match source:
        case Inline():
            shape.data = source.data
        case Url():
            shape.uri = UNSET if _NO_SOURCE in source.wire_form else source.url
        case FileId() if source.issuer == ISSUER:
            shape.uri = source.id
        case FileId():
            plan.report.dropped(path, "", f"file is stored by {source.issuer} only")
            return False
        case _:
            plan.report.dropped(path, "", "the target does not accept this media source")
            return False
    return True


def _encode_opaque(part: OpaquePart, path: SourcePath, plan: EncodingPlan) -> Any:
    """Encode a part that only its source protocol knows: Interactions' unchanged, others as text."""
    if part.protocol == FAMILY:
        return part.body
    text = opaque_as_text(part, path, plan)
    return None if text is None else TextContent(text=text)


_NO_SUMMARY = "gemini-interactions:absent:summary"

# ---- thoughts


def decode_reasoning(shape: Thought) -> Reasoning | None:
    """Decode a thought; return None if its summary has more than text and media."""
    blocks = [_decode_summary(block, index) for index, block in enumerate(shape.summary or ())]
    content = tuple([block for block in blocks if block is not None])
    if len(content) < len(blocks):
        return None
    form = (_NO_SUMMARY,) if shape.summary is UNSET else ()
    return Reasoning(
        content=content,
        hidden=None if blocks else "omitted",
        signature=None if shape.signature is UNSET else decode_signature(shape.signature),
        at="",
        **collect_extras(shape, FAMILY, *form),
    )


def _decode_summary(block: Any, index: int) -> ReasoningText | Media | None:
    """Decode one block of a thought's summary; return None if it is neither text nor media."""
    location = f"/summary/{index}"
    if type(block) is TextContent and block.annotations is UNSET:
        return ReasoningText(kind="summary", text=block.text, at=location, **collect_extras(block, FAMILY))
    part = decode_block(block)
    return part if isinstance(part, Media) else None


def decode_signature(signature: str) -> Signature:
    """Build the canonical signature, issued by Google, from its wire string."""
    return Signature(issuer=ISSUER, data=signature, kind="signature", at="/signature")


def encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: StepPlan) -> Any:
    """Encode a thought as a step.

    Google accepts only thoughts that it signed, others are reported as lost. A client may read all of them.
    """
    signature = part.signature if part.signature is not None and part.signature.issuer == ISSUER else None
    if not plan.same_protocol and signature is None and not plan.for_client and not plan.from_gemini:
        plan.report.dropped(located_part.path, "", "the target only accepts reasoning that it signed")
        return None
    summary = _encode_summary(part, located_part, plan)
    shape = Thought(summary=summary)
    if not summary and (_NO_SUMMARY in part.wire_form or not plan.same_protocol):
        shape.summary = UNSET
    if signature is not None:
        shape.signature = signature.data
    elif not plan.same_protocol:
        plan.report_unsealed_signature(part, located_part.path)
    if not plan.same_protocol:
        if part.id is not None:
            plan.report.dropped(located_part.path, "id")
        if shape == Thought():
            return None
    return encode_with_extras(shape, part, FAMILY)


def _encode_summary(part: Reasoning, located_part: LocatedPart, plan: StepPlan) -> list[Any]:
    """Encode the texts and media of a thought as its summary."""
    summary: list[Any] = []
    for index, block in enumerate(part.content):
        if isinstance(block, ReasoningText):
            summary.append(encode_with_extras(TextContent(text=block.text), block, FAMILY))
        elif (media := encode_media(block, (*located_part.path, "content", index), plan)) is not None:
            summary.append(media)
    return summary
