"""Tools in processes of their own: values, errors, crashes, and a timeout that really ends them."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadlines import wait_until
from toolwire import Agent, Policy, ToolContext, ToolError, tool
from toolwire.runtime.function_tool import InvalidToolFunction, as_tool
from toolwire.runtime.process_call import call_in_process
from toolwire.testing import ScriptedModel, call


@tool(process=True, read_only=True)
def own_process(parent: int) -> bool:
    return os.getpid() != parent


@tool(process=True, read_only=True)
def refuse() -> None:
    raise ToolError("not today")


@tool(process=True, read_only=True)
def crash() -> None:
    os._exit(3)


@tool(process=True)
def hang(pid_file: str) -> None:
    Path(pid_file).write_text(str(os.getpid()))
    time.sleep(600)


def summary(*turns: object) -> str:
    """Return the result of a call, as the model sees it."""
    model = ScriptedModel(*turns, "done")  # type: ignore[arg-type]
    tools: list[Callable[..., Any]] = [own_process, refuse, crash]
    return Agent(model, tools=tools, policy=Policy(allow=["*"])).run("Go.").calls[0].summary


def test_value_and_error_of_a_process_are_those_of_the_call() -> None:
    assert summary(call("own_process", parent=os.getpid())) == "true"
    assert summary(call("refuse")) == "not today"
    assert summary(call("crash")) == "the process ended with exit code 3"


def test_timeout_kills_the_process(tmp_path: Path) -> None:
    """The executor cancels a call at its timeout."""
    pid_file = tmp_path / "pid"

    async def main() -> None:
        running = asyncio.ensure_future(call_in_process(hang, {"pid_file": str(pid_file)}))
        await asyncio.to_thread(wait_until, lambda: pid_file.exists() and pid_file.read_text().isdigit())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    process = Path("/proc", pid_file.read_text())
    wait_until(lambda: not process.exists())
    assert as_tool(hang).stoppable


def test_functions_that_need_the_process_of_the_agent_are_refused() -> None:
    with pytest.raises(InvalidToolFunction, match="or take a ToolContext"):

        @tool(process=True)
        def asks(context: ToolContext) -> str:
            return context.id
