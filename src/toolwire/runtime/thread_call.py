"""Calls of Python functions in threads that do not delay the end of the program."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


async def call_in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread of its own, and return its value; after a cancellation, the thread runs on.

    The interpreter joins the threads of `asyncio.to_thread` before it exits. A function that hangs would keep a program
    alive after Ctrl-C, so the thread is a daemon.
    """
    outcome: Future[T] = Future()
    context = copy_context()

    def execute() -> None:
        """Call the function, and set the outcome."""
        outcome.set_running_or_notify_cancel()
        try:
            value = context.run(function)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            outcome.set_exception(error)
        else:
            outcome.set_result(value)

    threading.Thread(target=execute, name="toolwire-call", daemon=True).start()
    return await asyncio.wrap_future(outcome)
