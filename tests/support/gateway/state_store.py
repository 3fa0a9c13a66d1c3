"""Limits, rows and scenario types for tests of the state store."""

from collections.abc import Callable, Coroutine
from typing import Any

from toolwire.gateway.state.store import Row, SqliteStateStore, StoreLimits

AMPLE_BOUNDS = StoreLimits(ttl=3600, rows=1000, bytes=1_000_000)
StoreScenario = Callable[[SqliteStateStore], Coroutine[Any, Any, None]]


def response_row(
    id: str, body: bytes = b"{}", parent: str | None = None, owner: str = "me", kind: str = "response"
) -> Row:
    return Row(owner, kind, id, body, parent)
