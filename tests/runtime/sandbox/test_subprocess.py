"""`start_subprocess`: cancelled at any time, no program and no pipe remains."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.runtime.fork_server import run_forked
from toolwire.runtime.sandbox.process import Subprocess, start_subprocess

PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
ENDING_LOOP = """
import asyncio, os, sys
from tests.runtime.sandbox.test_subprocess import STARTS

async def main():
    asyncio.ensure_future(STARTS[sys.argv[1]]())
    for _ in range(int(sys.argv[2])):
        await asyncio.sleep(0)

asyncio.run(main())
"""


async def convert_page() -> None:
    from toolwire.runtime.tools.html_markdown import convert_in_subprocess

    await convert_in_subprocess("<p>x</p>")


async def start_endless_program() -> Subprocess:
    return await start_subprocess("sleep", "600", **PIPES)


STARTS = {"page": convert_page, "endless": start_endless_program}


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("steps", range(7))
def test_event_loop_can_end_while_a_program_starts(name: str, steps: int, tmp_path: Path) -> None:
    """At its end, `asyncio.run` cancels every task, including those that connect pipes."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = run_forked(ENDING_LOOP, name, str(steps), folder=tmp_path, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("steps", range(7))
def test_cancelled_start_leaves_no_program_and_no_pipe(
    loop_factory: Any, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        programs.append(subprocess_popen(*arguments, **options))
        return programs[-1]

    subprocess_popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)

    async def work() -> None:
        starting = asyncio.ensure_future(start_endless_program())
        for _ in range(steps):
            await asyncio.sleep(0)
        if not starting.done():
            starting.cancel()
        done, _ = await asyncio.wait([starting])
        if not starting.cancelled():
            done.pop().result().close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(work())
    for program in programs:
        assert program.returncode is not None
        assert all(pipe is not None and pipe.closed for pipe in (program.stdin, program.stdout, program.stderr))
    assert programs or not steps


def test_output_that_nobody_reads_does_not_delay_the_end() -> None:
    async def work() -> None:
        program = await start_subprocess(sys.executable, "-c", "while True: print('x' * 60_000)", **PIPES)
        assert program.stdout is not None
        await program.stdout.readexactly(1)
        program.close()
        assert program.returncode is not None

    asyncio.run(work())


def test_program_that_exits_early_need_not_read_its_input() -> None:
    async def work() -> None:
        program = await start_subprocess("echo", "done", **PIPES)
        try:
            assert await program.communicate(b"x" * 10_000_000) == b"done\n"
            assert program.returncode == 0
        finally:
            program.close()

    asyncio.run(work())


def test_input_and_output_larger_than_the_pipes_are_complete() -> None:
    async def work() -> None:
        program = await start_subprocess("cat", **PIPES)
        try:
            assert await program.communicate(b"0123456789" * 500_000) == b"0123456789" * 500_000
        finally:
            program.close()

    asyncio.run(work())
