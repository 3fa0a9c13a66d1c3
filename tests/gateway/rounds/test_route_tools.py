"""Routes with tools of MCP servers: the gateway runs them for any client's model."""

import asyncio
import json
import sys
from typing import Any

import pytest

from tests.support.codecs import decode_events
from tests.support.gateway.emulated_exchange import (
    canonical_call,
    canonical_response,
    encode_http_response,
    post_and_decode,
)
from tests.support.gateway.in_process import one_provider_config, question_request, run_async, run_gateway
from tests.support.mcp.toolsets import SCRIPTED_SERVER
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.canonical.content import Text, ToolCall, ToolResult
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.tools import NativeTool
from toolwire.codec.interface import ResponseContext, Route
from toolwire.gateway.config import ConfigError, RouteSection, parse_config
from toolwire.gateway.exchange.routing import Backend
from toolwire.gateway.rounds.route_tools import RouteToolsets
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.mcp.config import McpServerConfig, McpToolNames
from toolwire.runtime.policy import Policy
from toolwire.upstream.provider import Provider

SEVEN = list(PROTOCOLS)
SHOWN = {"anthropic": "mcp_tool_use", "openai-responses": "mcp_call"}


def configured(
    origin: Any, protocol: str, *, rules: str = 'allow = ["one__*"]', more: str = "", names: Any = ("echo", "fail")
) -> str:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    settings = json.dumps({"version": "2025-11-25", "tools": tools})
    started = json.dumps(["-S", str(SCRIPTED_SERVER), settings])
    server = f"[mcp.servers.one]\ncommand = {json.dumps(sys.executable)}\nargs = {started}\n"
    server += 'sampling = {model = "up/m", approval = "never"}\n'
    return one_provider_config(origin, protocol, f"{server}[policy]\n{rules}\n") + f'tools = ["one"]\n{more}'


def read(protocol: str, body: Any) -> Any:
    return PROTOCOLS[protocol].decode_request(json.dumps(body).encode(), Route())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("client", "protocol"), [*((one, "openai-chat") for one in SEVEN), *(("anthropic", one) for one in SEVEN)]
)
def test_gateway_runs_route_tools_within_one_response(client: str, protocol: str, stream: bool) -> None:
    async def work() -> None:
        first = canonical_response(Text(text="Let me see."), canonical_call("one__echo", word="hello"))
        second = canonical_response(Text(text="It says hello."), reason="end_turn")
        script = ScriptedUpstream(*(encode_http_response(protocol, one, stream=stream) for one in (first, second)))
        async with serve_upstream(script) as origin, run_gateway(configured(origin, protocol)) as gateway:
            path, body = question_request(client, stream=stream)
            reply = await gateway.post(path, body)
            data = await reply.read(1_000_000)
            assert reply.status == 200, data
            events = decode_events(client, data) if stream else []
            response = fold(events) if stream else PROTOCOLS[client].decode_response(data, ResponseContext())
        assert len(script.requests) == 2
        before, after = (read(protocol, one) for one in script.bodies)
        assert [tool.name for tool in before.tools] == ["weather", "one__echo", "one__fail"]
        (result,) = [part for part in after.messages[-1].parts if isinstance(part, ToolResult)]
        assert '{"word": "hello"}' in str(result.content)
        assert b"one__echo" not in data
        text = [part for one in response.candidates[0].messages for part in one.parts]
        assert "".join(part.text for part in text if isinstance(part, Text)) == "Let me see.It says hello."
        assert not any(isinstance(part, ToolCall) for part in text)
        assert response.candidates[0].stop is not None
        assert response.candidates[0].stop.reason == "end_turn"

    run_async(work())


@pytest.mark.parametrize("client", SEVEN)
@pytest.mark.parametrize("protocol", SEVEN)
def test_several_calls_of_one_response_are_all_run(client: str, protocol: str) -> None:
    async def work() -> None:
        first = canonical_response(
            canonical_call("one__echo", word="hello"), canonical_call("one__echo", "call_2", word="world")
        )
        script = ScriptedUpstream(
            encode_http_response(protocol, first, stream=False),
            encode_http_response(protocol, canonical_response(Text(text="Done."), reason="end_turn"), stream=False),
        )
        async with serve_upstream(script) as origin, run_gateway(configured(origin, protocol)) as gateway:
            path, body = question_request(client)
            response = await gateway.post(path, body)
            assert response.status == 200, await response.read(1_000_000)
        after = read(protocol, script.bodies[1])
        results = [part for one in after.messages for part in one.parts if isinstance(part, ToolResult)]
        assert ["hello" in str(one.content) for one in results] == [True, False]
        assert ["world" in str(one.content) for one in results] == [False, True]

    run_async(work())


def test_servers_of_a_route_may_not_sample() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response("openai-chat", canonical_response(canonical_call("one__sample")), stream=False),
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Done."), reason="end_turn"), stream=False
            ),
        )
        async with (
            serve_upstream(script) as origin,
            run_gateway(configured(origin, "openai-chat", names=("sample",))) as gateway,
        ):
            await (await gateway.post(*question_request("anthropic"))).read(1_000_000)
        (result,) = [
            part for part in read("openai-chat", script.bodies[1]).messages[-1].parts if isinstance(part, ToolResult)
        ]
        assert "Sampling not supported" in str(result.content)

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", list(SHOWN))
def test_route_tool_calls_can_be_shown(client: str, stream: bool) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "gemini", canonical_response(canonical_call("one__echo", word="hello")), stream=stream
            ),
            encode_http_response("gemini", canonical_response(Text(text="Done."), reason="end_turn"), stream=stream),
        )
        also = 'tool_calls = "shown"\n'
        async with serve_upstream(script) as origin, run_gateway(configured(origin, "gemini", more=also)) as gateway:
            path, body = question_request(client, stream=stream)
            decoded, _ = await post_and_decode(gateway, client, path, body, stream=stream)
        items = decoded["content"] if client == "anthropic" else decoded["output"]
        visible = next(one for one in items if one["type"] == SHOWN[client])
        assert visible["name"] == "echo"
        assert visible["server_name" if client == "anthropic" else "server_label"] == "one"
        assert "hello" in json.dumps(items)

    run_async(work())


def test_call_without_an_allow_rule_is_denied() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("one__echo", word="x")), stream=False
            ),
            encode_http_response(
                "openai-chat", canonical_response(Text(text="I may not."), reason="end_turn"), stream=False
            ),
        )
        rules = 'deny = ["one__fail"]'
        async with (
            serve_upstream(script) as origin,
            run_gateway(configured(origin, "openai-chat", rules=rules)) as gateway,
        ):
            path, body = question_request("anthropic")
            decoded, _ = await post_and_decode(gateway, "anthropic", path, body, stream=False)
        before, after = (read("openai-chat", one) for one in script.bodies)
        assert [tool.name for tool in before.tools] == ["weather", "one__echo"]
        assert "no rule allows it, and no approver is available" in str(after.messages)
        assert decoded["content"][0]["text"] == "I may not."

    run_async(work())


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("one__ech", "unknown tool 'one__ech' (did you mean \"one__echo\"?)"),
        ("one__echo(wrd=*)", "one__echo has no argument 'wrd' (did you mean \"word\"?)"),
        ("one__echo(word=*)", None),
        ("two__echo", None),  # of a server that this route does not have
    ],
)
def test_misspelled_rules_are_logged_once(rule: str, problem: str | None) -> None:
    schema = {"type": "object", "properties": {"word": {"type": "string"}}}
    server = McpServerConfig(
        command=sys.executable,
        args=("-S", str(SCRIPTED_SERVER), json.dumps({"tools": [{"name": "echo", "inputSchema": schema}]})),
        version="2025-11-25",
    )

    async def work() -> None:
        lines: list[str] = []
        toolsets = RouteToolsets({"one": server}, Policy(deny=[rule]), log=lines.append)
        backend = Backend(Provider(name="up", protocol="openai-chat", base_url="http://127.0.0.1:9"), "m")
        for _ in range(2):
            await toolsets.tools_for(
                RouteSection(match="*", provider="up", tools=("one",)), Request(origin=""), backend
            )
        await toolsets.close()
        expected = f"policy.deny {rule!r}: {problem}, so the rule applies to nothing"
        assert lines == ([] if problem is None else [expected])

    run_async(work())


def test_client_call_beside_a_route_tool_call_ends_the_response() -> None:
    async def work() -> None:
        mixed_response = canonical_response(canonical_call("one__echo", word="x"), canonical_call("weather", "call_2"))
        script = ScriptedUpstream(encode_http_response("openai-chat", mixed_response, stream=False))
        async with serve_upstream(script) as origin, run_gateway(configured(origin, "openai-chat")) as gateway:
            path, body = question_request("anthropic")
            decoded, _ = await post_and_decode(gateway, "anthropic", path, body, stream=False)
        assert len(script.requests) == 1
        assert [one["name"] for one in decoded["content"]] == ["weather"]
        assert decoded["stop_reason"] == "tool_use"

    run_async(work())


def test_client_tool_keeps_its_name() -> None:
    async def work() -> None:
        other = McpToolNames(["one__echo"]).name_for("one", "echo")
        script = ScriptedUpstream(
            encode_http_response("openai-chat", canonical_response(canonical_call(other, word="x")), stream=False),
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("one__echo", "call_2")), stream=False
            ),
        )
        async with serve_upstream(script) as origin, run_gateway(configured(origin, "openai-chat")) as gateway:
            path, body = question_request("anthropic")
            request = json.loads(body)
            request["tools"].append({"name": "one__echo", "input_schema": {"type": "object"}})
            decoded, _ = await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
        assert len(script.requests) == 2
        before, after = (read("openai-chat", one) for one in script.bodies)
        assert [tool.name for tool in before.tools] == ["weather", "one__echo", other, "one__fail"]
        assert '{"word": "x"}' in str(after.messages[-1])
        assert [one["name"] for one in decoded["content"]] == ["one__echo"]

    run_async(work())


MANY = ["echo", "fail", *(f"filler_{number}" for number in range(60))]
NATIVE = {"anthropic": "tool_search_tool_bm25", "openai-responses": "tool_search"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", SEVEN)
@pytest.mark.parametrize("protocol", [one for one in SEVEN if one not in NATIVE])
def test_many_route_tools_are_replaced_by_a_search(client: str, protocol: str, stream: bool) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                protocol, canonical_response(canonical_call("find_tools", query="echo")), stream=stream
            ),
            encode_http_response(
                protocol, canonical_response(canonical_call("one__echo", "call_2", word="hello")), stream=stream
            ),
            encode_http_response(protocol, canonical_response(Text(text="Done."), reason="end_turn"), stream=stream),
        )
        rules = 'allow = ["one__*"]\ndeny = ["one__filler_7"]'
        also = 'tool_calls = "shown"\n'
        async with (
            serve_upstream(script) as origin,
            run_gateway(configured(origin, protocol, rules=rules, names=MANY, more=also)) as gateway,
        ):
            path, body = question_request(client, stream=stream)
            response = await gateway.post(path, body)
            data = await response.read(1_000_000)
        assert response.status == 200, data
        first, second, third = (read(protocol, one) for one in script.bodies)
        assert [tool.name for tool in first.tools] == ["weather", "find_tools"]
        assert "61 more tools" in first.tools[1].description  # one of 62 is denied
        assert [tool.name for tool in second.tools] == ["weather", "find_tools", "one__echo"]
        assert second.messages[: len(first.messages)] == first.messages
        assert [tool.name for tool in third.tools] == ["weather", "find_tools", "one__echo"]
        assert '{"word": "hello"}' in str(third.messages[-1])
        assert b"find_tools" not in data
        assert b"Done." in data

    run_async(work())


@pytest.mark.parametrize("client", SEVEN)
@pytest.mark.parametrize("protocol", NATIVE)
def test_provider_with_native_search_gets_deferred_tools(client: str, protocol: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(protocol, canonical_response(canonical_call("one__echo", word="hello")), stream=False),
            encode_http_response(protocol, canonical_response(Text(text="Done."), reason="end_turn"), stream=False),
        )
        async with serve_upstream(script) as origin, run_gateway(configured(origin, protocol, names=MANY)) as gateway:
            path, body = question_request(client)
            response = await gateway.post(path, body)
            data = await response.read(1_000_000)
        assert response.status == 200, data
        first, second = (read(protocol, one) for one in script.bodies)
        natives = [tool for tool in first.tools if isinstance(tool, NativeTool)]
        assert [tool.kind for tool in natives] == [NATIVE[protocol]]
        assert {tool.name for tool in first.tools if getattr(tool, "defer", None)} == {f"one__{one}" for one in MANY}
        assert second.tools == first.tools
        assert '{"word": "hello"}' in str(second.messages[-1])
        assert b"Done." in data

    run_async(work())


def test_empty_search_is_an_error() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("find_tools", limit=3)), stream=False
            ),
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("one__echo", "call_2", word="unfound")), stream=False
            ),
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Done."), reason="end_turn"), stream=False
            ),
        )
        async with serve_upstream(script) as origin:
            config = configured(origin, "openai-chat", names=MANY, rules='allow = ["one__f*"]')
            async with run_gateway(config) as gateway:
                path, body = question_request("anthropic")
                await post_and_decode(gateway, "anthropic", path, body, stream=False)
        _, second, third = (read("openai-chat", one) for one in script.bodies)
        assert "query" in str(second.messages[-1])
        assert [tool.name for tool in second.tools] == ["weather", "find_tools"]
        # The policy also applies to a tool that was not found.
        assert "no rule allows it" in str(third.messages[-1])

    run_async(work())


def test_client_keeps_its_own_search() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("toolwire__find_tools", query="echo")), stream=False
            ),
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("find_tools", "call_2", q="mine")), stream=False
            ),
        )
        async with (
            serve_upstream(script) as origin,
            run_gateway(configured(origin, "openai-chat", names=MANY)) as gateway,
        ):
            path, body = question_request("anthropic")
            request = json.loads(body)
            request["tools"].append({"name": "find_tools", "input_schema": {"type": "object"}})
            decoded, _ = await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
        names = [[tool.name for tool in read("openai-chat", one).tools] for one in script.bodies]
        assert names[0] == ["weather", "find_tools", "toolwire__find_tools"]
        assert names[1] == [*names[0], "one__echo"]
        assert [one["name"] for one in decoded["content"]] == ["find_tools"]

    run_async(work())


async def declared_after_a_search(protocol: str, rules: str) -> list[str]:
    script = ScriptedUpstream(
        encode_http_response(
            protocol, canonical_response(canonical_call("find_tools", query="filler echo fail", limit=20)), stream=False
        ),
        encode_http_response(protocol, canonical_response(Text(text="Done."), reason="end_turn"), stream=False),
    )
    async with (
        serve_upstream(script) as origin,
        run_gateway(configured(origin, protocol, names=MANY, rules=rules)) as gateway,
    ):
        path, body = question_request("gemini")
        await (await gateway.post(path, body)).read(1_000_000)
    tools = read(protocol, script.bodies[-1]).tools
    return [tool.name for tool in tools if not isinstance(tool, NativeTool)]


def test_search_finds_only_allowed_tools() -> None:
    async def work() -> None:
        rules = 'allow = ["one__echo(word=x)", "one__filler_1*"]\nask = ["one__filler_12"]'
        few = ["weather", "one__echo", *(f"one__filler_{n}" for n in (1, 10, 11, *range(13, 20)))]
        assert await declared_after_a_search("openai-chat", rules) == few
        rules = 'allow = ["one__f*"]\nask = ["one__filler_9"]'
        allowed = {f"one__{one}" for one in MANY} - {"one__echo", "one__filler_9"}
        assert {*await declared_after_a_search("anthropic", rules)} == {"weather", *allowed}
        client_tool, search, *names = await declared_after_a_search("openai-chat", rules)
        assert (client_tool, search, len(names)) == ("weather", "find_tools", 20)
        assert set(names) <= allowed

    run_async(work())


def test_tool_rounds_are_bounded() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            *[
                encode_http_response(
                    "openai-chat", canonical_response(canonical_call("one__echo", word="x")), stream=False
                )
            ]
            * 9
        )
        more = "[limits]\nrounds = 3\n"
        async with serve_upstream(script) as origin:
            config = more + configured(origin, "openai-chat")
            async with run_gateway(config) as gateway:
                path, body = question_request("openai-chat")
                decoded, _ = await post_and_decode(gateway, "openai-chat", path, body, stream=False)
        assert len(script.requests) == 4
        assert decoded["choices"][0]["finish_reason"] == "length"

    run_async(work())


def test_concurrent_first_requests_all_get_the_tools() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Hello."), reason="end_turn"), stream=False
            )
        )
        async with serve_upstream(script) as origin, run_gateway(configured(origin, "openai-chat")) as gateway:
            path, body = question_request("anthropic")

            async def ask() -> None:
                await (await gateway.post(path, body)).read(1_000_000)

            await asyncio.gather(ask(), ask(), ask())
        names = [[tool.name for tool in read("openai-chat", one).tools] for one in script.bodies]
        assert names == [["weather", "one__echo", "one__fail"]] * 3

    run_async(work())


def test_unknown_mcp_server_in_a_route_is_refused() -> None:
    config = (
        '[providers.up]\nprotocol = "ollama"\nbase_url = "http://x"\n[[routes]]\nprovider = "up"\ntools = ["other"]\n'
    )
    with pytest.raises(ConfigError, match=r"routes\[0\].tools\[0\]: unknown MCP server 'other'"):
        parse_config(config, {})


def test_failed_mcp_server_leaves_the_others_working(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Hello."), reason="end_turn"), stream=False
            )
        )
        async with serve_upstream(script) as origin:
            server = '[mcp.servers.one]\ncommand = "no-such-program"\n'
            async with run_gateway(one_provider_config(origin, "openai-chat", server) + 'tools = ["one"]\n') as gateway:
                path, body = question_request("anthropic")
                decoded, _ = await post_and_decode(gateway, "anthropic", path, body, stream=False)
        assert decoded["content"][0]["text"] == "Hello."

    run_async(work())
    assert "MCP server 'one' failed to start: " in capsys.readouterr().err
