"""The fast path of streams: if consecutive frames differ only in one string, only that string is decoded and encoded.

If a frame that a decoder has decoded in full only adds text to a part, the decoder makes a template of it. The template
holds for the frames right after it, so the decoder's state is still as that frame left it. A frame that is equal except
for its string can therefore only add that string. All frames of one read that match become one `PartDeltas` event.
"""

import contextlib
import re
from collections.abc import Callable, Iterable
from itertools import islice

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.events import Event, PartDelta, PartDeltas
from toolwire.canonical.fold import TextPieces
from toolwire.codec.framing import frame_data, truncate_at_invalid_utf8
from toolwire.codec.wire.reader import JSON_ERRORS

_strings = msgspec.json.Decoder(str)
_encode_lines = msgspec.json.Encoder().encode_lines
_MAX_FRAME = 16 * 1024
_FRAME_END = b"\n\n"
KNOWN_TEXTS: dict[bytes, str] = {}
"""A cache of short texts by their JSON strings: models repeat a few thousand different tokens.

The search for calls written as text adds a text that has no mark of a call. A known text is neither decoded nor
searched again.
"""


class FrameTemplate(Struct, frozen=True, gc=False):
    """A frame that adds text to a part: the bytes around this text, and the event."""

    head: bytes  # up to the opening quote, inclusive
    tail: bytes  # from the closing quote on
    delta: PartDelta
    pieces: TextPieces | None = None  # where the decoder collects the text, if it does

    def match(self, frames: list[bytes], first: int) -> PartDeltas | None:
        """Return the deltas of the matching frames from index `first` on; None if that frame does not match."""
        head, tail, delta = self.head, self.tail, self.delta
        start, end, least = len(head) - 1, 1 - len(tail), len(head) + len(tail)
        if len(frames) == 1 and self.pieces is None:
            frame = frames[0]
            if (text := KNOWN_TEXTS.get(frame[start:end])) and frame.startswith(head) and frame.endswith(tail):
                return PartDeltas(
                    index=delta.index,
                    texts=[text],
                    candidate=delta.candidate,
                    kind=delta.kind,
                    block=delta.block,
                    known=True,
                )
        strings: list[bytes] = []
        for frame in islice(frames, first, None):
            if not frame.startswith(head) or not frame.endswith(tail) or len(frame) < least:
                break
            strings.append(frame[start:end])
        wire = b"\n".join(strings)
        if not (texts := _decode_strings(strings, wire)):
            return None
        if self.pieces is not None:
            self.pieces.extend(texts)
        return PartDeltas(
            index=delta.index, texts=texts, candidate=delta.candidate, kind=delta.kind, block=delta.block, wire=wire
        )


class FrameDecoder:
    """A decoder of frames, some of which give a template for those after them."""

    def __init__(self) -> None:
        self._ended = False
        self._template: FrameTemplate | None = None  # of the last frame

    def _read(self, wire: bytes | None) -> list[Event]:
        """Decode complete frames; those that differ from the last one only in their text take the fast path."""
        events: list[Event] = []
        frames = [] if wire is None else wire.split(_FRAME_END)
        number = 0
        while number < len(frames) and not self._ended:
            if (template := self._template) is not None and (deltas := template.match(frames, number)) is not None:
                events.append(deltas)
                number += len(deltas.texts)
                continue
            frame = frames[number]
            number += 1
            if (data := frame_data(frame)) is not None:
                self._template = None
                self._read_frame(frame, data if data.isascii() else truncate_at_invalid_utf8(data), events)
        return events

    def _read_frame(self, frame: bytes, data: bytes, events: list[Event]) -> None:
        """Append the events of one frame with this data to `events`; set the template if it gives one."""
        raise NotImplementedError


def adds_only_text(delta: PartDelta) -> bool:
    """Return whether a delta has no field besides its text and what the text belongs to."""
    index, candidate, kind, block = delta.index, delta.candidate, delta.kind, delta.block
    return delta == PartDelta(index=index, text=delta.text, candidate=candidate, kind=kind, block=block)


def _decode_strings(strings: list[bytes], lines: bytes) -> list[str]:
    """Decode JSON strings up to the first invalid or empty one; decoders ignore a member that is empty.

    `lines` are the strings, one on each line.
    """
    texts: list[str] = []
    with contextlib.suppress(*JSON_ERRORS):
        texts = _strings.decode_lines(lines)
    # Each line holds at least one JSON string, so equal counts show that each holds exactly one.
    if len(texts) != len(strings):
        texts = []
        with contextlib.suppress(*JSON_ERRORS):
            for string in strings:
                texts.append(_strings.decode(string))  # keeps those before an invalid one
    return texts if all(texts) else texts[: texts.index("")]


class TextMember:
    """The member of a frame that holds text to add to a part."""

    def __init__(self, name: str) -> None:
        self._key = b'"%b"' % name.encode()
        self._pattern = re.compile(rb'%b\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")' % self._key, re.DOTALL)

    def template(self, frame: bytes, delta: PartDelta, pieces: TextPieces | None = None) -> FrameTemplate | None:
        """Return the template of a frame in which this member has the text of the delta; None if that is uncertain."""
        if not delta.text or not adds_only_text(delta):
            return None
        # The quoted name can't be inside a string, where its quotes would be escaped.
        if len(frame) > _MAX_FRAME or frame.count(self._key) != 1 or (match := self._pattern.search(frame)) is None:
            return None
        string, start, end = match[1], match.start(1), match.end(1)
        head, tail = frame[: start + 1], frame[end - 1 :]
        # If there are escapes, another member may have the same name, spelled differently.
        if b"\\" in head or b"\\" in tail or len(tail) < 2 or _strings.decode(string) != delta.text:
            return None
        return FrameTemplate(head, tail, delta, pieces)


def encode_events(
    events: Iterable[Event], encode: Callable[[Event], bytes], encode_together: Callable[[PartDeltas], bytes | None]
) -> bytes:
    """Encode events one by one; deltas that arrived together are encoded together, if the encoder can."""
    return b"".join(
        [
            _encode_deltas(event, encode, encode_together) if type(event) is PartDeltas else encode(event)
            for event in events
        ]
    )


def _encode_deltas(
    deltas: PartDeltas, encode: Callable[[Event], bytes], encode_together: Callable[[PartDeltas], bytes | None]
) -> bytes:
    """Encode deltas together; if the encoder can't (it returns None), encode the first one alone, or all of them."""
    if (encoded := encode_together(deltas)) is not None:
        return encoded
    first, *others = deltas.single_deltas()
    encoded = encode(first)
    if others:
        rest = encode_together(replace(deltas, texts=deltas.texts[1:]))
        encoded += b"".join(map(encode, others)) if rest is None else rest
    return encoded


def encode_frames(head: bytes, texts: list[str], tail: bytes) -> bytes:
    """Encode one frame for each text, with these bytes around its JSON string."""
    # Line feeds inside strings are escaped, so each remaining one separates two strings.
    return head + _encode_lines(texts)[:-1].replace(b"\n", tail + head) + tail
