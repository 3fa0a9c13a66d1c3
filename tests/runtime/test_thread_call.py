"""Tools in threads: context, errors, and programs that end although a tool hangs."""

import asyncio
import contextvars
import signal
import subprocess
import sys
import threading

import pytest

from tests.support.deadlines import DEADLINE
from toolwire.runtime.thread_call import call_in_thread

USER = contextvars.ContextVar("USER", default="nobody")


def test_function_runs_in_another_thread_with_the_context_of_its_caller() -> None:
    async def main() -> tuple[str, str]:
        USER.set("Ada")
        return await call_in_thread(lambda: (USER.get(), threading.current_thread().name))

    assert asyncio.run(main()) == ("Ada", "toolwire-call")


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_error_of_the_function_reaches_the_caller(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("no")

    async def main() -> None:
        with pytest.raises(error):
            await call_in_thread(fail)

    asyncio.run(main())


PROGRAM = """
import asyncio, threading
import toolwire as tw
from toolwire.testing import ScriptedModel, call

@tw.tool(read_only=True)
def hang() -> str:
    print("hanging", flush=True)
    threading.Event().wait()

agent = tw.Agent(ScriptedModel(call("hang")), tools=[hang])

async def main() -> None:
    await agent.run("Go.")

"""


@pytest.mark.parametrize("run", ["agent.run('Go.')", "asyncio.run(main())"])
def test_interrupt_ends_a_program_whose_tool_hangs(run: str) -> None:
    command = [sys.executable, "-c", PROGRAM + run]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "hanging\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
