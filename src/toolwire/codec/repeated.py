"""Texts that come again and again: an agent declares the same tools in every turn, and each is decoded once."""

from typing import Generic, TypeVar

V = TypeVar("V")

LIMIT_BYTES = 2 * 1024 * 1024
LIMIT_TEXT = 64 * 1024


class Repeated(Generic[V]):
    """The values of the texts that were seen lately. When there are too many it starts anew."""

    def __init__(self) -> None:
        self._values: dict[bytes, V] = {}
        self._room = LIMIT_BYTES
        self.get = self._values.get

    def keep(self, text: bytes, value: V) -> None:
        """The value must not refer to anything longer than its text."""
        if len(text) > LIMIT_TEXT:
            return
        if len(text) > self._room:
            self._values.clear()
            self._room = LIMIT_BYTES
        self._room -= len(text)
        self._values[text] = value
