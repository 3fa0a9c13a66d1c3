"""JSON Schemas for the parameters of the built-in tools."""

from typing import Any


def object_schema(required: tuple[str, ...], /, **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object. Unknown properties are rejected, so that a wrong name is reported."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def string_schema(description: str) -> dict[str, Any]:
    """Return the schema of a string."""
    return {"type": "string", "description": description}


def integer_schema(description: str, minimum: int) -> dict[str, Any]:
    """Return the schema of an integer."""
    return {"type": "integer", "minimum": minimum, "description": description}


def string_list_schema(description: str) -> dict[str, Any]:
    """Return the schema of a list of strings."""
    return {"type": "array", "items": {"type": "string"}, "description": description}
