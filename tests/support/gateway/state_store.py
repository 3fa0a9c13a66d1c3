"""Limits, rows, stores and scenario types for tests of the state store."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from toolwire.gateway.state.postgres_store import PostgresStateStore
from toolwire.gateway.state.sql_store import SqlStateStore
from toolwire.gateway.state.sqlite_store import IN_MEMORY, SqliteStateStore
from toolwire.gateway.state.store import Row, StoreLimits

AMPLE_BOUNDS = StoreLimits(ttl=3600, rows=1000, bytes=1_000_000)
StoreLocation = Path | str | None
"""A file, the URL of a PostgreSQL database, or memory."""
StoreScenario = Callable[[SqlStateStore[Any]], Coroutine[Any, Any, None]]


def open_store_at(location: StoreLocation, limits: StoreLimits = AMPLE_BOUNDS) -> SqlStateStore[Any]:
    if isinstance(location, str):
        return PostgresStateStore(location, limits)
    return SqliteStateStore(IN_MEMORY if location is None else str(location), limits)


def response_row(
    id: str, body: bytes = b"{}", parent: str | None = None, owner: str = "me", kind: str = "response"
) -> Row:
    return Row(owner, kind, id, body, parent)
