"""The fast path for runs of stream frames that differ only in one string: only that string is decoded.

If a frame that a decoder has decoded in full only adds text to a part, the decoder makes a template of it. The template
holds for the frames right after it, so the decoder's state is still as that frame left it. A frame that is equal except
for its string can therefore only add that string.
"""

import re
from itertools import islice

from msgspec import Struct

from toolwire.canonical.events import Event, PartDelta
from toolwire.canonical.fold import TextPieces
from toolwire.codec.wire.reader import JSON_ERRORS, decode_string

_MAX_FRAME = 16 * 1024
# OpenAI ends frames with random letters, which hide the length of the text.
_PADDING = b',"obfuscation":"'


class TextTemplate(Struct, frozen=True, gc=False):
    """The bytes of a frame around the string that it adds to a part."""

    head: bytes  # up to the opening quote
    tail: bytes  # from the closing quote
    has_padding: bool  # random letters follow the tail

    def next_texts(self, frames: list[bytes], start: int) -> list[str]:
        """Return the strings of the frames from `start` on, up to the first frame that differs in more.

        An empty string counts as a difference, since decoders then ignore the member.
        """
        head, tail, has_padding = self.head, self.tail, self.has_padding
        # The slice includes both quotes. It is invalid JSON if it has a line break, or if head and tail overlap.
        first, last = len(head) - 1, 1 - len(tail)
        texts: list[str] = []
        try:
            for frame in islice(frames, start, None):
                if not frame.startswith(head):
                    break
                unpadded = _strip_padding(frame) if has_padding else frame
                if not unpadded.endswith(tail) or not (text := decode_string(unpadded[first:last])):
                    break
                texts.append(text)
        except JSON_ERRORS:
            pass
        return texts


class TextRun(Struct, frozen=True, gc=False):
    """A run of consecutive frames that add text to the same part."""

    template: TextTemplate
    delta: PartDelta  # of the last frame that was decoded in full
    pieces: TextPieces | None = None  # where the decoder collects the text, if it does

    def extend(self, texts: list[str], events: list[Event]) -> None:
        """Append the deltas of more frames to `events`."""
        if self.pieces is not None:
            self.pieces.extend(texts)
        last = self.delta
        index, candidate, kind, block, plain = last.index, last.candidate, last.kind, last.block, last.plain
        events += [
            PartDelta(index=index, text=text, candidate=candidate, kind=kind, block=block, plain=plain)
            for text in texts
        ]


class TextMember:
    """The member of a frame that holds text to add to a part."""

    def __init__(self, name: str) -> None:
        self._key = b'"%b"' % name.encode()
        self._pattern = re.compile(rb'%b\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")' % self._key, re.DOTALL)

    def template(self, frame: bytes, text: str) -> TextTemplate | None:
        """Return the template of a frame in which this member has this text; None if that is not certain."""
        unpadded = _strip_padding(frame)
        has_padding, frame = bool(unpadded), unpadded or frame
        # The quoted name can't be inside a string, where its quotes would be escaped.
        if len(frame) > _MAX_FRAME or frame.count(self._key) != 1 or (match := self._pattern.search(frame)) is None:
            return None
        string, start, end = match[1], match.start(1), match.end(1)
        head, tail = frame[: start + 1], frame[end - 1 :]
        # If there are escapes, another member may have the same name, spelled differently.
        if b"\\" in head or b"\\" in tail or len(tail) < 2 or decode_string(string) != text:
            return None
        return TextTemplate(head, tail, has_padding)


def _strip_padding(frame: bytes) -> bytes:
    """Return the frame without its `obfuscation`; empty bytes if it does not end with one."""
    unpadded, _, padding = frame.rpartition(_PADDING)
    return unpadded if padding.endswith(b'"}') and (padding[:-2].isalnum() or padding == b'"}') else b""
