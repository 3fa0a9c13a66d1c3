"""Media: image sizes, data URLs, and text in place of media that a target rejects."""

import base64
import binascii
import re

from toolwire.canonical.content import Inline, Media, Nested, Source, Text, Url
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import LossReport

_MAX_HEADER = 64 * 1024
"""Base64 characters of an image that are read; metadata of photos can precede the size."""

Size = tuple[int, int]


def image_size(media: Media) -> Size | None:
    """Return width and height in pixels from the image header; None if unknown."""
    text = ""
    if isinstance(media.source, Inline):
        text = media.source.data[:_MAX_HEADER]
    elif isinstance(media.source, Url) and media.source.url[:_MAX_HEADER].startswith("data:"):
        text = media.source.url[: _MAX_HEADER + 100].partition(",")[2][:_MAX_HEADER]
    try:
        data = base64.b64decode(text[: len(text) // 4 * 4])
    except (binascii.Error, ValueError):
        return None
    size = _png_size(data) or _webp_size(data) or _jpeg_size(data)
    return size if size is not None and all(size) else None


def _png_size(data: bytes) -> Size | None:
    """Return width and height from a PNG header; None if the data is no PNG."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _webp_size(data: bytes) -> Size | None:
    """Return width and height from a WebP header; None if the data is no WebP."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
        case _:
            return None


def _jpeg_size(data: bytes) -> Size | None:
    """Return width and height from the frame header of a JPEG, skipping other segments; None if there is none."""
    offset = 2 if data[:2] == b"\xff\xd8" else len(data)
    while offset + 9 <= len(data) and data[offset] == 0xFF:
        marker = data[offset + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[offset + 7 : offset + 9]), int.from_bytes(data[offset + 5 : offset + 7])
        offset += 2 + int.from_bytes(data[offset + 2 : offset + 4])
    return None


_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?);base64,(.*)", re.DOTALL | re.IGNORECASE)

ERROR_MARK = "[tool error] "
"""Prefix of a failed result's text in protocols without an error flag; decoders turn it back into the flag."""

ERROR_MARK_FORM = "marked:error"
"""`wire_form` token of a result that was decoded from such a prefix, so that encoding it again is no loss."""


def source_from_url(url: str) -> tuple[Source, str | None]:
    """Return the source that a URL stands for, and its media type if the URL states it.

    Only plain base64 data URLs become inline, so that each can be written back unchanged.
    """
    match = _DATA_URL.fullmatch(url)
    if match is None or match[2] or not url.startswith("data:") or data_url(match[3], match[1]) != url:
        return Url(url=url), None
    return Inline(data=match[3]), match[1] or None


def data_url(data: str, media_type: str | None) -> str:
    """Return a data URL for base64 text."""
    return f"data:{media_type or ''};base64,{data}"


def summarize_binary(located_parts: list[LocatedPart], report: LossReport) -> list[LocatedPart]:
    """Return the parts of a tool result with each binary part replaced by one line of text and reported."""
    out = []
    for located in located_parts:
        part = located.part
        if isinstance(part, Media):
            report.approximated(located.path, "", "binary content is replaced by a summary line")
            part = Text(text=media_summary(part))
        out.append(LocatedPart(part, located.path))
    return out


def media_summary(media: Media) -> str:
    """Return the line of text that stands for binary content."""
    return f"Binary content of type {media.media_type or media.kind} was processed."


def expand_nested_document(
    located_part: LocatedPart, part: Media, source: Nested, report: LossReport
) -> list[LocatedPart]:
    """Return the parts of a nested document, its name first, for targets without such documents."""
    report.approximated(located_part.path, "source", "the target has no nested documents: sent part by part")
    if part.cache is not None:
        report.dropped((*located_part.path, "cache"), "", "the target has no cache marks on documents")
    path = (*located_part.path, "source", "parts")
    parts = [LocatedPart(inner, (*path, index)) for index, inner in enumerate(source.parts)]
    return [LocatedPart(Text(text=part.name), located_part.path), *parts] if part.name else parts
