"""Laws of schema rewriting in every dialect, such as: valid values stay valid."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import example, given, settings
from msgspec import Raw

from tests.support.samples import recorded_bodies
from tests.support.samples.json_leaves import leaves
from tests.support.schema_strategies import JSON, Sample, tool_schemas
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.schema.rewriter import FittedSchema, fit_schema
from toolwire.protocols.anthropic.fields import OUTPUT_SCHEMA
from toolwire.protocols.anthropic.fields import STRICT_SCHEMA as ANTHROPIC_STRICT
from toolwire.protocols.ollama.fields import FORMAT_SCHEMA, PARAMETERS_SCHEMA
from toolwire.protocols.vendors.google.request import JSON_SCHEMA, OPENAPI
from toolwire.protocols.vendors.openai import STRICT_SCHEMA

PERMISSIVE = [JSON_SCHEMA, OPENAPI, PARAMETERS_SCHEMA, FORMAT_SCHEMA]
"""Dialects that admit every value that the source schema admits."""

DIALECTS = [*PERMISSIVE, STRICT_SCHEMA, ANTHROPIC_STRICT, OUTPUT_SCHEMA]

each = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
# Each sample is tried with every dialect: making it takes longer than rewriting it.
MANY_SAMPLES = settings(max_examples=recorded_bodies.example_count(200))


def fitted(schema: Any, dialect: Dialect) -> FittedSchema:
    return fit_schema(Raw(json.dumps(schema).encode()), dialect)


def fitted_schema(schema: Any, dialect: Dialect) -> Any:
    return json.loads(bytes(fitted(schema, dialect).schema))


def is_valid(schema: Any, value: Any, *, nullable: bool = False) -> bool:
    """Validate by JSON Schema; `nullable` also understands OpenAPI's keyword of that name."""
    return jsonschema_rs.validator_for(_without_nullable(schema) if nullable else schema).is_valid(value)


def _without_nullable(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_nullable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("nullable") is True:
        return {"anyOf": [_without_nullable({**schema, "nullable": False}), {"type": "null"}]}
    return {
        key: _without_nullable(value) for key, value in schema.items() if key not in ("nullable", "default", "example")
    }


@MANY_SAMPLES
@given(sample=tool_schemas())
def test_valid_values_stay_valid(sample: Sample) -> None:
    schema, value = sample
    if not is_valid(schema, value):
        return  # the branches of a composed sample may exclude each other
    for dialect in PERMISSIVE:
        rewritten = fitted_schema(schema, dialect)
        assert is_valid(rewritten, value, nullable=dialect is OPENAPI), (dialect.name, rewritten)


@settings(max_examples=recorded_bodies.example_count(300), deadline=None)
@given(sample=tool_schemas())
def test_strict_schema_admits_null_for_absent_properties(sample: Sample) -> None:
    """Optional properties become required, and null means absent."""
    schema, value = sample
    result = fitted(schema, STRICT_SCHEMA)
    if result.rejection is not None or not is_valid(schema, value):
        return
    strict = json.loads(bytes(result.schema))
    assert is_valid(strict, _with_nulls(strict, strict, value)), strict


def _with_nulls(root: Any, schema: Any, value: Any) -> Any:
    """Return the value with null for each required property that it lacks."""
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].split("/")[1:]:
            target = target[step]
        return _with_nulls(root, target, value)
    if isinstance(value, dict) and "properties" in schema:
        declared = schema["properties"]
        members = {name: value.get(name) for name in schema["required"]}
        return {name: _with_nulls(root, declared[name], member) for name, member in members.items()}
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_with_nulls(root, schema["items"], member) for member in value]
    for branch in schema.get("anyOf", ()):
        if is_valid({**branch, "$defs": root.get("$defs", {})}, filled := _with_nulls(root, branch, value)):
            return filled
    return value


@settings(max_examples=recorded_bodies.example_count(200), deadline=None)
@given(sample=tool_schemas())
def test_strict_schema_meets_the_strict_rules(sample: Sample) -> None:
    result = fitted(sample[0], STRICT_SCHEMA)
    if result.rejection is None:
        assert list(_strict_violations(json.loads(bytes(result.schema)))) == []


def _strict_violations(schema: Any) -> Any:
    if "$ref" in schema:
        yield from (key for key in schema if not key.startswith("$"))
    if "properties" in schema or "object" in schema.get("type", ()):
        if schema.get("additionalProperties") is not False:
            yield "open"
        yield from set(schema["properties"]) ^ set(schema["required"])
    for inner in [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("$defs", {}).values()]:
        yield from _strict_violations(inner)
    if "items" in schema:
        yield from _strict_violations(schema["items"])


@MANY_SAMPLES
@given(sample=tool_schemas())
def test_fitting_is_idempotent(sample: Sample) -> None:
    for dialect in DIALECTS:
        once = fitted(sample[0], dialect)
        again = fit_schema(once.schema, dialect)
        assert (again.schema, again.changes) == (once.schema, ()), dialect.name


@MANY_SAMPLES
@given(sample=tool_schemas())
def test_schema_changes_exactly_if_changes_are_reported(sample: Sample) -> None:
    for dialect in DIALECTS:
        result = fitted(sample[0], dialect)
        assert (json.loads(bytes(result.schema)) != sample[0]) is bool(result.changes), dialect.name
        assert len({(kind, path) for kind, path, _ in result.changes}) == len(result.changes), dialect.name


@MANY_SAMPLES
@given(sample=tool_schemas())
def test_property_order_is_preserved(sample: Sample) -> None:
    order = list(sample[0]["properties"])
    for dialect in DIALECTS:
        names = fitted_schema(sample[0], dialect)["properties"]
        assert [name for name in names if name in order] == order, dialect.name


@settings(max_examples=recorded_bodies.example_count(400))
@given(schema=JSON)
@example(schema={"type": "object", "nullable": True})
@example(schema={"type": [1], "nullable": True})
def test_arbitrary_json_as_schema_loses_nothing_silently(schema: Any) -> None:
    for dialect in DIALECTS:
        result = fitted(schema, dialect)
        again = fit_schema(result.schema, dialect)
        assert again.changes == (), dialect.name
        reported = {change.path for change in result.changes}
        text = json.dumps(json.loads(bytes(result.schema)))
        for path, value in leaves(schema):
            if isinstance(value, str) and json.dumps(value)[1:-1] not in text:
                assert any(path == one or path.startswith(one + "/") for one in reported), (dialect.name, path)


@each
def test_exponential_schema_has_bounded_cost(dialect: Dialect) -> None:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 60):
        inner = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {
            "type": "object",
            "properties": {"a": inner, "b": {**inner, "description": "b"}, "c": {"allOf": [inner, inner]}},
        }
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d59"}}, "$defs": definitions}
    result = fitted(schema, dialect)  # fully inlined, it would never end
    assert len(bytes(result.schema)) < 1_000_000
    assert len(result.changes) < 10_000


@each
@pytest.mark.parametrize("keyword", ["items", "not", "anyOf", "allOf"])
@pytest.mark.parametrize("depth", [100, 2_000])
def test_deep_schema_is_handled(dialect: Dialect, keyword: str, depth: int) -> None:
    opening = f'{{"{keyword}":' + ("[" if keyword.endswith("Of") else "")
    closing = ("]" if keyword.endswith("Of") else "") + "}"
    text = '{"type":"object","properties":{"a":' + opening * depth + '{"type":"string"}' + closing * depth + "}}"
    result = fit_schema(Raw(text.encode()), dialect)
    assert result.rejection or result.changes
