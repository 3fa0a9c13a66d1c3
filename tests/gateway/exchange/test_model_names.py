"""Model names chosen by clients, in the paths of upstream requests."""

import json
from typing import Any
from urllib.parse import quote, unquote

import pytest

import toolwire as tw
from tests.support.codecs import decode_error
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import CHAT_RESPONSE, http_response
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.gateway.exchange.routing import LIMIT_MODEL_NAME
from toolwire.upstream.provider import Origin
from toolwire.upstream.transport import request_head

ANSWER = http_response(
    "200 OK", b'{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP"}]}'
)

HOSTILE = [
    "../../v1beta/cachedContents?x=",
    "x?key=EVIL&a=",
    "a HTTP/1.1\r\nx-evil: 1\r\n\r\n",
    "a HTTP/1.1",
    "a\tb",
    "a\x00b",
    "a\u2028b",
    "x#fragment",
    "..",
    ".",
    "models/..",
    "models/../cachedContents",
    "models/a/../../files",
    "tunedModels/../x",
    "projects/p/locations/../publishers/google/models/m",
    "publishers//models/m",
    "a\\..\\b",
]

NAMES = {
    "gemini-3-pro": "models/gemini-3-pro",
    "google/gemini-3-pro": "models/gemini-3-pro",
    "models/gemini-3-pro": "models/gemini-3-pro",
    "tunedModels/mine-1": "tunedModels/mine-1",
    "publishers/google/models/gemini-3@001": "publishers/google/models/gemini-3@001",
    "projects/p/locations/eu/publishers/google/models/m": "projects/p/locations/eu/publishers/google/models/m",
    "projects/p/locations/eu/endpoints/1": "projects/p/locations/eu/endpoints/1",
    "meta/llama": "models/meta%2Fllama",
    "models/a/cachedContents": "models/models%2Fa%2FcachedContents",
    "projects/p/cachedContents": "models/projects%2Fp%2FcachedContents",
    "x:batchGenerateContent": "models/x%3AbatchGenerateContent",
    "x&key=1": "models/x%26key%3D1",
    "%2e%2e%2fx": "models/%252e%252e%252fx",
    "modèle": "models/mod%C3%A8le",
}


def request_lines(script: ScriptedUpstream) -> list[bytes]:
    return [one.partition(b"\r\n")[0] for one in script.requests]


@pytest.mark.parametrize("model", HOSTILE)
def test_model_name_stays_in_its_path_segment(model: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(ANSWER)
        messages = [{"role": "user", "content": "x"}]
        bodies: list[tuple[str, str, dict[str, Any]]] = [
            ("anthropic", "/v1/messages", {"max_tokens": 9, "messages": messages}),
            ("anthropic", "/v1/messages/count_tokens", {"messages": messages}),
            ("openai-chat", "/v1/chat/completions", {"messages": messages}),
            ("openai-responses", "/v1/responses", {"input": "x"}),
            ("ollama", "/api/chat", {"messages": messages, "stream": False}),
        ]
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, "gemini")) as gateway:
            for protocol, path, body in bodies:
                response = await gateway.post(path, json.dumps({"model": model} | body).encode())
                refusal = await response.read(100_000)
                assert response.status == 400, refusal
                message = "invalid model name" if len(model) <= LIMIT_MODEL_NAME else f"the limit is {LIMIT_MODEL_NAME}"
                assert message in decode_error(protocol, 400, refusal).message
            for method in ("generateContent", "countTokens"):
                path = f"/v1beta/models/{quote(model, safe='')}:{method}"
                native_response = await gateway.post(path, b'{"contents":[{"role":"user","parts":[{"text":"x"}]}]}')
                assert native_response.status == 400
            assert script.requests == []

    run_async(work())


@pytest.mark.parametrize("model", NAMES)
def test_legal_model_names_reach_their_resource(model: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(ANSWER, http_response("200 OK", b'{"totalTokens":3}'))
        body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, "gemini")) as gateway:
            assert (await gateway.post("/v1/messages", json.dumps(body).encode())).status == 200
            assert (await gateway.post("/v1/messages/count_tokens", json.dumps(body).encode())).status == 200
            assert request_lines(script) == [
                f"POST /v1beta/{NAMES[model]}:generateContent HTTP/1.1".encode(),
                f"POST /v1beta/{NAMES[model]}:countTokens HTTP/1.1".encode(),
            ]
            resource_name = script.bodies[1]["generateContentRequest"]["model"]
            assert resource_name == unquote("/".join(NAMES[model].split("/")[-2:]))

    run_async(work())


@pytest.mark.parametrize("model", ["../files?x=", "m" * 600])
def test_library_refuses_such_names_too(model: str) -> None:
    body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    with pytest.raises(tw.LossyTranslationError, match="/model"):
        tw.translate(body, "anthropic", "gemini")


@pytest.mark.parametrize("address", ["/a b", "/a\r\nx: 1", "/a\x00", "/é"])
def test_paths_inject_no_request_line(address: str) -> None:
    with pytest.raises(ValueError, match="white space"):
        request_head(Origin("http", "127.0.0.1", 1), address, [])


def test_other_protocols_allow_any_model_name_in_the_body() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        body = {"model": "a b?c=../d", "messages": [{"role": "user", "content": "x"}]}
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            assert (await gateway.post("/v1/chat/completions", json.dumps(body).encode())).status == 200
            assert request_lines(script) == [b"POST /v1/chat/completions HTTP/1.1"]
            assert script.bodies[0]["model"] == "a b?c=../d"

    run_async(work())
