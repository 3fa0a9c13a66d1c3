"""What the rewriter does with single keywords and references; what holds of all schemas is in `test_schema_laws.py`."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from msgspec import Raw

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
    found = fit_schema(Raw(json.dumps(schema).encode()), dialect)
    assert found.rejection is None
    return json.loads(bytes(found.schema)), [(change.kind, change.path) for change in found.changes]


def unfit(schema: Any, dialect: Dialect) -> str | None:
    return fit_schema(Raw(json.dumps(schema).encode()), dialect).rejection


def of(properties: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


@pytest.mark.parametrize("reference", ["#/$defs/a", "#/%24defs/a", "#named"])
def test_a_reference_by_pointer_or_anchor_is_found(reference: str) -> None:
    schema = of({"x": {"$ref": reference}}, **{"$defs": {"a": {"$anchor": "named", "type": "string"}}})
    made, _ = fitted(schema, PARAMETERS_SCHEMA)
    assert made == of({"x": {"type": "string"}})


def test_definitions_of_one_name_from_two_places_stay_apart() -> None:
    places = {"$defs": {"a": {"type": "string"}}, "definitions": {"a": {"type": "integer"}}}
    schema = of({"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/definitions/a"}}, **places)
    made, changes = fitted(schema, JSON_SCHEMA)
    assert made["properties"] == {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/$defs/a_2"}}
    assert made["$defs"] == {"a": {"type": "string"}, "a_2": {"type": "integer"}}
    assert changes == [("approximated", "/definitions"), ("approximated", "/properties/y/$ref")]


def test_a_definition_that_nothing_refers_to_is_dropped_by_name_where_there_are_none() -> None:
    schema = of({"x": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"type": "string"}, "b": {"type": "integer"}}})
    assert fitted(schema, PARAMETERS_SCHEMA)[1] == [("approximated", "/properties/x/$ref"), ("dropped", "/$defs/b")]


def test_a_schema_that_refers_to_its_root_may_go_on_doing_so() -> None:
    schema = of({"child": {"$ref": "#"}})
    assert fitted(schema, JSON_SCHEMA) == (schema, [])
    assert fitted(schema, OPENAPI) == (of({"child": {"type": "object"}}), [("approximated", "/properties/child/$ref")])


def test_arrays_of_themselves_are_left_open_where_references_are_unrolled() -> None:
    schema = of({"x": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}})
    made, changes = fitted(schema, JSON_SCHEMA)
    assert made["$defs"] == {"a": {"type": "array", "items": {}}}
    assert changes == [("approximated", "/$defs/a/items/$ref")]


def test_all_of_several_objects_is_one_object_that_none_of_them_closes() -> None:
    one = of({"a": {"type": "string"}}, required=["a"], additionalProperties=False)
    two = of({"b": {"type": "integer"}, "a": {"type": "string", "description": "Both."}}, required=["b"])
    made, changes = fitted(of({"x": {"allOf": [one, two]}}), JSON_SCHEMA)
    both = {"a": {"type": "string", "description": "Both."}, "b": {"type": "integer"}}
    assert made["properties"]["x"] == of(both, required=["a", "b"])
    assert ("dropped", "/properties/x/allOf/0/additionalProperties") in changes


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"exclusiveMinimum": 0}, {"minimum": 0, "description": "exclusiveMinimum: 0"}),
        ({"exclusiveMinimum": 0, "minimum": 1}, {"minimum": 1, "description": "exclusiveMinimum: 0"}),
        ({"default": 3, "description": "How many."}, {"description": "How many. (default: 3)"}),
        ({"examples": ["x" * 500]}, {}),
        ({"title": "N", "$comment": "c"}, {"title": "N"}),
    ],
)
def test_what_is_not_taken_is_told_where_it_helps_and_is_short(said: Any, told: Any) -> None:
    assert fitted(of({"n": {"type": "integer", **said}}), JSON_SCHEMA)[0] == of({"n": {"type": "integer", **told}})


def test_a_closed_map_of_one_pattern_is_a_map_of_what_the_pattern_allows() -> None:
    schema = {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}
    made, changes = fitted(schema, JSON_SCHEMA)
    assert made["additionalProperties"] == {"type": "integer"}
    assert changes == [("approximated", "/patternProperties"), ("approximated", "/additionalProperties")]


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        ({"type": "object"}, "objects with arbitrary properties are not supported"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "objects with arbitrary properties are not supported"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}, "objects with arbitrary properties are not supported"),
        ({}, "values without a type are not supported"),
        ({"type": "array"}, "arrays without items are not supported"),
        ({"$ref": "https://example.com/"}, "unresolvable reference"),
    ],
)
def test_strict_has_no_way_to_say_what_is_open(inner: Any, why: str) -> None:
    assert unfit(of({"x": inner}), STRICT_SCHEMA) == why


def test_strict_wants_an_object_at_the_root() -> None:
    assert unfit({"anyOf": [of({}), of({"a": {"type": "string"}})]}, STRICT_SCHEMA) == "the root must be an object"
    nothing = of({}, required=[], additionalProperties=False)
    assert fitted({"type": "object"}, STRICT_SCHEMA)[0] == fitted(of({}), STRICT_SCHEMA)[0] == nothing
    referred = {"$ref": "#/$defs/a", "$defs": {"a": of({"b": {"type": "string"}}, required=["b"])}}
    made, _ = fitted(referred, STRICT_SCHEMA)
    assert (made["type"], made["required"], made["additionalProperties"]) == ("object", ["b"], False)


def test_anthropic_is_not_strict_about_what_leads_back_to_itself() -> None:
    node = of({"next": {"$ref": "#/$defs/node"}}, additionalProperties=False)
    schema = of({"root": {"$ref": "#/$defs/node"}}, additionalProperties=False, **{"$defs": {"node": node}})
    assert unfit(schema, ANTHROPIC_STRICT) == "recursive schemas are not supported"
    assert fitted(schema, OUTPUT_SCHEMA) == (schema, [])


def test_a_format_keeps_all_but_what_the_grammar_compiler_fails_on() -> None:
    schema = of(
        {"a": True, "b": {"type": "string", "pattern": "^x", "not": {"const": "xx"}}}, additionalProperties=False
    )
    made, changes = fitted(schema, FORMAT_SCHEMA)
    told = {"type": "string", "pattern": "^x", "description": 'not: {"const":"xx"}'}
    assert made == of({"a": {}, "b": told}, additionalProperties=False)
    assert changes == [("approximated", "/properties/a"), ("approximated", "/properties/b/not")]


@pytest.mark.parametrize("dialect", [JSON_SCHEMA, PARAMETERS_SCHEMA, FORMAT_SCHEMA], ids=lambda dialect: dialect.name)
@settings(max_examples=300, deadline=None)
@given(schema=JSON)
@example(schema={"required": ["a", "a"]})
def test_what_needs_no_rewriter_would_not_be_rewritten(dialect: Dialect, schema: Any) -> None:
    if _is_portable(schema, dialect):
        rewriter = SchemaRewriter(schema, dialect)
        assert (rewriter.rewrite(), list(rewriter.changes)) == (schema, [])


def test_most_schemas_need_no_rewriter() -> None:
    schema = of({"a": {"type": "array", "items": of({"type": {"type": "string"}})}}, required=["a"])
    assert _is_portable(schema, JSON_SCHEMA)
    assert _is_portable(schema, PARAMETERS_SCHEMA)
    assert not _is_portable({**schema, "description": "At the root."}, PARAMETERS_SCHEMA)


OPTIONAL = of({"a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {"$ref": "#/$defs/c"}}, required=[])
OPTIONAL["$defs"] = {"c": of({"d": {"enum": [1, 2]}, "e": {"enum": [None]}, "f": {"type": "string"}}, required=["f"])}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ('{"a": null,"b":null}', '{"b":null}'),
        ('{"c":{"d":null,"e":null,"f":null}}', '{"c":{"e":null,"f":null}}'),
        ('{"a": "x"}', '{"a": "x"}'),
        ('{"c": null}', "{}"),
        ('{"a": nul', '{"a": nul'),
        ("[null]", "[null]"),
    ],
)
def test_only_null_for_what_is_absent_is_taken_out(said: str, meant: str) -> None:
    assert without_nulls(said, Raw(json.dumps(OPTIONAL).encode())) == meant


def test_arguments_for_an_exponential_schema_are_read_in_bounded_time() -> None:
    definitions: dict[str, Any] = {"d0": of({"a": {"type": "string"}})}
    for level in range(1, 60):
        definitions[f"d{level}"] = {"allOf": [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
    schema = {"$ref": "#/$defs/d59", "$defs": definitions}
    assert without_nulls('{"z":null}', Raw(json.dumps(schema).encode())) == '{"z":null}'


def test_a_place_that_is_no_schema_is_named_each_time() -> None:
    found = fit_schema(Raw(b'{"items": ["x"], "prefixItems": ["x"]}'), JSON_SCHEMA)
    assert {"/items/0", "/prefixItems/0"} <= {change.path for change in found.changes if change.kind == "dropped"}
