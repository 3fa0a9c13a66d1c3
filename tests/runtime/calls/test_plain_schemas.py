"""Plain validation: it accepts most calls, and none that a complete validator rejects."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.samples import recorded_bodies
from tests.support.schema_strategies import JSON, Sample, tool_schemas
from toolwire.runtime.calls.plain_schemas import is_plainly_valid

VERSIONS = [
    jsonschema_rs.Draft4Validator,
    jsonschema_rs.Draft6Validator,
    jsonschema_rs.Draft7Validator,
    jsonschema_rs.Draft201909Validator,
    jsonschema_rs.Draft202012Validator,
]
SMALL = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.sampled_from([0.5, 1.0]), st.sampled_from("abc"))
VALUES = st.recursive(
    SMALL,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
LIMITS = st.integers(0, 3)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        "required": st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True),
        "additionalProperties": st.booleans() | inner,
        "items": inner,
        "enum": st.lists(SMALL, min_size=1, max_size=3, unique_by=repr),
        "const": SMALL,
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "minimum": LIMITS,
        "maximum": LIMITS,
        "minItems": LIMITS,
        "maxItems": LIMITS,
        "not": inner,
        "$ref": st.sampled_from(["#/$defs/a", "#/definitions/b", "#/$defs/c", "#"]),
        "maxProperties": LIMITS,
    }
    return st.fixed_dictionaries({}, optional=keywords)


SCHEMAS: st.SearchStrategy[Any] = st.recursive(st.just({}) | st.booleans(), _schemas, max_leaves=6)
DEFINITIONS = st.fixed_dictionaries({"a": SCHEMAS, "b": SCHEMAS})


def _rejections(schema: Any, value: Any) -> list[str]:
    """Return the versions of JSON Schema that know the schema and reject the value."""
    rejections = []
    for version in VERSIONS:
        try:
            validator = version(schema)
        except ValueError:
            continue  # not a schema of this version
        if not validator.is_valid(value):
            rejections.append(version.__name__)
    return rejections


@settings(max_examples=recorded_bodies.example_count(2000), deadline=None)
@given(SCHEMAS, DEFINITIONS, VALUES)
def test_accepted_values_are_valid_by_every_version(schema: Any, definitions: Any, value: Any) -> None:
    if isinstance(schema, dict):
        schema |= {"$defs": definitions, "definitions": definitions}
    if is_plainly_valid(schema, value):
        assert _rejections(schema, value) == []


@settings(max_examples=recorded_bodies.example_count(500), deadline=None)
@given(tool_schemas(), JSON)
def test_accepted_arguments_are_valid_by_every_version(sample: Sample, other: Any) -> None:
    for value in (sample[1], other):
        if is_plainly_valid(sample[0], value):
            assert _rejections(sample[0], value) == []


SEARCH = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words."},
        "kind": {"type": "string", "enum": ["file", "text"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "score": {"type": "number"},
        "paths": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "range": {"anyOf": [{"$ref": "#/$defs/Range"}, {"type": "null"}]},
    },
    "$defs": {"Range": {"type": "object", "properties": {"from": {"type": "integer"}}}},
    "required": ["query"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "x"},
        {"query": "x", "kind": "file", "limit": 50, "score": 0.5, "paths": ["a"], "range": {"from": 1}},
        {"query": "x", "score": 1, "range": None},
    ],
)
def test_usual_arguments_are_accepted(arguments: Any) -> None:
    assert is_plainly_valid(SEARCH, arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"query": 1},
        {"query": "x", "kind": "other"},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": True},
        {"query": "x", "paths": []},
        {"query": "x", "range": {"from": "1"}},
        {"query": "x", "unknown": 1},
        [],
    ],
)
def test_invalid_arguments_are_not_accepted(arguments: Any) -> None:
    assert not is_plainly_valid(SEARCH, arguments)


def test_other_constants_are_not_accepted() -> None:
    assert is_plainly_valid({"const": "a"}, "a")
    assert not is_plainly_valid({"const": "a"}, "b")


def test_validation_ends_after_a_number_of_steps() -> None:
    alternatives = [{"type": "integer"}] * 1000 + [{"type": "string"}]
    assert is_plainly_valid({"items": {"anyOf": alternatives}}, ["x"])
    assert not is_plainly_valid({"items": {"anyOf": alternatives}}, ["x"] * 1000)


def test_validation_ends_at_a_depth() -> None:
    schema: Any = {"type": "string"}
    value: Any = "x"
    for _ in range(500):
        schema, value = {"items": schema}, [value]
    assert not is_plainly_valid(schema, value)
    assert not is_plainly_valid({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, 1)
