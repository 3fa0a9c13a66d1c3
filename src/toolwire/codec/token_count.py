"""Token counting: the endpoints that protocols have for it, and an estimate for providers without one.

The estimate covers the body as sent, with tools and system text. It counts one token per three bytes of keys and texts,
1600 per image or file, and 600 if there are tools, for the prompt that providers add for them. It errs on the high
side, since clients ask whether a request still fits.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

BYTES_PER_TOKEN = 3
TOKENS_PER_MEDIA = 1600
TOKENS_WITH_TOOLS = 600

# Fields that hold references or binary data rather than text.
_MEDIA_FIELDS = frozenset({"image_url", "fileData", "file_data", "file_url", "file_id", "images", "video_url"})
_MEDIA_TYPE_FIELDS = ("media_type", "mimeType", "mime_type", "format")
_REFERENCE_TYPES = ("url", "file")


class TokenCountApi(Struct, frozen=True, kw_only=True):
    """A protocol's endpoint for counting tokens."""

    count_path: Callable[[str], str]  # maps the path of a request to that of its count
    wrap_request: Callable[[bytes, str], bytes]  # turns a request body and its path into the body of a count request
    unwrap_request: Callable[[bytes], bytes]  # the reverse of `wrap_request`
    encode_count: Callable[[int], Any]
    decode_count: Callable[[bytes], int]


def select_fields(body: bytes, names: frozenset[str]) -> bytes:
    """Return the JSON body with only the named fields, since count endpoints reject others."""
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({name: value for name, value in fields.items() if name in names})


def estimate_tokens(body: bytes) -> int:
    """Estimate the number of tokens of a request body."""
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return -(-len(body) // BYTES_PER_TOKEN)
    size, media = _measure(request)
    return tokens_for_size(size, media, has_tools=isinstance(request, dict) and bool(request.get("tools")))


def measure_json(body: bytes) -> tuple[int, int]:
    """Return the size in bytes of the texts in a JSON fragment, and the number of its media objects."""
    try:
        return _measure(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return len(body), 0


def tokens_for_size(size: int, media: int, *, has_tools: bool) -> int:
    """Estimate the tokens of a request from the summed results of `measure_json`."""
    return -(-size // BYTES_PER_TOKEN) + media * TOKENS_PER_MEDIA + (TOKENS_WITH_TOOLS if has_tools else 0)


def _measure(root: Any) -> tuple[int, int]:
    """Return the size in bytes of the texts in a JSON value, and the number of its media objects."""
    size = media = 0
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            size += len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            if _is_media(value):
                media += 1
            elif _MEDIA_FIELDS.isdisjoint(value):
                size += len("".join(value))
                stack += value.values()
            else:
                for name, member in value.items():
                    if name in _MEDIA_FIELDS:
                        media += len(member) if isinstance(member, list) else 1
                    else:
                        size += len(name)
                        stack.append(member)
        else:
            size += 2
    return size, media


def _is_media(value: dict[str, Any]) -> bool:
    """Return whether an object represents media, in any protocol."""
    kind = value.get("type")
    if kind == "Media":  # a canonical value
        return True
    if "data" in value and isinstance(value["data"], str):
        return any(name in value for name in _MEDIA_TYPE_FIELDS) and kind != "text"
    return "url" in value and kind in _REFERENCE_TYPES and isinstance(value["url"], str)
