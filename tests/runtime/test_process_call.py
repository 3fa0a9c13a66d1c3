"""Tools in processes of their own: values, errors, crashes, and a timeout that really ends them."""

import asyncio
import os
import subprocess
import sys
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


def test_functions_that_no_process_can_import_are_refused_where_defined() -> None:
    message = "hidden: with process=True, a new process imports the function: define it at the top level of a module"
    with pytest.raises(InvalidToolFunction, match=message):

        @tool(process=True)
        def hidden() -> None:
            """Do nothing."""

    with pytest.raises(InvalidToolFunction, match="at the top level of a module"):
        tool(name="nameless", process=True)(lambda: None)


SCRIPT = """
import toolwire as tw
from toolwire.testing import ScriptedModel, call

print("started")


@tw.tool(process=True, read_only=True)
def look() -> str:
    return "seen"

"""
RUN = "print(tw.Agent(ScriptedModel(call('look'), 'Done.'), tools=[look]).run('Go.').calls[0].summary)"


def run_script(path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script, as a user does."""
    path.write_text(text)
    return subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)


def test_script_without_the_guard_is_refused_before_anything_runs_twice(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    ended = run_script(script, SCRIPT + RUN)
    assert ended.stdout == "started\n"
    assert ended.stderr.splitlines()[-1] == (
        "toolwire.runtime.function_tool.InvalidToolFunction: look: with process=True, a new process imports "
        f"{script}, which would run again as a whole: put the code that runs the agent below "
        '`if __name__ == "__main__":`'
    )
    ended = run_script(script, f"{SCRIPT}if __name__ == '__main__':\n    {RUN}")
    assert (ended.stdout, ended.stderr) == ("started\nstarted\nseen\n", "")


def test_function_of_a_program_without_a_file_is_refused() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT + RUN], capture_output=True, text=True, check=False)
    assert "look: with process=True, a new process imports the function: define it in a file" in ended.stderr
