"""For code that is not asynchronous: one event loop in a thread of its own, for as long as the process lives."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")


def has_running_loop() -> bool:
    """Whether whoever asks runs in an event loop already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it there, and wait. An interrupt stops it."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _portal_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


@lru_cache(maxsize=1)
def _portal_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="toolwire", daemon=True).start()
    return loop
