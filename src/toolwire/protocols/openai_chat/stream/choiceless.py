"""Chunks without choices, in a stream that is passed on as it came.

OpenAI sends one only where `stream_options.include_usage` asks for it, so programs read `chunk.choices[0]` of every
chunk. Other servers send their usage unasked, and Azure begins with one that tells what its filter thinks.
"""

import re

import msgspec
from msgspec import Raw

from toolwire.codec.fields import BAD_JSON
from toolwire.codec.frames import FrameFilter
from toolwire.codec.interface import Context
from toolwire.codec.sse import data_of, frame

CLOSING = b"data: [DONE]\n\n"

_NO_CHOICES = re.compile(rb'"choices"\s*:\s*(?:\[\s*\]|null)')
_ENVELOPE = frozenset({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"})
_EMPTY_CHOICE = Raw(b'[{"index":0,"delta":{},"finish_reason":null}]')
_members = msgspec.json.Decoder(dict[str, Raw]).decode


def frame_filter(context: Context) -> FrameFilter | None:
    if context.request is None or context.request.include_usage is True:
        return None
    return _fill_choices


def _fill_choices(chunk: bytes) -> bytes:
    """Give a chunk without choices an empty one, or drop it if it tells nothing else than usage."""
    if b'"delta"' in chunk or _NO_CHOICES.search(chunk) is None:
        return chunk
    try:
        members = _members(data_of(chunk) or b"")
    except BAD_JSON:
        return chunk
    if "choices" not in members or "error" in members:
        return chunk
    if _ENVELOPE.issuperset(members):
        return b""
    members.pop("usage", None)
    return frame(msgspec.json.encode(members | {"choices": _EMPTY_CHOICE}))
