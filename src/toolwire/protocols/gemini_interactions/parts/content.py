"""Content of the Interactions API, to canonical parts and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import (
    Citation,
    Data,
    FileId,
    Foreign,
    Inline,
    Media,
    Nested,
    Part,
    PlainText,
    Refusal,
    Source,
    Text,
    Url,
)
from toolwire.canonical.tools import ToolRef
from toolwire.codec.fields import Other, Reader
from toolwire.codec.kept import emit, given, joined, known, rest
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.telling import gist_of
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini_interactions.wire import (
    FAMILY,
    ISSUER,
    AnnotationShape,
    AudioContent,
    DocumentContent,
    ImageContent,
    MediaContent,
    TextContent,
    VideoContent,
)
from toolwire.protocols.google import RESOLUTIONS

STRING = "gemini-interactions:string"

_NOWHERE = "gemini-interactions:nowhere"
_URI = "gemini-interactions:name:source=uri"
_TYPE = "gemini-interactions:type:"
_NO_TYPE = "gemini-interactions:absent:type"
_BYTES = "gemini-interactions:bytes:"
_NAME = "gemini-interactions:name:"
# By type of annotation: the fields that say where, and what it is called.
_CITED = {"file_citation": ("document_uri", "file_name"), "place_citation": ("url", "name")}
_PLACES = ("url", "title", "file_name", "document_uri", "name")

_MEDIA: dict[type, Any] = {
    ImageContent: "image",
    AudioContent: "audio",
    DocumentContent: "document",
    VideoContent: "video",
}
_SHAPES: dict[str, type[MediaContent]] = {
    "image": ImageContent,
    "audio": AudioContent,
    "document": DocumentContent,
    "video": VideoContent,
}

_read_annotation = Reader[AnnotationShape](AnnotationShape, FAMILY).read
_decode = msgspec.json.Decoder().decode


# ---- decode


def decode_content(blocks: list[Any]) -> tuple[Part, ...]:
    return tuple([decode_block(block) for block in blocks])


def decode_block(block: Any) -> Part:
    if type(block) is TextContent:
        return _decode_text(block)
    if type(block) is Other:
        return Foreign(protocol=FAMILY, kind=block.tag, body=block.body, gist=gist(block.body))
    return _decode_media(block)


def _decode_text(block: TextContent) -> Text:
    if block.annotations is UNSET and block.unknown is UNSET and block.nulls is UNSET:
        return Text(text=block.text)
    notes = None
    if block.annotations is not UNSET:
        notes = tuple([decode_annotation(raw, block.text) for raw in block.annotations])
    return Text(text=block.text, annotations=notes, **rest(block, FAMILY))


def decode_annotation(raw: Raw, text: str) -> Citation:
    shape = _read_annotation(raw)
    kept = rest(shape, FAMILY)
    form: tuple[str, ...] = () if shape.type == "url_citation" else (_NO_TYPE,)
    if isinstance(shape.type, str) and shape.type != "url_citation":
        form = (_TYPE + shape.type,)
        if shape.type not in _CITED:
            kept = beside(kept, type=shape.type)
    where, called = _CITED.get(str(shape.type), ("url", "title"))
    form += tuple(f"{_NAME}{ours}={theirs}" for ours, theirs in (("url", where), ("title", called)) if ours != theirs)
    others = {name: getattr(shape, name) for name in _PLACES if name not in (where, called)}
    kept = beside(kept, **others)
    start, end = _to_characters(shape, text)
    if (start, end) != (known(shape.start_index), known(shape.end_index)):
        form = (*form, f"{_BYTES}{shape.start_index},{shape.end_index}")
    return Citation(
        url=known(getattr(shape, where)),
        title=known(getattr(shape, called)),
        start=start,
        end=end,
        **joined(kept, {"form": form}),
    )


def beside(kept: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Extras with some more: known fields that have no meaning where they stand."""
    found = {name: Raw(msgspec.json.encode(value)) for name, value in others.items() if value is not UNSET}
    return joined(kept, {"extras": {FAMILY: found}}) if found else kept


def _to_characters(shape: AnnotationShape, text: str) -> tuple[int | None, int | None]:
    start, end = known(shape.start_index), known(shape.end_index)
    if text.isascii():
        return start, end
    data = text.encode(errors="surrogatepass")
    first, last = (
        None if index is None else len(data[:index].decode(errors="ignore")) if 0 <= index <= len(data) else index
        for index in (start, end)
    )
    return first, last


def _decode_media(block: MediaContent) -> Media:
    kept = rest(block, FAMILY)
    source: Source
    if block.data is not UNSET:
        source = Inline(data=block.data)
        kept = beside(kept, uri=block.uri)
    elif block.uri is not UNSET:
        source = Url(url=block.uri)
        kept = joined(kept, {"form": (_URI,)})
    else:
        source = Url(url="", form=(_NOWHERE,))
    return Media(
        kind=_MEDIA[type(block)],
        source=source,
        media_type=known(block.mime_type),
        name=known(getattr(block, "name", UNSET)),
        detail=known(getattr(block, "resolution", UNSET)),
        **kept,
    )


_READABLE = frozenset(
    {"text", "title", "url", "queries", "urls", "code", "result", "name", "output", "review_snippets"}
)


def gist(raw: Raw, limit: int = 100_000) -> str | None:
    """The readable text in a value that others can't use as it is."""
    found: list[str] = []

    def walk(value: object, *, readable: bool) -> None:
        if isinstance(value, str) and readable and value:
            found.append(value)
        elif isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, readable=name in _READABLE)
        elif isinstance(value, list):
            for inner in value:
                walk(inner, readable=readable)

    walk(_decode(raw), readable=True)
    return "\n".join(found)[:limit] or None


# ---- encode


def encode_content(places: list[Placed], plan: Plan, *, spoken: bool) -> list[Any]:
    """`spoken`: the model's own words, which may cite."""
    blocks: list[Any] = []
    for placed in places:
        part, trail = placed.part, placed.trail
        match part:
            case Text():
                block = encode_text(part, trail, plan, spoken=spoken)
            case Media(source=Nested() as nested) if not plan.home:
                inner = [Placed(one, (*trail, "source", "parts", index)) for index, one in enumerate(nested.parts)]
                _report_flattened(part, trail, plan)
                blocks += encode_content(inner, plan, spoken=spoken)
                continue
            case Media():
                block = encode_media(part, trail, plan)
            case Refusal():
                plan.report.approximated(trail, "", "a refusal is told as text")
                block = TextContent(text=part.text) if part.text else None
            case Data():
                block = TextContent(text=str(part.json, "utf-8"))
            case ToolRef():
                plan.report.approximated(trail, "name", "the target has no references to tools here: told")
                block = TextContent(text=f"[tool {part.name}]")
            case Foreign():
                block = _encode_foreign(part, trail, plan)
            case _:
                plan.report.dropped(trail, "", "the target takes no such part here")
                block = None
        if block is not None:
            blocks.append(block)
    return blocks


def encode_text(part: Text, trail: Trail, plan: Plan, *, spoken: bool) -> Any:
    if plan.home:
        notes: Any = UNSET
        if part.annotations is not None:
            notes = [encode_annotation(note) for note in part.annotations]
        return emit(TextContent(text=part.text, annotations=notes), part, FAMILY)
    own = part.seal is not None and part.seal.issuer == ISSUER
    if part.seal is not None and not own:
        plan.report.dropped((*trail, "seal"), "", "a seal goes only to its issuer")
    if not part.text:
        if not own:
            plan.report.dropped(trail, "", "there is nothing to say in an empty text")
        return None
    if part.cache is not None:
        plan.report.dropped((*trail, "cache"), "", "the target keeps prefixes by itself")
    if part.id is not None:
        plan.report.dropped(trail, "id")
    found = []
    for index, note in enumerate(part.annotations or ()):
        if note.url is None or not spoken:
            plan.report.dropped((*trail, "annotations", index), "", "the target cites by url only, in its own words")
        else:
            if note.quote is not None:
                plan.report.dropped((*trail, "annotations", index), "quote")
            found.append(encode_annotation(note, part.text))
    return TextContent(text=part.text, annotations=found or UNSET)


def encode_annotation(note: Citation, text: str | None = None) -> Any:
    """A citation; `text` is there for one of another protocol, whose indices count characters."""
    if text is not None:
        shape = AnnotationShape(type="url_citation", url=given(note.url), title=given(note.title))
        shape.start_index = _to_bytes(note.start or 0, text)
        shape.end_index = _to_bytes(len(text) if note.end is None else note.end, text)
        return shape
    kind = next((token[len(_TYPE) :] for token in note.form if token.startswith(_TYPE)), "url_citation")
    where, called = _CITED.get(kind, ("url", "title"))
    shape = AnnotationShape(start_index=given(note.start), end_index=given(note.end))
    if _NO_TYPE not in note.form:
        shape.type = kind
    setattr(shape, where, given(note.url))
    setattr(shape, called, given(note.title))
    for token in note.form:
        if token.startswith(_BYTES):
            start, end = (UNSET if index == "UNSET" else int(index) for index in token[len(_BYTES) :].split(","))
            shape.start_index, shape.end_index = start, end
    return emit(shape, note, FAMILY)


def _to_bytes(index: int, text: str) -> int:
    if index < 0 or text.isascii():
        return index
    return len(text[:index].encode(errors="surrogatepass")) + max(index - len(text), 0)


def encode_media(part: Media, trail: Trail, plan: Plan) -> Any:
    source = part.source
    if not plan.home and isinstance(source, PlainText):
        for field in ("name", "detail", "cache"):
            if getattr(part, field) is not None:
                plan.report.dropped(trail, field, "a text document is told as text")
        plan.report.approximated(trail, "source", "a text document is told as text")
        return TextContent(text=source.text)
    shape = _SHAPES[part.kind](mime_type=given(part.media_type))
    match source:
        case Inline():
            shape.data = source.data
        case Url():
            shape.uri = UNSET if _NOWHERE in source.form else source.url
        case FileId() if source.issuer == ISSUER:
            shape.uri = source.id
        case FileId():
            plan.report.dropped(trail, "", f"a file that only {source.issuer} holds")
            return None
        case _:
            plan.report.dropped(trail, "", "the target takes no such source here")
            return None
    for field, name in (("name", "name"), ("detail", "resolution")):
        if (value := getattr(part, field)) is None:
            continue
        if hasattr(shape, name) and (plan.home or field == "name" or value in RESOLUTIONS):
            setattr(shape, name, value)
        else:
            plan.report.dropped(trail, field)
    if part.cache is not None:
        plan.report.dropped((*trail, "cache"), "", "the target keeps prefixes by itself")
    if part.seal is not None and part.seal.issuer != ISSUER:
        plan.report.dropped((*trail, "seal"), "", "a seal goes only to its issuer")
    return emit(shape, part, FAMILY)


def _report_flattened(part: Media, trail: Trail, plan: Plan) -> None:
    plan.report.approximated(trail, "source", "the content of a document is told as content of its own")
    for field in ("name", "cache"):
        if getattr(part, field) is not None:
            plan.report.dropped(trail, field)


def _encode_foreign(part: Foreign, trail: Trail, plan: Plan) -> Any:
    if part.protocol == FAMILY:
        return part.body
    text = gist_of(part, trail, plan)
    return None if text is None else TextContent(text=text)
