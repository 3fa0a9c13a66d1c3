"""Requests are fitted to what the target's model accepts, and every change is reported."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import USER_MESSAGE

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic", "openai-chat", "openai-responses", "gemini"
BUDGET: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
NO_THINKING: dict[str, Any] = {"thinking": {"type": "disabled"}}


def translate(target: str, model: str, source: str = ANTHROPIC, **fields: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the translated body, and the kinds and paths of losses apart from added values."""
    body = {"model": "m", "messages": [USER_MESSAGE], **fields}
    translation = tw.translate(body, source, target, model=model, version="2023-06-01")
    value = translation.value
    errors = [finding for finding in tw.check(value, target, model=model) if finding.level == "error"]
    assert errors == []
    return value, {f"{loss.kind} {loss.path}" for loss in translation.losses if loss.kind != "added"}


@pytest.mark.parametrize(
    ("target", "model", "place", "limit"),
    [
        (CHAT, "gpt-4o", ("max_completion_tokens",), 16_384),
        (RESPONSES, "gpt-4.1", ("max_output_tokens",), 32_768),
        (GEMINI, "gemini-2.0-flash", ("generationConfig", "maxOutputTokens"), 8192),
        ("gemini-interactions", "gemini-3-pro", ("generation_config", "max_output_tokens"), 65_536),
    ],
)
def test_output_limit_is_lowered_to_that_of_the_model(
    target: str, model: str, place: tuple[str, ...], limit: int
) -> None:
    for wanted in (limit, 100_000):
        value, losses = translate(target, model, max_tokens=wanted)
        *outer, name = place
        sent = value[outer[0]] if outer else value
        assert sent[name] == limit
        assert losses == (set() if wanted == limit else {"approximated /max_tokens"})


def test_output_limit_of_claude_is_lowered() -> None:
    value, losses = translate(ANTHROPIC, "claude-3-5-haiku-latest", CHAT, max_tokens=32_000)
    assert (value["max_tokens"], losses) == (8192, {"approximated /max_tokens"})
    assert translate(ANTHROPIC, "claude-3-opus-20240229", CHAT)[0]["max_tokens"] == 4096


@pytest.mark.parametrize(
    ("target", "model"),
    [(CHAT, "gpt-4o"), (RESPONSES, "gpt-4o"), (GEMINI, "gemini-2.0-flash")],
)
def test_model_without_thinking_gets_none(target: str, model: str) -> None:
    value, losses = translate(target, model, max_tokens=4000, **BUDGET)
    assert not {"reasoning", "reasoning_effort"} & value.keys()
    assert "thinkingConfig" not in value.get("generationConfig", {})
    assert losses == {"dropped /thinking/type", "dropped /thinking/budget_tokens"}


def test_claude_without_thinking_gets_none() -> None:
    value, losses = translate(ANTHROPIC, "claude-3-5-sonnet-latest", CHAT, reasoning_effort="high")
    assert not {"thinking", "output_config"} & value.keys()
    assert losses == {"dropped /reasoning_effort"}


@pytest.mark.parametrize(
    ("model", "fields", "thinking", "lost"),
    [
        ("gemini-2.5-pro", NO_THINKING, {"thinkingBudget": 128}, {"approximated /thinking/type"}),
        ("gemini-2.5-flash", NO_THINKING, {"thinkingBudget": 0}, set()),
        ("gemini-3-pro", NO_THINKING, {"thinkingLevel": "LOW"}, {"approximated /thinking/type"}),
        ("gemini-2.5-flash-lite", BUDGET, {"thinkingBudget": 2000, "includeThoughts": True}, set()),
        (
            "gemini-2.5-flash",
            {"thinking": {"type": "enabled", "budget_tokens": 30_000}},
            {"thinkingBudget": 24_576, "includeThoughts": True},
            {"approximated /thinking/budget_tokens"},
        ),
    ],
)
def test_thinking_of_gemini_stays_in_the_range_of_the_model(
    model: str, fields: Any, thinking: Any, lost: set[str]
) -> None:
    value, losses = translate(GEMINI, model, max_tokens=40_000, **fields)
    assert value["generationConfig"]["thinkingConfig"] == thinking
    assert losses == lost


def test_gemini_gets_at_most_five_stop_sequences() -> None:
    value, losses = translate(GEMINI, "gemini-3-pro", max_tokens=100, stop_sequences=list("abcdefg"))
    assert value["generationConfig"]["stopSequences"] == list("abcde")
    assert losses == {"dropped /stop_sequences/5", "dropped /stop_sequences/6"}


@pytest.mark.parametrize(
    ("target", "model", "effort", "sent"),
    [(CHAT, "o3-mini", "xhigh", "high"), (RESPONSES, "gpt-5", "max", "high"), (RESPONSES, "gpt-5.5", "xhigh", "xhigh")],
)
def test_effort_is_the_nearest_of_the_model(target: str, model: str, effort: str, sent: str) -> None:
    value, losses = translate(target, model, max_tokens=4000, output_config={"effort": effort})
    assert (value.get("reasoning_effort") or value["reasoning"]["effort"]) == sent
    assert losses == (set() if effort == sent else {"approximated /output_config/effort"})


@pytest.mark.parametrize(("target", "model"), [(CHAT, "gpt-5-mini"), (RESPONSES, "o3")])
def test_sampling_is_dropped_for_models_without_it(target: str, model: str) -> None:
    value, losses = translate(target, model, max_tokens=100, temperature=0.2, top_p=1)
    assert "temperature" not in value
    assert value["top_p"] == 1
    assert losses == {"dropped /temperature"}


@pytest.mark.parametrize(("model", "effort", "is_sent"), [("gpt-6", "high", False), ("gpt-6", "none", True)])
@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_sampling_is_dropped_while_newer_models_reason(target: str, model: str, effort: str, is_sent: bool) -> None:
    fields: dict[str, Any] = {"max_tokens": 100, "temperature": 0.2, "output_config": {"effort": effort}}
    value, losses = translate(target, model, **fields)
    assert ("temperature" in value) is is_sent
    assert losses == (set() if is_sent else {"dropped /temperature"})
    found = [finding.rule for finding in tw.check(value | {"temperature": 0.2}, target)]
    assert found == ([] if is_sent else [f"{target}.sampling-model"])


@pytest.mark.parametrize(
    ("model", "fields", "sent", "lost"),
    [
        ("claude-sonnet-4-0", {"temperature": 0.2, "top_p": 0.5}, {"temperature": 0.2, "top_p": 0.5}, set()),
        ("claude-sonnet-4-5", {"temperature": 0.2, "top_p": 0.5}, {"temperature": 0.2}, {"dropped /top_p"}),
        ("claude-sonnet-4-5", {"temperature": 1.7}, {"temperature": 1}, {"approximated /temperature"}),
        ("claude-opus-4-7", {"temperature": 0.2}, {}, {"dropped /temperature"}),
        (
            "claude-sonnet-4-0",
            {"top_p": 0.97, "reasoning_effort": "high"},
            {"top_p": 0.97},
            {"approximated /reasoning_effort"},
        ),
        (
            "claude-sonnet-4-0",
            {"top_p": 0.5, "reasoning_effort": "high"},
            {},
            {"dropped /top_p", "approximated /reasoning_effort"},
        ),
    ],
)
def test_claude_gets_the_sampling_that_it_accepts(model: str, fields: Any, sent: Any, lost: set[str]) -> None:
    value, losses = translate(ANTHROPIC, model, CHAT, **fields)
    assert {name: value[name] for name in ("temperature", "top_p", "top_k") if name in value} == sent
    assert losses == lost
