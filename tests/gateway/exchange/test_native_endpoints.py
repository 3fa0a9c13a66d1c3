"""Embeddings and prompt completions, passed through to providers that have the endpoint."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.codecs import decode_error
from tests.support.gateway.in_process import RunningGateway, run_async, run_gateway
from tests.support.servers.asgi import serve_app
from tests.support.servers.http_responses import (
    BUSY_RESPONSE,
    SSE_HEAD,
    http_response,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import ScriptedUpstream, read_http_request, serve_upstream
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.transport import UpstreamResponse

EMBEDDING = b'{"object":"list","data":[{"index":0,"embedding":[0.10,1e-3]}],"usage":{"prompt_tokens":5}}'
SECRET = "upstream-secret-key"


@asynccontextmanager
async def run_with(handler: Any, protocol: str = "openai-chat", extra: str = "") -> AsyncIterator[RunningGateway]:
    """Run a gateway with this upstream, and with one of a protocol that has none of these endpoints."""
    async with serve_upstream(handler) as origin:
        config = f"""
[providers.up]
protocol = "{protocol}"
base_url = "http://{origin.authority}"
api_key = "{SECRET}"
models = ["text-*"]
[providers.claude]
protocol = "anthropic"
base_url = "http://127.0.0.1:9"
{extra}
"""
        async with run_gateway(config) as gateway:
            yield gateway


async def send(gateway: RunningGateway, path: str, **fields: Any) -> UpstreamResponse:
    return await gateway.post(path, json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("protocol", "path", "sent_path"),
    [
        ("openai-chat", "/v1/embeddings", "/v1/embeddings"),
        ("openai-responses", "/v1/embeddings", "/v1/embeddings"),
        ("ollama", "/v1/completions", "/v1/completions"),
        ("openrouter", "/v1/embeddings", "/api/v1/embeddings"),
        ("openai-chat", "/api/v1/completions", "/v1/completions"),
        ("ollama", "/api/embed", "/api/embed"),
        ("ollama", "/api/embeddings", "/api/embeddings"),
    ],
)
def test_body_is_passed_through_with_the_providers_name_of_the_model(protocol: str, path: str, sent_path: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(http_response("200 OK", EMBEDDING))
        async with run_with(script, protocol) as gateway:
            body = b'{ "input": [1e5, "\\u00e9"], "model": "text-small", "made_up": {"a": 0.10} }'
            response = await gateway.post(path, body)
            assert (response.status, await response.read(10_000)) == (200, EMBEDDING)
            assert response.headers["toolwire-model"] == "up/text-small"
            await send(gateway, path, model="up/other/name", input="x")
        first, second = script.requests
        assert first.startswith(f"POST {sent_path} HTTP/1.1\r\n".encode())
        assert SECRET.encode() in first
        assert first.endswith(b"\r\n\r\n" + body)
        assert json.loads(second.partition(b"\r\n\r\n")[2]) == {"model": "other/name", "input": "x"}

    run_async(work())


def test_prompt_completion_streams_as_it_arrives() -> None:
    last_part = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        writer.write(SSE_HEAD + transfer_chunk(b'data: {"choices":[{"text":"a"}]}\n\ndata: {"cho'))
        await last_part.wait()
        writer.write(transfer_chunk(b'ices":[]}\n\ndata: [DONE]\n\n') + b"0\r\n\r\n")

    async def work() -> None:
        async with run_with(handler) as gateway:
            response = await send(gateway, "/v1/completions", model="text-x", prompt="p", stream=True)
            assert response.headers["content-type"].startswith("text/event-stream")
            assert await response.next() == b'data: {"choices":[{"text":"a"}]}\n\n'
            last_part.set()
            assert await response.read(10_000) == b'data: {"choices":[]}\n\ndata: [DONE]\n\n'

    run_async(work())


def test_broken_stream_ends_with_an_error_between_frames() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_http_request(reader)
        writer.write(SSE_HEAD + transfer_chunk(b'data: {"choices":[]}\n\ndata: {"cho'))

    async def work() -> None:
        async with run_with(handler) as gateway:
            response = await send(gateway, "/v1/completions", model="text-x", prompt="p", stream=True)
            first, error, *_ = (await response.read(10_000)).split(b"\n\n")
            assert first == b'data: {"choices":[]}'
            assert "closed the connection" in json.loads(error.removeprefix(b"data: "))["error"]["message"]

    run_async(work())


def test_ollama_generates_as_lines_by_default() -> None:
    lines = b'{"response":"a","done":false}\n{"response":"","done":true,"eval_count":2}\n'

    async def work() -> None:
        script = ScriptedUpstream(http_response("200 OK", lines, "application/x-ndjson"))
        async with run_with(script, "ollama") as gateway:
            response = await send(gateway, "/api/generate", model="text-x", prompt="p")
            assert response.headers["content-type"] == "application/x-ndjson"
            assert await response.read(10_000) == lines
            assert script.requests[0].startswith(b"POST /api/generate ")

    run_async(work())


def test_model_of_another_provider_needs_no_loading() -> None:
    async def work() -> None:
        async with run_with(ScriptedUpstream()) as gateway:
            for options in ({}, {"stream": False}, {"keep_alive": 0}):
                response = await send(gateway, "/api/generate", model="claude/x", **options)
                loaded = json.loads(await response.read(10_000))
                assert (loaded["model"], loaded["done"], loaded["done_reason"]) == ("claude/x", True, "load")
            assert await gateway.get("/api/ps") == (200, b'{"models":[]}')

    run_async(work())


@pytest.mark.parametrize(
    ("path", "protocol", "message"),
    [
        (
            "/v1/embeddings",
            "openai-chat",
            "provider 'claude' has no embeddings; configure one that speaks openai-chat, openrouter or ollama",
        ),
        ("/v1/completions", "openai-chat", "provider 'claude' has no prompt completions; configure one"),
        ("/api/embed", "ollama", "provider 'claude' has no embeddings (/api/embed); configure one that speaks ollama"),
        ("/api/generate", "ollama", "provider 'claude' has no prompt completions (/api/generate); configure one"),
    ],
)
def test_provider_without_the_endpoint_is_named(path: str, protocol: str, message: str) -> None:
    async def work() -> None:
        async with run_with(ScriptedUpstream()) as gateway:
            response = await send(gateway, path, model="claude/x", input="x", prompt="x")
            assert response.status == 400
            assert decode_error(protocol, 400, await response.read(10_000)).message.startswith(message)
            misspelled = await send(gateway, path, model="opp/x", prompt="x")
            assert misspelled.status == 404
            assert "unknown provider 'opp'" in decode_error(protocol, 404, await misspelled.read(10_000)).message

    run_async(work())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"model":"\xff"}', b"[" * 100_000])
def test_invalid_body_is_a_client_error(body: bytes) -> None:
    async def work() -> None:
        script = ScriptedUpstream()
        async with run_with(script) as gateway:
            response = await gateway.post("/v1/embeddings", body)
            assert response.status in (400, 404)
            assert decode_error("openai-chat", 400, await response.read(10_000)).message
            assert script.requests == []

    run_async(work())


def test_failures_fail_over_to_backends_with_the_endpoint_and_hide_the_key() -> None:
    async def work() -> None:
        refusal = http_response("500 Oops", openai_error_body(f"the key {SECRET} is broken"))
        script, second = ScriptedUpstream(refusal), ScriptedUpstream(http_response("200 OK", EMBEDDING))
        async with serve_upstream(second) as origin:
            extra = f"""
[providers.second]
protocol = "openai-chat"
base_url = "http://{origin.authority}"
[[routes]]
match = "embedder"
backends = [{{provider = "claude", model = "x"}}, {{provider = "up", model = "text-a"}}, {{provider = "second"}}]
[[routes]]
match = "alone"
provider = "up"
"""
            async with run_with(script, extra=extra) as gateway:
                response = await send(gateway, "/v1/embeddings", model="embedder", input="x")
                assert (response.status, await response.read(10_000)) == (200, EMBEDDING)
                assert response.headers["toolwire-model"] == "second/embedder"
                refused = await send(gateway, "/v1/embeddings", model="alone", input="x")
                message = decode_error("openai-chat", 500, await refused.read(10_000)).message
                assert (refused.status, SECRET in message, "is broken" in message) == (500, False, True)
        assert [body["model"] for body in script.bodies + second.bodies] == ["text-a", "alone", "embedder"]

    run_async(work())


def test_busy_provider_is_asked_again_and_odd_responses_are_errors() -> None:
    async def work() -> None:
        script = ScriptedUpstream(BUSY_RESPONSE, http_response("200 OK", EMBEDDING), http_response("200 OK", b"<p>"))
        async with run_with(script, extra="[limits]\nbody = 1000\nanswer = 500") as gateway:
            assert (await send(gateway, "/v1/embeddings", model="text-x")).status == 200
            assert (await send(gateway, "/v1/embeddings", model="text-x")).status == 502
            script.responses.append(http_response("200 OK", b"{" + b" " * 1000 + b"}"))
            assert (await send(gateway, "/v1/embeddings", model="text-x")).status == 502
            assert (await send(gateway, "/v1/embeddings", model="text-x", input="x" * 1000)).status == 413
            status, metrics = await gateway.get("/metrics")
            assert (status, b'toolwire_tokens_total{provider="up",kind="input"} 5' in metrics) == (200, True)

    run_async(work())


def test_server_keys_are_required() -> None:
    async def work() -> None:
        script = ScriptedUpstream(http_response("200 OK", EMBEDDING))
        async with run_with(script, extra='[server]\nkeys = ["key-of-the-gateway"]') as gateway:
            assert (await send(gateway, "/v1/embeddings", model="text-x")).status == 401
            assert script.requests == []

    run_async(work())


@pytest.mark.parametrize("path", ["/v1/embeddings", "/api/generate"])
def test_simulator_without_the_endpoint_is_named(path: str) -> None:
    async def work() -> None:
        with serve_app(Simulator()) as url:
            async with run_gateway(f'[providers.up]\nprotocol = "ollama"\nbase_url = "{url}"\n') as gateway:
                response = await send(gateway, path, model="up/m", input="x", prompt="x")
                text = (await response.read(10_000)).decode()
                assert (response.status, f"(POST {path}): the simulator has no such endpoint" in text) == (404, True)

    run_async(work())
