"""A stream as one JSON array that grows, for a client that asks for no server-sent events."""

from .sse import SseSplitter

MEDIA_TYPE = b"application/json"


class ArrayFraming:
    """Takes whole frames of server-sent events, gives the same as elements. Comments become space between them."""

    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._begun = False

    def add(self, frames: bytes) -> bytes:
        elements = self._splitter.feed(frames)
        if not elements:
            return b"\n" if frames and self._begun else b""
        opening, self._begun = (b"\n,\n" if self._begun else b"["), True
        return opening + b"\n,\n".join(elements)

    def close(self) -> bytes:
        return b"\n]\n" if self._begun else b"[]\n"
