"""Keys that commands print: their time, renewal, bounds and failures, with real processes."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.deadlines import wait_until, wait_until_async
from tests.support.gateway.in_process import run_async
from toolwire.upstream.key_command import LIMIT_KEY, MIN_INTERVAL, KeyCommand, KeyCommandError

SECRET_TEXT = "hunter2-hunter2"


class CountingCommand:
    """A command that prints `key-1`, `key-2` and so on."""

    def __init__(self, folder: Path, script: str = "") -> None:
        self.runs = folder / "runs"
        count = f'echo run >> "{self.runs}"; echo "key-$(wc -l < "{self.runs}" | tr -d " ")"'
        self.command = ("sh", "-c", f"{script}\n{count}")

    @property
    def count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


def test_key_is_used_for_its_time_and_then_printed_anew(tmp_path: Path, clock: Clock) -> None:
    command = CountingCommand(tmp_path)
    keys = KeyCommand(command.command, ttl=300)

    async def work() -> None:
        assert [await keys.current_key(), await keys.current_key()] == ["key-1", "key-1"]
        clock.advance(301)
        assert await keys.current_key() == "key-2"

    run_async(work())


def test_key_is_renewed_before_its_time_is_over_while_requests_use_the_old_one(tmp_path: Path, clock: Clock) -> None:
    gate = tmp_path / "gate"
    command = CountingCommand(tmp_path, f'while [ ! -e "{gate}" ]; do sleep 0.01; done')
    keys = KeyCommand(command.command, ttl=300)

    async def work() -> None:
        gate.touch()
        assert await keys.current_key() == "key-1"
        gate.unlink()
        clock.advance(200)
        assert (await keys.current_key(), command.count) == ("key-1", 1)
        clock.advance(50)
        assert await keys.current_key() == "key-1"  # the next run waits at the gate
        gate.touch()
        await wait_until_async(lambda: keys._key == "key-2")
        assert await keys.current_key() == "key-2"
        clock.advance(200)
        assert (await keys.current_key(), command.count) == ("key-2", 2)

    run_async(work())


def test_concurrent_requests_wait_for_one_run_even_if_one_is_cancelled(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = CountingCommand(tmp_path, f'while [ ! -e "{gate}" ]; do sleep 0.01; done')
    keys = KeyCommand(command.command)

    async def work() -> None:
        requests = [asyncio.create_task(keys.current_key()) for _ in range(10)]
        await asyncio.sleep(0)
        requests[0].cancel()
        await asyncio.wait(requests[:1])
        gate.touch()
        assert await asyncio.gather(*requests[1:]) == ["key-1"] * 9

    run_async(work())
    assert command.count == 1


def test_rejected_key_is_replaced_once(tmp_path: Path, clock: Clock) -> None:
    command = CountingCommand(tmp_path)
    keys = KeyCommand(command.command)

    async def work() -> None:
        assert await keys.current_key() == "key-1"
        assert await keys.replace_key("key-1") is None  # it was printed a moment ago
        clock.advance(MIN_INTERVAL)
        assert await asyncio.gather(*[keys.replace_key("key-1") for _ in range(5)]) == ["key-2"] * 5
        assert await keys.replace_key("key-1") == "key-2"

    run_async(work())
    assert command.count == 2


def test_rejected_key_that_is_printed_again_is_not_sent_again(clock: Clock) -> None:
    keys = KeyCommand(("echo", "the-same-key"))

    async def work() -> None:
        assert await keys.current_key() == "the-same-key"
        clock.advance(MIN_INTERVAL)
        assert await keys.replace_key("the-same-key") is None

    run_async(work())


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (
            ("sh", "-c", f"echo {SECRET_TEXT}; echo {SECRET_TEXT} >&2; exit 3"),
            "'sh' for its key failed with exit status 3",
        ),
        (("sh", "-c", f"echo {SECRET_TEXT}; kill -TERM $$"), "was ended by signal 15"),
        (("true",), "printed nothing"),
        (("sh", "-c", f"echo {SECRET_TEXT}; echo {SECRET_TEXT}"), "printed more than one word"),
        (("printf", "caf\\303\\251"), "characters that are not allowed in a header"),
        (("sh", "-c", f"exec head -c {LIMIT_KEY + 1} /dev/zero"), "printed more than 16 KB"),
        (("sh", "-c", "exec cat /dev/zero"), "printed more than 16 KB"),
        (("/nowhere/key-helper", SECRET_TEXT), "'key-helper' for its key can't be started: No such file"),
    ],
)
def test_failure_says_what_is_wrong_without_the_output(command: tuple[str, ...], problem: str) -> None:
    async def work() -> None:
        with pytest.raises(KeyCommandError, match=problem) as caught:
            await KeyCommand(command).current_key()
        assert SECRET_TEXT not in str(caught.value)

    run_async(work())


@pytest.mark.parametrize("script", ["sleep 3600", "sleep 3600 & echo key"])
def test_command_that_does_not_end_is_killed_with_what_it_started(script: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    command = ("sh", "-c", f'exec 5> "{fifo}"; echo started >&5; {script}')

    def is_closed() -> bool:
        with suppress(BlockingIOError):
            return os.read(reader, 100) == b""  # no process has it open
        return False

    async def work() -> None:
        with pytest.raises(KeyCommandError, match=r"took more than 0\.5 seconds"):
            await KeyCommand(command, timeout=0.5).current_key()

    run_async(work())
    wait_until(is_closed)
    os.close(reader)


def test_failed_command_does_not_run_for_each_request(tmp_path: Path, clock: Clock) -> None:
    command = CountingCommand(tmp_path, f'echo run >> "{tmp_path / "runs"}"; exit 1')
    keys = KeyCommand(command.command)

    async def work() -> None:
        for _ in range(5):
            with pytest.raises(KeyCommandError, match="exit status 1"):
                await keys.current_key()
        assert command.count == 1
        clock.advance(MIN_INTERVAL)
        with pytest.raises(KeyCommandError):
            await keys.current_key()
        assert command.count == 2

    run_async(work())


def test_failed_renewal_leaves_the_key_until_its_time_is_over(tmp_path: Path, clock: Clock) -> None:
    command = CountingCommand(tmp_path, f'[ ! -e "{tmp_path / "broken"}" ] || exit 1')
    keys = KeyCommand(command.command, ttl=300)

    async def work() -> None:
        assert await keys.current_key() == "key-1"
        (tmp_path / "broken").touch()
        clock.advance(250)
        assert await keys.current_key() == "key-1"
        await wait_until_async(lambda: keys._failure is not None)
        assert await keys.current_key() == "key-1"
        clock.advance(60)
        with pytest.raises(KeyCommandError):
            await keys.current_key()

    run_async(work())


def test_command_runs_without_a_shell() -> None:
    async def work() -> None:
        assert await KeyCommand(("echo", "$HOME;`id`")).current_key() == "$HOME;`id`"

    run_async(work())
