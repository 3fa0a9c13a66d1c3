"""Chunks that differ from one before them in their delta only, as nearly all do: the rest of them is not read again.

And of those, most only go on with a text, or with the arguments of a call: of them just that string is read.
"""

import re

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.codec.fields import BAD_JSON
from toolwire.protocols.openai_chat.wire import ChunkShape, DeltaShape, StreamedShape, UsageShape

_KEY = b'"delta":'
# OpenAI hides the lengths of its chunks from eavesdroppers, at their very end.
_PADDING = b',"obfuscation":"'
_NULL = Raw(b"null")
_STRING = rb'"(?:[^"\\]|\\.)*"'
_TEXT = re.compile(rb'(\{\s*"content"\s*:\s*)%b(\s*\})' % _STRING, re.DOTALL)
_ARGUMENTS = re.compile(
    rb'(\{\s*"tool_calls"\s*:\s*\[\s*\{\s*"index"\s*:\s*(?P<call>\d{1,6})\s*,'
    rb'\s*"function"\s*:\s*\{\s*"arguments"\s*:\s*)%b(\s*\}\s*\}\s*\]\s*\})' % _STRING,
    re.DOTALL,
)


class _Told(Struct):
    delta: Raw


class _Deltas(Struct):
    choices: tuple[_Told]


_read_delta = msgspec.json.Decoder(DeltaShape).decode
_read_deltas = msgspec.json.Decoder(_Deltas).decode
_read_words = msgspec.json.Decoder(str).decode


class Words(Struct, frozen=True):
    """What stands before and after a string that goes on: of a text, or of the arguments of this call."""

    head: bytes
    tail: bytes
    call: int | None
    padded: bool

    def go_on(self, data: bytes) -> str:
        """The string of a chunk that is otherwise the same; empty for any other."""
        if not data.startswith(self.head):
            return ""
        if self.padded:
            data = _unpadded(data)
        if not data.endswith(self.tail):
            return ""
        try:
            return _read_words(data[len(self.head) : -len(self.tail)])
        except BAD_JSON:
            return ""


class Repeats:
    """What stands before and after the delta, and whose it is. `padded`: random letters follow, and say nothing.

    `words` tells where the string is in chunks that go on as the last one did.
    """

    def __init__(self, head: bytes, tail: bytes, choice: int, *, padded: bool = False) -> None:
        self.choice = choice
        self.words: Words | None = None
        self._head = head
        self._tail = tail
        self._padded = padded

    def delta(self, data: bytes) -> DeltaShape | None:
        """The delta of a chunk that is otherwise the same; None for any other."""
        if not data.startswith(self._head):
            return None
        if self._padded:
            data = _unpadded(data)
        if not data.endswith(self._tail):
            return None
        written = data[len(self._head) : -len(self._tail)]
        try:
            delta = _read_delta(written)
        except BAD_JSON:
            return None
        self.words = self._words(written)
        return delta

    def _words(self, written: bytes) -> Words | None:
        if (text := _TEXT.fullmatch(written)) is not None:
            return Words(self._head + text[1], text[2] + self._tail, None, self._padded)
        if (arguments := _ARGUMENTS.fullmatch(written)) is not None:
            return Words(self._head + arguments[1], arguments[3] + self._tail, int(arguments["call"]), self._padded)
        return None


def _unpadded(data: bytes) -> bytes:
    """A chunk up to where its padding begins; nothing, if that is none."""
    data, _, padding = data.rpartition(_PADDING)
    return data if padding.endswith(b'"}') and (padding[:-2].isalnum() or padding == b'"}') else b""


def repeats_of(data: bytes, shape: ChunkShape) -> Repeats | None:
    """What others may have in common with this chunk, if all that it says is in its delta."""
    if not shape.choices or shape.unknown is not UNSET or isinstance(shape.usage, UsageShape):
        return None
    choice = shape.choices[0]
    if choice.unknown is not UNSET or isinstance(choice.finish_reason, str) or has_extras(choice):
        return None
    try:
        written = bytes(_read_deltas(data).choices[0].delta)
    except BAD_JSON:
        return None
    # No string can hold the key: its quotes would be escaped.
    head, _, rest = data.partition(_KEY)
    tail = rest[len(written) :]
    if not rest.startswith(written) or not written.startswith(b"{") or _KEY in tail:
        return None
    padded = isinstance(shape.obfuscation, str)
    if padded:
        tail, _, padding = tail.rpartition(_PADDING)
        if padding != b'%b"}' % str(shape.obfuscation).encode():
            return None
    return Repeats(head + _KEY, tail, 0 if choice.index is UNSET else choice.index, padded=padded)


def has_extras(shape: StreamedShape) -> bool:
    probabilities, native = shape.logprobs, shape.native_finish_reason
    return not (probabilities is UNSET or probabilities == _NULL) or not (native is UNSET or native == _NULL)


def says_more(delta: DeltaShape) -> bool:
    """Whether it has more to say than text and calls; nulls, empty strings and lists say nothing."""
    return bool(
        delta.reasoning_content
        or delta.reasoning
        or delta.refusal
        or delta.function_call
        or delta.annotations
        or delta.unknown
    )
