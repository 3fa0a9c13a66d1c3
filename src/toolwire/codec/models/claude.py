"""Facts about Claude models, by name. For an unknown name no fact is known, and no rule applies."""

import re
from functools import lru_cache

from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo

ModelVersion = tuple[str, tuple[int, int]]
"""Family and generation. An unknown name is `("", (0, 0))`, for which no model-specific rule applies."""

MIN_BUDGET = 1024
"""The least `budget_tokens`, for every model with a thinking budget."""

_MODEL = re.compile(
    r"claude-(?:(\d)[-.](?:(\d)-)?)?(opus|sonnet|haiku|fable|mythos)(?:-(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?)?"
)
_EFFORTS = {
    ("opus", (4, 5)): ("high", "low", "medium"),
    ("opus", (4, 6)): ("high", "low", "max", "medium"),
    ("sonnet", (4, 6)): ("high", "low", "max", "medium"),
}
# Greatest `max_tokens` of the generations up to 4.5, where families of one generation agree. The model data of litellm
# has the same ones.
_OUTPUT_LIMITS = {(3, 0): 4096, (3, 5): 8192, (3, 7): 64_000, (4, 0): 64_000, (4, 1): 32_000, (4, 5): 64_000}
_UNFORCEABLE_MODELS = {("opus", (5, 5)), ("sonnet", (5, 5)), ("fable", (5, 1)), ("mythos", (5, 1))}


def model_version(model: str) -> ModelVersion:
    """Parse family and generation from a model name."""
    match = _MODEL.search(model)
    if match is None:
        return "", (0, 0)
    return match[3], (int(match[1] or match[4] or 0), int(match[2] or match[5] or 0))


@lru_cache(maxsize=256)
def claude_info(model: str) -> ModelInfo:
    """Return the facts about a Claude model; all are unknown for another name."""
    version = model_version(model)
    generation = version[1]
    if generation == (0, 0):
        return UNKNOWN_MODEL
    output = 32_000 if version == ("opus", (4, 0)) else _OUTPUT_LIMITS.get(generation)
    thinks = generation >= (3, 7)
    return ModelInfo(
        context=200_000 if generation <= (4, 5) else None,
        output=output,
        thinking="optional" if thinks else "never",
        adaptive=generation >= (4, 6),
        efforts=_EFFORTS.get(version, () if generation < (4, 6) else None),
        budget=(MIN_BUDGET, output or 128_000) if thinks and generation < (4, 7) else (),
        sampling=generation < (4, 7),
        vision=True,
        tools=True,
        structured_output="never" if refuses_strict(model) else "always",
    )


def refuses_prefill(model: str) -> bool:
    """Tell whether the model rejects prefill, so that a conversation must end with a user message."""
    return model_version(model)[1] >= (4, 6)


def refuses_forced_choice(model: str) -> bool:
    """Tell whether the model rejects a tool choice that forces a call."""
    return model_version(model) in _UNFORCEABLE_MODELS or "mythos-preview" in model


def refuses_strict(model: str) -> bool:
    """Tell whether the model lacks strict tool schemas: those before 4.5, except Opus 4.1."""
    version = model_version(model)
    return (0, 0) < version[1] < (4, 5) and version != ("opus", (4, 1))


def refuses_system_messages(model: str) -> bool:
    """Tell whether the model rejects system messages within a conversation."""
    version = model_version(model)
    return (0, 0) < version[1] < (4, 8) or version == ("sonnet", (5, 0))


def refuses_temperature_with_top_p(model: str) -> bool:
    """Tell whether the model accepts `temperature` or `top_p`, but not both: from 4.1 on."""
    return model_version(model)[1] >= (4, 1)


def knows_bash(model: str) -> bool:
    """Tell whether the model has Anthropic's `bash` tool (`bash_20250124`): Claude Sonnet 3.7, and Claude 4 and later.

    platform.claude.com/docs/en/agents-and-tools/tool-use/bash-tool, "model compatibility".
    """
    return model_version(model)[1] >= (3, 7)


def knows_text_editor(model: str) -> bool:
    """Tell whether the model has Anthropic's text editor (`text_editor_20250728`): Claude 4 and later.

    platform.claude.com/docs/en/agents-and-tools/tool-use/text-editor-tool, "model compatibility".
    """
    return model_version(model)[1] >= (4, 0)


def lacks_tool_search(model: str) -> bool:
    """Tell whether the model lacks the provider's tool search: those before 4.5."""
    return _WITHOUT_TOOL_SEARCH.match(model) is not None


_WITHOUT_TOOL_SEARCH = re.compile(r"claude-([23]|instant|(opus|sonnet)-4(-[01](-|$)|-20|$))")
