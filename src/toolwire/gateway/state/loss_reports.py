"""Loss reports in a store that replicas share, so that each of them finds the losses of every exchange.

Only exchanges with losses have a row. On one machine the reports are in memory (`observability/metrics.py`).
"""

from toolwire.gateway.state.store import Row, StateStore

_KIND = "losses"


class SharedLossReports:
    """The loss reports of all replicas; without a shared store there are none."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def add(self, owner: str, exchange_id: str, report: bytes) -> bool:
        """Queue a loss report (JSON) to be stored; return False if there is no shared store."""
        if self._store.is_shared:
            self._store.enqueue([Row(owner, _KIND, exchange_id, report)])
        return self._store.is_shared

    async def flush(self) -> None:
        """Wait until the queued reports are stored."""
        await self._store.flush()

    async def find(self, owner: str, exchange_id: str) -> bytes | None:
        """Return the losses of an exchange that any replica served; None if it is unknown or had none."""
        if not self._store.is_shared:
            return None
        return (await self._store.get(owner, _KIND, [exchange_id])).get(exchange_id)
