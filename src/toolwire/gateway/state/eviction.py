"""Evicting stored rows over the limits of the state: the owners with the most data lose theirs first."""

import sqlite3
from collections.abc import Sequence

from toolwire.journal.sqlite_files import transaction

_ROWS_PER_TRANSACTION = 1000  # other processes wait for the lock during a transaction


def evict_rows(connection: sqlite3.Connection, rows: int, size: int) -> None:
    """Delete rows until at most `rows` of them, with at most `size` bytes together, are left.

    The owners with the most data lose theirs first.
    """
    cursor = connection.execute("SELECT owner, count(*), coalesce(sum(length(body)), 0) FROM kept GROUP BY owner")
    owners = cursor.fetchall()
    row_share = fair_share([count for _, count, _ in owners], rows)
    byte_share = fair_share([used_bytes for _, _, used_bytes in owners], size)
    for owner, count, used_bytes in owners:
        if count > row_share or used_bytes > byte_share:
            _evict_owner_rows(connection, owner, count - row_share, used_bytes - byte_share)


def fair_share(amounts: Sequence[int], capacity: int) -> int:
    """Return the largest cap per owner that makes all owners fit in `capacity`; owners below it are not cut."""
    for position, amount in enumerate(ascending := sorted(amounts)):
        share = capacity // (len(ascending) - position)
        if amount > share:
            return share
        capacity -= amount
    return max(amounts, default=0)


def _evict_owner_rows(connection: sqlite3.Connection, owner: str, rows: int, size: int) -> None:
    """Delete the least recently used rows of one owner: at least this many rows and bytes."""
    query = "SELECT serial, length(body) FROM kept WHERE owner = ? ORDER BY used, serial"
    serials: list[tuple[int]] = []
    for serial, length in connection.execute(query, (owner,)).fetchall():
        if rows <= 0 and size <= 0:
            break
        serials.append((serial,))
        rows, size = rows - 1, size - length
    for start in range(0, len(serials), _ROWS_PER_TRANSACTION):
        with transaction(connection):
            connection.executemany("DELETE FROM kept WHERE serial = ?", serials[start : start + _ROWS_PER_TRANSACTION])
