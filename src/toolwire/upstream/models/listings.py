"""Providers' model lists: where to request a list or an entry of it, and the names and facts in them.

Every field is optional, and one of an unexpected type is ignored. Servers that speak Chat Completions describe their
models in different words: vLLM `max_model_len`, Groq `context_window`, Together `context_length`.
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo, Prices

_PATHS = {
    "anthropic": "/v1/models/{}",
    "openai-chat": "/v1/models/{}",
    "openai-responses": "/v1/models/{}",
    "gemini": "/v1beta/models/{}",
    "gemini-interactions": "/v1beta/models/{}",
    "ollama": "/api/show",
    "openrouter": "/api/v1/model/{}",
}
# Without a size, Anthropic and Google send pages of 20 and 50 models.
_LIST_PATHS = {
    "anthropic": "/v1/models?limit=1000",
    "openai-chat": "/v1/models",
    "openai-responses": "/v1/models",
    "gemini": "/v1beta/models?pageSize=1000",
    "gemini-interactions": "/v1beta/models?pageSize=1000",
    "ollama": "/api/tags",
    "openrouter": "/api/v1/models",
}
LIMIT_NAME = 256
"""Longer names of models are ignored."""

LIMIT_MODELS = 5_000
"""Models of one list beyond this number are ignored."""

_CONTEXT_NAMES = ("max_model_len", "context_window", "context_length", "max_context_length")
_OUTPUT_NAMES = ("max_completion_tokens", "max_output_tokens")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,15})\s*$", re.MULTILINE)
_LIMIT_COUNT = 2**53

JsonObject = dict[str, Any]


def model_path(protocol: str, model: str) -> str | None:
    """Return the path of one model's entry; None for a name that would lead to another path."""
    if not all(segment.strip(".") for segment in model.split("/")):
        return None
    return _PATHS[protocol].format(quote(model, safe="/:", errors="replace"))


def list_path(protocol: str) -> str:
    """Return the path of the list of models, with its query."""
    return _LIST_PATHS[protocol]


def read_list(protocol: str, data: bytes) -> dict[str, ModelInfo] | None:
    """Return the facts about each model in a list, by name; None if it is no list of models."""
    try:
        listing = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # Together AI sends the array alone.
    entries = listing.get("data", listing.get("models")) if isinstance(listing, dict) else listing
    if not isinstance(entries, list):
        return None
    models: dict[str, ModelInfo] = {}
    for entry in entries:
        if len(models) == LIMIT_MODELS:
            break
        if isinstance(entry, dict) and (name := _entry_name(entry)) is not None:
            models.setdefault(name, _READERS[protocol](entry))
    return models


def _entry_name(entry: JsonObject) -> str | None:
    """Return the name of a model in a list; None if there is none that a request could use."""
    # The `name` of other lists than Google's and Ollama's is one for people.
    name = entry.get("id", entry.get("name", entry.get("model")))
    if not isinstance(name, str) or not 0 < len(name) <= LIMIT_NAME or not name.isprintable():
        return None
    return name.removeprefix("models/") or None


def read_entry(protocol: str, data: bytes) -> ModelInfo:
    """Return the facts in a model's entry; all are unknown if it can't be read."""
    try:
        entry = msgspec.json.decode(data, type=JsonObject)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return UNKNOWN_MODEL
    return _READERS[protocol](entry)


def preset_context(data: bytes) -> int | None:
    """Return the `num_ctx` that the parameters of an Ollama model set, in a response of `/api/show`."""
    try:
        parameters = msgspec.json.decode(data, type=JsonObject).get("parameters")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    match = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return None if match is None else _count(int(match[1]))


def _read_anthropic(entry: JsonObject) -> ModelInfo:
    """Read an entry of `/v1/models`, whose `capabilities` say what is `supported`."""
    thinks = _supports(entry, "thinking")
    adaptive = _supports(entry, "thinking", "types", "adaptive")
    has_budget = _supports(entry, "thinking", "types", "enabled")
    efforts = tuple(level for level in _EFFORTS if _supports(entry, "effort", level))
    has_effort = _supports(entry, "effort")
    return ModelInfo(
        context=_count(entry.get("max_input_tokens")),
        output=_count(entry.get("max_tokens")),
        thinking=None if thinks is None else "optional" if thinks else "never",
        adaptive=adaptive,
        efforts=None if has_effort is None else efforts,
        budget=() if has_budget is False else None,
        vision=_supports(entry, "image_input"),
    )


def _supports(entry: JsonObject, *names: str) -> bool | None:
    """Return whether a capability is supported; None if the entry does not say."""
    value: Any = entry.get("capabilities")
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    supported = value.get("supported") if isinstance(value, dict) else None
    return supported if isinstance(supported, bool) else None


def _read_chat(entry: JsonObject) -> ModelInfo:
    """Read an entry of `/v1/models` of OpenAI, or of a compatible server."""
    capabilities = entry.get("capabilities")
    features = capabilities if isinstance(capabilities, dict) else {}
    return ModelInfo(
        context=_first_count(entry, _CONTEXT_NAMES),
        output=_first_count(entry, _OUTPUT_NAMES),
        vision=_flag(features.get("vision")),
        tools=_flag(features.get("function_calling")),
    )


def _read_gemini(entry: JsonObject) -> ModelInfo:
    """Read an entry of `/v1beta/models`."""
    thinks = _flag(entry.get("thinking"))
    return ModelInfo(
        context=_count(entry.get("inputTokenLimit")),
        output=_count(entry.get("outputTokenLimit")),
        thinking="never" if thinks is False else None,
    )


def _read_ollama(entry: JsonObject) -> ModelInfo:
    """Read a response of `/api/show`; servers before 0.6.4 list no capabilities."""
    details, facts = entry.get("details"), entry.get("model_info")
    contexts = (
        [value for name, value in facts.items() if name.endswith(".context_length")] if isinstance(facts, dict) else []
    )
    capabilities = entry.get("capabilities")
    if not isinstance(capabilities, list) or not capabilities:
        return ModelInfo(context=_count(contexts[0] if contexts else None))
    family = details.get("family") if isinstance(details, dict) else None
    return ModelInfo(
        context=_count(contexts[0] if contexts else None),
        thinking="optional" if "thinking" in capabilities else "never",
        # Only the gpt-oss models have levels; the others accept true and false.
        efforts=("low", "medium", "high") if family == "gptoss" else (),
        vision="vision" in capabilities,
        audio=True if "audio" in capabilities else None,
        tools="tools" in capabilities,
    )


def _read_openrouter(entry: JsonObject) -> ModelInfo:
    """Read one model of `/api/v1/models`, possibly inside `data`."""
    data = entry.get("data")
    model = data if isinstance(data, dict) else entry
    provider, architecture = model.get("top_provider"), model.get("architecture")
    parameters = model.get("supported_parameters")
    modalities = architecture.get("input_modalities") if isinstance(architecture, dict) else None
    return ModelInfo(
        context=_count(model.get("context_length")),
        output=_count(provider.get("max_completion_tokens")) if isinstance(provider, dict) else None,
        thinking="never" if isinstance(parameters, list) and "reasoning" not in parameters else None,
        vision="image" in modalities if isinstance(modalities, list) else None,
        tools="tools" in parameters if isinstance(parameters, list) else None,
        prices=_read_openrouter_prices(model.get("pricing")),
    )


def _read_openrouter_prices(pricing: Any) -> Prices | None:
    """Read prices, which OpenRouter states as text in dollars per token and per search."""
    if not isinstance(pricing, dict):
        return None
    names = {"input": "prompt", "output": "completion", "cache_read": "input_cache_read"}
    names |= {"cache_write": "input_cache_write", "searches": "web_search"}
    try:
        values = {name: float(pricing[key]) for name, key in names.items() if key in pricing}
    except (TypeError, ValueError, OverflowError):
        return None
    if not {"input", "output"} <= values.keys() or not all(0 <= value < 1 for value in values.values()):
        return None
    scaled = {name: round(value * (1000 if name == "searches" else 1_000_000), 6) for name, value in values.items()}
    return Prices(**scaled)  # type: ignore[arg-type]


def _flag(value: Any) -> bool | None:
    """Return a boolean, or None for anything else."""
    return value if isinstance(value, bool) else None


def _count(value: Any) -> int | None:
    """Return a positive integer; None for any other value, or a number too large for a model."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LIMIT_COUNT else None


def _first_count(entry: JsonObject, names: tuple[str, ...]) -> int | None:
    """Return the first of these fields that is a positive integer."""
    return next((count for name in names if (count := _count(entry.get(name))) is not None), None)


_READERS: dict[str, Callable[[JsonObject], ModelInfo]] = {
    "anthropic": _read_anthropic,
    "openai-chat": _read_chat,
    "openai-responses": _read_chat,
    "gemini": _read_gemini,
    "gemini-interactions": _read_gemini,
    "ollama": _read_ollama,
    "openrouter": _read_openrouter,
}
