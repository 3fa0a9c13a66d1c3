"""Replacing the configuration of a gateway while it serves: SIGHUP.

Requests under way finish with the configuration that they began with. State and connections outlive the change. A
configuration that is broken is refused, and the previous one stays in use.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from toolwire.canonical.errors import ToolwireError
from toolwire.upstream.asgi import Receive, Scope, Send

if TYPE_CHECKING:
    from toolwire.gateway.server.gateway import Gateway

REFUSED_RELOAD = "configuration not reloaded, the previous one stays in use"
_FIXED_SECTIONS = ("state", "simulator")  # they take effect when the gateway starts

Rebuild = Callable[["Gateway"], Awaitable["Gateway"]]
"""Reads the configuration anew, and builds the gateway that follows this one."""


class LiveGateway:
    """The ASGI application of a gateway that can be replaced by a new one."""

    def __init__(self, gateway: "Gateway", rebuild: Rebuild | None = None) -> None:
        self.current = gateway
        self._rebuild = rebuild
        self._request_counts = Counter[int]()
        self._retired: dict[int, Gateway] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._terminals = find_terminals()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self.current
        key = id(gateway)
        self._request_counts[key] += 1
        try:
            await gateway.app(scope, receive, send)
        finally:
            self._request_counts[key] -= 1
            if gateway is not self.current:
                await self._retire_idle()

    def begin_stop(self) -> None:
        """Answer probes of readiness with 503, and end streams that have no end."""
        for gateway in (self.current, *self._retired.values()):
            gateway.app.is_stopping = True
            gateway.app.end_feeds()

    async def close(self) -> None:
        """Close all gateways."""
        for gateway in self._retired.values():
            await _close_retired(gateway)
        self._retired.clear()
        self.current.app.close()
        await self.current.route_toolsets.close()

    def watch_signal(self, stop: Callable[[], None]) -> None:
        """Reload at SIGHUP, unless the process ignores it (`nohup`); call `stop` if its terminal was closed."""
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._handle_signal, stop)

    def _handle_signal(self, stop: Callable[[], None]) -> None:
        """Reload, or stop without a terminal."""
        if is_closed(self._terminals):
            stop()
            return
        task = asyncio.get_running_loop().create_task(self.reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def reload(self) -> None:
        """Read the configuration anew, and serve new requests with it."""
        previous = self.current
        if self._rebuild is None:
            return
        try:
            gateway = await self._rebuild(previous)
        except (ToolwireError, OSError) as error:
            previous.log.write_line(f"{REFUSED_RELOAD}: {error}")
            return
        self._retired[id(previous)] = previous
        self.current = gateway
        previous.app.end_feeds()
        await self._retire_idle()
        changed = [name for name in _FIXED_SECTIONS if getattr(previous.config, name) != getattr(gateway.config, name)]
        note = f" (changes of {' and '.join(changed)} take effect after a restart)" if changed else ""
        gateway.log.write_line(f"configuration reloaded{note}")

    async def _retire_idle(self) -> None:
        """Close retired gateways whose last request has ended."""
        for key in [key for key in self._retired if not self._request_counts[key]]:
            del self._request_counts[key]
            await _close_retired(self._retired.pop(key))


async def _close_retired(gateway: "Gateway") -> None:
    """Close what a gateway does not share with its successor."""
    gateway.app.retire()
    await gateway.route_toolsets.close()


def find_terminals() -> tuple[int, ...]:
    """Return the standard streams that are terminals."""
    return tuple(descriptor for descriptor in range(3) if os.isatty(descriptor))


def is_closed(terminals: tuple[int, ...]) -> bool:
    """Return whether the terminal that a process was started in is gone, so that SIGHUP does not mean a reload."""
    return bool(terminals) and not any(os.isatty(descriptor) for descriptor in terminals)
