"""How large a picture is, by the first bytes of it: what a model points at is a point of the last one that it saw."""

import base64
import binascii

from toolwire.canonical.content import Inline, Media, Url

_HEAD = 64 * 1024
"""As much text of a picture as is read: in a photograph much may stand before its size."""

Size = tuple[int, int]


def size_of(media: Media) -> Size | None:
    """Width and height in pixels; None if they can't be seen."""
    text = ""
    if isinstance(media.source, Inline):
        text = media.source.data[:_HEAD]
    elif isinstance(media.source, Url) and media.source.url[:_HEAD].startswith("data:"):
        text = media.source.url[: _HEAD + 100].partition(",")[2][:_HEAD]
    try:
        data = base64.b64decode(text[: len(text) // 4 * 4])
    except (binascii.Error, ValueError):
        return None
    size = _png(data) or _webp(data) or _jpeg(data)
    return size if size is not None and all(size) else None


def _png(data: bytes) -> Size | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _webp(data: bytes) -> Size | None:
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


def _jpeg(data: bytes) -> Size | None:
    """The frame says it; segments before that are passed over by their lengths."""
    place = 2 if data[:2] == b"\xff\xd8" else len(data)
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[place + 7 : place + 9]), int.from_bytes(data[place + 5 : place + 7])
        place += 2 + int.from_bytes(data[place + 2 : place + 4])
    return None
