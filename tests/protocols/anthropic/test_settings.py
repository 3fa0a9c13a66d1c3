"""Thinking as each generation of models takes it, asked for in another protocol."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import USER_MESSAGE


def encoded(model: str, reasoning: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    made = tw.translate(
        {"model": model, "messages": [USER_MESSAGE], "reasoning": reasoning, **fields}, "openrouter", "anthropic"
    )
    assert [finding for finding in tw.check(made.value, "anthropic") if finding.level == "error"] == []
    return made.value, [(loss.kind, loss.path) for loss in made.losses if loss.path]


def test_a_new_model_decides_itself() -> None:
    body, losses = encoded("claude-opus-4-8", {"enabled": True, "effort": "low"})
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "low"}
    assert losses == []


def test_a_new_model_takes_no_budget() -> None:
    body, losses = encoded("claude-opus-4-8", {"max_tokens": 2048})
    assert body["thinking"] == {"type": "adaptive"}
    assert losses == [("approximated", "/reasoning/max_tokens")]


@pytest.mark.parametrize(("effort", "budget"), [("low", 2000), ("medium", 5000), ("high", 8000)])
def test_an_older_model_is_told_the_effort_as_a_budget(effort: str, budget: int) -> None:
    body, losses = encoded("claude-sonnet-4-5", {"enabled": True, "effort": effort}, max_tokens=10_000)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert "output_config" not in body
    assert losses == [("approximated", "/reasoning/effort"), ("added", "/reasoning/enabled")]


@pytest.mark.parametrize(("budget", "told"), [(10, 1024), (2048, 2048), (9999, 4095)])
def test_a_budget_fits_between_the_least_and_the_limit(budget: int, told: int) -> None:
    body, losses = encoded("claude-sonnet-4-5", {"max_tokens": budget}, max_tokens=4096)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": told}
    assert losses == ([] if told == budget else [("approximated", "/reasoning/max_tokens")])


def test_a_limit_without_room_for_thinking() -> None:
    body, losses = encoded("claude-sonnet-4-5", {"max_tokens": 2048}, max_tokens=1000)
    assert body["thinking"] == {"type": "disabled"}
    assert losses == [("dropped", "/reasoning/max_tokens")]


def test_a_schema_that_the_target_cannot_be_strict_with() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}
    function = {"name": "f", "strict": True, "parameters": schema}
    asked = {"model": "m", "messages": [USER_MESSAGE], "tools": [{"type": "function", "function": function}]}
    made = tw.translate(asked, "openrouter", "anthropic")
    assert made.value["tools"][0]["strict"] is False
    assert [loss.path for loss in made.losses if loss.kind == "approximated"] == ["/tools/0/function/strict"]


@pytest.mark.parametrize(
    ("thinking", "model", "told"),
    [
        ({"type": "enabled", "budget_tokens": 32000}, "claude-opus-5-5", {"type": "adaptive"}),
        ({"type": "enabled", "budget_tokens": 32000}, "claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 31999}),
        ({"type": "adaptive"}, "claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 16000}),
        ({"type": "disabled"}, "claude-sonnet-4-5", {"type": "disabled"}),
    ],
)
def test_under_another_name_thinking_is_asked_for_as_that_model_takes_it(
    thinking: dict[str, Any], model: str, told: dict[str, Any]
) -> None:
    body = {"model": "toolwire", "max_tokens": 32000, "messages": [USER_MESSAGE], "thinking": thinking}
    made = tw.translate(body, "anthropic", "anthropic", model=model)
    assert made.value == {**body, "model": model, "thinking": told}
    assert bool(made.losses) == (told != thinking)
    assert tw.translate(body, "anthropic", "anthropic").value == body
