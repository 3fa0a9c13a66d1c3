"""The models that are served, as each protocol lists them."""

import hashlib
from typing import Any

_CREATED = 1767225600
_CREATED_TEXT = "2026-01-01T00:00:00Z"


def listed(protocol: str, models: tuple[str, ...]) -> dict[str, Any]:
    entries = [described(protocol, model) for model in models]
    match protocol:
        case "anthropic":
            ends = {"first_id": models[0], "last_id": models[-1]} if models else {"first_id": None, "last_id": None}
            return {"data": entries, "has_more": False, **ends}
        case "gemini" | "gemini-interactions" | "ollama":
            return {"models": entries}
        case "openrouter":
            return {"data": entries}
        case _:
            return {"object": "list", "data": entries}


def described(protocol: str, model: str) -> dict[str, Any]:
    match protocol:
        case "anthropic":
            return {"type": "model", "id": model, "display_name": model, "created_at": _CREATED_TEXT}
        case "gemini" | "gemini-interactions":
            return {
                "name": f"models/{model}",
                "version": "001",
                "displayName": model,
                "description": "A simulated model.",
                "inputTokenLimit": 1048576,
                "outputTokenLimit": 65536,
                "supportedGenerationMethods": ["generateContent", "streamGenerateContent"],
            }
        case "ollama":
            return {
                "name": model,
                "model": model,
                "modified_at": _CREATED_TEXT,
                "size": 1000000,
                "digest": hashlib.sha256(model.encode()).hexdigest(),
                "details": _details(),
            }
        case "openrouter":
            return _routed(model)
        case _:
            return {"id": model, "object": "model", "created": _CREATED, "owned_by": "toolwire"}


def shown(model: str) -> dict[str, Any]:
    """What Ollama shows of one model."""
    return {
        "license": "Apache-2.0",
        "modelfile": f"FROM {model}",
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": _details(),
        "model_info": {"general.architecture": "simulated", "simulated.context_length": 131072},
        "capabilities": ["completion", "tools", "thinking"],
        "modified_at": _CREATED_TEXT,
    }


def _details() -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "simulated",
        "family": "simulated",
        "families": ["simulated"],
        "parameter_size": "1B",
        "quantization_level": "F16",
    }


def _routed(model: str) -> dict[str, Any]:
    return {
        "id": model,
        "canonical_slug": model,
        "name": model,
        "created": _CREATED,
        "description": "A simulated model.",
        "context_length": 131072,
        "architecture": {
            "modality": "text->text",
            "input_modalities": ["text"],
            "output_modalities": ["text"],
            "tokenizer": "Other",
            "instruct_type": None,
        },
        "pricing": {"prompt": "0", "completion": "0"},
        "top_provider": {"context_length": 131072, "max_completion_tokens": 65536, "is_moderated": False},
        "per_request_limits": None,
        "supported_parameters": ["tools", "tool_choice", "reasoning", "max_tokens", "stop", "response_format"],
        "default_parameters": None,
    }
