"""Whole frames of a stream as they came, for a client of the same protocol."""

from collections.abc import Callable

from .ndjson import LineSplitter
from .sse import SseSplitter

FrameFilter = Callable[[bytes], bytes]
"""Changes a frame that a client did not ask for, or drops it: then it is empty."""


class FrameSplitter:
    """Takes bytes, gives each whole frame with its end: an event of server-sent events, or a line of JSON."""

    def __init__(self, *, lines: bool) -> None:
        self._splitter = LineSplitter() if lines else SseSplitter()

    def feed(self, data: bytes) -> list[bytes]:
        if isinstance(self._splitter, LineSplitter):
            return [line + b"\n" for line in self._splitter.feed(data)]
        head = self._splitter.whole(data)
        return [] if head is None else _cut(head)

    def close(self) -> list[bytes]:
        """What was left without its end."""
        if isinstance(self._splitter, LineSplitter):
            return [line + b"\n" for line in self._splitter.close()]
        head = self._splitter.whole(self._splitter.rest())
        return [] if head is None else _cut(head)


def _cut(head: bytes) -> list[bytes]:
    if b"\n\n" not in head:
        return [head + b"\n\n"]
    return [text + b"\n\n" for text in head.split(b"\n\n") if text.strip(b"\n")]
