"""Histories of websocket lanes: what a connection remembers by itself, also of answers that are not stored.

Of each lane it is the last answer and all that led to it. All histories together are bounded in bytes, and those that
were used least recently go first. Then `previous_response_id` is not found, and the client sends everything again.
"""

from collections import OrderedDict

from msgspec import Raw, Struct


class _History(Struct, frozen=True):
    items: list[Raw]
    size: int


class Histories:
    """All histories of the gateway. `longest` bounds one of them, and `limit` all."""

    def __init__(self, longest: int, limit: int) -> None:
        self._longest = longest
        self._limit = limit
        self._kept: OrderedDict[tuple[object, str], _History] = OrderedDict()
        self._size = 0

    def get(self, key: tuple[object, str]) -> _History | None:
        if (found := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: tuple[object, str], items: list[Raw]) -> None:
        self.remove(key)
        copies = [item.copy() for item in items]  # else each item keeps the whole message that it came in
        size = sum(len(memoryview(item)) for item in copies)
        if size > self._longest:
            return
        self._kept[key] = _History(copies, size)
        self._size += size
        while self._size > self._limit:
            self.remove(next(iter(self._kept)))

    def remove(self, key: tuple[object, str]) -> None:
        if (gone := self._kept.pop(key, None)) is not None:
            self._size -= gone.size


class Lanes:
    """The lanes of one connection."""

    def __init__(self, histories: Histories) -> None:
        self._histories = histories
        self._names: dict[str, str] = {}
        self._closed = False

    @property
    def ids(self) -> set[str]:
        """The last answer of each lane."""
        return set(self._names.values())

    def find(self, id: str) -> list[Raw] | None:
        for name, known in self._names.items():
            if known == id and (found := self._histories.get((self, name))) is not None:
                return found.items
        return None

    def put(self, name: str, id: str, items: list[Raw]) -> None:
        if not self._closed:  # an answer may be complete just after its connection is gone
            self._names[name] = id
            self._histories.put((self, name), items)

    def close(self) -> None:
        self._closed = True
        for name in self._names:
            self._histories.remove((self, name))


class Lane(Struct, frozen=True):
    """One lane, for the request that came by it."""

    name: str
    lanes: Lanes

    def find(self, id: str) -> list[Raw] | None:
        return self.lanes.find(id)

    def put(self, id: str, items: list[Raw]) -> None:
        self.lanes.put(self.name, id, items)
