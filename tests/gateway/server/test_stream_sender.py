"""Streamed responses: heartbeats before the first event, and losses at the end."""

import asyncio
import json

import anthropic
import pytest

from tests.support.clock import Clock
from tests.support.codecs import decode_events
from tests.support.deadlines import DEADLINE
from tests.support.gateway.in_process import (
    LOSSY_REQUEST,
    NO_TIMEOUT,
    PROTOCOL_NAMES,
    one_provider_config,
    run_async,
    run_gateway,
    run_gateway_with,
)
from tests.support.servers.http_responses import (
    CHAT_STREAM,
    SSE_HEAD,
    STREAM_START,
    chat_sse_event,
    http_response,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import ScriptedUpstream, read_http_request, serve_upstream
from toolwire.canonical.events import ResponseEnd
from toolwire.protocols import PROTOCOLS

LOSSY = SSE_HEAD + transfer_chunk(
    STREAM_START.replace(b'"id"', b'"prompt_filter_results": [1], "x_unknown": "v", "id"')
    + chat_sse_event({}, "stop")
    + b"data: [DONE]\n\n"
)
LOSSY += b"0\r\n\r\n"
COMMENT = b": toolwire-losses "


@pytest.mark.parametrize("protocol", [name for name in PROTOCOL_NAMES if name != "openai-chat"])
def test_response_losses_are_sent_as_a_final_comment(protocol: str) -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(LOSSY)) as gateway:
            response = await gateway.send_question(protocol, stream=True)
            wire = await response.read(100_000)
            path = f"/toolwire/exchanges/{response.headers['toolwire-exchange']}/losses"
            stored = json.loads((await gateway.get(path))[1])["losses"]
        counted_paths = [loss["path"] for loss in stored if loss["severity"] != "info"]
        assert isinstance(decode_events(protocol, wire)[-1], ResponseEnd)
        assert "/prompt_filter_results/0" in counted_paths
        assert ("info", "/x_unknown") in [(loss["severity"], loss["path"]) for loss in stored]
        assert (COMMENT in wire) is PROTOCOLS[protocol].surface.allows_comments
        if PROTOCOLS[protocol].surface.allows_comments:
            comment = wire[wire.index(COMMENT) + len(COMMENT) :]
            assert comment.endswith(b"\n\n")
            header = json.loads(response.headers.get("toolwire-losses", '{"losses":[]}'))
            assert [loss["path"] for loss in (*header["losses"], *json.loads(comment)["losses"])] == counted_paths

    run_async(work())


def test_sdk_skips_the_final_comment() -> None:
    async def work() -> None:
        async with (
            run_gateway_with(ScriptedUpstream(LOSSY)) as gateway,
            anthropic.AsyncAnthropic(base_url=gateway.root, api_key="none", max_retries=0, timeout=DEADLINE) as client,
            client.messages.stream(model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}]) as stream,
        ):
            assert await stream.get_final_text() == "It is sunny"

    run_async(work())


def test_no_comment_without_losses() -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_STREAM)) as gateway:
            assert COMMENT not in await (await gateway.send_question("openai-responses", stream=True)).read(100_000)
        async with run_gateway_with(ScriptedUpstream(LOSSY)) as gateway:
            assert COMMENT not in await (await gateway.send_question("openai-chat", stream=True)).read(100_000)

    run_async(work())


def test_request_losses_can_be_queried_before_the_upstream_responds(clock: Clock) -> None:
    async def work() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            started.set()
            await go_on.wait()

        async with serve_upstream(silent) as origin:
            config = one_provider_config(origin, extra_config="[limits]\nheartbeat = 10", timeout=NO_TIMEOUT)
            async with run_gateway(config) as gateway:
                body = json.dumps(LOSSY_REQUEST | {"stream": True}).encode()
                asking = asyncio.create_task(gateway.post("/v1/messages", body))
                await started.wait()
                response = await clock.advance_until_done(asking)  # a ping has sent the head
                path = f"/toolwire/exchanges/{response.headers['toolwire-exchange']}/losses"
                known = await gateway.get(path)
                response.close()
                after_leaving = await gateway.get(path)
                go_on.set()
        assert known == after_leaving
        assert known[0] == 200
        assert "/top_k" in [loss["path"] for loss in json.loads(known[1])["losses"]]

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_failover_after_heartbeats(protocol: str, clock: Clock) -> None:
    async def work() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def slow_and_busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            started.set()
            await go_on.wait()
            writer.write(http_response("503 Busy", openai_error_body("busy")))
            await reader.read()

        second = ScriptedUpstream(CHAT_STREAM)
        async with serve_upstream(slow_and_busy) as one, serve_upstream(second) as two:
            config = one_provider_config(one, extra_config="[limits]\nretries = 0\nheartbeat = 10", timeout=NO_TIMEOUT)
            config = config.replace('provider = "up"', 'providers = ["up", "next"]')
            config += f'[providers.next]\nprotocol = "openai-chat"\nbase_url = "http://{two.authority}"'
            async with run_gateway(config) as gateway:
                asking = asyncio.create_task(gateway.send_question(protocol, stream=True))
                await started.wait()
                response = await clock.advance_until_done(asking)
                assert response.status == 200
                assert second.requests == []  # the head came first
                go_on.set()
                wire = await response.read(100_000)
        assert b"sunny" in wire
        assert isinstance(decode_events(protocol, wire)[-1], ResponseEnd)

    run_async(work())


def test_excess_stream_is_refused_before_sending() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_STREAM)
        async with run_gateway_with(script, extra_config="[limits]\nstreams = 0") as gateway:
            assert (await gateway.send_question("anthropic", stream=True)).status == 503
            assert script.requests == []

    run_async(work())
