"""Chat's content parts, to canonical parts and back."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import (
    Data,
    FileId,
    Foreign,
    Inline,
    ItemRef,
    Media,
    Nested,
    Part,
    PlainText,
    Reasoning,
    ReasoningText,
    Refusal,
    SettingChange,
    Source,
    Text,
    ToolChange,
    Url,
)
from toolwire.canonical.node import Node
from toolwire.canonical.tools import CacheMark, ToolRef
from toolwire.codec.fields import Other, Wire
from toolwire.codec.kept import NOTHING, emit, given, joined, known, left
from toolwire.codec.losses import UNPLACED
from toolwire.codec.media import data_url, opened, source_of
from toolwire.codec.plan import Plan
from toolwire.codec.settings import report_setting
from toolwire.codec.telling import gist_of
from toolwire.codec.tools import report_change
from toolwire.codec.turns import Placed
from toolwire.protocols.openai import encode_detail
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    SHARED,
    AudioPart,
    AudioShape,
    BreakpointShape,
    FilePart,
    FileShape,
    ImagePart,
    ImageShape,
    RefusalPart,
    TextPart,
    ThinkingPart,
    VideoPart,
    VideoShape,
)

STRING = "openai-chat:string"
PART = "openai-chat:part"
FILE = "openai-chat:file"
VIDEO = "openai-chat:video"
BARE = "openai-chat:bare"
THINKING = "openai-chat:reasoning:thinking"

AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}
TTLS = ("30m", "12h")

_IN_FILE = "openai-chat:name:source=file"

Kind = Literal["image", "audio", "video", "document"]
_KINDS: dict[str, Kind] = {"image": "image", "audio": "audio", "video": "video"}


def kept(wire: Wire, *form: str, under: str = "") -> dict[str, Any]:
    """`rest`, where a null is spelling also in fields that this protocol does not know: servers send many."""
    own, form = left_over(wire, form, under)
    if own:
        return {"extras": {FAMILY: own}, "form": form}
    return {"form": form} if form else NOTHING


def left_over(wire: Wire, form: tuple[str, ...] = (), under: str = "") -> tuple[dict[str, Raw], tuple[str, ...]]:
    """The same as `left` gives it."""
    own, form = left(wire, FAMILY, form, under)
    if wire.unknown is UNSET or b"null" not in (values := [bytes(value) for value in own.values()]):
        return own, form
    nulls = [name for name, value in zip(own, values, strict=True) if value == b"null"]
    others = {name: value for name, value in own.items() if name not in nulls}
    return others, (*form, *[f"{FAMILY}:null:{name}" for name in nulls])


def spelled(name: str, value: str | UnsetType | None, usual: str) -> dict[str, Any]:
    """What is kept of a word that is always the same, where there is none, or one that we don't know."""
    if value == usual or value is None:
        return NOTHING
    if value is UNSET:
        return {"form": (f"{FAMILY}:absent:{name}",)}
    return {"extras": {FAMILY: {name: Raw(msgspec.json.encode(value))}}}


def spelling(node: Node, name: str, usual: str) -> str | UnsetType:
    """The word, unless what was kept says otherwise."""
    if f"{FAMILY}:absent:{name}" in node.form or f"{FAMILY}:null:{name}" in node.form:
        return UNSET
    return UNSET if node.extras and name in node.extras.get(FAMILY, {}) else usual


# ---- decode


def decode_parts(parts: list[Any], offset: int = 0) -> tuple[Part, ...]:
    """The parts of a content list; `offset` is how many parts of the message stand before them."""
    decoded = [_DECODERS[type(part)](part) for part in parts]
    if offset:
        decoded = [replace(part, at=f"/content/{index}") for index, part in enumerate(decoded)]
    return tuple(decoded)


def _decode_text(part: TextPart) -> Text:
    if part.prompt_cache_breakpoint is UNSET and part.unknown is UNSET and part.nulls is UNSET:
        return Text(text=part.text)
    return Text(text=part.text, cache=decode_cache(part.prompt_cache_breakpoint), **kept(part))


def decode_cache(shape: BreakpointShape | UnsetType) -> CacheMark | None:
    if shape is UNSET:
        return None
    return CacheMark(ttl=known(shape.ttl), **joined(kept(shape), spelled("mode", shape.mode, "explicit")))


def _decode_image(part: ImagePart) -> Media:
    image = part.image_url
    if isinstance(image, str):
        source, media_type = source_of(image)
        cache = decode_cache(part.prompt_cache_breakpoint)
        return Media(kind="image", source=source, media_type=media_type, cache=cache, **kept(part, BARE))
    source, media_type = source_of(image.url)
    return Media(
        kind="image",
        source=source,
        media_type=media_type,
        detail=known(image.detail),
        cache=decode_cache(part.prompt_cache_breakpoint),
        **joined(kept(part), kept(image, under="image_url/")),
    )


def _decode_video(part: VideoPart) -> Media:
    video = part.video_url
    source, media_type = source_of(video if isinstance(video, str) else video.url)
    bare = (BARE,) if isinstance(video, str) else ()
    inner = {} if isinstance(video, str) else kept(video, under="video_url/")
    cache = decode_cache(part.prompt_cache_breakpoint)
    rest = joined(kept(part, VIDEO, f"{FAMILY}:name:source=video_url", *bare), inner)
    return Media(kind="video", source=source, media_type=media_type, cache=cache, **rest)


def _decode_audio(part: AudioPart) -> Media:
    audio = part.input_audio
    names = (f"{FAMILY}:name:source=input_audio", f"{FAMILY}:name:media_type=input_audio/format")
    return Media(
        kind="audio",
        source=Inline(data=audio.data),
        media_type=None if audio.format is UNSET else f"audio/{audio.format}",
        cache=decode_cache(part.prompt_cache_breakpoint),
        **joined(kept(part, *names), kept(audio, under="input_audio/")),
    )


def _decode_file(part: FilePart) -> Media | Foreign:
    file = part.file
    source: Source
    media_type: str | None = None
    form: tuple[str, ...] = (FILE, _IN_FILE)
    if file.file_id is not UNSET:
        source = FileId(issuer=SHARED, id=file.file_id)
    elif file.file_data is UNSET:
        return Foreign(protocol=FAMILY, kind="file", body=Raw(msgspec.json.encode(emit(part, _as_node(part), FAMILY))))
    elif file.file_data.startswith(("data:", "http://", "https://")):
        source, media_type = source_of(file.file_data)
    else:
        source = Inline(data=file.file_data)
        form = (FILE, BARE, _IN_FILE)
    both = file.file_id is not UNSET and file.file_data is not UNSET
    data = {"extras": {FAMILY: {"file/file_data": Raw(msgspec.json.encode(file.file_data))}}} if both else {}
    return Media(
        kind=_KINDS.get((media_type or "").partition("/")[0], "document"),
        source=source,
        media_type=media_type,
        name=known(file.filename),
        cache=decode_cache(part.prompt_cache_breakpoint),
        **joined(kept(part, *form), kept(file, under="file/"), data),
    )


def _as_node(part: FilePart) -> Text:
    """Something to hold what a part kept, so that it can be written again at once."""
    return Text(text="", **joined(kept(part), kept(part.file, under="file/")))


def _decode_refusal(part: RefusalPart) -> Refusal:
    return Refusal(text=part.refusal, **kept(part, PART))


def _decode_thinking(part: ThinkingPart) -> Reasoning | Foreign:
    if isinstance(part.thinking, str):
        content = (ReasoningText(kind="full", text=part.thinking, at="/thinking"),)
        return Reasoning(content=content, **kept(part, THINKING, STRING))
    texts = [
        ReasoningText(kind="full", text=inner.text, **kept(inner))
        for inner in part.thinking
        if isinstance(inner, TextPart) and inner.prompt_cache_breakpoint is UNSET
    ]
    if len(texts) < len(part.thinking):
        body = {"type": "thinking", "thinking": [_as_written(inner) for inner in part.thinking]}
        return Foreign(protocol=FAMILY, kind="thinking", body=Raw(msgspec.json.encode(body)))
    return Reasoning(content=tuple(texts), **kept(part, THINKING))


def _as_written(part: Any) -> Any:
    return part.body if isinstance(part, Other) else part


def _decode_other(other: Other) -> Foreign:
    return Foreign(protocol=FAMILY, kind=other.tag, body=other.body)


_DECODERS: dict[type, Any] = {
    TextPart: _decode_text,
    ImagePart: _decode_image,
    VideoPart: _decode_video,
    AudioPart: _decode_audio,
    FilePart: _decode_file,
    RefusalPart: _decode_refusal,
    ThinkingPart: _decode_thinking,
    Other: _decode_other,
}

# ---- encode


def encode_parts(places: list[Placed], plan: Plan) -> list[Any]:
    found = []
    for placed in places:
        if isinstance(placed.part, Media) and isinstance(placed.part.source, Nested):
            found += encode_parts(opened(placed, placed.part, placed.part.source, plan.report), plan)
            continue
        part = _ENCODERS[type(placed.part)](placed.part, placed, plan)
        if part is not None:
            found.append(part)
    return found


def _encode_text(part: Text, placed: Placed, plan: Plan) -> Any:
    report_text(part, placed, plan)
    shape = TextPart(text=part.text, prompt_cache_breakpoint=encode_cache(part.cache, placed, plan))
    return emit(shape, part, FAMILY)


def report_text(part: Text, placed: Placed, plan: Plan) -> None:
    """What a text part has no place for."""
    if part.seal is not None:
        plan.report.dropped((*placed.trail, "seal"), "", "a seal goes only to its issuer")
    if part.id is not None and not plan.home:
        plan.report.dropped(placed.trail, "id")
    if part.annotations and not plan.answering and not plan.home:
        for index in range(len(part.annotations)):
            plan.report.dropped((*placed.trail, "annotations", index), "", "a request has no place for citations")


def encode_cache(cache: CacheMark | None, placed: Placed, plan: Plan) -> Any:
    if cache is None or (plan.home and cache.at is not None):
        return UNSET  # OpenRouter's stands in a field of its own, which is written back whole
    ttl = cache.ttl
    if not plan.home and not plan.target.host.cache_marks:
        plan.report.dropped((*placed.trail, "cache"), "", "the host may not take cache marks")
        return UNSET
    if not plan.home and ttl is not None and ttl not in TTLS:
        why = f"the target can't keep a prefix for {ttl}: it chooses how long"
        plan.report.approximated((*placed.trail, "cache"), "ttl", why)
        ttl = None
    shape = BreakpointShape(mode=spelling(cache, "mode", "explicit"), ttl=given(ttl))
    return emit(shape, cache, FAMILY)


def _encode_media(part: Media, placed: Placed, plan: Plan) -> Any:
    shape = _media_shape(part, placed, plan)
    if shape is None:
        return None
    if part.seal is not None:
        plan.report.dropped((*placed.trail, "seal"), "", "a seal goes only to its issuer")
    if part.detail is not None and not isinstance(shape, ImagePart):
        plan.report.dropped(placed.trail, "detail")
    if part.name is not None and not isinstance(shape, FilePart | TextPart):
        plan.report.dropped(placed.trail, "name")
    if part.media_type is not None and isinstance(part.source, Url) and not plan.home:
        plan.report.dropped(placed.trail, "media_type", "the target asks the address for it")
    shape.prompt_cache_breakpoint = encode_cache(part.cache, placed, plan)
    return emit(shape, part, FAMILY)


def _media_shape(
    part: Media, placed: Placed, plan: Plan
) -> ImagePart | VideoPart | AudioPart | FilePart | TextPart | None:
    """The part that shows it; None, reported, if this protocol has none."""
    match part.source:
        case Inline() | Url() as source if VIDEO in part.form:
            url = source.url if isinstance(source, Url) else data_url(source.data, part.media_type)
            return VideoPart(video_url=url if BARE in part.form else VideoShape(url=url))
        case Inline() as source if part.kind == "image" and FILE not in part.form:
            return _image(part, data_url(source.data, part.media_type), placed, plan)
        case Url() as source if part.kind == "image" and FILE not in part.form:
            return _image(part, source.url, placed, plan)
        case Inline() as source if part.kind == "audio" and FILE not in part.form:
            if plan.home:
                named = UNSET if part.media_type is None else part.media_type.removeprefix("audio/")
                return AudioPart(input_audio=AudioShape(data=source.data, format=named))
            if part.media_type in AUDIO_FORMATS:
                return AudioPart(input_audio=AudioShape(data=source.data, format=AUDIO_FORMATS[part.media_type]))
        case Inline() as source if part.kind == "document" or FILE in part.form:
            return _file(part, source, placed, plan)
        case Url() as source if FILE in part.form:
            return FilePart(file=FileShape(file_data=source.url, filename=given(part.name)))
        case FileId() as source if source.issuer == SHARED and (part.kind == "document" or plan.home):
            return FilePart(file=FileShape(file_id=source.id, filename=given(part.name)))
        case FileId() as source:
            plan.report.dropped(placed.trail, "", f"a file that only {source.issuer} holds")
            return None
        case _ if part.kind == "document":
            return _document_text(part, placed, plan)
        case _:
            pass
    plan.report.dropped(placed.trail, "", f"the target takes no {part.media_type or part.kind} here")
    return None


def _image(part: Media, url: str, placed: Placed, plan: Plan) -> ImagePart:
    if BARE in part.form and part.detail is None:
        return ImagePart(image_url=url)
    detail = part.detail if plan.home else encode_detail(part, plan.report, placed.trail)
    return ImagePart(image_url=ImageShape(url=url, detail=given(detail)))


def _file(part: Media, source: Inline, placed: Placed, plan: Plan) -> FilePart:
    name = part.name
    if name is None and not plan.home:
        name = "document." + ((part.media_type or "").rpartition("/")[2] or "bin")
        plan.report.invented(placed.trail, "", UNPLACED + name, "the target wants a file name")
    data = source.data if BARE in part.form else data_url(source.data, part.media_type)
    return FilePart(file=FileShape(file_data=data, filename=given(name)))


def _document_text(part: Media, placed: Placed, plan: Plan) -> TextPart:
    """A document that is text already, or only an address, told as text."""
    plan.report.approximated(placed.trail, "source", "the target takes no such document: told as text")
    match part.source:
        case PlainText() as source:
            said = source.text
        case Url() as source:
            said = f"[document at {source.url}]"
        case _:
            said = "[document]"
    return TextPart(text=f"{part.name}\n{said}" if part.name else said)


def _encode_data(part: Data, placed: Placed, plan: Plan) -> Any:
    return TextPart(text=bytes(part.json).decode())


def _encode_refusal(part: Refusal, placed: Placed, plan: Plan) -> Any:
    return emit(RefusalPart(refusal=part.text), part, FAMILY)


def _encode_reasoning(part: Reasoning, placed: Placed, plan: Plan) -> Any:
    """Only Mistral's reasoning stands in the content."""
    if THINKING not in part.form:
        plan.report.dropped(placed.trail, "", "reasoning has no place here")
        return None
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    if STRING in part.form:
        return emit(ThinkingPart(thinking="".join(block.text for block in texts)), part, FAMILY)
    inner = [emit(TextPart(text=block.text), block, FAMILY) for block in texts]
    return emit(ThinkingPart(thinking=inner), part, FAMILY)


def _encode_tool_reference(part: ToolRef, placed: Placed, plan: Plan) -> Any:
    plan.report.approximated(placed.trail, "", "the target can't point at tools: the name is told as text")
    return TextPart(text=f"[tool {plan.name(part.name, part.namespace)}]")


def _encode_change(part: ToolChange, placed: Placed, plan: Plan) -> None:
    report_change(part, placed.trail, plan.report)


def _encode_setting(part: SettingChange, placed: Placed, plan: Plan) -> None:
    report_setting(part, placed.trail, plan)


def _encode_item_reference(part: ItemRef, placed: Placed, plan: Plan) -> None:
    plan.report.dropped(placed.trail, "id", "what another protocol stored can't be named here")


def _encode_foreign(part: Foreign, placed: Placed, plan: Plan) -> Any:
    if part.protocol == FAMILY:
        return part.body
    text = gist_of(part, placed.trail, plan)
    return None if text is None else TextPart(text=text)


_ENCODERS: dict[type, Any] = {
    Text: _encode_text,
    Media: _encode_media,
    Data: _encode_data,
    Refusal: _encode_refusal,
    Reasoning: _encode_reasoning,
    ToolRef: _encode_tool_reference,
    ToolChange: _encode_change,
    SettingChange: _encode_setting,
    ItemRef: _encode_item_reference,
    Foreign: _encode_foreign,
}
