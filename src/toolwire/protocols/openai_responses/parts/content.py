"""Content of messages and of results in the Responses API, to canonical parts and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

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
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.events import PartDelta
from toolwire.canonical.tools import CacheMark, ToolRef
from toolwire.codec.fields import Other, Reader
from toolwire.codec.kept import emit, given, known, rest
from toolwire.codec.losses import UNPLACED, Trail
from toolwire.codec.media import data_url, source_of
from toolwire.codec.telling import gist_of
from toolwire.codec.turns import Placed
from toolwire.protocols.openai import encode_detail
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    ISSUER,
    AnnotationShape,
    AudioShape,
    BreakpointShape,
    InputAudio,
    InputFile,
    InputImage,
    InputText,
    OutputText,
    RefusalPart,
)

from .plan import ItemPlan

STRING = "openai-responses:string"
INPUT = "openai-responses:input_text"
OUTPUT = "openai-responses:output_text"
_NOWHERE = "openai-responses:nowhere"
_BARE = "openai-responses:bare"
_NAME = "openai-responses:name:source="
_FILENAME = "openai-responses:name:title=filename"
_TYPE = "openai-responses:type:"
_CITATIONS = ("file_citation", "container_file_citation", "file_path")
_NO_TYPE = "openai-responses:absent:type"

_NONE = Raw(b"[]")
TTLS = ("30m", "12h")

_read_annotation = Reader[AnnotationShape](AnnotationShape, FAMILY).read
_members = msgspec.json.Decoder(dict[str, Raw]).decode


# ---- decode


def decode_content(blocks: list[Any], path: str, *, spoken: bool) -> tuple[Part, ...]:
    """The parts of a list of content. `spoken`: the model's own words, which are `output_text`."""
    parts: list[Part] = []
    try:
        for block in blocks:
            part = _DECODERS[type(block)](block, spoken=spoken)
            parts.append(part)
    except DecodeError as error:
        raise DecodeError(error.protocol, f"{path}/{len(parts)}{error.path}", error.expected, error.got) from None
    return tuple(parts)


def _decode_input_text(block: InputText, *, spoken: bool) -> Text:
    form = (INPUT,) if spoken else ()
    if block.prompt_cache_breakpoint is UNSET and block.unknown is UNSET and block.nulls is UNSET:
        return Text(text=block.text, form=form)
    return Text(text=block.text, cache=_decode_cache(block.prompt_cache_breakpoint), **rest(block, FAMILY, *form))


def _decode_output_text(block: OutputText, *, spoken: bool) -> Text:
    notes = None
    if block.annotations is not UNSET:
        notes = tuple([decode_annotation(raw, f"/annotations/{i}") for i, raw in enumerate(block.annotations)])
    form = () if spoken else (OUTPUT,)
    if block.logprobs == _NONE:
        form = (*form, f"{FAMILY}:told:logprobs")  # nobody asked for them
    return Text(text=block.text, annotations=notes, **rest(block, FAMILY, *form))


def decode_annotation(raw: Raw, path: str = "") -> Citation:
    shape = _read_annotation(raw, path)
    kept = rest(shape, FAMILY)
    form = kept.get("form", ())
    if shape.type in _CITATIONS:
        form = (*form, _TYPE + str(shape.type))
    elif shape.type != "url_citation":
        form = (*form, _NO_TYPE)
        kept = beside(kept, type=shape.type)
    title = known(shape.title)
    if title is None and shape.filename is not UNSET:
        title, form = shape.filename, (*form, _FILENAME)
    return Citation(
        url=known(shape.url),
        title=title,
        start=known(shape.start_index),
        end=known(shape.end_index),
        **{**kept, "form": form},
    )


def _decode_cache(shape: BreakpointShape | UnsetType) -> CacheMark | None:
    if shape is UNSET:
        return None
    kept = rest(shape, FAMILY) if shape.mode == "explicit" else beside(rest(shape, FAMILY), mode=shape.mode)
    return CacheMark(ttl=known(shape.ttl), **kept)


def _decode_image(block: InputImage, *, spoken: bool) -> Media:
    kept = rest(block, FAMILY)
    source: Source
    media_type = None
    if block.image_url:
        source, media_type = source_of(block.image_url)
        kept = beside(kept, file_id=block.file_id)
    elif block.file_id:
        source = FileId(issuer=ISSUER, id=block.file_id)
        kept = _named(beside(kept, image_url=block.image_url), "file_id")
    else:
        source = Url(url="", form=(_NOWHERE,))
        kept = beside(kept, image_url=block.image_url, file_id=block.file_id)
    return Media(
        kind="image",
        source=source,
        media_type=media_type,
        detail=known(block.detail),
        cache=_decode_cache(block.prompt_cache_breakpoint),
        **kept,
    )


def _decode_file(block: InputFile, *, spoken: bool) -> Media:
    kept = rest(block, FAMILY)
    source: Source
    media_type = None
    if block.file_data:
        source, media_type = source_of(block.file_data)
        if isinstance(source, Url):
            source = Inline(data=block.file_data, form=(_BARE,))
        kept = _named(beside(kept, file_url=block.file_url, file_id=block.file_id), "file_data")
    elif block.file_url:
        source = Url(url=block.file_url)
        kept = _named(beside(kept, file_data=block.file_data, file_id=block.file_id), "file_url")
    elif block.file_id:
        source = FileId(issuer=ISSUER, id=block.file_id)
        kept = _named(beside(kept, file_data=block.file_data, file_url=block.file_url), "file_id")
    else:
        source = Url(url="", form=(_NOWHERE,))
        kept = beside(kept, file_data=block.file_data, file_url=block.file_url, file_id=block.file_id)
    return Media(
        kind="document",
        source=source,
        media_type=media_type,
        name=known(block.filename),
        detail=known(block.detail),
        cache=_decode_cache(block.prompt_cache_breakpoint),
        **kept,
    )


def beside(kept: dict[str, Any], **others: str | UnsetType | None) -> dict[str, Any]:
    """Extras with some more that have no meaning where they stand: another place of media, a word nobody knows."""
    found = {name: Raw(msgspec.json.encode(value)) for name, value in others.items() if isinstance(value, str)}
    if not found:
        return kept
    extras = {**kept.get("extras", {}).get(FAMILY, {}), **found}
    return {**kept, "extras": {FAMILY: extras}}


def _named(kept: dict[str, Any], field: str) -> dict[str, Any]:
    return {**kept, "form": (*kept.get("form", ()), _NAME + field, "openai-responses:name:media_type=" + field)}


def _decode_audio(block: InputAudio, *, spoken: bool) -> Media:
    audio = block.input_audio
    source = Inline(data=audio.data, at="/input_audio", **rest(audio, FAMILY))
    names = (_NAME + "input_audio/data", "openai-responses:name:media_type=input_audio/format")
    return Media(kind="audio", source=source, media_type=f"audio/{audio.format}", **rest(block, FAMILY, *names))


def _decode_refusal(block: RefusalPart, *, spoken: bool) -> Refusal:
    return Refusal(text=block.refusal, **rest(block, FAMILY))


def _decode_other(other: Other, *, spoken: bool) -> Foreign:
    try:
        text = msgspec.json.decode(_members(other.body).get("text", b"null"))
    except msgspec.DecodeError:
        text = None
    return Foreign(
        protocol=FAMILY, kind=other.tag, body=other.body, gist=text if isinstance(text, str) and text else None
    )


_DECODERS: dict[type, Any] = {
    InputText: _decode_input_text,
    OutputText: _decode_output_text,
    InputImage: _decode_image,
    InputFile: _decode_file,
    InputAudio: _decode_audio,
    RefusalPart: _decode_refusal,
    Other: _decode_other,
}


# ---- encode


def encode_content(places: list[Placed], plan: ItemPlan, *, spoken: bool) -> list[Any]:
    blocks: list[Any] = []
    for placed in places:
        part = placed.part
        match part:
            case Text():
                block = encode_text(part, placed.trail, plan, spoken=spoken)
            case Media(source=Nested() as nested) if not plan.home:
                inner = [Placed(one, (*placed.trail, "source", "parts", i)) for i, one in enumerate(nested.parts)]
                _report_flattened(part, placed.trail, plan)
                blocks += encode_content(inner, plan, spoken=spoken)
                continue
            case Media():
                block = _encode_media(part, placed.trail, plan, spoken=spoken)
            case Refusal():
                block = _encode_refusal(part, placed.trail, plan, spoken=spoken)
            case Data():
                block = _plain(str(part.json, "utf-8"), spoken=spoken)
            case ToolRef():
                plan.report.approximated(placed.trail, "name", "the target has no references to tools here: told")
                block = _plain(f"[tool {part.name}]", spoken=spoken)
            case Foreign():
                block = _encode_foreign(part, placed.trail, plan, spoken=spoken)
            case _:
                plan.report.dropped(placed.trail, "", "the target takes no such part here")
                block = None
        if block is not None:
            blocks.append(block)
    return blocks


def _plain(text: str, *, spoken: bool) -> Any:
    return OutputText(text=text, annotations=[]) if spoken else InputText(text=text)


def encode_text(part: Text, trail: Trail, plan: ItemPlan, *, spoken: bool) -> Any:
    if plan.home:
        output = spoken if not part.form else (spoken and INPUT not in part.form) or OUTPUT in part.form
        notes = UNSET if part.annotations is None else [encode_annotation(note) for note in part.annotations]
        if output:
            return emit(OutputText(text=part.text, annotations=notes), part, FAMILY)
        shape = InputText(text=part.text, prompt_cache_breakpoint=encode_cache(part.cache, trail, plan))
        return emit(shape, part, FAMILY)
    if part.seal is not None:
        plan.report.dropped((*trail, "seal"), "", "a seal goes only to its issuer")
    if not spoken:
        for index in range(len(part.annotations or ())):
            plan.report.dropped((*trail, "annotations", index), "", "the target takes no citations from a user")
        return InputText(text=part.text, prompt_cache_breakpoint=encode_cache(part.cache, trail, plan))
    if part.cache is not None:
        plan.report.dropped((*trail, "cache"), "", "the target marks no words of the model")
    found = []
    for index, note in enumerate(part.annotations or ()):
        if note.url is None or not plan.answering:
            plan.report.dropped((*trail, "annotations", index), "", "the target cites by url only, in answers")
        else:
            if note.quote is not None:
                plan.report.dropped((*trail, "annotations", index), "quote")
            found.append(encode_annotation(note, part.text))
    return OutputText(text=part.text, annotations=found, logprobs=probabilities_of(part))


def probabilities_of(part: Text | PartDelta) -> Raw | UnsetType:
    return (part.extras or {}).get(FAMILY, {}).get("logprobs", UNSET)


def encode_annotation(note: Citation, text: str | None = None) -> Any:
    """A citation. One of another protocol is of the whole `text`, and this API wants to hear from where to where."""
    kind = next((token[len(_TYPE) :] for token in note.form if token.startswith(_TYPE)), "url_citation")
    shape = AnnotationShape(type=UNSET if _NO_TYPE in note.form else kind, url=given(note.url))
    setattr(shape, "filename" if _FILENAME in note.form else "title", given(note.title))
    shape.start_index, shape.end_index = given(note.start), given(note.end)
    if text is not None:
        shape.title = note.title or ""
        shape.start_index, shape.end_index = note.start or 0, len(text) if note.end is None else note.end
    return emit(shape, note, FAMILY)


def encode_cache(cache: CacheMark | None, trail: Trail, plan: ItemPlan) -> Any:
    if cache is None:
        return UNSET
    own = (cache.extras or {}).get(FAMILY, {}).get("mode")
    mode = "explicit" if own is None else msgspec.json.decode(own, type=str)
    ttl = given(cache.ttl)
    if not plan.home and ttl is not UNSET and ttl not in TTLS:
        plan.report.approximated((*trail, "cache"), "ttl", f"the target keeps a prefix for {' or '.join(TTLS)}")
        ttl = TTLS[0]
    return emit(BreakpointShape(mode=mode, ttl=ttl), cache, FAMILY)


def _encode_media(part: Media, trail: Trail, plan: ItemPlan, *, spoken: bool) -> Any:
    if spoken and not plan.home:
        plan.report.dropped(trail, "", "the target takes no media in what the model said")
        return None
    if part.seal is not None:
        plan.report.dropped((*trail, "seal"), "", "a seal goes only to its issuer")
    match part.kind:
        case "image":
            return _encode_image(part, trail, plan)
        case "document":
            return _encode_file(part, trail, plan)
        case "audio" if plan.home and isinstance(part.source, Inline) and part.media_type is not None:
            shape = AudioShape(data=part.source.data, format=part.media_type.removeprefix("audio/"))
            return emit(InputAudio(input_audio=emit(shape, part.source, FAMILY)), part, FAMILY)
        case _:
            plan.report.dropped(trail, "", f"the target takes no {part.kind}")
            return None


def _encode_image(part: Media, trail: Trail, plan: ItemPlan) -> Any:
    shape = InputImage(detail=given(part.detail), prompt_cache_breakpoint=encode_cache(part.cache, trail, plan))
    source = part.source
    match source:
        case Inline():
            shape.image_url = data_url(source.data, part.media_type)
        case Url():
            shape.image_url = source.url if _NOWHERE not in source.form else UNSET
            if part.media_type is not None:
                plan.report.dropped(trail, "media_type")
        case FileId() if source.issuer == ISSUER:
            shape.file_id = source.id
        case _:
            return _nowhere(source, trail, plan)
    if not plan.home:
        if part.name is not None:
            plan.report.dropped(trail, "name")
        shape.detail = encode_detail(part, plan.report, trail) or "auto"
    return emit(shape, part, FAMILY)


def _encode_file(part: Media, trail: Trail, plan: ItemPlan) -> Any:
    cache = encode_cache(part.cache, trail, plan)
    shape = InputFile(filename=given(part.name), detail=given(part.detail), prompt_cache_breakpoint=cache)
    source = part.source
    match source:
        case Inline():
            shape.file_data = source.data if _BARE in source.form else data_url(source.data, part.media_type)
            if not plan.home and part.name is None:
                shape.filename = "document." + (part.media_type or "application/octet-stream").rpartition("/")[2]
                plan.report.invented(trail, "", UNPLACED + shape.filename, "the target wants a file name")
        case Url():
            shape.file_url = source.url if _NOWHERE not in source.form else UNSET
            if part.media_type is not None:
                plan.report.dropped(trail, "media_type")
        case FileId() if source.issuer == ISSUER:
            shape.file_id = source.id
        case PlainText():
            if part.media_type not in (None, "text/plain"):
                plan.report.dropped(trail, "media_type", "a text document is told as text")
            if part.name is not None:
                plan.report.dropped(trail, "name", "a text document is told as text")
            return InputText(text=source.text, prompt_cache_breakpoint=cache)
        case _:
            return _nowhere(source, trail, plan)
    return emit(shape, part, FAMILY)


def _nowhere(source: Source, trail: Trail, plan: ItemPlan) -> None:
    if isinstance(source, FileId):
        plan.report.dropped(trail, "", f"a file that only {source.issuer} holds")
    else:
        plan.report.dropped(trail, "", "the target takes no such source here")


def _report_flattened(part: Media, trail: Trail, plan: ItemPlan) -> None:
    plan.report.approximated(trail, "source", "the content of a document is told as content of its own")
    for field in ("name", "cache"):
        if getattr(part, field) is not None:
            plan.report.dropped(trail, field)


def _encode_refusal(part: Refusal, trail: Trail, plan: ItemPlan, *, spoken: bool) -> Any:
    if spoken or plan.home:
        return emit(RefusalPart(refusal=part.text), part, FAMILY)
    plan.report.approximated(trail, "", "a refusal is told as text")
    return InputText(text=part.text)


def _encode_foreign(part: Foreign, trail: Trail, plan: ItemPlan, *, spoken: bool) -> Any:
    if part.protocol == FAMILY:
        return part.body
    text = gist_of(part, trail, plan)
    return None if text is None else _plain(text, spoken=spoken)
