"""A bounded memo for values that recur, such as the tools that an agent declares in every turn."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LIMIT_BYTES = 2 * 1024 * 1024
LIMIT_ENTRY_BYTES = 256 * 1024


class BoundedMemo(Generic[K, V]):
    """A cache with a limit in bytes; when it is full, it is cleared."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._free_bytes = LIMIT_BYTES
        self.get = self._values.get

    def put(self, key: K, value: V, size: int) -> None:
        """Store a value that keeps about `size` bytes alive; large values are not stored."""
        if size > LIMIT_ENTRY_BYTES:
            return
        if size > self._free_bytes:
            self._values.clear()
            self._free_bytes = LIMIT_BYTES
        self._free_bytes -= size
        self._values[key] = value
