"""Rules of OpenRouter itself; rules of upstreams only give warnings."""

from typing import Any

import pytest

from tests.support.assertions import non_empty
from toolwire.protocols.openrouter.rules import check_request

USER_MESSAGE = {"role": "user", "content": "Hi"}


def error_rules(body: Any) -> list[str]:
    return [finding.rule for finding in check_request(body) if finding.level == "error"]


def test_request_with_openrouter_fields_passes() -> None:
    body = {
        "messages": [USER_MESSAGE],
        "models": ["a/b"],
        "provider": {"order": ["x"]},
        "reasoning": {"effort": "high"},
    }
    assert error_rules(body) == []


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "openrouter.effort-twice"),
        ({"reasoning": {"effort": "high", "max_tokens": 2000}}, "openrouter.effort-and-budget"),
    ],
)
def test_conflicting_reasoning_settings_are_rejected(body: Any, rule: str) -> None:
    assert error_rules({"messages": [USER_MESSAGE], **body}) == [rule]


def test_repeated_equal_effort_is_accepted() -> None:
    assert error_rules({"messages": [USER_MESSAGE], "reasoning_effort": "low", "reasoning": {"effort": "low"}}) == []


def test_tool_message_requires_a_tool_call_id() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        USER_MESSAGE,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "x"},
    ]
    assert "openrouter.tool-message-nameless" in error_rules({"messages": messages})


def test_upstream_rules_are_warnings() -> None:
    findings = check_request({"model": "openai/gpt-5.2", "messages": [USER_MESSAGE], "tool_choice": "auto"})
    assert {(finding.rule, finding.level) for finding in findings} >= {("openrouter.choice-without-tools", "warning")}


def test_malformed_bodies_are_checked() -> None:
    bodies: tuple[Any, ...] = (None, [], "x", {}, {"messages": 1}, {"reasoning": []})
    for body in non_empty(bodies):
        assert all(finding.rule.startswith("openrouter.") for finding in check_request(body))
