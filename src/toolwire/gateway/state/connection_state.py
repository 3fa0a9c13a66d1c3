"""Histories of websocket lanes: what a connection remembers by itself, also of answers that are not stored.

Of each lane it is the last answer and all that led to it. All histories together are bounded in bytes, and those that
were used least recently go first. Then `previous_response_id` is not found, and the client sends everything again.
"""

from collections import OrderedDict

from msgspec import Raw, Struct


class _History(Struct, frozen=True):
    items: list[Raw]
    size: int


class HistoryCache:
    """All histories of the gateway. `longest` bounds one of them, and `limit` all."""

    def __init__(self, max_history: int, limit: int) -> None:
        self._max_history = max_history
        self._limit = limit
        self._entries: OrderedDict[tuple[object, str], _History] = OrderedDict()
        self._size = 0

    def get(self, key: tuple[object, str]) -> _History | None:
        if (found := self._entries.get(key)) is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: tuple[object, str], items: list[Raw]) -> None:
        self.remove(key)
        copies = [item.copy() for item in items]  # else each item keeps the whole message that it came in
        size = sum(len(memoryview(item)) for item in copies)
        if size > self._max_history:
            return
        self._entries[key] = _History(copies, size)
        self._size += size
        while self._size > self._limit:
            self.remove(next(iter(self._entries)))

    def remove(self, key: tuple[object, str]) -> None:
        if (gone := self._entries.pop(key, None)) is not None:
            self._size -= gone.size


class ConnectionState:
    """The lanes of one connection."""

    def __init__(self, histories: HistoryCache) -> None:
        self._histories = histories
        self._response_ids: dict[str, str] = {}
        self._closed = False

    @property
    def last_response_ids(self) -> set[str]:
        """The last answer of each lane."""
        return set(self._response_ids.values())

    def find_history(self, id: str) -> list[Raw] | None:
        for name, known in self._response_ids.items():
            if known == id and (found := self._histories.get((self, name))) is not None:
                return found.items
        return None

    def store_history(self, stream_id: str, id: str, items: list[Raw]) -> None:
        if not self._closed:  # an answer may be complete just after its connection is gone
            self._response_ids[stream_id] = id
            self._histories.put((self, stream_id), items)

    def close(self) -> None:
        self._closed = True
        for name in self._response_ids:
            self._histories.remove((self, name))


class ChannelState(Struct, frozen=True):
    """One lane, for the request that came by it."""

    stream_id: str
    connection: ConnectionState

    def find_history(self, id: str) -> list[Raw] | None:
        return self.connection.find_history(id)

    def store_history(self, id: str, items: list[Raw]) -> None:
        self.connection.store_history(self.stream_id, id, items)
