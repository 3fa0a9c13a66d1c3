"""Server-sent events: frames from bytes cut anywhere, and frames as bytes.

A frame ends at an empty line; lines end in LF, CRLF or CR. `data` lines join with LF, comments are dropped. Text is
only decoded by whoever reads a whole frame, so a character cut in two needs no care.
"""

LIMIT_FRAME = 64 * 1024 * 1024


class SseSplitter:
    """Yields `(event name or None, data)` for each frame that has data."""

    def __init__(self) -> None:
        self._rest = b""
        self._scanned = 0

    def feed(self, data: bytes) -> list[tuple[bytes | None, bytes]]:
        data = self._rest + data if self._rest else data
        if b"\r" in data:
            data = self._normalise(data)
        head, found, rest = data.rpartition(b"\n\n")
        if not found:
            self._rest = data
            if len(data) > LIMIT_FRAME:
                raise ValueError(f"a frame of more than {LIMIT_FRAME} bytes")
            return []
        self._rest = rest
        return [frame for text in head.split(b"\n\n") if (frame := parse_frame(text)) is not None]

    def close(self) -> list[tuple[bytes | None, bytes]]:
        """What was left without its empty line: servers do close like that."""
        rest, self._rest = self._rest, b""
        if rest.endswith(b"\r"):
            rest = rest[:-1]
        frame = parse_frame(rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").strip(b"\n"))
        return [] if frame is None else [frame]

    @staticmethod
    def _normalise(data: bytes) -> bytes:
        """LF for every line end, but for a CR at the very end, whose LF may still come."""
        held = data.endswith(b"\r")
        if held:
            data = data[:-1]
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data + b"\r" if held else data


def parse_frame(text: bytes) -> tuple[bytes | None, bytes] | None:
    if text.startswith(b"data: ") and b"\n" not in text:
        return None, text[6:]
    event: bytes | None = None
    data: list[bytes] = []
    for line in text.split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line.startswith(b"event:"):
            event = line[6:].strip()
    if not data:
        return None
    return event, data[0] if len(data) == 1 else b"\n".join(data)


def frame(data: bytes, event: bytes | None = None) -> bytes:
    if event is None:
        return b"data: " + data + b"\n\n"
    return b"event: " + event + b"\ndata: " + data + b"\n\n"
