"""Media in Gemini's parts, to canonical and back.

Gemini's parts, to canonical parts and back.
"""

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
from toolwire.protocols.gemini.fast_path import decode_fast_call, decode_fast_result
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

# Files that only Google can read: of its Files API, or of its storage.
_GOOGLE_FILES = ("https://generativelanguage.googleapis.com/", "gs://")
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
    kind: str, part: PartShape, field_case: FieldCase, *inner: tuple[Any, str], wire_form: tuple[str, ...] = ()
) -> dict[str, Any]:
    found = field_case.extras_and_form(kind, (part, ""), *inner, wire_form=wire_form)
    side = sibling_extras(part if part.thought is not True else replace(part, thought=UNSET), field_case)
    return merge_extras(found, side) if side else found


def decode_inline(part: PartShape, field_case: FieldCase) -> Media | Reasoning | None:
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
    """Google reads both alphabets of base64, and its SDK for Python writes that for addresses: others read the usual
    one only."""
    if ("-" in data or "_" in data) and "+" not in data and "/" not in data and len(data) % 4 == 0:
        return Inline(data=data.translate(_FROM_URL_SAFE), wire_form=(_URL_SAFE_FORM,))
    return Inline(data=data)


def decode_file(part: PartShape, field_case: FieldCase) -> Media | Reasoning | None:
    file = part.file_data
    if file is UNSET:
        return None
    field_case.normalize(file, "fileData")
    if file.file_uri is UNSET:
        return None
    own = file.file_uri.startswith(_GOOGLE_FILES)
    source: Any = FileId(issuer=ISSUER, id=file.file_uri) if own else Url(url=file.file_uri)
    media_type = unset_to_none(file.mime_type)
    names = {"source": "fileUri", "media_type": "mimeType", "name": "displayName"}
    form = [f"gemini:name:{field}={field_case.source_pointer('fileData/' + wire)}" for field, wire in names.items()]
    media = Media(
        kind=_media_kind(media_type), source=source, media_type=media_type, name=unset_to_none(file.display_name)
    )
    return _build_media(part, field_case, media, (file, "fileData"), (_FILE_FORM, *form))


def _build_media(
    part: PartShape, field_case: FieldCase, media: Media, inner: tuple[Any, str], wire_form: tuple[str, ...]
) -> Media | Reasoning:
    if part.thought is not True:
        return _decode_resolution(
            replace(
                media,
                signature=decode_signature(part),
                **media_extras("Media", part, field_case, inner, wire_form=wire_form),
            )
        )
    shown = replace(media, at="", wire_form=wire_form)
    return Reasoning(
        content=(shown,),
        signature=decode_signature(part),
        **media_extras("Reasoning", part, field_case, inner, wire_form=wire_form),
    )


def _decode_resolution(media: Media) -> Media:
    """The media with how closely they are to be looked at, if all that is said of it are words that others know."""
    own = (media.extras or {}).get(FAMILY, {})
    name = next((one for one in _RESOLUTION_FIELDS if one in own), None)
    match None if name is None else parse_json(own[name]):
        case {"level": str(level), **more} if not more:
            detail = level.removeprefix(RESOLUTION_PREFIX).lower()
            if detail in RESOLUTIONS:
                form = (f"{FAMILY}:canonical:{name}", f"{FAMILY}:name:detail={name}/level")
                return replace(media, detail=detail, wire_form=(*media.wire_form, *form))
    return media


def _media_kind(media_type: str | None) -> Any:
    return _KINDS.get((media_type or "").partition("/")[0], "document")


# ---- encode


def encode_bytes(source: Inline) -> str:
    return source.data.translate(_TO_URL_SAFE) if _URL_SAFE_FORM in source.wire_form else source.data


def encode_media(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
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
    if part.detail is None:
        return
    if shape.text is not UNSET or part.detail not in RESOLUTIONS:
        plan.report.dropped(path, "detail")
    elif is_before_gemini_3(plan):
        plan.report.dropped(path, "detail", "the model has one resolution for all media")
    else:
        shape.media_resolution = Raw(_encode_json({"level": RESOLUTION_PREFIX + part.detail.upper()}))


def _encode_media_part(part: Media, path: SourcePath, plan: EncodingPlan) -> PartShape | None:
    """The part that shows it; None, reported, if Google can't read it."""
    name, media_type = none_to_unset(part.name), part.media_type
    match part.source:
        case Inline() as source:
            if media_type is None and not plan.same_protocol:
                media_type = "image/jpeg" if part.kind == "image" else "application/octet-stream"
                plan.report.added(path, "media_type", "", f"the target requires a media type; sent as {media_type}")
            blob = BlobShape(mime_type=none_to_unset(media_type), data=encode_bytes(source), display_name=name)
            return PartShape(inline_data=blob)
        case Url() as source if (
            not plan.same_protocol and not plan.for_client and source.url.lower().startswith("http:")
        ):
            # https addresses it fetches itself; that we fetch what a client names is no way out
            plan.report.dropped(path, "", "Google fetches https URLs only; send the data inline", constraint=True)
        case Url() as source:
            if media_type is None and not plan.same_protocol:
                media_type = _MEDIA_TYPES.get(source.url.partition("?")[0].rpartition(".")[2].lower())
            return PartShape(
                file_data=FileShape(file_uri=source.url, mime_type=none_to_unset(media_type), display_name=name)
            )
        case FileId() as source if source.issuer == ISSUER:
            return PartShape(
                file_data=FileShape(file_uri=source.id, mime_type=none_to_unset(media_type), display_name=name)
            )
        case FileId() as source:
            plan.report.dropped(path, "", f"file is stored by {source.issuer} only")
        case PlainText() as source:
            plan.report.approximated(path, "", "text document sent as text")
            return PartShape(text=source.text)
        case Nested() as source:
            plan.report.approximated(path, "", "document content sent as text")
            return PartShape(text="\n".join(one.text for one in source.parts if isinstance(one, Text)))
    return None


_EMPTY_THOUGHT_FORM = "gemini:text:empty"

# ---- decode


def decode_parts(parts: list[PartShape], path: str) -> tuple[Part, ...]:
    found: list[Part] = []
    results = False
    for index, part in enumerate(parts):
        if type(part.text) is str and part == PartShape(text=part.text):
            found.append(Text(text=part.text))
            continue
        made = decode_fast_call(part) or decode_fast_result(part) or decode_part(part, f"{path}/{index}")
        results = results or isinstance(made, ToolResult)
        found.append(made)
    return _attach_sibling_media(found) if results else tuple(found)


def decode_part(part: PartShape, path: str) -> Part:
    spelling = FieldCase(path)
    body = None if part.unknown is UNSET else with_unknown_fields(part)
    spelling.normalize(part)
    members = [name for name in _DECODERS if getattr(part, name) is not UNSET]
    made: Part | None = _DECODERS[members[0]](part, spelling) if len(members) == 1 else None
    if made is not None:
        return made
    kind = members[0] if members else next(iter(part.unknown or ()), "part")
    raw = Raw(msgspec.json.encode(with_unknown_fields(part) if body is None else body))
    return OpaquePart(protocol=FAMILY, kind=kind, body=raw)


def _attach_sibling_media(parts: list[Part]) -> tuple[Part, ...]:
    """Media right after a result belong to it. Since they stand beside it, so do the names that losses use."""
    if len(parts) == 1 or not any(
        isinstance(one, ToolResult) and isinstance(after, Media) for one, after in pairwise(parts)
    ):
        return tuple(parts)
    out: list[Part] = []
    for index, part in enumerate(parts):
        last = out[-1] if out else None
        owned = isinstance(last, ToolResult) and last.executor == "client" and last.extras is None
        if isinstance(part, Media) and isinstance(last, ToolResult) and owned:
            inner = replace(part, at=f"/parts/{index}", wire_form=(*part.wire_form, SIBLING_FORM))
            if last.at != "":
                last = _locate_beside_media(last, index - 1)
            out[-1] = replace(last, content=(*(last.content or ()), inner))
        else:
            out.append(replace(part, at=f"/parts/{index}"))
    return tuple(out)


def _locate_beside_media(result: ToolResult, index: int) -> ToolResult:
    """The result as one that stands at its whole content, with its own part as a place below."""
    place = f"parts/{index}"
    names = {"call_id": "id", "name": "name", "content": "response", "status": "response/error"}
    own = next((t.split("=")[1].split("/")[0] for t in result.wire_form if t.startswith("gemini:name:name=")), None)
    base = f"{place}/{own or 'functionResponse'}"
    form = [token for token in result.wire_form if not token.startswith("gemini:name:")]
    form += [f"gemini:name:{field}={base}/{wire}" for field, wire in names.items()]
    content = None
    if result.content is not None:
        content = tuple(replace(one, at=f"/{place}{one.at}") for one in result.content)
    return replace(result, at="", content=content, wire_form=tuple(form))


def _decode_text(part: PartShape, field_case: FieldCase) -> Text | Reasoning:
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
    "function_response": lambda part, spelling: decode_result(part, spelling, decode_part),
    "executable_code": decode_code,
    "code_execution_result": decode_code_result,
    "tool_call": decode_hosted_call,
    "tool_response": decode_hosted_result,
}

# ---- encode


def encode_parts(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[Any]:
    found: list[Any] = []
    for placed in located_parts:
        found += _ENCODERS[type(placed.part)](placed.part, placed, plan)
    return found


def _encode_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
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
    """What a text of another protocol has no place for here."""
    if part.signature is not None and part.signature.issuer != ISSUER:
        plan.report.dropped((*path, "signature"), "", "signatures are only valid for their issuer")
    if part.id is not None:
        plan.report.dropped(path, "id")
    if part.cache is not None:
        plan.report.dropped((*path, "cache"), "", "the target caches automatically")
    for index, note in enumerate(part.annotations or ()):
        if note.url is None or not plan.for_client:
            plan.report.dropped((*path, "annotations", index), "", "the target cites web pages only, and only in responses")
        elif note.quote is not None:
            plan.report.dropped((*path, "annotations", index), "quote")


def _encode_data(part: Data, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    return [PartShape(text=str(part.json, "utf-8"))]


def _encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    """Thoughts go back only as Google signed them. A client may read them all."""
    seal = part.signature
    own = MOVED_SIGNATURE in part.wire_form or (seal is not None and seal.issuer == ISSUER)
    for index, one in enumerate(part.content):
        if isinstance(one, Media) and index > 0:
            plan.report.dropped(
                (*located_part.path, "content", index), "", "a thought is either text or an image"
            )
    if plan.same_protocol:
        return [encode_shape(_thought_shape(part), part)]
    if not own and not plan.for_client:
        plan.report.dropped(located_part.path, "", "the target only accepts reasoning that it signed")
        return []
    if seal is not None and not own:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if part.id is not None:
        plan.report.dropped(located_part.path, "id")
    shape = _thought_shape(part)
    if not own:
        shape.thought_signature = UNSET
    return [shape] if part.content or shape.thought_signature is not UNSET else []


def _thought_shape(part: Reasoning) -> PartShape:
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
        shape = PartShape(text="\n\n".join([one.text for one in part.content if isinstance(one, ReasoningText)]))
    shape.thought = True
    if part.signature is not None:
        shape.thought_signature = part.signature.data
    return shape


def _encode_call(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    return (
        encode_server_call(part, located_part, plan)
        if part.executor == "server"
        else encode_call(part, located_part, plan)
    )


def _encode_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    if part.executor == "server":
        return encode_server_result(part, located_part, plan)
    return encode_result(part, located_part, plan, encode_parts)


def _encode_reference(part: ToolRef, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    plan.report.approximated(located_part.path, "", "the target has no tool references; name sent as text")
    return [PartShape(text=f"[tool: {plan.tool_name(part.name, part.namespace)}]")]


def _encode_change(part: ToolChange, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    report_tool_change(part, located_part.path, plan.report)
    return []


def _encode_setting(part: SettingChange, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    report_setting_change(part, located_part.path, plan)
    return []


def _encode_refusal(part: Refusal, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    plan.report.approximated(located_part.path, "", "refusal sent as text")
    return [PartShape(text=part.text)] if part.text else []


def _encode_item_reference(part: ItemRef, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    plan.report.dropped(located_part.path, "id", "stored by another provider")
    return []


def _encode_opaque(part: OpaquePart, located_part: LocatedPart, plan: EncodingPlan) -> list[Any]:
    if part.protocol == FAMILY:
        return [part.body]
    if part.use is not None and plan.for_client:
        plan.report.approximated(located_part.path, "", "server-side call of another provider, sent as a call and its result")
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
    ToolChange: _encode_change,
    SettingChange: _encode_setting,
    Refusal: _encode_refusal,
    ItemRef: _encode_item_reference,
    OpaquePart: _encode_opaque,
}
