"""What Ollama's messages hold besides calls, text, thinking and images, to canonical parts and back.

A message has one text and a list of files, which are called images and have no media type: the server looks at their
bytes, and some models also take audio.
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
from toolwire.codec.encoding.fallbacks import call_as_text, opaque_as_text, report_setting_change, result_as_text
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import report_tool_change
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import as_dict
from toolwire.codec.wire.reader import WireObject
from toolwire.protocols.ollama.wire import FAMILY

_AUDIO_TYPES = ("audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3")
_MEDIA_TYPE_ALIASES = {"image/jpg": "image/jpeg", "audio/x-wav": "audio/wav", "audio/mp3": "audio/mpeg"}


class ImageData(Struct, frozen=True):
    """An element of `images`."""

    data: str


ContentPiece = str | ImageData


def with_unknown_fields(value: Any) -> Any:
    """A wire object as it was, with what its shape did not know."""
    if isinstance(value, list):
        return [with_unknown_fields(one) for one in value]
    if not isinstance(value, WireObject):
        return value
    body = {name: with_unknown_fields(inner) for name, inner in as_dict(value).items()}
    if value.unknown is not UNSET:
        body.update(value.unknown)
    return body | dict.fromkeys(() if value.nulls is UNSET else value.nulls)


def constant_extras(name: str, value: str | UnsetType | None, default: str) -> dict[str, Any]:
    """What is kept of a word that can be left out, where it is there, or is one that we don't know."""
    if value is UNSET or value is None:
        return {}
    if value == default:
        return {"wire_form": (f"{FAMILY}:explicit:{name}",)}
    return {"extras": {FAMILY: {name: Raw(msgspec.json.encode(value))}}}


# ---- decode


def decode_thinking(text: str) -> Reasoning:
    return Reasoning(content=(ReasoningText(kind="full", text=text, at=""),), at="/thinking")


def decode_images(images: list[str]) -> list[Media]:
    return [decode_image(data, f"/images/{index}") for index, data in enumerate(images)]


def decode_image(data: str, at: str) -> Media:
    media_type = detect_media_type(data)
    kind: Literal["image", "audio"] = "audio" if media_type is not None and media_type in _AUDIO_TYPES else "image"
    return Media(kind=kind, source=Inline(data=data), media_type=media_type, at=at)


def detect_media_type(data: str) -> str | None:
    """The media type that the first bytes of a file tell."""
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
    pieces: list[ContentPiece] = []
    for placed in located_parts:
        piece = _ENCODERS[type(placed.part)](placed.part, placed, plan)
        if piece is not None:
            pieces.append(piece)
    return pieces


def _encode_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> str:
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
    """The bytes, where they are at hand and of a kind that the server takes."""
    if plan.for_client and not plan.same_protocol and not isinstance(part.source, Inline):
        plan.report.dropped(located_part.path, "", "responses of the target hold inline data only")
        return None
    match part.source:
        case Inline() as source if part.kind == "image" or part.media_type in _AUDIO_TYPES or plan.same_protocol:
            _report_media(part, source, located_part, plan)
            return ImageData(source.data)
        case Url() as source:
            plan.report.approximated(located_part.path, "", "the target accepts inline data only; URL sent as text")
            said = f"[{part.kind} at {source.url}]"
        case PlainText() as source:
            plan.report.approximated(located_part.path, "source", "the target does not accept documents; sent as text")
            said = source.text
        case Nested() as source:
            plan.report.approximated(located_part.path, "source", "the target does not accept documents; sent as text")
            pieces = encode_parts([LocatedPart(one, located_part.path) for one in source.parts], plan)
            said = "\n".join(piece for piece in pieces if isinstance(piece, str))
        case FileId() as source:
            plan.report.dropped(located_part.path, "", f"file is stored by {source.issuer} only")
            return None
        case _:
            plan.report.dropped(located_part.path, "", f"the target does not accept {part.media_type or part.kind}")
            return None
    _report_cache_marks(part, located_part, plan)
    return f"{part.name}\n{said}" if part.name else said


def _report_media(part: Media, source: Inline, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """What can't be said of a file beside its bytes."""
    if plan.same_protocol:
        return
    declared = part.media_type
    if declared is not None and _MEDIA_TYPE_ALIASES.get(declared, declared) != detect_media_type(source.data):
        plan.report.dropped(located_part.path, "media_type", "the target detects the media type from the data")
    if part.name is not None:
        plan.report.dropped(located_part.path, "name")
    _report_cache_marks(part, located_part, plan)


def _report_cache_marks(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> None:
    if part.detail is not None:
        plan.report.dropped(located_part.path, "detail")
    if part.cache is not None:
        plan.report.dropped((*located_part.path, "cache"), "", "the target has no cache marks")
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")


def _encode_data(part: Data, located_part: LocatedPart, plan: EncodingPlan) -> str:
    return bytes(part.json).decode()


def _encode_refusal(part: Refusal, located_part: LocatedPart, plan: EncodingPlan) -> str:
    plan.report.approximated(located_part.path, "", "refusal sent as text")
    return part.text


def _encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> None:
    plan.report.dropped(located_part.path, "", "the target does not accept reasoning here")


def _encode_tool_reference(part: ToolRef, located_part: LocatedPart, plan: EncodingPlan) -> str:
    plan.report.approximated(located_part.path, "", "the target has no tool references; name sent as text")
    return f"[tool {plan.tool_name(part.name, part.namespace)}]"


def _encode_change(part: ToolChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    report_tool_change(part, located_part.path, plan.report)


def _encode_setting(part: SettingChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    report_setting_change(part, located_part.path, plan)


def _encode_item_reference(part: ItemRef, located_part: LocatedPart, plan: EncodingPlan) -> None:
    plan.report.dropped(located_part.path, "id", "stored by another provider")


def _encode_opaque(part: OpaquePart, located_part: LocatedPart, plan: EncodingPlan) -> str | None:
    return opaque_as_text(part, located_part.path, plan)


_ENCODERS: dict[type[Part], Any] = {
    Text: _encode_text,
    Media: _encode_media,
    Data: _encode_data,
    Refusal: _encode_refusal,
    Reasoning: _encode_reasoning,
    ToolCall: call_as_text,
    ToolResult: result_as_text,
    ToolRef: _encode_tool_reference,
    ToolChange: _encode_change,
    SettingChange: _encode_setting,
    ItemRef: _encode_item_reference,
    OpaquePart: _encode_opaque,
}
