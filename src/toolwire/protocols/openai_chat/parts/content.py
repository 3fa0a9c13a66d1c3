"""The texts of a message or a result, as one string or as parts.

Reasoning as compatible servers write it, in fields that the official protocol lacks, to canonical and back.

Chat's content parts, to canonical parts and back.

Chat's citations, which stand on the message, to canonical ones, which stand on a text, and back.
"""

import re
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import (
    Citation,
    Data,
    FileId,
    Inline,
    ItemRef,
    Media,
    Message,
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
from toolwire.codec.encoding.fallbacks import opaque_as_text, report_setting_change
from toolwire.codec.encoding.media import data_url, expand_nested_document, source_from_url
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import report_tool_change
from toolwire.codec.encoding.turns import LocatedPart, Turn
from toolwire.codec.losses import UNLOCATED, SourcePath
from toolwire.codec.wire.extras import (
    EMPTY,
    encode_with_extras,
    extras_and_wire_form,
    merge_extras,
    none_to_unset,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader, UnknownVariant, WireObject
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    SHARED_FAMILY,
    AudioPart,
    AudioShape,
    BreakpointShape,
    CitationShape,
    FilePart,
    FileShape,
    ImagePart,
    ImageShape,
    MessageShape,
    RefusalPart,
    TextPart,
    ThinkingPart,
    UrlCitationShape,
    VideoPart,
    VideoShape,
)
from toolwire.protocols.vendors.openai import encode_detail


def encode_text_content(parts: list[Any], path: SourcePath, plan: EncodingPlan, separator: str = "\n\n") -> Any:
    """Return the parts as a string where that says all of it, or where the host takes texts no other way."""
    if len(parts) == 1:
        return parts[0].text if _is_plain_part(parts[0]) else parts
    if not parts:
        return ""
    if not plan.target.host.string_content or not all(map(_is_plain_part, parts)):
        return parts
    plan.report.approximated(path, "", "the host may take texts as one string only: joined")
    return separator.join([part.text for part in parts])


def _is_plain_part(part: Any) -> bool:
    return type(part) is TextPart and part.prompt_cache_breakpoint is UNSET


REASONING_FORM = "openai-chat:reasoning:"
DETAILS_FORM = "openai-chat:reasoning:details"

_REASONING_MODELS = re.compile(r"deepseek|kimi|moonshot|mimo|glm-|qwen|qwq|minimax", re.IGNORECASE)

_decode_details = msgspec.json.Decoder(list[dict[str, Any]]).decode

# ---- decode


def decode_reasoning(shape: MessageShape, parts: list[Part], extras: dict[str, Raw]) -> None:
    """One part, whichever field has it. What else says the same stays as it is, beside it."""
    for name in ("reasoning_content", "reasoning"):
        text = getattr(shape, name)
        if isinstance(text, str):
            if parts:
                extras[name] = Raw(msgspec.json.encode(text))
                continue
            content = (ReasoningText(kind="full", text=text, at=""),) if text else ()
            parts.append(Reasoning(content=content, at=f"/{name}", wire_form=(REASONING_FORM + name,)))
    if not parts and shape.unknown is not UNSET and (details := shape.unknown.get("reasoning_details")) is not None:
        texts = details_text(details)
        if texts:
            told = tuple(ReasoningText(kind="full", text=text, at="") for text in texts)
            parts.append(Reasoning(content=told, at="/reasoning_details/0", wire_form=(DETAILS_FORM,)))


def details_text(raw: Raw) -> list[str]:
    """What can be read in OpenRouter's `reasoning_details`."""
    try:
        details = _decode_details(raw)
    except msgspec.DecodeError:
        return []
    texts = [one.get("text") or one.get("summary") for one in details]
    return [text for text in texts if isinstance(text, str) and text]


# ---- encode


def requires_reasoning(plan: EncodingPlan) -> bool:
    """Whether the model refuses its own calls without the reasoning that led to them."""
    target = plan.target
    return target.model is not None and target.host.reasoning_content and _model_requires_reasoning(target.model)


@lru_cache(maxsize=256)
def _model_requires_reasoning(model: str) -> bool:
    return _REASONING_MODELS.search(model) is not None


def encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan, body: dict[str, Any]) -> None:
    texts = [block.text for block in part.content if isinstance(block, ReasoningText)]
    if plan.same_protocol:
        if DETAILS_FORM not in part.wire_form:
            name = next(
                (token.removeprefix(REASONING_FORM) for token in part.wire_form if token.startswith(REASONING_FORM)),
                None,
            )
            body[name or "reasoning_content"] = "".join(texts)
        return
    if not plan.for_client and not requires_reasoning(plan):
        plan.report.dropped(located_part.path, "", "the target has no place for reasoning")
        return
    report_reasoning(part, located_part, plan)
    if texts:
        before = [body["reasoning_content"]] if "reasoning_content" in body else []
        body["reasoning_content"] = "\n\n".join([*before, *texts])


def report_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """What of a reasoning that is shown can't be shown."""
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            plan.report.dropped((*located_part.path, "content", index), "", "the target shows text only")
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "the target has no place for another issuer's proof")
    if part.id is not None:
        plan.report.dropped(located_part.path, "id")


STRING = "openai-chat:string"
PART = "openai-chat:part"
FILE = "openai-chat:file"
VIDEO = "openai-chat:video"
BARE_FORM = "openai-chat:bare"
THINKING_FORM = "openai-chat:reasoning:thinking"

AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}
CACHE_TTLS = ("30m", "12h")

_SOURCE_IN_FILE = "openai-chat:name:source=file"

MediaKind = Literal["image", "audio", "video", "document"]
_MEDIA_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


def collect_chat_extras(wire: WireObject, *wire_form: str, prefix: str = "") -> dict[str, Any]:
    """`rest`, where a null is spelling also in fields that this protocol does not know: servers send many."""
    own, wire_form = chat_extras_and_form(wire, wire_form, prefix)
    if own:
        return {"extras": {FAMILY: own}, "wire_form": wire_form}
    return {"wire_form": wire_form} if wire_form else EMPTY


def chat_extras_and_form(
    wire: WireObject, wire_form: tuple[str, ...] = (), prefix: str = ""
) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """The same as `left` gives it."""
    own, wire_form = extras_and_wire_form(wire, FAMILY, wire_form, prefix)
    if wire.unknown is UNSET or b"null" not in (values := [bytes(value) for value in own.values()]):
        return own, wire_form
    nulls = [name for name, value in zip(own, values, strict=True) if value == b"null"]
    others = {name: value for name, value in own.items() if name not in nulls}
    return others, (*wire_form, *[f"{FAMILY}:null:{name}" for name in nulls])


def constant_extras(name: str, value: str | UnsetType | None, default: str) -> dict[str, Any]:
    """What is kept of a word that is always the same, where there is none, or one that we don't know."""
    if value == default or value is None:
        return EMPTY
    if value is UNSET:
        return {"wire_form": (f"{FAMILY}:absent:{name}",)}
    return {"extras": {FAMILY: {name: Raw(msgspec.json.encode(value))}}}


def restore_constant(node: Node, name: str, default: str) -> str | UnsetType:
    """The word, unless what was kept says otherwise."""
    if f"{FAMILY}:absent:{name}" in node.wire_form or f"{FAMILY}:null:{name}" in node.wire_form:
        return UNSET
    return UNSET if node.extras and name in node.extras.get(FAMILY, {}) else default


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
    return Text(text=part.text, cache=decode_cache(part.prompt_cache_breakpoint), **collect_chat_extras(part))


def decode_cache(shape: BreakpointShape | UnsetType) -> CacheMark | None:
    if shape is UNSET:
        return None
    return CacheMark(
        ttl=unset_to_none(shape.ttl),
        **merge_extras(collect_chat_extras(shape), constant_extras("mode", shape.mode, "explicit")),
    )


def _decode_image(part: ImagePart) -> Media:
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
    video = part.video_url
    source, media_type = source_from_url(video if isinstance(video, str) else video.url)
    bare = (BARE_FORM,) if isinstance(video, str) else ()
    inner = {} if isinstance(video, str) else collect_chat_extras(video, prefix="video_url/")
    cache = decode_cache(part.prompt_cache_breakpoint)
    rest = merge_extras(collect_chat_extras(part, VIDEO, f"{FAMILY}:name:source=video_url", *bare), inner)
    return Media(kind="video", source=source, media_type=media_type, cache=cache, **rest)


def _decode_audio(part: AudioPart) -> Media:
    audio = part.input_audio
    names = (f"{FAMILY}:name:source=input_audio", f"{FAMILY}:name:media_type=input_audio/format")
    return Media(
        kind="audio",
        source=Inline(data=audio.data),
        media_type=None if audio.format is UNSET else f"audio/{audio.format}",
        cache=decode_cache(part.prompt_cache_breakpoint),
        **merge_extras(collect_chat_extras(part, *names), collect_chat_extras(audio, prefix="input_audio/")),
    )


def _decode_file(part: FilePart) -> Media | OpaquePart:
    file = part.file
    source: Source
    media_type: str | None = None
    form: tuple[str, ...] = (FILE, _SOURCE_IN_FILE)
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
        form = (FILE, BARE_FORM, _SOURCE_IN_FILE)
    both = file.file_id is not UNSET and file.file_data is not UNSET
    data = {"extras": {FAMILY: {"file/file_data": Raw(msgspec.json.encode(file.file_data))}}} if both else {}
    return Media(
        kind=_MEDIA_KINDS.get((media_type or "").partition("/")[0], "document"),
        source=source,
        media_type=media_type,
        name=unset_to_none(file.filename),
        cache=decode_cache(part.prompt_cache_breakpoint),
        **merge_extras(collect_chat_extras(part, *form), collect_chat_extras(file, prefix="file/"), data),
    )


def _extras_holder(part: FilePart) -> Text:
    """Something to hold what a part kept, so that it can be written again at once."""
    return Text(text="", **merge_extras(collect_chat_extras(part), collect_chat_extras(part.file, prefix="file/")))


def _decode_refusal(part: RefusalPart) -> Refusal:
    return Refusal(text=part.refusal, **collect_chat_extras(part, PART))


def _decode_thinking(part: ThinkingPart) -> Reasoning | OpaquePart:
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
    return part.body if isinstance(part, UnknownVariant) else part


def _decode_unknown(other: UnknownVariant) -> OpaquePart:
    return OpaquePart(protocol=FAMILY, kind=other.tag, body=other.body)


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
    found = []
    for placed in located_parts:
        if isinstance(placed.part, Media) and isinstance(placed.part.source, Nested):
            found += encode_parts(expand_nested_document(placed, placed.part, placed.part.source, plan.report), plan)
            continue
        part = _ENCODERS[type(placed.part)](placed.part, placed, plan)
        if part is not None:
            found.append(part)
    return found


def _encode_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    report_text(part, located_part, plan)
    shape = TextPart(text=part.text, prompt_cache_breakpoint=encode_cache(part.cache, located_part, plan))
    return encode_with_extras(shape, part, FAMILY)


def report_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """What a text part has no place for."""
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "a seal goes only to its issuer")
    if part.id is not None and not plan.same_protocol:
        plan.report.dropped(located_part.path, "id")
    if part.annotations and not plan.for_client and not plan.same_protocol:
        for index in range(len(part.annotations)):
            plan.report.dropped((*located_part.path, "annotations", index), "", "a request has no place for citations")


def encode_cache(cache: CacheMark | None, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    if cache is None or (plan.same_protocol and cache.at is not None):
        return UNSET  # OpenRouter's stands in a field of its own, which is written back whole
    ttl = cache.ttl
    if not plan.same_protocol and not plan.target.host.cache_marks:
        plan.report.dropped((*located_part.path, "cache"), "", "the host may not take cache marks")
        return UNSET
    if not plan.same_protocol and ttl is not None and ttl not in CACHE_TTLS:
        why = f"the target can't keep a prefix for {ttl}: it chooses how long"
        plan.report.approximated((*located_part.path, "cache"), "ttl", why)
        ttl = None
    shape = BreakpointShape(mode=restore_constant(cache, "mode", "explicit"), ttl=none_to_unset(ttl))
    return encode_with_extras(shape, cache, FAMILY)


def _encode_media(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    shape = _encode_media_part(part, located_part, plan)
    if shape is None:
        return None
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "a seal goes only to its issuer")
    if part.detail is not None and not isinstance(shape, ImagePart):
        plan.report.dropped(located_part.path, "detail")
    if part.name is not None and not isinstance(shape, FilePart | TextPart):
        plan.report.dropped(located_part.path, "name")
    if part.media_type is not None and isinstance(part.source, Url) and not plan.same_protocol:
        plan.report.dropped(located_part.path, "media_type", "the target asks the address for it")
    shape.prompt_cache_breakpoint = encode_cache(part.cache, located_part, plan)
    return encode_with_extras(shape, part, FAMILY)


def _encode_media_part(
    part: Media, located_part: LocatedPart, plan: EncodingPlan
) -> ImagePart | VideoPart | AudioPart | FilePart | TextPart | None:
    """The part that shows it; None, reported, if this protocol has none."""
    match part.source:
        case Inline() | Url() as source if VIDEO in part.wire_form:
            url = source.url if isinstance(source, Url) else data_url(source.data, part.media_type)
            return VideoPart(video_url=url if BARE_FORM in part.wire_form else VideoShape(url=url))
        case Inline() as source if part.kind == "image" and FILE not in part.wire_form:
            return _encode_image(part, data_url(source.data, part.media_type), located_part, plan)
        case Url() as source if part.kind == "image" and FILE not in part.wire_form:
            return _encode_image(part, source.url, located_part, plan)
        case Inline() as source if part.kind == "audio" and FILE not in part.wire_form:
            if plan.same_protocol:
                named = UNSET if part.media_type is None else part.media_type.removeprefix("audio/")
                return AudioPart(input_audio=AudioShape(data=source.data, format=named))
            if part.media_type in AUDIO_FORMATS:
                return AudioPart(input_audio=AudioShape(data=source.data, format=AUDIO_FORMATS[part.media_type]))
        case Inline() as source if part.kind == "document" or FILE in part.wire_form:
            return _encode_file(part, source, located_part, plan)
        case Url() as source if FILE in part.wire_form:
            return FilePart(file=FileShape(file_data=source.url, filename=none_to_unset(part.name)))
        case FileId() as source if source.issuer == SHARED_FAMILY and (part.kind == "document" or plan.same_protocol):
            return FilePart(file=FileShape(file_id=source.id, filename=none_to_unset(part.name)))
        case FileId() as source:
            plan.report.dropped(located_part.path, "", f"a file that only {source.issuer} holds")
            return None
        case _ if part.kind == "document":
            return _encode_document_text(part, located_part, plan)
        case _:
            pass
    plan.report.dropped(located_part.path, "", f"the target takes no {part.media_type or part.kind} here")
    return None


def _encode_image(part: Media, url: str, located_part: LocatedPart, plan: EncodingPlan) -> ImagePart:
    if BARE_FORM in part.wire_form and part.detail is None:
        return ImagePart(image_url=url)
    detail = part.detail if plan.same_protocol else encode_detail(part, plan.report, located_part.path)
    return ImagePart(image_url=ImageShape(url=url, detail=none_to_unset(detail)))


def _encode_file(part: Media, source: Inline, located_part: LocatedPart, plan: EncodingPlan) -> FilePart:
    name = part.name
    if name is None and not plan.same_protocol:
        name = "document." + ((part.media_type or "").rpartition("/")[2] or "bin")
        plan.report.added(located_part.path, "", UNLOCATED + name, "the target wants a file name")
    data = source.data if BARE_FORM in part.wire_form else data_url(source.data, part.media_type)
    return FilePart(file=FileShape(file_data=data, filename=none_to_unset(name)))


def _encode_document_text(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> TextPart:
    """A document that is text already, or only an address, told as text."""
    plan.report.approximated(located_part.path, "source", "the target takes no such document: told as text")
    match part.source:
        case PlainText() as source:
            said = source.text
        case Url() as source:
            said = f"[document at {source.url}]"
        case _:
            said = "[document]"
    return TextPart(text=f"{part.name}\n{said}" if part.name else said)


def _encode_data(part: Data, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    return TextPart(text=bytes(part.json).decode())


def _encode_refusal(part: Refusal, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    return encode_with_extras(RefusalPart(refusal=part.text), part, FAMILY)


def _encode_thinking_part(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Only Mistral's reasoning stands in the content."""
    if THINKING_FORM not in part.wire_form:
        plan.report.dropped(located_part.path, "", "reasoning has no place here")
        return None
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    if STRING in part.wire_form:
        return encode_with_extras(ThinkingPart(thinking="".join(block.text for block in texts)), part, FAMILY)
    inner = [encode_with_extras(TextPart(text=block.text), block, FAMILY) for block in texts]
    return encode_with_extras(ThinkingPart(thinking=inner), part, FAMILY)


def _encode_tool_reference(part: ToolRef, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    plan.report.approximated(located_part.path, "", "the target can't point at tools: the name is told as text")
    return TextPart(text=f"[tool {plan.tool_name(part.name, part.namespace)}]")


def _encode_change(part: ToolChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    report_tool_change(part, located_part.path, plan.report)


def _encode_setting(part: SettingChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    report_setting_change(part, located_part.path, plan)


def _encode_item_reference(part: ItemRef, located_part: LocatedPart, plan: EncodingPlan) -> None:
    plan.report.dropped(located_part.path, "id", "what another protocol stored can't be named here")


def _encode_opaque(part: OpaquePart, located_part: LocatedPart, plan: EncodingPlan) -> Any:
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
    ToolChange: _encode_change,
    SettingChange: _encode_setting,
    ItemRef: _encode_item_reference,
    OpaquePart: _encode_opaque,
}

EMPTY_ANNOTATIONS = "openai-chat:annotations:empty"
NO_URL_CITATION = "openai-chat:absent:url_citation"
TEXT_AS_CONTENT = "openai-chat:name:text=content"

_read_citation = Reader[CitationShape](CitationShape, FAMILY).read


def decode_citation(raw: Raw, at: str | None = None) -> Citation:
    shape = _read_citation(raw)
    kind = constant_extras("type", shape.type, "url_citation")
    if shape.url_citation is UNSET:
        return Citation(at=at, **merge_extras(collect_chat_extras(shape), kind, {"wire_form": (NO_URL_CITATION,)}))
    cited = shape.url_citation
    return Citation(
        url=unset_to_none(cited.url),
        title=unset_to_none(cited.title),
        quote=unset_to_none(cited.content),
        start=unset_to_none(cited.start_index),
        end=unset_to_none(cited.end_index),
        at=at,
        **merge_extras(collect_chat_extras(shape), kind, collect_chat_extras(cited, prefix="url_citation/")),
    )


def decode_annotations(annotations: list[Raw], parts: list[Part], extras: dict[str, Raw]) -> tuple[str, ...]:
    if not annotations:
        return (EMPTY_ANNOTATIONS,)
    text = parts[-1] if parts else None
    if isinstance(text, Text) and text.at == "/content":
        cited = tuple(map(decode_citation, annotations))
        parts[-1] = Text(text=text.text, annotations=cited, wire_form=(TEXT_AS_CONTENT,), at="")
    else:
        extras["annotations"] = Raw(msgspec.json.encode(annotations))
    return ()


def encode_citation(citation: Citation) -> Any:
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
    notes = [note for part in message.parts if isinstance(part, Text) for note in part.annotations or ()]
    if notes or EMPTY_ANNOTATIONS in message.wire_form:
        body["annotations"] = [encode_citation(note) for note in notes]


def encode_foreign_citations(turn: Turn, plan: EncodingPlan, body: dict[str, Any]) -> None:
    """Citations of another protocol stand on one text of several: here they count characters of all of it."""
    offset = 0
    notes: list[Any] = []
    for placed in turn.parts:
        part = placed.part
        if not isinstance(part, Text):
            continue
        for index, note in enumerate(part.annotations or ()):
            trail = (*placed.path, "annotations", index)
            if (cited := encode_foreign_citation(note, trail, plan, offset, offset + len(part.text))) is not None:
                notes.append(cited)
        offset += len(part.text)
    if notes:
        body["annotations"] = notes


def encode_foreign_citation(citation: Citation, path: SourcePath, plan: EncodingPlan, start: int, end: int) -> Any:
    """A citation of the text between two places; None, reported, if it cites no page."""
    if citation.url is None:
        plan.report.dropped(path, "", "the target cites pages only")
        return None
    if citation.quote is not None:
        plan.report.dropped(path, "quote")
    if citation.start is not None and citation.end is not None:
        start, end = start + citation.start, start + citation.end
    title = citation.title or ""
    found = {"url": citation.url, "title": title, "start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": found}
