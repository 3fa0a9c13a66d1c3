"""The models on offer, as OpenRouter lists them."""

from collections.abc import Sequence
from typing import Any

from toolwire.codec.surface import ModelCard


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    return {"data": [_card(one) for one in models], "total_count": len(models), "links": {"next": None}}


def encode_model(model: ModelCard) -> dict[str, Any]:
    return {"data": _card(model)}


def _card(model: ModelCard) -> dict[str, Any]:
    return {
        "id": model.id,
        "canonical_slug": model.id,
        "name": model.id,
        "created": 0,
        "context_length": None,
        "architecture": {"modality": "text->text", "input_modalities": ["text"], "output_modalities": ["text"]},
        "pricing": {"prompt": "0", "completion": "0"},
        "top_provider": {"is_moderated": False},
        "per_request_limits": None,
        "supported_parameters": ["tools", "tool_choice"],
        "supported_voices": None,
        "default_parameters": None,
        "links": {"details": f"/api/v1/models/{model.id}/endpoints"},
    }
