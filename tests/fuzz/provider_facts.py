"""Facts that providers state outside of bodies: entries of model lists, and how long to wait after an error."""

import json
import math

from tests.fuzz.engine import Target
from tests.fuzz.mutations import TOKENS
from toolwire.canonical.errors import ApiError
from toolwire.gateway.errors import encode_retry_after, read_retry_after
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.models.listings import preset_context, read_entry, read_list

_ENTRIES = (
    {
        "id": "claude-sonnet-4-5",
        "max_input_tokens": 200_000,
        "max_tokens": 64_000,
        "capabilities": {
            "thinking": {"supported": True, "types": {"adaptive": {"supported": True}}},
            "effort": {"supported": True, "low": {"supported": True}, "high": {"supported": True}},
            "image_input": {"supported": True},
        },
    },
    {"id": "m", "max_model_len": 32_768, "capabilities": {"vision": True, "function_calling": True}},
    {"name": "models/gemini", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536, "thinking": True},
    {
        "details": {"family": "gptoss"},
        "model_info": {"gptoss.context_length": 131_072},
        "capabilities": ["completion", "tools", "thinking"],
        "parameters": 'stop "<|end|>"\nnum_ctx                        8192\ntemperature 1',
    },
    {
        "data": {
            "context_length": 200_000,
            "top_provider": {"max_completion_tokens": 64_000},
            "architecture": {"input_modalities": ["text", "image"]},
            "supported_parameters": ["tools", "reasoning"],
            "pricing": {"prompt": "0.000003", "completion": "0.000015", "web_search": "0.01"},
        }
    },
    {"models": [{"name": "qwen3:8b"}, {"name": "llama3.2"}]},
)


_LONG_NUMBERS = (b"9" * 400, b"9" * 5_000)
_ENTRY_TOKENS = (*TOKENS, *_LONG_NUMBERS)


def _check_entry(data: bytes) -> None:
    for protocol in PROTOCOLS:
        info = read_entry(protocol, data)
        for count in (info.context, info.output, preset_context(data)):
            assert count is None or 0 < count < 2**53, count
        if info.prices is not None:
            assert math.isfinite(info.prices.input), info.prices
        assert all(isinstance(name, str) for name in read_list(protocol, data) or ())


_DELAYS = (
    b"5",
    b"0.25",
    b"Wed, 21 Oct 2026 07:28:00 GMT",
    b"Sunday, 06-Nov-94 08:49:37 GMT",
    b"Sun Nov  6 08:49:37 1994",
)
_DELAY_TOKENS = (
    *(b"9" * 400, b"-", b"inf", b"nan", b"1e308", b"1_000", b" ", b",", b"+9999", b"-2400", b"GMT", b"EST", b"Feb"),
    *(b"99999", b"\xb2", b"0x1", b"\x00", b"\xff"),
)


def _check_delay(data: bytes) -> None:
    text = data.decode("latin-1")
    for name in ("retry-after", "retry-after-ms"):
        seconds = read_retry_after({name: text})
        assert seconds is None or 0 <= seconds < math.inf, seconds
        encoded = encode_retry_after(ApiError(kind="rate_limit", message="", retry_after=seconds))
        assert encoded is None or 0 <= int(encoded) < 2**31, encoded


TARGETS = [
    Target("model-entries", lambda: [json.dumps(entry).encode() for entry in _ENTRIES], _check_entry, _ENTRY_TOKENS),
    Target("retry-after", lambda: list(_DELAYS), _check_delay, _DELAY_TOKENS),
]
