"""Thinking settings of other protocols, for each generation of Claude models."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import USER_MESSAGE


def encoded(model: str, reasoning: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    translation = tw.translate(
        {"model": model, "messages": [USER_MESSAGE], "reasoning": reasoning, **fields}, "openrouter", "anthropic"
    )
    assert [finding for finding in tw.check(translation.value, "anthropic") if finding.level == "error"] == []
    return translation.value, [(loss.kind, loss.path) for loss in translation.losses if loss.path]


def test_new_model_thinks_adaptively() -> None:
    body, losses = encoded("claude-opus-4-8", {"enabled": True, "effort": "low"})
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "low"}
    assert losses == []


def test_budget_is_dropped_for_new_model() -> None:
    body, losses = encoded("claude-opus-4-8", {"max_tokens": 2048})
    assert body["thinking"] == {"type": "adaptive"}
    assert losses == [("approximated", "/reasoning/max_tokens")]


@pytest.mark.parametrize(("effort", "budget"), [("low", 2000), ("medium", 5000), ("high", 8000)])
def test_effort_becomes_budget_for_older_model(effort: str, budget: int) -> None:
    body, losses = encoded("claude-sonnet-4-5", {"enabled": True, "effort": effort}, max_tokens=10_000)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert "output_config" not in body
    assert losses == [("added", "/reasoning/enabled"), ("approximated", "/reasoning/effort")]


@pytest.mark.parametrize(("budget", "sent"), [(10, 1024), (2048, 2048), (9999, 4095)])
def test_budget_is_clamped_between_minimum_and_limit(budget: int, sent: int) -> None:
    body, losses = encoded("claude-sonnet-4-5", {"max_tokens": budget}, max_tokens=4096)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": sent}
    assert losses == ([] if sent == budget else [("approximated", "/reasoning/max_tokens")])


def test_thinking_is_disabled_if_limit_leaves_no_room() -> None:
    body, losses = encoded("claude-sonnet-4-5", {"max_tokens": 2048}, max_tokens=1000)
    assert body["thinking"] == {"type": "disabled"}
    assert losses == [("dropped", "/reasoning/max_tokens")]


def test_strict_is_dropped_for_unsupported_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}
    function = {"name": "f", "strict": True, "parameters": schema}
    request = {"model": "m", "messages": [USER_MESSAGE], "tools": [{"type": "function", "function": function}]}
    translation = tw.translate(request, "openrouter", "anthropic")
    assert translation.value["tools"][0]["strict"] is False
    assert [loss.path for loss in translation.losses if loss.kind == "approximated"] == ["/tools/0/function/strict"]


@pytest.mark.parametrize(
    ("thinking", "model", "sent"),
    [
        ({"type": "enabled", "budget_tokens": 32000}, "claude-opus-5-5", {"type": "adaptive"}),
        ({"type": "enabled", "budget_tokens": 32000}, "claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 31999}),
        ({"type": "adaptive"}, "claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 16000}),
        ({"type": "disabled"}, "claude-sonnet-4-5", {"type": "disabled"}),
    ],
)
def test_thinking_is_adapted_to_the_routed_model(thinking: dict[str, Any], model: str, sent: dict[str, Any]) -> None:
    body = {"model": "toolwire", "max_tokens": 32000, "messages": [USER_MESSAGE], "thinking": thinking}
    translation = tw.translate(body, "anthropic", "anthropic", model=model)
    assert translation.value == {**body, "model": model, "thinking": sent}
    assert bool(translation.losses) == (sent != thinking)
    assert tw.translate(body, "anthropic", "anthropic").value == body
