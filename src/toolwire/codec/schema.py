"""JSON Schemas as a target wants them: rewritten on a copy, in order, and bounded."""

from collections.abc import Container
from typing import Any

import msgspec
from msgspec import Raw

LIMIT_NODES = 20_000

# Whose values are schemas, or maps or lists of schemas: everything else in a schema is data, not to be looked into.
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_MAP = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LIST = ("anyOf", "oneOf", "allOf", "prefixItems")


def compilable(schema: Raw, unsupported: Container[str]) -> Raw:
    """The schema as a provider can compile it, or the same one if it can: every object closed to further properties,
    and keywords that it lacks told in the description instead."""
    tree = msgspec.json.decode(schema)
    changes = 0
    for node in _walk(tree):
        if _is_object(node) and node.get("additionalProperties") is not False:
            node["additionalProperties"] = False
            changes += 1
        told = {name: node.pop(name) for name in list(node) if name in unsupported}
        if told:
            hint = ", ".join(f"{name}: {msgspec.json.encode(value).decode()}" for name, value in told.items())
            about = node.get("description")
            node["description"] = f"{about} ({hint})" if isinstance(about, str) else hint
            changes += 1
    return Raw(msgspec.json.encode(tree)) if changes else schema


def is_strict(schema: Raw | None) -> bool:
    """Whether each object is closed and requires all its properties, as OpenAI's strict mode wants."""
    if schema is None:
        return False
    for node in _walk(msgspec.json.decode(schema)):
        if _is_object(node):
            properties = node.get("properties")
            names = set(properties) if isinstance(properties, dict) else set()
            required = node.get("required")
            if node.get("additionalProperties") is not False:
                return False
            if any(name not in required for name in names) if isinstance(required, list) else names:
                return False
    return True


def _is_object(node: dict[str, Any]) -> bool:
    return node.get("type") == "object" or "properties" in node


def _walk(tree: Any) -> list[dict[str, Any]]:
    """All schemas in a schema, itself included, up to a bound."""
    found: list[dict[str, Any]] = []
    waiting = [tree]
    while waiting and len(found) < LIMIT_NODES:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        found.append(node)
        waiting += [node[name] for name in _ONE if name in node]
        for name in _MAP:
            if isinstance(inner := node.get(name), dict):
                waiting += inner.values()
        for name in _LIST:
            if isinstance(inner := node.get(name), list):
                waiting += inner
    return found
