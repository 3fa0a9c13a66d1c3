"""Media in Gemini's parts, to canonical and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import FileId, Inline, Media, Nested, PlainText, Reasoning, Text, Url
from toolwire.codec.hosted import json_of
from toolwire.codec.kept import given, joined, known
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini.wire import FAMILY, ISSUER, BlobShape, FileShape, PartShape
from toolwire.protocols.google import LEVEL, RESOLUTIONS

from .calls import beside, is_early
from .signatures import decode_seal
from .spelling import Spelling, write

THOUGHT_FALSE = "gemini:thought:false"
_FILE = "gemini:fileData"
_URL_SAFE = "gemini:base64url"
_TO_URL_SAFE = str.maketrans("+/", "-_")
_FROM_URL_SAFE = str.maketrans("-_", "+/")
_RESOLUTION = ("mediaResolution", "media_resolution")

# Files that only Google can read: of its Files API, or of its storage.
_OWN_FILES = ("https://generativelanguage.googleapis.com/", "gs://")
_KINDS: dict[str, Any] = {"image": "image", "audio": "audio", "video": "video"}
_MEDIA_TYPES = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "gif": "image/gif",
    "pdf": "application/pdf",
}

_encode = msgspec.json.Encoder().encode


# ---- decode


def kept_beside(
    kind: str, part: PartShape, spelling: Spelling, *inner: tuple[Any, str], form: tuple[str, ...] = ()
) -> dict[str, Any]:
    found = spelling.kept(kind, (part, ""), *inner, form=form)
    side = beside(part if part.thought is not True else replace(part, thought=UNSET), spelling)
    return joined(found, side) if side else found


def decode_inline(part: PartShape, spelling: Spelling) -> Media | Reasoning | None:
    blob = part.inline_data
    if blob is UNSET:
        return None
    spelling.read(blob, "inlineData")
    if blob.data is UNSET:
        return None
    media_type = known(blob.mime_type)
    source = _decode_bytes(blob.data)
    media = Media(kind=_kind(media_type), source=source, media_type=media_type, name=known(blob.display_name))
    return _media(part, spelling, media, (blob, "inlineData"), ())


def _decode_bytes(data: str) -> Inline:
    """Google reads both alphabets of base64, and its SDK for Python writes that for addresses: others read the usual
    one only."""
    if ("-" in data or "_" in data) and "+" not in data and "/" not in data and len(data) % 4 == 0:
        return Inline(data=data.translate(_FROM_URL_SAFE), form=(_URL_SAFE,))
    return Inline(data=data)


def decode_file(part: PartShape, spelling: Spelling) -> Media | Reasoning | None:
    file = part.file_data
    if file is UNSET:
        return None
    spelling.read(file, "fileData")
    if file.file_uri is UNSET:
        return None
    own = file.file_uri.startswith(_OWN_FILES)
    source: Any = FileId(issuer=ISSUER, id=file.file_uri) if own else Url(url=file.file_uri)
    media_type = known(file.mime_type)
    names = {"source": "fileUri", "media_type": "mimeType", "name": "displayName"}
    form = [f"gemini:name:{field}={spelling.source('fileData/' + wire)}" for field, wire in names.items()]
    media = Media(kind=_kind(media_type), source=source, media_type=media_type, name=known(file.display_name))
    return _media(part, spelling, media, (file, "fileData"), (_FILE, *form))


def _media(
    part: PartShape, spelling: Spelling, media: Media, inner: tuple[Any, str], form: tuple[str, ...]
) -> Media | Reasoning:
    if part.thought is not True:
        return _resolved(
            replace(media, seal=decode_seal(part), **kept_beside("Media", part, spelling, inner, form=form))
        )
    shown = replace(media, at="", form=form)
    return Reasoning(
        content=(shown,), seal=decode_seal(part), **kept_beside("Reasoning", part, spelling, inner, form=form)
    )


def _resolved(media: Media) -> Media:
    """The media with how closely they are to be looked at, if all that is said of it are words that others know."""
    own = (media.extras or {}).get(FAMILY, {})
    name = next((one for one in _RESOLUTION if one in own), None)
    match None if name is None else json_of(own[name]):
        case {"level": str(level), **more} if not more:
            detail = level.removeprefix(LEVEL).lower()
            if detail in RESOLUTIONS:
                form = (f"{FAMILY}:told:{name}", f"{FAMILY}:name:detail={name}/level")
                return replace(media, detail=detail, form=(*media.form, *form))
    return media


def _kind(media_type: str | None) -> Any:
    return _KINDS.get((media_type or "").partition("/")[0], "document")


# ---- encode


def encode_bytes(source: Inline) -> str:
    return source.data.translate(_TO_URL_SAFE) if _URL_SAFE in source.form else source.data


def encode_media(part: Media, placed: Placed, plan: Plan) -> list[Any]:
    shape = _media_shape(part, placed.trail, plan)
    if shape is None:
        return []
    if part.seal is not None and part.seal.issuer == ISSUER:
        shape.thought_signature = part.seal.data
    if plan.home:
        if THOUGHT_FALSE in part.form:
            shape.thought = False
        return [write(shape, part)]
    if part.seal is not None and part.seal.issuer != ISSUER:
        plan.report.dropped((*placed.trail, "seal"), "", "a seal goes only to its issuer")
    _encode_detail(part, shape, placed.trail, plan)
    if part.cache is not None:
        plan.report.dropped((*placed.trail, "cache"), "", "the target finds out by itself what to keep")
    if part.name is not None and shape.text is not UNSET:
        plan.report.dropped(placed.trail, "name")
    return [shape]


def _encode_detail(part: Media, shape: PartShape, trail: Trail, plan: Plan) -> None:
    if part.detail is None:
        return
    if shape.text is not UNSET or part.detail not in RESOLUTIONS:
        plan.report.dropped(trail, "detail")
    elif is_early(plan):
        plan.report.dropped(trail, "detail", "the model has one resolution for all media")
    else:
        shape.media_resolution = Raw(_encode({"level": LEVEL + part.detail.upper()}))


def _media_shape(part: Media, trail: Trail, plan: Plan) -> PartShape | None:
    """The part that shows it; None, reported, if Google can't read it."""
    name, media_type = given(part.name), part.media_type
    match part.source:
        case Inline() as source:
            if media_type is None and not plan.home:
                media_type = "image/jpeg" if part.kind == "image" else "application/octet-stream"
                plan.report.invented(trail, "media_type", "", f"the target wants one: {media_type} was chosen")
            blob = BlobShape(mime_type=given(media_type), data=encode_bytes(source), display_name=name)
            return PartShape(inline_data=blob)
        case Url() as source if not plan.home and not plan.answering and source.url.lower().startswith("http:"):
            # https addresses it fetches itself; that we fetch what a client names is no way out
            plan.report.dropped(trail, "", "Google fetches from https addresses only: send it inline", guarded=True)
        case Url() as source:
            if media_type is None and not plan.home:
                media_type = _MEDIA_TYPES.get(source.url.partition("?")[0].rpartition(".")[2].lower())
            return PartShape(file_data=FileShape(file_uri=source.url, mime_type=given(media_type), display_name=name))
        case FileId() as source if source.issuer == ISSUER:
            return PartShape(file_data=FileShape(file_uri=source.id, mime_type=given(media_type), display_name=name))
        case FileId() as source:
            plan.report.dropped(trail, "", f"a file that only {source.issuer} holds")
        case PlainText() as source:
            plan.report.approximated(trail, "", "a document of text is told as text")
            return PartShape(text=source.text)
        case Nested() as source:
            plan.report.approximated(trail, "", "a document of parts is told as text")
            return PartShape(text="\n".join(one.text for one in source.parts if isinstance(one, Text)))
    return None
