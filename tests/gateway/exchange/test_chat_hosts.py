"""First requests of coding agents at Chat servers other than OpenAI."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import toolwire as tw
from tests.support.bodies.agents import Body, claude_code_request, codex_request
from tests.support.bodies.minimal import USER_MESSAGE, chat_request
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    RunningGateway,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
)
from tests.support.servers.simulated_hosts import HostUpstream
from tests.support.servers.upstream import serve_upstream
from toolwire.codec.hosts.registry import HOST_NAMES, profile_named
from toolwire.gateway.config import ConfigError, parse_config
from toolwire.upstream.provider import Provider

HOSTS = {
    "deepseek": ("deepseek-chat", "deepseek"),
    "mistral": ("devstral-medium", "mistral"),
    "groq": ("moonshotai/kimi-k2-instruct", "groq"),
    "vllm": ("qwen3.5-coder", "generic"),
}
"""By the name of the host: a model, and the profile that the gateway uses."""
AGENTS: dict[str, tuple[str, Callable[[str], list[Body]]]] = {
    "claude": ("/v1/messages", claude_code_request),
    "codex": ("/v1/responses", codex_request),
}


async def _ask(gateway: RunningGateway, path: str, body: Body) -> tuple[int, str]:
    response = await gateway.post(path, json.dumps(body).encode())
    return response.status, (await response.read(1_000_000)).decode()


def _with_host(config: str, host: str) -> str:
    """Add a host to the provider's configuration; nothing for the generic host."""
    return config if host == "generic" else config.replace("[[routes]]", f'host = "{host}"\n[[routes]]')


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", HOSTS)
def test_first_requests_of_agents_are_accepted(name: str, agent: str) -> None:
    model, profile = HOSTS[name]
    path, requests = AGENTS[agent]

    async def work() -> None:
        host = HostUpstream(name)
        async with (
            serve_upstream(host) as origin,
            run_gateway(_with_host(one_provider_config(origin), profile)) as gateway,
        ):
            for body in requests(model):
                status, response = await _ask(gateway, path, body)
                assert host.refusals == []
                assert status == 200
                assert "apply_patch" in response
                assert "*** Begin Patch" in response
        assert len(host.bodies) == 2
        first, second = (body["messages"] for body in host.bodies)
        assert second[: len(first)] == first

    run_async(work())


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", HOSTS)
def test_hosts_refuse_openai_only_fields(name: str, agent: str) -> None:
    model, _ = HOSTS[name]
    path, requests = AGENTS[agent]

    async def work() -> None:
        host = HostUpstream(name)
        async with (
            serve_upstream(host) as origin,
            run_gateway(_with_host(one_provider_config(origin), "openai")) as gateway,
        ):
            status, _ = await _ask(gateway, path, requests(model)[0])
            assert status in (400, 422)
            assert host.refusals

    run_async(work())


def test_custom_tool_call_round_trips() -> None:
    async def work() -> None:
        async with (
            serve_upstream(HostUpstream("deepseek")) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            _, response = await _ask(gateway, "/v1/responses", codex_request("deepseek-chat")[0])
        events = [json.loads(line[5:]) for line in response.splitlines() if line.startswith("data:")]
        (item,) = events[-1]["response"]["output"]
        assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", "*** Begin Patch")

    run_async(work())


def test_chat_request_passes_through_to_a_chat_host() -> None:
    message = chat_request(
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        USER_MESSAGE,
        max_completion_tokens=9,
        reasoning_effort="high",
        store=True,
        user="u" * 200,
        stream=True,
    )

    async def work() -> None:
        host = HostUpstream()
        async with serve_upstream(host) as origin, run_gateway(one_provider_config(origin)) as gateway:
            await _ask(gateway, "/v1/chat/completions", message)
        assert host.bodies == [message]

    run_async(work())


def translated(body: Body, source: str, host: str = "generic") -> tuple[Any, list[tuple[str, str]]]:
    translated_body = tw.translate(body, source, "openai-chat", host=host)
    return translated_body.value, [(loss.kind, loss.path) for loss in translated_body.losses]


def test_only_leading_system_messages_are_joined() -> None:
    message = [
        {"role": "developer", "content": "One."},
        {"role": "system", "content": "Two."},
        {"role": "user", "content": "Hi"},
        {"role": "developer", "content": "Three."},
    ]
    body, losses = translated({"model": "m", "instructions": "Zero.", "input": message}, "openai-responses")
    assert body["messages"] == [
        {"role": "system", "content": "Zero.\n\nOne.\n\nTwo."},
        {"role": "user", "content": "Hi\n\n<system-reminder>\nThree.\n</system-reminder>"},
    ]
    assert ("approximated", "/input/0/role") in losses
    assert ("approximated", "/input/3/role") in losses


def test_unsupported_settings_are_dropped_and_reported() -> None:
    body, losses = translated(
        {
            "model": "m",
            "input": "Hi",
            "store": False,
            "metadata": {"a": "b"},
            "service_tier": "flex",
            "prompt_cache_key": "k",
            "safety_identifier": "s",
            "text": {"verbosity": "low"},
            "reasoning": {"effort": "high"},
            "max_output_tokens": 99,
            "user": "a b",
        },
        "openai-responses",
    )
    assert body.keys() == {"model", "messages", "max_tokens", "user"}
    assert body["max_tokens"] == 99
    assert losses == [
        *[("dropped", "/reasoning/effort"), ("approximated", "/user"), ("dropped", "/text/verbosity")],
        *[("dropped", "/metadata"), ("dropped", "/service_tier"), ("dropped", "/store")],
        *[("dropped", "/prompt_cache_key"), ("dropped", "/safety_identifier")],
    ]


def test_tool_choice_follows_lowered_tools() -> None:
    free = {"type": "custom", "name": "patch"}
    plain = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": True}
    request_body = {"model": "m", "input": "Hi", "tools": [free, plain]}
    chosen, _ = translated({**request_body, "tool_choice": free}, "openai-responses")
    assert chosen["tool_choice"] == {"type": "function", "function": {"name": "patch"}}
    some = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}
    allowed, losses = translated({**request_body, "tool_choice": some}, "openai-responses")
    assert allowed["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in allowed["tools"]] == ["f"]
    assert allowed["tools"][0]["function"]["strict"] is True
    assert ("dropped", "/tools/0") in losses


def test_messages_with_media_keep_their_parts() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    message = {"role": "user", "content": [{"type": "text", "text": "a"}, picture]}
    body, _ = translated({"model": "m", "max_tokens": 9, "messages": [message]}, "anthropic")
    assert [part["type"] for part in body["messages"][0]["content"]] == ["text", "image_url"]


def test_cache_marks_are_dropped_and_reported() -> None:
    """`prompt_cache_breakpoint` was sent to every Chat server, also on parts beside an image."""
    mark = {"cache_control": {"type": "ephemeral"}}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}, **mark}
    message = {"role": "user", "content": [{"type": "text", "text": "a", **mark}, picture]}
    request_body = {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s", **mark}],
        "messages": [message],
    }
    body, losses = translated(request_body, "anthropic")
    assert "prompt_cache_breakpoint" not in json.dumps(body)
    places = ["/system/0", "/messages/0/content/0", "/messages/0/content/1"]
    assert losses == [("dropped", f"{path}/cache_control") for path in places]
    request_body["model"] = "gpt-6"
    assert json.dumps(translated(request_body, "anthropic", "openai")[0]).count("prompt_cache_breakpoint") == 3


def test_assistant_text_parts_are_joined_without_a_break() -> None:
    message = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "Hel"}, {"text": "lo"}]},
        {"role": "user", "parts": [{"text": "Well?"}]},
    ]
    body, _ = translated({"contents": message}, "gemini")
    assert body["messages"][1] == {"role": "assistant", "content": "Hello"}


def test_host_specific_tools_are_not_sent_to_another_host() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}
    request_body = {"model": "m", "input": "Hi", "tools": [tool]}
    for host, members in (("openai", {"name", "parameters", "strict"}), ("generic", {"name", "parameters"})) * 2:
        body, _ = translated(request_body, "openai-responses", host)
        assert body["tools"][0]["function"].keys() == members


@pytest.mark.parametrize(
    ("hostname", "protocol", "model", "profile"),
    [
        ("api.openai.com", "openai-chat", "m", "openai"),
        ("EU.api.openai.com", "openai-responses", "m", "openai"),
        ("mine.openai.azure.com", "openai-chat", "m", "azure"),
        ("api.mistral.ai", "openai-chat", "gpt-6", "mistral"),
        ("api.groq.com", "openai-chat", "m", "groq"),
        ("api.deepseek.com", "openai-chat", "deepseek-chat", "deepseek"),
        ("api.openai.com.evil.example", "openai-chat", "m", "generic"),
        ("127.0.0.1", "openai-chat", "m", "generic"),
        ("127.0.0.1", "openai-chat", "openai/gpt-oss-120b", "generic"),
        ("127.0.0.1", "openai-chat", "olmo-3", "generic"),
        ("127.0.0.1", "openai-responses", "m", "compatible"),
        ("proxy.example", "openai-chat", "gpt-6-astra", "compatible"),
        ("proxy.example", "openai-chat", "openai/o4-mini", "compatible"),
        ("api.anthropic.com", "anthropic", "m", "compatible"),
    ],
)
def test_host_is_recognized_by_its_name_or_model(hostname: str, protocol: str, model: str, profile: str) -> None:
    provider = Provider(name="p", protocol=protocol, base_url=f"https://{hostname}/v1")
    assert provider.profile(model).name == profile
    assert replace(provider, host=profile_named("generic")).profile(model).name == "generic"


def test_unknown_host_is_refused() -> None:
    config = '[providers.p]\nprotocol = "openai-chat"\nbase_url = "http://h"\nhost = "nobody"'
    with pytest.raises(ConfigError, match=r"providers\.p\.host: unknown host 'nobody' \(expected one of openai"):
        parse_config(config, {})
    with pytest.raises(ValueError, match="unknown host profile 'nobody'"):
        tw.translate(chat_request(), "openai-chat", "openai-chat", host="nobody")
    assert {"openai", "generic"} <= set(HOST_NAMES)
    with pytest.raises(ConfigError, match=r"providers\.p\.host: only valid for openai-chat"):
        parse_config(config.replace("openai-chat", "gemini-interactions"), {})


def test_known_host_gets_from_chat_clients_only_what_it_accepts() -> None:
    message = chat_request(
        USER_MESSAGE,
        {"role": "assistant", "content": "Hi", "reasoning_content": "because"},
        USER_MESSAGE,
        model="m",
        store=True,
        stream=True,
    )
    fitting = chat_request(USER_MESSAGE, model="m", stream=True)

    async def work() -> None:
        host = HostUpstream("groq")
        async with (
            serve_upstream(host) as origin,
            run_gateway(_with_host(one_provider_config(origin), "groq")) as gateway,
        ):
            for body in (message, fitting):
                status, _ = await _ask(gateway, "/v1/chat/completions", body)
                assert status == 200
        assert host.refusals == []
        adapted, unchanged = host.bodies
        assert unchanged == fitting
        assert "store" not in adapted
        assert [message.keys() for message in adapted["messages"]] == [{"role", "content"}] * 3

    run_async(work())


async def _dry_run(gateway: RunningGateway, protocol: str, body: Any) -> tuple[Any, list[str]]:
    request_body = {"protocol": protocol, "body": body, "model": "m"}
    status, response = await _ask(gateway, "/toolwire/translate", request_body)
    assert status == 200, response
    translated_body = json.loads(response)
    return translated_body["body"], [loss["path"] for loss in translated_body["losses"] if loss["kind"] == "dropped"]


@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses"])
def test_openai_storage_is_turned_off_for_stateless_protocols(protocol: str) -> None:
    """Responses and Interactions clients decide about storage; an explicit `store` of any client is kept."""

    async def work() -> None:
        bodies = {name: json.loads(question_request(name)[1]) for name in PROTOCOL_NAMES if name != protocol}
        async with serve_upstream(HostUpstream()) as origin:
            config = one_provider_config(origin, protocol)
            async with run_gateway(_with_host(config, "openai")) as gateway:
                for name, body in bodies.items():
                    stored = (await _dry_run(gateway, name, body))[0].get("store")
                    assert stored is (None if name in ("openai-responses", "gemini-interactions") else False), name
                if "openai-chat" in bodies:
                    message = bodies["openai-chat"] | {"store": True}
                    assert (await _dry_run(gateway, "openai-chat", message))[0]["store"] is True
                stateful_body = json.loads(question_request(protocol)[1])
                assert "store" not in (await _dry_run(gateway, protocol, stateful_body))[0]
            async with run_gateway(config) as gateway:
                for name, body in bodies.items():
                    assert "store" not in (await _dry_run(gateway, name, body))[0]

    run_async(work())
