"""A background event loop for synchronous callers, shared by the whole process."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, TypeVar

from toolwire.canonical.errors import ToolwireError

T = TypeVar("T")


def has_running_loop() -> bool:
    """Return True if the current thread is running an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for its result.

    An exception in the waiting thread, such as `KeyboardInterrupt`, cancels the coroutine.
    """
    if has_running_loop() and asyncio.get_running_loop() is _portal_loop():
        coroutine.close()
        raise ToolwireError("synchronous code can't wait on toolwire's own event loop: use the asynchronous interface")
    future = asyncio.run_coroutine_threadsafe(coroutine, _portal_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def run_on_portal(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop, and await its result on the current loop."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, _portal_loop()))


@lru_cache(maxsize=1)
def _portal_loop() -> asyncio.AbstractEventLoop:
    """Start the background loop in a daemon thread, once."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="toolwire", daemon=True).start()
    return loop
