"""Newline-delimited JSON: lines from bytes cut anywhere, and lines as bytes."""

LIMIT_LINE = 64 * 1024 * 1024


class LineSplitter:
    """Yields each line that is not blank."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data if self._rest else data).split(b"\n")
        if len(self._rest) > LIMIT_LINE:
            raise ValueError(f"a line of more than {LIMIT_LINE} bytes")
        return [stripped for line in lines if (stripped := line.strip())]

    def close(self) -> list[bytes]:
        rest, self._rest = self._rest.strip(), b""
        return [rest] if rest else []


def line(data: bytes) -> bytes:
    return data + b"\n"
