"""Server-sent events: frames from bytes cut anywhere, and frames as bytes.

A frame ends at an empty line; lines end in LF, CRLF or CR. `data` lines join with LF, comments are dropped. What is an
object without a name is data, too. Whether it is text is only asked of a whole frame, so a character cut in two needs
no care.

Newline-delimited JSON: lines from bytes cut anywhere, and lines as bytes.

Whole frames of a stream as they came, for a client of the same protocol.

A stream as one JSON array that grows, for a client that asks for no server-sent events.

Frames that stay whole for readers that split text into lines, as httpx does for several SDKs.
"""

import re
from collections.abc import Callable

LIMIT_FRAME = 64 * 1024 * 1024

# The one line of data that nearly every frame has, with the frame's end.
_DATA_LINE_FRAME = re.compile(rb"\ndata: ?(.*)\n(?=\n)")
_DATA_LINES = re.compile(rb"^data(?:: ?(.*))?$", re.MULTILINE)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DATA_LINE_BREAK = b"\ndata: "


class SseSplitter:
    """Takes bytes, gives the data of each whole frame. Names of events are dropped: all protocols say them in data."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._started = False
        self._after_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        head = self.complete_frames(data)
        if head is None:
            return []
        pieces = _DATA_LINE_FRAME.split(b"\n%b\n\n" % head)
        between = b"".join(pieces[::2])
        if b"\ndata" not in between and b"{" not in between:
            frames = pieces[1::2]
        else:
            frames = [said for text in head.split(b"\n\n") if (said := frame_data(text)) is not None]
        return frames if head.isascii() else list(map(truncate_at_invalid_utf8, frames))

    def split_at(self, data: bytes, end: bytes) -> list[bytes]:
        """The frames as they are, cut behind those that end with this, and without it: for a reader that knows most of
        them by their beginning and their end. Behind the last cut there are the others, if any. See `data_of`."""
        head = self.complete_frames(data)
        if head is None:
            return [b""]
        if not head.isascii() and truncate_at_invalid_utf8(head) is not head:
            frames = [(frame, truncate_at_invalid_utf8(frame)) for frame in head.split(b"\n\n")]
            return [b"\n\n".join([frame if text is frame else b"data: " + text for frame, text in frames])]
        return (head + b"\n\n").split(end + b"\n\n")

    def complete_frames(self, data: bytes) -> bytes | None:
        """All whole frames that there are now, without the end of the last one."""
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
        head, found, rest = data.rpartition(b"\n\n")
        if rest:
            self._buffer(rest)
        if not found:
            return None
        if not self._started:
            self._started = True
            head = head.removeprefix(_BYTE_ORDER_MARK)
        return head

    def _normalize_line_ends(self, data: bytes) -> bytes:
        """LF for every line end. A CR ends its line at once: the LF that may follow it is then no other end."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _buffer(self, data: bytes) -> None:
        """Hold a piece of an unfinished frame. Pieces are joined once, when it ends."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_FRAME:
            raise ValueError(f"a frame of more than {LIMIT_FRAME} bytes")

    def close(self) -> list[bytes]:
        """The data of what was left without its empty line: servers do close like that."""
        return self.feed(self.take_rest())

    def close_split_at(self, end: bytes) -> list[bytes]:
        return self.split_at(self.take_rest(), end)

    def take_rest(self) -> bytes:
        rest = b"".join(self._pieces).rstrip(b"\n")
        self._pieces, self._size = [], 0
        return rest + b"\n\n" if rest else b""


def frame_data(frame: bytes) -> bytes | None:
    """The data of a frame, if it has any. Google breaks a stream off with an error that has no name: its SDKs know."""
    if lines := _DATA_LINES.findall(frame):
        return b"\n".join(lines)
    bare = frame.strip(b"\n")
    return bare if bare[:1] == b"{" else None


def truncate_at_invalid_utf8(data: bytes) -> bytes:
    """The data; of what is not UTF-8 just the first bad byte, which no reader takes. Values that are passed on as they
    are would else carry it with them."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data[error.start : error.start + 1]
    return data


def encode_sse_frame(data: bytes, event: bytes | None = None) -> bytes:
    """A frame. A name that a line can't hold is left out: it is in the data, too."""
    if b"\n" in data or b"\r" in data:
        data = as_data_lines(data)
    if event is None or b"\n" in event or b"\r" in event:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event, data)


def as_data_lines(data: bytes) -> bytes:
    """Data, or a piece of it, as it stands after `data: `: JSON that is kept as its source wrote it may have lines."""
    return _DATA_LINE_BREAK.join(data.splitlines()) if b"\n" in data or b"\r" in data else data


def unnamed_frame_data(frame: bytes) -> bytes:
    """The data of a frame that has no name."""
    return frame.removeprefix(b"data: ").replace(_DATA_LINE_BREAK, b"\n")


LIMIT_LINE = 64 * 1024 * 1024


class LineSplitter:
    """Yields each line that is not blank."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        ended, newline, rest = data.rpartition(b"\n")
        lines = b"".join((*self._take_pieces(), ended)).split(b"\n") if newline else []
        if rest:
            self._buffer(rest)
        return [stripped for line in lines if (stripped := line.strip())]

    def _buffer(self, data: bytes) -> None:
        """Hold a piece of an unfinished line. Pieces are joined once, when it ends."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_LINE:
            raise ValueError(f"a line of more than {LIMIT_LINE} bytes")

    def _take_pieces(self) -> list[bytes]:
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces

    def close(self) -> list[bytes]:
        rest = b"".join(self._take_pieces()).strip()
        return [rest] if rest else []


def encode_line(data: bytes) -> bytes:
    return data + b"\n"


FrameFilter = Callable[[bytes], bytes]
"""Changes a frame that a client did not ask for, or drops it: then it is empty."""


class FrameSplitter:
    """Takes bytes, gives whole frames, each with its end: events of server-sent events, or lines of JSON. The last two
    frames come one by one, since a stream ends there; all frames before them come as one batch, which `split` cuts."""

    def __init__(self, *, lines: bool) -> None:
        self._splitter = LineSplitter() if lines else SseSplitter()
        self._end = b"\n" if lines else b"\n\n"

    def feed(self, data: bytes) -> list[bytes]:
        if isinstance(self._splitter, LineSplitter):
            return _batch([line + b"\n" for line in self._splitter.feed(data)])
        head = self._splitter.complete_frames(data)
        return [] if head is None else _split_last_frames(head)

    def split(self, batch: bytes) -> list[bytes]:
        """Cut a batch into its frames."""
        return [text + self._end for text in batch.split(self._end) if text.strip(b"\n")]

    def first_two(self, batch: bytes) -> bytes:
        """Return the first two frames of a batch."""
        return batch[: len(batch) - len(rest[2])] if len(rest := batch.split(self._end, 2)) > 2 else batch

    def close(self) -> list[bytes]:
        """What was left without its end."""
        if isinstance(self._splitter, LineSplitter):
            return _batch([line + b"\n" for line in self._splitter.close()])
        head = self._splitter.complete_frames(self._splitter.take_rest())
        return [] if head is None else _split_last_frames(head)


def _split_last_frames(head: bytes) -> list[bytes]:
    if b"\n\n" not in head:
        return [head + b"\n\n"]
    if b"\n\n\n" in head or head.startswith(b"\n"):
        return _batch(_split_frames(head))  # blank frames are dropped
    return [text + b"\n\n" for text in head.rsplit(b"\n\n", 2)]


def _batch(frames: list[bytes]) -> list[bytes]:
    return [b"".join(frames[:-2]), *frames[-2:]] if len(frames) > 2 else frames


def _split_frames(head: bytes) -> list[bytes]:
    if b"\n\n" not in head:
        return [head + b"\n\n"]
    return [text + b"\n\n" for text in head.split(b"\n\n") if text.strip(b"\n")]


JSON_MEDIA_TYPE = b"application/json"


class JsonArrayFramer:
    """Takes whole frames of server-sent events, gives the same as elements. Comments become space between them."""

    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._started = False

    def add(self, frames: bytes) -> bytes:
        elements = self._splitter.feed(frames)
        if not elements:
            return b"\n" if frames and self._started else b""
        opening, self._started = (b"\n,\n" if self._started else b"["), True
        return opening + b"\n,\n".join(elements)

    def close(self) -> bytes:
        return b"\n]\n" if self._started else b"[]\n"


def escape_line_separators(frames: bytes) -> bytes:
    """The frames, with what Unicode also calls the end of a line escaped: JSON has it in strings only."""
    if frames.isascii() or not (b"\xe2\x80" in frames or b"\xc2\x85" in frames):
        return frames
    return (
        frames.replace(b"\xe2\x80\xa8", rb"\u2028")
        .replace(b"\xe2\x80\xa9", rb"\u2029")
        .replace(b"\xc2\x85", rb"\u0085")
    )
