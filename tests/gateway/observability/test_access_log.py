"""The access log: one line per request, written in batches, none lost."""

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
    """A stderr that keeps each write separately."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


def make_record(number: int = 0, path: str = "/v1/messages") -> RequestRecord:
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


def test_log_lines_are_written_in_batches() -> None:
    stderr = Stderr()

    async def add() -> None:
        async with logging(make_record(1), make_record(2)):
            assert stderr.writes == []
        await wait_until_async(lambda: stderr.writes)

    with contextlib.redirect_stderr(stderr):
        asyncio.run(add())
    (lines,) = stderr.writes
    assert [one.split()[-1] for one in lines.splitlines()] == ["ex_1", "ex_2"]


def test_full_batch_is_written_at_once() -> None:
    (lines,) = written(logging(*map(make_record, range(LIMIT_LINES)), seconds=3 * FLUSH_INTERVAL))
    assert lines.count("\n") == LIMIT_LINES


def test_flush_writes_pending_lines() -> None:
    async def whole() -> None:
        log = AccessLog()
        log.add_record(make_record(7))
        log.flush()

    stderr = Stderr()
    with contextlib.redirect_stderr(stderr):
        asyncio.run(whole())
    assert "".join(stderr.writes).endswith("ex_7\n")


def test_log_line_format() -> None:
    one = make_record(3)
    one.provider, one.model = "up", "m"
    one.streamed, one.losses, one.usage = True, 2, Usage(input_tokens=5, output_tokens=6)
    assert one.format_line("12:00:00") == "12:00:00 200 POST /v1/messages -> up/m 250ms stream in=5 out=6 losses=2 ex_3"


def test_crash_is_logged_with_traceback_and_health_checks_are_not() -> None:
    crashed = make_record(4)
    try:
        {"there": 1}["it was here"]
    except KeyError as error:
        crashed.exception = error
    (lines,) = written(logging(make_record(5, "/healthz"), crashed, seconds=3 * FLUSH_INTERVAL))
    assert "healthz" not in lines
    assert lines.rstrip().endswith("KeyError: 'it was here'")
    assert "test_access_log.py" in lines


def test_line_breaks_are_escaped() -> None:
    one = make_record(6)
    one.error = "no\nsuch\x1b[31m\u202e thing"
    assert one.format_line("12:00:00").endswith(r"ex_6 | no\nsuch\x1b[31m\u202e thing")


@pytest.mark.parametrize(
    ("records", "printed"),
    [
        ("x\n04:00:00 200 POST /admin", "x%0A04:00:00%20200%20POST%20/admin"),
        ("x\x1b[31m", "x%1B[31m"),
        ("x 200ms ex_forged | fine", "x%20200ms%20ex_forged%20%7C%20fine"),
        ("x\u2028\u202e", "x%E2%80%A8%E2%80%AE"),
        ("x\ud800\r", r"x\ud800%0D".replace("\\", "%5C")),
        ("gpt-ü", "gpt-ü"),
    ],
)
def test_path_and_model_are_single_words(records: str, printed: str) -> None:
    one = make_record(7, f"/v1/{records}")
    one.provider, one.model = "up", records
    assert one.format_line("12:00:00") == f"12:00:00 200 POST /v1/{printed} -> up/{printed} 250ms ex_7"


def test_log_line_is_bounded() -> None:
    for sign in ("x", "\n", "\U0001f600 "):
        one = make_record(8, f"/v1/{sign * 1_000_000}")
        one.provider, one.model = "up", sign * 5_000_000
        one.error = sign * 1_000_000
        assert len(one.format_line("12:00:00")) < 16 * LIMIT_WORD + 16 * LIMIT_TEXT


def test_traceback_lines_are_marked() -> None:
    crashed = make_record(9)
    crashed.exception = ValueError(
        "no\n04:00:00 200 POST /admin 1ms ex_1\x1b[31m\n" + "x" * 1_000_000 + "\nthe end\r\n"
    )
    (lines,) = written(logging(crashed, seconds=3 * FLUSH_INTERVAL))
    first, *other_lines = lines.splitlines()
    assert first.endswith("ex_9")
    assert all(one.startswith("  | ") for one in other_lines)
    assert other_lines[-1] == r"  | the end\r"
    assert len(lines) < 2 * LIMIT_TRACEBACK
    assert "\x1b" not in lines


def test_unauthenticated_request_forges_no_line(capfd: pytest.CaptureFixture[str]) -> None:
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
    lines = capfd.readouterr().err
    assert re.fullmatch(r"(\d\d:\d\d:\d\d \d{3} POST /v1/\S+( -> p0/\S+)? .*\n){2}", lines)
    assert "\x1b" not in lines
