"""Decode and encode content parts and reasoning.

Reasoning has no official field; compatible servers send it in `reasoning_content`, `reasoning` or the content.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import (
    Data,
    FileId,
    Inline,
    ItemRef,
    Media,
    Nested,
    OpaquePart,
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
from toolwire.codec.encoding.fallbacks import (
    opaque_as_text,
    report_item_reference,
    report_reasoning,
    report_setting_change,
)
from toolwire.codec.encoding.hosts import accepts_media as host_accepts_media
from toolwire.codec.encoding.media import data_url, expand_nested_document, media_summary, source_from_url
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import report_tool_change
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import UNLOCATED, SourcePath
from toolwire.codec.models.gpt import refuses_audio_and_search
from toolwire.codec.wire.extras import (
    EMPTY,
    encode_with_extras,
    extras_and_wire_form,
    merge_extras,
    none_to_unset,
    unset_to_none,
)
from toolwire.codec.wire.reader import UnknownVariant, WireObject
from toolwire.protocols.openai_chat.parts.cache_control import TEXT_ONLY, has_cache_control, move_mark
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    SHARED_FAMILY,
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
from toolwire.protocols.vendors.openai import encode_detail


def encode_text_content(parts: list[Any], path: SourcePath, plan: EncodingPlan, role: str) -> Any:
    """Return the parts as one string if they are a single text, or if the host accepts only a string.

    Otherwise return the parts.
    """
    if len(parts) == 1:
        return parts[0].text if _is_plain_part(parts[0]) else parts
    return join_texts(parts, path, plan, role) if parts else ""


def join_texts(parts: list[Any], path: SourcePath, plan: EncodingPlan, role: str) -> Any:
    """Return texts as one string if the host accepts only a string for this role, else the parts."""
    host = plan.target.host
    roles = host.content.string_roles
    if not plan.adapts or not roles or ("system" if role == "developer" else role) not in roles:
        return parts
    if not all(map(_is_text, parts)):
        return parts
    plan.report.approximated(path, "", f"{host.rejects('lists of texts')}; texts joined")
    texts = [part.text if isinstance(part, TextPart) else str(part["text"]) for part in parts]
    # Pieces of a model's text may break anywhere, even inside a word.
    return ("" if role == "assistant" else "\n\n").join(texts)


def _is_plain_part(part: Any) -> bool:
    """Tell whether the part is text without a cache mark."""
    return type(part) is TextPart and part.prompt_cache_breakpoint is UNSET


def _is_text(part: Any) -> bool:
    """Tell whether the part is text, perhaps with other members."""
    return isinstance(part, TextPart) or (isinstance(part, dict) and part.get("type") == "text")


def accepts_media(kind: str, plan: EncodingPlan) -> bool:
    """Tell whether host and model accept media of a kind; others are sent as text."""
    if not plan.adapts or plan.for_client or kind == "video":
        return True
    if kind == "audio" and not plan.same_protocol and refuses_audio_and_search(plan.target.model or ""):
        return False
    return host_accepts_media(kind, plan)


STRING = "openai-chat:string"
PART = "openai-chat:part"
FILE = "openai-chat:file"
VIDEO = "openai-chat:video"
BARE_FORM = "openai-chat:bare"
THINKING_FORM = "openai-chat:reasoning:thinking"

AUDIO_FORMATS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "x-m4a": "m4a", "mp4": "m4a", "x-flac": "flac"}
"""Formats of audio by media type, where they differ."""
CACHE_TTLS = ("30m", "12h")

_SOURCE_IN_FILE = "openai-chat:name:source=file"

MediaKind = Literal["image", "audio", "video", "document"]
_MediaPart = ImagePart | VideoPart | AudioPart | FilePart | TextPart
_MEDIA_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


def collect_chat_extras(wire: WireObject, *wire_form: str, prefix: str = "") -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments of a wire object.

    Unlike `collect_extras`, null is recorded in the wire form even for unknown fields, since servers send many.
    """
    extras, wire_form = chat_extras_and_form(wire, wire_form, prefix)
    if extras:
        return {"extras": {FAMILY: extras}, "wire_form": wire_form}
    return {"wire_form": wire_form} if wire_form else EMPTY


def chat_extras_and_form(
    wire: WireObject, wire_form: tuple[str, ...] = (), prefix: str = ""
) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """Return the Chat extras of a wire object by pointer, and its wire-form tokens."""
    extras, wire_form = extras_and_wire_form(wire, FAMILY, wire_form, prefix)
    if wire.unknown is UNSET or b"null" not in (values := [bytes(value) for value in extras.values()]):
        return extras, wire_form
    nulls = [name for name, value in zip(extras, values, strict=True) if value == b"null"]
    remaining = {name: value for name, value in extras.items() if name not in nulls}
    return remaining, (*wire_form, *[f"{FAMILY}:null:{name}" for name in nulls])


def constant_extras(name: str, value: str | UnsetType | None, default: str) -> dict[str, Any]:
    """Return the arguments that record a normally constant field, such as `type`, which is absent or differs."""
    if value == default or value is None:
        return EMPTY
    if value is UNSET:
        return {"wire_form": (f"{FAMILY}:absent:{name}",)}
    return {"extras": {FAMILY: {name: Raw(msgspec.json.encode(value))}}}


def restore_constant(node: Node, name: str, default: str) -> str | UnsetType:
    """Return the constant `default`, or UNSET if the source omitted the field or had another value in it."""
    if f"{FAMILY}:absent:{name}" in node.wire_form or f"{FAMILY}:null:{name}" in node.wire_form:
        return UNSET
    return UNSET if node.extras and name in node.extras.get(FAMILY, {}) else default


# ---- decode


def decode_parts(parts: list[Any], offset: int = 0) -> tuple[Part, ...]:
    """Decode a content list; `offset` is the number of parts that precede it in the message."""
    decoded = [_DECODERS[type(part)](part) for part in parts]
    if offset:
        decoded = [replace(part, at=f"/content/{index}") for index, part in enumerate(decoded)]
    return tuple(decoded)


def _decode_text(part: TextPart) -> Text:
    """Decode a text part."""
    if part.prompt_cache_breakpoint is UNSET and part.unknown is UNSET and part.nulls is UNSET:
        return Text(text=part.text)
    return Text(text=part.text, cache=decode_cache(part.prompt_cache_breakpoint), **collect_chat_extras(part))


def decode_cache(shape: BreakpointShape | UnsetType) -> CacheMark | None:
    """Decode a cache mark."""
    if shape is UNSET:
        return None
    return CacheMark(
        ttl=unset_to_none(shape.ttl),
        **merge_extras(collect_chat_extras(shape), constant_extras("mode", shape.mode, "explicit")),
    )


def _decode_image(part: ImagePart) -> Media:
    """Decode an image part."""
    image = part.image_url
    if isinstance(image, str):
        source, media_type = source_from_url(image)
        cache = decode_cache(part.prompt_cache_breakpoint)
        return Media(
            kind="image", source=source, media_type=media_type, cache=cache, **collect_chat_extras(part, BARE_FORM)
        )
    source, media_type = source_from_url(image.url)
    return Media(
        kind="image",
        source=source,
        media_type=media_type,
        detail=unset_to_none(image.detail),
        cache=decode_cache(part.prompt_cache_breakpoint),
        **merge_extras(collect_chat_extras(part), collect_chat_extras(image, prefix="image_url/")),
    )


def _decode_video(part: VideoPart) -> Media:
    """Decode a video part."""
    video = part.video_url
    source, media_type = source_from_url(video if isinstance(video, str) else video.url)
    bare_form = (BARE_FORM,) if isinstance(video, str) else ()
    video_extras = {} if isinstance(video, str) else collect_chat_extras(video, prefix="video_url/")
    cache = decode_cache(part.prompt_cache_breakpoint)
    extras = merge_extras(collect_chat_extras(part, VIDEO, f"{FAMILY}:name:source=video_url", *bare_form), video_extras)
    return Media(kind="video", source=source, media_type=media_type, cache=cache, **extras)


def _decode_audio(part: AudioPart) -> Media:
    """Decode an audio part."""
    audio = part.input_audio
    wire_names = (f"{FAMILY}:name:source=input_audio", f"{FAMILY}:name:media_type=input_audio/format")
    return Media(
        kind="audio",
        source=Inline(data=audio.data),
        media_type=None if audio.format is UNSET else f"audio/{audio.format}",
        cache=decode_cache(part.prompt_cache_breakpoint),
        **merge_extras(collect_chat_extras(part, *wire_names), collect_chat_extras(audio, prefix="input_audio/")),
    )


def _decode_file(part: FilePart) -> Media | OpaquePart:
    """Decode a file part; it is opaque if it has neither id nor data."""
    file = part.file
    source: Source
    media_type: str | None = None
    wire_form: tuple[str, ...] = (FILE, _SOURCE_IN_FILE)
    if file.file_id is not UNSET:
        source = FileId(issuer=SHARED_FAMILY, id=file.file_id)
    elif file.file_data is UNSET:
        return OpaquePart(
            protocol=FAMILY,
            kind="file",
            body=Raw(msgspec.json.encode(encode_with_extras(part, _extras_holder(part), FAMILY))),
        )
    elif file.file_data.startswith(("data:", "http://", "https://")):
        source, media_type = source_from_url(file.file_data)
    else:
        source = Inline(data=file.file_data)
        wire_form = (FILE, BARE_FORM, _SOURCE_IN_FILE)
    has_both = file.file_id is not UNSET and file.file_data is not UNSET
    data_extras = {"extras": {FAMILY: {"file/file_data": Raw(msgspec.json.encode(file.file_data))}}} if has_both else {}
    return Media(
        kind=_MEDIA_KINDS.get((media_type or "").partition("/")[0], "document"),
        source=source,
        media_type=media_type,
        name=unset_to_none(file.filename),
        cache=decode_cache(part.prompt_cache_breakpoint),
        **merge_extras(collect_chat_extras(part, *wire_form), collect_chat_extras(file, prefix="file/"), data_extras),
    )


def _extras_holder(part: FilePart) -> Text:
    """Return a text part that only carries the extras of a file part, so that it can be encoded again."""
    return Text(text="", **merge_extras(collect_chat_extras(part), collect_chat_extras(part.file, prefix="file/")))


def _decode_refusal(part: RefusalPart) -> Refusal:
    """Decode a refusal part."""
    return Refusal(text=part.refusal, **collect_chat_extras(part, PART))


def _decode_thinking(part: ThinkingPart) -> Reasoning | OpaquePart:
    """Decode a thinking part; it is opaque if it holds more than text."""
    if isinstance(part.thinking, str):
        content = (ReasoningText(kind="full", text=part.thinking, at="/thinking"),)
        return Reasoning(content=content, **collect_chat_extras(part, THINKING_FORM, STRING))
    texts = [
        ReasoningText(kind="full", text=inner.text, **collect_chat_extras(inner))
        for inner in part.thinking
        if isinstance(inner, TextPart) and inner.prompt_cache_breakpoint is UNSET
    ]
    if len(texts) < len(part.thinking):
        body = {"type": "thinking", "thinking": [_with_unknown_fields(inner) for inner in part.thinking]}
        return OpaquePart(protocol=FAMILY, kind="thinking", body=Raw(msgspec.json.encode(body)))
    return Reasoning(content=tuple(texts), **collect_chat_extras(part, THINKING_FORM))


def _with_unknown_fields(part: Any) -> Any:
    """Return a wire object for encoding, with the fields that its type does not know."""
    return part.body if isinstance(part, UnknownVariant) else part


def _decode_unknown(variant: UnknownVariant) -> OpaquePart:
    """Decode a part of unknown type as an opaque one."""
    return OpaquePart(protocol=FAMILY, kind=variant.tag, body=variant.body)


_DECODERS: dict[type, Any] = {
    TextPart: _decode_text,
    ImagePart: _decode_image,
    VideoPart: _decode_video,
    AudioPart: _decode_audio,
    FilePart: _decode_file,
    RefusalPart: _decode_refusal,
    ThinkingPart: _decode_thinking,
    UnknownVariant: _decode_unknown,
}

# ---- encode


def encode_parts(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[Any]:
    """Encode parts as content; those without an equivalent are left out and reported."""
    encoded = []
    for located_part in located_parts:
        if isinstance(located_part.part, Media) and isinstance(located_part.part.source, Nested):
            encoded += encode_parts(
                expand_nested_document(located_part, located_part.part, located_part.part.source, plan.report), plan
            )
            continue
        part = _ENCODERS[type(located_part.part)](located_part.part, located_part, plan)
        if part is not None:
            encoded.append(part)
    return encoded


def _encode_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a text part."""
    report_text(part, located_part, plan)
    if part.cache is not None and has_cache_control(plan):
        part = move_mark(part, located_part.path, plan)
    shape = TextPart(text=part.text, prompt_cache_breakpoint=encode_cache(part.cache, located_part, plan))
    return encode_with_extras(shape, part, FAMILY)


def report_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report as losses the fields of a text that Chat lacks."""
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if part.id is not None and not plan.same_protocol:
        plan.report.dropped(located_part.path, "id")
    if part.annotations and not plan.for_client and not plan.same_protocol:
        for index in range(len(part.annotations)):
            plan.report.dropped(
                (*located_part.path, "annotations", index), "", "requests of the target have no citations"
            )


def encode_cache(cache: CacheMark | None, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a cache mark; UNSET without one, or if the host may not support it."""
    if cache is None or (plan.same_protocol and cache.at is not None):
        return UNSET  # OpenRouter's mark is in another field, which is restored from the extras
    ttl = cache.ttl
    if not plan.accepts_cache_mark(located_part.path):
        return UNSET
    if not plan.same_protocol and ttl is not None and ttl not in CACHE_TTLS:
        reason = f"the target has no ttl {ttl}; its default is used"
        plan.report.approximated((*located_part.path, "cache"), "ttl", reason)
        ttl = None
    plan.cache_marks += 1
    shape = BreakpointShape(mode=restore_constant(cache, "mode", "explicit"), ttl=none_to_unset(ttl))
    return encode_with_extras(shape, cache, FAMILY)


def _encode_media(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode media as a content part; report it and return None if the target does not accept it."""
    shape = _encode_media_part(part, located_part, plan)
    if shape is None:
        return None
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if part.detail is not None and not isinstance(shape, ImagePart):
        plan.report.dropped(located_part.path, "detail")
    if part.name is not None and not isinstance(shape, FilePart | TextPart):
        plan.report.dropped(located_part.path, "name")
    if part.media_type is not None and isinstance(part.source, Url) and not plan.same_protocol:
        plan.report.dropped(located_part.path, "media_type", "the target reads it from the URL")
    if part.cache is not None and has_cache_control(plan):
        plan.report.dropped((*located_part.path, "cache"), "", TEXT_ONLY)
    else:
        shape.prompt_cache_breakpoint = encode_cache(part.cache, located_part, plan)
    return encode_with_extras(shape, part, FAMILY)


def _encode_media_part(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> _MediaPart | None:
    """Return the content part for the kind and source of media; None if Chat has none."""
    encoded: _MediaPart | None
    if part.kind == "document" and not plan.same_protocol and (part.media_type or "").startswith("audio/"):
        part = replace(part, kind="audio")  # OpenAI rejects other files than documents
    if isinstance(part.source, Inline | Url | FileId) and not accepts_media(part.kind, plan):
        return _encode_rejected_media(part, located_part, plan)
    match part.source:
        case Inline() as source:
            encoded = _encode_inline(part, source, located_part, plan)
        case Url() as source:
            encoded = _encode_url(part, source, located_part, plan)
        case FileId() as source if source.issuer == SHARED_FAMILY and (part.kind == "document" or plan.same_protocol):
            encoded = FilePart(file=FileShape(file_id=source.id, filename=none_to_unset(part.name)))
        case FileId() as source:
            plan.report.dropped(located_part.path, "", f"file is stored by {source.issuer} only")
            return None
        case _:
            encoded = _encode_document_text(part, located_part, plan) if part.kind == "document" else None
    if encoded is None:
        plan.report.dropped(located_part.path, "", f"the target does not accept {part.media_type or part.kind} here")
    return encoded


def _encode_rejected_media(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> TextPart:
    """Encode media that host or model reject as a line of text."""
    host, model = plan.target.host, plan.target.model or "the model"
    if part.kind == "document" and isinstance(part.source, Url):
        return _encode_document_text(part, located_part, plan)
    reason = f"{host.rejects(f'{part.kind} content')} for {model}; replaced by a line of text"
    plan.report.dropped(located_part.path, "", reason)
    return TextPart(text=media_summary(part))


def _encode_inline(part: Media, source: Inline, located_part: LocatedPart, plan: EncodingPlan) -> _MediaPart | None:
    """Encode media by content, None if Chat has no part for its type."""
    if VIDEO in part.wire_form or _is_accepted_video(part, plan):
        return _encode_video(part, data_url(source.data, part.media_type))
    if part.kind == "document" or FILE in part.wire_form:
        return _encode_file(part, source, located_part, plan)
    if part.kind == "image":
        return _encode_image(part, data_url(source.data, part.media_type), located_part, plan)
    if part.kind == "audio" and plan.same_protocol:
        audio_format = UNSET if part.media_type is None else part.media_type.removeprefix("audio/")
        return AudioPart(input_audio=AudioShape(data=source.data, format=audio_format))
    if part.kind == "audio" and part.media_type is not None:
        subtype = part.media_type.removeprefix("audio/").partition(";")[0]
        audio_format, accepted = AUDIO_FORMATS.get(subtype, subtype), plan.target.host.content.audio_formats
        if not accepted or (part.media_type.startswith("audio/") and audio_format in accepted):
            return AudioPart(input_audio=AudioShape(data=source.data, format=audio_format))
    return None


def _is_accepted_video(part: Media, plan: EncodingPlan) -> bool:
    """Tell whether the part is a video, and the host accepts those."""
    return part.kind == "video" and "video" in plan.target.host.content.media


def _encode_url(part: Media, source: Url, located_part: LocatedPart, plan: EncodingPlan) -> _MediaPart | None:
    """Encode media by URL, None if Chat has no part for its type."""
    if VIDEO in part.wire_form or _is_accepted_video(part, plan):
        return _encode_video(part, source.url)
    if FILE in part.wire_form or (part.kind == "document" and plan.target.host.content.document_urls):
        return FilePart(file=FileShape(file_data=source.url, filename=none_to_unset(part.name)))
    if part.kind == "image" and plan.adapts and not plan.target.host.content.image_urls:
        plan.report.approximated(located_part.path, "", plan.target.host.rejects("web addresses of images"))
        return TextPart(text=f"[image at {source.url}]")
    if part.kind == "image":
        return _encode_image(part, source.url, located_part, plan)
    return _encode_document_text(part, located_part, plan) if part.kind == "document" else None


def _encode_video(part: Media, url: str) -> VideoPart:
    """Encode a video with the part type that the client used."""
    return VideoPart(video_url=url if BARE_FORM in part.wire_form else VideoShape(url=url))


def _encode_image(part: Media, url: str, located_part: LocatedPart, plan: EncodingPlan) -> ImagePart:
    """Encode an image by URL or data URL."""
    if BARE_FORM in part.wire_form and part.detail is None:
        return ImagePart(image_url=url)
    detail = part.detail if plan.same_protocol else encode_detail(part, plan.report, located_part.path)
    if detail == "original" and plan.adapts and not plan.for_client and not plan.target.host.content.original_images:
        reason = f"{plan.target.host.rejects('the image detail original')}; sent as high"
        plan.report.approximated(located_part.path, "detail", reason)
        detail = "high"
    return ImagePart(image_url=ImageShape(url=url, detail=none_to_unset(detail)))


def _encode_file(part: Media, source: Inline, located_part: LocatedPart, plan: EncodingPlan) -> FilePart:
    """Encode a file by content, with the name that the target requires."""
    name = part.name
    if name is None and not plan.same_protocol:
        name = "document." + ((part.media_type or "").rpartition("/")[2] or "bin")
        plan.report.added(
            located_part.path, "", UNLOCATED + name, f"the target requires a file name; set to {name}", severity="info"
        )
    data = source.data if BARE_FORM in part.wire_form else data_url(source.data, part.media_type)
    return FilePart(file=FileShape(file_data=data, filename=none_to_unset(name)))


def _encode_document_text(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> TextPart:
    """Encode a document as text: its own text, its URL or a placeholder."""
    plan.report.approximated(located_part.path, "source", "document sent as text")
    match part.source:
        case PlainText() as source:
            text = source.text
        case Url() as source:
            text = f"[document at {source.url}]"
        case _:
            text = "[document]"
    return TextPart(text=f"{part.name}\n{text}" if part.name else text)


def _encode_data(part: Data, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode JSON as text."""
    return TextPart(text=bytes(part.json).decode())


def _encode_refusal(part: Refusal, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a refusal part."""
    return encode_with_extras(RefusalPart(refusal=part.text), part, FAMILY)


def _encode_thinking_part(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode Mistral's `thinking` part; report any other reasoning, which cannot be content, and return None."""
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    if THINKING_FORM not in part.wire_form:
        if plan.target.host.reasoning.replay_field != "content" or plan.for_client:
            plan.report.dropped(located_part.path, "", "the target does not accept reasoning here")
            return None
        report_reasoning(part, located_part, plan)
        return ThinkingPart(thinking=[TextPart(text=block.text) for block in texts]) if texts else None
    if STRING in part.wire_form:
        return encode_with_extras(ThinkingPart(thinking="".join(block.text for block in texts)), part, FAMILY)
    inner = [encode_with_extras(TextPart(text=block.text), block, FAMILY) for block in texts]
    return encode_with_extras(ThinkingPart(thinking=inner), part, FAMILY)


def _encode_tool_reference(part: ToolRef, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a tool reference as text."""
    plan.report.approximated(located_part.path, "", "the target has no tool references; name sent as text")
    return TextPart(text=f"[tool {plan.tool_name(part.name, part.namespace)}]")


def _report_change(part: ToolChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report the loss of a change of the available tools."""
    report_tool_change(part, located_part.path, plan.report)


def _report_setting(part: SettingChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report the loss of a change of settings within the conversation."""
    report_setting_change(part, located_part.path, plan)


def _encode_opaque(part: OpaquePart, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode an opaque part: Chat's own unchanged, others as text."""
    if part.protocol == FAMILY:
        return part.body
    text = opaque_as_text(part, located_part.path, plan)
    return None if text is None else TextPart(text=text)


_ENCODERS: dict[type, Any] = {
    Text: _encode_text,
    Media: _encode_media,
    Data: _encode_data,
    Refusal: _encode_refusal,
    Reasoning: _encode_thinking_part,
    ToolRef: _encode_tool_reference,
    ToolChange: _report_change,
    SettingChange: _report_setting,
    ItemRef: report_item_reference,
    OpaquePart: _encode_opaque,
}
