"""Endpoints besides exchanges, and unusual requests: methods, lookups, compressed bodies."""

import gzip
import json
import zlib

import pytest

from tests.support.codecs import decode_error
from tests.support.gateway.in_process import (
    NO_TIMEOUT,
    PROTOCOL_NAMES,
    RunningGateway,
    question_request,
    run_async,
    run_gateway_with,
)
from tests.support.servers.http_responses import CHAT_RESPONSE, CHAT_STREAM
from tests.support.servers.upstream import ScriptedUpstream
from toolwire.upstream.transport import request_head


async def ask(gateway: RunningGateway, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    response = await gateway.transport.send(
        gateway.origin, request_head(gateway.origin, path, [], method), None, read_timeout=NO_TIMEOUT
    )
    return response.status, response.headers, await response.read(100_000)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_model_endpoint_allows_only_post(protocol: str, method: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        path, _ = question_request(protocol)
        async with run_gateway_with(script) as gateway:
            status, headers, body = await ask(gateway, method, path)
            assert (status, headers["allow"]) == (405, "POST")
            assert decode_error(protocol, 405, body).message == "method not allowed: use POST"
            assert script.requests == []

    run_async(work())


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/models", "GET"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/api/tags", "GET"),
        ("POST", "/metrics", "GET"),
        ("GET", "/api/show", "POST"),
        ("GET", "/toolwire/translate", "POST"),
    ],
)
def test_wrong_method_is_405_not_404(method: str, path: str, allowed: str) -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            status, headers, _ = await ask(gateway, method, path)
            assert (status, headers["allow"]) == (405, allowed)
            assert (await ask(gateway, method, "/nothing" + path))[0] == 404

    run_async(work())


def test_root_path_reports_that_the_gateway_runs() -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            status, _, body = await ask(gateway, "GET", "/")
            assert status == 200
            lines = body.decode().splitlines()
            assert lines[0] == "toolwire is running"
            assert "POST /v1/messages" in lines[2]
            assert any(line.startswith("POST /v1/embeddings") for line in lines)
            assert max(map(len, lines)) <= 80

    run_async(work())


def test_unknown_path_is_answered_with_a_known_one() -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            for path, hint in (
                ("/v1/chat/completion", ' (did you mean "/v1/chat/completions"'),
                ("/v1/v1/messages", ' (did you mean "/v1/messages"'),
                ("/v1/embedings", ' (did you mean "/v1/embeddings"'),
                ("/v1/images/generations", "; GET / lists the supported endpoints"),
            ):
                status, _, body = await ask(gateway, "POST", path)
                message = decode_error("openai-chat", 404, body).message
                assert (status, message.startswith(f"not found: {path}{hint}")) == (404, True), message

    run_async(work())


@pytest.mark.parametrize("stream", [False, True])
def test_report_of_an_exchange_without_losses_is_empty(stream: bool) -> None:
    async def work() -> None:
        response = CHAT_STREAM if stream else CHAT_RESPONSE
        async with run_gateway_with(ScriptedUpstream(response)) as gateway:
            sent = await gateway.send_question("openai-chat", stream=stream)
            assert sent.status == 200
            await sent.read(100_000)
            found = await gateway.get(f"/toolwire/exchanges/{sent.headers['toolwire-exchange']}/losses")
            assert found == (200, b'{"losses":[]}')
            assert sent.headers["toolwire-model"] == "p0/m"
            assert (await gateway.get("/toolwire/exchanges/ex_0000000000000000/losses"))[0] == 404

    run_async(work())


def test_any_routable_model_is_found_in_the_catalog() -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            status, body = await gateway.get("/v1/models/any-name")
            found = json.loads(body)
            assert (status, found["id"], found["owned_by"]) == (200, "any-name", "p0")
            response = await gateway.post("/api/show", b'{"model":"any-name:7b"}')
            assert "tools" in json.loads(await response.read(10_000))["capabilities"]

    run_async(work())


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("GZIP, identity", gzip.compress),
        ("deflate, gzip", lambda body: gzip.compress(zlib.compress(body))),
        ("gzip", lambda body: gzip.compress(body[:20]) + gzip.compress(body[20:])),
    ],
    ids=["gzip", "deflate", "spelling", "two layers", "two members"],
)
def test_compressed_body_is_decoded(encoding: str, pack: object) -> None:
    assert callable(pack)

    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script) as gateway:
            path, body = question_request("anthropic")
            assert (await gateway.post(path, pack(body), content_encoding=encoding)).status == 200
            assert script.bodies[0]["messages"][0]["content"] == "What is the weather in Paris?"
            assert b"content-encoding" not in script.requests[0]

    run_async(work())


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("br", b"{}", 415),
        ("gzip," * 9, b"{}", 415),
        ("gzip", b"{}", 400),
        ("gzip", gzip.compress(b"{" + b" " * 100)[:-10], 400),
        ("gzip", None, 413),
        ("gzip, gzip", None, 413),
    ],
    ids=["unknown", "too many layers", "not packed", "cut", "bomb", "bomb in a bomb"],
)
def test_invalid_compressed_body_is_refused(encoding: str, body: bytes | None, status: int) -> None:
    if body is None:
        body = b" " * 50_000_000
        for _ in encoding.split():
            body = gzip.compress(body, 1)

    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script, extra_config="[limits]\nbody = 1000000") as gateway:
            response = await gateway.post("/v1/messages", body, content_encoding=encoding)
            assert response.status == status
            assert decode_error("anthropic", status, await response.read(10_000)).message.startswith("request body: ")
            assert script.requests == []

    run_async(work())


def test_last_chunk_counts_towards_the_limit() -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE), extra_config="[limits]\nbody = 100") as gateway:
            head = request_head(gateway.origin, "/v1/messages", [("transfer-encoding", "chunked")])
            response = await gateway.transport.send(gateway.origin, head + b"\r\nc8\r\n" + b" " * 200 + b"\r\n0", None)
            assert response.status == 413

    run_async(work())


def test_unknown_toolwire_strict_value_is_refused() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(script) as gateway:
            response = await gateway.send_question("anthropic", toolwire_strict="yes")
            assert response.status == 400
            assert "'yes'" in decode_error("anthropic", 400, await response.read(10_000)).message
            assert (
                await gateway.post("/toolwire/translate", b'{"protocol":"anthropic","body":{},"modl":1}')
            ).status == 400
            assert script.requests == []

    run_async(work())
