"""Validation of values against schemas with common keywords only, without compiling them.

Compiling a tool's schema takes longer than all other work on a call, and 16 KB of memory. A gateway sees the tools of
many clients, so it would use most compiled schemas only once.
"""

from typing import Any

_MAX_STEPS = 2000
_MAX_NUMBER = 2**53
"""Up to this number, integers and floats compare exactly in every implementation."""

_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "$schema", "$comment", "$defs", "definitions"}
)
_CHECKED = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref"}
    | {"minimum", "maximum", "minItems", "maxItems"}
)
_KEYWORDS = _ANNOTATIONS | _CHECKED
_SIMPLE = _KEYWORDS - {"enum", "const", "anyOf", "$ref"}
_TYPE_ONLY = _ANNOTATIONS | {"type"}


def is_plainly_valid(schema: Any, value: Any) -> bool:
    """Return True for a value that is certainly valid. If False, only a compiled schema can decide.

    The value must be decoded JSON. No rule here depends on the version of JSON Schema.
    """
    return _PlainValidation(schema).is_valid(schema, value)


class _PlainValidation:
    """One validation, with a limited number of steps."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = _MAX_STEPS

    def is_valid(self, schema: Any, value: Any, depth: int = 32) -> bool:
        """Return whether a value is certainly valid; False if the schema is nested deeper than `depth`."""
        self._steps -= 1
        if type(schema) is not dict:
            return schema is True
        if self._steps < 0 or depth == 0:
            return False
        if "type" in schema and not _has_type(schema["type"], value):
            return False
        if not _SIMPLE.issuperset(schema):
            if not _KEYWORDS.issuperset(schema) or not self._is_valid_by_others(schema, value, depth - 1):
                return False
        elif _TYPE_ONLY.issuperset(schema):
            return True
        if type(value) is dict:
            return self._is_valid_object(schema, value, depth - 1)
        if type(value) is list:
            return self._is_valid_array(schema, value, depth - 1)
        return type(value) not in (int, float) or _is_within(schema, "minimum", "maximum", value)

    def _is_valid_by_others(self, schema: dict[str, Any], value: Any, depth: int) -> bool:
        """Return whether a value is certainly valid by the keywords that list values or lead to other schemas."""
        if ("enum" in schema or "const" in schema) and not self._is_listed(schema, value):
            return False
        if "anyOf" in schema and not self._is_any(schema["anyOf"], value, depth):
            return False
        return "$ref" not in schema or self.is_valid(self._definition(schema["$ref"]), value, depth)

    def _definition(self, reference: Any) -> Any:
        """Return the schema that a reference such as `#/$defs/Item` leads to; None for other references."""
        match reference.split("/") if isinstance(reference, str) else ():
            case ["#", "$defs" | "definitions" as group, name] if "~" not in name and "%" not in name:
                definitions = self._root.get(group)
                return definitions.get(name) if isinstance(definitions, dict) else None
        return None

    def _is_listed(self, schema: dict[str, Any], value: Any) -> bool:
        """Return whether a string satisfies `enum` and `const`; False for values of other types."""
        names = schema.get("enum", [value])
        self._steps -= len(names) if type(names) is list else _MAX_STEPS
        return type(value) is str and self._steps >= 0 and value in names and schema.get("const", value) == value

    def _is_any(self, schemas: Any, value: Any, depth: int) -> bool:
        """Return whether a value certainly satisfies one of these schemas."""
        return type(schemas) is list and any(self.is_valid(schema, value, depth) for schema in schemas)

    def _is_valid_object(self, schema: dict[str, Any], value: dict[str, Any], depth: int) -> bool:
        """Return whether an object has the required members, and each is certainly valid."""
        required, properties = schema.get("required", ()), schema.get("properties", {})
        if type(properties) is not dict or not isinstance(required, list | tuple):
            return False
        self._steps -= len(required)
        if self._steps < 0:
            return False
        for name in required:
            if type(name) is not str or name not in value:
                return False
        others = schema.get("additionalProperties", True)
        for name, member in value.items():  # noqa: SIM110 - a generator costs twice as much
            if not self.is_valid(properties.get(name, others), member, depth):
                return False
        return True

    def _is_valid_array(self, schema: dict[str, Any], value: list[Any], depth: int) -> bool:
        """Return whether an array has a valid size, and each item is certainly valid."""
        items = schema.get("items", True)
        if not _is_within(schema, "minItems", "maxItems", len(value)):
            return False
        if items is not True:
            for item in value:
                if not self.is_valid(items, item, depth):
                    return False
        return True


def _has_type(names: Any, value: Any) -> bool:
    """Return whether a value certainly has one of the types. Only some schema versions accept 1.0 as an integer."""
    if type(names) is str and _TYPES.get(names) is type(value):
        return True
    for name in names if type(names) is list else (names,):
        if type(name) is not str:
            return False
        if _TYPES.get(name) is type(value) or (name == "number" and type(value) in (int, float)):
            return True
    return False


def _is_within(schema: dict[str, Any], least: str, most: str, number: float) -> bool:
    """Return whether a number is certainly within its limits."""
    if least not in schema and most not in schema:
        return True
    minimum, maximum = schema.get(least, number), schema.get(most, number)
    for limit in (minimum, maximum, number):
        if type(limit) not in (int, float) or abs(limit) > _MAX_NUMBER:
            return False
    return bool(minimum <= number <= maximum)
