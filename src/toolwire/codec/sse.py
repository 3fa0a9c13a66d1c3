"""Server-sent events: frames from bytes cut anywhere, and frames as bytes.

A frame ends at an empty line; lines end in LF, CRLF or CR. `data` lines join with LF, comments are dropped. Text is
only decoded by whoever reads a whole frame, so a character cut in two needs no care.
"""

import re

LIMIT_FRAME = 64 * 1024 * 1024

_DATA_LINES = re.compile(rb"^data: ?(.*)$", re.MULTILINE)


class SseSplitter:
    """Takes bytes, gives the data of each whole frame. Names of events are dropped: every protocol says them in data."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        if self._pieces:
            joint = self._pieces[-1][-1:] + data
            if b"\n\n" not in joint and b"\r" not in joint:
                self._keep(data)
                return []
            data = b"".join(self._pieces) + data
            self._pieces, self._size = [], 0
        if b"\r" in data:
            data = _normalised(data)
        head, found, rest = data.rpartition(b"\n\n")
        if rest:
            self._keep(rest)
        if not found:
            return []
        lines = _DATA_LINES.findall(head)
        if len(lines) == head.count(b"\n\n") + 1:
            return lines  # the ordinary case: each frame has one line of data
        return [b"\n".join(lines) for text in head.split(b"\n\n") if (lines := _DATA_LINES.findall(text))]

    def _keep(self, data: bytes) -> None:
        """Hold a piece of an unfinished frame. Pieces are joined once, when it ends."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_FRAME:
            raise ValueError(f"a frame of more than {LIMIT_FRAME} bytes")

    def close(self) -> list[bytes]:
        """What was left without its empty line: servers do close like that."""
        rest = b"".join(self._pieces).rstrip(b"\r\n")
        self._pieces, self._size = [], 0
        return self.feed(rest + b"\n\n") if rest else []


def _normalised(data: bytes) -> bytes:
    """LF for every line end, but for a CR at the very end, whose LF may still come."""
    held = data.endswith(b"\r")
    data = (data[:-1] if held else data).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data + b"\r" if held else data


def frame(data: bytes, event: bytes | None = None) -> bytes:
    if event is None:
        return b"data: " + data + b"\n\n"
    return b"event: " + event + b"\ndata: " + data + b"\n\n"
