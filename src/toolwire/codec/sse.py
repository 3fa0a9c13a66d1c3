"""Server-sent events: frames from bytes cut anywhere, and frames as bytes.

A frame ends at an empty line; lines end in LF, CRLF or CR. `data` lines join with LF, comments are dropped. What is an
object without a name is data, too. Whether it is text is only asked of a whole frame, so a character cut in two needs
no care.
"""

import re

LIMIT_FRAME = 64 * 1024 * 1024

# The one line of data that nearly every frame has, with the frame's end.
_ONE_LINE = re.compile(rb"\ndata: ?(.*)\n(?=\n)")
_DATA_LINES = re.compile(rb"^data(?:: ?(.*))?$", re.MULTILINE)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CONTINUED = b"\ndata: "


class SseSplitter:
    """Takes bytes, gives the data of each whole frame. Names of events are dropped: all protocols say them in data."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._begun = False
        self._after_return = False

    def feed(self, data: bytes) -> list[bytes]:
        head = self.whole(data)
        if head is None:
            return []
        pieces = _ONE_LINE.split(b"\n%b\n\n" % head)
        between = b"".join(pieces[::2])
        if b"\ndata" not in between and b"{" not in between:
            frames = pieces[1::2]
        else:
            frames = [said for text in head.split(b"\n\n") if (said := data_of(text)) is not None]
        return frames if head.isascii() else list(map(only_text, frames))

    def ended(self, data: bytes, end: bytes) -> list[bytes]:
        """The frames as they are, cut behind those that end with this, and without it: for a reader that knows most of
        them by their beginning and their end. Behind the last cut there are the others, if any. See `data_of`."""
        head = self.whole(data)
        if head is None:
            return [b""]
        if not head.isascii() and only_text(head) is not head:
            frames = [(frame, only_text(frame)) for frame in head.split(b"\n\n")]
            return [b"\n\n".join([frame if text is frame else b"data: " + text for frame, text in frames])]
        return (head + b"\n\n").split(end + b"\n\n")

    def whole(self, data: bytes) -> bytes | None:
        """All whole frames that there are now, without the end of the last one."""
        if self._after_return or b"\r" in data:
            data = self._normalised(data)
        if not data:
            return None
        if self._pieces:
            if b"\n\n" not in self._pieces[-1][-1:] + data:
                self._keep(data)
                return None
            data = b"".join(self._pieces) + data
            self._pieces, self._size = [], 0
        head, found, rest = data.rpartition(b"\n\n")
        if rest:
            self._keep(rest)
        if not found:
            return None
        if not self._begun:
            self._begun = True
            head = head.removeprefix(_BYTE_ORDER_MARK)
        return head

    def _normalised(self, data: bytes) -> bytes:
        """LF for every line end. A CR ends its line at once: the LF that may follow it is then no other end."""
        if self._after_return and data:
            data = data.removeprefix(b"\n")
            self._after_return = False
        if data:
            self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, data: bytes) -> None:
        """Hold a piece of an unfinished frame. Pieces are joined once, when it ends."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_FRAME:
            raise ValueError(f"a frame of more than {LIMIT_FRAME} bytes")

    def close(self) -> list[bytes]:
        """The data of what was left without its empty line: servers do close like that."""
        return self.feed(self.rest())

    def close_ended(self, end: bytes) -> list[bytes]:
        return self.ended(self.rest(), end)

    def rest(self) -> bytes:
        rest = b"".join(self._pieces).rstrip(b"\n")
        self._pieces, self._size = [], 0
        return rest + b"\n\n" if rest else b""


def data_of(frame: bytes) -> bytes | None:
    """The data of a frame, if it has any. Google breaks a stream off with an error that has no name: its SDKs know."""
    if lines := _DATA_LINES.findall(frame):
        return b"\n".join(lines)
    bare = frame.strip(b"\n")
    return bare if bare[:1] == b"{" else None


def only_text(data: bytes) -> bytes:
    """The data; of what is not UTF-8 just the first bad byte, which no reader takes. Values that are passed on as they
    are would else carry it with them."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data[error.start : error.start + 1]
    return data


def frame(data: bytes, event: bytes | None = None) -> bytes:
    """A frame. A name that a line can't hold is left out: it is in the data, too."""
    if b"\n" in data or b"\r" in data:
        data = in_lines(data)
    if event is None or b"\n" in event or b"\r" in event:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event, data)


def in_lines(data: bytes) -> bytes:
    """Data, or a piece of it, as it stands after `data: `: JSON that is kept as its source wrote it may have lines."""
    return _CONTINUED.join(data.splitlines()) if b"\n" in data or b"\r" in data else data


def unframed(frame: bytes) -> bytes:
    """The data of a frame that has no name."""
    return frame.removeprefix(b"data: ").replace(_CONTINUED, b"\n")
