"""What OpenRouter rejects itself, and that what only an upstream rejects is a warning."""

from typing import Any

import pytest

from tests.support.assertions import non_empty
from toolwire.protocols.openrouter.rules import check_request

ASKED = {"role": "user", "content": "Hi"}


def errors(body: Any) -> list[str]:
    return [finding.rule for finding in check_request(body) if finding.level == "error"]


def test_a_request_with_all_that_it_adds_passes() -> None:
    body = {"messages": [ASKED], "models": ["a/b"], "provider": {"order": ["x"]}, "reasoning": {"effort": "high"}}
    assert errors(body) == []


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "openrouter.effort-twice"),
        ({"reasoning": {"effort": "high", "max_tokens": 2000}}, "openrouter.effort-and-budget"),
    ],
)
def test_reasoning_said_twice_is_refused(body: Any, rule: str) -> None:
    assert errors({"messages": [ASKED], **body}) == [rule]


def test_reasoning_said_twice_alike_is_not() -> None:
    assert errors({"messages": [ASKED], "reasoning_effort": "low", "reasoning": {"effort": "low"}}) == []


def test_a_result_names_its_call() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "x"}]
    assert "openrouter.tool-message-nameless" in errors({"messages": messages})


def test_what_only_an_upstream_refuses_is_a_warning() -> None:
    found = check_request({"model": "openai/gpt-5.2", "messages": [ASKED], "tool_choice": "auto"})
    assert {(finding.rule, finding.level) for finding in found} >= {("openrouter.choice-without-tools", "warning")}


def test_anything_is_checked() -> None:
    bodies: tuple[Any, ...] = (None, [], "x", {}, {"messages": 1}, {"reasoning": []})
    for body in non_empty(bodies):
        assert all(finding.rule.startswith("openrouter.") for finding in check_request(body))
