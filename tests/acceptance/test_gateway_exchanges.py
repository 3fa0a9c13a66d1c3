"""Failures between a client, the gateway and its upstreams (ST-19, ST-27, EX and CA)."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.support.bodies.minimal import anthropic_events
from tests.support.clock import Clock
from tests.support.codecs import decode_error, decode_events
from tests.support.deadlines import run_event_loop, wait_until_async
from tests.support.gateway.in_process import (
    NO_TIMEOUT,
    PROTOCOL_NAMES,
    RunningGateway,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
    run_gateway_with,
)
from tests.support.gateway.setup import GatewaySetup, routed_model, serve_gateway
from tests.support.sdk.clients import SDK_CLIENTS
from tests.support.servers.http_responses import (
    CHAT_BODY,
    CHAT_RESPONSE,
    CHAT_STREAM,
    SSE_HEAD,
    STREAM_START,
    chat_sse_event,
    http_response,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import ScriptedUpstream, read_http_request, reply_with, serve_upstream
from toolwire.canonical.events import ResponseEnd, ResponseFailed
from toolwire.gateway.server.app import App
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
every_client = pytest.mark.parametrize("protocol", PROTOCOL_NAMES)


# ---- streams

SCRIPT = b"""
[[turns]]
when = "think"
repeat = 0
text = "at last"

[[turns]]
when = "fail"
repeat = 0
error = {kind = "invalid_request", message = "That makes no sense."}
"""


@pytest.fixture(scope="module")
def heartbeat_setup() -> Iterator[GatewaySetup]:
    with serve_gateway(Simulator(script=parse_script(SCRIPT, "script")), "[limits]\nheartbeat = 0.02") as setup:
        yield setup


HEARTBEATS = {
    "anthropic": b'event: ping\ndata: {"type":"ping"}\n\n',
    "openai-chat": b": ping\n\n",
    "openai-responses": b": ping\n\n",
    "gemini": b"\n\n",
    "gemini-interactions": b": ping\n\n",
    "ollama": b'{"message":{"role":"assistant","content":""},"done":false}\n',
    "openrouter": b": ping\n\n",
}


# The message of an SDK for an error after the response head, if it differs from the error itself.
SDK_STREAM_ERRORS = {
    "openai-responses": "Didn't receive a `response.completed` event",
    "gemini-interactions": None,
    "openrouter": None,
}


@pytest.mark.parametrize("client", SDK_CLIENTS)
def test_st_19_silence_is_filled_with_heartbeats_that_each_sdk_accepts(
    heartbeat_setup: GatewaySetup, client: str
) -> None:
    for upstream_protocol in ("openai-chat", client):
        heartbeat_setup.reset()
        heartbeat_setup.upstream.hold(
            lambda _, __: heartbeat_setup.gateway.exchanges[-1].response_body.count(HEARTBEATS[client]) < 2
        )
        turn = SDK_CLIENTS[client][0](heartbeat_setup.base_url, routed_model(upstream_protocol), stream=True).send_text(
            "think"
        )
        assert turn.text == "at last"
        wire = heartbeat_setup.gateway.exchanges[-1].response_body
        assert wire.startswith(HEARTBEATS[client] * 2)
        events = decode_events(client, wire)
        assert isinstance(events[-1], ResponseEnd)
    sdk_client = SDK_CLIENTS[client][0](heartbeat_setup.base_url, routed_model(client), stream=True)
    heartbeat_setup.reset()
    heartbeat_setup.upstream.hold(lambda _, __: not heartbeat_setup.gateway.exchanges[-1].response_body)
    if (message := SDK_STREAM_ERRORS.get(client, "makes no sense")) is None:
        assert sdk_client.send_text("fail").text == ""
    else:
        with pytest.raises(Exception, match=message):
            sdk_client.send_text("fail")
    exchange = heartbeat_setup.gateway.exchanges[-1]
    (failed,) = [event for event in decode_events(client, exchange.response_body) if isinstance(event, ResponseFailed)]
    assert (exchange.status, failed.error.message) == (200, "That makes no sense.")


@streamed_or_not
@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body))),
    ],
    ids=["gzip", "deflate", "stacked"],
)
def test_st_27_a_compressed_response_is_decompressed_and_its_header_removed(
    encoding: str, compress: object, stream: bool
) -> None:
    assert callable(compress)
    kind = "text/event-stream" if stream else "application/json"
    body = compress(STREAM_START + chat_sse_event({}, "stop") + b"data: [DONE]\n\n" if stream else CHAT_BODY)

    async def scenario() -> None:
        script = ScriptedUpstream(http_response("200 OK", body, kind, f"content-encoding: {encoding}\r\n"))
        async with run_gateway_with(script) as gateway:
            for client in ("openai-chat", "anthropic"):
                response = await gateway.send_question(client, stream=stream)
                content = await response.read(10_000)
                assert "content-encoding" not in response.headers
                assert (b"sunny" if stream else b"fine") in content
                assert int(response.headers.get("content-length", len(content))) == len(content)
            assert b"accept-encoding: identity" in script.requests[0]
        unknown = http_response("200 OK", b"x", kind, "content-encoding: br\r\n")
        async with run_gateway_with(ScriptedUpstream(unknown), extra_config="[limits]\nretries = 0") as gateway:
            response = await gateway.send_question("anthropic", stream=stream)
            assert response.status == 502
            assert "'br'" in decode_error("anthropic", 502, await response.read(10_000)).message

    run_async(scenario())


# ---- errors


def anthropic_overloaded(*before: object) -> bytes:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    return SSE_HEAD + transfer_chunk(anthropic_events(*before, error)) + b"0\r\n\r\n"  # type: ignore[arg-type]


MESSAGE_START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
}
BLOCK_START = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
TEXT_DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "sunny"}}


@every_client
def test_ex_1_overloaded_after_200_is_a_529_before_output_and_a_typed_error_after(protocol: str) -> None:
    async def scenario() -> None:
        limits = "[limits]\nretries = 0"
        early, late = (
            ScriptedUpstream(anthropic_overloaded()),
            ScriptedUpstream(anthropic_overloaded(MESSAGE_START, BLOCK_START, TEXT_DELTA)),
        )
        async with (
            serve_upstream(early) as origin,
            run_gateway(one_provider_config(origin, "anthropic", limits)) as gateway,
        ):
            response = await gateway.send_question(protocol, stream=True)
            assert response.status == {"anthropic": 529}.get(protocol, 503)
            assert "Overloaded" in decode_error(protocol, response.status, await response.read(10_000)).message
        async with (
            serve_upstream(late) as origin,
            run_gateway(one_provider_config(origin, "anthropic", limits)) as gateway,
        ):
            wire = await (await gateway.send_question(protocol, stream=True)).read(10_000)
            (failed,) = [event for event in decode_events(protocol, wire) if isinstance(event, ResponseFailed)]
            assert b"sunny" in wire
            assert "Overloaded" in failed.error.message

    run_async(scenario())


def test_ex_5_the_first_event_is_awaited_while_failover_is_possible() -> None:
    limited = (
        SSE_HEAD
        + transfer_chunk(b"data: " + openai_error_body("slow down", "rate_limit_error") + b"\n\n")
        + b"0\r\n\r\n"
    )

    async def scenario() -> None:
        first, second = ScriptedUpstream(limited), ScriptedUpstream(CHAT_STREAM)
        async with run_gateway_with(first, second, extra_config="[limits]\nretries = 1") as gateway:
            response = await gateway.send_question("anthropic", stream=True)
            assert response.status == 200
            assert b"sunny" in await response.read(10_000)
            assert (len(first.requests), len(second.requests)) == (1, 1)
        only = ScriptedUpstream(limited)
        async with run_gateway_with(only, extra_config="[limits]\nretries = 0") as gateway:
            response = await gateway.send_question("anthropic", stream=True)
            assert decode_error("anthropic", response.status, await response.read(10_000)).kind == "rate_limit"

    run_async(scenario())


@every_client
@streamed_or_not
def test_ex_6_a_refused_connection_is_a_502_server_error(protocol: str, stream: bool) -> None:
    async def scenario() -> None:
        async with serve_upstream(reply_with()) as origin:
            pass
        async with run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 0")) as gateway:
            response = await gateway.send_question(protocol, stream=stream)
            error = decode_error(protocol, response.status, await response.read(10_000))
            assert (response.status, error.kind) == (502, "server")
            assert "can't connect to" in error.message

    run_async(scenario())


@every_client
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/html"])
def test_ex_7_an_error_to_a_streaming_request_is_an_error_not_a_stream(protocol: str, kind: str) -> None:
    async def scenario() -> None:
        script = ScriptedUpstream(
            http_response("400 Bad", openai_error_body("temperature: too hot", "invalid_request_error"), kind)
        )
        async with run_gateway_with(script) as gateway:
            response = await gateway.send_question(protocol, stream=True)
            assert (response.status, response.headers["content-type"]) == (400, "application/json")
            assert "too hot" in decode_error(protocol, 400, await response.read(10_000)).message

    run_async(scenario())


@pytest.mark.parametrize(
    ("fault", "request_counts"),
    [
        (http_response("400 Bad", openai_error_body("no good", "invalid_request_error")), (1, 0)),
        (http_response("413 Large", openai_error_body("too long", "invalid_request_error")), (1, 0)),
        (http_response("401 No", openai_error_body("bad key", "authentication_error")), (1, 1)),
        (http_response("500 Oh", openai_error_body("went wrong")), (1, 1)),
        (http_response("503 Busy", openai_error_body("busy")), (2, 1)),
    ],
    ids=["request", "size", "credential", "provider", "busy provider"],
)
def test_ex_8_client_errors_do_not_fail_over_or_mark_the_provider(
    fault: bytes, request_counts: tuple[int, int]
) -> None:
    async def scenario() -> None:
        first, second = ScriptedUpstream(fault, fault, CHAT_RESPONSE), ScriptedUpstream(CHAT_RESPONSE)
        if request_counts[0] == 1:
            first = ScriptedUpstream(fault, CHAT_RESPONSE)
        async with run_gateway_with(first, second, extra_config="[limits]\nretries = 1") as gateway:
            status = (await gateway.send_question("anthropic")).status
            assert status == (200 if request_counts[1] else int(fault[9:12]))
            assert (len(first.requests), len(second.requests)) == request_counts
            assert (await gateway.send_question("anthropic")).status == 200
            assert len(first.requests) == request_counts[0] + 1  # it is still tried first

    run_async(scenario())


@every_client
@pytest.mark.parametrize("upstream_protocol", ["openai-chat", "anthropic", "gemini"])
def test_ex_9_retry_after_is_passed_on_across_protocols(protocol: str, upstream_protocol: str) -> None:
    bodies = {
        "openai-chat": openai_error_body("slow down", "rate_limit_error"),
        "anthropic": b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}',
        "gemini": b'{"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED"}}',
    }

    async def scenario() -> None:
        script = ScriptedUpstream(http_response("429 Slow", bodies[upstream_protocol], headers="retry-after: 33\r\n"))
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, upstream_protocol)) as gateway,
        ):
            response = await gateway.send_question(protocol)
            assert (response.status, response.headers["retry-after"]) == (429, "33")
            assert decode_error(protocol, 429, await response.read(10_000)).kind == "rate_limit"

    run_async(scenario())


def test_ex_10_waiting_to_retry_ends_when_the_client_leaves(clock: Clock) -> None:
    async def scenario() -> None:
        script = ScriptedUpstream(http_response("503 Busy", openai_error_body("busy"), headers="retry-after: 0.5\r\n"))
        async with run_gateway_with(script) as gateway:
            question = asyncio.create_task(gateway.send_question("anthropic"))
            await wait_until_async(lambda: script.requests)
            await run_event_loop()
            question.cancel()
            await run_event_loop()
            clock.advance(3600)
            await run_event_loop()
            assert len(script.requests) == 1

    run_async(scenario())


# ---- clients that leave


class HeldUpstream:
    """An upstream that sends some bytes and then waits until its client disconnects."""

    def __init__(self, sent: bytes = b"") -> None:
        self.sent = sent
        self.request_count = 0
        self.started = asyncio.Event()
        self.disconnected = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        self.request_count += 1
        writer.write(self.sent)
        self.started.set()
        await reader.read()
        self.disconnected.set()


@asynccontextmanager
async def departed_client(gateway: RunningGateway, upstream: HeldUpstream, *, stream: bool) -> AsyncIterator[None]:
    """Send a request and leave before the response is complete."""
    question = asyncio.create_task(gateway.send_question("openai-responses", stream=stream))
    await upstream.started.wait()
    await run_event_loop()
    if question.done():
        response = question.result()
        await response.next()
        response.close()
    else:
        question.cancel()
    await upstream.disconnected.wait()
    yield


DEPARTURES: dict[str, tuple[bytes, bool]] = {
    "before the first byte": (b"", True),
    "after the head": (SSE_HEAD, True),
    "during the stream": (SSE_HEAD + transfer_chunk(STREAM_START), True),
    "not streaming": (b"", False),
    "during a body": (b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{", False),
}


@pytest.mark.parametrize("when", DEPARTURES)
def test_ca_1_the_upstream_is_cancelled_on_every_path(when: str) -> None:
    sent, stream = DEPARTURES[when]

    async def scenario() -> None:
        upstream = HeldUpstream(sent)
        async with (
            serve_upstream(upstream) as origin,
            run_gateway(one_provider_config(origin, timeout=NO_TIMEOUT)) as gateway,
            departed_client(gateway, upstream, stream=stream),
        ):
            assert upstream.request_count == 1

    run_async(scenario())


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4, 6, 8, 100])
def test_ca_2_the_client_is_watched_from_admission(turns: int) -> None:
    async def scenario() -> None:
        upstream = HeldUpstream()
        async with (
            serve_upstream(upstream) as origin,
            run_gateway(one_provider_config(origin, timeout=NO_TIMEOUT)) as gateway,
        ):
            path, body = question_request("openai-responses", stream=True)
            _, writer = await asyncio.open_connection(gateway.origin.host, gateway.origin.port)
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await run_event_loop(turns)
            writer.transport.abort()
            while b"toolwire_streams 0\n" not in (await gateway.get("/metrics"))[1]:
                await run_event_loop()
            await run_event_loop()
            if upstream.request_count:
                await upstream.disconnected.wait()

    run_async(scenario())


def test_ca_3_no_middleware_hides_the_disconnect() -> None:
    async def scenario() -> None:
        async with serve_upstream(reply_with()) as origin, run_gateway(one_provider_config(origin)) as gateway:
            assert type(gateway.gateway.app) is App  # the server calls the application directly
            received: list[str] = []

            async def receive() -> dict[str, object]:
                received.append("receive")
                await asyncio.sleep(0)
                return {"type": "http.disconnect"}

            async def send(message: object) -> None:
                raise AssertionError(message)

            scope = {"type": "http", "method": "POST", "path": "/v1/messages", "query_string": b"", "headers": []}
            scope["headers"] = [(b"host", b"localhost")]
            await gateway.gateway.app(scope, receive, send)
            assert received == ["receive"]

    run_async(scenario())


def test_ca_4_the_usage_of_a_cancelled_stream_is_counted() -> None:
    async def scenario() -> None:
        upstream = HeldUpstream(SSE_HEAD + transfer_chunk(anthropic_events(MESSAGE_START, BLOCK_START, TEXT_DELTA)))
        async with (
            serve_upstream(upstream) as origin,
            run_gateway(one_provider_config(origin, "anthropic", timeout=NO_TIMEOUT)) as gateway,
        ):
            async with departed_client(gateway, upstream, stream=True):
                while "toolwire_tokens_total" not in (text := (await gateway.get("/metrics"))[1].decode()):
                    await run_event_loop()
            assert 'toolwire_tokens_total{provider="up",kind="input"} 10' in text
            assert 'toolwire_tokens_total{provider="up",kind="output"} 1' in text

    run_async(scenario())


def test_ca_5_no_other_provider_is_tried_for_a_client_that_left(clock: Clock) -> None:
    async def scenario() -> None:
        upstream, second = HeldUpstream(), ScriptedUpstream(CHAT_RESPONSE)
        async with serve_upstream(upstream) as first_origin, serve_upstream(second) as second_origin:
            config = one_provider_config(first_origin, extra_config="[limits]\nretries = 0")
            config = config.replace('provider = "up"', 'providers = ["up", "next"]')
            config += f'[providers.next]\nprotocol = "openai-chat"\nbase_url = "http://{second_origin.authority}"'
            async with run_gateway(config) as gateway:
                async with departed_client(gateway, upstream, stream=False):
                    await run_event_loop()
                    clock.advance(3600)
                    await run_event_loop()
                assert second.requests == []
                assert (await clock.advance_until_done(gateway.send_question("anthropic"))).status == 200
                assert len(second.requests) == 1

    run_async(scenario())
