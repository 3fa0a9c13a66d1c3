"""The exchange: retries and failover before the first byte, reported losses, and related endpoints."""

import asyncio
import json

import pytest

from tests.support.bodies.minimal import anthropic_request, anthropic_response
from tests.support.clock import Clock
from tests.support.codecs import decode_error, decode_events
from tests.support.gateway.in_process import (
    LOSSY_REQUEST,
    NO_TIMEOUT,
    PROTOCOL_NAMES,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
    run_gateway_with,
)
from tests.support.servers.http_responses import (
    BUSY_RESPONSE,
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
from tests.support.servers.upstream import ScriptedUpstream, read_http_request, serve_upstream
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import ResponseEnd, ResponseFailed
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

# ---- retries and failover


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_busy_upstream_is_retried(stream: bool, clock: Clock) -> None:
    async def work() -> None:
        script = ScriptedUpstream(BUSY_RESPONSE, BUSY_RESPONSE, CHAT_STREAM if stream else CHAT_RESPONSE)
        async with run_gateway_with(script) as gateway:
            response = await clock.advance_until_done(gateway.send_question("anthropic", stream=stream), step=0.1)
            body = await response.read(10_000)
            assert response.status == 200
            assert b"sunny" in body if stream else b"fine" in body
            assert len(script.requests) == 3
            assert script.bodies[0] == script.bodies[2]

    run_async(work())


@pytest.mark.parametrize("client", [name for name in PROTOCOL_NAMES if name != "openai-chat"])
def test_response_that_fails_midway_is_an_error(client: str) -> None:
    async def work() -> None:
        failed = json.loads(CHAT_BODY)
        failed["choices"][0] |= {"finish_reason": "error", "error": {"code": 400, "message": "Too long"}}
        async with run_gateway_with(ScriptedUpstream(http_response("200 OK", json.dumps(failed).encode()))) as gateway:
            response = await gateway.send_question(client)
            body = await response.read(10_000)
            if PROTOCOLS[client].errors_in_body:
                failure = PROTOCOLS[client].decode_response(body, ResponseContext()).error
                assert (response.status, failure and failure.message) == (200, "Too long")
            else:
                assert (response.status, decode_error(client, 400, body).message) == (400, "Too long")

    run_async(work())


def test_error_of_a_busy_upstream_is_passed_on_after_retries() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            http_response(
                "429 Slow down", openai_error_body("too fast", "rate_limit_error"), headers="retry-after: 33\r\n"
            )
        )
        async with run_gateway_with(script) as gateway:
            response = await gateway.send_question("anthropic")
            assert (response.status, response.headers["retry-after"], len(script.requests)) == (429, "33", 1)
            assert decode_error("anthropic", 429, await response.read(10_000)).kind == "rate_limit"

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "broken",
    [
        http_response("500 Oh", openai_error_body("went wrong")),
        http_response("401 No", openai_error_body("bad key", "authentication_error")),
        http_response("404 No", openai_error_body("no such model", "not_found_error")),
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        SSE_HEAD
        + transfer_chunk(b"data: " + openai_error_body("overloaded", "overloaded_error") + b"\n\n")
        + b"0\r\n\r\n",
    ],
    ids=["500", "401", "404", "empty", "error as the first event"],
)
def test_failover_to_next_provider(broken: bytes, stream: bool) -> None:
    async def work() -> None:
        first, second = ScriptedUpstream(broken), ScriptedUpstream(CHAT_STREAM if stream else CHAT_RESPONSE)
        async with run_gateway_with(first, second, extra_config="[limits]\nretries = 0") as gateway:
            response = await gateway.send_question("openai-responses", stream=stream)
            body = await response.read(100_000)
            assert response.status == 200, body
            assert b"sunny" in body if stream else b"fine" in body
            assert (len(first.requests), len(second.requests)) == (1, 1)
            assert b"secret-of-p1" in second.requests[0]
            assert b"secret-of-p0" not in second.requests[0]

    run_async(work())


def test_client_errors_do_not_fail_over() -> None:
    async def work() -> None:
        first = ScriptedUpstream(
            http_response("400 Bad", openai_error_body("temperature: too hot", "invalid_request_error"))
        )
        second = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(first, second) as gateway:
            response = await gateway.send_question("gemini")
            assert response.status == 400
            assert "too hot" in decode_error("gemini", 400, await response.read(10_000)).message
            assert (len(first.requests), len(second.requests)) == (1, 0)

    run_async(work())


def test_no_failover_after_the_first_byte() -> None:
    async def work() -> None:
        first, second = (
            ScriptedUpstream(SSE_HEAD + transfer_chunk(STREAM_START) + b"0\r\n\r\n"),
            ScriptedUpstream(CHAT_STREAM),
        )
        async with run_gateway_with(first, second) as gateway:
            wire = await (await gateway.send_question("anthropic", stream=True)).read(10_000)
            assert any(isinstance(event, ResponseFailed) for event in decode_events("anthropic", wire))
            assert second.requests == []

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_json_response_to_a_streaming_request_is_streamed(protocol: str) -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            wire = await (await gateway.send_question(protocol, stream=True)).read(10_000)
            assert b"fine" in wire
            assert isinstance(decode_events(protocol, wire)[-1], ResponseEnd)

    run_async(work())


def test_losses_are_in_a_header_and_readable_by_the_same_key_only() -> None:
    async def work() -> None:
        keys = '[server]\nkeys = ["first-key-1", "second-key-2"]'
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE), extra_config=keys) as gateway:
            body = json.dumps(LOSSY_REQUEST).encode()
            response = await gateway.post("/v1/messages", body, x_api_key="first-key-1")
            header = json.loads(response.headers["toolwire-losses"])
            assert "/container" in [loss["path"] for loss in header["losses"]]
            assert response.headers["toolwire-losses"].isascii()
            path = f"/toolwire/exchanges/{response.headers['toolwire-exchange']}/losses"
            status, decoded = await gateway.get(path, x_api_key="first-key-1")
            assert status == 200
            losses = json.loads(decoded)["losses"]
            assert [loss for loss in losses if loss["severity"] != "info"] == header["losses"]
            assert (await gateway.get(path, x_api_key="second-key-2"))[0] == 404
            assert (await gateway.get(path))[0] == 401

    run_async(work())


def test_strict_request_is_refused_before_sending() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script) as gateway:
            response = await gateway.post("/v1/messages", json.dumps(LOSSY_REQUEST).encode(), toolwire_strict="refuse")
            assert response.status == 400
            assert "/" in decode_error("anthropic", 400, await response.read(10_000)).message
            assert script.requests == []
        async with run_gateway_with(script, route_options="strict = true") as gateway:
            assert (await gateway.post("/v1/messages", json.dumps(LOSSY_REQUEST).encode())).status == 400
            assert script.requests == []

    run_async(work())


def test_dry_run_returns_the_translated_request() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script) as gateway:
            request_body = json.dumps({"protocol": "anthropic", "body": LOSSY_REQUEST}).encode()
            response = await gateway.post("/toolwire/translate", request_body)
            decoded = json.loads(await response.read(10_000))
            assert (decoded["provider"], decoded["protocol"], decoded["address"]) == (
                "p0",
                "openai-chat",
                "/v1/chat/completions",
            )
            assert decoded["body"]["messages"][0]["role"] == "user"
            assert "/container" in [loss["path"] for loss in decoded["losses"]]
            assert script.requests == []
            assert (await gateway.post("/toolwire/translate", b'{"protocol":"smtp","body":{}}')).status == 400
            assert (await gateway.post("/toolwire/translate", b"nonsense")).status == 400

    run_async(work())


# ---- heartbeats


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_silent_upstream_is_bridged_by_heartbeats(protocol: str, clock: Clock) -> None:
    async def work() -> None:
        go_on = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_http_request(reader)
            writer.write(SSE_HEAD + transfer_chunk(STREAM_START))
            await go_on.wait()
            writer.write(transfer_chunk(chat_sse_event({}, "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n")
            await reader.read()

        async with serve_upstream(slow) as origin:
            config = one_provider_config(origin, extra_config="[limits]\nheartbeat = 10", timeout=NO_TIMEOUT)
            async with run_gateway(config) as gateway:
                response = await gateway.send_question(protocol, stream=True)
                pieces = [await response.next()]
                while b"sunny" not in b"".join(pieces):
                    pieces.append(await response.next())
                pieces += [
                    await clock.advance_until_done(response.next()) for _ in range(3)
                ]  # heartbeats: the upstream is silent
                go_on.set()
                pieces += [piece async for piece in response.chunks()]
            events = decode_events(protocol, b"".join(pieces))
            assert isinstance(events[-1], ResponseEnd)

    run_async(work())


# ---- paths


@pytest.mark.parametrize(
    ("path", "headers", "protocol"),
    [
        ("/v1/nothing", {}, "openai-chat"),
        ("/v1/nothing", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("/v1/messages/x", {}, "anthropic"),
        ("/v1beta/nothing", {}, "gemini"),
        ("/v1/nothing", {"x-goog-api-key": "k"}, "gemini"),
        ("/v1beta/interactions/x/y", {}, "gemini-interactions"),
        ("/api/nothing", {}, "ollama"),
        ("/api/v1/nothing", {}, "openrouter"),
        ("/v1/responses/x/y", {}, "openai-responses"),
    ],
)
def test_unknown_path_is_answered_in_the_guessed_protocol(path: str, headers: dict[str, str], protocol: str) -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            status, body = await gateway.get(path, **headers)
            assert status == 404
            error = decode_error(protocol, 404, body)
            assert path in error.message
            expected = ApiError(kind="not_found", message=error.message, status=404)
            assert body == PROTOCOLS[protocol].encode_error(expected).to_bytes()

    run_async(work())


def test_query_strings_are_tolerated() -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            _, body = question_request("anthropic")
            assert (await gateway.post("/v1/messages?beta=true", body)).status == 200

    run_async(work())


def test_requests_are_counted_in_metrics() -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            await (await gateway.send_question("anthropic")).read(10_000)
            await (await gateway.post("/v1/messages", b"{")).read(10_000)
            status, body = await gateway.get("/metrics")
            text = body.decode()
            assert status == 200
            assert 'toolwire_requests_total{client="anthropic",provider="p0",status="200"} 1' in text
            assert 'toolwire_requests_total{client="anthropic",provider="",status="400"} 1' in text
            assert 'toolwire_tokens_total{provider="p0",kind="output"} 4' in text
            assert "toolwire_request_seconds_count 2" in text
            assert (await gateway.get("/healthz"))[0] == 200

    run_async(work())


def test_ollama_streams_by_default() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_STREAM, CHAT_RESPONSE)
        async with run_gateway_with(script) as gateway:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
            response = await gateway.post("/api/chat", json.dumps(body).encode())
            assert response.headers["content-type"] == "application/x-ndjson"
            assert b"sunny" in await response.read(10_000)
            response = await gateway.post("/api/chat", json.dumps({**body, "stream": False}).encode())
            assert b"fine" in await response.read(10_000)
            assert [one.get("stream") for one in script.bodies] == [True, False]

    run_async(work())


def test_whole_number_becomes_an_integer_where_the_schema_says_so() -> None:
    schema = {"type": "object", "properties": {"days": {"type": "integer"}}}
    request_body = {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [{"name": "forecast", "input_schema": schema}],
    }
    call = {"id": "call_1", "type": "function", "function": {"name": "forecast", "arguments": '{"days": 3.0}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    upstream_body = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}

    async def work() -> None:
        async with run_gateway_with(
            ScriptedUpstream(http_response("200 OK", json.dumps(upstream_body).encode()))
        ) as gateway:
            response = await gateway.post("/v1/messages", json.dumps(request_body).encode())
            assert b'"input":{"days": 3}' in await response.read(10_000)

    run_async(work())


def test_response_losing_a_constraint_is_refused() -> None:
    check = {"id": "sc_1", "code": "malicious_instructions", "message": "Look first."}
    call = {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_1",
        "status": "completed",
        "action": {"type": "click", "x": 1, "y": 2, "button": "left"},
        "pending_safety_checks": [check],
    }
    upstream_body = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [call]}

    async def work() -> None:
        script = ScriptedUpstream(http_response("200 OK", json.dumps(upstream_body).encode()))
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, "openai-responses")) as gateway,
        ):
            response = await gateway.send_question("anthropic")
            assert response.status == 400
            assert "pending_safety_checks" in decode_error("anthropic", 400, await response.read(10_000)).message

    run_async(work())


def test_forwarded_headers_reach_a_provider_of_the_same_protocol() -> None:
    header_values = {
        "anthropic-beta": "one-2026-01-01,two-2026-02-02",
        "anthropic-version": "2026-06-01",
        "x-else": "kept back",
    }
    body = json.dumps(anthropic_request()).encode()
    good = http_response("200 OK", json.dumps(anthropic_response()).encode())

    async def head_at(protocol: str, more: str = "") -> str:
        script = ScriptedUpstream(good if protocol == "anthropic" else CHAT_RESPONSE)
        async with serve_upstream(script) as origin:
            config = one_provider_config(origin, protocol).replace("timeout", f"{more}\ntimeout")
            async with run_gateway(config) as gateway:
                response = await gateway.post("/v1/messages", body, **header_values)
                await response.read(100_000)
                assert response.status == 200
        return script.requests[0].partition(b"\r\n\r\n")[0].decode().lower()

    async def work() -> None:
        head = await head_at("anthropic") + "\r\n"
        assert "\r\nanthropic-beta: one-2026-01-01,two-2026-02-02\r\n" in head
        assert "\r\nanthropic-version: 2026-06-01\r\n" in head
        assert "kept back" not in head
        also = await head_at("anthropic", 'headers = {"anthropic-beta" = "own-2026-03-03"}')
        assert "anthropic-beta: own-2026-03-03,one-2026-01-01,two-2026-02-02" in also
        assert "anthropic" not in await head_at("openai-chat")

    run_async(work())
