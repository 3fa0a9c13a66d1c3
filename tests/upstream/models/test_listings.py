"""Entries of providers' model lists."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo, Prices
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.models.listings import model_path, preset_context, read_entry

YES, NO = {"supported": True}, {"supported": False}
CLAUDE = {
    "id": "claude-next",
    "max_input_tokens": 1_000_000,
    "max_tokens": 128_000,
    "capabilities": {
        "image_input": YES,
        "thinking": {**YES, "types": {"adaptive": YES, "enabled": NO}},
        "effort": {**YES, "low": YES, "medium": YES, "high": YES, "max": NO, "xhigh": None},
    },
}
OPENROUTER = {
    "data": {
        "context_length": 200_000,
        "top_provider": {"max_completion_tokens": 64_000},
        "architecture": {"input_modalities": ["text", "image"]},
        "supported_parameters": ["tools", "temperature"],
        "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"},
    }
}
QWEN = {
    "capabilities": ["completion", "tools", "thinking"],
    "details": {"family": "qwen3"},
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960},
}


@pytest.mark.parametrize(
    ("protocol", "entry", "info"),
    [
        (
            "anthropic",
            CLAUDE,
            ModelInfo(
                context=1_000_000,
                output=128_000,
                thinking="optional",
                adaptive=True,
                efforts=("low", "medium", "high"),
                budget=(),
                vision=True,
            ),
        ),
        ("openai-chat", {"id": "gpt-4o", "object": "model"}, UNKNOWN_MODEL),
        ("openai-chat", {"max_model_len": 32_768}, ModelInfo(context=32_768)),
        (
            "openai-chat",
            {"context_window": 131_072, "max_completion_tokens": 8192},
            ModelInfo(context=131_072, output=8192),
        ),
        (
            "openai-chat",
            {"max_context_length": 131_072, "capabilities": {"vision": False, "function_calling": True}},
            ModelInfo(context=131_072, vision=False, tools=True),
        ),
        (
            "gemini",
            {"inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536, "thinking": True},
            ModelInfo(context=1_048_576, output=65_536),
        ),
        ("gemini", {"thinking": False}, ModelInfo(thinking="never")),
        ("ollama", QWEN, ModelInfo(context=40_960, thinking="optional", efforts=(), vision=False, tools=True)),
        (
            "ollama",
            {"capabilities": ["thinking"], "details": {"family": "gptoss"}},
            ModelInfo(thinking="optional", efforts=("low", "medium", "high"), vision=False, tools=False),
        ),
        ("ollama", {"details": {"family": "llama"}, "model_info": {"llama.context_length": 8}}, ModelInfo(context=8)),
        (
            "openrouter",
            OPENROUTER,
            ModelInfo(
                context=200_000,
                output=64_000,
                thinking="never",
                vision=True,
                tools=True,
                prices=Prices(input=3, output=15, cache_read=0.3),
            ),
        ),
    ],
)
def test_entry_states_facts(protocol: str, entry: Any, info: ModelInfo) -> None:
    assert read_entry(protocol, json.dumps(entry).encode()) == info


def test_parameters_of_an_ollama_model_set_its_context() -> None:
    assert preset_context(json.dumps({"parameters": 'stop "<|end|>"\nnum_ctx    65536\ntop_k 20'}).encode()) == 65_536
    assert preset_context(b'{"parameters": "top_k 20"}') is None
    assert preset_context(b"[") is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_name_is_escaped_in_the_path(protocol: str) -> None:
    path = model_path(protocol, "a?b#c d\ud800")
    assert path is not None
    assert not set("?# ").intersection(path)


@pytest.mark.parametrize("name", ["..", "../files", "a/../../files", "a//b", "./a", "a/.", ""])
def test_name_that_leads_to_another_path_is_not_asked_for(name: str) -> None:
    assert model_path("openai-chat", name) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = [
    *("capabilities", "details", "model_info", "data", "pricing", "top_provider", "architecture", "thinking"),
    *("supported_parameters", "max_tokens", "context_length", "parameters", "effort", "family", "prompt", "completion"),
]


@given(entry=st.dictionaries(st.sampled_from(NAMES), VALUES | st.dictionaries(st.sampled_from(NAMES), VALUES)))
def test_any_entry_can_be_read(entry: Any) -> None:
    data = json.dumps(entry).encode()
    for protocol in PROTOCOLS:
        assert isinstance(read_entry(protocol, data), ModelInfo)
    preset_context(data)


@pytest.mark.parametrize("digits", [16, 400, 5_000])
def test_long_numbers_state_nothing(digits: int) -> None:
    number = b"9" * digits
    assert preset_context(b'{"parameters": "num_ctx %b"}' % number) is None
    assert read_entry("openai-chat", b'{"max_model_len": %b}' % number) == UNKNOWN_MODEL
    assert read_entry("openrouter", b'{"pricing": {"prompt": %b, "completion": "0.1"}}' % number) == UNKNOWN_MODEL


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"a":' * 5000, b"null"])
def test_other_data_states_nothing(data: bytes) -> None:
    assert read_entry("openai-chat", data) is UNKNOWN_MODEL
