"""A transport without a network, for protocols that are driven byte by byte."""

import asyncio
import atexit
import socket
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")


class MemoryTransport(asyncio.Transport):
    """A transport that records writes; `closed` if the protocol closed or aborted it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False
        self.paused = False
        self.protocol: Any = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return _quiet_socket()
        return ("127.0.0.1", 1) if name in ("sockname", "peername") else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    async def deliver(self, packets: list[bytes], state: Callable[[], Any]) -> None:
        """Deliver packets to the protocol, each after `state` has settled."""
        for packet in packets:
            if self.closed:
                return
            self.protocol.data_received(packet)
            await settle(state)


@cache
def _quiet_socket() -> socket.socket:
    """Return a connected socket on which nothing ever arrives."""
    quiet, other = socket.socketpair()
    atexit.register(quiet.close)
    atexit.register(other.close)
    return quiet


async def settle(state: Callable[[], Any]) -> None:
    """Let tasks run until several iterations of the loop changed nothing."""
    quiet, before = 0, state()
    while quiet < 6:
        await asyncio.sleep(0)
        now = state()
        quiet = quiet + 1 if now == before else 0
        before = now


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a shared event loop, since creating one per case would take most of the time."""
    return _runner().run(work)


@cache
def _runner() -> asyncio.Runner:
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner
