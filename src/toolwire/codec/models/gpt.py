"""Facts about OpenAI's models, by name. For an unknown name no fact is known, and no rule applies."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo

_Fact = TypeVar("_Fact")

_DATE = r"(-20\d\d.*)?$"
_WITHOUT_EFFORT = re.compile(r"gpt-4|gpt-3")
_EFFORTS = {
    re.compile(r"(o1|o3|o3-mini|o4-mini)" + _DATE): ("low", "medium", "high"),
    re.compile(r"(gpt-5|gpt-5-mini|gpt-5-nano)" + _DATE): ("minimal", "low", "medium", "high"),
}
_WITHOUT_SAMPLING = re.compile(r"(o1|o3|o4|gpt-5)(-mini|-nano|-pro)?" + _DATE)
# Greatest output limits; a larger one is refused: `max_tokens is too large: 32000`. The model data of litellm has the
# same ones, but 4096 for gpt-4.
_OUTPUT_LIMITS = {
    re.compile(r"gpt-3\.5-turbo|gpt-4-(turbo|1106|0125|vision)|gpt-4o-2024-05-13"): 4096,
    re.compile(r"gpt-4" + r"(-0613|-0314)?$"): 8192,
    re.compile(r"gpt-4o(-mini)?" + _DATE): 16_384,
    re.compile(r"gpt-4\.1"): 32_768,
    re.compile(r"o1-preview"): 32_768,
    re.compile(r"o1-mini"): 65_536,
    re.compile(r"o1|o3|o4-mini"): 100_000,
    re.compile(r"gpt-5-pro"): 272_000,
    re.compile(r"gpt-5(?!.*chat)"): 128_000,
}
# Context windows, as in the data of the package genai-prices; the first pattern that matches decides.
_CONTEXTS = {
    re.compile(r"gpt-4(-0613|-0314)?$"): 8192,
    re.compile(r"gpt-3\.5-turbo"): 16_385,
    re.compile(r"gpt-4-(turbo|1106|0125|vision)|gpt-4o(-mini)?" + _DATE): 128_000,
    re.compile(r"gpt-4\.1"): 1_000_000,
    re.compile(r"o1-(mini|preview)"): 128_000,
    re.compile(r"o1|o3|o4-mini"): 200_000,
    re.compile(r"gpt-5(\.[124])?(-mini|-nano)" + _DATE): 400_000,
    re.compile(r"gpt-5(\.[12])?(-pro|-codex|-codex-mini|-codex-max)?" + _DATE): 400_000,
    re.compile(r"gpt-5\.3-codex" + _DATE): 400_000,
    re.compile(r"gpt-5\.5(-pro)?" + _DATE): 1_000_000,
    re.compile(r"gpt-5\.4(-pro)?" + _DATE): 1_050_000,
    re.compile(r"gpt-(5\.6|6|6\.1)-(sol|luna|terra|astra)" + _DATE): 1_050_000,
}
_REASONING = re.compile(r"(o1|o3|o4-mini|gpt-5|gpt-6)(?!.*chat)(?![\d])")
_WITHOUT_STOP = re.compile(r"(o3|o3-pro|o4-mini|gpt-5|gpt-5-mini|gpt-5-nano)" + _DATE)
# https://platform.openai.com/docs/guides/latest-model, "parameter compatibility"
_WITHOUT_SAMPLING_AT_EFFORT = re.compile(r"(openai/)?gpt-(5\.\d|6)(?!.*chat)")
_WITHOUT_TOOLS_AT_EFFORT = re.compile(r"gpt-(5\.[456]|6)")
_WITHOUT_AUDIO_OR_SEARCH = re.compile(r"(gpt-4o|gpt-4\.1|gpt-5|o1|o3|o4)(?!.*(audio|search|realtime))")
_WITHOUT_SYSTEM = re.compile(r"o1-(mini|preview)")
_WITH_SHELL_AND_PATCHES = re.compile(r"gpt-(5\.[1-9]|6)(?!.*(chat|nano))")
_WITHOUT_TOOL_SEARCH = re.compile(r"gpt-4|gpt-3|o1|o3|o4|gpt-5(-(?!codex)|$)|gpt-5\.[123](-|$)")


@lru_cache(maxsize=256)
def gpt_info(model: str) -> ModelInfo:
    """Return the facts about a model of OpenAI; all are unknown for another name."""
    name = model.removeprefix("openai/")
    output, context = _first_match(_OUTPUT_LIMITS, name), _first_match(_CONTEXTS, name)
    if _WITHOUT_EFFORT.match(name):
        return ModelInfo(context=context, output=output, thinking="never", efforts=(), budget=(), sampling=True)
    efforts = _first_match(_EFFORTS, name)
    if _REASONING.match(name) is None:
        return UNKNOWN_MODEL if output is None and context is None else ModelInfo(context=context, output=output)
    return ModelInfo(
        context=context,
        output=output,
        thinking="always" if efforts else None,
        efforts=efforts,
        budget=(),
        sampling=False if _WITHOUT_SAMPLING.match(name) else None,
    )


def _first_match(facts: Mapping[re.Pattern[str], _Fact], name: str) -> _Fact | None:
    """Return the fact whose pattern is the first to match the name; None if no pattern matches."""
    return next((fact for pattern, fact in facts.items() if pattern.match(name)), None)


def refuses_max_tokens(model: str) -> bool:
    """Tell whether the model wants `max_completion_tokens` instead of `max_tokens`."""
    return _REASONING.match(model) is not None


def refuses_stop(model: str) -> bool:
    """Tell whether the model rejects stop sequences."""
    return _WITHOUT_STOP.match(model) is not None


def refuses_sampling(info: ModelInfo, model: str, effort: object) -> bool:
    """Return whether the model rejects sampling parameters: always, or unless its effort is `none`."""
    if info.sampling is not None:
        return not info.sampling
    return effort not in (None, "none") and _WITHOUT_SAMPLING_AT_EFFORT.match(model) is not None


def refuses_tools_at_effort(model: str) -> bool:
    """Tell whether the model rejects function tools in Chat Completions unless its effort is `none`."""
    return _WITHOUT_TOOLS_AT_EFFORT.match(model) is not None


def refuses_audio_and_search(model: str) -> bool:
    """Tell whether the model rejects audio and `web_search_options` in Chat Completions."""
    return _WITHOUT_AUDIO_OR_SEARCH.match(model) is not None


def refuses_system_messages(model: str) -> bool:
    """Tell whether the model rejects system and developer messages."""
    return _WITHOUT_SYSTEM.match(model) is not None


def knows_shell_and_patches(model: str) -> bool:
    """Tell whether the model is known to have OpenAI's `shell` and `apply_patch` tools: GPT-5.1 and later.

    developers.openai.com/api/docs/guides/tools-shell and /tools-apply-patch.
    """
    return _WITH_SHELL_AND_PATCHES.match(model) is not None


def knows_local_shell(model: str) -> bool:
    """Tell whether the model has OpenAI's older `local_shell` tool: only `codex-mini-latest`.

    developers.openai.com/api/docs/guides/tools-local-shell.
    """
    return model == "codex-mini-latest"


def lacks_tool_search(model: str) -> bool:
    """Tell whether the model lacks the provider's tool search."""
    return _WITHOUT_TOOL_SEARCH.match(model) is not None
