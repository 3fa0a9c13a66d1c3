"""Facts that a model's name tells."""

from typing import Any

import pytest

from toolwire.codec.models.info import UNKNOWN_MODEL
from toolwire.codec.models.names import base_model_name, known_model, named_model


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("claude-3-opus-20240229", {"output": 4096, "thinking": "never", "sampling": True}),
        ("anthropic/claude-3.5-sonnet", {"output": 8192, "thinking": "never"}),
        ("claude-3-7-sonnet-20250219", {"thinking": "optional", "adaptive": False, "efforts": ()}),
        ("claude-opus-4-20250514", {"output": 32_000, "budget": (1024, 32_000)}),
        ("claude-sonnet-4-5", {"output": 64_000, "context": 200_000, "efforts": (), "sampling": True}),
        ("claude-opus-4-5-20251101", {"efforts": ("high", "low", "medium"), "adaptive": False}),
        ("claude-opus-4-7", {"adaptive": True, "budget": (), "sampling": False, "efforts": None}),
        ("gemini-2.0-flash", {"output": 8192, "thinking": "never"}),
        ("gemini-2.5-pro", {"thinking": "always", "budget": (128, 32_768), "efforts": ()}),
        ("gemini-2.5-flash-lite", {"thinking": "optional", "budget": (512, 24_576)}),
        ("models/gemini-3-pro-preview", {"thinking": "always", "budget": (), "efforts": None}),
        ("gemini-10-pro", {"thinking": "always"}),
        ("gpt-4o", {"output": 16_384, "thinking": "never", "efforts": ()}),
        ("gpt-4o-2024-05-13", {"output": 4096}),
        ("openai/gpt-4.1-mini", {"output": 32_768}),
        ("o3-mini", {"output": 100_000, "efforts": ("low", "medium", "high"), "sampling": False}),
        ("gpt-5", {"output": 128_000, "efforts": ("minimal", "low", "medium", "high"), "sampling": False}),
        ("gpt-5.5", {"efforts": None, "sampling": None}),
    ],
)
def test_name_tells_facts(name: str, facts: dict[str, Any]) -> None:
    info = known_model(name)
    assert {fact: getattr(info, fact) for fact in facts} == facts


@pytest.mark.parametrize("name", ["", "gpt-oss:20b", "llama-3.3-70b", "qwen3:8b", "deepseek-chat", "claude"])
def test_nothing_is_known_about_other_names(name: str) -> None:
    assert known_model(name) is UNKNOWN_MODEL


def test_name_of_another_vendor_is_an_alias() -> None:
    assert named_model("anthropic", "gpt-4o") is UNKNOWN_MODEL
    assert named_model("ollama", "gpt-4o") is UNKNOWN_MODEL
    assert named_model("openrouter", "openai/gpt-4o").output == 16_384


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("claude-opus-4-5", "claude-opus-4-5"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("anthropic/Claude-Opus-4.5", "claude-opus-4.5"),
        ("gpt-5.4-mini-2026-01-02", "gpt-5.4-mini"),
        ("models/gemini-3-pro-preview", "gemini-3-pro"),
        ("gemini-2.5-flash-preview-05-20", "gemini-2.5-flash"),
        ("qwen3:latest", "qwen3:latest"),
        ("-latest", "-latest"),
        ("", ""),
    ],
)
def test_base_name_has_no_vendor_and_no_snapshot(name: str, base: str) -> None:
    assert base_model_name(name) == base


@pytest.mark.parametrize("piece", ["a", "-latest", "anthropic.", "/", "-v1", "-v1:1", "@20251101"])
def test_base_name_of_a_long_name_takes_linear_work(piece: str) -> None:
    for size in (100_000, 100_001):  # quadratic work would take minutes
        base_model_name("x" + piece * (size // len(piece)))
