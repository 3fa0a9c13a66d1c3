"""How the schemas of the built-in tools are written."""

from typing import Any


def object_schema(required: tuple[str, ...], /, **properties: dict[str, Any]) -> dict[str, Any]:
    """Nothing else may be given: a wrong name is an error that tells the right ones."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def string_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def integer_schema(description: str, minimum: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum, "description": description}


def string_list_schema(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}
