"""Parameter schemas as hosts check them: refused keywords, and Moonshot's flavor of JSON Schema."""

import re
from collections.abc import Iterator

from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.validation import JsonObject, list_of, object_of
from toolwire.upstream.simulator.hosts.refusals import Violations, violation

_NESTED_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NESTED_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_NESTED = ("items", "additionalProperties", "not")
_Located = Iterator[tuple[str, JsonObject]]


def _subschemas(schema: JsonObject, path: str) -> _Located:
    """Return a schema and all schemas within it, each with its path."""
    yield path, schema
    for name in _NESTED_MAPS:
        for key, inner in object_of(schema.get(name)).items():
            yield from _subschemas(object_of(inner), f"{path}.{name}.{key}".lstrip("."))
    for name in _NESTED_LISTS:
        for index, inner in enumerate(list_of(schema.get(name))):
            yield from _subschemas(object_of(inner), f"{path}.{name}.{index}".lstrip("."))
    for name in _NESTED:
        if isinstance(schema.get(name), dict):
            yield from _subschemas(object_of(schema[name]), f"{path}.{name}".lstrip("."))


def check_name(name: str, path: str, profile: HostProfile) -> Violations:
    """Check the name of a tool."""
    rules = profile.tools
    if len(name) > rules.name_limit or re.fullmatch(rules.name_pattern, name) is None:
        yield violation("tools.name_pattern", path, path=path, pattern=rules.name_pattern, name=name)


def check_schema(schema: object, function: str, profile: HostProfile) -> Violations:
    """Check the parameters of a function."""
    root = object_of(schema)
    if not profile.tools.bare_functions and root.get("type") != "object":
        yield violation("tools.bare_functions", name=function)
    refused = profile.tools.refused_keywords
    for path, found in _subschemas(root, ""):
        if names := [keyword for keyword in refused if keyword in found]:
            yield violation("tools.refused_keywords", name=function, names=set(names))
        if profile.tools.schema == "moonshot" and (detail := _moonshot_fault(found, is_root=not path)):
            yield violation("tools.schema", name=function, path=path, detail=detail)


def _moonshot_fault(schema: JsonObject, *, is_root: bool) -> str | None:
    """Return the first reason for which Moonshot rejects a schema."""
    if not is_root and not schema.keys() & {"type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const"}:
        return "type is not defined"
    if "anyOf" in schema and "type" in schema:
        return "when using anyOf, type should be defined in anyOf items instead of the parent schema"
    if "$ref" in schema and (len(schema) > 1 or not str(schema["$ref"]).startswith("#/$defs/")):
        return "$ref must point to #/$defs and have no other keywords beside it"
    missing = [name for name in list_of(schema.get("required")) if name not in object_of(schema.get("properties"))]
    return f"required property {missing[0]} is not defined in properties" if missing else None
