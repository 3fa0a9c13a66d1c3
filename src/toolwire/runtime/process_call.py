"""Calls of Python functions in a process of their own, which can be killed, unlike a thread."""

import asyncio
import contextlib
import inspect
import multiprocessing
import re
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from toolwire.runtime.calls.outputs import collect_items
from toolwire.runtime.tool import ToolError

_GUARD = re.compile("__(mp_)?main__|parent_process")

_Result = tuple[bool, Any]
"""Whether the function returned, with its value, or else its exception."""


def find_obstacle(function: Callable[..., Any]) -> str | None:
    """Return why a new process can't call the function; None if nothing is known to prevent it."""
    qualified_name = getattr(function, "__qualname__", "")
    if "<" in qualified_name:  # `<locals>` or `<lambda>`
        return "with process=True, a new process imports the function: define it at the top level of a module"
    path = _reimported_script()
    if path is None:
        is_in_file = getattr(sys.modules["__main__"], "__file__", None) is not None
        if getattr(function, "__module__", "") == "__main__" and not is_in_file:
            return "with process=True, a new process imports the function: define it in a file"
        return None
    with contextlib.suppress(OSError):
        if _GUARD.search(Path(path).read_text(encoding="utf-8", errors="replace")) is None:
            return (
                f"with process=True, a new process imports {path}, which would run again as a whole: "
                'put the code that runs the agent below `if __name__ == "__main__":`'
            )
    return None


def _reimported_script() -> str | None:
    """Return the path of the program's main script if new processes import it; None if they do not."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is None:
        return getattr(main, "__file__", None)
    is_package = spec.name == "__main__" or spec.name.endswith(".__main__")  # which multiprocessing leaves out
    return None if is_package else spec.origin


async def call_in_process(function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Call a function in a new process, and return its value; cancellation kills the process.

    The process imports the module of the function and the main script; see `find_obstacle`.
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
