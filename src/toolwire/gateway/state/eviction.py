"""Evicting stored rows over the limits of the state: the owners with the most data lose theirs first."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from toolwire.journal.sql import SqlConnection

_ROWS_PER_TRANSACTION = 1000  # other processes wait for the lock during a transaction


def evict_rows(
    connection: SqlConnection, open_transaction: Callable[[], AbstractContextManager[None]], rows: int, size: int
) -> None:
    """Delete rows until at most `rows` of them, with at most `size` bytes together, are left.

    The owners with the most data lose theirs first.
    """
    cursor = connection.execute("SELECT owner, count(*), coalesce(sum(length(body)), 0) FROM kept GROUP BY owner")
    owners = [(owner, int(count), int(used_bytes)) for owner, count, used_bytes in cursor.fetchall()]
    row_share = fair_share([count for _, count, _ in owners], rows)
    byte_share = fair_share([used_bytes for _, _, used_bytes in owners], size)
    for owner, count, used_bytes in owners:
        if count > row_share or used_bytes > byte_share:
            serials = _least_recently_used(connection, owner, count - row_share, used_bytes - byte_share)
            for start in range(0, len(serials), _ROWS_PER_TRANSACTION):
                values = [{"serial": serial} for serial in serials[start : start + _ROWS_PER_TRANSACTION]]
                with open_transaction():
                    connection.executemany("DELETE FROM kept WHERE serial = :serial", values)


def fair_share(amounts: Sequence[int], capacity: int) -> int:
    """Return the largest cap per owner that makes all owners fit in `capacity`; owners below it are not cut."""
    for position, amount in enumerate(ascending := sorted(amounts)):
        share = capacity // (len(ascending) - position)
        if amount > share:
            return share
        capacity -= amount
    return max(amounts, default=0)


def _least_recently_used(connection: SqlConnection, owner: str, rows: int, size: int) -> list[int]:
    """Return the numbers of the least recently used rows of one owner: at least this many rows and bytes."""
    query = "SELECT serial, length(body) FROM kept WHERE owner = :owner ORDER BY used, serial"
    serials: list[int] = []
    for serial, length in connection.execute(query, {"owner": owner}).fetchall():
        if rows <= 0 and size <= 0:
            break
        serials.append(serial)
        rows, size = rows - 1, size - length
    return serials
