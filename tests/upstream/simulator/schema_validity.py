"""Validation of a value against a schema, for the keywords that the tests use."""

import re
from typing import Any

TYPES: dict[str, Any] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
RULES: dict[str, Any] = {
    "type": lambda value, kinds: any(TYPES[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds)),
    "enum": lambda value, choices: value in choices,
    "const": lambda value, only: value == only,
    "minimum": lambda value, bound: not TYPES["number"](value) or value >= bound,
    "maximum": lambda value, bound: not TYPES["number"](value) or value <= bound,
    "exclusiveMinimum": lambda value, bound: not TYPES["number"](value) or value > bound,
    "exclusiveMaximum": lambda value, bound: not TYPES["number"](value) or value < bound,
    "multipleOf": lambda value, step: not TYPES["number"](value) or value % step == 0,
    "pattern": lambda value, pattern: not isinstance(value, str) or re.search(pattern, value) is not None,
    "minLength": lambda value, size: not isinstance(value, str) or len(value) >= size,
    "maxLength": lambda value, size: not isinstance(value, str) or len(value) <= size,
    "minItems": lambda value, size: not isinstance(value, list) or len(value) >= size,
    "uniqueItems": lambda value, asked: not isinstance(value, list) or not asked or len(set(value)) == len(value),
    "required": lambda value, names: not isinstance(value, dict) or set(names) <= value.keys(),
}
WALKED = {"properties", "items", "anyOf", "allOf", "$ref", "$defs", "additionalProperties"}


def is_valid(value: Any, schema: Any, root: Any = None) -> bool:
    root = schema if root is None else root
    assert schema.keys() <= RULES.keys() | WALKED, "a keyword that is not checked"
    if not all(rule(value, schema[keyword]) for keyword, rule in RULES.items() if keyword in schema):
        return False
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].split("/")[1:]:
            target = target[step]
        if not is_valid(value, target, root):
            return False
    if "anyOf" in schema and not any(is_valid(value, one, root) for one in schema["anyOf"]):
        return False
    if not all(is_valid(value, one, root) for one in schema.get("allOf", ())):
        return False
    if isinstance(value, list) and "items" in schema:
        return all(is_valid(one, schema["items"], root) for one in value)
    if isinstance(value, dict):
        known = schema.get("properties", {})
        if schema.get("additionalProperties") is False and not value.keys() <= known.keys():
            return False
        return all(is_valid(value[name], inner, root) for name, inner in known.items() if name in value)
    return True
