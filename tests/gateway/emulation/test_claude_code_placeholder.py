"""Claude Code's placeholder tool in the gateway: with its own search, an emulated search, and moved cache marks."""

import json
from typing import Any

import pytest

from tests.support.bodies.minimal import anthropic_request, anthropic_tool
from tests.support.gateway.claude_code import (
    DEFERRED_CACHED_TOOL,
    PLACEHOLDER,
    PLACEHOLDER_NAME,
    request_after_tool_search,
    translate_through_gateway,
)
from tests.support.gateway.emulated_exchange import (
    canonical_call,
    canonical_response,
    encode_http_response,
    post_and_decode,
)
from tests.support.gateway.in_process import one_provider_config, run_async, run_gateway
from tests.support.gateway.tool_search import (
    REGEX_SEARCH,
    UPSTREAMS_WITHOUT_SEARCH,
    declared_tool_names,
    search_request,
)
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.canonical.content import Text

DONE = canonical_response(Text(text="Done."), reason="end_turn")


@pytest.mark.parametrize("protocol", [*UPSTREAMS_WITHOUT_SEARCH, "openai-responses"])
def test_placeholder_beside_the_clients_search_is_dropped_and_reported(protocol: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(encode_http_response(protocol, DONE, stream=False))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            response = await gateway.post("/v1/messages", json.dumps(request_after_tool_search("CronList")).encode())
            assert response.status == 200
            losses = json.loads(response.headers["toolwire-losses"])["losses"]
            assert ("dropped", "/tools/2") in [(one["kind"], one["path"]) for one in losses]
            (body,) = script.bodies
            assert declared_tool_names(protocol, body) == ["ToolSearch", "CronList"]

    run_async(work())


@pytest.mark.parametrize("protocol", UPSTREAMS_WITHOUT_SEARCH)
def test_gateway_search_does_not_find_the_placeholder(protocol: str) -> None:
    async def work() -> None:
        look = canonical_response(canonical_call("tool_search", pattern="(?i)placeholder|pay"))
        script = ScriptedUpstream(*(encode_http_response(protocol, one, stream=False) for one in (look, DONE)))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            path, body = search_request("anthropic", search=REGEX_SEARCH)
            request: dict[str, Any] = json.loads(body)
            request["tools"].append(PLACEHOLDER)
            response, _ = await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
            references = response["content"][1]["content"]["tool_references"]
            assert [one["tool_name"] for one in references] == ["pay_invoice"]
            assert [PLACEHOLDER_NAME in declared_tool_names(protocol, one) for one in script.bodies] == [False, False]

    run_async(work())


def test_moved_cache_mark_does_not_land_on_the_placeholder() -> None:
    async def work() -> None:
        mended, lost = await translate_through_gateway(
            anthropic_request(tools=[anthropic_tool("now"), DEFERRED_CACHED_TOOL, PLACEHOLDER])
        )
        assert ["cache_control" in tool for tool in mended["tools"]] == [True, False, False]
        assert lost == ["/tools/1/cache_control"]

    run_async(work())
