"""Newline-delimited JSON: lines from bytes cut anywhere, and lines as bytes."""

LIMIT_LINE = 64 * 1024 * 1024


class LineSplitter:
    """Yields each line that is not blank."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        ended, newline, rest = data.rpartition(b"\n")
        lines = b"".join((*self._take(), ended)).split(b"\n") if newline else []
        if rest:
            self._keep(rest)
        return [stripped for line in lines if (stripped := line.strip())]

    def _keep(self, data: bytes) -> None:
        """Hold a piece of an unfinished line. Pieces are joined once, when it ends."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > LIMIT_LINE:
            raise ValueError(f"a line of more than {LIMIT_LINE} bytes")

    def _take(self) -> list[bytes]:
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces

    def close(self) -> list[bytes]:
        rest = b"".join(self._take()).strip()
        return [rest] if rest else []


def line(data: bytes) -> bytes:
    return data + b"\n"
