"""The rewriter's handling of single keywords and references; general laws are in `test_laws.py`."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from msgspec import Raw

from tests.support.samples import recorded_bodies
from tests.support.schema_strategies import JSON
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.schema.rewriter import SchemaRewriter, _is_portable, fit_schema
from toolwire.protocols.anthropic.fields import OUTPUT_SCHEMA
from toolwire.protocols.anthropic.fields import STRICT_SCHEMA as ANTHROPIC_STRICT
from toolwire.protocols.ollama.fields import FORMAT_SCHEMA, PARAMETERS_SCHEMA
from toolwire.protocols.vendors.google.request import JSON_SCHEMA, OPENAPI
from toolwire.protocols.vendors.openai import STRICT_SCHEMA
from toolwire.translation.stages.restore_calls import without_nulls


def fitted(schema: Any, dialect: Dialect) -> tuple[Any, list[tuple[str, str]]]:
    result = fit_schema(Raw(json.dumps(schema).encode()), dialect)
    assert result.rejection is None
    return json.loads(bytes(result.schema)), [(change.kind, change.path) for change in result.changes]


def rejection(schema: Any, dialect: Dialect) -> str | None:
    return fit_schema(Raw(json.dumps(schema).encode()), dialect).rejection


def object_schema(properties: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


@pytest.mark.parametrize("reference", ["#/$defs/a", "#/%24defs/a", "#named"])
def test_reference_resolves_by_pointer_or_anchor(reference: str) -> None:
    schema = object_schema({"x": {"$ref": reference}}, **{"$defs": {"a": {"$anchor": "named", "type": "string"}}})
    rewritten, _ = fitted(schema, PARAMETERS_SCHEMA)
    assert rewritten == object_schema({"x": {"type": "string"}})


def test_equally_named_definitions_stay_distinct() -> None:
    definitions = {"$defs": {"a": {"type": "string"}}, "definitions": {"a": {"type": "integer"}}}
    schema = object_schema({"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/definitions/a"}}, **definitions)
    rewritten, changes = fitted(schema, JSON_SCHEMA)
    assert rewritten["properties"] == {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/$defs/a_2"}}
    assert rewritten["$defs"] == {"a": {"type": "string"}, "a_2": {"type": "integer"}}
    assert changes == [("approximated", "/definitions"), ("approximated", "/properties/y/$ref")]


def test_unused_definition_is_reported() -> None:
    schema = object_schema(
        {"x": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    )
    assert fitted(schema, PARAMETERS_SCHEMA)[1] == [("approximated", "/properties/x/$ref"), ("dropped", "/$defs/b")]


def test_reference_to_the_root_is_kept_where_supported() -> None:
    schema = object_schema({"child": {"$ref": "#"}})
    assert fitted(schema, JSON_SCHEMA) == (schema, [])
    assert fitted(schema, OPENAPI) == (
        object_schema({"child": {"type": "object"}}),
        [("approximated", "/properties/child/$ref")],
    )


def test_recursive_array_items_are_left_unrestricted() -> None:
    schema = object_schema(
        {"x": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}
    )
    rewritten, changes = fitted(schema, JSON_SCHEMA)
    assert rewritten["$defs"] == {"a": {"type": "array", "items": {}}}
    assert changes == [("approximated", "/$defs/a/items/$ref")]


def test_all_of_objects_is_merged_and_stays_open() -> None:
    first = object_schema({"a": {"type": "string"}}, required=["a"], additionalProperties=False)
    second = object_schema({"b": {"type": "integer"}, "a": {"type": "string", "description": "Both."}}, required=["b"])
    rewritten, changes = fitted(object_schema({"x": {"allOf": [first, second]}}), JSON_SCHEMA)
    both = {"a": {"type": "string", "description": "Both."}, "b": {"type": "integer"}}
    assert rewritten["properties"]["x"] == object_schema(both, required=["a", "b"])
    assert ("dropped", "/properties/x/allOf/0/additionalProperties") in changes


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({"exclusiveMinimum": 0}, {"minimum": 0, "description": "exclusiveMinimum: 0"}),
        ({"exclusiveMinimum": 0, "minimum": 1}, {"minimum": 1, "description": "exclusiveMinimum: 0"}),
        ({"default": 3, "description": "How many."}, {"description": "How many. (default: 3)"}),
        ({"examples": ["x" * 500]}, {}),
        ({"title": "N", "$comment": "c"}, {"title": "N"}),
    ],
)
def test_short_unsupported_keywords_move_into_the_description(keywords: Any, expected: Any) -> None:
    assert fitted(object_schema({"n": {"type": "integer", **keywords}}), JSON_SCHEMA)[0] == object_schema(
        {"n": {"type": "integer", **expected}}
    )


def test_single_pattern_becomes_additional_properties() -> None:
    schema = {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}
    rewritten, changes = fitted(schema, JSON_SCHEMA)
    assert rewritten["additionalProperties"] == {"type": "integer"}
    assert changes == [("approximated", "/patternProperties"), ("approximated", "/additionalProperties")]


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ({"type": "object"}, "objects with arbitrary properties are not supported"),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            "objects with arbitrary properties are not supported",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
            "objects with arbitrary properties are not supported",
        ),
        ({}, "values without a type are not supported"),
        ({"type": "array"}, "arrays without items are not supported"),
        ({"$ref": "https://example.com/"}, "unresolvable reference"),
    ],
)
def test_strict_dialect_rejects_open_schemas(inner: Any, reason: str) -> None:
    assert rejection(object_schema({"x": inner}), STRICT_SCHEMA) == reason


def test_strict_dialect_requires_an_object_at_the_root() -> None:
    assert (
        rejection({"anyOf": [object_schema({}), object_schema({"a": {"type": "string"}})]}, STRICT_SCHEMA)
        == "the root must be an object"
    )
    empty = object_schema({}, required=[], additionalProperties=False)
    assert fitted({"type": "object"}, STRICT_SCHEMA)[0] == fitted(object_schema({}), STRICT_SCHEMA)[0] == empty
    referred = {"$ref": "#/$defs/a", "$defs": {"a": object_schema({"b": {"type": "string"}}, required=["b"])}}
    rewritten, _ = fitted(referred, STRICT_SCHEMA)
    assert (rewritten["type"], rewritten["required"], rewritten["additionalProperties"]) == ("object", ["b"], False)


def test_anthropic_strict_rejects_recursive_schemas() -> None:
    node = object_schema({"next": {"$ref": "#/$defs/node"}}, additionalProperties=False)
    schema = object_schema({"root": {"$ref": "#/$defs/node"}}, additionalProperties=False, **{"$defs": {"node": node}})
    assert rejection(schema, ANTHROPIC_STRICT) == "recursive schemas are not supported"
    assert fitted(schema, OUTPUT_SCHEMA) == (schema, [])


def test_ollama_format_drops_only_unsupported_grammar() -> None:
    schema = object_schema(
        {"a": True, "b": {"type": "string", "pattern": "^x", "not": {"const": "xx"}}}, additionalProperties=False
    )
    rewritten, changes = fitted(schema, FORMAT_SCHEMA)
    described = {"type": "string", "pattern": "^x", "description": 'not: {"const":"xx"}'}
    assert rewritten == object_schema({"a": {}, "b": described}, additionalProperties=False)
    assert changes == [("approximated", "/properties/a"), ("approximated", "/properties/b/not")]


@settings(max_examples=recorded_bodies.example_count(300))
@given(schema=JSON)
@example(schema={"required": ["a", "a"]})
def test_portable_schemas_are_not_changed_by_the_rewriter(schema: Any) -> None:
    for dialect in (JSON_SCHEMA, PARAMETERS_SCHEMA, FORMAT_SCHEMA):
        if _is_portable(schema, dialect):
            rewriter = SchemaRewriter(schema, dialect)
            assert (rewriter.rewrite(), list(rewriter.changes)) == (schema, []), dialect.name


def test_common_schemas_are_portable() -> None:
    schema = object_schema(
        {"a": {"type": "array", "items": object_schema({"type": {"type": "string"}})}}, required=["a"]
    )
    assert _is_portable(schema, JSON_SCHEMA)
    assert _is_portable(schema, PARAMETERS_SCHEMA)
    assert not _is_portable({**schema, "description": "At the root."}, PARAMETERS_SCHEMA)


OPTIONAL = object_schema(
    {"a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {"$ref": "#/$defs/c"}}, required=[]
)
OPTIONAL["$defs"] = {
    "c": object_schema({"d": {"enum": [1, 2]}, "e": {"enum": [None]}, "f": {"type": "string"}}, required=["f"])
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": null,"b":null}', '{"b":null}'),
        ('{"c":{"d":null,"e":null,"f":null}}', '{"c":{"e":null,"f":null}}'),
        ('{"a": "x"}', '{"a": "x"}'),
        ('{"c": null}', "{}"),
        ('{"a": nul', '{"a": nul'),
        ("[null]", "[null]"),
    ],
)
def test_only_nulls_of_optional_properties_are_removed(arguments: str, expected: str) -> None:
    assert without_nulls(arguments, Raw(json.dumps(OPTIONAL).encode())) == expected


def test_null_removal_has_bounded_cost() -> None:
    definitions: dict[str, Any] = {"d0": object_schema({"a": {"type": "string"}})}
    for level in range(1, 60):
        definitions[f"d{level}"] = {"allOf": [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
    schema = {"$ref": "#/$defs/d59", "$defs": definitions}
    assert without_nulls('{"z":null}', Raw(json.dumps(schema).encode())) == '{"z":null}'


def test_invalid_subschemas_are_reported_at_each_location() -> None:
    result = fit_schema(Raw(b'{"items": ["x"], "prefixItems": ["x"]}'), JSON_SCHEMA)
    assert {"/items/0", "/prefixItems/0"} <= {change.path for change in result.changes if change.kind == "dropped"}
