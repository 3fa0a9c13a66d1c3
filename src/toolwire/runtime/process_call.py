"""Calls of Python functions in a process of their own, which can be killed, unlike a thread."""

import asyncio
import inspect
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from toolwire.runtime.calls.outputs import collect_items
from toolwire.runtime.tool import ToolError

_Result = tuple[bool, Any]
"""Whether the function returned, with its value, or else its exception."""


async def call_in_process(function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Call a function in a new process, and return its value; cancellation kills the process.

    The process imports the module of the function, so that must be importable, and a script needs the usual guard
    `if __name__ == "__main__"`.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(sender, function, kwargs), daemon=True)
    call = asyncio.ensure_future(asyncio.to_thread(_run, process, receiver, sender))
    try:
        returned, value = await asyncio.shield(call)
    except asyncio.CancelledError:
        if process.pid is not None:
            process.kill()  # ends the pipe, and so the thread
        raise
    if not returned:
        raise value
    return value


def _run(process: BaseProcess, receiver: Connection, sender: Connection) -> _Result:
    """Start the process, and wait for its result and its end."""
    with receiver:
        with sender:  # so that the end of the process ends the pipe
            process.start()
        try:
            result: _Result = receiver.recv()
        except EOFError:
            process.join()
            return False, ToolError(f"the process ended with exit code {process.exitcode}", "crash")
        process.join()
        return result


def _call(sender: Connection, function: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Call the function in the process, and send its result."""
    result: _Result
    try:
        value = function(**kwargs)
        result = (True, collect_items(value) if inspect.isgenerator(value) else value)
    except ToolError as error:
        result = (False, ToolError(str(error), error.kind))
    except Exception as error:  # noqa: BLE001 - a failure of the function is a result for the model
        result = (False, ToolError(f"{type(error).__name__}: {error}", "crash"))
    with sender:
        try:
            sender.send(result)
        except Exception as error:  # noqa: BLE001 - not every value can be sent
            sender.send((False, ToolError(f"the result can't leave the process: {error}", "crash")))
