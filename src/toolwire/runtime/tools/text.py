"""What bytes are: an image, a document, text in some encoding, or nothing that can be shown."""

import base64
import codecs
from typing import Literal

from msgspec import Struct

from toolwire.canonical.content import Inline, Media

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # UTF-32 first: its mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LOOKED_AT = 8192
"""How much of a file is looked at to tell what it is, as git does."""


def media_type(head: bytes) -> str | None:
    """The kind of image or document that models can be shown, by its first bytes: a name may lie."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), None)


def as_media(content: bytes, kind: str, name: str | None) -> Media:
    shape: Literal["image", "document"] = "image" if kind.startswith("image/") else "document"
    return Media(kind=shape, source=Inline(data=base64.b64encode(content).decode()), media_type=kind, name=name)


def encoding(head: bytes) -> str | None:
    """The encoding that its first bytes speak for; None if it is no text."""
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    if marked is not None:
        return marked
    return None if b"\0" in head[:LOOKED_AT] else "utf-8"


class Decoded(Struct, frozen=True):
    """`replaced`: how many characters stand for bytes that are none."""

    text: str
    replaced: int = 0


def decoded(content: bytes, name: str, *, whole: bool = True) -> Decoded:
    """Text of an encoding. If it is not `whole`, what is begun at its end is left out."""
    text = codecs.getincrementaldecoder(name)("replace").decode(content, final=whole)
    return Decoded(text, text.count("\ufffd") - _meant(content, name))


def _meant(content: bytes, name: str) -> int:
    """How often the replacement character itself was written."""
    return content.count("\ufffd".encode()) if name.startswith("utf-8") else 0
