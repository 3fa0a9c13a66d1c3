"""The log: one line per request, many lines in one write, and none lost."""

import asyncio
import contextlib
import io
import json
import re
from collections.abc import AsyncIterator

import pytest

from tests.support.deadlines import wait_until_async
from tests.support.gateway.in_process import run_async, run_gateway_with
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream
from toolwire.canonical.response import Usage
from toolwire.gateway.observability.access_log import (
    FLUSH_INTERVAL,
    LIMIT_LINES,
    LIMIT_TEXT,
    LIMIT_TRACEBACK,
    LIMIT_WORD,
    AccessLog,
    RequestRecord,
)


class Stderr(io.StringIO):
    """Keeps what was written apart."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


def line(number: int = 0, path: str = "/v1/messages") -> RequestRecord:
    return RequestRecord(id=f"ex_{number}", method="POST", path=path, started_at=0.0, duration=0.25, status=200)


def written(work: contextlib.AbstractAsyncContextManager[AccessLog]) -> list[str]:
    stderr = Stderr()

    async def whole() -> None:
        async with work:
            pass

    with contextlib.redirect_stderr(stderr):
        asyncio.run(whole())
    return stderr.writes


@contextlib.asynccontextmanager
async def logging(*lines: RequestRecord, seconds: float = 0.0) -> AsyncIterator[AccessLog]:
    log = AccessLog()
    for one in lines:
        log.add_record(one)
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
        log = AccessLog()
        log.add_record(line(7))
        log.flush()

    stderr = Stderr()
    with contextlib.redirect_stderr(stderr):
        asyncio.run(whole())
    assert "".join(stderr.writes).endswith("ex_7\n")


def test_a_line_says_what_there_was() -> None:
    one = line(3)
    one.set_backend("up", "m")
    one.streamed, one.losses, one.usage = True, 2, Usage(input_tokens=5, output_tokens=6)
    assert one.format_line("12:00:00") == "12:00:00 200 POST /v1/messages -> up/m 250ms stream in=5 out=6 losses=2 ex_3"


def test_a_crash_is_told_with_where_it_happened_and_health_is_not() -> None:
    crashed = line(4)
    try:
        {"there": 1}["it was here"]
    except KeyError as error:
        crashed.exception = error
    (told,) = written(logging(line(5, "/healthz"), crashed, seconds=3 * FLUSH_INTERVAL))
    assert "healthz" not in told
    assert told.rstrip().endswith("KeyError: 'it was here'")
    assert "test_access_log.py" in told


def test_line_breaks_in_requests_do_not_reach_the_log() -> None:
    one = line(6)
    one.error = "no\nsuch\x1b[31m\u202e thing"
    assert one.format_line("12:00:00").endswith(r"ex_6 | no\nsuch\x1b[31m\u202e thing")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("x\n04:00:00 200 POST /admin", "x%0A04:00:00%20200%20POST%20/admin"),
        ("x\x1b[31m", "x%1B[31m"),
        ("x 200ms ex_forged | fine", "x%20200ms%20ex_forged%20%7C%20fine"),
        ("x\u2028\u202e", "x%E2%80%A8%E2%80%AE"),
        ("x\ud800\r", r"x\ud800%0D".replace("\\", "%5C")),
        ("gpt-ü", "gpt-ü"),
    ],
)
def test_path_and_model_are_logged_as_one_word(given: str, shown: str) -> None:
    one = line(7, f"/v1/{given}")
    one.set_backend("up", given)
    assert one.format_line("12:00:00") == f"12:00:00 200 POST /v1/{shown} -> up/{shown} 250ms ex_7"


def test_log_lines_have_a_maximum_length() -> None:
    for sign in ("x", "\n", "\U0001f600 "):
        one = line(8, f"/v1/{sign * 1_000_000}")
        one.set_backend("up", sign * 5_000_000)
        one.error = sign * 1_000_000
        assert len(one.format_line("12:00:00")) < 16 * LIMIT_WORD + 16 * LIMIT_TEXT


def test_traceback_lines_cannot_imitate_log_lines() -> None:
    crashed = line(9)
    crashed.exception = ValueError(
        "no\n04:00:00 200 POST /admin 1ms ex_1\x1b[31m\n" + "x" * 1_000_000 + "\nthe end\r\n"
    )
    (told,) = written(logging(crashed, seconds=3 * FLUSH_INTERVAL))
    first, *others = told.splitlines()
    assert first.endswith("ex_9")
    assert all(one.startswith("  | ") for one in others)
    assert others[-1] == r"  | the end\r"
    assert len(told) < 2 * LIMIT_TRACEBACK
    assert "\x1b" not in told


def test_unauthenticated_request_cannot_forge_a_log_line(capfd: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(CHAT_RESPONSE), extra_config='[server]\nkeys = ["first-key-1"]'
        ) as gateway:
            path = "/v1/x%0a04:00:00%20200%20POST%20/admin%20forged%1b[31m"
            assert (await gateway.post(path, b"{}")).status == 401
            model = "m\n04:00:00 200 POST /admin forged\x1b[31m"
            body = json.dumps({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]})
            assert (await gateway.post("/v1/messages", body.encode(), x_api_key="first-key-1")).status == 200
            gateway.gateway.log.flush()

    run_async(work())
    told = capfd.readouterr().err
    assert re.fullmatch(r"(\d\d:\d\d:\d\d \d{3} POST /v1/\S+( -> p0/\S+)? .*\n){2}", told)
    assert "\x1b" not in told
