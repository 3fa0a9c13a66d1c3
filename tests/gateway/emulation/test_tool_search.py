"""Clients that declare their provider's tool search, in front of upstreams that have none."""

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest

from tests.support.gateway.emulated_exchange import (
    canonical_call,
    canonical_response,
    encode_http_response,
    post_and_decode,
)
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.gateway.tool_search import (
    CLIENTS_WITH_SEARCH,
    REGEX_SEARCH,
    TOOL_DESCRIPTIONS,
    TOOL_SCHEMA,
    UPSTREAMS_WITHOUT_SEARCH,
    declared_tool_names,
    output_items,
    search_request,
)
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.canonical.content import Reasoning, ReasoningText, Signature, Text
from toolwire.canonical.request import Request
from toolwire.canonical.response import Stop
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.interface import Route, Target
from toolwire.gateway.exchange.exchange import ClientRequest
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.search.index import IndexedTool, ToolIndex

SEARCHES: dict[str, list[tuple[str, str | None]]] = {
    "anthropic": [("server_tool_use", "tool_search_tool_bm25"), ("tool_search_tool_result", None)],
    "openai-responses": [("tool_search_call", None), ("tool_search_output", None)],
}
CALLED = {"anthropic": ("tool_use", "pay_invoice"), "openai-responses": ("function_call", "pay_invoice")}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", UPSTREAMS_WITHOUT_SEARCH)
@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_gateway_search_appears_as_the_clients_own(client: str, protocol: str, stream: bool) -> None:
    async def work() -> None:
        first = canonical_response(Text(text="Let me look."), canonical_call("tool_search", query="settle an invoice"))
        second = canonical_response(canonical_call("pay_invoice", "call_2", what="it"))
        script = ScriptedUpstream(*(encode_http_response(protocol, one, stream=stream) for one in (first, second)))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            path, body = search_request(client, stream=stream)
            decoded, response = await post_and_decode(gateway, client, path, body, stream=stream)
            assert len(script.requests) == 2
            before, after = script.bodies
            assert declared_tool_names(protocol, before) == ["tool_search", "read_file"]
            assert declared_tool_names(protocol, after) == ["tool_search", "read_file", "pay_invoice"]
            kinds = [
                (one["type"], one.get("name"))
                for one in output_items(client, decoded)
                if one["type"] not in ("text", "message")
            ]
            assert kinds == [*SEARCHES[client], CALLED[client]]
            assert "pay_invoice" in json.dumps(output_items(client, decoded)[-2])
            assert '"name": "tool_search"' not in json.dumps(decoded)
            assert response.candidates[0].stop is not None
            assert response.candidates[0].stop.reason == "tool_use"
            assert response.usage is not None
            assert response.usage.output_tokens == 10
            assert [
                part.text for one in response.candidates[0].messages for part in one.parts if isinstance(part, Text)
            ]

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("client", "protocol", "search"),
    [("anthropic", "openai-responses", "tool_search"), ("openai-responses", "anthropic", "tool_search_tool_bm25")],
)
def test_upstream_with_native_search_is_not_emulated(client: str, protocol: str, search: str, stream: bool) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(protocol, canonical_response(canonical_call("pay_invoice", what="it")), stream=stream)
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            path, body = search_request(client, stream=stream)
            decoded, _ = await post_and_decode(gateway, client, path, body, stream=stream)
        (sent_body,) = script.bodies
        first, *functions = PROTOCOLS[protocol].decode_request(json.dumps(sent_body).encode(), Route()).tools or ()
        assert isinstance(first, NativeTool)
        assert first.kind == search
        assert [(one.name, bool(getattr(one, "defer", None))) for one in functions] == [
            (name, name != "read_file") for name in TOOL_DESCRIPTIONS
        ]
        assert [(one["type"], one["name"]) for one in output_items(client, decoded)] == [CALLED[client]]

    run_async(work())


@pytest.mark.parametrize("protocol", ["anthropic", "openai-responses"])
def test_search_is_emulated_for_models_without_it(protocol: str) -> None:
    async def work() -> None:
        client, model = {
            "anthropic": ("openai-responses", "claude-3-opus"),
            "openai-responses": ("anthropic", "gpt-4o"),
        }[protocol]
        script = ScriptedUpstream(
            encode_http_response(
                protocol, canonical_response(canonical_call("tool_search", query="settle an invoice")), stream=False
            ),
            encode_http_response(
                protocol, canonical_response(canonical_call("pay_invoice", "call_2", what="it")), stream=False
            ),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            path, body = search_request(client)
            await post_and_decode(
                gateway, client, path, body.replace(b'"model": "m"', f'"model": "{model}"'.encode()), stream=False
            )
        assert [declared_tool_names(protocol, one) for one in script.bodies] == [
            ["tool_search", "read_file"],
            ["tool_search", "read_file", "pay_invoice"],
        ]

    run_async(work())


@pytest.mark.parametrize("protocol", UPSTREAMS_WITHOUT_SEARCH)
@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_each_round_only_appends_to_the_request(client: str, protocol: str) -> None:
    async def work() -> None:
        first = canonical_response(canonical_call("tool_search", query="settle an invoice"))
        second = canonical_response(Text(text="Done."), reason="end_turn")
        script = ScriptedUpstream(*(encode_http_response(protocol, one, stream=False) for one in (first, second)))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            path, body = search_request(client)
            await post_and_decode(gateway, client, path, body, stream=False)
            before, after = script.bodies
            for field in ("messages", "contents", "input"):
                assert after.get(field, [])[: len(before.get(field, []))] == before.get(field, [])
            checked = PROTOCOLS[protocol].check_request(msgspec.json.decode(json.dumps(after)))
            assert [one.rule for one in checked] == []

    run_async(work())


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_found_tools_are_declared_in_the_next_request(client: str) -> None:
    async def work() -> None:
        first = canonical_response(canonical_call("tool_search", query="settle an invoice"))
        script = ScriptedUpstream(
            encode_http_response("openai-chat", first, stream=False),
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("pay_invoice", "call_2", what="it")), stream=False
            ),
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Paid."), reason="end_turn"), stream=False
            ),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request(client)
            decoded, _ = await post_and_decode(gateway, client, path, body, stream=False)
            if client == "anthropic":
                id = decoded["content"][-1]["id"]
                result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "ok"}]}
                more: list[Any] = [{"role": "assistant", "content": decoded["content"]}, result]
            else:
                result = {"type": "function_call_output", "call_id": decoded["output"][-1]["call_id"], "output": "ok"}
                more = [*decoded["output"], result]
            path, body = search_request(client, history=more)
            _, response = await post_and_decode(gateway, client, path, body, stream=False)
            assert declared_tool_names("openai-chat", script.bodies[2]) == ["tool_search", "pay_invoice", "read_file"]
            assert response.candidates[0].stop == Stop(reason="end_turn", raw=response.candidates[0].stop.raw)  # type: ignore[union-attr]

    run_async(work())


def test_response_with_a_client_call_ends_after_the_search() -> None:
    async def work() -> None:
        mixed_response = canonical_response(
            canonical_call("tool_search", query="invoice"), canonical_call("read_file", "call_2", what="x")
        )
        script = ScriptedUpstream(encode_http_response("openai-chat", mixed_response, stream=False))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("anthropic")
            decoded, _ = await post_and_decode(gateway, "anthropic", path, body, stream=False)
            assert len(script.requests) == 1
            kinds = [one["type"] for one in decoded["content"]]
            assert kinds == ["server_tool_use", "tool_search_tool_result", "tool_use"]
            assert decoded["stop_reason"] == "tool_use"

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("client", "stop"), [("anthropic", "paused"), ("openai-responses", "end_turn")])
def test_search_rounds_are_bounded(client: str, stop: str, stream: bool) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("tool_search", query="invoice")), stream=stream
            )
        )
        more = "[limits]\npauses = 2"
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, extra_config=more)) as gateway,
        ):
            path, body = search_request(client, stream=stream)
            decoded, response = await post_and_decode(gateway, client, path, body, stream=stream)
            assert len(script.requests) == 3
            assert len(output_items(client, decoded)) == 6
            assert response.candidates[0].stop is not None
            assert response.candidates[0].stop.reason == stop

    run_async(work())


def test_search_ids_are_unique_and_well_formed() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat",
                canonical_response(canonical_call("tool_search", "call-1.x", query="invoice")),
                stream=False,
            )
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("anthropic")
            decoded, _ = await post_and_decode(gateway, "anthropic", path, body, stream=False)
            ids = [one["id"] for one in decoded["content"] if one["type"] == "server_tool_use"]
            assert len(ids) == len(set(ids)) == 6
            assert all(id.startswith("srvtoolu_") and id.isidentifier() for id in ids)
            history = [{"role": "assistant", "content": decoded["content"]}, {"role": "user", "content": "go on"}]
            path, body = search_request("anthropic", history=history)
            assert PROTOCOLS["anthropic"].check_request(json.loads(body)) == []

    run_async(work())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"pattern": "("}, "invalid pattern"), ({"pattern": "x" * 201}, "200 characters"), ({}, "no query given")],
)
def test_invalid_search_is_an_error_for_client_and_model(arguments: dict[str, str], message: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("tool_search", **arguments)), stream=False
            ),
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Well."), reason="end_turn"), stream=False
            ),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("anthropic", search=REGEX_SEARCH)
            decoded, _ = await post_and_decode(gateway, "anthropic", path, body, stream=False)
            assert decoded["content"][0]["name"] == "tool_search_tool_regex"
            content = decoded["content"][1]["content"]
            assert (content["type"], content["error_code"]) == ("tool_search_tool_result_error", "invalid_tool_input")
            assert message in content["error_message"]
            (result,) = [one for one in script.bodies[1]["messages"] if one["role"] == "tool"]
            assert result["content"].startswith("[tool error] ")

    run_async(work())


def test_pattern_search_finds_tools_and_reports_one_loss() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("tool_search", pattern="^send_")), stream=False
            ),
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Well."), reason="end_turn"), stream=False
            ),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("anthropic", search=REGEX_SEARCH)
            response = await gateway.post(path, body)
            decoded = json.loads(await response.read(100_000))
            references = decoded["content"][1]["content"]["tool_references"]
            assert references == [{"type": "tool_reference", "tool_name": "send_email"}]
            exchanger = gateway.gateway.app._dispatcher
            sent_body = await exchanger.translate(
                ClientRequest(codec=PROTOCOLS["anthropic"], body=body, route=Route(), tenant="")
            )
            assert [(one.kind, one.path) for one in sent_body.losses] == [("approximated", "/tools/0")]

    run_async(work())


def test_losses_of_other_tools_keep_their_path() -> None:
    async def work() -> None:
        async with serve_upstream(ScriptedUpstream()) as origin, run_gateway(one_provider_config(origin)) as gateway:
            _, body = search_request("anthropic")
            request = json.loads(body)
            for number in (2, 3):  # one of them deferred
                request["tools"][number]["eager_input_streaming"] = True
            exchanger = gateway.gateway.app._dispatcher
            asking = ClientRequest(
                codec=PROTOCOLS["anthropic"], body=json.dumps(request).encode(), route=Route(), tenant=""
            )
            losses = (await exchanger.translate(asking)).losses
            fields = {f"/tools/{number}/eager_input_streaming" for number in (2, 3)}
            assert {one.path for one in losses} == {"/tools/0", *fields}

    run_async(work())


@pytest.mark.parametrize("deferred", [True, False])
def test_deferred_program_only_tool_is_refused(deferred: bool) -> None:
    """It must not be found and then called directly by the model."""

    async def work() -> None:
        async with serve_upstream(ScriptedUpstream()) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("anthropic")
            request = json.loads(body)
            request["tools"][2] |= {"allowed_callers": ["code_execution_20260120"], "defer_loading": deferred}
            response = await gateway.post(path, json.dumps(request).encode())
            assert response.status == 400
            assert "allowed_callers" in (await response.read(10_000)).decode()

    run_async(work())


def test_client_tool_named_tool_search_keeps_its_name() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("tool_search_2", query="invoice")), stream=False
            ),
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("tool_search", "call_2", what="mine")), stream=False
            ),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("anthropic")
            request = json.loads(body)
            request["tools"].append({"name": "tool_search", "input_schema": TOOL_SCHEMA})
            decoded, _ = await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
            assert [one["type"] for one in decoded["content"]] == [
                "server_tool_use",
                "tool_search_tool_result",
                "tool_use",
            ]
            assert decoded["content"][-1]["name"] == "tool_search"

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_namespace_member_is_found_and_called_by_its_own_name(stream: bool) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("tool_search", query="orders")), stream=stream
            ),
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("crm__list_orders", "call_2", what="x")), stream=stream
            ),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("openai-responses", stream=stream)
            request = json.loads(body)
            orders = {
                "type": "function",
                "name": "list_orders",
                "description": "Lists orders.",
                "parameters": TOOL_SCHEMA,
            }
            renamed_tool = {**orders, "name": "get_order", "description": "Gets one."}
            members = [{**orders, "strict": False, "defer_loading": True}, {**renamed_tool, "strict": False}]
            request["tools"].append({"type": "namespace", "name": "crm", "description": "Records.", "tools": members})
            decoded, _ = await post_and_decode(
                gateway, "openai-responses", path, json.dumps(request).encode(), stream=stream
            )
            before, after = script.bodies
            assert declared_tool_names("openai-chat", before) == ["tool_search", "read_file", "crm__get_order"]
            assert declared_tool_names("openai-chat", after) == [
                *declared_tool_names("openai-chat", before),
                "crm__list_orders",
            ]
            _, output, called = decoded["output"]
            assert (output["tools"][0]["name"], output["tools"][0]["description"]) == ("crm", "Records.")
            assert [one["name"] for one in output["tools"][0]["tools"]] == ["list_orders"]
            assert (called["namespace"], called["name"]) == ("crm", "list_orders")

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_rewritten_name_of_a_found_tool_is_restored(stream: bool) -> None:
    async def work() -> None:
        long = "list_all_the_open_orders_" + "x" * 60
        shortened = PROTOCOLS["openai-chat"].encode_request(
            Request(origin="", tools=(FunctionTool(name=long),)), Target()
        )
        alias = json.loads(shortened.to_bytes())["tools"][0]["function"]["name"]
        assert alias != long
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("tool_search", query="open orders")), stream=stream
            ),
            encode_http_response(
                "openai-chat", canonical_response(canonical_call(alias, "call_2", what="x")), stream=stream
            ),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("anthropic", stream=stream)
            request = json.loads(body)
            request["tools"].append({"name": long, "input_schema": TOOL_SCHEMA, "defer_loading": True})
            decoded, _ = await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=stream)
            assert decoded["content"][-1]["name"] == long

    run_async(work())


def test_thinking_is_resent_with_its_signature() -> None:
    """Gemini rejects a call without its signature."""

    async def work() -> None:
        seal = Signature(issuer="google", data="c2ln", kind="signature")
        thought = Reasoning(content=(ReasoningText(kind="summary", text="Hm."),))
        searching = msgspec.structs.replace(canonical_call("tool_search", query="invoice"), signature=seal)
        first, second = (
            canonical_response(thought, searching),
            canonical_response(Text(text="Done."), reason="end_turn"),
        )
        script = ScriptedUpstream(*(encode_http_response("gemini", one, stream=False) for one in (first, second)))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, "gemini")) as gateway:
            path, body = search_request("anthropic")
            await post_and_decode(gateway, "anthropic", path, body, stream=False)
            assert '"thoughtSignature":"c2ln"' in json.dumps(script.bodies[1], separators=(",", ":"))

    run_async(work())


def test_recursive_schema_does_not_break_the_index() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(canonical_call("tool_search", query="invoice")), stream=False
            ),
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Well."), reason="end_turn"), stream=False
            ),
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("anthropic")
            deep = '{"properties":{"p":' * 400 + "{}" + "}}" * 400
            bomb = '{"name":"bomb","defer_loading":true,"input_schema":' + deep + "}"
            request = body.decode()
            tools = request.index('"tools": [') + len('"tools": [')
            request = request[:tools] + bomb + "," + request[tools:]
            decoded, _ = await post_and_decode(gateway, "anthropic", path, request.encode(), stream=False)
            references = decoded["content"][1]["content"]["tool_references"]
            assert [one["tool_name"] for one in references] == ["pay_invoice"]

    run_async(work())


def test_search_without_deferred_tools_is_not_emulated() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response("openai-chat", canonical_response(Text(text="Well."), reason="end_turn"), stream=False)
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = search_request("anthropic")
            request = json.loads(body)
            for tool in request["tools"]:
                tool.pop("defer_loading", None)
            await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
            assert declared_tool_names("openai-chat", script.bodies[0]) == ["send_email", "pay_invoice", "read_file"]

    run_async(work())


def test_indexing_a_large_catalog_does_not_block_other_requests() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Hello."), reason="end_turn"), stream=False
            ),
            encode_http_response(
                "openai-chat",
                canonical_response(canonical_call("tool_search", query="settle an invoice")),
                stream=False,
            ),
            encode_http_response(
                "openai-chat", canonical_response(Text(text="Done."), reason="end_turn"), stream=False
            ),
        )
        many: list[dict[str, Any]] = [
            {"name": f"tool_{number}", "description": "Does this and that. " * 200, "input_schema": TOOL_SCHEMA}
            for number in range(800)
        ]
        entries = [IndexedTool(one["name"], one["description"], TOOL_SCHEMA) for one in many]
        started_at = time.thread_time()
        ToolIndex(entries).build()
        build_seconds = time.thread_time() - started_at
        path, body = search_request("anthropic")
        request = json.loads(body)
        request["tools"] += [one | {"defer_loading": True} for one in many]
        sent_body = json.dumps(request).encode()
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            await (await gateway.post(path, body)).read(1_000_000)  # imports happen on the first call
            watch = asyncio.create_task(longest_pause())
            decoded = await (await gateway.post(path, sent_body)).read(1_000_000)
            watch.cancel()
            assert b'"tool_name":"pay_invoice"' in decoded
            assert await watch < build_seconds / 2

    run_async(work())


async def longest_pause() -> float:
    """Return the longest time this thread was busy with one task, until cancelled."""
    longest, last = 0.0, time.thread_time()
    try:
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest
