"""The interface of the state store: rows by owner, kind and id.

1. An owner sees only its own rows. If the store is full, the owners with the most data lose their least recently used
   rows, so that no owner evicts another's.
2. A row is visible to every later read as soon as it is written or queued. Other processes may share the store.
3. While the store is unavailable, requests that need it fail at once until it is available again.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from toolwire.canonical.errors import ApiError
from toolwire.gateway.errors import RequestRejected

_RETRY_AFTER = 5.0


ChildWait = Callable[[], Awaitable[None]]
"""Returns at the latest after a second."""


class Row(Struct, frozen=True):
    """A stored row."""

    owner: str
    """A digest of the key that created the row."""
    kind: str
    id: str
    body: bytes
    parent: str | None = None
    """The id of another row of the same kind, or of the object that the row belongs to."""


class StateUnavailable(RequestRejected):
    """State can't be read or written; requests that need it fail with 503."""

    def __init__(self, reason: str) -> None:
        message = f"the gateway's state is unavailable, and this request needs it: {reason}"
        super().__init__(ApiError(kind="overloaded", message=message, status=503, retry_after=_RETRY_AFTER))
        self.reason = reason


class StateStore(Protocol):
    """A store of rows, visible to later reads as soon as they are written or queued.

    Rows of one call are written together or not at all. Rows not used for their time to live are gone. Methods that
    wait raise `StateUnavailable` on failure.
    """

    is_shared: bool
    """Whether other machines use the store."""

    @property
    def unavailable_reason(self) -> str | None:
        """Return why the store is unavailable, as far as is known."""

    def enqueue(self, rows: Sequence[Row]) -> None:
        """Write without waiting, for rows that no client relies on; rows that exceed the queue are dropped."""

    async def put(self, rows: Sequence[Row]) -> None:
        """Write rows, and return once they survive a crash: for ids that a client gets."""

    async def flush(self) -> None:
        """Wait until the rows enqueued so far are written, if other machines may ask for them; never fails."""

    async def put_if(self, rows: Sequence[Row], accepts: Callable[[bytes | None], bool]) -> bool:
        """Write as `put` does if the first row's stored body is accepted; return whether it was.

        `accepts` gets None if no such row is stored. No other write comes between the check and this one.
        """

    def version(self) -> object:
        """Return a value that changes whenever rows may have been written, here or by another process.

        It differs with each call if the store can't know.
        """

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the bodies of the rows that exist, by id."""

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        """Return a row and all its ancestors, the first one first; empty if any of them is missing."""

    async def children(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        """Return the rows with this parent, in the order written, whose id sorts after `after`."""

    async def has_children(self, owner: str, kind: str, parent: str) -> bool:
        """Return whether any row has this parent."""

    def watch_children(self, owner: str, kind: str, parent: str) -> AbstractContextManager[ChildWait]:
        """Return a function that waits until rows with this parent may have been written since it was called last."""

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        """Delete a row, and return whether it existed."""

    async def delete_children(self, owner: str, kind: str, parent: str) -> None:
        """Delete all rows with this parent."""

    def enqueue_delete(self, owner: str, kind: str, id: str) -> None:
        """Delete a row without waiting."""

    async def check_writable(self) -> None:
        """Raise `StateUnavailable` unless a transaction can be opened."""

    def schedule_check(self) -> None:
        """Check without waiting whether the store is available again."""

    def close(self) -> None:
        """Write queued rows and close the store."""


class StoreLimits(Struct, frozen=True):
    """Limits of a store."""

    ttl: float
    """Seconds since a row was last used."""
    rows: int
    bytes: int
    queue: int = 64 * 1024 * 1024
    """Bytes that may wait to be written."""
