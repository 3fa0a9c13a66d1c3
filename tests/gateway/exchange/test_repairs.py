"""Requests that clients are known to send and the provider to reject are repaired and reported."""

from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    anthropic_call,
    anthropic_request,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
)
from tests.support.gateway.claude_code import DEFERRED_CACHED_TOOL, translate_through_gateway
from tests.support.gateway.in_process import run_async

THINKING = {"type": "enabled", "budget_tokens": 32000}
WRONG: dict[str, tuple[Any, str, list[str]]] = {
    "a budget as large as the limit": (
        anthropic_request(thinking=THINKING, max_tokens=32000),
        "thinking-budget",
        ["/thinking/budget_tokens"],
    ),
    "no room to think": (
        anthropic_request(thinking=THINKING, max_tokens=1000),
        "thinking-budget",
        ["/thinking/budget_tokens"],
    ),
    "an id of another provider": (
        anthropic_turn([anthropic_call("call:1/x")], [anthropic_result("call:1/x")]),
        "call-id",
        ["/messages/1/content/0/id", "/messages/2/content/0/tool_use_id"],
    ),
    "an answer that is to be continued": (
        anthropic_request(
            {"role": "user", "content": "A haiku."},
            {"role": "assistant", "content": [{"type": "text", "text": "An old pond"}]},
            model="claude-opus-4-6",
        ),
        "prefill",
        [""],
    ),
    "a model that can't be forced": (
        anthropic_request(
            model="claude-opus-5-5", tools=[anthropic_tool("now")], tool_choice={"type": "tool", "name": "now"}
        ),
        "choice-model",
        ["/tool_choice/type"],
    ),
    "a mark on a deferred tool": (
        anthropic_request(tools=[anthropic_tool("now"), DEFERRED_CACHED_TOOL]),
        "tool-deferred-cached",
        ["/tools/1/cache_control"],
    ),
}


def violations(body: Any) -> list[str]:
    return [finding.rule for finding in toolwire.check(body, "anthropic") if finding.level == "error"]


@pytest.mark.parametrize("wrong", WRONG)
def test_requests_the_provider_would_refuse_are_repaired(wrong: str) -> None:
    body, rule, paths = WRONG[wrong]

    async def work() -> None:
        assert any(rule in one for one in violations(body))
        mended, lost = await translate_through_gateway(body)
        assert lost == paths
        assert not any(rule in one for one in violations({name: value for name, value in mended.items() if value}))
        unrepaired, lost = await translate_through_gateway(body, "repair = false")
        assert ({name: value for name, value in unrepaired.items() if value is not None}, lost) == (body, [])

    run_async(work())


def test_repaired_id_is_the_same_on_call_and_result() -> None:
    async def work() -> None:
        mended, _ = await translate_through_gateway(WRONG["an id of another provider"][0])
        call, result = mended["messages"][1]["content"][0], mended["messages"][2]["content"][0]
        assert call["id"] == result["tool_use_id"] != "call:1/x"

    run_async(work())


def test_valid_requests_are_not_changed() -> None:
    body = anthropic_turn(
        [anthropic_call("toolu_1")],
        [anthropic_result("toolu_1")],
        tools=[anthropic_tool("now", cache_control={"type": "ephemeral"})],
        thinking={"type": "enabled", "budget_tokens": 2000},
        max_tokens=4000,
    )

    async def work() -> None:
        mended, lost = await translate_through_gateway(body)
        assert ({name: value for name, value in mended.items() if value is not None}, lost) == (body, [])

    run_async(work())
