"""Content parts and reasoning items of the Responses API to canonical parts and back."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import (
    Citation,
    Data,
    FileId,
    Inline,
    Media,
    Message,
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
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.events import PartDelta
from toolwire.canonical.tools import CacheMark, ToolRef
from toolwire.codec.encoding.fallbacks import opaque_as_text, report_flattened_document
from toolwire.codec.encoding.media import data_url, source_from_url
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import UNLOCATED, SourcePath
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader, UnknownVariant, decode_json, decode_members
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
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
    ReasoningItem,
    ReasoningTextShape,
    RefusalPart,
)
from toolwire.protocols.vendors.openai import encode_detail

STRING = "openai-responses:string"
INPUT_FORM = "openai-responses:input_text"
OUTPUT_FORM = "openai-responses:output_text"
_NO_SOURCE = "openai-responses:no_source"
_BARE_FORM = "openai-responses:bare"
_SOURCE_NAME = "openai-responses:name:source="
_FILENAME = "openai-responses:name:title=filename"
_TYPE_FORM = "openai-responses:type:"
_CITATIONS = ("file_citation", "container_file_citation", "file_path")
_NO_TYPE = "openai-responses:absent:type"

_EMPTY_LIST = Raw(b"[]")
CACHE_TTLS = ("30m", "12h")

_read_annotation = Reader[AnnotationShape](AnnotationShape, FAMILY).read

# ---- decode


def decode_content(blocks: list[Any], path: str, *, is_output: bool) -> tuple[Part, ...]:
    """Decode a list of content parts; `is_output`: the model wrote it, so that its texts are `output_text`."""
    parts: list[Part] = []
    try:
        for block in blocks:
            part = _DECODERS[type(block)](block, is_output=is_output)
            parts.append(part)
    except DecodeError as error:
        raise DecodeError(error.protocol, f"{path}/{len(parts)}{error.path}", error.expected, error.got) from None
    return tuple(parts)


def _decode_input_text(block: InputText, *, is_output: bool) -> Text:
    """Decode input text with its cache breakpoint."""
    form = (INPUT_FORM,) if is_output else ()
    if block.prompt_cache_breakpoint is UNSET and block.unknown is UNSET and block.nulls is UNSET:
        return Text(text=block.text, wire_form=form)
    return Text(
        text=block.text, cache=_decode_cache(block.prompt_cache_breakpoint), **collect_extras(block, FAMILY, *form)
    )


def _decode_output_text(block: OutputText, *, is_output: bool) -> Text:
    """Decode output text with its annotations."""
    annotations = None
    if block.annotations is not UNSET:
        annotations = tuple([decode_annotation(raw, f"/annotations/{i}") for i, raw in enumerate(block.annotations)])
    form = () if is_output else (OUTPUT_FORM,)
    if block.logprobs == _EMPTY_LIST:
        form = (*form, f"{FAMILY}:canonical:logprobs")  # empty: none were requested
    return Text(text=block.text, annotations=annotations, **collect_extras(block, FAMILY, *form))


def decode_annotation(raw: Raw, path: str = "") -> Citation:
    """Decode an annotation to a citation."""
    shape = _read_annotation(raw, path)
    extras_and_form = collect_extras(shape, FAMILY)
    form = extras_and_form.get("wire_form", ())
    if shape.type in _CITATIONS:
        form = (*form, _TYPE_FORM + str(shape.type))
    elif shape.type != "url_citation":
        form = (*form, _NO_TYPE)
        extras_and_form = add_extras(extras_and_form, type=shape.type)
    title = unset_to_none(shape.title)
    if title is None and shape.filename is not UNSET:
        title, form = shape.filename, (*form, _FILENAME)
    return Citation(
        url=unset_to_none(shape.url),
        title=title,
        start=unset_to_none(shape.start_index),
        end=unset_to_none(shape.end_index),
        **{**extras_and_form, "wire_form": form},
    )


def _decode_cache(shape: BreakpointShape | UnsetType) -> CacheMark | None:
    """Decode a prompt cache breakpoint."""
    if shape is UNSET:
        return None
    extras_and_form = (
        collect_extras(shape, FAMILY)
        if shape.mode == "explicit"
        else add_extras(collect_extras(shape, FAMILY), mode=shape.mode)
    )
    return CacheMark(ttl=unset_to_none(shape.ttl), **extras_and_form)


def _decode_image(block: InputImage, *, is_output: bool) -> Media:
    """Decode an image by URL, data URL or file id."""
    extras_and_form = collect_extras(block, FAMILY)
    source: Source
    media_type = None
    if block.image_url:
        source, media_type = source_from_url(block.image_url)
        extras_and_form = add_extras(extras_and_form, file_id=block.file_id)
    elif block.file_id:
        source = FileId(issuer=ISSUER, id=block.file_id)
        extras_and_form = _with_source_name(add_extras(extras_and_form, image_url=block.image_url), "file_id")
    else:
        source = Url(url="", wire_form=(_NO_SOURCE,))
        extras_and_form = add_extras(extras_and_form, image_url=block.image_url, file_id=block.file_id)
    return Media(
        kind="image",
        source=source,
        media_type=media_type,
        detail=unset_to_none(block.detail),
        cache=_decode_cache(block.prompt_cache_breakpoint),
        **extras_and_form,
    )


def _decode_file(block: InputFile, *, is_output: bool) -> Media:
    """Decode a file by data, URL or file id."""
    extras_and_form = collect_extras(block, FAMILY)
    source: Source
    media_type = None
    if block.file_data:
        source, media_type = source_from_url(block.file_data)
        if isinstance(source, Url):
            source = Inline(data=block.file_data, wire_form=(_BARE_FORM,))
        extras_and_form = _with_source_name(
            add_extras(extras_and_form, file_url=block.file_url, file_id=block.file_id), "file_data"
        )
    elif block.file_url:
        source = Url(url=block.file_url)
        extras_and_form = _with_source_name(
            add_extras(extras_and_form, file_data=block.file_data, file_id=block.file_id), "file_url"
        )
    elif block.file_id:
        source = FileId(issuer=ISSUER, id=block.file_id)
        extras_and_form = _with_source_name(
            add_extras(extras_and_form, file_data=block.file_data, file_url=block.file_url), "file_id"
        )
    else:
        source = Url(url="", wire_form=(_NO_SOURCE,))
        extras_and_form = add_extras(
            extras_and_form, file_data=block.file_data, file_url=block.file_url, file_id=block.file_id
        )
    return Media(
        kind="document",
        source=source,
        media_type=media_type,
        name=unset_to_none(block.filename),
        detail=unset_to_none(block.detail),
        cache=_decode_cache(block.prompt_cache_breakpoint),
        **extras_and_form,
    )


def add_extras(extras_and_form: dict[str, Any], **fields: str | UnsetType | None) -> dict[str, Any]:
    """Return the arguments with fields added to `extras` that have no meaning here, such as a second source."""
    added = {name: Raw(msgspec.json.encode(value)) for name, value in fields.items() if isinstance(value, str)}
    if not added:
        return extras_and_form
    extras = {**extras_and_form.get("extras", {}).get(FAMILY, {}), **added}
    return {**extras_and_form, "extras": {FAMILY: extras}}


def _with_source_name(extras_and_form: dict[str, Any], field: str) -> dict[str, Any]:
    """Return the arguments with a wire-form token that records which field holds the source of media."""
    return {
        **extras_and_form,
        "wire_form": (
            *extras_and_form.get("wire_form", ()),
            _SOURCE_NAME + field,
            "openai-responses:name:media_type=" + field,
        ),
    }


def _decode_audio(block: InputAudio, *, is_output: bool) -> Media:
    """Decode audio."""
    audio = block.input_audio
    source = Inline(data=audio.data, at="/input_audio", **collect_extras(audio, FAMILY))
    names = (_SOURCE_NAME + "input_audio/data", "openai-responses:name:media_type=input_audio/format")
    return Media(
        kind="audio", source=source, media_type=f"audio/{audio.format}", **collect_extras(block, FAMILY, *names)
    )


def _decode_refusal(block: RefusalPart, *, is_output: bool) -> Refusal:
    """Decode a refusal."""
    return Refusal(text=block.refusal, **collect_extras(block, FAMILY))


def _decode_unknown(variant: UnknownVariant, *, is_output: bool) -> OpaquePart:
    """Decode a part of unknown type as an opaque part, with its text if it has one."""
    try:
        text = decode_json(decode_members(variant.body).get("text", b"null"))
    except msgspec.DecodeError:
        text = None
    return OpaquePart(
        protocol=FAMILY, kind=variant.tag, body=variant.body, gist=text if isinstance(text, str) and text else None
    )


_DECODERS: dict[type, Any] = {
    InputText: _decode_input_text,
    OutputText: _decode_output_text,
    InputImage: _decode_image,
    InputFile: _decode_file,
    InputAudio: _decode_audio,
    RefusalPart: _decode_refusal,
    UnknownVariant: _decode_unknown,
}

# ---- encode


def encode_content(located_parts: list[LocatedPart], plan: ItemPlan, *, is_output: bool) -> list[Any]:
    """Encode parts as content; `is_output`: the model wrote them, so that texts become `output_text`."""
    blocks: list[Any] = []
    for located_part in located_parts:
        part, path = located_part.part, located_part.path
        match part:
            case Text():
                block = encode_text(part, path, plan, is_output=is_output)
            case Media(source=Nested() as nested) if not plan.same_protocol:
                inner = [LocatedPart(child, (*path, "source", "parts", i)) for i, child in enumerate(nested.parts)]
                report_flattened_document(part, path, plan)
                blocks += encode_content(inner, plan, is_output=is_output)
                continue
            case Media():
                block = _encode_media(part, path, plan, is_output=is_output)
            case Refusal():
                block = _encode_refusal(part, path, plan, is_output=is_output)
            case Data():
                block = _encode_plain_text(str(part.json, "utf-8"), is_output=is_output)
            case ToolRef():
                plan.report.approximated(path, "name", "the target has no tool references; name sent as text")
                block = _encode_plain_text(f"[tool {part.name}]", is_output=is_output)
            case OpaquePart():
                block = _encode_opaque(part, path, plan, is_output=is_output)
            case _:
                plan.report.dropped(path, "", "the target does not accept this content here")
                block = None
        if block is not None:
            blocks.append(block)
    return blocks


def _encode_plain_text(text: str, *, is_output: bool) -> Any:
    """Encode a text without optional fields as input or output text."""
    return OutputText(text=text, annotations=[]) if is_output else InputText(text=text)


def encode_text(part: Text, path: SourcePath, plan: ItemPlan, *, is_output: bool) -> Any:
    """Encode a text: `input_text`, or `output_text` with annotations if the model wrote it (`is_output`)."""
    if plan.same_protocol:
        return _encode_same_protocol_text(part, path, plan, is_output=is_output)
    if part.signature is not None:
        plan.report.dropped((*path, "signature"), "", "signatures are only valid for their issuer")
    if not is_output:
        for index in range(len(part.annotations or ())):
            reason = "the target does not accept citations in user messages"
            plan.report.dropped((*path, "annotations", index), "", reason)
        return InputText(text=part.text, prompt_cache_breakpoint=encode_cache(part.cache, path, plan))
    if part.cache is not None:
        plan.report.dropped((*path, "cache"), "", "the target has no cache marks on assistant text")
    annotations = _encode_foreign_annotations(part, path, plan) if part.annotations else []
    return OutputText(text=part.text, annotations=annotations, logprobs=part_logprobs(part))


def _encode_same_protocol_text(part: Text, path: SourcePath, plan: ItemPlan, *, is_output: bool) -> Any:
    """Encode a text that came from this API, as input or output text like the source."""
    if part.wire_form:
        is_output = (is_output and INPUT_FORM not in part.wire_form) or OUTPUT_FORM in part.wire_form
    if is_output:
        annotations = (
            UNSET if part.annotations is None else [encode_annotation(citation) for citation in part.annotations]
        )
        return encode_with_extras(OutputText(text=part.text, annotations=annotations), part, FAMILY)
    shape = InputText(text=part.text, prompt_cache_breakpoint=encode_cache(part.cache, path, plan))
    return encode_with_extras(shape, part, FAMILY)


def _encode_foreign_annotations(part: Text, path: SourcePath, plan: ItemPlan) -> list[Any]:
    """Encode the citations of another protocol's text as annotations.

    Citations without URL, and in requests all, are reported as losses.
    """
    annotations = []
    for index, citation in enumerate(part.annotations or ()):
        citation_path = (*path, "annotations", index)
        if citation.url is None or not plan.for_client:
            plan.report.dropped(citation_path, "", "the target supports citations by URL only, in responses")
        else:
            if citation.quote is not None:
                plan.report.dropped(citation_path, "quote")
            annotations.append(encode_annotation(citation, part.text))
    return annotations


def part_logprobs(part: Text | PartDelta) -> Raw | UnsetType:
    """Return the log probabilities of a text or delta; UNSET without any."""
    return (part.extras or {}).get(FAMILY, {}).get("logprobs", UNSET)


def encode_annotation(citation: Citation, text: str | None = None) -> Any:
    """Encode a citation.

    `text` is the cited text if the citation comes from another protocol: the API requires its bounds.
    """
    kind = next(
        (token[len(_TYPE_FORM) :] for token in citation.wire_form if token.startswith(_TYPE_FORM)), "url_citation"
    )
    shape = AnnotationShape(type=UNSET if _NO_TYPE in citation.wire_form else kind, url=none_to_unset(citation.url))
    setattr(shape, "filename" if _FILENAME in citation.wire_form else "title", none_to_unset(citation.title))
    shape.start_index, shape.end_index = none_to_unset(citation.start), none_to_unset(citation.end)
    if text is not None:
        shape.title = citation.title or ""
        shape.start_index, shape.end_index = citation.start or 0, len(text) if citation.end is None else citation.end
    return encode_with_extras(shape, citation, FAMILY)


def encode_cache(cache: CacheMark | None, path: SourcePath, plan: ItemPlan) -> Any:
    """Encode a cache mark as a prompt cache breakpoint; UNSET without one, or if it cannot be sent."""
    if cache is None or not plan.accepts_cache_mark(path):
        return UNSET
    mode = msgspec.json.decode((cache.extras or {}).get(FAMILY, {}).get("mode", b'"explicit"'), type=str)
    ttl = none_to_unset(cache.ttl)
    if not plan.same_protocol and ttl is not UNSET and ttl not in CACHE_TTLS:
        plan.report.approximated((*path, "cache"), "ttl", f"the target caches for {' or '.join(CACHE_TTLS)} only")
        ttl = CACHE_TTLS[0]
    return encode_with_extras(BreakpointShape(mode=mode, ttl=ttl), cache, FAMILY)


def _encode_media(part: Media, path: SourcePath, plan: ItemPlan, *, is_output: bool) -> Any:
    """Encode an image, document or audio; report it and return None if the target does not accept it."""
    if is_output and not plan.same_protocol:
        plan.report.dropped(path, "", "the target does not accept media in assistant messages")
        return None
    if part.signature is not None:
        plan.report.dropped((*path, "signature"), "", "signatures are only valid for their issuer")
    match part.kind:
        case "image":
            return _encode_image(part, path, plan)
        case "document":
            return _encode_file(part, path, plan)
        case "audio" if plan.same_protocol and isinstance(part.source, Inline) and part.media_type is not None:
            shape = AudioShape(data=part.source.data, format=part.media_type.removeprefix("audio/"))
            return encode_with_extras(
                InputAudio(input_audio=encode_with_extras(shape, part.source, FAMILY)), part, FAMILY
            )
        case _:
            plan.report.dropped(path, "", f"the target does not accept {part.kind}")
            return None


def _encode_image(part: Media, path: SourcePath, plan: ItemPlan) -> Any:
    """Encode an image."""
    shape = InputImage(detail=none_to_unset(part.detail), prompt_cache_breakpoint=encode_cache(part.cache, path, plan))
    source = part.source
    match source:
        case Inline():
            shape.image_url = data_url(source.data, part.media_type)
        case Url():
            shape.image_url = source.url if _NO_SOURCE not in source.wire_form else UNSET
            if part.media_type is not None:
                plan.report.dropped(path, "media_type")
        case FileId() if source.issuer == ISSUER:
            shape.file_id = source.id
        case _:
            return _report_missing_source(source, path, plan)
    if not plan.same_protocol:
        if part.name is not None:
            plan.report.dropped(path, "name")
        shape.detail = encode_detail(part, plan.report, path) or "auto"
    return encode_with_extras(shape, part, FAMILY)


def _encode_file(part: Media, path: SourcePath, plan: ItemPlan) -> Any:
    """Encode a document; one that is plain text becomes a text part."""
    cache = encode_cache(part.cache, path, plan)
    shape = InputFile(
        filename=none_to_unset(part.name), detail=none_to_unset(part.detail), prompt_cache_breakpoint=cache
    )
    source = part.source
    match source:
        case Inline():
            shape.file_data = source.data if _BARE_FORM in source.wire_form else data_url(source.data, part.media_type)
            if not plan.same_protocol and part.name is None:
                shape.filename = "document." + (part.media_type or "application/octet-stream").rpartition("/")[2]
                plan.report.added(
                    path, "", UNLOCATED + shape.filename, "the target requires a file name", severity="info"
                )
        case Url():
            shape.file_url = source.url if _NO_SOURCE not in source.wire_form else UNSET
            if part.media_type is not None:
                plan.report.dropped(path, "media_type")
        case FileId() if source.issuer == ISSUER:
            shape.file_id = source.id
        case PlainText():
            if part.media_type not in (None, "text/plain"):
                plan.report.dropped(path, "media_type", "text document sent as text")
            if part.name is not None:
                plan.report.dropped(path, "name", "text document sent as text")
            return InputText(text=source.text, prompt_cache_breakpoint=cache)
        case _:
            return _report_missing_source(source, path, plan)
    return encode_with_extras(shape, part, FAMILY)


def _report_missing_source(source: Source, path: SourcePath, plan: ItemPlan) -> None:
    """Report as a loss media whose source the target cannot read."""
    if isinstance(source, FileId):
        plan.report.dropped(path, "", f"file is stored by {source.issuer} only")
    else:
        plan.report.dropped(path, "", "the target does not accept this media source")


def _encode_refusal(part: Refusal, path: SourcePath, plan: ItemPlan, *, is_output: bool) -> Any:
    """Encode a refusal; in messages of the user it becomes text."""
    if is_output or plan.same_protocol:
        return encode_with_extras(RefusalPart(refusal=part.text), part, FAMILY)
    plan.report.approximated(path, "", "refusal sent as text")
    return InputText(text=part.text)


def _encode_opaque(part: OpaquePart, path: SourcePath, plan: ItemPlan, *, is_output: bool) -> Any:
    """Encode an opaque part: this API's own unchanged, others as text."""
    if part.protocol == FAMILY:
        return part.body
    text = opaque_as_text(part, path, plan)
    return None if text is None else _encode_plain_text(text, is_output=is_output)


_NO_SUMMARY = "openai-responses:absent:summary"
_EMPTY_CONTENT = "openai-responses:empty:content"
_NO_TEXT_TYPE = "openai-responses:absent:type"

# ---- reasoning: decode


def decode_reasoning(shape: ReasoningItem) -> Message:
    """Decode a reasoning item."""
    form: list[str] = []
    if shape.summary is UNSET:
        form.append(_NO_SUMMARY)
    if shape.content is not UNSET and not shape.content:
        form.append(_EMPTY_CONTENT)
    content = [
        *(_decode_reasoning_text(text, "summary", index) for index, text in enumerate(shape.summary or ())),
        *(_decode_reasoning_text(text, "content", index) for index, text in enumerate(shape.content or ())),
    ]
    encrypted = shape.encrypted_content
    reasoning = Reasoning(
        content=tuple(content),
        hidden=None if content else "omitted",
        signature=None
        if encrypted is UNSET
        else Signature(issuer=ISSUER, data=encrypted, kind="encrypted", at="/encrypted_content"),
        at="",
        **collect_extras(shape, FAMILY, *form),
    )
    return Message(role="assistant", parts=(reasoning,), id=unset_to_none(shape.id), status=unset_to_none(shape.status))


def _decode_reasoning_text(shape: ReasoningTextShape, field: str, index: int) -> ReasoningText:
    """Decode a text of a reasoning item; `field` is `summary` or `content`."""
    extras_and_form = collect_extras(shape, FAMILY)
    if shape.type != ("summary_text" if field == "summary" else "reasoning_text"):
        extras_and_form = add_extras(collect_extras(shape, FAMILY, _NO_TEXT_TYPE), type=shape.type)
    kind: Any = "summary" if field == "summary" else "full"
    return ReasoningText(kind=kind, text=shape.text, at=f"/{field}/{index}", **extras_and_form)


# ---- reasoning: encode


def encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    """Encode a reasoning item with the id and status of `message`; None if it cannot be sent."""
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    if not plan.same_protocol:
        if not _is_encodable_reasoning(part, texts, located_part, plan):
            return None
        if not texts and not plan.target.host.reasoning.signatures:
            plan.report.dropped(located_part.path, "", plan.target.host.rejects("reasoning without its text"))
            return None
        message = _foreign_reasoning_header(part, plan)
        # A host that does not sign reasoning reads its text, as `content`.
        kind: Literal["summary", "full"] = "summary" if plan.target.host.reasoning.signatures else "full"
        texts = [ReasoningText(kind=kind, text=block.text) for block in texts]
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            plan.report.dropped((*located_part.path, "content", index), "")
    id = message.id if message.id is not None else part.id
    return _encode_reasoning_item(part, texts, id, message.status)


def _encode_reasoning_item(part: Reasoning, texts: list[ReasoningText], id: str | None, status: str | None) -> Any:
    """Encode a reasoning item from its texts and signature."""
    shape = ReasoningItem(id=none_to_unset(id), status=none_to_unset(status))
    full = [_encode_reasoning_text(block) for block in texts if block.kind == "full"]
    summary = [_encode_reasoning_text(block) for block in texts if block.kind == "summary"]
    shape.summary = UNSET if _NO_SUMMARY in part.wire_form and not summary else summary
    shape.content = full if full or _EMPTY_CONTENT in part.wire_form else UNSET
    if part.signature is not None and part.signature.issuer == ISSUER:
        shape.encrypted_content = part.signature.data
    return encode_with_extras(shape, part, FAMILY)


def _is_encodable_reasoning(
    part: Reasoning, texts: list[ReasoningText], located_part: LocatedPart, plan: ItemPlan
) -> bool:
    """Return whether another protocol's reasoning can be sent; report as losses what cannot.

    The provider accepts only reasoning that it encrypted; clients also accept plain text.
    """
    if _is_signed_by_openai(part):
        return True
    if not plan.for_client:
        plan.report.dropped(located_part.path, "", "the target only accepts reasoning that it signed")
        return False
    plan.report_unsealed_signature(part, located_part.path)
    if part.id is not None:
        plan.report.dropped(located_part.path, "id")
    return bool(texts)


def _foreign_reasoning_header(part: Reasoning, plan: ItemPlan) -> Message:
    """Return a message with id and status for a new reasoning item.

    Content that OpenAI encrypted keeps its id, without which it is not valid.
    """
    header = plan.item_header("rs")
    if part.id is None or not plan.for_client or plan.announced_header is not None or not _is_signed_by_openai(part):
        return header
    return replace(header, id=part.id)


def _is_signed_by_openai(part: Reasoning) -> bool:
    """Return whether the reasoning has content that OpenAI encrypted."""
    return part.signature is not None and part.signature.issuer == ISSUER


def _encode_reasoning_text(block: ReasoningText) -> Any:
    """Encode a text of a reasoning item."""
    kind = "summary_text" if block.kind == "summary" else "reasoning_text"
    return encode_with_extras(
        ReasoningTextShape(text=block.text, type=UNSET if _NO_TEXT_TYPE in block.wire_form else kind), block, FAMILY
    )
