"""How the schemas of the built-in tools are written."""

from typing import Any


def an_object(required: tuple[str, ...], /, **properties: dict[str, Any]) -> dict[str, Any]:
    """Nothing else may be given: a wrong name is an error that tells the right ones."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def a_string(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def a_count(description: str, least: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "description": description}


def strings(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}
