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
    return tokens_for_size(size, media, has_tools=isinstance(whole, dict) and bool(whole.get("tools")))


def measure_json(body: bytes) -> tuple[int, int]:
    """Return the bytes of the texts in a piece of a request, and how many images or files it has."""
    try:
        return _measure(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return len(body), 0


def tokens_for_size(size: int, media: int, *, has_tools: bool) -> int:
    """Estimate the tokens of a request from the sums of `measure_json` over its pieces."""
    return -(-size // BYTES_PER_TOKEN) + media * TOKENS_PER_MEDIA + (TOKENS_WITH_TOOLS if has_tools else 0)


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
            elif _MEDIA_FIELDS.isdisjoint(value):
                size += len("".join(value))
                left += value.values()
            else:
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
    kind = value.get("type")
    if kind == "Media":  # of the canonical model
        return True
    if "data" in value and isinstance(value["data"], str):
        return any(name in value for name in _MEDIA_TYPE_FIELDS) and kind != "text"
    return "url" in value and kind in _REFERENCE_TYPES and isinstance(value["url"], str)
