"""Fast paths for consecutive chunks that share everything but their content.

`ChunkTemplate` reuses the bytes around the delta of an earlier chunk, and `TextTemplate` those around the text or
arguments inside the delta.
"""

import re

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.codec.wire.reader import JSON_ERRORS
from toolwire.protocols.openai_chat.wire import (
    ChunkShape,
    DeltaShape,
    StreamChoiceShape,
    UsageShape,
)

_decode_string = msgspec.json.Decoder(str).decode

_DELTA_KEY = b'"delta":'
# OpenAI pads chunks at their end to hide the length of the text.
_PADDING = b',"obfuscation":"'
_NULL = Raw(b"null")
_JSON_STRING = rb'"(?:[^"\\]|\\.)*"'
_TEXT_DELTA = re.compile(rb'(\{\s*"content"\s*:\s*)%b(\s*\})' % _JSON_STRING, re.DOTALL)
_ARGUMENTS_DELTA = re.compile(
    rb'(\{\s*"tool_calls"\s*:\s*\[\s*\{\s*"index"\s*:\s*(?P<call>\d{1,6})\s*,'
    rb'\s*"function"\s*:\s*\{\s*"arguments"\s*:\s*)%b(\s*\}\s*\}\s*\]\s*\})' % _JSON_STRING,
    re.DOTALL,
)


class _RawDelta(Struct):
    """A choice with its delta as bytes."""

    delta: Raw


class _RawDeltas(Struct):
    """A chunk with a single choice."""

    choices: tuple[_RawDelta]


_decode_delta = msgspec.json.Decoder(DeltaShape).decode
_decode_raw_deltas = msgspec.json.Decoder(_RawDeltas).decode


class TextTemplate(Struct, frozen=True):
    """The bytes before and after the text of a delta."""

    head: bytes
    tail: bytes
    call_index: int | None  # of the call whose arguments continue, None for text
    has_padding: bool  # random letters follow the tail

    def next_text(self, data: bytes) -> str:
        """Return the text of a chunk that differs from the template only in its text, else an empty string."""
        if not data.startswith(self.head):
            return ""
        if self.has_padding:
            data = _strip_padding(data)
        if not data.endswith(self.tail):
            return ""
        try:
            return _decode_string(data[len(self.head) : -len(self.tail)])
        except JSON_ERRORS:
            return ""


class ChunkTemplate:
    """The bytes before and after the delta of a chunk."""

    def __init__(self, head: bytes, tail: bytes, choice: int, *, has_padding: bool = False) -> None:
        self.choice = choice
        # Set while chunks continue the text or arguments of the previous one.
        self.text_template: TextTemplate | None = None
        self._head = head
        self._tail = tail
        self._has_padding = has_padding

    def decode_delta(self, data: bytes) -> DeltaShape | None:
        """Decode the delta of a chunk that differs from the template only there; None for any other."""
        if not data.startswith(self._head):
            return None
        if self._has_padding:
            data = _strip_padding(data)
        if not data.endswith(self._tail):
            return None
        delta_bytes = data[len(self._head) : -len(self._tail)]
        try:
            delta = _decode_delta(delta_bytes)
        except JSON_ERRORS:
            return None
        self.text_template = self._build_text_template(delta_bytes)
        return delta

    def _build_text_template(self, delta: bytes) -> TextTemplate | None:
        """Return a template for chunks that differ only in text or arguments; None if the delta has more."""
        if (text := _TEXT_DELTA.fullmatch(delta)) is not None:
            return TextTemplate(self._head + text[1], text[2] + self._tail, None, self._has_padding)
        if (arguments := _ARGUMENTS_DELTA.fullmatch(delta)) is not None:
            return TextTemplate(
                self._head + arguments[1], arguments[3] + self._tail, int(arguments["call"]), self._has_padding
            )
        return None


def _strip_padding(data: bytes) -> bytes:
    """Return the chunk without its `obfuscation` padding; empty bytes if it has none."""
    data, _, padding = data.rpartition(_PADDING)
    return data if padding.endswith(b'"}') and (padding[:-2].isalnum() or padding == b'"}') else b""


def chunk_template(data: bytes, shape: ChunkShape) -> ChunkTemplate | None:
    """Return a template of the chunk; None if it holds more than the delta of one choice."""
    if not shape.choices or shape.unknown is not UNSET or isinstance(shape.usage, UsageShape):
        return None
    choice = shape.choices[0]
    if choice.unknown is not UNSET or isinstance(choice.finish_reason, str) or has_extras(choice):
        return None
    try:
        delta_bytes = bytes(_decode_raw_deltas(data).choices[0].delta)
    except JSON_ERRORS:
        return None
    # The key cannot occur inside a string, where its quotes would be escaped.
    head, _, after_key = data.partition(_DELTA_KEY)
    tail = after_key[len(delta_bytes) :]
    if not after_key.startswith(delta_bytes) or not delta_bytes.startswith(b"{") or _DELTA_KEY in tail:
        return None
    has_padding = isinstance(shape.obfuscation, str)
    if has_padding:
        tail, _, padding = tail.rpartition(_PADDING)
        if padding != b'%b"}' % str(shape.obfuscation).encode():
            return None
    return ChunkTemplate(head + _DELTA_KEY, tail, 0 if choice.index is UNSET else choice.index, has_padding=has_padding)


def has_extras(shape: StreamChoiceShape) -> bool:
    """Tell whether the choice has log probabilities or a native finish reason."""
    logprobs, native_reason = shape.logprobs, shape.native_finish_reason
    return not (logprobs is UNSET or logprobs == _NULL) or not (native_reason is UNSET or native_reason == _NULL)


def has_other_content(delta: DeltaShape) -> bool:
    """Tell whether the delta has content besides text and tool calls; nulls and empty values do not count."""
    return bool(
        delta.reasoning_content
        or delta.reasoning
        or delta.refusal
        or delta.function_call
        or delta.annotations
        or delta.unknown
    )
