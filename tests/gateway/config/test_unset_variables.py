"""Settings that refer to environment variables that are not set: only what needs them fails."""

import asyncio
import json

import pytest

from tests.support.gateway.in_process import run_async, run_gateway
from tests.support.mcp.toolsets import open_toolset
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.gateway.config import ConfigError, build_providers, configured_secrets, parse_config
from toolwire.gateway.doctor import check_variables
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.upstream.models.model_lists import ModelLists
from toolwire.upstream.transport import Transport

ONE = """[providers.paid]
protocol = "openai-chat"
base_url = "http://127.0.0.1:9"
api_key = "env:PAID_KEY"
default_model = "m"
"""
TWO = """[providers.two]
protocol = "anthropic"
base_url = "env:TWO_URL"
headers = { x = "env:TWO_HEADER" }
"""
REASON = "environment variable PAID_KEY is not set"


def test_provider_is_built_with_the_reason_and_without_the_settings() -> None:
    config = parse_config(ONE + TWO, {})
    providers = build_providers(config)
    paid, two = providers["paid"], providers["two"]
    assert (paid.unavailable_reason, paid.api_key, paid.default_model) == (REASON, None, "m")
    assert two.unavailable_reason == "environment variables TWO_URL and TWO_HEADER are not set"
    assert (two.headers, two.origin.host) == ({}, "base-url-not-set.invalid")
    assert not any(secret.startswith("env:") for secret in configured_secrets(config, providers.values()))
    usable = build_providers(parse_config(ONE, {"PAID_KEY": "secret"}))["paid"]
    assert (usable.unavailable_reason, usable.api_key) == (None, "secret")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ONE.replace("openai-chat", "openai-chta"), "unknown protocol 'openai-chta'"),
        ('[server]\nkeys = ["env:NOT_SET"]\n', "server.keys[0]: environment variable NOT_SET is not set"),
        ('[search]\nurl = "env:LINKED"\n', "search.url: environment variable LINKED refers to another variable"),
    ],
)
def test_other_mistakes_are_still_errors(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(text, {"LINKED": "env:PAID_KEY"})
    assert message in str(error.value)


def test_requests_to_the_provider_fail_with_the_reason_and_others_do_not() -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(CHAT_RESPONSE)
        async with serve_upstream(upstream) as origin:
            up = f'[providers.up]\nprotocol = "openai-chat"\nbase_url = "http://{origin.authority}"\n'
            route = '[[routes]]\nmatch = "both"\nproviders = ["paid", "up"]\n'
            async with run_gateway(f"{ONE}{up}{route}") as gateway:
                body = {"messages": [{"role": "user", "content": "Hi"}]}
                for model, status in (("paid/m", 403), ("up/m", 200), ("both", 200)):
                    response = await gateway.post("/v1/chat/completions", json.dumps(body | {"model": model}).encode())
                    data = await response.read(100_000)
                    assert response.status == status, data
                    if status == 403:
                        assert json.loads(data)["error"]["message"] == f"paid can't be used: {REASON}"
                assert len(upstream.bodies) == 2

    run_async(work())


def test_list_of_models_has_the_reason_as_error() -> None:
    async def work() -> None:
        transport = Transport()
        providers = build_providers(parse_config(ONE, {}))
        listed = await ModelLists(transport).fetch(providers["paid"])
        transport.close()
        assert listed.error == REASON

    asyncio.run(work())


def test_mcp_server_is_not_started_with_a_reference_as_value() -> None:
    async def work() -> None:
        server = McpServerConfig(command="touch", args=("started",), env={"TOKEN": "env:PAID_KEY"})
        async with open_toolset(server) as toolset:
            assert await toolset.tools() == ()
            assert toolset.take_warnings() == [f"MCP server {toolset.name!r} failed to start: {REASON}"]

    asyncio.run(work())


def test_doctor_names_servers_and_services_that_lack_a_variable() -> None:
    text = """[mcp.servers.s]
url = "https://s.example"
headers = { Authorization = "env:PAID_KEY" }
[mcp.servers.off]
url = "env:OFF"
enabled = false
[search]
url = "https://e.example?q={query}&k={key}"
api_key = "env:SEARCH_KEY"
"""
    findings = list(check_variables(parse_config(text, {})))
    assert [(finding.subject, finding.detail) for finding in findings] == [
        ("MCP server s", REASON),
        ("web search", "environment variable SEARCH_KEY is not set"),
    ]
    assert not any(finding.is_ok for finding in findings)
