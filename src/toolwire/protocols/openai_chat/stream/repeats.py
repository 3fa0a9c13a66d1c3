"""Chunks that differ from one before them in their delta only, as nearly all do: the rest of them is not read again."""

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.codec.fields import BAD_JSON
from toolwire.protocols.openai_chat.wire import ChunkShape, DeltaShape, StreamedShape, UsageShape

_KEY = b'"delta":'
# OpenAI hides the lengths of its chunks from eavesdroppers, at their very end.
_PADDING = b',"obfuscation":"'
_NULL = Raw(b"null")


class _Told(Struct):
    delta: Raw


class _Deltas(Struct):
    choices: tuple[_Told]


_read_delta = msgspec.json.Decoder(DeltaShape).decode
_read_deltas = msgspec.json.Decoder(_Deltas).decode


class Repeats(Struct, frozen=True):
    """What stands before and after the delta, and whose it is. `padded`: random letters follow, and say nothing."""

    head: bytes
    tail: bytes
    choice: int
    padded: bool = False

    def delta(self, data: bytes) -> DeltaShape | None:
        """The delta of a chunk that is otherwise the same; None for any other."""
        if not data.startswith(self.head):
            return None
        if self.padded:
            data, _, padding = data.rpartition(_PADDING)
            if not padding.endswith(b'"}') or not (padding[:-2].isalnum() or padding == b'"}'):
                return None
        if not data.endswith(self.tail):
            return None
        try:
            return _read_delta(data[len(self.head) : -len(self.tail)])
        except BAD_JSON:
            return None


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
    return Repeats(head + _KEY, tail, 0 if choice.index is UNSET else choice.index, padded)


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
