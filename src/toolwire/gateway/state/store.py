"""Where it is kept: rows by owner, kind and id, each perhaps under a parent. An owner sees no row but its own."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Row(Struct, frozen=True):
    """`owner` is a digest of the key that made it, `parent` the id of another row of the same kind, or whatever else
    it belongs to."""

    owner: str
    kind: str
    id: str
    body: bytes
    parent: str | None = None


class Store(Protocol):
    """Rows of one `keep` are kept together or not at all, and whoever asks afterwards sees them. A row that was not
    used for longer than its time to live is not there."""

    def keep(self, rows: Sequence[Row]) -> None:
        """Returns at once: nobody waits for a disk. What does not fit in the queue to it is not kept."""

    def version(self) -> object:
        """Another one, whenever anything may have been kept, here or by another process."""

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> dict[str, bytes]: ...

    async def lineage(self, owner: str, kind: str, id: str) -> list[Row]:
        """The row with all those before it, the first one first. Empty, if it or any of them is not there."""

    async def under(self, owner: str, kind: str, parent: str) -> list[Row]:
        """The rows that have this parent, in the order in which they were kept."""

    async def has(self, owner: str, kind: str, parent: str) -> bool:
        """Whether there is any row under this parent."""

    async def delete(self, owner: str, kind: str, id: str) -> bool:
        """Whether it was there."""

    async def delete_under(self, owner: str, kind: str, parent: str) -> None: ...

    def close(self) -> None: ...
