"""Where it is kept: rows by owner, kind and id, each perhaps under a parent. An owner sees no row but its own."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from toolwire.canonical.errors import ApiError
from toolwire.gateway.refusal import Refused

_RETRY_AFTER = 5.0


class Row(Struct, frozen=True):
    """`owner` is a digest of the key that made it, `parent` the id of another row of the same kind, or whatever else
    it belongs to."""

    owner: str
    kind: str
    id: str
    body: bytes
    parent: str | None = None


class Unavailable(Refused):
    """State can't be read or written at the moment. A request that needs it gets this as its answer (503)."""

    def __init__(self, why: str) -> None:
        message = f"the gateway's state is unavailable, and this request needs it: {why}"
        super().__init__(ApiError(kind="overloaded", message=message, status=503, retry_after=_RETRY_AFTER))
        self.why = why


class Store(Protocol):
    """Rows of one `keep` or `put` are kept together or not at all, and whoever asks afterwards sees them. A row that
    was not used for longer than its time to live is not there. What waits for an answer raises `Unavailable`."""

    @property
    def trouble(self) -> str | None:
        """Why it is unavailable, as far as is known."""

    def keep(self, rows: Sequence[Row]) -> None:
        """Write without waiting: for rows that nobody was promised. What does not fit in the queue is dropped."""

    async def put(self, rows: Sequence[Row]) -> None:
        """Write, and return once the rows survive the end of the process: for what a client is told an id of."""

    def version(self) -> object:
        """Another one, whenever anything may have been kept, here or by another process."""

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]: ...

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        """The row with all those before it, the first one first. Empty, if it or any of them is not there."""

    async def under(self, owner: str, kind: str, parent: str, after: str = "") -> list[Row]:
        """The rows that have this parent, in the order in which they were kept; only those whose id is behind `after`
        in the order of text."""

    async def has(self, owner: str, kind: str, parent: str) -> bool:
        """Whether there is any row under this parent."""

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        """Whether it was there."""

    async def delete_under(self, owner: str, kind: str, parent: str) -> None: ...

    def discard(self, owner: str, kind: str, id: str) -> None:
        """Delete without waiting."""

    async def check(self) -> None:
        """Try to write nothing."""

    def recheck(self) -> None:
        """Find out, without waiting, whether the trouble is over."""

    def close(self) -> None: ...
