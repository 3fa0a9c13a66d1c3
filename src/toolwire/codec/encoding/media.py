"""How large a picture is, by the first bytes of it: what a model points at is a point of the last one that it saw.

Media on the wire: data URLs, and what is said where media can't go.
"""

import base64
import binascii
import re

from toolwire.canonical.content import Inline, Media, Nested, Source, Text, Url
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import LossReport

_MAX_HEADER = 64 * 1024
"""As much text of a picture as is read: in a photograph much may stand before its size."""

Size = tuple[int, int]


def image_size(media: Media) -> Size | None:
    """Width and height in pixels; None if they can't be seen."""
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
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _webp_size(data: bytes) -> Size | None:
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
    """The frame says it; segments before that are passed over by their lengths."""
    place = 2 if data[:2] == b"\xff\xd8" else len(data)
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[place + 7 : place + 9]), int.from_bytes(data[place + 5 : place + 7])
        place += 2 + int.from_bytes(data[place + 2 : place + 4])
    return None


_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?);base64,(.*)", re.DOTALL | re.IGNORECASE)

ERROR_MARK = "[tool error] "
"""Stands before the text of a failed result where a protocol has no flag for it, and is read back as the flag."""

ERROR_MARK_FORM = "marked:error"
"""The form of a result that was read so: to say it the same way again loses nothing."""


def source_from_url(url: str) -> tuple[Source, str | None]:
    """The source that a URL stands for, and its media type if the URL says it. Only plain base64 data URLs are inline,
    so that each can be written back as it was."""
    match = _DATA_URL.fullmatch(url)
    if match is None or match[2] or not url.startswith("data:") or data_url(match[3], match[1]) != url:
        return Url(url=url), None
    return Inline(data=match[3]), match[1] or None


def data_url(data: str, media_type: str | None) -> str:
    return f"data:{media_type or ''};base64,{data}"


def summarize_binary(located_parts: list[LocatedPart], report: LossReport) -> list[LocatedPart]:
    """The parts of a result with one line of text in place of each binary one."""
    out = []
    for placed in located_parts:
        part = placed.part
        if isinstance(part, Media):
            report.approximated(placed.path, "", "binary content is told in a few words")
            part = Text(text=media_summary(part))
        out.append(LocatedPart(part, placed.path))
    return out


def media_summary(media: Media) -> str:
    """One line in place of binary content."""
    return f"Binary content of type {media.media_type or media.kind} was processed."


def expand_nested_document(
    located_part: LocatedPart, part: Media, source: Nested, report: LossReport
) -> list[LocatedPart]:
    """What a document of several parts consists of, its name first, for a target that has no such documents."""
    report.approximated(located_part.path, "source", "the target takes no such document: told part by part")
    if part.cache is not None:
        report.dropped((*located_part.path, "cache"), "", "the target has no cache marks on whole documents")
    trail = (*located_part.path, "source", "parts")
    parts = [LocatedPart(inner, (*trail, index)) for index, inner in enumerate(source.parts)]
    return [LocatedPart(Text(text=part.name), located_part.path), *parts] if part.name else parts
