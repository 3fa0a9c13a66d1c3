"""Facts that a model's name tells."""

import re
from collections.abc import Callable
from functools import lru_cache

from toolwire.codec.models.claude import claude_info
from toolwire.codec.models.gemini import gemini_info
from toolwire.codec.models.gpt import gpt_info
from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo


def named_model(protocol: str, name: str) -> ModelInfo:
    """Return the facts that follow from a model's name at a provider that speaks this protocol.

    A vendor's protocol is served with the vendor's models; other names there are aliases that mean something else.
    """
    describe = _DESCRIPTIONS.get(protocol)
    return UNKNOWN_MODEL if describe is None else describe(name)


def known_model(name: str) -> ModelInfo:
    """Return the facts that follow from a model's name, with or without its provider in front."""
    for describe in (claude_info, gemini_info, gpt_info):
        if (info := describe(name)) is not UNKNOWN_MODEL:
            return info
    return UNKNOWN_MODEL


_DESCRIPTIONS: dict[str, Callable[[str], ModelInfo]] = {
    "anthropic": claude_info,
    "openai-chat": gpt_info,
    "openai-responses": gpt_info,
    "gemini": gemini_info,
    "gemini-interactions": gemini_info,
    "openrouter": known_model,
}

_SNAPSHOT = re.compile(r"(?:[-@](?:20\d\d-?[01]\d-?[0-3]\d|latest|preview(?:-\d\d-(?:\d\d|20\d\d))?)|-v\d+(?::\d+)?)$")

_MAX_SUFFIXES = 3


@lru_cache(maxsize=1024)
def base_model_name(name: str) -> str:
    """Return a model's name in lower case, without vendor and platform prefixes, date, `latest` and `preview`."""
    base = name.lower().rpartition("/")[2].lstrip("~").rpartition("anthropic.")[2]
    for _ in range(_MAX_SUFFIXES):
        base = _SNAPSHOT.sub("", base) or base
    return base
