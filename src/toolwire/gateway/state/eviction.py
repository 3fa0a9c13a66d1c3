"""Room for new rows: the owners that hold the most give up what they used least, so that nobody evicts another."""

import sqlite3
from collections.abc import Sequence

from toolwire.journal.files import transaction

_CHUNK = 1000  # rows of one transaction: other processes wait for the lock meanwhile


def evict_rows(connection: sqlite3.Connection, rows: int, size: int) -> None:
    """Delete until at most so many rows, of so many bytes together, are left."""
    held = connection.execute("SELECT owner, count(*), coalesce(sum(length(body)), 0) FROM kept GROUP BY owner")
    owners = held.fetchall()
    most_rows = fair_share([count for _, count, _ in owners], rows)
    most_bytes = fair_share([taken for _, _, taken in owners], size)
    for owner, count, taken in owners:
        if count > most_rows or taken > most_bytes:
            _evict_of(connection, owner, count - most_rows, taken - most_bytes)


def fair_share(held: Sequence[int], room: int) -> int:
    """The most that one owner may hold so that all of them fit in `room`. Whoever holds less keeps all of it."""
    for place, amount in enumerate(ascending := sorted(held)):
        share = room // (len(ascending) - place)
        if amount > share:
            return share
        room -= amount
    return max(held, default=0)


def _evict_of(connection: sqlite3.Connection, owner: str, rows: int, size: int) -> None:
    """Delete so many rows, and so many bytes, of one owner: those that were unused longest."""
    query = "SELECT serial, length(body) FROM kept WHERE owner = ? ORDER BY used, serial"
    gone: list[tuple[int]] = []
    for serial, length in connection.execute(query, (owner,)).fetchall():
        if rows <= 0 and size <= 0:
            break
        gone.append((serial,))
        rows, size = rows - 1, size - length
    for start in range(0, len(gone), _CHUNK):
        with transaction(connection):
            connection.executemany("DELETE FROM kept WHERE serial = ?", gone[start : start + _CHUNK])
