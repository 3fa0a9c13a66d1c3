"""The models on offer, as Anthropic lists them."""

from collections.abc import Sequence
from typing import Any

from toolwire.codec.surface import ModelCard

# The protocol wants a date, and nobody says when a model of another provider was made.
_CREATED = "1970-01-01T00:00:00Z"


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    return {
        "data": [encode_model(one) for one in models],
        "has_more": False,
        "first_id": models[0].id if models else None,
        "last_id": models[-1].id if models else None,
    }


def encode_model(model: ModelCard) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "created_at": _CREATED,
        "lifecycle": "active",
    }
