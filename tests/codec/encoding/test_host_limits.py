"""Limits of hosts on tools, names, numbers and formats: what exceeds them is changed and reported."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.gateway.in_process import build_silent_app
from tests.support.servers.asgi import http_client, serve_app
from toolwire.codec.hosts.registry import profile_named
from toolwire.upstream.simulator.app import Simulator

NAME = "1st.tool"
ALIAS = "t_1st_tool_bd9c6d18"


def _chat_request(**fields: Any) -> dict[str, Any]:
    function = {"name": NAME, "parameters": {"type": "object", "properties": {}}}
    message = {"role": "user", "content": f"{NAME} {{}}"}
    return {"model": "kimi-k3", "tools": [{"type": "function", "function": function}], "messages": [message], **fields}


def _reasons(translation: Any) -> list[tuple[str, str]]:
    return [(loss.path, loss.reason) for loss in translation.losses]


def _called(name: str) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    ]


def test_names_that_a_known_host_rejects_are_changed_for_clients_of_its_protocol() -> None:
    translation = tw.translate(_chat_request(messages=_called(NAME)), "openai-chat", "openai-chat", host="moonshot")
    assert translation.value["tools"][0]["function"]["name"] == ALIAS
    assert translation.value["messages"][1]["tool_calls"][0]["function"]["name"] == ALIAS
    assert ("/tools/0/function/name", f"moonshot rejects this name; sent as {ALIAS}") in _reasons(translation)


def test_names_pass_unchanged_to_unknown_hosts_of_the_protocol() -> None:
    translation = tw.translate(_chat_request(messages=_called(NAME)), "openai-chat", "openai-chat", host="compatible")
    assert translation.value["tools"][0]["function"]["name"] == NAME


@pytest.mark.parametrize("stream", [False, True], ids=["complete", "streamed"])
def test_calls_reach_the_client_under_the_name_that_it_declared(stream: bool) -> None:
    simulator = Simulator(("openai-chat",), profiles=[profile_named("moonshot")])
    with serve_app(simulator) as url:
        provider = f'[providers.up]\nprotocol = "openai-chat"\nhost = "moonshot"\nbase_url = "{url}"\n'
        with serve_app(build_silent_app(provider + '[[routes]]\nprovider = "up"')) as base_url:
            request = _chat_request(stream=stream, messages=[{"role": "user", "content": f"{ALIAS} {{}}"}])
            answer = http_client.post(f"{base_url}/v1/chat/completions", json=request).text
    assert f'"name":"{NAME}"' in answer
    assert f'"name":"{ALIAS}"' not in answer


@pytest.mark.parametrize("target", ["anthropic", "openai-responses", "gemini", "gemini-interactions", "ollama"])
def test_new_names_of_undeclared_tools_in_the_history_are_reported(target: str) -> None:
    body = {"model": "m", "messages": _called("gone.tool!")}
    translation = tw.translate(body, "openai-chat", target, model="m")
    encoded = json.dumps(translation.value)
    if "gone.tool!" in encoded:
        assert target in ("ollama", "gemini-interactions", "gemini")  # they accept the name
        return
    assert any("the undeclared tool gone.tool! are sent as gone_tool" in reason for _, reason in _reasons(translation))


def test_new_names_of_undeclared_tools_are_reported_in_the_protocol_of_a_known_host() -> None:
    body = {"model": "kimi-k3", "messages": _called("gone.tool!")}
    reasons = _reasons(tw.translate(body, "openai-chat", "openai-chat", host="moonshot"))
    assert any(path.startswith("/messages/1") and "rejects this name" in reason for path, reason in reasons)


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_json_output_mentions_json_as_openai_requires(target: str) -> None:
    body = {"model": "m", "format": "json", "messages": [{"role": "user", "content": "Three colors"}]}
    translation = tw.translate(body, "ollama", target, model="gpt-6")
    assert [finding for finding in tw.check(translation.value, target) if finding.level == "error"] == []
    assert any("unless the prompt mentions JSON" in reason for _, reason in _reasons(translation))
    mentioned = body | {"messages": [{"role": "user", "content": "Three colors as JSON"}]}
    assert "Respond with JSON" not in json.dumps(tw.translate(mentioned, "ollama", target, model="gpt-6").value)


@pytest.mark.parametrize(
    ("target", "host"), [("openai-chat", "openai"), ("openai-responses", "openai"), ("openai-responses", "groq")]
)
def test_tools_beyond_the_limit_are_left_out_and_reported(target: str, host: str) -> None:
    tools = [{"name": f"tool_{number}", "input_schema": {"type": "object"}} for number in range(150)]
    body = {"model": "m", "max_tokens": 99, "tools": tools, "messages": [{"role": "user", "content": "Hi"}]}
    translation = tw.translate(body, "anthropic", target, host=host)
    assert len(translation.value["tools"]) == 128
    assert any("more than 128 tools" in reason for _, reason in _reasons(translation))


def test_temperature_beyond_the_range_is_lowered_and_reported() -> None:
    body = {"contents": [{"parts": [{"text": "Hi"}]}], "generationConfig": {"temperature": 1000}}
    for target in ("openai-chat", "openai-responses"):
        translation = tw.translate(body, "gemini", target, model="gpt-4.1")
        assert translation.value["temperature"] == 2
        assert ("/generationConfig/temperature", "the target's temperature is at most 2") in _reasons(translation)


def test_output_limits_of_dashscope_are_respected() -> None:
    body = {"model": "m", "max_tokens": 32_000, "messages": [{"role": "user", "content": "Hi"}]}
    for model, limit in (("qwen-max", 8192), ("qwen3-coder-plus", 32_000), ("qwen-plus", 16_384)):
        translation = tw.translate(body, "anthropic", "openai-chat", model=model, host="dashscope")
        assert translation.value["max_tokens"] == limit
