"""Tool search requests as Claude Code sends them, and their translation by the gateway."""

import json
from typing import Any

from tests.support.bodies.minimal import (
    USER_MESSAGE,
    anthropic_call,
    anthropic_request,
    anthropic_result,
    anthropic_tool,
)
from tests.support.gateway.in_process import one_provider_config, run_gateway
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream

PLACEHOLDER_NAME = "DeferredToolPlaceholder"
PLACEHOLDER = {
    "name": PLACEHOLDER_NAME,
    "description": "Reserved placeholder that keeps deferred tool loading active; never call this tool.",
    "input_schema": {"type": "object", "properties": {}},
    "defer_loading": True,
}
DEFERRED_TOOL = {**anthropic_tool("CronList"), "defer_loading": True}


def request_after_tool_search(*names: str, called: str = "CronList", **fields: Any) -> dict[str, Any]:
    """Return the request that Claude Code sends after its search found these tools and one was called."""
    found = [{"type": "tool_reference", "tool_name": name} for name in names]
    return anthropic_request(
        USER_MESSAGE,
        {"role": "assistant", "content": [anthropic_call("toolu_1", "ToolSearch")]},
        {"role": "user", "content": [anthropic_result("toolu_1", found)]},
        {"role": "assistant", "content": [anthropic_call("toolu_2", called)]},
        {"role": "user", "content": [anthropic_result("toolu_2", "No jobs.")]},
        tools=[anthropic_tool("ToolSearch"), DEFERRED_TOOL, PLACEHOLDER],
        **fields,
    )


DEFERRED_CACHED_TOOL = anthropic_tool("later", defer_loading=True, cache_control={"type": "ephemeral"})


async def translate_through_gateway(body: Any, options: str = "") -> tuple[Any, list[str]]:
    async with (
        serve_upstream(ScriptedUpstream(CHAT_RESPONSE)) as origin,
        run_gateway(one_provider_config(origin, "anthropic") + options) as gateway,
    ):
        response = await gateway.post(
            "/toolwire/translate", json.dumps({"protocol": "anthropic", "body": body}).encode()
        )
        found = json.loads(await response.read(100_000))
        return {**found["body"], "stream": body.get("stream")}, [loss["path"] for loss in found["losses"]]
