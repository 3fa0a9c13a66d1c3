"""File descriptors: the limit is raised, settings are fitted to it, and excess clients are told to retry."""

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.codecs import decode_error
from tests.support.gateway.in_process import PROTOCOL_NAMES, run_async, run_gateway_with, run_stalled_gateway
from tests.support.gateway.process import (
    MESSAGES_REQUEST,
    PROCESS_DEADLINE,
    open_stream,
    serve_slow_upstream,
    serve_with_workers,
    wait_for_process,
)
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import OK_RESPONSE, ScriptedUpstream, StalledUpstream, serve_upstream
from toolwire.gateway.config import ConfigError, LimitsSection, parse_config
from toolwire.gateway.server.launch import fit_limits
from toolwire.upstream.provider import Origin
from toolwire.upstream.transport import Transport, TransportError, request_head


def test_soft_file_limit_is_raised_to_the_hard_limit(tmp_path: Path) -> None:
    with serve_with_workers(tmp_path, "--workers", "2", file_limits=(100, 4096)) as gateway:
        wait_for_process(lambda: len(gateway.workers) == 2)
        assert gateway.post(MESSAGES_REQUEST).status_code == 200
        for process in (gateway.process.pid, *gateway.workers):
            limits = Path(f"/proc/{process}/limits").read_text()
            assert re.search(r"^Max open files +4096 +4096 ", limits, re.MULTILINE)
    assert "ulimit" not in "".join(gateway.log)


def test_stream_limit_is_lowered_to_fit_and_excess_is_503(tmp_path: Path) -> None:
    with (
        serve_slow_upstream(tmp_path) as released,
        serve_with_workers(tmp_path, "--model", "up/m", file_limits=(100, 200)) as gateway,
    ):
        with contextlib.ExitStack() as stack:
            responses = [stack.enter_context(open_stream(gateway)) for _ in range(60)]
            assert [response.status_code for response in responses] == [200] * 60
            refused = gateway.post({**MESSAGES_REQUEST, "stream": True})
            assert refused.status_code == 503
            assert refused.json()["error"] == {"type": "overloaded_error", "message": "too many streams at once"}
            assert gateway.get("/healthz").status_code == 200
            released.set()
            for response in responses:
                assert "event: message_stop" in list(response.iter_lines())
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(PROCESS_DEADLINE) == 0
    reason = "limits.streams is 60 instead of 1000: this process may open only 200 files; raise `ulimit -n`"
    assert reason in "".join(gateway.log)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_local_exhaustion_is_not_blamed_on_the_provider(protocol: str) -> None:
    async def work() -> None:
        stalled_upstream = StalledUpstream()
        async with run_stalled_gateway(stalled_upstream, "[limits]\nretries = 0\nconnections = 3\n") as gateway:
            streams = [await gateway.send_question(protocol, stream=True) for _ in range(2)]
            gateway.gateway.app._dispatcher.transport._max_connections = 2
            refused = await gateway.send_question(protocol)
            assert refused.status == 503
            error = decode_error(protocol, 503, await refused.read(10_000))
            assert error.kind == "overloaded"
            assert error.message == "too many open connections or files to reach up: try again later"
            stalled_upstream.released.set()
            for stream in streams:
                await stream.read(100_000)
            assert (await gateway.send_question(protocol, stream=True)).status == 200

    run_async(work())


def test_idle_connection_is_closed_to_make_room() -> None:
    async def work() -> None:
        async with (
            serve_upstream(ScriptedUpstream(OK_RESPONSE)) as one,
            serve_upstream(ScriptedUpstream(OK_RESPONSE)) as other,
        ):
            transport = Transport(max_connections=1)
            for origin in (one, other, one):
                assert await (await transport.send(origin, request_head(origin, "/", ()), b"")).read(9) == b"ok"
                assert len(transport._open) == 1
            with pytest.raises(TransportError):
                await transport.send(Origin("http", "127.0.0.1", 9), b"", None)
            assert len(transport._open) == 0
            idle_response = await transport.send(one, request_head(one, "/", ()), b"")
            with pytest.raises(TransportError) as failed:
                await transport.send(other, request_head(other, "/", ()), b"")
            assert failed.value.exhausted
            idle_response.close()
            transport.close()

    run_async(work())


EXHAUSTED = """
import asyncio, os, resource
from toolwire.upstream.provider import Origin
from toolwire.upstream.transport import Transport, TransportError

async def send(origin):
    try:
        await Transport().send(origin, b"", None, connect_timeout=1000)
    except TransportError as error:
        print(origin.scheme, error.exhausted, error.sent)

async def main():
    for attempt in range(2):
        await send(Origin("http", "127.0.0.1", 9))
        await send(Origin("http", "name.invalid", 9))
        await send(Origin("https", "127.0.0.1", 9))
        try:
            while True:
                os.open("/dev/null", os.O_RDONLY)
        except OSError:
            pass

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
asyncio.run(main())
"""


def test_missing_descriptor_differs_from_a_failed_connection() -> None:
    command = [sys.executable, "-c", EXHAUSTED]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PROCESS_DEADLINE)
    fails = ["http False False", "http False False", "https False False"]
    assert done.stdout.splitlines() == fails + [one.replace("False", "True", 1) for one in fails]


def test_connection_flood_is_refused_and_service_recovers(tmp_path: Path) -> None:
    """Also if no further connection can be accepted."""
    with serve_with_workers(tmp_path, file_limits=(64, 64)) as gateway:
        port = int(gateway.root.rpartition(":")[2])
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), PROCESS_DEADLINE))

        def healthy() -> bool:
            try:
                return gateway.get("/healthz").status_code == 200
            except httpx.TransportError:
                return False

        wait_for_process(healthy)


def test_connection_over_the_limit_gets_503() -> None:
    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(CHAT_RESPONSE), extra_config="[limits]\nconnections = 2"
        ) as gateway:
            place = gateway.origin.host, gateway.origin.port
            idle = [await asyncio.open_connection(*place) for _ in range(2)]
            for reader, writer in idle:
                writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            reader, writer = await asyncio.open_connection(*place)
            message = await reader.read()
            assert message.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"Too many connections (limits.connections)" in message
            for _, one in (*idle, (reader, writer)):
                one.close()

    run_async(work())


@pytest.mark.parametrize(
    ("limits", "descriptors", "streams", "connections", "reason"),
    [
        (LimitsSection(), 20_000, 1000, 9936, None),
        (LimitsSection(connections=50), 20_000, 1000, 50, None),
        (
            LimitsSection(),
            1024,
            358,
            448,
            "limits.streams is 358 instead of 1000: this process may open only 1024 files",
        ),
        (LimitsSection(streams=5), 1, 1, 1, "limits.streams is 1 instead of 5"),
        (LimitsSection(streams=9, connections=2000), 1024, 9, 448, "limits.connections is 448 instead of 2000: this"),
    ],
)
def test_limits_are_fitted_to_the_file_limit(
    limits: LimitsSection, descriptors: int, streams: int, connections: int, reason: str | None
) -> None:
    fitted, message = fit_limits(limits, descriptors)
    assert (fitted.streams, fitted.connections) == (streams, connections)
    assert message is reason is None or (reason is not None and message is not None and message.startswith(reason))


def test_zero_connections_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"limits\.connections: expected an integer of at least 1"):
        parse_config("[limits]\nconnections = 0", {})
