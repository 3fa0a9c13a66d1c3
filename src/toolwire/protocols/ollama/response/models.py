"""The models on offer, as Ollama lists and shows them."""

from collections.abc import Sequence
from typing import Any

from toolwire.codec.surface import ModelCard

_MODIFIED = "1970-01-01T00:00:00Z"
_DETAILS = {
    "parent_model": "",
    "format": "",
    "family": "",
    "families": None,
    "parameter_size": "",
    "quantization_level": "",
}


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    return {
        "models": [
            {
                "name": one.id,
                "model": one.id,
                "modified_at": _MODIFIED,
                "size": 0,
                "digest": "",
                "details": _DETAILS,
            }
            for one in models
        ]
    }


def encode_model(model: ModelCard) -> dict[str, Any]:
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _DETAILS,
        "model_info": {"general.architecture": "", "general.basename": model.id},
        "capabilities": ["completion", "tools", "thinking", "vision"],
        "modified_at": _MODIFIED,
    }
