"""Facts about Gemini models, by name. For an unknown name no fact is known, and no rule applies."""

import re
from functools import lru_cache

from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo

_GENERATION = re.compile(r"gemini-(\d+)(?:\.(\d+))?(?!\d)")
# Models for other media, which share a generation's name but not its features.
_OTHER_MEDIA = re.compile(r"image|tts|audio|live|embedding|robotics|computer-use|thinking-exp")
_LEGACY_COMPUTER = re.compile(r"gemini-(?:[12]|3-|3\.[0-4])")


def model_generation(model: str) -> tuple[int, int]:
    """Parse the generation from a model name, such as (2, 5); (0, 0) for an unknown name."""
    match = _GENERATION.search(model)
    return (0, 0) if match is None else (int(match[1]), int(match[2] or 0))


@lru_cache(maxsize=256)
def gemini_info(model: str) -> ModelInfo:
    """Return the facts about a Gemini model; all are unknown for another name."""
    generation = model_generation(model)
    if generation == (0, 0):
        return UNKNOWN_MODEL
    if generation >= (3, 0):
        # The greatest output limits are those in the model data of litellm; those of later generations are not known.
        output = 65_536 if generation < (4, 0) else None
        return ModelInfo(
            output=output, thinking="always", adaptive=True, budget=(), sampling=True, structured_output="always"
        )
    if _OTHER_MEDIA.search(model):
        return ModelInfo(efforts=())
    if generation < (2, 5):
        return ModelInfo(
            output=8192, thinking="never", efforts=(), budget=(), sampling=True, structured_output="without_tools"
        )
    is_pro, is_lite = "2.5-pro" in model, "flash-lite" in model
    return ModelInfo(
        context=1_048_576,
        output=65_536,
        thinking="always" if is_pro else "optional",
        adaptive=True,
        efforts=(),
        budget=(128, 32_768) if is_pro else (512 if is_lite else 1, 24_576),
        sampling=True,
        vision=True,
        tools=True,
        structured_output="without_tools",
    )


def lacks_json_schema(model: str) -> bool:
    """Tell whether the model takes OpenAPI schemas only: https://github.com/envoyproxy/ai-gateway/pull/1512."""
    return (0, 0) < model_generation(model) < (2, 5)


def signs_calls(model: str) -> bool:
    """Tell whether the model signs its calls, and expects the signatures back."""
    return model_generation(model) >= (3, 0)


def uses_legacy_computer(model: str) -> bool:
    """Tell whether the model uses the predefined functions of the first computer-use models."""
    return _LEGACY_COMPUTER.search(model) is not None
