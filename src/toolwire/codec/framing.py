"""Stream framing: server-sent events (SSE), newline-delimited JSON, and JSON arrays.

Splitters accept bytes cut anywhere. An SSE frame ends at an empty line; lines end in LF, CRLF or CR. `data` lines are
joined with LF and comments are dropped. A frame that is a bare JSON object counts as data. UTF-8 is validated per
complete frame, so that a character cut in two needs no care.
"""

import re
from collections.abc import Callable

LIMIT_FRAME = 64 * 1024 * 1024

# The single data line of nearly every frame, with the end of the frame.
_DATA_LINE_FRAME = re.compile(rb"\ndata: ?(.*)\n(?=\n)")
_DATA_LINES = re.compile(rb"^data(?:: ?(.*))?$", re.MULTILINE)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DATA_LINE_BREAK = b"\ndata: "


class SseSplitter:
    """Splits SSE bytes into the data of each complete frame. Event names are dropped; the data repeats them."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._started = False
        self._after_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the data of the frames that are now complete."""
        head = self.complete_frames(data)
        if head is None:
            return []
        pieces = _DATA_LINE_FRAME.split(b"\n%b\n\n" % head)
        between = b"".join(pieces[::2])
        if b"\ndata" not in between and b"{" not in between:
            frames = pieces[1::2]
        else:
            frames = [payload for text in head.split(b"\n\n") if (payload := frame_data(text)) is not None]
        return frames if head.isascii() else list(map(truncate_at_invalid_utf8, frames))

    def complete_frames(self, data: bytes) -> bytes | None:
        """Add bytes and return all frames that are now complete, joined, without the blank line after the last.

        None if no frame is complete.
        """
        if self._after_cr or b"\r" in data:
            data = self._normalize_line_ends(data)
        if not data:
            return None
        if self._pieces:
            if b"\n\n" not in self._pieces[-1][-1:] + data:
                self._buffer(data)
                return None
            data = b"".join(self._pieces) + data
            self._pieces, self._size = [], 0
        head, separator, incomplete = data.rpartition(b"\n\n")
        if incomplete:
            self._buffer(incomplete)
        if not separator:
            return None
        if not self._started:
            self._started = True
            head = head.removeprefix(_BYTE_ORDER_MARK)
        return head

    def _normalize_line_ends(self, data: bytes) -> bytes:
        """Replace every line end by LF; CR followed by LF counts once, even across chunks."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _buffer(self, data: bytes) -> None:
        """Keep a piece of an incomplete frame; pieces are joined once, when the frame ends."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_FRAME:
            raise ValueError(f"SSE frame exceeds {LIMIT_FRAME} bytes")

    def close(self) -> list[bytes]:
        """Return the data of a last frame that lacks its empty line, as some servers send it."""
        return self.feed(self.take_rest())

    def take_rest(self) -> bytes:
        """Return the incomplete frame with its end added, and clear the buffer."""
        incomplete = b"".join(self._pieces).rstrip(b"\n")
        self._pieces, self._size = [], 0
        return incomplete + b"\n\n" if incomplete else b""


def frame_data(frame: bytes) -> bytes | None:
    """Return the joined `data` lines of a frame; None if it has none.

    Google ends a broken stream with a bare JSON error object, which its SDKs accept as data.
    """
    if lines := _DATA_LINES.findall(frame):
        return b"\n".join(lines)
    bare = frame.strip(b"\n")
    return bare if bare[:1] == b"{" else None


def truncate_at_invalid_utf8(data: bytes) -> bytes:
    """Return valid UTF-8 unchanged, and otherwise only its first invalid byte, which every JSON decoder rejects.

    Raw values that are forwarded verbatim would otherwise carry the invalid bytes along.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data[error.start : error.start + 1]
    return data


def encode_sse_frame(data: bytes, event: bytes | None = None) -> bytes:
    """Encode an SSE frame; an event name that contains a line end is left out."""
    if b"\n" in data or b"\r" in data:
        data = as_data_lines(data)
    if event is None or b"\n" in event or b"\r" in event:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event, data)


def as_data_lines(data: bytes) -> bytes:
    """Return the data with `data: ` before each line but the first, since raw JSON may span lines."""
    return _DATA_LINE_BREAK.join(data.splitlines()) if b"\n" in data or b"\r" in data else data


def unnamed_frame_data(frame: bytes) -> bytes:
    """Return the joined `data` lines of a frame that has no event name."""
    return frame.removeprefix(b"data: ").replace(_DATA_LINE_BREAK, b"\n")


LIMIT_LINE = 64 * 1024 * 1024


class LineSplitter:
    """Splits bytes into lines, without blank ones."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the complete lines."""
        complete, newline, incomplete = data.rpartition(b"\n")
        lines = b"".join((*self._take_pieces(), complete)).split(b"\n") if newline else []
        if incomplete:
            self._buffer(incomplete)
        return [stripped for line in lines if (stripped := line.strip())]

    def _buffer(self, data: bytes) -> None:
        """Keep a piece of an incomplete line; pieces are joined once, when the line ends."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_LINE:
            raise ValueError(f"line exceeds {LIMIT_LINE} bytes")

    def _take_pieces(self) -> list[bytes]:
        """Return the buffered pieces and clear the buffer."""
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces

    def close(self) -> list[bytes]:
        """Return the last line if its line end is missing."""
        line = b"".join(self._take_pieces()).strip()
        return [line] if line else []


def encode_line(data: bytes) -> bytes:
    """Return the data as one line of an NDJSON stream."""
    return data + b"\n"


FrameFilter = Callable[[bytes], bytes]
"""Rewrites a frame for a client that did not request all of it; an empty result drops the frame."""


class FrameSplitter:
    """Splits bytes into complete frames with their ends: SSE events or lines of JSON.

    The last two frames are returned one by one, since a stream ends there. All frames before them are returned as
    one batch, which `split` separates.
    """

    def __init__(self, *, lines: bool) -> None:
        self._splitter = LineSplitter() if lines else SseSplitter()
        self._end = b"\n" if lines else b"\n\n"

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the complete frames verbatim: a batch of joined frames, then the last two one by one."""
        if isinstance(self._splitter, LineSplitter):
            return _batch([line + b"\n" for line in self._splitter.feed(data)])
        head = self._splitter.complete_frames(data)
        return [] if head is None else _split_last_frames(head)

    def split(self, batch: bytes) -> list[bytes]:
        """Return the frames of a batch one by one."""
        return [text + self._end for text in batch.split(self._end) if text.strip(b"\n")]

    def first_two(self, batch: bytes) -> bytes:
        """Return the first two frames of a batch."""
        return batch[: len(batch) - len(rest[2])] if len(rest := batch.split(self._end, 2)) > 2 else batch

    def close(self) -> list[bytes]:
        """Return the last frame if its end is missing, with its end added; at most one."""
        if isinstance(self._splitter, LineSplitter):
            return _batch([line + b"\n" for line in self._splitter.close()])
        head = self._splitter.complete_frames(self._splitter.take_rest())
        return [] if head is None else _split_last_frames(head)


def _split_last_frames(head: bytes) -> list[bytes]:
    """Return the frames before the last two as one batch, then the last two, each with its end."""
    if b"\n\n" not in head:
        return [head + b"\n\n"]
    if b"\n\n\n" in head or head.startswith(b"\n"):
        return _batch(_split_frames(head))  # blank frames are dropped
    return [text + b"\n\n" for text in head.rsplit(b"\n\n", 2)]


def _batch(frames: list[bytes]) -> list[bytes]:
    """Return the frames with all but the last two joined to one batch."""
    return [b"".join(frames[:-2]), *frames[-2:]] if len(frames) > 2 else frames


def _split_frames(head: bytes) -> list[bytes]:
    """Return complete SSE frames one by one, each with its end."""
    if b"\n\n" not in head:
        return [head + b"\n\n"]
    return [text + b"\n\n" for text in head.split(b"\n\n") if text.strip(b"\n")]


JSON_MEDIA_TYPE = b"application/json"


class JsonArrayFramer:
    """Converts SSE frames into the elements of one growing JSON array. Comments become whitespace."""

    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._started = False

    def add(self, frames: bytes) -> bytes:
        """Return complete SSE frames as elements of the JSON array."""
        elements = self._splitter.feed(frames)
        if not elements:
            return b"\n" if frames and self._started else b""
        opening, self._started = (b"\n,\n" if self._started else b"["), True
        return opening + b"\n,\n".join(elements)

    def close(self) -> bytes:
        """Return the end of the JSON array."""
        return b"\n]\n" if self._started else b"[]\n"


def escape_line_separators(frames: bytes) -> bytes:
    """Escape Unicode line separators in frames of JSON.

    Readers that split text with `splitlines`, as httpx does for several SDKs, would otherwise break such frames.
    """
    if frames.isascii():
        return frames
    # Searching for one byte, and splitting at it, is far faster than searching for several.
    if _FIRST_OF_SEPARATOR in frames and any(rest.startswith(_SEPARATOR_RESTS) for rest in frames.split(b"\xe2")):
        frames = frames.replace(b"\xe2\x80\xa8", rb"\u2028").replace(b"\xe2\x80\xa9", rb"\u2029")
    if _FIRST_OF_NEXT_LINE in frames and any(rest.startswith(b"\x85") for rest in frames.split(b"\xc2")):
        frames = frames.replace(b"\xc2\x85", rb"\u0085")
    return frames


_FIRST_OF_SEPARATOR, _FIRST_OF_NEXT_LINE = 0xE2, 0xC2
_SEPARATOR_RESTS = (b"\x80\xa8", b"\x80\xa9")
