"""The models on offer, as Google lists them for this interface too."""

from collections.abc import Sequence
from typing import Any

from toolwire.codec.surface import ModelCard


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    return {"models": [encode_model(one) for one in models]}


def encode_model(model: ModelCard) -> dict[str, Any]:
    return {"name": f"models/{model.id}", "version": "1", "displayName": model.id}
