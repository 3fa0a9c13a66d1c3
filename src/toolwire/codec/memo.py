"""Bounded memos for values that recur, such as the tools that an agent declares in every turn."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from msgspec import Raw

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LIMIT_BYTES = 2 * 1024 * 1024


class BoundedMemo(Generic[K, V]):
    """A cache with a limit in bytes; when it is full, the values stored or touched longest ago are dropped.

    Threads may share it: each change of a dictionary is atomic, and sizes are added up anew before values are dropped.
    """

    def __init__(self, limit: int = LIMIT_BYTES, max_entry: int | None = None) -> None:
        """Create a memo of `limit` bytes; `max_entry` bounds a single value, by default to an eighth of that."""
        self._limit = self._free_bytes = limit
        self._max_entry = limit // 8 if max_entry is None else max_entry
        self._values: OrderedDict[K, V] = OrderedDict()
        self._sizes: dict[K, int] = {}
        self.get = self._values.get  # without a call in between: requests look up several values

    def touch(self, key: K) -> None:
        """Mark a value as used, so that others are dropped first."""
        try:  # noqa: SIM105 - `suppress` would cost more than the move
            self._values.move_to_end(key)
        except KeyError:  # another thread dropped it meanwhile
            pass

    def put(self, key: K, value: V, size: int) -> None:
        """Replace the value of a key by one of about `size` bytes; if that is too large, only remove the old value."""
        if key in self._values:
            self.remove(key)  # so that the new value is dropped last
        if size > self._max_entry:
            return
        self._sizes[key] = size
        self._values[key] = value
        self._free_bytes -= size
        if self._free_bytes < 0:
            self._shrink()

    def remove(self, key: K) -> None:
        """Remove the value of a key, if there is one."""
        self._values.pop(key, None)
        self._sizes.pop(key, None)

    def _shrink(self) -> None:
        """Count the bytes, and drop values if they are too many, so that an eighth is free for those to come."""
        used_bytes = sum(list(self._sizes.values()))
        if used_bytes > self._limit:
            while used_bytes > self._limit - self._limit // 8:
                try:
                    key, _ = self._values.popitem(last=False)
                except KeyError:  # another thread dropped the last one
                    break
                used_bytes -= self._sizes.pop(key, 0)
        self._free_bytes = self._limit - used_bytes


def estimate_entry_size(*texts: str | None) -> int:
    """Estimate the bytes of an entry made of these texts."""
    return 500 + 8 * sum(len(text) for text in texts if text is not None)


TOOLS_MEMO: BoundedMemo[tuple[Hashable, ...], Any] = BoundedMemo(32 * 1024 * 1024)
"""Tools of all protocols, decoded and encoded, by the cache that stores them and its key.

The tools of one agent are some 25 KB of JSON and take about 120 KB here.
"""

_DECODED_WEIGHT = 3
"""Approximate memory of a decoded list per byte of its JSON: the JSON itself, the schemas, and other strings."""

_EXCERPT_BYTES = 64


class DecodedToolsMemo(Generic[V]):
    """A cache of decoded tool declarations, by the bytes of all of them and of each one."""

    def __init__(self, *types: type) -> None:
        """Cache tools of these types, whose decoding does not depend on their position."""
        self._types = frozenset(types)

    def decode(self, declarations: list[Raw], path: str, decode: Callable[[Raw, str], V]) -> tuple[V, ...]:
        """Return the decoded tools; `decode` gets a tool and its JSON pointer."""
        text = b",".join(declarations)
        key = (self, "list", *_excerpt(text))
        known: tuple[bytes, tuple[V, ...]] | None = TOOLS_MEMO.get(key)
        if known is not None and known[0] == text:
            TOOLS_MEMO.touch(key)
            return known[1]
        decoded = tuple(self._decode_tools(declarations, path, decode))
        if self._types.issuperset(map(type, decoded)):
            TOOLS_MEMO.put(key, (text, decoded), _DECODED_WEIGHT * len(text))
        return decoded

    def _decode_tools(self, declarations: list[Raw], path: str, decode: Callable[[Raw, str], V]) -> Iterator[V]:
        """Yield the decoded tools, each from the cache if possible."""
        types, get = self._types, TOOLS_MEMO.get
        for index, raw in enumerate(declarations):
            body = bytes(raw)  # a copy, since a Raw value keeps the entire body alive
            key = (self, "tool", *_excerpt(body))
            known: tuple[bytes, V] | None = get(key)
            if known is not None and known[0] == body:
                TOOLS_MEMO.touch(key)
                yield known[1]
                continue
            tool = decode(Raw(body), f"{path}/{index}")
            if type(tool) in types:
                TOOLS_MEMO.put(key, (body, tool), len(body))
            yield tool


def _excerpt(text: bytes) -> tuple[int, bytes, bytes]:
    """Return the length and both ends of a text, as a cheap key: comparing known texts is faster than hashing them."""
    return len(text), text[:_EXCERPT_BYTES], text[-_EXCERPT_BYTES:]
