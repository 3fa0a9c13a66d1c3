"""What bytes are: an image, a document, text in some encoding, or nothing that can be shown.

A part of a text file, cut at lines, and what is said of what was left out.
"""

import base64
import codecs
import os
from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Literal

from msgspec import Struct

from toolwire.canonical.content import Inline, Media
from toolwire.runtime.tool import ToolError

_MAGIC_NUMBERS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_BYTE_ORDER_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # UTF-32 first: its mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
SNIFFED_BYTES = 8192
"""How much of a file is looked at to tell what it is, as git does."""


def sniff_media_type(head: bytes) -> str | None:
    """The kind of image or document that models can be shown, by its first bytes: a name may lie."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _MAGIC_NUMBERS if head.startswith(signature)), None)


def media_part(content: bytes, media_type: str, name: str | None) -> Media:
    shape: Literal["image", "document"] = "image" if media_type.startswith("image/") else "document"
    return Media(kind=shape, source=Inline(data=base64.b64encode(content).decode()), media_type=media_type, name=name)


def sniff_encoding(head: bytes) -> str | None:
    """The encoding that its first bytes speak for; None if it is no text."""
    marked = next((name for mark, name in _BYTE_ORDER_MARKS if head.startswith(mark)), None)
    if marked is not None:
        return marked
    return None if b"\0" in head[:SNIFFED_BYTES] else "utf-8"


class DecodedText(Struct, frozen=True):
    """`replaced`: how many characters stand for bytes that are none."""

    text: str
    replacements: int = 0


def decode_text(content: bytes, encoding: str, *, final: bool = True) -> DecodedText:
    """Text of an encoding. If it is not `whole`, what is begun at its end is left out."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(content, final=final)
    return DecodedText(text, text.count("\ufffd") - _count_literal_replacements(content, encoding))


def _count_literal_replacements(content: bytes, encoding: str) -> int:
    """How often the replacement character itself was written."""
    return content.count("\ufffd".encode()) if encoding.startswith("utf-8") else 0


MAX_LINES = 2000
MAX_CHARACTERS = 36_000
"""Below what a call may give, so that the cut is made here, where it can be said how to go on."""
MAX_SCANNED_BYTES = 512 * 1024 * 1024
MAX_COUNTED_BYTES = 64 * 1024 * 1024
"""Up to this size a file's lines are counted to its end."""


def count_fitting_lines(lines: Sequence[str], limit: int) -> int:
    """How many of them can be given."""
    ends = accumulate(len(line) + 1 for line in lines[:limit])
    return sum(1 for _ in takewhile(lambda end: end <= MAX_CHARACTERS, ends))


class Excerpt(Struct):
    """A part of a text file: `first` counts from 0, `lines` are told in full, `within`: the last one is cut."""

    content: bytes
    first_line: int
    line_count: int
    has_more: bool
    cuts_line: bool
    total_lines: int | None


def read_chunks(handle: int) -> Iterator[bytes]:
    while piece := os.read(handle, 1 << 18):
        yield piece


def split_chunks(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 1 << 18):
        yield content[start : start + (1 << 18)]


def take_excerpt(chunks: Iterator[bytes], size: int, offset: int, limit: int) -> Excerpt:
    kept, seen, scanned = bytearray(), 0, 0
    ended, count = False, size <= MAX_COUNTED_BYTES
    tail = b""
    for piece in chunks:
        scanned += len(piece)
        if scanned > MAX_SCANNED_BYTES:
            raise ToolError(
                f"line {offset} is more than {MAX_SCANNED_BYTES} bytes into the file: "
                "take it apart with shell commands",
                "too_large",
            )
        tail = piece[-1:]
        if not ended:
            start = _offset_after_lines(piece, max(0, offset - seen))
            if start is not None:
                kept += piece[start:]
                ended = len(kept) > 4 * MAX_CHARACTERS or kept.count(b"\n") > limit
        seen += piece.count(b"\n")
        if ended and not count:
            break
    total = seen + (tail not in (b"", b"\n")) if count else None
    return _trim_excerpt(bytes(kept), offset, limit, total, has_more=ended)


def _offset_after_lines(chunk: bytes, lines: int) -> int | None:
    """Where the text after so many lines begins in this piece."""
    start = 0
    for _ in range(lines):
        start = chunk.find(b"\n", start) + 1
        if start == 0:
            return None
    return start


def _trim_excerpt(data: bytes, offset: int, limit: int, total_lines: int | None, *, has_more: bool) -> Excerpt:
    lines = _split_lines(data)
    taken, length = 0, 0
    for line in lines[:limit]:
        if length + len(line) > MAX_CHARACTERS:
            break
        length += len(line)
        taken += 1
    within = taken == 0 and bool(lines)
    content = lines[0][:MAX_CHARACTERS] if within else b"".join(lines[:taken])
    return Excerpt(content, offset, taken, has_more or taken < len(lines), within, total_lines)


def _split_lines(data: bytes) -> list[bytes]:
    pieces = data.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def render_excerpt(excerpt: Excerpt, encoding: str) -> str:
    whole = decode_text(
        excerpt.content, "utf-8-sig" if encoding == "utf-8-sig" else "utf-8", final=not excerpt.cuts_line
    )
    notes = list[str]()
    if encoding not in ("utf-8", "utf-8-sig"):
        notes.append(f"The file is {encoding.upper()}.")
    if whole.replacements:
        notes.append(f"{whole.replacements} sequences of bytes are not UTF-8 and are shown as \ufffd.")
    of = "" if excerpt.total_lines is None else f" of {excerpt.total_lines}"
    if excerpt.cuts_line:
        notes.append(
            f"Line {excerpt.first_line + 1}{of} is cut after {len(excerpt.content)} bytes. "
            "For the lines after it, read with"
            f" offset={excerpt.first_line + 1}."
        )
    elif excerpt.line_count == 0 and excerpt.first_line:
        notes.append(f"There is no line {excerpt.first_line + 1}{': the file has' + of[3:] if of else ''}.")
    elif excerpt.has_more or excerpt.first_line:
        last = excerpt.first_line + excerpt.line_count
        further = f" For the next ones, read with offset={last}." if excerpt.has_more else ""
        notes.append(f"Lines {excerpt.first_line + 1} to {last}{of} are shown.{further}")
    if not notes:
        return whole.text
    gap = "" if not whole.text or whole.text.endswith("\n") else "\n"
    return f"{whole.text}{gap}[{' '.join(notes)}]"
