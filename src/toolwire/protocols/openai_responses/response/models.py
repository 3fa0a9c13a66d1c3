"""The models on offer, as OpenAI lists them."""

from collections.abc import Sequence
from typing import Any

from toolwire.codec.surface import ModelCard


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    return {"object": "list", "data": [encode_model(one) for one in models]}


def encode_model(model: ModelCard) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": 0, "owned_by": model.owner}
