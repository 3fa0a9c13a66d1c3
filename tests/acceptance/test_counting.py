"""Token counting (CT-1 to CT-5): a gateway in front of the simulator, or of a server that cannot count."""

import json
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai.types import HttpOptions

import toolwire as tw
from tests.support.deadlines import DEADLINE
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    RunningGateway,
    build_silent_app,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
)
from tests.support.servers.asgi import serve_app
from tests.support.servers.http_responses import CHAT_BODY, http_response, openai_error_body
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.codec.interface import ResponseContext
from toolwire.codec.token_count import TOKENS_WITH_TOOLS, estimate_tokens
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import parse_origin
from toolwire.upstream.simulator.app import Simulator

COUNTING_PROTOCOLS = ["anthropic", "openai-responses", "gemini"]
PATHS = {
    "anthropic": "/v1/messages/count_tokens",
    "openai-responses": "/v1/responses/input_tokens",
    "gemini": "/v1beta/models/m:countTokens",
}
NOT_FOUND = http_response("404 Not Found", openai_error_body("there is no such address", "not_found_error"))


def parse_count(client: str, body: bytes) -> int:
    response = json.loads(body)
    if client == "gemini":
        assert list(response) == ["totalTokens"]
        count = response["totalTokens"]
    else:
        assert response.pop("object", None) == ("response.input_tokens" if client == "openai-responses" else None)
        assert list(response) == ["input_tokens"]
        count = response["input_tokens"]
    assert type(count) is int
    return count


async def count(gateway: RunningGateway, client: str, body: bytes, query: str = "") -> tuple[int, str]:
    response = await gateway.post(PATHS[client] + query, body)
    read = await response.read(10_000)
    assert response.status == 200, read
    return parse_count(client, read), response.headers["toolwire-tokens"]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("client", COUNTING_PROTOCOLS)
def test_ct_1_every_client_can_count_tokens_with_every_provider(client: str, protocol: str) -> None:
    async def scenario(base_url: str) -> None:
        async with run_gateway(one_provider_config(parse_origin(base_url), protocol)) as gateway:
            _, body = question_request(client)
            tokens, method = await count(gateway, client, body, "?beta=true")
            assert tokens > 10
            assert method == ("counted" if protocol in COUNTING_PROTOCOLS else "estimated")

    with serve_app(Simulator()) as base_url:
        run_async(scenario(base_url))


def test_counting_for_an_unknown_model_is_not_a_404() -> None:
    async def scenario() -> None:
        providers = "".join(
            f'[providers.{name}]\nprotocol = "{name}"\nbase_url = "http://127.0.0.{number}:9"\n'
            for number, name in enumerate(("anthropic", "gemini"), 1)
        )
        async with run_gateway(providers) as gateway:
            _, body = question_request("anthropic")
            assert await count(gateway, "anthropic", body) == (estimate_tokens(body), "estimated")

    run_async(scenario())


SYSTEM, DESCRIPTION = "Speak like a pirate. " * 50, "What the weather is like. " * 50


def request_with_tool() -> dict[str, Any]:
    function = {"name": "weather", "description": DESCRIPTION, "parameters": {"type": "object"}}
    return {
        "model": "m",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": function}],
    }


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("client", COUNTING_PROTOCOLS)
def test_ct_2_system_text_and_tools_are_counted(client: str, protocol: str) -> None:
    async def scenario(base_url: str) -> None:
        async with run_gateway(one_provider_config(parse_origin(base_url), protocol)) as gateway:
            everything = request_with_tool()
            body = tw.translate(everything, "openai-chat", client, model="m").to_bytes()
            tokens, method = await count(gateway, client, body)
            added = 0 if method == "counted" else TOKENS_WITH_TOOLS
            assert tokens - added > (len(SYSTEM) + len(DESCRIPTION)) // 4
            del everything["tools"]
            less, _ = await count(
                gateway, client, tw.translate(everything, "openai-chat", client, model="m").to_bytes()
            )
            assert tokens - added - less > len(DESCRIPTION) // 4

    with serve_app(Simulator()) as base_url:
        run_async(scenario(base_url))


@pytest.mark.parametrize("protocol", COUNTING_PROTOCOLS)
@pytest.mark.parametrize(
    "response",
    [
        NOT_FOUND,
        http_response("500 Oh", openai_error_body("went wrong")),
        http_response("401 No", openai_error_body("bad key", "authentication_error")),
        http_response("200 OK", b"<html>"),
        http_response("200 OK", b'{"input_tokens": "many", "totalTokens": "many"}'),
        b"not HTTP at all",
    ],
    ids=["404", "500", "401", "no JSON", "no number", "no HTTP"],
)
def test_ct_3_a_provider_that_cannot_count_stays_in_service(response: bytes, protocol: str) -> None:
    """The gateway estimates, and the next exchange goes to the provider at once."""

    async def scenario() -> None:
        script = ScriptedUpstream(
            response,
            http_response("200 OK", tw.translate(CHAT_BODY, "openai-chat", protocol, kind="response").to_bytes()),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            _, body = question_request("anthropic")
            tokens, method = await count(gateway, "anthropic", body)
            assert (method, tokens > TOKENS_WITH_TOOLS) == ("estimated", True)
            assert len(script.requests) == 1
            exchange = await gateway.send_question("anthropic")
            assert (exchange.status, len(script.requests)) == (200, 2)
            assert b"fine" in await exchange.read(10_000)
            metrics = (await gateway.get("/metrics"))[1]
            assert b'client="anthropic",provider="up",status="200"} 2' in metrics

    run_async(scenario())


@pytest.mark.parametrize("protocol", COUNTING_PROTOCOLS)
@pytest.mark.parametrize("client", COUNTING_PROTOCOLS)
def test_ct_4_the_count_of_the_provider_matches_the_exchange(client: str, protocol: str) -> None:
    async def scenario(base_url: str) -> None:
        async with run_gateway(one_provider_config(parse_origin(base_url), protocol)) as gateway:
            path, body = question_request(client)
            tokens, method = await count(gateway, client, body)
            response = await gateway.post(path, body)
            read = await response.read(100_000)
            assert response.status == 200, read
            usage = PROTOCOLS[client].decode_response(read, ResponseContext()).usage
            assert usage is not None
            assert (tokens, method) == (usage.input_tokens, "counted")

    with serve_app(Simulator()) as base_url:
        run_async(scenario(base_url))


@pytest.mark.parametrize("protocol", COUNTING_PROTOCOLS)
def test_ct_5_the_counted_request_is_the_request_that_would_be_sent(protocol: str) -> None:
    """Calls, hosted tools and settings are translated as for the exchange, without fields for the response."""

    async def scenario() -> None:
        script = ScriptedUpstream(http_response("200 OK", b'{"input_tokens": 77, "totalTokens": 77}'), NOT_FOUND)
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "snow"}
            body: dict[str, Any] = {
                "model": "m",
                "max_tokens": 99,
                "system": "Be kind.",
                "tools": [
                    {"name": "weather", "input_schema": {"type": "object"}},
                    {"type": "web_search_20250305", "name": "web_search"},
                ],
                "messages": [
                    {"role": "user", "content": "Oslo?"},
                    {"role": "assistant", "content": [call]},
                    {"role": "user", "content": [result]},
                ],
            }
            assert await count(gateway, "anthropic", json.dumps(body).encode()) == (77, "counted")
            await gateway.post("/v1/messages", json.dumps(body).encode())
        counted, sent_body = script.bodies
        if protocol == "gemini":
            counted = counted["generateContentRequest"]
            assert counted.pop("model") == "models/m"
        assert counted == {name: value for name, value in sent_body.items() if name in counted}
        response_fields = {"max_tokens", "max_output_tokens", "stream", "store", "include"}
        assert sent_body.keys() - counted.keys() <= response_fields
        assert counted.keys() & response_fields == set()

    run_async(scenario())


def test_the_official_sdks_accept_the_counts() -> None:
    with serve_app(Simulator()) as base_url:
        app = build_silent_app(one_provider_config(parse_origin(base_url), "ollama"))
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        with serve_app(app) as root:
            with anthropic.Anthropic(base_url=root, api_key="none", timeout=DEADLINE) as claude:
                counted = claude.messages.count_tokens(model="m", messages=messages, system="Be kind.")
                assert counted.input_tokens > 5
            with openai.OpenAI(base_url=f"{root}/v1", api_key="none", timeout=DEADLINE) as gpt:
                assert gpt.responses.input_tokens.count(model="m", input=messages).input_tokens > 5
            with genai.Client(api_key="none", http_options=HttpOptions(base_url=root)) as gemini:
                assert (gemini.models.count_tokens(model="m", contents="Hi").total_tokens or 0) > 5
