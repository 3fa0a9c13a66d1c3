"""An estimate of how much of a request its provider could read from the prompt cache.

A prompt consists of tools, system text and messages, in this order. The provider can read the part that an earlier
request started with. Where clients mark the prefixes to cache, that part ends at a mark of the earlier request. Cache
marks themselves don't count, nor do lifetimes and minimal sizes of caches.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.codec.interface import Codec
from toolwire.codec.token_count import measure_json, tokens_for_size
from toolwire.translation.incremental import common_size, messages_member

_MARKS = ("cache_control", "prompt_cache_breakpoint")
_FUNCTIONS = "functionDeclarations"
_SIGNATURES = frozenset({"signature", "thoughtSignature", "thought_signature", "encrypted_content"})
_ENCRYPTED_TYPES = ("reasoning.encrypted", "redacted_thinking")


class CacheShare(Struct, frozen=True):
    """The estimated tokens of a request, and those of them that could be read from the prompt cache."""

    tokens: int
    readable_tokens: int

    @property
    def share(self) -> float:
        """Return the share that could be read, from 0 to 1."""
        return self.readable_tokens / self.tokens if self.tokens else 0.0


class _Item(Struct, frozen=True):
    """A tool, a block of system text or a message."""

    data: bytes  # without cache marks
    tokens: int
    is_marked: bool


def estimate_cache_share(body: bytes, earlier: Iterable[bytes], codec: Codec) -> CacheShare:
    """Estimate the share of a request body in the codec's protocol, after the `earlier` ones of its conversation."""
    items, by_marks = _prompt_items(body, codec)
    readable = max(
        (_count_readable(items, _prompt_items(other, codec)[0], by_marks=by_marks) for other in earlier), default=0
    )
    return CacheShare(sum(item.tokens for item in items), readable)


def prompt_sections(body: dict[str, Any], codec: Codec) -> tuple[list[Any], list[Any], list[Any]]:
    """Return tools, blocks of system text and messages of a parsed request body.

    Functions that are declared in one object (Gemini) come after the other tools, since only they are loaded later.
    """
    tools: list[Any] = []
    functions: list[Any] = []
    for tool in _as_list(body.get("tools")):
        if isinstance(tool, dict) and isinstance(tool.get(_FUNCTIONS), list):
            functions += tool[_FUNCTIONS]
        else:
            tools.append(tool)
    system = None if codec.system_member is None else body.get(codec.system_member)
    return tools + functions, _as_list(system), _as_list(body.get(messages_member(codec)))


def without_marks(value: Any) -> Any:
    """Return a JSON value without the cache marks in it."""
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: without_marks(item) for name, item in value.items() if not _is_mark(name, item)}


def _without_signatures(value: Any) -> Any:
    """Return a JSON value without signatures and encrypted reasoning, whose size says nothing about their tokens."""
    if isinstance(value, list):
        return [_without_signatures(item) for item in value]
    if not isinstance(value, dict):
        return value
    is_encrypted = value.get("type") in _ENCRYPTED_TYPES
    return {
        name: _without_signatures(item)
        for name, item in value.items()
        if name not in _SIGNATURES and not (is_encrypted and name == "data")
    }


def _as_list(value: Any) -> list[Any]:
    """Return a list as it is, no value as an empty list, and any other value as the only item of a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _is_mark(name: str, value: Any) -> bool:
    """Return whether a member of a JSON object is a cache mark, and not a property that only has its name."""
    return name in _MARKS and isinstance(value, dict) and ("mode" in value or value.get("type") == "ephemeral")


def _prompt_items(body: bytes, codec: Codec) -> tuple[list[_Item], bool]:
    """Return the items of a prompt in order, and whether its provider caches only up to marks."""
    request = msgspec.json.decode(body)
    values = [value for section in prompt_sections(request, codec) for value in section]
    last = len(values) - 1 if _is_mark("cache_control", request.get("cache_control")) else -1
    items: list[_Item] = []
    for index, value in enumerate(values):
        unmarked = without_marks(value)
        data = msgspec.json.encode(unmarked)
        size, media = measure_json(msgspec.json.encode(_without_signatures(unmarked)))
        tokens = tokens_for_size(size, media, has_tools=False)
        items.append(_Item(data, tokens, index == last or unmarked != value))
    by_marks = codec.caches_by_marks or (codec.name == "openrouter" and "claude" in str(request.get("model")))
    return items, by_marks


def _count_readable(items: Sequence[_Item], earlier: Sequence[_Item], *, by_marks: bool) -> int:
    """Count the tokens at the start of a prompt that an earlier one has as well; with marks, up to its last mark."""
    tokens = readable = 0
    for item, other in zip(items, earlier, strict=False):
        if item.data != other.data:
            if not by_marks:
                tokens += item.tokens * common_size(other.data, item.data) // len(item.data)
            break
        tokens += item.tokens
        if other.is_marked:
            readable = tokens
    return readable if by_marks else tokens
