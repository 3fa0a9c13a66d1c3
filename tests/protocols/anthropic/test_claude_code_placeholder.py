"""Claude Code's placeholder for tools that it loads later by a search of its own: for this provider alone."""

import pytest

import toolwire as tw
from tests.support.bodies.readers import declared_schemas, tool_calls_in, tool_results_in
from tests.support.gateway.claude_code import PLACEHOLDER, PLACEHOLDER_NAME, request_after_tool_search
from tests.support.protocols import ALL_PROTOCOLS, ANTHROPIC
from tests.support.translation import loss_kinds, translated_body

OTHERS = [name for name in ALL_PROTOCOLS if name != ANTHROPIC]


@pytest.mark.parametrize("target", OTHERS)
def test_what_was_loaded_is_declared_and_the_placeholder_is_dropped(target: str) -> None:
    body = request_after_tool_search("CronList")
    made = translated_body(body, ANTHROPIC, target)
    assert list(declared_schemas(target, made)) == ["ToolSearch", "CronList"]
    assert "CronList" in tool_results_in(target, made)[0][1]
    told = {path: kind for path, kind in loss_kinds(body, ANTHROPIC, target).items() if path.startswith("/tools/")}
    assert told == {"/tools/1/defer_loading": "approximated", "/tools/2": "dropped"}


def test_its_own_provider_gets_it_as_it_is() -> None:
    for more in ({}, {"type": "custom"}, {"made_up": [1]}):
        body = request_after_tool_search("CronList")
        body["tools"][2] = {**PLACEHOLDER, **more}
        made = tw.translate(body, ANTHROPIC, ANTHROPIC)
        assert made.value == body
        assert not made.losses


@pytest.mark.parametrize("target", OTHERS)
def test_a_call_of_it_and_a_reference_to_it_stay_in_the_history(target: str) -> None:
    made = translated_body(request_after_tool_search(PLACEHOLDER_NAME, called=PLACEHOLDER_NAME), ANTHROPIC, target)
    assert [call["name"] for call in tool_calls_in(target, made)] == ["ToolSearch", PLACEHOLDER_NAME]
    found, done = tool_results_in(target, made)
    assert PLACEHOLDER_NAME in found[1]
    assert "No jobs." in done[1]
    assert PLACEHOLDER_NAME not in declared_schemas(target, made)


@pytest.mark.parametrize("target", OTHERS)
def test_it_is_no_tool_that_anybody_runs(target: str) -> None:
    """Whoever refuses tools that only another provider runs still wants Claude Code to work."""
    assert list(
        declared_schemas(target, translated_body(request_after_tool_search(), ANTHROPIC, target, hosted_tools="refuse"))
    ) == [
        "ToolSearch",
        "CronList",
    ]
    with pytest.raises(tw.LossyTranslationError, match="placeholder must be called"):
        translated_body(
            request_after_tool_search(tool_choice={"type": "tool", "name": PLACEHOLDER_NAME}), ANTHROPIC, target
        )


@pytest.mark.parametrize("target", OTHERS)
def test_a_tool_of_that_name_which_is_there_from_the_start_is_a_tool(target: str) -> None:
    body = request_after_tool_search("CronList")
    body["tools"][2] = {**PLACEHOLDER, "defer_loading": False}
    assert PLACEHOLDER_NAME in declared_schemas(target, translated_body(body, ANTHROPIC, target))
