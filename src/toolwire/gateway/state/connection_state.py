"""Histories of WebSocket connections, also for responses that are not stored.

Each channel (`stream_id`) keeps its last response and everything that led to it. The histories are bounded in bytes;
the least recently used are evicted first. `previous_response_id` is then not found, and the client resends everything.
"""

from collections import OrderedDict

from msgspec import Raw, Struct


class _History(Struct, frozen=True):
    """The items of one conversation, and their size in bytes."""

    items: list[Raw]
    size: int


class HistoryCache:
    """All WebSocket histories of the gateway; `max_history` bounds one of them in bytes, `limit` all."""

    def __init__(self, max_history: int, limit: int) -> None:
        self._max_history = max_history
        self._limit = limit
        self._entries: OrderedDict[tuple[object, str], _History] = OrderedDict()
        self._size = 0

    def get(self, key: tuple[object, str]) -> _History | None:
        """Return a history, marking it as recently used."""
        if (history := self._entries.get(key)) is not None:
            self._entries.move_to_end(key)
        return history

    def put(self, key: tuple[object, str], items: list[Raw]) -> None:
        """Store a history, evicting others if needed; one that is too large is dropped."""
        self.remove(key)
        copies = [item.copy() for item in items]  # otherwise each item keeps the entire message it came in alive
        size = sum(len(memoryview(item)) for item in copies)
        if size > self._max_history:
            return
        self._entries[key] = _History(copies, size)
        self._size += size
        while self._size > self._limit:
            self.remove(next(iter(self._entries)))

    def remove(self, key: tuple[object, str]) -> None:
        """Remove a history, if it is there."""
        if (history := self._entries.pop(key, None)) is not None:
            self._size -= history.size


class ConnectionState:
    """The channels of one connection."""

    def __init__(self, histories: HistoryCache) -> None:
        self._histories = histories
        self._response_ids: dict[str, str] = {}
        self._closed = False

    @property
    def last_response_ids(self) -> set[str]:
        """Return the id of the last response of each channel."""
        return set(self._response_ids.values())

    def find_history(self, id: str) -> list[Raw] | None:
        """Return the items up to this response; None if it is not the last one of a channel, or was evicted."""
        for stream_id, response_id in self._response_ids.items():
            if response_id == id and (history := self._histories.get((self, stream_id))) is not None:
                return history.items
        return None

    def store_history(self, stream_id: str, id: str, items: list[Raw]) -> None:
        """Store the items up to this response as the channel's history."""
        if not self._closed:  # a response may complete just after its connection is closed
            self._response_ids[stream_id] = id
            self._histories.put((self, stream_id), items)

    def close(self) -> None:
        """Remove all histories of the connection."""
        self._closed = True
        for stream_id in self._response_ids:
            self._histories.remove((self, stream_id))


class ChannelState(Struct, frozen=True):
    """One channel of a connection, as the request that it carries sees it."""

    stream_id: str
    connection: ConnectionState

    def find_history(self, id: str) -> list[Raw] | None:
        """Return the items up to this response of the connection; None if they are not there."""
        return self.connection.find_history(id)

    def store_history(self, id: str, items: list[Raw]) -> None:
        """Store the items up to this response as the channel's history."""
        self.connection.store_history(self.stream_id, id, items)
