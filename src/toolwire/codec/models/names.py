"""Facts that a model's name tells."""

from toolwire.codec.models.claude import claude_info
from toolwire.codec.models.gemini import gemini_info
from toolwire.codec.models.gpt import gpt_info
from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo


def known_model(name: str) -> ModelInfo:
    """Return the facts that follow from a model's name, with or without its provider in front."""
    for describe in (claude_info, gemini_info, gpt_info):
        if (info := describe(name)) is not UNKNOWN_MODEL:
            return info
    return UNKNOWN_MODEL
