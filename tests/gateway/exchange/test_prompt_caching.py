"""Prompt caches of upstreams: what the gateway adds for them, and what it keeps stable."""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.support.bodies.agents import claude_code_request
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.servers.http_responses import CHAT_RESPONSE, http_response
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.gateway.exchange.conversation_memo import MIN_BODY

Body = dict[str, Any]
MARK = {"type": "ephemeral"}
CHAT_BODY: Body = {
    "model": "claude-opus-5-5",
    "max_tokens": 9,
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
}
ANTHROPIC_RESPONSE = http_response(
    "200 OK",
    json.dumps(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": [{"type": "text", "text": "Hello."}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 5,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "output_tokens": 2,
            },
        }
    ).encode(),
)


def sent_bodies(script: ScriptedUpstream) -> list[Body]:
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in script.requests]


@pytest.mark.parametrize(
    ("option", "is_marked"), [("", True), ('cache = "auto"', True), ('cache = "off"', False), ("strict = true", True)]
)
def test_requests_to_anthropic_are_marked_unless_the_route_turns_it_off(option: str, is_marked: bool) -> None:
    async def work() -> None:
        script = ScriptedUpstream(ANTHROPIC_RESPONSE)
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, "anthropic") + option) as gateway,
        ):
            response = await gateway.post("/v1/chat/completions", json.dumps(CHAT_BODY).encode())
            usage = json.loads(await response.read(10_000))["usage"]
        (body,) = sent_bodies(script)
        assert ("cache_control" in body) is is_marked
        # OpenAI's count of prompt tokens includes those that were read from the cache or written to it.
        assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (125, 100)

    run_async(work())


def test_same_protocol_passes_unchanged() -> None:
    async def work() -> None:
        script = ScriptedUpstream(ANTHROPIC_RESPONSE)
        body = {"model": "m", "max_tokens": 9, "stream": False, "messages": [{"role": "user", "content": "Hi"}]}
        body["system"] = "x-anthropic-billing-header: cc_version=1; cch=1;\nBe brief."
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, "anthropic")) as gateway,
        ):
            assert (await gateway.post("/v1/messages", json.dumps(body).encode())).status == 200
        assert sent_bodies(script) == [body]

    run_async(work())


def conversation(turns: int) -> Body:
    """Return a long request of Claude Code with a moving mark, and with a billing line that is always new."""
    body: Body = claude_code_request("m")[0]
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Read. " * (MIN_BODY // 4)}]}]
    for number in range(turns):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "apply_patch", "input": {"number": number}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"result {number}"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    messages[-1]["content"][-1] = {**messages[-1]["content"][-1], "cache_control": MARK}
    line = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={turns:05x};"}
    return body | {"messages": messages, "system": [line, *body["system"][1:]], "stream": False}


@pytest.mark.parametrize("host", ["openai", "mistral", None])
def test_conversations_of_claude_code_grow_at_the_end_only(host: str | None) -> None:
    """Also with the memo of conversations, which encodes only new messages."""

    async def work() -> None:
        script = ScriptedUpstream(*[CHAT_RESPONSE] * 5)
        async with serve_upstream(script) as origin:
            config = one_provider_config(origin)
            if host is not None:
                config = config.replace("[[routes]]", f'host = "{host}"\n[[routes]]')
            async with run_gateway(config) as gateway:
                for turns in range(1, 6):
                    response = await gateway.post("/v1/messages", json.dumps(conversation(turns)).encode())
                    assert response.status == 200
                    await response.read(10_000)
        bodies = sent_bodies(script)
        for earlier, later in pairwise(bodies):
            assert later["tools"] == earlier["tools"]
            assert json.dumps(later["messages"]).startswith(json.dumps(earlier["messages"])[:-1])
        assert "x-anthropic-billing-header" not in str(bodies)
        keys = {body.get("prompt_cache_key") for body in bodies}
        assert len(keys) == 1
        assert (None in keys) is (host is None)

    run_async(work())


def test_billing_line_is_dropped_at_the_messages_api_of_another_vendor() -> None:
    async def work() -> None:
        script = ScriptedUpstream(*[ANTHROPIC_RESPONSE] * 3)
        async with serve_upstream(script) as origin:
            config = one_provider_config(origin, "anthropic").replace("[[routes]]", 'host = "minimax"\n[[routes]]')
            async with run_gateway(config) as gateway:
                for turns in range(1, 4):
                    response = await gateway.post("/v1/messages", json.dumps(conversation(turns)).encode())
                    assert response.status == 200
                    await response.read(10_000)
        expected = [conversation(turns) for turns in range(1, 4)]
        for body in expected:
            del body["system"][0]
            del body["context_management"]  # done by the gateway
        assert sent_bodies(script) == expected

    run_async(work())


def test_dry_run_states_the_share_that_could_be_read_from_the_cache() -> None:
    async def work() -> None:
        script = ScriptedUpstream()
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            dry_run = {"protocol": "anthropic", "body": conversation(5), "previous": conversation(4)}
            response = await gateway.post("/toolwire/translate", json.dumps(dry_run).encode())
            cache = json.loads(await response.read(1_000_000))["cache"]
            assert 0.97 < cache["share"] < 1
            assert cache["share"] == round(cache["readable_tokens"] / cache["tokens"], 3)
            del dry_run["previous"]
            response = await gateway.post("/toolwire/translate", json.dumps(dry_run).encode())
            assert "cache" not in json.loads(await response.read(1_000_000))
        assert script.requests == []

    run_async(work())
