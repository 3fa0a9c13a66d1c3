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
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
    Url,
)
from toolwire.canonical.tools import ToolRef
from toolwire.codec.fields import Wire
from toolwire.codec.kept import as_object
from toolwire.codec.plan import Plan
from toolwire.codec.settings import report_setting
from toolwire.codec.telling import call_in_words, gist_of, result_in_words
from toolwire.codec.tools import report_change
from toolwire.codec.turns import Placed
from toolwire.protocols.ollama.wire import FAMILY

_AUDIO = ("audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3")
_SAME = {"image/jpg": "image/jpeg", "audio/x-wav": "audio/wav", "audio/mp3": "audio/mpeg"}


class Picture(Struct, frozen=True):
    """An element of `images`."""

    data: str


Piece = str | Picture


def written(value: Any) -> Any:
    """A wire object as it was, with what its shape did not know."""
    if isinstance(value, list):
        return [written(one) for one in value]
    if not isinstance(value, Wire):
        return value
    body = {name: written(inner) for name, inner in as_object(value).items()}
    if value.unknown is not UNSET:
        body.update(value.unknown)
    return body | dict.fromkeys(() if value.nulls is UNSET else value.nulls)


def spelled(name: str, value: str | UnsetType | None, usual: str) -> dict[str, Any]:
    """What is kept of a word that can be left out, where it is there, or is one that we don't know."""
    if value is UNSET or value is None:
        return {}
    if value == usual:
        return {"form": (f"{FAMILY}:said:{name}",)}
    return {"extras": {FAMILY: {name: Raw(msgspec.json.encode(value))}}}


# ---- decode


def decode_thinking(text: str) -> Reasoning:
    return Reasoning(content=(ReasoningText(kind="full", text=text, at=""),), at="/thinking")


def decode_images(images: list[str]) -> list[Media]:
    return [decode_image(data, f"/images/{index}") for index, data in enumerate(images)]


def decode_image(data: str, at: str) -> Media:
    media_type = sniffed(data)
    kind: Literal["image", "audio"] = "audio" if media_type is not None and media_type in _AUDIO else "image"
    return Media(kind=kind, source=Inline(data=data), media_type=media_type, at=at)


def sniffed(data: str) -> str | None:
    """The media type that the first bytes of a file tell."""
    try:
        head = binascii.a2b_base64(data[:16], strict_mode=True)
    except ValueError:
        return None
    if head[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(head[8:12])
    for start, media_type in _STARTS.items():
        if head.startswith(start):
            return media_type
    return None


_STARTS = {
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
}


# ---- encode


def encode_parts(places: list[Placed], plan: Plan) -> list[Piece]:
    pieces: list[Piece] = []
    for placed in places:
        piece = _ENCODERS[type(placed.part)](placed.part, placed, plan)
        if piece is not None:
            pieces.append(piece)
    return pieces


def _encode_text(part: Text, placed: Placed, plan: Plan) -> str:
    if plan.home:
        return part.text
    if part.seal is not None:
        plan.report.dropped((*placed.trail, "seal"), "", "a seal goes only to its issuer")
    if part.cache is not None:
        plan.report.dropped((*placed.trail, "cache"), "", "the target has no cache marks")
    if part.id is not None:
        plan.report.dropped(placed.trail, "id")
    for index in range(len(part.annotations or ())):
        plan.report.dropped((*placed.trail, "annotations", index), "", "the target has no place for citations")
    return part.text


def _encode_media(part: Media, placed: Placed, plan: Plan) -> Piece | None:
    """The bytes, where they are at hand and of a kind that the server takes."""
    if plan.answering and not plan.home and not isinstance(part.source, Inline):
        plan.report.dropped(placed.trail, "", "the target's answers show bytes only")
        return None
    match part.source:
        case Inline() as source if part.kind == "image" or part.media_type in _AUDIO or plan.home:
            _report_media(part, source, placed, plan)
            return Picture(source.data)
        case Url() as source:
            plan.report.approximated(placed.trail, "", "the target takes bytes only: the address is told as text")
            said = f"[{part.kind} at {source.url}]"
        case PlainText() as source:
            plan.report.approximated(placed.trail, "source", "the target takes no documents: told as text")
            said = source.text
        case Nested() as source:
            plan.report.approximated(placed.trail, "source", "the target takes no documents: told as text")
            pieces = encode_parts([Placed(one, placed.trail) for one in source.parts], plan)
            said = "\n".join(piece for piece in pieces if isinstance(piece, str))
        case FileId() as source:
            plan.report.dropped(placed.trail, "", f"a file that only {source.issuer} holds")
            return None
        case _:
            plan.report.dropped(placed.trail, "", f"the target takes no {part.media_type or part.kind}")
            return None
    _report_marks(part, placed, plan)
    return f"{part.name}\n{said}" if part.name else said


def _report_media(part: Media, source: Inline, placed: Placed, plan: Plan) -> None:
    """What can't be said of a file beside its bytes."""
    if plan.home:
        return
    declared = part.media_type
    if declared is not None and _SAME.get(declared, declared) != sniffed(source.data):
        plan.report.dropped(placed.trail, "media_type", "the target tells it by the bytes")
    if part.name is not None:
        plan.report.dropped(placed.trail, "name")
    _report_marks(part, placed, plan)


def _report_marks(part: Media, placed: Placed, plan: Plan) -> None:
    if part.detail is not None:
        plan.report.dropped(placed.trail, "detail")
    if part.cache is not None:
        plan.report.dropped((*placed.trail, "cache"), "", "the target has no cache marks")
    if part.seal is not None:
        plan.report.dropped((*placed.trail, "seal"), "", "a seal goes only to its issuer")


def _encode_data(part: Data, placed: Placed, plan: Plan) -> str:
    return bytes(part.json).decode()


def _encode_refusal(part: Refusal, placed: Placed, plan: Plan) -> str:
    plan.report.approximated(placed.trail, "", "the target has no refusals: told as text")
    return part.text


def _encode_reasoning(part: Reasoning, placed: Placed, plan: Plan) -> None:
    plan.report.dropped(placed.trail, "", "reasoning has no place here")


def _encode_tool_reference(part: ToolRef, placed: Placed, plan: Plan) -> str:
    plan.report.approximated(placed.trail, "", "the target can't point at tools: the name is told as text")
    return f"[tool {plan.name(part.name, part.namespace)}]"


def _encode_change(part: ToolChange, placed: Placed, plan: Plan) -> None:
    report_change(part, placed.trail, plan.report)


def _encode_setting(part: SettingChange, placed: Placed, plan: Plan) -> None:
    report_setting(part, placed.trail, plan)


def _encode_item_reference(part: ItemRef, placed: Placed, plan: Plan) -> None:
    plan.report.dropped(placed.trail, "id", "what another protocol stored can't be named here")


def _encode_foreign(part: Foreign, placed: Placed, plan: Plan) -> str | None:
    return gist_of(part, placed.trail, plan)


_ENCODERS: dict[type[Part], Any] = {
    Text: _encode_text,
    Media: _encode_media,
    Data: _encode_data,
    Refusal: _encode_refusal,
    Reasoning: _encode_reasoning,
    ToolCall: call_in_words,
    ToolResult: result_in_words,
    ToolRef: _encode_tool_reference,
    ToolChange: _encode_change,
    SettingChange: _encode_setting,
    ItemRef: _encode_item_reference,
    Foreign: _encode_foreign,
}
