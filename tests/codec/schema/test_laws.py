"""What holds of every schema in every dialect: what was valid stays valid, in order, within bounds, and reported."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from msgspec import Raw

from tests.support.samples.json_leaves import leaves
from tests.support.schema_strategies import JSON, Sample, tool_schemas
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.schema.rewriter import FittedSchema, fit_schema
from toolwire.protocols.anthropic.fields import OUTPUT_SCHEMA
from toolwire.protocols.anthropic.fields import STRICT_SCHEMA as ANTHROPIC_STRICT
from toolwire.protocols.ollama.fields import FORMAT_SCHEMA, PARAMETERS_SCHEMA
from toolwire.protocols.vendors.google.request import JSON_SCHEMA, OPENAPI
from toolwire.protocols.vendors.openai import STRICT_SCHEMA

WIDER = [JSON_SCHEMA, OPENAPI, PARAMETERS_SCHEMA, FORMAT_SCHEMA]
"""Dialects that let everything be valid that was."""

DIALECTS = [*WIDER, STRICT_SCHEMA, ANTHROPIC_STRICT, OUTPUT_SCHEMA]

each = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def fitted(schema: Any, dialect: Dialect) -> FittedSchema:
    return fit_schema(Raw(json.dumps(schema).encode()), dialect)


def made(schema: Any, dialect: Dialect) -> Any:
    return json.loads(bytes(fitted(schema, dialect).schema))


def is_valid(schema: Any, value: Any, *, nullable: bool = False) -> bool:
    """By JSON Schema; `nullable` is OpenAPI's word for a null, which JSON Schema does not know."""
    return jsonschema_rs.validator_for(_widened(schema) if nullable else schema).is_valid(value)


def _widened(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_widened(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("nullable") is True:
        return {"anyOf": [_widened({**schema, "nullable": False}), {"type": "null"}]}
    return {key: _widened(one) for key, one in schema.items() if key not in ("nullable", "default", "example")}


@pytest.mark.parametrize("dialect", WIDER, ids=lambda dialect: dialect.name)
@settings(max_examples=150, deadline=None)
@given(sample=tool_schemas())
def test_what_was_valid_stays_valid(dialect: Dialect, sample: Sample) -> None:
    schema, value = sample
    if not is_valid(schema, value):
        return  # the parts of a composed sample may exclude each other
    assert is_valid(made(schema, dialect), value, nullable=dialect is OPENAPI), made(schema, dialect)


@settings(max_examples=300, deadline=None)
@given(sample=tool_schemas())
def test_strict_lets_be_valid_what_was_with_null_for_what_is_absent(sample: Sample) -> None:
    """Optional properties are required there, and null says that they are absent."""
    schema, value = sample
    found = fitted(schema, STRICT_SCHEMA)
    if found.rejection is not None or not is_valid(schema, value):
        return
    after = json.loads(bytes(found.schema))
    assert is_valid(after, _filled(after, after, value)), after


def _filled(root: Any, schema: Any, value: Any) -> Any:
    """The value with null for each required property that it lacks."""
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].split("/")[1:]:
            target = target[step]
        return _filled(root, target, value)
    if isinstance(value, dict) and "properties" in schema:
        declared = schema["properties"]
        whole = {name: value.get(name) for name in schema["required"]}
        return {name: _filled(root, declared[name], one) for name, one in whole.items()}
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_filled(root, schema["items"], one) for one in value]
    for branch in schema.get("anyOf", ()):
        if is_valid({**branch, "$defs": root.get("$defs", {})}, filled := _filled(root, branch, value)):
            return filled
    return value


@settings(max_examples=200, deadline=None)
@given(sample=tool_schemas())
def test_strict_is_what_strict_asks_for(sample: Sample) -> None:
    found = fitted(sample[0], STRICT_SCHEMA)
    if found.rejection is None:
        assert list(_unstrict(json.loads(bytes(found.schema)))) == []


def _unstrict(schema: Any) -> Any:
    if "$ref" in schema:
        yield from (key for key in schema if not key.startswith("$"))
    if "properties" in schema or "object" in schema.get("type", ()):
        if schema.get("additionalProperties") is not False:
            yield "open"
        yield from set(schema["properties"]) ^ set(schema["required"])
    for inner in [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("$defs", {}).values()]:
        yield from _unstrict(inner)
    if "items" in schema:
        yield from _unstrict(schema["items"])


@each
@settings(max_examples=100, deadline=None)
@given(sample=tool_schemas())
def test_once_is_enough(dialect: Dialect, sample: Sample) -> None:
    once = fitted(sample[0], dialect)
    again = fit_schema(once.schema, dialect)
    assert (again.schema, again.changes) == (once.schema, ())


@each
@settings(max_examples=100, deadline=None)
@given(sample=tool_schemas())
def test_a_schema_is_changed_if_and_only_if_changes_are_told(dialect: Dialect, sample: Sample) -> None:
    found = fitted(sample[0], dialect)
    assert (json.loads(bytes(found.schema)) != sample[0]) is bool(found.changes)
    assert len({(kind, path) for kind, path, _ in found.changes}) == len(found.changes)


@each
@settings(max_examples=100, deadline=None)
@given(sample=tool_schemas())
def test_properties_keep_their_order(dialect: Dialect, sample: Sample) -> None:
    order = list(sample[0]["properties"])
    assert [name for name in made(sample[0], dialect)["properties"] if name in order] == order


@each
@settings(max_examples=200, deadline=None)
@given(schema=JSON)
def test_whatever_stands_for_a_schema_is_read_and_nothing_in_it_vanishes(dialect: Dialect, schema: Any) -> None:
    found = fitted(schema, dialect)
    again = fit_schema(found.schema, dialect)
    assert again.changes == ()
    told = {change.path for change in found.changes}
    text = json.dumps(json.loads(bytes(found.schema)))
    for path, value in leaves(schema):
        if isinstance(value, str) and json.dumps(value)[1:-1] not in text:
            assert any(path == one or path.startswith(one + "/") for one in told), path


@each
def test_an_exponential_schema_costs_bounded_time_and_room(dialect: Dialect) -> None:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 60):
        inner = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {
            "type": "object",
            "properties": {"a": inner, "b": {**inner, "description": "b"}, "c": {"allOf": [inner, inner]}},
        }
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d59"}}, "$defs": definitions}
    found = fitted(schema, dialect)  # written out, it would never end
    assert len(bytes(found.schema)) < 1_000_000
    assert len(found.changes) < 10_000


@each
@pytest.mark.parametrize("keyword", ["items", "not", "anyOf", "allOf"])
@pytest.mark.parametrize("depth", [100, 2_000])
def test_a_schema_may_be_of_any_depth(dialect: Dialect, keyword: str, depth: int) -> None:
    opening = f'{{"{keyword}":' + ("[" if keyword.endswith("Of") else "")
    closing = ("]" if keyword.endswith("Of") else "") + "}"
    text = '{"type":"object","properties":{"a":' + opening * depth + '{"type":"string"}' + closing * depth + "}}"
    found = fit_schema(Raw(text.encode()), dialect)
    assert found.rejection or found.changes
