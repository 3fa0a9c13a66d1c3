"""`model_info`: the facts about a model that are known without a network."""

from toolwire.codec.models.info import ModelInfo, merge_info
from toolwire.codec.models.names import known_model
from toolwire.upstream.models.price_data import packaged_model


def model_info(name: str) -> ModelInfo:
    """Return the facts about a model, named with or without its provider, as in `anthropic/claude-sonnet-4-5`.

    They come from the model's name, and from the data of the package genai-prices if it is installed. A fact that is
    not known is None.
    """
    provider, slash, model = name.partition("/")
    packaged = packaged_model(model, provider) if slash else packaged_model(name)
    return merge_info(known_model(name), packaged)
