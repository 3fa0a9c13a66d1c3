"""Decode and encode the parts of a content: text, media, thoughts, and the dispatch to calls and results."""

import re
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import UNSET, Raw
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
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
    Url,
)
from toolwire.canonical.tools import ToolRef
from toolwire.codec.encoding.fallbacks import opaque_as_text, report_setting_change
from toolwire.codec.encoding.hosted_tools import parse_json
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import report_tool_change
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import merge_extras, none_to_unset, unset_to_none
from toolwire.protocols.gemini.field_case import FieldCase, encode_shape, with_unknown_fields
from toolwire.protocols.gemini.parts.calls import (
    SIBLING_FORM,
    decode_call,
    decode_result,
    encode_call,
    encode_result,
    is_before_gemini_3,
    sibling_extras,
)
from toolwire.protocols.gemini.parts.hosted_calls import (
    decode_code,
    decode_code_result,
    decode_hosted_call,
    decode_hosted_result,
    encode_hosted_use,
    encode_server_call,
    encode_server_result,
)
from toolwire.protocols.gemini.parts.signatures import MOVED_SIGNATURE, decode_signature
from toolwire.protocols.gemini.wire import FAMILY, ISSUER, BlobShape, FileShape, PartShape
from toolwire.protocols.vendors.google.request import RESOLUTION_PREFIX, RESOLUTIONS

THOUGHT_FALSE = "gemini:thought:false"
_FILE_FORM = "gemini:fileData"
_URL_SAFE_FORM = "gemini:base64url"
_TO_URL_SAFE = str.maketrans("+/", "-_")
_FROM_URL_SAFE = str.maketrans("-_", "+/")
_RESOLUTION_FIELDS = ("mediaResolution", "media_resolution")

# URI prefixes of files that only Google can read: its Files API and Cloud Storage.
_GOOGLE_FILES = ("https://generativelanguage.googleapis.com/", "gs://")
# Videos that Gemini reads by their page; clients send no MIME type with them.
_YOUTUBE_URL = re.compile(r"https?://(?:(?:www|m|music)\.)?(?:youtube\.com|youtu\.be)/", re.IGNORECASE)
_KINDS: dict[str, Any] = {"image": "image", "audio": "audio", "video": "video"}
_MEDIA_TYPES = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "gif": "image/gif",
    "pdf": "application/pdf",
}

_encode_json = msgspec.json.Encoder().encode

# ---- decode


def media_extras(
    kind: str, part: PartShape, field_case: FieldCase, *data_objects: tuple[Any, str], wire_form: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments for a text, media or thought part.

    `data_objects` are the wire objects of its data, each with its pointer in the part.
    """
    extras = field_case.extras_and_form(kind, (part, ""), *data_objects, wire_form=wire_form)
    siblings = sibling_extras(part if part.thought is not True else replace(part, thought=UNSET), field_case)
    return merge_extras(extras, siblings) if siblings else extras


def decode_inline(part: PartShape, field_case: FieldCase) -> Media | Reasoning | None:
    """Decode an `inlineData` part; return None if it has no data."""
    blob = part.inline_data
    if blob is UNSET:
        return None
    field_case.normalize(blob, "inlineData")
    if blob.data is UNSET:
        return None
    media_type = unset_to_none(blob.mime_type)
    source = _decode_bytes(blob.data)
    media = Media(
        kind=_media_kind(media_type), source=source, media_type=media_type, name=unset_to_none(blob.display_name)
    )
    return _build_media(part, field_case, media, (blob, "inlineData"), ())


def _decode_bytes(data: str) -> Inline:
    """Decode base64 in either alphabet.

    Google accepts both, and its Python SDK writes the URL-safe one. Other providers read only the standard alphabet.
    """
    if ("-" in data or "_" in data) and "+" not in data and "/" not in data and len(data) % 4 == 0:
        return Inline(data=data.translate(_FROM_URL_SAFE), wire_form=(_URL_SAFE_FORM,))
    return Inline(data=data)


def decode_file(part: PartShape, field_case: FieldCase) -> Media | Reasoning | None:
    """Decode a `fileData` part; return None if it has no URI."""
    file = part.file_data
    if file is UNSET:
        return None
    field_case.normalize(file, "fileData")
    if file.file_uri is UNSET:
        return None
    is_google_file = file.file_uri.startswith(_GOOGLE_FILES)
    source: Any = FileId(issuer=ISSUER, id=file.file_uri) if is_google_file else Url(url=file.file_uri)
    media_type = unset_to_none(file.mime_type)
    names = {"source": "fileUri", "media_type": "mimeType", "name": "displayName"}
    form = [f"gemini:name:{field}={field_case.source_pointer('fileData/' + wire)}" for field, wire in names.items()]
    media = Media(
        kind="video" if media_type is None and _YOUTUBE_URL.match(file.file_uri) else _media_kind(media_type),
        source=source,
        media_type=media_type,
        name=unset_to_none(file.display_name),
    )
    return _build_media(part, field_case, media, (file, "fileData"), (_FILE_FORM, *form))


def _build_media(
    part: PartShape, field_case: FieldCase, media: Media, data_object: tuple[Any, str], wire_form: tuple[str, ...]
) -> Media | Reasoning:
    """Add signature, extras and wire form to decoded media; a thought is returned as reasoning.

    `data_object` is the wire object of the data, with the name of its field in the part. `wire_form` holds tokens that
    record how the part was spelled.
    """
    if part.thought is not True:
        return _decode_resolution(
            replace(
                media,
                signature=decode_signature(part),
                **media_extras("Media", part, field_case, data_object, wire_form=wire_form),
            )
        )
    thought = replace(media, at="", wire_form=wire_form)
    return Reasoning(
        content=(thought,),
        signature=decode_signature(part),
        **media_extras("Reasoning", part, field_case, data_object, wire_form=wire_form),
    )


def _decode_resolution(media: Media) -> Media:
    """Set `detail` from `mediaResolution` if its level has a canonical name."""
    extras = (media.extras or {}).get(FAMILY, {})
    name = next((field for field in _RESOLUTION_FIELDS if field in extras), None)
    match None if name is None else parse_json(extras[name]):
        case {"level": str(level), **other_fields} if not other_fields:
            detail = level.removeprefix(RESOLUTION_PREFIX).lower()
            if detail in RESOLUTIONS:
                form = (f"{FAMILY}:canonical:{name}", f"{FAMILY}:name:detail={name}/level")
                return replace(media, detail=detail, wire_form=(*media.wire_form, *form))
    return media


def _media_kind(media_type: str | None) -> Any:
    """Return the canonical media kind, such as `image`, for a MIME type."""
    return _KINDS.get((media_type or "").partition("/")[0], "document")


# ---- encode


def encode_bytes(source: Inline) -> str:
    """Return base64 data in the alphabet of its source."""
    return source.data.translate(_TO_URL_SAFE) if _URL_SAFE_FORM in source.wire_form else source.data


def encode_media(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode media as an `inlineData`, `fileData` or text part."""
    shape = _encode_media_part(part, located_part.path, plan)
    if shape is None:
        return []
    if part.signature is not None and part.signature.issuer == ISSUER:
        shape.thought_signature = part.signature.data
    if plan.same_protocol:
        if THOUGHT_FALSE in part.wire_form:
            shape.thought = False
        return [encode_shape(shape, part)]
    if part.signature is not None and part.signature.issuer != ISSUER:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    _encode_detail(part, shape, located_part.path, plan)
    if part.cache is not None:
        plan.report.dropped((*located_part.path, "cache"), "", "the target caches automatically")
    if part.name is not None and shape.text is not UNSET:
        plan.report.dropped(located_part.path, "name")
    return [shape]


def _encode_detail(part: Media, shape: PartShape, path: SourcePath, plan: EncodingPlan) -> None:
    """Set `mediaResolution` of `shape`, or report the loss of `detail`."""
    if part.detail is None:
        return
    if shape.text is not UNSET or part.detail not in RESOLUTIONS:
        plan.report.dropped(path, "detail")
    elif is_before_gemini_3(plan):
        plan.report.dropped(path, "detail", "the model has one resolution for all media")
    else:
        shape.media_resolution = Raw(_encode_json({"level": RESOLUTION_PREFIX + part.detail.upper()}))


def _encode_media_part(part: Media, path: SourcePath, plan: EncodingPlan) -> PartShape | None:
    """Encode the source of media; report it and return None if Google cannot read it."""
    match part.source:
        case Inline() as source:
            return _encode_inline_part(part, source, path, plan)
        case Url() as source if (
            not plan.same_protocol and not plan.for_client and source.url.lower().startswith("http:")
        ):
            # Google fetches https URLs itself. The gateway does not fetch URLs that a client names.
            plan.report.dropped(path, "", "Google fetches https URLs only; send the data inline", constraint=True)
        case Url() as source:
            media_type = part.media_type
            if media_type is None and not plan.same_protocol:
                media_type = _MEDIA_TYPES.get(source.url.partition("?")[0].rpartition(".")[2].lower())
            return _file_part(part, source.url, media_type)
        case FileId() as source if source.issuer == ISSUER:
            return _file_part(part, source.id, part.media_type)
        case FileId() as source:
            plan.report.dropped(path, "", f"file is stored by {source.issuer} only")
        case PlainText() as source:
            plan.report.approximated(path, "", "text document sent as text")
            return PartShape(text=source.text)
        case Nested() as source:
            plan.report.approximated(path, "", "document content sent as text")
            return PartShape(text="\n".join(inner.text for inner in source.parts if isinstance(inner, Text)))
    return None


def _encode_inline_part(part: Media, source: Inline, path: SourcePath, plan: EncodingPlan) -> PartShape:
    """Encode inline data; Gemini requires a MIME type, so one is added where the source has none."""
    media_type = part.media_type
    if media_type is None and not plan.same_protocol:
        media_type = "image/jpeg" if part.kind == "image" else "application/octet-stream"
        plan.report.added(path, "media_type", "", f"the target requires a media type; set to {media_type}")
    blob = BlobShape(
        mime_type=none_to_unset(media_type), data=encode_bytes(source), display_name=none_to_unset(part.name)
    )
    return PartShape(inline_data=blob)


def _file_part(part: Media, uri: str, media_type: str | None) -> PartShape:
    """Build a `fileData` part for a URI."""
    return PartShape(
        file_data=FileShape(file_uri=uri, mime_type=none_to_unset(media_type), display_name=none_to_unset(part.name))
    )


_EMPTY_THOUGHT_FORM = "gemini:text:empty"

# ---- decode


def decode_parts(parts: list[PartShape], path: str) -> tuple[Part, ...]:
    """Decode the parts of one content."""
    decoded_parts: list[Part] = []
    has_results = False
    for index, part in enumerate(parts):
        if type(part.text) is str and part == PartShape(text=part.text):
            decoded_parts.append(Text(text=part.text))
            continue
        decoded = decode_part(part, f"{path}/{index}")
        has_results = has_results or isinstance(decoded, ToolResult)
        decoded_parts.append(decoded)
    return _attach_sibling_media(decoded_parts) if has_results else tuple(decoded_parts)


def decode_part(part: PartShape, path: str) -> Part:
    """Decode one part; return an `OpaquePart` if it has no data field, several, or an unknown one."""
    field_case = FieldCase(path)
    body = None if part.unknown is UNSET else with_unknown_fields(part)
    field_case.normalize(part)
    data_fields = [name for name in _DECODERS if getattr(part, name) is not UNSET]
    decoded: Part | None = _DECODERS[data_fields[0]](part, field_case) if len(data_fields) == 1 else None
    if decoded is not None:
        return decoded
    kind = data_fields[0] if data_fields else next(iter(part.unknown or ()), "part")
    raw = Raw(msgspec.json.encode(with_unknown_fields(part) if body is None else body))
    return OpaquePart(protocol=FAMILY, kind=kind, body=raw)


def _attach_sibling_media(parts: list[Part]) -> tuple[Part, ...]:
    """Move media parts that follow a tool result into it, with pointers for loss reports adjusted."""
    if len(parts) == 1 or not any(
        isinstance(part, ToolResult) and isinstance(following, Media) for part, following in pairwise(parts)
    ):
        return tuple(parts)
    attached: list[Part] = []
    for index, part in enumerate(parts):
        previous = attached[-1] if attached else None
        takes_media = isinstance(previous, ToolResult) and previous.executor == "client" and previous.extras is None
        if isinstance(part, Media) and isinstance(previous, ToolResult) and takes_media:
            media = replace(part, at=f"/parts/{index}", wire_form=(*part.wire_form, SIBLING_FORM))
            if previous.at != "":
                previous = _locate_beside_media(previous, index - 1)
            attached[-1] = replace(previous, content=(*(previous.content or ()), media))
        else:
            attached.append(replace(part, at=f"/parts/{index}"))
    return tuple(attached)


def _locate_beside_media(result: ToolResult, index: int) -> ToolResult:
    """Return the result with pointers for loss reports that also cover the media parts after it.

    The result points to the content, and its fields to the part at `index`.
    """
    location = f"parts/{index}"
    names = {"call_id": "id", "name": "name", "content": "response", "status": "response/error"}
    wire_name = next(
        (token.split("=")[1].split("/")[0] for token in result.wire_form if token.startswith("gemini:name:name=")), None
    )
    base = f"{location}/{wire_name or 'functionResponse'}"
    form = [token for token in result.wire_form if not token.startswith("gemini:name:")]
    form += [f"gemini:name:{field}={base}/{wire}" for field, wire in names.items()]
    content = None
    if result.content is not None:
        content = tuple(replace(part, at=f"/{location}{part.at}") for part in result.content)
    return replace(result, at="", content=content, wire_form=tuple(form))


def _decode_text(part: PartShape, field_case: FieldCase) -> Text | Reasoning:
    """Decode a text part, or a thought if it is marked as one."""
    text = "" if part.text is UNSET else part.text
    if part.thought is not True:
        return Text(text=text, signature=decode_signature(part), **media_extras("Text", part, field_case))
    content = (ReasoningText(kind="summary", text=text, at=""),) if text else ()
    form = () if text else (_EMPTY_THOUGHT_FORM,)
    return Reasoning(
        content=content, signature=decode_signature(part), **media_extras("Reasoning", part, field_case, wire_form=form)
    )


_DECODERS: dict[str, Any] = {
    "text": _decode_text,
    "inline_data": decode_inline,
    "file_data": decode_file,
    "function_call": decode_call,
    "function_response": lambda part, field_case: decode_result(part, field_case, decode_part),
    "executable_code": decode_code,
    "code_execution_result": decode_code_result,
    "tool_call": decode_hosted_call,
    "tool_response": decode_hosted_result,
}

# ---- encode


def encode_parts(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[Any]:
    """Encode canonical parts as Gemini parts; one may become several or none."""
    encoded: list[Any] = []
    for located_part in located_parts:
        encoded += _ENCODERS[type(located_part.part)](located_part.part, located_part, plan)
    return encoded


def _encode_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode text as at most one part; empty text from other protocols is dropped."""
    shape = PartShape(text=part.text)
    if plan.same_protocol:
        if part.signature is not None:
            shape.thought_signature = part.signature.data
        if THOUGHT_FALSE in part.wire_form:
            shape.thought = False
        return [encode_shape(shape, part)]
    if part.signature is None and part.text and part.cache is None and part.annotations is None and part.id is None:
        return [shape]
    if part.signature is not None and part.signature.issuer == ISSUER:
        shape.thought_signature = part.signature.data
    elif not part.text:
        plan.report.dropped(located_part.path, "", "empty text")
        return []
    report_text(part, located_part.path, plan)
    return [shape]


def report_text(part: Text, path: SourcePath, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's text that Gemini does not have."""
    if part.signature is not None and part.signature.issuer != ISSUER:
        plan.report.dropped((*path, "signature"), "", "signatures are only valid for their issuer")
    if part.id is not None:
        plan.report.dropped(path, "id")
    if part.cache is not None:
        plan.report.dropped((*path, "cache"), "", "the target caches automatically")
    for index, citation in enumerate(part.annotations or ()):
        if citation.url is None or not plan.for_client:
            plan.report.dropped(
                (*path, "annotations", index), "", "the target cites web pages only, and only in responses"
            )
        elif citation.quote is not None:
            plan.report.dropped((*path, "annotations", index), "quote")


def _encode_data(part: Data, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode JSON content as text."""
    return [PartShape(text=str(part.json, "utf-8"))]


def _encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode a thought as parts.

    Google accepts only thoughts that it signed, others are reported as lost. A client may read all of them.
    """
    signature = part.signature
    is_signed = MOVED_SIGNATURE in part.wire_form or (signature is not None and signature.issuer == ISSUER)
    for index, block in enumerate(part.content):
        if isinstance(block, Media) and index > 0:
            plan.report.dropped((*located_part.path, "content", index), "", "a thought is either text or an image")
    if plan.same_protocol:
        return [encode_shape(_thought_shape(part), part)]
    if not is_signed and not plan.for_client:
        plan.report.dropped(located_part.path, "", "the target only accepts reasoning that it signed")
        return []
    if signature is not None and not is_signed:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if part.id is not None:
        plan.report.dropped(located_part.path, "id")
    shape = _thought_shape(part)
    if not is_signed:
        shape.thought_signature = UNSET
    return [shape] if part.content or shape.thought_signature is not UNSET else []


def _thought_shape(part: Reasoning) -> PartShape:
    """Build the wire part of a thought from its first block."""
    first = part.content[0] if part.content else None
    if isinstance(first, Media):
        shape = PartShape()
        if isinstance(first.source, Inline):
            shape.inline_data = BlobShape(
                mime_type=none_to_unset(first.media_type),
                data=encode_bytes(first.source),
                display_name=none_to_unset(first.name),
            )
        elif isinstance(first.source, Url | FileId):
            uri = first.source.url if isinstance(first.source, Url) else first.source.id
            shape.file_data = FileShape(
                file_uri=uri, mime_type=none_to_unset(first.media_type), display_name=none_to_unset(first.name)
            )
    else:
        shape = PartShape(text="\n\n".join([block.text for block in part.content if isinstance(block, ReasoningText)]))
    shape.thought = True
    if part.signature is not None:
        shape.thought_signature = part.signature.data
    return shape


def _encode_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode a client-side or server-side call."""
    return (
        encode_server_call(part, located_part, plan)
        if part.executor == "server"
        else encode_call(part, located_part, plan)
    )


def _encode_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode a client-side or server-side result."""
    if part.executor == "server":
        return encode_server_result(part, located_part, plan)
    return encode_result(part, located_part, plan, encode_parts)


def _encode_reference(part: ToolRef, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode a reference to a tool as text."""
    plan.report.approximated(located_part.path, "", "the target has no tool references; name sent as text")
    return [PartShape(text=f"[tool: {plan.tool_name(part.name, part.namespace)}]")]


def _report_change(part: ToolChange, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Report the loss of a change of the available tools; return no parts."""
    report_tool_change(part, located_part.path, plan.report)
    return []


def _report_setting(part: SettingChange, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Report the loss of a change of settings within the conversation; return no parts."""
    report_setting_change(part, located_part.path, plan)
    return []


def _encode_refusal(part: Refusal, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode a refusal as text."""
    plan.report.approximated(located_part.path, "", "refusal sent as text")
    return [PartShape(text=part.text)] if part.text else []


def _report_item_reference(part: ItemRef, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Report the loss of a reference to an item that another provider stores; return no parts."""
    plan.report.dropped(located_part.path, "id", "stored by another provider")
    return []


def _encode_opaque(part: OpaquePart, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Encode a part that only its source protocol knows: Gemini's unchanged, others as hosted call, media or text."""
    if part.protocol == FAMILY:
        return [part.body]
    if part.use is not None and plan.for_client:
        plan.report.approximated(
            located_part.path, "", "server-side call of another provider, sent as a call and its result"
        )
        return encode_hosted_use(part.use, plan)
    if part.media is not None and plan.for_client:
        plan.report.approximated(located_part.path, "", "tool output sent as output of the model")
        return encode_media(part.media, LocatedPart(part.media, (*located_part.path, "media")), plan)
    text = opaque_as_text(part, located_part.path, plan)
    return [] if text is None else [PartShape(text=text)]


_ENCODERS: dict[type, Any] = {
    Text: _encode_text,
    Media: encode_media,
    Data: _encode_data,
    Reasoning: _encode_reasoning,
    ToolCall: _encode_call,
    ToolResult: _encode_result,
    ToolRef: _encode_reference,
    ToolChange: _report_change,
    SettingChange: _report_setting,
    Refusal: _encode_refusal,
    ItemRef: _report_item_reference,
    OpaquePart: _encode_opaque,
}
