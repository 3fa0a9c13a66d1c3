"""Counting what a request would take: how a protocol asks for that, and an estimate where nobody can be asked.

The estimate is for the body that would be sent, tools and system text included: a token for every three bytes of its
keys and texts, 1600 for each image or file, and 600 more with tools, which is what a provider may say of its own about
them. It is meant to be too high rather than too low: whoever asks wants to know whether the request still fits.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

BYTES_PER_TOKEN = 3
TOKENS_PER_MEDIA = 1600
TOKENS_WITH_TOOLS = 600

# What is not read as text: a reference, or the bytes of something.
_MEDIA_FIELDS = frozenset({"image_url", "fileData", "file_data", "file_url", "file_id", "images", "video_url"})
_MEDIA_TYPE_FIELDS = ("media_type", "mimeType", "mime_type", "format")
_REFERENCE_TYPES = ("url", "file")


class TokenCountApi(Struct, frozen=True, kw_only=True):
    """`path` is where the provider counts what it would take at a path. `wrap` makes of a request, and the path it
    would go to, what is sent there; `unwrap` is its opposite. `encode_count` and `decode_count`: the answer."""

    count_path: Callable[[str], str]
    wrap_request: Callable[[bytes, str], bytes]
    unwrap_request: Callable[[bytes], bytes]
    encode_count: Callable[[int], Any]
    decode_count: Callable[[bytes], int]


def select_fields(body: bytes, names: frozenset[str]) -> bytes:
    """The fields of a body that are named: a counting address refuses others."""
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({name: value for name, value in fields.items() if name in names})


def estimate_tokens(body: bytes) -> int:
    """How many tokens a request takes, roughly."""
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return -(-len(body) // BYTES_PER_TOKEN)
    size, media = _measure(whole)
    tools = TOKENS_WITH_TOOLS if isinstance(whole, dict) and whole.get("tools") else 0
    return -(-size // BYTES_PER_TOKEN) + media * TOKENS_PER_MEDIA + tools


def _measure(root: Any) -> tuple[int, int]:
    """The bytes of what is text, and how many things are not."""
    size = media = 0
    left = [root]
    while left:
        value = left.pop()
        if isinstance(value, str):
            size += len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            if _is_media(value):
                media += 1
                continue
            for name, inner in value.items():
                if name in _MEDIA_FIELDS:
                    media += len(inner) if isinstance(inner, list) else 1
                else:
                    size += len(name)
                    left.append(inner)
        else:
            size += 2
    return size, media


def _is_media(value: dict[str, Any]) -> bool:
    if value.get("type") == "Media":  # of the canonical model
        return True
    if isinstance(value.get("data"), str):
        return any(name in value for name in _MEDIA_TYPE_FIELDS) and value.get("type") != "text"
    return value.get("type") in _REFERENCE_TYPES and isinstance(value.get("url"), str)
