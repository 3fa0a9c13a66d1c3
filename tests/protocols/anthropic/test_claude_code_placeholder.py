"""Claude Code's placeholder for tools that its own search loads later: only Anthropic receives it."""

import pytest

import toolwire as tw
from tests.support.bodies.readers import declared_schemas, tool_calls_in, tool_results_in
from tests.support.gateway.claude_code import PLACEHOLDER, PLACEHOLDER_NAME, request_after_tool_search
from tests.support.protocols import ALL_PROTOCOLS, ANTHROPIC
from tests.support.translation import loss_kinds, translated_body

OTHERS = [name for name in ALL_PROTOCOLS if name != ANTHROPIC]


@pytest.mark.parametrize("target", OTHERS)
def test_loaded_tools_are_declared_and_placeholder_is_dropped(target: str) -> None:
    body = request_after_tool_search("CronList")
    translated = translated_body(body, ANTHROPIC, target)
    assert list(declared_schemas(target, translated)) == ["ToolSearch", "CronList"]
    assert "CronList" in tool_results_in(target, translated)[0][1]
    losses = {path: kind for path, kind in loss_kinds(body, ANTHROPIC, target).items() if path.startswith("/tools/")}
    assert losses == {"/tools/1/defer_loading": "approximated", "/tools/2": "dropped"}


def test_anthropic_receives_placeholder_unchanged() -> None:
    for fields in ({}, {"type": "custom"}, {"made_up": [1]}):
        body = request_after_tool_search("CronList")
        body["tools"][2] = {**PLACEHOLDER, **fields}
        translation = tw.translate(body, ANTHROPIC, ANTHROPIC)
        assert translation.value == body
        assert not translation.losses


@pytest.mark.parametrize("target", OTHERS)
def test_calls_and_references_of_placeholder_stay_in_history(target: str) -> None:
    translated = translated_body(
        request_after_tool_search(PLACEHOLDER_NAME, called=PLACEHOLDER_NAME), ANTHROPIC, target
    )
    assert [call["name"] for call in tool_calls_in(target, translated)] == ["ToolSearch", PLACEHOLDER_NAME]
    search_result, call_result = tool_results_in(target, translated)
    assert PLACEHOLDER_NAME in search_result[1]
    assert "No jobs." in call_result[1]
    assert PLACEHOLDER_NAME not in declared_schemas(target, translated)


@pytest.mark.parametrize("target", OTHERS)
def test_placeholder_is_not_a_hosted_tool(target: str) -> None:
    """With `hosted_tools="refuse"`, Claude Code must still work."""
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
def test_placeholder_name_without_defer_loading_is_a_regular_tool(target: str) -> None:
    body = request_after_tool_search("CronList")
    body["tools"][2] = {**PLACEHOLDER, "defer_loading": False}
    assert PLACEHOLDER_NAME in declared_schemas(target, translated_body(body, ANTHROPIC, target))
