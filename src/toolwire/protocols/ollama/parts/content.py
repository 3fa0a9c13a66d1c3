"""Decode and encode text, thinking and images.

A message has one text and a list of files. They are called images and have no media type: the server inspects their
bytes, and a few models also take audio.
"""

import binascii
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

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
from toolwire.codec.encoding.fallbacks import (
    call_as_text,
    opaque_as_text,
    report_item_reference,
    report_setting_change,
    result_as_text,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import report_tool_change
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import as_dict
from toolwire.codec.wire.reader import WireObject
from toolwire.protocols.ollama.wire import FAMILY

_AUDIO_TYPES = ("audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3")
_MEDIA_TYPE_ALIASES = {"image/jpg": "image/jpeg", "audio/x-wav": "audio/wav", "audio/mp3": "audio/mpeg"}


class ImageData(Struct, frozen=True):
    """One element of `images`."""

    data: str


ContentPiece = str | ImageData


def with_unknown_fields(value: Any) -> Any:
    """Return a wire object as a dict with all fields that were read."""
    if isinstance(value, list):
        return [with_unknown_fields(element) for element in value]
    if not isinstance(value, WireObject):
        return value
    body = {name: with_unknown_fields(inner) for name, inner in as_dict(value).items()}
    if value.unknown is not UNSET:
        body.update(value.unknown)
    return body | dict.fromkeys(() if value.nulls is UNSET else value.nulls)


def constant_extras(name: str, value: str | UnsetType | None, default: str) -> dict[str, Any]:
    """Return the arguments that record a normally constant field.

    It is a wire-form token if it has its usual value, else an extra; empty if it is absent.
    """
    if value is UNSET or value is None:
        return {}
    if value == default:
        return {"wire_form": (f"{FAMILY}:explicit:{name}",)}
    return {"extras": {FAMILY: {name: Raw(msgspec.json.encode(value))}}}


# ---- decode


def decode_thinking(text: str) -> Reasoning:
    """Decode the thinking text of a message."""
    return Reasoning(content=(ReasoningText(kind="full", text=text, at=""),), at="/thinking")


def decode_images(images: list[str]) -> list[Media]:
    """Decode the images of a message."""
    return [decode_image(data, f"/images/{index}") for index, data in enumerate(images)]


def decode_image(data: str, at: str) -> Media:
    """Decode one image or audio file."""
    media_type = detect_media_type(data)
    kind: Literal["image", "audio"] = "audio" if media_type is not None and media_type in _AUDIO_TYPES else "image"
    return Media(kind=kind, source=Inline(data=data), media_type=media_type, at=at)


def detect_media_type(data: str) -> str | None:
    """Detect the media type from the first bytes of a base64 file."""
    try:
        head = binascii.a2b_base64(data[:16], strict_mode=True)
    except ValueError:
        return None
    if head[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(head[8:12])
    for start, media_type in _MAGIC_BYTES.items():
        if head.startswith(start):
            return media_type
    return None


_MAGIC_BYTES = {
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
}


# ---- encode


def encode_parts(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[ContentPiece]:
    """Encode parts as texts and images; parts that have neither are reported as losses."""
    pieces: list[ContentPiece] = []
    for located_part in located_parts:
        piece = _ENCODERS[type(located_part.part)](located_part.part, located_part, plan)
        if piece is not None:
            pieces.append(piece)
    return pieces


def _encode_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> str:
    """Return the text of a part; report as losses its fields that Ollama does not have."""
    if plan.same_protocol:
        return part.text
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if part.cache is not None:
        plan.report.dropped((*located_part.path, "cache"), "", "the target has no cache marks")
    if part.id is not None:
        plan.report.dropped(located_part.path, "id")
    for index in range(len(part.annotations or ())):
        plan.report.dropped((*located_part.path, "annotations", index), "", "the target has no citations")
    return part.text


def _encode_media(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> ContentPiece | None:
    """Encode media as an image if the server accepts it, else as text; None if neither is possible."""
    if plan.for_client and not plan.same_protocol and not isinstance(part.source, Inline):
        plan.report.dropped(located_part.path, "", "responses of the target hold inline data only")
        return None
    source = part.source
    is_audio = part.media_type in _AUDIO_TYPES and (plan.for_client or plan.model_info.audio is True)
    if isinstance(source, Inline) and (part.kind == "image" or is_audio or plan.same_protocol):
        _report_media(part, source, located_part, plan)
        return ImageData(source.data)
    text = _media_as_text(part, located_part, plan)
    if text is None:
        return None
    _report_media_fields(part, located_part, plan)
    return f"{part.name}\n{text}" if part.name else text


def _media_as_text(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> str | None:
    """Return text that stands for media; report a loss and return None if there is none."""
    match part.source:
        case Url() as source:
            plan.report.approximated(located_part.path, "", "the target accepts inline data only; URL sent as text")
            return f"[{part.kind} at {source.url}]"
        case PlainText() as source:
            plan.report.approximated(located_part.path, "source", "the target does not accept documents; sent as text")
            return source.text
        case Nested() as source:
            plan.report.approximated(located_part.path, "source", "the target does not accept documents; sent as text")
            pieces = encode_parts([LocatedPart(inner, located_part.path) for inner in source.parts], plan)
            return "\n".join(piece for piece in pieces if isinstance(piece, str))
        case FileId() as source:
            plan.report.dropped(located_part.path, "", f"file is stored by {source.issuer} only")
            return None
        case _:
            plan.report.dropped(located_part.path, "", f"the target does not accept {part.media_type or part.kind}")
            return None


def _report_media(part: Media, source: Inline, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report as losses what an Ollama image, which has no name or media type, cannot express."""
    if plan.same_protocol:
        return
    declared = part.media_type
    if declared is not None and _MEDIA_TYPE_ALIASES.get(declared, declared) != detect_media_type(source.data):
        plan.report.dropped(located_part.path, "media_type", "the target detects the media type from the data")
    if part.name is not None:
        plan.report.dropped(located_part.path, "name")
    _report_media_fields(part, located_part, plan)


def _report_media_fields(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report as losses the fields of media that Ollama does not have."""
    if part.detail is not None:
        plan.report.dropped(located_part.path, "detail")
    if part.cache is not None:
        plan.report.dropped((*located_part.path, "cache"), "", "the target has no cache marks")
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")


def _encode_data(part: Data, located_part: LocatedPart, plan: EncodingPlan) -> str:
    """Encode JSON content as text."""
    return bytes(part.json).decode()


def _encode_refusal(part: Refusal, located_part: LocatedPart, plan: EncodingPlan) -> str:
    """Encode a refusal as text."""
    plan.report.approximated(located_part.path, "", "refusal sent as text")
    return part.text


def _report_misplaced_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report as a loss reasoning outside an assistant message, where Ollama has no field for it."""
    plan.report.dropped(located_part.path, "", "the target does not accept reasoning here")


def _encode_tool_reference(part: ToolRef, located_part: LocatedPart, plan: EncodingPlan) -> str:
    """Encode a reference to a tool as text."""
    plan.report.approximated(located_part.path, "", "the target has no tool references; name sent as text")
    return f"[tool {plan.tool_name(part.name, part.namespace)}]"


def _report_change(part: ToolChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report the loss of a change of the available tools, which Ollama does not have."""
    report_tool_change(part, located_part.path, plan.report)


def _report_setting(part: SettingChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report the loss of a change of settings within the conversation."""
    report_setting_change(part, located_part.path, plan)


def _encode_opaque(part: OpaquePart, located_part: LocatedPart, plan: EncodingPlan) -> str | None:
    """Encode a part that only its source protocol knows as its text; None if it has none."""
    return opaque_as_text(part, located_part.path, plan)


_ENCODERS: dict[type[Part], Any] = {
    Text: _encode_text,
    Media: _encode_media,
    Data: _encode_data,
    Refusal: _encode_refusal,
    Reasoning: _report_misplaced_reasoning,
    ToolCall: call_as_text,
    ToolResult: result_as_text,
    ToolRef: _encode_tool_reference,
    ToolChange: _report_change,
    SettingChange: _report_setting,
    ItemRef: report_item_reference,
    OpaquePart: _encode_opaque,
}
