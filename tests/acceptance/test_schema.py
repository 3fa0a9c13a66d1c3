"""Schemas for targets that accept any JSON Schema (SC-9 to SC-20); dialects are in `test_schema_dialects.py`."""

import copy
import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    anthropic_request,
    anthropic_tool,
    chat_request,
    request_with_schemas,
    responses_request,
)
from tests.support.bodies.readers import declared_schemas
from tests.support.protocols import ANTHROPIC, CHAT, CORE_PAIRS, RESPONSES
from tests.support.translation import has_loss_at, loss_paths, translated_body

RECURSIVE: dict[str, Any] = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
}
KEYWORD_NAMES: dict[str, Any] = {
    "type": "object",
    "title": "Book",
    "properties": {
        "title": {"type": "string"},
        "type": {"type": "string"},
        "properties": {"type": "object", "properties": {"required": {"type": "boolean"}}},
        "required": {"type": "array", "items": {"type": "string"}},
        "$ref": {"type": "string"},
    },
    "required": ["title", "type", "properties", "required"],
    "$defs": {"title": {"title": "Title", "type": "string"}},
}
CATCHALL: dict[str, Any] = {
    "type": "object",
    "properties": {"rows": {"type": "object", "additionalProperties": {"$ref": "#/definitions/row"}}},
    "patternProperties": {"^x-": {"type": "integer"}},
    "definitions": {"row": {"type": "array", "prefixItems": [{"type": "string"}, True], "items": False}},
}
COMPOSED: dict[str, Any] = {
    "type": "object",
    "allOf": [
        {"properties": {"a": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}}},
        {"allOf": [{"properties": {"b": {"type": "integer", "minimum": 0}}}], "required": ["b"]},
    ],
}
UNKNOWN_KEYWORDS: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string", "x-order": 1, "contentEncoding": "base64"}},
    "$comment": "kept",
    "dependentRequired": {"a": ["b"]},
}


def translate_schema(schema: dict[str, Any], source: str, target: str) -> Any:
    return declared_schemas(target, translated_body(request_with_schemas(source, schema), source, target))["tool_0"]


@pytest.mark.parametrize(("source", "target"), CORE_PAIRS)
def test_a_recursive_schema_keeps_its_references(source: str, target: str) -> None:
    assert translate_schema(RECURSIVE, source, target) == RECURSIVE


@pytest.mark.parametrize("key", ["eager_input_streaming", "defer_loading"])
def test_sc_9_vendor_specific_keys_are_dropped_and_reported(key: str) -> None:
    body = anthropic_request(tools=[anthropic_tool("plain"), {**anthropic_tool(), key: True}])
    translated = translated_body(body, ANTHROPIC, CHAT)
    assert key not in json.dumps(translated)
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), f"/tools/1/{key}")


@pytest.mark.parametrize(("source", "target"), CORE_PAIRS)
def test_sc_10_property_names_are_not_keywords(source: str, target: str) -> None:
    assert translate_schema(KEYWORD_NAMES, source, target) == KEYWORD_NAMES


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_sc_11_a_missing_type_is_added_to_a_copy(source: str) -> None:
    body = request_with_schemas(source, {"properties": {"city": {"type": "string"}}})
    before = copy.deepcopy(body)
    schemas = declared_schemas(ANTHROPIC, translated_body(body, source, ANTHROPIC))["tool_0"]
    assert schemas == {"type": "object", "properties": {"city": {"type": "string"}}}
    assert body == before


@pytest.mark.parametrize("schema", [{}, {"type": "object", "properties": None}, None])
def test_sc_12_a_tool_without_arguments_has_an_empty_object(schema: Any) -> None:
    function = {"name": "now"} if schema is None else {"name": "now", "parameters": schema}
    body = chat_request(tools=[{"type": "function", "function": function}])
    schemas = declared_schemas(ANTHROPIC, translated_body(body, CHAT, ANTHROPIC))
    assert schemas == {"now": {"type": "object", "properties": {}}}
    explicit = {"type": "object", "properties": {}}
    assert declared_schemas(CHAT, translated_body(request_with_schemas(ANTHROPIC, explicit), ANTHROPIC, CHAT)) == {
        "tool_0": explicit
    }


@pytest.mark.parametrize("source", [ANTHROPIC, CHAT])
def test_sc_13_a_tool_that_is_not_strict_says_so_to_responses(source: str) -> None:
    translated = translated_body(
        request_with_schemas(source, {"type": "object", "properties": {"city": {"type": "string"}}}), source, RESPONSES
    )
    assert translated["tools"][0]["strict"] is False


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_sc_15_an_output_format_uses_only_keywords_that_the_target_compiles(source: str) -> None:
    count = {"type": "integer", "minimum": 1, "maximum": 9}
    schema = {"type": "object", "properties": {"n": count}, "required": ["n"], "additionalProperties": False}
    described = {"name": "answer", "schema": schema, "strict": True}
    if source == CHAT:
        body = chat_request(response_format={"type": "json_schema", "json_schema": described})
    else:
        body = responses_request(text={"format": {"type": "json_schema", **described}})
    translated = translated_body(body, source, ANTHROPIC)["output_config"]["format"]
    assert translated["type"] == "json_schema"
    bounds = {"minimum", "maximum"}
    assert not bounds & translated["schema"]["properties"]["n"].keys()
    assert translated["schema"]["required"] == ["n"]
    assert any("schema" in path for path in loss_paths(body, source, ANTHROPIC))


@pytest.mark.parametrize(("source", "target"), CORE_PAIRS)
def test_sc_17_maps_and_root_definitions_survive(source: str, target: str) -> None:
    assert translate_schema(CATCHALL, source, target) == CATCHALL


@pytest.mark.parametrize(("source", "target"), CORE_PAIRS)
def test_sc_18_composed_schemas_survive_at_every_depth(source: str, target: str) -> None:
    assert translate_schema(COMPOSED, source, target) == COMPOSED


@pytest.mark.parametrize(("source", "target"), CORE_PAIRS)
def test_sc_19_the_order_of_keys_is_kept_and_the_bytes_are_stable(source: str, target: str) -> None:
    properties = {name: {"type": "string", "description": name} for name in ("zeta", "alpha", "mid", "beta")}
    wire = json.dumps(request_with_schemas(source, {"type": "object", "properties": properties})).encode()
    once, repeated = (
        toolwire.translate(wire, source=source, target=target, kind="request").to_bytes() for _ in range(2)
    )
    assert once == repeated
    schema = declared_schemas(target, json.loads(once))["tool_0"]
    assert list(schema["properties"]) == list(properties)


@pytest.mark.parametrize(("source", "target"), [*CORE_PAIRS, (ANTHROPIC, ANTHROPIC)])
def test_sc_20_unknown_keywords_are_kept(source: str, target: str) -> None:
    assert translate_schema(UNKNOWN_KEYWORDS, source, target) == UNKNOWN_KEYWORDS
