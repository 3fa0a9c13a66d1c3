"""Claude Code's placeholder for tools that it loads later by a search of its own: for this provider alone."""

from typing import Any

import pytest

import toolwire as tw
from tests.bodies import GO, anthropic_call, anthropic_request, anthropic_result, anthropic_tool
from tests.wire import ANTHROPIC, SEVEN, calls, kinds, results, tools, translated

NAME = "DeferredToolPlaceholder"
PLACEHOLDER = {
    "name": NAME,
    "description": "Reserved placeholder that keeps deferred tool loading active; never call this tool.",
    "input_schema": {"type": "object", "properties": {}},
    "defer_loading": True,
}
LOADED = {**anthropic_tool("CronList"), "defer_loading": True}
OTHERS = [name for name in SEVEN if name != ANTHROPIC]


def searched(*names: str, called: str = "CronList", **fields: Any) -> dict[str, Any]:
    """As Claude Code asks once its search has found these, and one was called."""
    found = [{"type": "tool_reference", "tool_name": name} for name in names]
    return anthropic_request(
        GO,
        {"role": "assistant", "content": [anthropic_call("toolu_1", "ToolSearch")]},
        {"role": "user", "content": [anthropic_result("toolu_1", found)]},
        {"role": "assistant", "content": [anthropic_call("toolu_2", called)]},
        {"role": "user", "content": [anthropic_result("toolu_2", "No jobs.")]},
        tools=[anthropic_tool("ToolSearch"), LOADED, PLACEHOLDER],
        **fields,
    )


@pytest.mark.parametrize("target", OTHERS)
def test_what_was_loaded_is_declared_and_the_placeholder_is_dropped(target: str) -> None:
    body = searched("CronList")
    made = translated(body, ANTHROPIC, target)
    assert list(tools(target, made)) == ["ToolSearch", "CronList"]
    assert "CronList" in results(target, made)[0][1]
    told = {path: kind for path, kind in kinds(body, ANTHROPIC, target).items() if path.startswith("/tools/")}
    assert told == {"/tools/1/defer_loading": "approximated", "/tools/2": "dropped"}


def test_its_own_provider_gets_it_as_it_is() -> None:
    for more in ({}, {"type": "custom"}, {"made_up": [1]}):
        body = searched("CronList")
        body["tools"][2] = {**PLACEHOLDER, **more}
        made = tw.translate(body, ANTHROPIC, ANTHROPIC)
        assert made.value == body
        assert not made.losses


@pytest.mark.parametrize("target", OTHERS)
def test_a_call_of_it_and_a_reference_to_it_stay_in_the_history(target: str) -> None:
    made = translated(searched(NAME, called=NAME), ANTHROPIC, target)
    assert [call["name"] for call in calls(target, made)] == ["ToolSearch", NAME]
    found, done = results(target, made)
    assert NAME in found[1]
    assert "No jobs." in done[1]
    assert NAME not in tools(target, made)


@pytest.mark.parametrize("target", OTHERS)
def test_it_is_no_tool_that_anybody_runs(target: str) -> None:
    """Whoever refuses tools that only another provider runs still wants Claude Code to work."""
    assert list(tools(target, translated(searched(), ANTHROPIC, target, hosted_tools="refuse"))) == [
        "ToolSearch",
        "CronList",
    ]
    with pytest.raises(tw.LossRefused, match="placeholder is to be called"):
        translated(searched(tool_choice={"type": "tool", "name": NAME}), ANTHROPIC, target)


@pytest.mark.parametrize("target", OTHERS)
def test_a_tool_of_that_name_which_is_there_from_the_start_is_a_tool(target: str) -> None:
    body = searched("CronList")
    body["tools"][2] = {**PLACEHOLDER, "defer_loading": False}
    assert NAME in tools(target, translated(body, ANTHROPIC, target))
