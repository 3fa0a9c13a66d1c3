"""Waiting for events. Deadlines only end a test that can no longer pass, however slow the machine is."""

import asyncio
import time
from collections.abc import Callable

DEADLINE = 300.0
_POLL_INTERVAL = 0.005


def wait_until(condition: Callable[[], object], message: str = "what the test waits for did not happen") -> None:
    """Block until the condition holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(_POLL_INTERVAL)


async def wait_until_async(
    condition: Callable[[], object], message: str = "what the test waits for did not happen"
) -> None:
    """Let the event loop run until the condition holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, message
        await asyncio.sleep(_POLL_INTERVAL)


async def run_event_loop(times: int = 100) -> None:
    """Let the event loop run everything that is ready, including both ends of a loopback socket."""
    for _ in range(times):
        await asyncio.sleep(0)
