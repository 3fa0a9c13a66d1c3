"""The log: one line per request, many lines in one write, and none lost."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator

from tests.patience import wait_until_async
from toolwire.canonical.response import Usage
from toolwire.gateway.log import LIMIT_LINES, PAUSE, Line, Log


class Stderr(io.StringIO):
    """Keeps what was written apart."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


def line(number: int = 0, path: str = "/v1/messages") -> Line:
    return Line(id=f"ex_{number}", method="POST", path=path, began=0.0, seconds=0.25, status=200)


def written(work: contextlib.AbstractAsyncContextManager[Log]) -> list[str]:
    stderr = Stderr()

    async def whole() -> None:
        async with work:
            pass

    with contextlib.redirect_stderr(stderr):
        asyncio.run(whole())
    return stderr.writes


@contextlib.asynccontextmanager
async def logging(*lines: Line, seconds: float = 0.0) -> AsyncIterator[Log]:
    log = Log()
    for one in lines:
        log.add(one)
    if seconds:
        await asyncio.sleep(seconds)
    yield log


def test_lines_wait_for_each_other_and_go_in_one_write() -> None:
    stderr = Stderr()

    async def add() -> None:
        async with logging(line(1), line(2)):
            assert stderr.writes == []
        await wait_until_async(lambda: stderr.writes)

    with contextlib.redirect_stderr(stderr):
        asyncio.run(add())
    (told,) = stderr.writes
    assert [one.split()[-1] for one in told.splitlines()] == ["ex_1", "ex_2"]


def test_many_lines_do_not_wait() -> None:
    (told,) = written(logging(*map(line, range(LIMIT_LINES))))
    assert told.count("\n") == LIMIT_LINES


def test_what_waits_at_the_end_is_written_then() -> None:
    async def whole() -> None:
        log = Log()
        log.add(line(7))
        log.flush()

    stderr = Stderr()
    with contextlib.redirect_stderr(stderr):
        asyncio.run(whole())
    assert "".join(stderr.writes).endswith("ex_7\n")


def test_a_line_says_what_there_was() -> None:
    one = line(3)
    one.goes_to("up", "m")
    one.streamed, one.losses, one.usage = True, 2, Usage(input_tokens=5, output_tokens=6)
    assert one.text("12:00:00") == "12:00:00 200 POST /v1/messages -> up/m 250ms stream in=5 out=6 losses=2 ex_3"


def test_a_crash_is_told_with_where_it_happened_and_health_is_not() -> None:
    crashed = line(4)
    try:
        {"there": 1}["it was here"]
    except KeyError as error:
        crashed.crash = error
    (told,) = written(logging(line(5, "/healthz"), crashed, seconds=3 * PAUSE))
    assert "healthz" not in told
    assert told.rstrip().endswith("KeyError: 'it was here'")
    assert "test_log.py" in told


def test_no_line_break_of_a_stranger_gets_into_the_log() -> None:
    one = line(6)
    one.why = "no\nsuch\x1b[31m thing"
    assert one.text("12:00:00").endswith("ex_6 | no such [31m thing")
