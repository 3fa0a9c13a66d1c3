"""A part of a text file, cut at lines, and what is said of what was left out."""

import os
from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile

from msgspec import Struct

from toolwire.runtime.toolset import ToolFault

from .text import decoded

MOST_LINES = 2000
MOST_CHARACTERS = 36_000
"""Below what a call may give, so that the cut is made here, where it can be said how to go on."""
MOST_SCANNED = 512 * 1024 * 1024
MOST_COUNTED = 64 * 1024 * 1024
"""Up to this size a file's lines are counted to its end."""


def fitting(lines: Sequence[str], most: int) -> int:
    """How many of them can be given."""
    ends = accumulate(len(line) + 1 for line in lines[:most])
    return sum(1 for _ in takewhile(lambda end: end <= MOST_CHARACTERS, ends))


class Window(Struct):
    """A part of a text file: `first` counts from 0, `lines` are told in full, `within`: the last one is cut."""

    content: bytes
    first: int
    lines: int
    more: bool
    within: bool
    total: int | None


def pieces(handle: int) -> Iterator[bytes]:
    while piece := os.read(handle, 1 << 18):
        yield piece


def pieces_of(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 1 << 18):
        yield content[start : start + (1 << 18)]


def cut_from(pieces: Iterator[bytes], size: int, offset: int, limit: int) -> Window:
    kept, seen, scanned = bytearray(), 0, 0
    ended, count = False, size <= MOST_COUNTED
    tail = b""
    for piece in pieces:
        scanned += len(piece)
        if scanned > MOST_SCANNED:
            raise ToolFault(
                f"line {offset} is more than {MOST_SCANNED} bytes into the file: take it apart with shell commands",
                "too_large",
            )
        tail = piece[-1:]
        if not ended:
            start = _past(piece, max(0, offset - seen))
            if start is not None:
                kept += piece[start:]
                ended = len(kept) > 4 * MOST_CHARACTERS or kept.count(b"\n") > limit
        seen += piece.count(b"\n")
        if ended and not count:
            break
    total = seen + (tail not in (b"", b"\n")) if count else None
    return _trimmed(bytes(kept), offset, limit, total, more=ended)


def _past(piece: bytes, lines: int) -> int | None:
    """Where the text after so many lines begins in this piece."""
    start = 0
    for _ in range(lines):
        start = piece.find(b"\n", start) + 1
        if start == 0:
            return None
    return start


def _trimmed(kept: bytes, offset: int, limit: int, total: int | None, *, more: bool) -> Window:
    lines = _by_newline(kept)
    taken, length = 0, 0
    for line in lines[:limit]:
        if length + len(line) > MOST_CHARACTERS:
            break
        length += len(line)
        taken += 1
    within = taken == 0 and bool(lines)
    content = lines[0][:MOST_CHARACTERS] if within else b"".join(lines[:taken])
    return Window(content, offset, taken, more or taken < len(lines), within, total)


def _by_newline(kept: bytes) -> list[bytes]:
    pieces = kept.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def with_notes(window: Window, name: str) -> str:
    whole = decoded(window.content, "utf-8-sig" if name == "utf-8-sig" else "utf-8", whole=not window.within)
    notes = list[str]()
    if name not in ("utf-8", "utf-8-sig"):
        notes.append(f"The file is {name.upper()}.")
    if whole.replaced:
        notes.append(f"{whole.replaced} sequences of bytes are not UTF-8 and are shown as \ufffd.")
    of = "" if window.total is None else f" of {window.total}"
    if window.within:
        notes.append(
            f"Line {window.first + 1}{of} is cut after {len(window.content)} bytes. For the lines after it, read with"
            f" offset={window.first + 1}."
        )
    elif window.lines == 0 and window.first:
        notes.append(f"There is no line {window.first + 1}{': the file has' + of[3:] if of else ''}.")
    elif window.more or window.first:
        last = window.first + window.lines
        further = f" For the next ones, read with offset={last}." if window.more else ""
        notes.append(f"Lines {window.first + 1} to {last}{of} are shown.{further}")
    if not notes:
        return whole.text
    gap = "" if not whole.text or whole.text.endswith("\n") else "\n"
    return f"{whole.text}{gap}[{' '.join(notes)}]"
