"""Requests that only the gateway can translate: rules of a model, and requests that a provider is known to reject."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    USER_MESSAGE,
    anthropic_call,
    anthropic_request,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_request,
    chat_response,
    chat_result,
    responses_item_events,
    responses_message,
    responses_request,
    responses_stream,
    responses_tool,
)
from tests.support.bodies.readers import stream_frames
from tests.support.codecs import decode_error
from tests.support.gateway.in_process import PROTOCOL_NAMES, RunningGateway, one_provider_config, run_async, run_gateway
from tests.support.protocols import ANTHROPIC, CHAT, GEMINI, RESPONSES
from tests.support.servers.http_responses import CHAT_RESPONSE, SSE_HEAD, http_response, transfer_chunk
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream

PATHS = {ANTHROPIC: "/v1/messages", CHAT: "/v1/chat/completions", RESPONSES: "/v1/responses"}


@asynccontextmanager
async def gateway_in_front_of(
    script: ScriptedUpstream, protocol: str, model: str = "m"
) -> AsyncIterator[RunningGateway]:
    """Run a gateway in front of a scripted upstream."""
    async with (
        serve_upstream(script) as origin,
        run_gateway(one_provider_config(origin, protocol) + f'model = "{model}"') as gateway,
    ):
        yield gateway


async def send(gateway: RunningGateway, protocol: str, body: Any) -> tuple[int, list[str], bytes]:
    """Send a request, and return the status, the paths of its losses and the body."""
    response = await gateway.post(PATHS[protocol], json.dumps(body).encode())
    losses = json.loads(response.headers.get("toolwire-losses", '{"losses":[]}'))["losses"]
    return response.status, [loss.get("path", "") for loss in losses], await response.read(100_000)


CALL_RESPONSE = http_response("200 OK", json.dumps(chat_response(chat_assistant(chat_call("call_1")))).encode())


# ---- rules of models


@pytest.mark.parametrize("client", [CHAT, ANTHROPIC])
def test_or_11_each_result_follows_a_message_with_only_its_call(client: str) -> None:
    parallel = {
        CHAT: chat_request(
            {"role": "user", "content": "Go."},
            chat_assistant(chat_call("call_1"), chat_call("call_2"), content="Both."),
            chat_result("call_1", "one"),
            chat_result("call_2", "two"),
            {"role": "user", "content": "And?"},
        ),
        ANTHROPIC: anthropic_turn(
            [{"type": "text", "text": "Both."}, anthropic_call("call_1"), anthropic_call("call_2")],
            [anthropic_result("call_1", "one"), anthropic_result("call_2", "two"), {"type": "text", "text": "And?"}],
        ),
    }

    async def scenario() -> None:
        script = ScriptedUpstream(CALL_RESPONSE)
        async with gateway_in_front_of(script, CHAT, "databricks-claude-sonnet-4") as gateway:
            status, paths, _ = await send(gateway, client, parallel[client])
        messages = script.bodies[0]["messages"]
        ids = [
            message.get("tool_call_id") or [call["id"] for call in message.get("tool_calls", ())]
            for message in messages
        ]
        assert ids == [[], ["call_1"], "call_1", ["call_2"], "call_2", []]
        empty_content = None if client == CHAT else ""  # every host accepts it beside calls
        assert [message["content"] for message in messages[1:]] == ["Both.", "one", empty_content, "two", "And?"]
        assert (status, "/messages/1" in paths) == (200, True)
        async with gateway_in_front_of(script, CHAT, "gpt-5.5") as gateway:
            await send(gateway, client, parallel[client])
        assert [len(message.get("tool_calls", ())) for message in script.bodies[1]["messages"]] == [0, 2, 0, 0, 0]

    run_async(scenario())


@pytest.mark.parametrize(
    ("model", "strict"),
    [("claude-sonnet-4-0", False), ("claude-3-7-sonnet-latest", False), ("claude-sonnet-4-5", True)],
)
def test_sc_16_strict_is_sent_only_to_models_that_support_it(model: str, strict: bool) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    body = responses_request(USER_MESSAGE, tools=[responses_tool("f", parameters=schema, strict=True)])

    async def scenario() -> None:
        script = ScriptedUpstream(http_response("200 OK", b"{}"))
        async with gateway_in_front_of(script, ANTHROPIC, model) as gateway:
            response = await gateway.post(
                "/toolwire/translate", json.dumps({"protocol": RESPONSES, "body": body}).encode()
            )
            report = json.loads(await response.read(100_000))
        assert ("strict" in report["body"]["tools"][0]) is strict
        assert ("/tools/0/strict" in [loss["path"] for loss in report["losses"]]) is not strict

    run_async(scenario())


@pytest.mark.parametrize("model", ["deepseek-v4-flash", "kimi-k2-thinking"])
@pytest.mark.parametrize("client", [ANTHROPIC, RESPONSES])
def test_th_13_the_reasoning_before_a_call_is_sent_back_with_it(client: str, model: str) -> None:
    thought = chat_response(chat_assistant(chat_call("call_1"), reasoning_content="Hm, Paris."))

    async def scenario() -> None:
        script = ScriptedUpstream(http_response("200 OK", json.dumps(thought).encode()))
        async with gateway_in_front_of(script, CHAT, model) as gateway:
            request = anthropic_request() if client == ANTHROPIC else responses_request(USER_MESSAGE)
            response = json.loads((await send(gateway, client, request))[2])
            next_request = toolwire.continue_request(request, response, [{"id": "call_1", "output": "sunny"}], client)
            await send(gateway, client, next_request)
        assistant = next(message for message in script.bodies[1]["messages"] if message["role"] == "assistant")
        assert assistant["reasoning_content"] == "Hm, Paris."
        assert assistant["tool_calls"][0]["id"] == "call_1"

    run_async(scenario())


@pytest.mark.parametrize("client", [CHAT, ANTHROPIC])
def test_tc_8_thinking_is_disabled_for_a_forced_call_where_both_are_rejected(client: str) -> None:
    forced: dict[str, tuple[Any, str]] = {
        CHAT: (
            chat_request(
                tools=[{"type": "function", "function": {"name": "get_weather"}}],
                tool_choice="required",
                reasoning_effort="high",
            ),
            "/reasoning_effort",
        ),
        ANTHROPIC: (
            anthropic_request(
                tools=[anthropic_tool("get_weather")],
                tool_choice={"type": "any"},
                thinking={"type": "enabled", "budget_tokens": 2000},
                max_tokens=4000,
            ),
            "/thinking/budget_tokens",
        ),
    }
    body, lost = forced[client]

    async def scenario() -> None:
        script = ScriptedUpstream(CALL_RESPONSE)
        async with gateway_in_front_of(script, CHAT, "deepseek-v4-flash") as gateway:
            status, paths, _ = await send(gateway, client, body)
            assert (status, lost in paths) == (200, True)
            await send(gateway, client, {**body, "tool_choice": "auto" if client == CHAT else {"type": "auto"}})
        assert script.bodies[0]["tool_choice"] == "required"
        assert script.bodies[0]["thinking"] == {"type": "disabled"}
        assert "reasoning_effort" not in script.bodies[0]
        assert "thinking" not in script.bodies[1]

    run_async(scenario())


# ---- requests that a provider rejects


def breaks_rule(body: Any, rule: str) -> bool:
    return any(finding.rule.endswith(rule) for finding in toolwire.check(body, ANTHROPIC))


def test_us_8_a_cache_mark_on_a_deferred_tool_moves_to_the_last_loaded_tool() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    tools = [anthropic_tool("a"), anthropic_tool("b"), anthropic_tool("c", defer_loading=True, cache_control=mark)]
    body = anthropic_request(tools=tools)
    assert breaks_rule(body, "tool-deferred-cached")

    async def scenario() -> None:
        script = ScriptedUpstream(http_response("200 OK", b"{}"))
        async with gateway_in_front_of(script, ANTHROPIC) as gateway:
            _, paths, _ = await send(gateway, ANTHROPIC, body)
            assert paths == []  # losses are reported with a valid response only
            dry_run = await gateway.post(
                "/toolwire/translate", json.dumps({"protocol": ANTHROPIC, "body": body}).encode()
            )
            losses = json.loads(await dry_run.read(100_000))["losses"]
        upstream_body = script.bodies[0]
        assert [tool.get("cache_control") for tool in upstream_body["tools"]] == [None, mark, None]
        assert upstream_body["tools"][2]["defer_loading"] is True
        assert not breaks_rule(upstream_body, "tool-deferred-cached")
        assert [(loss["kind"], loss["path"]) for loss in losses] == [("approximated", "/tools/2/cache_control")]

    run_async(scenario())


@pytest.mark.parametrize(
    ("url", "status"),
    [("http://images.example/cat.png", 400), ("https://images.example/cat.png", 200)],
)
def test_im_7_an_image_url_that_gemini_cannot_fetch_is_refused_and_never_fetched(url: str, status: int) -> None:
    image = {"type": "image_url", "image_url": {"url": url}}
    body = chat_request({"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]})
    response = {"candidates": [{"content": {"parts": [{"text": "A cat."}], "role": "model"}, "finishReason": "STOP"}]}

    async def scenario() -> None:
        script = ScriptedUpstream(http_response("200 OK", json.dumps(response).encode()))
        async with gateway_in_front_of(script, GEMINI, "gemini-3-pro") as gateway:
            actual_status, _, response_body = await send(gateway, CHAT, body)
        assert actual_status == status
        if status == 400:
            assert "/messages/0/content/1" in decode_error(CHAT, 400, response_body).message
            assert script.requests == []
        else:
            assert script.bodies[0]["contents"][0]["parts"][1]["fileData"] == {"fileUri": url, "mimeType": "image/png"}

    run_async(scenario())


# ---- tools of other providers


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_sv_2_a_provider_search_is_shown_as_native_blocks_of_the_client(stream: bool) -> None:
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    body = anthropic_request(tools=[tool], stream=stream)
    action = {"type": "search", "query": "x", "sources": [{"type": "url", "url": "https://a.test"}]}
    search_call = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    message = responses_message("Found.")
    output = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [search_call, message],
    }
    streamed = responses_stream(
        *responses_item_events(0, search_call), *responses_item_events(1, message), output=[search_call, message]
    )

    async def scenario() -> None:
        response = (
            SSE_HEAD + transfer_chunk(streamed) + b"0\r\n\r\n"
            if stream
            else http_response("200 OK", json.dumps(output).encode())
        )
        script = ScriptedUpstream(response)
        async with gateway_in_front_of(script, RESPONSES) as gateway:
            _, _, wire = await send(gateway, ANTHROPIC, body)
        assert script.bodies[0]["tools"][0]["type"] == "web_search"
        if stream:
            events = stream_frames(wire)
            kinds = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
            usage = next(event["usage"] for event in events if event["type"] == "message_delta")
        else:
            message = json.loads(wire)
            kinds, usage = [block["type"] for block in message["content"]], message["usage"]
        assert kinds == ["server_tool_use", "web_search_tool_result", "text"]
        assert usage["server_tool_use"]["web_search_requests"] == 1

    run_async(scenario())


@pytest.mark.parametrize("target", [name for name in PROTOCOL_NAMES if name not in (RESPONSES, ANTHROPIC)])
def test_sv_5_deferred_tools_are_callable_where_the_target_has_no_search(target: str) -> None:
    hidden = {
        "type": "namespace",
        "name": "mcp__w",
        "description": "w",
        "tools": [responses_tool("get", defer_loading=True)],
    }
    tools = [{"type": "tool_search"}, responses_tool("found", defer_loading=True), hidden]
    body = responses_request(USER_MESSAGE, tools=tools)

    async def declaration_scenario() -> None:
        async with gateway_in_front_of(ScriptedUpstream(CHAT_RESPONSE), target) as gateway:
            request_body = json.dumps({"protocol": RESPONSES, "body": body}).encode()
            report = json.loads(await (await gateway.post("/toolwire/translate", request_body)).read(100_000))
        text = json.dumps(report["body"]["tools"])
        assert '"name": "tool_search"' in text
        assert "found" not in text.replace("found can be", "")
        assert "defer_loading" not in text
        assert [loss["path"] for loss in report["losses"]] == ["/tools/0", "/tools/2/tools/0/name"]

    async def search_scenario() -> None:
        search_call = chat_call("call_1", "tool_search", '{"query":"get"}')
        responses = [
            chat_response(chat_assistant(search_call)),
            chat_response(chat_assistant(chat_call("call_2", "mcp__w__get"))),
        ]
        script = ScriptedUpstream(*(http_response("200 OK", json.dumps(response).encode()) for response in responses))
        async with gateway_in_front_of(script, CHAT) as gateway:
            _, _, response_body = await send(gateway, RESPONSES, body)
        assert [tool["function"]["name"] for tool in script.bodies[1]["tools"]] == ["tool_search", "mcp__w__get"]
        kinds = [item["type"] for item in json.loads(response_body)["output"]]
        assert kinds == ["tool_search_call", "tool_search_output", "function_call"]

    async def call_scenario() -> None:
        call = chat_call("call_1", "mcp__w__get")
        script = ScriptedUpstream(http_response("200 OK", json.dumps(chat_response(chat_assistant(call))).encode()))
        async with gateway_in_front_of(script, CHAT) as gateway:
            _, _, response_body = await send(gateway, RESPONSES, body)
        (item,) = [item for item in json.loads(response_body)["output"] if item["type"] == "function_call"]
        assert (item["name"], item["namespace"]) == ("get", "mcp__w")

    run_async(declaration_scenario())
    run_async(search_scenario())
    run_async(call_scenario())


@pytest.mark.parametrize(
    ("alias", "name", "namespace"),
    [
        ("mcp__w__get_weather", "get_weather", "mcp__w"),
        ("mcp__w__mcp__w__get_weather", "get_weather", "mcp__w"),
        ("mcp__mcp__w__get_weather", "get_weather", "mcp__w"),
        ("mcp__w__get_weatherget_weather", "mcp__w__get_weatherget_weather", None),
        ("mcp__mcp__x", "mcp__mcp__x", None),
        ("other", "other", None),
    ],
)
def test_na_5_an_alias_with_a_repeated_prefix_is_understood(alias: str, name: str, namespace: str | None) -> None:
    group = {"type": "namespace", "name": "mcp__w", "description": "w", "tools": [responses_tool("get_weather")]}
    body = responses_request(USER_MESSAGE, tools=[group, responses_tool("mcp__x"), responses_tool("mcp__mcp__x")])

    async def scenario() -> None:
        script = ScriptedUpstream(
            http_response("200 OK", json.dumps(chat_response(chat_assistant(chat_call("call_1", alias)))).encode())
        )
        async with gateway_in_front_of(script, CHAT) as gateway:
            _, _, wire = await send(gateway, RESPONSES, body)
        (item,) = [item for item in json.loads(wire)["output"] if item["type"] == "function_call"]
        assert (item["name"], item.get("namespace")) == (name, namespace)

    run_async(scenario())
