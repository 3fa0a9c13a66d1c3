"""Loss reports in a store that replicas share, so that each of them finds the losses of every exchange.

Only exchanges with losses have a row. No response waits for it: reports are written together, a moment later, and a
lookup waits for that long. On one machine the reports are in memory (`observability/metrics.py`).
"""

import asyncio

from toolwire.gateway.state.store import Row, StateStore

_KIND = "losses"
_WRITE_INTERVAL = 0.2
_LOOKUP_DELAYS = (0.0, 0.3, 0.7)
"""Seconds before each attempt to find a report, which another replica may be about to write."""


class SharedLossReports:
    """The loss reports of all replicas; without a shared store there are none."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._reports: dict[tuple[str, str], bytes] = {}

    def add(self, owner: str, exchange_id: str, report: bytes) -> None:
        """Write a loss report (JSON) within `_WRITE_INTERVAL`; a later one of the same exchange replaces it."""
        if not self._store.is_shared:
            return
        if not self._reports:
            asyncio.get_running_loop().call_later(_WRITE_INTERVAL, self.flush)
        self._reports[owner, exchange_id] = report

    def flush(self) -> None:
        """Queue the reports collected so far to be written."""
        reports, self._reports = self._reports, {}
        if reports:
            self._store.enqueue([Row(owner, _KIND, id, report) for (owner, id), report in reports.items()])

    async def find(self, owner: str, exchange_id: str) -> bytes | None:
        """Return the losses of an exchange that any replica served; None if it is unknown or had none."""
        if not self._store.is_shared:
            return None
        for delay in _LOOKUP_DELAYS:
            await asyncio.sleep(delay)
            if report := (await self._store.get(owner, _KIND, [exchange_id])).get(exchange_id):
                return report
        return None
