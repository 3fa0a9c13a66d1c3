"""What comes again and again: an agent declares the same tools in every turn, which are decoded and written once."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LIMIT_BYTES = 2 * 1024 * 1024
LIMIT_ENTRY_BYTES = 256 * 1024


class BoundedMemo(Generic[K, V]):
    """The values that were made lately, by what they were made of. When there are too many it starts anew."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._free_bytes = LIMIT_BYTES
        self.get = self._values.get

    def put(self, key: K, value: V, size: int) -> None:
        """The value must not hold on to more than `size` bytes, or nearly so."""
        if size > LIMIT_ENTRY_BYTES:
            return
        if size > self._free_bytes:
            self._values.clear()
            self._free_bytes = LIMIT_BYTES
        self._free_bytes -= size
        self._values[key] = value
