"""File contents for a model: media types by signature, text encodings, and excerpts of long texts cut at lines."""

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
"""The number of bytes inspected to detect the type of a file, as in git."""


def sniff_media_type(head: bytes) -> str | None:
    """Return the media type of an image or document by its first bytes; None if it is neither."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _MAGIC_NUMBERS if head.startswith(signature)), None)


def media_part(content: bytes, media_type: str, name: str | None) -> Media:
    """Return image or document data as a content part."""
    kind: Literal["image", "document"] = "image" if media_type.startswith("image/") else "document"
    return Media(kind=kind, source=Inline(data=base64.b64encode(content).decode()), media_type=media_type, name=name)


def sniff_encoding(head: bytes) -> str | None:
    """Return the text encoding by the first bytes; None if it is not text."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if head.startswith(mark)), None)
    if encoding is not None:
        return encoding
    return None if b"\0" in head[:SNIFFED_BYTES] else "utf-8"


class DecodedText(Struct, frozen=True):
    """A decoded text."""

    text: str
    # The number of invalid byte sequences, each replaced with U+FFFD.
    replacements: int = 0


def decode_text(content: bytes, encoding: str, *, final: bool = True) -> DecodedText:
    """Decode a text. Unless `final`, an incomplete character at its end is dropped."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(content, final=final)
    return DecodedText(text, text.count("\ufffd") - _count_literal_replacements(content, encoding))


def _count_literal_replacements(content: bytes, encoding: str) -> int:
    """Count the U+FFFD characters that the text itself contains."""
    return content.count("\ufffd".encode()) if encoding.startswith("utf-8") else 0


MAX_LINES = 2000
MAX_CHARACTERS = 36_000
"""Below the output limit of a call, so that the text is cut here, with a note on how to read on."""
MAX_SCANNED_BYTES = 512 * 1024 * 1024
MAX_COUNTED_BYTES = 64 * 1024 * 1024
"""The lines of larger files are not counted."""


def count_fitting_lines(lines: Sequence[str], limit: int) -> int:
    """Return how many of the first `limit` lines fit into `MAX_CHARACTERS` characters of output."""
    ends = accumulate(len(line) + 1 for line in lines[:limit])
    return sum(1 for _ in takewhile(lambda end: end <= MAX_CHARACTERS, ends))


class Excerpt(Struct):
    """A part of a text file."""

    content: bytes
    # Counted from 0.
    first_line: int
    # The number of complete lines.
    line_count: int
    has_more: bool
    # Whether a single line was too long and is cut.
    cuts_line: bool
    total_lines: int | None


def read_chunks(handle: int) -> Iterator[bytes]:
    """Yield the content of an open file in chunks."""
    while chunk := os.read(handle, 1 << 18):
        yield chunk


def split_chunks(content: bytes) -> Iterator[bytes]:
    """Yield the content in chunks, as `read_chunks` does for a file."""
    for start in range(0, len(content), 1 << 18):
        yield content[start : start + (1 << 18)]


def take_excerpt(chunks: Iterator[bytes], size: int, offset: int, limit: int) -> Excerpt:
    """Take up to `limit` lines from line `offset` on. Lines are counted to the end of files that are not too long."""
    data, lines_seen, scanned = bytearray(), 0, 0
    is_full, counts_lines = False, size <= MAX_COUNTED_BYTES
    last_byte = b""
    for chunk in chunks:
        scanned += len(chunk)
        if scanned > MAX_SCANNED_BYTES:
            raise ToolError(
                f"line {offset} is more than {MAX_SCANNED_BYTES} bytes into the file: use shell commands to read it",
                "too_large",
            )
        last_byte = chunk[-1:]
        if not is_full:
            start = _offset_after_lines(chunk, max(0, offset - lines_seen))
            if start is not None:
                data += chunk[start:]
                is_full = len(data) > 4 * MAX_CHARACTERS or data.count(b"\n") > limit
        lines_seen += chunk.count(b"\n")
        if is_full and not counts_lines:
            break
    total = lines_seen + (last_byte not in (b"", b"\n")) if counts_lines else None
    return _trim_excerpt(bytes(data), offset, limit, total, has_more=is_full)


def _offset_after_lines(chunk: bytes, lines: int) -> int | None:
    """Return the byte offset after so many lines of a chunk; None if it has fewer."""
    start = 0
    for _ in range(lines):
        start = chunk.find(b"\n", start) + 1
        if start == 0:
            return None
    return start


def _trim_excerpt(data: bytes, offset: int, limit: int, total_lines: int | None, *, has_more: bool) -> Excerpt:
    """Cut the data to the lines and characters that fit."""
    lines = _split_lines(data)
    line_count, length = 0, 0
    for line in lines[:limit]:
        if length + len(line) > MAX_CHARACTERS:
            break
        length += len(line)
        line_count += 1
    cuts_line = line_count == 0 and bool(lines)
    content = lines[0][:MAX_CHARACTERS] if cuts_line else b"".join(lines[:line_count])
    return Excerpt(content, offset, line_count, has_more or line_count < len(lines), cuts_line, total_lines)


def _split_lines(data: bytes) -> list[bytes]:
    """Split data into lines that keep their endings."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def render_excerpt(excerpt: Excerpt, encoding: str, *, line_numbers: bool = False) -> str:
    """Return the excerpt as text, with its lines numbered if required, and notes on what was left out."""
    decoded = decode_text(
        excerpt.content, "utf-8-sig" if encoding == "utf-8-sig" else "utf-8", final=not excerpt.cuts_line
    )
    notes = list[str]()
    if encoding not in ("utf-8", "utf-8-sig"):
        notes.append(f"The file is {encoding.upper()}.")
    if decoded.replacements:
        notes.append(f"{decoded.replacements} byte sequences are not valid UTF-8 and are shown as \ufffd.")
    of_total = "" if excerpt.total_lines is None else f" of {excerpt.total_lines}"
    if excerpt.cuts_line:
        notes.append(
            f"Line {excerpt.first_line + 1}{of_total} is cut after {len(excerpt.content)} bytes. "
            f"To read on, use offset={excerpt.first_line + 1}."
        )
    elif excerpt.line_count == 0 and excerpt.first_line:
        notes.append(f"There is no line {excerpt.first_line + 1}{': the file has' + of_total[3:] if of_total else ''}.")
    elif excerpt.has_more or excerpt.first_line:
        last = excerpt.first_line + excerpt.line_count
        hint = f" To read on, use offset={last}." if excerpt.has_more else ""
        notes.append(f"Lines {excerpt.first_line + 1} to {last}{of_total} are shown.{hint}")
    text = _number_lines(decoded.text, excerpt.first_line + 1) if line_numbers else decoded.text
    if not notes:
        return text
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}[{' '.join(notes)}]"


def _number_lines(text: str, first: int) -> str:
    """Return the text with the number of each line before it."""
    lines = text.split("\n")
    ended = [""] if lines[-1] == "" else []
    numbered = [f"{number}: {line}" for number, line in enumerate(lines[: len(lines) - len(ended)], first)]
    return "\n".join(numbered + ended)
