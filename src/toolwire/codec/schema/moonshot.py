"""Schemas for hosts that reject parts of JSON Schema: Moonshot's flavor, and single keywords."""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.schema.dialect import Dialect, SchemaChange
from toolwire.codec.schema.rewriter import FittedSchema, fit_schema
from toolwire.codec.wire.reader import decode_json, escape_pointer

MOONSHOT_SCHEMA = Dialect(
    name="moonshot",
    unsupported_keywords=frozenset({"$schema", "$id"}),
    references="definitions",
    requires_types=True,
)
_TYPED_BY = ("type", "anyOf", "oneOf", "allOf", "$ref")
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}
_ANY_VALUE = [{"type": name} for name in ("string", "number", "boolean", "object", "array", "null")]
_LIMIT_CACHED_SCHEMA = 64 * 1024


@lru_cache(maxsize=64)
def keyword_dialect(refused: tuple[str, ...]) -> Dialect:
    """Return the dialect of a host that rejects some keywords."""
    return Dialect(name="keywords", unsupported_keywords=frozenset(refused))


def fit_moonshot_schema(schema: Raw, report: LossReport, path: SourcePath, field: str) -> Raw:
    """Return a schema in Moonshot's flavor, and report the changes as losses of `field`.

    References lead to `$defs`, every property has a type, which does not stand beside `anyOf`, and every object lists
    its required properties.
    """
    text = bytes(schema)
    fitted = _fit_cached(text) if len(text) <= _LIMIT_CACHED_SCHEMA else _fit(text)
    report.rewritten(path, field, fitted.changes)
    return fitted.schema if fitted.changes else schema


def _fit(text: bytes) -> FittedSchema:
    """Fit a schema, given as JSON; see `fit_moonshot_schema`."""
    fitted = fit_schema(Raw(text), MOONSHOT_SCHEMA)
    tree = decode_json(bytes(fitted.schema))
    changes: list[SchemaChange] = []
    _complete(tree, "", changes)
    if not changes:
        return fitted
    return FittedSchema(Raw(msgspec.json.encode(tree)), (*fitted.changes, *changes))


_fit_cached = lru_cache(maxsize=256)(_fit)


def _complete(schema: Any, path: str, changes: list[SchemaChange]) -> None:
    """Add missing types and lists of required properties to a schema and all schemas below it."""
    if not isinstance(schema, dict):
        return
    if path and not any(keyword in schema for keyword in _TYPED_BY):
        _add_type(schema, path, changes)
    if schema.get("type") == "object" and "required" not in schema and schema.get("properties"):
        schema["required"] = []
        changes.append(SchemaChange("approximated", path, "the host requires a list of required properties"))
    for keyword in ("properties", "$defs"):
        for name, child in _members(schema.get(keyword)):
            _complete(child, f"{path}/{keyword}/{escape_pointer(name)}", changes)
    for keyword in ("anyOf", "oneOf", "allOf"):
        for index, child in enumerate(branches if isinstance(branches := schema.get(keyword), list) else ()):
            _complete(child, f"{path}/{keyword}/{index}", changes)
    for keyword in ("items", "additionalProperties"):
        _complete(schema.get(keyword), f"{path}/{keyword}", changes)


def _members(value: Any) -> list[tuple[str, Any]]:
    """Return the members of an object; none for another value."""
    return list(value.items()) if isinstance(value, dict) else []


def _add_type(schema: dict[str, Any], path: str, changes: list[SchemaChange]) -> None:
    """Add the type of the values that a schema lists, or else all types."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    names = {_JSON_TYPES.get(type(value), "null") for value in values} if isinstance(values, list) and values else set()
    if len(names) == 1:
        schema["type"] = names.pop()
    elif not names:
        schema["anyOf"] = [dict(branch) for branch in _ANY_VALUE]
    else:
        schema["anyOf"] = [{"type": name} for name in sorted(names)]
    changes.append(SchemaChange("approximated", path, "the host requires a type"))
