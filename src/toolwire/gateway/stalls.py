"""Clients that stop reading: a connection with data to send makes progress, or it is aborted."""

import asyncio


class Stall:
    """The time since which a client has taken nothing of the data that waits for it."""

    def __init__(self, transport: asyncio.Transport, limit: float) -> None:
        self._transport = transport
        self._limit = limit
        self._waiting = 0
        self._since = 0.0

    def left(self, now: float) -> float:
        """Return for how many seconds more the client may take nothing.

        Progress is seen from one call to the next, so a stall lasts for at most twice the limit.
        """
        waiting = self._transport.get_write_buffer_size()
        if not waiting or waiting != self._waiting:
            self._waiting, self._since = waiting, now
        return self._since + self._limit - now
