"""Retry and failover after each kind of failure."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.codecs import decode_error, decode_events
from tests.support.gateway.emulated_exchange import canonical_call, canonical_response, encode_http_response
from tests.support.gateway.in_process import (
    RunningGateway,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
    run_gateway_with,
)
from tests.support.gateway.paused_turns import FINAL_MESSAGE, PAUSED_MESSAGE, anthropic_stream_response, decoded_outcome
from tests.support.mcp.toolsets import SCRIPTED_SERVER
from tests.support.servers.http_responses import (
    BUSY_RESPONSE,
    CHAT_RESPONSE,
    CHAT_STREAM,
    SSE_HEAD,
    http_response,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import Handler, ScriptedUpstream, read_http_request, reply_with, serve_upstream
from toolwire.canonical.content import Text, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import ResponseFailed
from toolwire.canonical.fold import fold
from toolwire.codec.interface import ResponseContext, Route
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.sender import find_side_effect, retry_delay
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.transport import Transport, TransportError, UpstreamResponse, _Connection

MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
ECHO = canonical_call("one__echo", word="hello")
SAID = canonical_response(Text(text="It says hello."), reason="end_turn")


class CountingUpstream:
    """An upstream that counts its requests and handles each with the given handler."""

    def __init__(self, handler: Handler) -> None:
        self.requests = 0
        self._handler = handler

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        await self._handler(reader, writer)


_WAITING: set[_Connection] = set()


@pytest.fixture
def no_timers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No connection gives up by the clock, only when an upstream calls `fall_silent`."""
    monkeypatch.setattr(_Connection, "_set_timer", lambda connection, _: _WAITING.add(connection))
    yield
    _WAITING.clear()


async def fall_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read the request; the time that the gateway waits for the answer is then over."""
    await read_http_request(reader)
    port = writer.get_extra_info("sockname")[1]
    for connection in [one for one in _WAITING if one.origin.port == port]:
        connection._read_timeout = 0
        connection._check_timeout()
    await reader.read()


UNKNOWN: dict[str, Handler] = {
    "silent": fall_silent,
    "closed": reply_with(b"", keep_open=False),
    "cut in the answer": reply_with(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", keep_open=False),
    "cut before the first event": reply_with(SSE_HEAD + transfer_chunk(b": hello\n\n"), keep_open=False),
    "500": reply_with(http_response("500 Oh", openai_error_body("went wrong"))),
    "502 of a proxy": reply_with(http_response("502 Bad Gateway", b"<html>", "text/html")),
    "200 that can't be read": reply_with(http_response("200 OK", b"<html>", "text/html")),
}


@MODES
@pytest.mark.usefixtures("no_timers")
@pytest.mark.parametrize("fault", UNKNOWN)
def test_request_that_may_have_been_processed_is_not_retried(fault: str, stream: bool) -> None:
    """Each of these was sent three times."""

    async def work() -> None:
        counted = CountingUpstream(UNKNOWN[fault])
        async with (
            serve_upstream(counted) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            response = await gateway.send_question("anthropic", stream=stream)
            assert response.status in (500, 502, 504)
            assert counted.requests == 1

    run_async(work())


@MODES
@pytest.mark.usefixtures("no_timers")
@pytest.mark.parametrize("fault", UNKNOWN)
def test_request_that_may_have_been_processed_fails_over(fault: str, stream: bool) -> None:
    async def work() -> None:
        counted, second = CountingUpstream(UNKNOWN[fault]), ScriptedUpstream(CHAT_STREAM if stream else CHAT_RESPONSE)
        async with two_providers(counted, second, "openai-chat") as gateway:
            response = await gateway.send_question("anthropic", stream=stream)
            assert response.status == 200, await response.read(10_000)
            assert (counted.requests, len(second.requests)) == (1, 1)

    run_async(work())


@asynccontextmanager
async def two_providers(
    first: Handler, second: Handler, protocol: str, more: str = ""
) -> AsyncIterator[RunningGateway]:
    """Run a gateway with a fallback provider and these settings."""
    async with serve_upstream(first) as one, serve_upstream(second) as two:
        config = one_provider_config(one, protocol).replace('provider = "up"', 'providers = ["up", "next"]')
        config += f'[providers.next]\nprotocol = "{protocol}"\nbase_url = "http://{two.authority}"\n{more}'
        async with run_gateway(config) as gateway:
            yield gateway


EFFECTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "hosted tool": (
        "anthropic",
        {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": [WEB_SEARCH]},
        "runs tools",
    ),
    "connector": (
        "openai-responses",
        {"input": "Hi", "store": False, "tools": [{"type": "mcp", "server_label": "s", "server_url": "https://s"}]},
        "runs tools",
    ),
    "stored by default": ("openai-responses", {"input": "Hi"}, "stores the conversation"),
    "stored chat": ("openai-chat", {"store": True, "messages": [{"role": "user", "content": "Hi"}]}, "stores"),
}
PATHS = {"anthropic": "/v1/messages", "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses"}


@pytest.mark.usefixtures("no_timers")
@pytest.mark.parametrize("fault", ["silent", "closed", "500"])
@pytest.mark.parametrize("effect", EFFECTS)
def test_request_with_side_effects_does_not_fail_over(effect: str, fault: str) -> None:
    """The provider may have run the tool, so the client must decide."""
    protocol, body, effect_text = EFFECTS[effect]

    async def work() -> None:
        counted, second = CountingUpstream(UNKNOWN[fault]), ScriptedUpstream(CHAT_RESPONSE)
        async with two_providers(counted, second, protocol) as gateway:
            response = await gateway.post(PATHS[protocol], json.dumps({"model": "m", **body}).encode())
            message = decode_error(protocol, response.status, await response.read(10_000)).message
        assert (counted.requests, second.requests) == (1, [])
        assert "may have taken effect" in message
        assert effect_text in message

    run_async(work())


@pytest.mark.parametrize("refusal", ["429 Slow down", "503 Busy", "529 Busy", "401 No", "404 No"])
def test_unprocessed_request_with_side_effects_fails_over(refusal: str) -> None:
    async def work() -> None:
        protocol, body, _ = EFFECTS["hosted tool"]
        refused = {"type": "error", "error": {"type": "api_error", "message": "no"}}
        first = ScriptedUpstream(http_response(refusal, json.dumps(refused).encode(), headers="retry-after: 99\r\n"))
        second = ScriptedUpstream(http_response("200 OK", json.dumps(FINAL_MESSAGE).encode()))
        async with two_providers(first, second, protocol) as gateway:
            response = await gateway.post("/v1/messages", json.dumps({"model": "m", **body}).encode())
            assert response.status == 200
        assert (len(first.requests), len(second.requests)) == (1, 1)

    run_async(work())


@pytest.mark.parametrize(
    ("protocol", "body", "effect"),
    [
        ("anthropic", {"messages": [], "tools": [{"type": "bash_20250124", "name": "bash"}]}, None),
        ("anthropic", {"messages": [], "tools": [{"type": "tool_search_tool_bm25_20251119", "name": "t"}]}, None),
        ("anthropic", {"messages": [], "tools": [{"type": "code_execution_20250825", "name": "c"}]}, "runs tools"),
        ("gemini", {"contents": [], "tools": [{"googleSearch": {}}]}, "runs tools"),
        ("gemini", {"contents": [], "cachedContent": "cachedContents/1"}, None),
        ("openrouter", {"messages": [], "plugins": [{"id": "web"}]}, "runs tools"),
        ("openai-responses", {"input": "Hi", "background": True}, "background"),
        ("openai-responses", {"input": "Hi", "store": False}, None),
        ("openai-responses", {"input": "Hi", "store": False, "conversation": "conv_1"}, "stores"),
        ("gemini-interactions", {"input": "Hi"}, "stores"),
        ("gemini-interactions", {"input": "Hi", "store": False}, None),
        ("openai-chat", {"messages": []}, None),
        ("ollama", {"messages": []}, None),
    ],
)
def test_side_effects_of_requests_are_found(protocol: str, body: dict[str, Any], effect: str | None) -> None:
    delays = find_side_effect(PROTOCOLS[protocol], json.dumps({"model": "m", **body}).encode())
    assert delays is None if effect is None else effect in str(delays)


def test_failed_connection_is_retried() -> None:
    async def work() -> None:
        failed = asyncio.Event()

        class Watched(Transport):
            async def send(self, *args: Any, **options: Any) -> UpstreamResponse:
                try:
                    return await super().send(*args, **options)
                except TransportError:
                    failed.set()
                    raise

        async with serve_upstream(ScriptedUpstream(CHAT_RESPONSE)) as origin:
            pass  # nothing listens there any more
        script, watched = ScriptedUpstream(CHAT_RESPONSE), Watched()
        async with run_gateway(one_provider_config(origin, extra_config="[limits]\nretries = 10")) as gateway:
            gateway.gateway.app._dispatcher.services.sender._transport = watched
            asking = asyncio.create_task(gateway.send_question("anthropic"))
            await failed.wait()
            async with serve_upstream(script, origin.port):
                assert (await asking).status == 200
                assert len(script.requests) == 1
                watched.close()

    run_async(work())


def test_retry_delays_grow_and_respect_retry_after() -> None:
    def delay(retries: int, after: float | None = None) -> float | None:
        error = ApiError(kind="overloaded", message="busy", retry_after=after)
        return retry_delay(RequestRejected(error, attempt="unprocessed"), retries)

    for retries, least in enumerate([0.5, 1, 2, 4, 8, 10, 10]):
        effect = {delay(retries) for _ in range(20)}
        assert len(effect) > 1
        assert all(one is not None and least <= one <= least * 1.25 for one in effect)
    assert delay(0, 0) == 0
    assert all((delay(0, 3) or 0) >= 3 for _ in range(20))
    assert delay(0, 11) is None


# ---- rounds


@asynccontextmanager
async def gateway_with_tools(*scripts: ScriptedUpstream, log: Path) -> AsyncIterator[RunningGateway]:
    """Run a gateway with tools of an MCP server, in front of these upstreams."""
    settings = {"version": "2025-11-25", "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    started = json.dumps(["-S", str(SCRIPTED_SERVER), json.dumps(settings | {"log": str(log)})])
    more = f"[mcp.servers.one]\ncommand = {json.dumps(sys.executable)}\nargs = {started}\n"
    more += '[policy]\nallow = ["one__*"]\n'
    async with run_gateway_with(*scripts, extra_config=more, route_options='tools = ["one"]') as gateway:
        yield gateway


def calls_in(log: Path) -> int:
    return sum(json.loads(line).get("method") == "tools/call" for line in log.read_text().splitlines())


@MODES
@pytest.mark.parametrize("client", ["anthropic", "openai-chat"])
def test_retries_do_not_rerun_tools(tmp_path: Path, client: str, stream: bool) -> None:
    """Only the rejected request is sent again, buffered and streamed."""

    async def work() -> None:
        first = encode_http_response("openai-chat", canonical_response(Text(text="Let me see."), ECHO), stream=stream)
        script = ScriptedUpstream(
            first, BUSY_RESPONSE, BUSY_RESPONSE, encode_http_response("openai-chat", SAID, stream=stream)
        )
        async with gateway_with_tools(script, log=tmp_path / "log") as gateway:
            path, body = question_request(client, stream=stream)
            reply = await gateway.post(path, body)
            data = await reply.read(100_000)
            assert reply.status == 200, data
        events = decode_events(client, data) if stream else []
        assert not any(isinstance(event, ResponseFailed) for event in events)
        response = fold(events) if stream else PROTOCOLS[client].decode_response(data, ResponseContext())
        texts = [part.text for one in response.candidates[0].messages for part in one.parts if isinstance(part, Text)]
        assert "".join(texts) == "Let me see.It says hello."
        assert response.model == "m"
        assert calls_in(tmp_path / "log") == 1
        assert [script.bodies.index(one) for one in script.bodies] == [0, 1, 1, 1]
        last_request = PROTOCOLS["openai-chat"].decode_request(json.dumps(script.bodies[-1]).encode(), Route())
        assert sum(isinstance(part, ToolResult) for one in last_request.messages for part in one.parts) == 1

    run_async(work())


@MODES
@pytest.mark.parametrize("refusal", ["500 Oh", "429 Slow down"])
def test_no_failover_after_a_tool_was_run(tmp_path: Path, refusal: str, stream: bool) -> None:
    """A fallback would run the tool again."""

    async def work() -> None:
        first = ScriptedUpstream(
            encode_http_response("openai-chat", canonical_response(ECHO), stream=stream),
            http_response(refusal, openai_error_body("went wrong"), headers="retry-after: 99\r\n"),
        )
        second = ScriptedUpstream(
            encode_http_response("openai-chat", canonical_response(ECHO), stream=stream),
            encode_http_response("openai-chat", SAID, stream=stream),
        )
        async with gateway_with_tools(first, second, log=tmp_path / "log") as gateway:
            response = await gateway.send_question("anthropic", stream=stream)
            data = await response.read(100_000)
        assert second.requests == []
        assert calls_in(tmp_path / "log") == 1
        assert b"may have taken effect: tools were run" in data
        assert (response.status == 200) is stream

    run_async(work())


@MODES
def test_no_failover_after_a_pause(stream: bool) -> None:
    """A provider that is busy after `pause_turn` gets the continuation again."""

    async def work() -> None:
        one, two = (
            anthropic_stream_response(part) if stream else http_response("200 OK", json.dumps(part).encode())
            for part in (PAUSED_MESSAGE, FINAL_MESSAGE)
        )
        script = ScriptedUpstream(one, BUSY_RESPONSE, two)
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, "anthropic")) as gateway:
            response = await gateway.send_question("openai-chat", stream=stream)
            text, _, _ = decoded_outcome("openai-chat", await response.read(100_000), stream=stream)
        assert text == "Let me look. It is sunny."
        assert [len(body["messages"]) for body in script.bodies] == [1, 2, 2]

    run_async(work())


def test_fallback_without_the_model_does_not_hide_the_failure() -> None:
    """The second provider got the model name of the first."""

    async def work() -> None:
        first, second = (
            ScriptedUpstream(http_response("500 Oh", openai_error_body("went wrong"))),
            ScriptedUpstream(CHAT_RESPONSE),
        )
        missing = ScriptedUpstream(http_response("404 No", openai_error_body("no such model", "not_found_error")))
        async with two_providers(first, second, "openai-chat", 'default_model = "own-name"\n') as gateway:
            assert (await gateway.send_question("anthropic")).status == 200
        async with two_providers(first, missing, "openai-chat") as gateway:
            response = await gateway.send_question("anthropic")
            assert (response.status, b"went wrong" in await response.read(10_000)) == (500, True)
        assert [body["model"] for body in (*first.bodies, *second.bodies, *missing.bodies)] == [
            "m",
            "m",
            "own-name",
            "m",
        ]

    run_async(work())
