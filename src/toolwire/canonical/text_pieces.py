"""A text that grows by small pieces."""

from collections.abc import Iterable

_LOOSE = 256


class TextPieces(list[str]):
    """The pieces of one text, for `"".join`. The loose ones at the end are joined as they become many: memory grows
    with the text, not with the number of pieces, and each character is copied once. `added` counts all of them."""

    __slots__ = ("_chunks", "added")

    def __init__(self, pieces: Iterable[str] = ()) -> None:
        super().__init__(pieces)
        self.added = len(self)
        self._chunks = 0

    def append(self, text: str) -> None:
        super().append(text)
        self.added += 1
        if len(self) - self._chunks >= _LOOSE:
            self._join()

    def settle(self) -> None:
        """Join the loose pieces if there are many, after some were added by `+=` or `list.append`."""
        if len(self) - self._chunks >= _LOOSE:
            self._join()

    def since(self, count: int, length: int) -> list[str]:
        """The text behind the first `count` pieces that were added, which have `length` characters."""
        place = count - (self.added - len(self))
        return self[place:] if place >= self._chunks else ["".join(self)[length:]]

    def _join(self) -> None:
        self[self._chunks :] = ["".join(self[self._chunks :])]
        self._chunks += 1
