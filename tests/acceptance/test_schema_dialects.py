"""Schema dialects of Gemini and Ollama, and OpenAI's strict mode (SC-1 to SC-8 and SC-14)."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import (
    anthropic_request,
    anthropic_tool,
    chat_assistant,
    chat_call,
    chat_fragment,
    chat_response,
    chat_stream,
    request_with_schemas,
    responses_call,
    responses_response,
)
from tests.support.bodies.readers import tool_calls_in_stream
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.translation import translate_stream_bytes

SOURCES = (ANTHROPIC, CHAT, RESPONSES)
OLDER_MODEL = "gemini-2.0-flash"
"""A model that only accepts the older schema dialect."""

SCHEMA_PATHS = {
    ANTHROPIC: "/tools/0/input_schema",
    CHAT: "/tools/0/function/parameters",
    RESPONSES: "/tools/0/parameters",
}

every_source = pytest.mark.parametrize("source", SOURCES)


def to_gemini(schema: dict[str, Any], source: str = ANTHROPIC, model: str = "gemini-3-pro") -> tuple[Any, list[Any]]:
    """Return the declared schema, and the kinds and paths of losses below it."""
    translated = tw.translate(request_with_schemas(source, schema), source, "gemini", model=model)
    (function,) = translated.value["tools"][0]["functionDeclarations"]
    field = "parameters" if model == OLDER_MODEL else "parametersJsonSchema"
    assert {"parameters", "parametersJsonSchema"} & function.keys() == {field}
    return function[field], losses_below_schema(translated, source)


def losses_below_schema(translation: Any, source: str) -> list[Any]:
    start = SCHEMA_PATHS[source]
    return [(loss.kind, loss.path.removeprefix(start)) for loss in translation.losses if loss.path.startswith(start)]


def object_schema(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


ROW = {"type": "object", "properties": {"id": {"type": "integer"}}}


@every_source
def test_sc_1_references_are_kept_where_supported_and_inlined_elsewhere(source: str) -> None:
    rows = {"type": "array", "items": {"$ref": "#/definitions/row"}}
    schema = object_schema({"rows": rows, "more": {"$ref": "#/properties/rows"}}, definitions={"row": ROW})
    row = {"$ref": "#/$defs/row"}
    gemini_schema, losses = to_gemini(schema, source)
    assert gemini_schema == object_schema(
        {"rows": {"type": "array", "items": row}, "more": {"$ref": "#/$defs/properties_rows"}},
        **{"$defs": {"row": ROW, "properties_rows": {"type": "array", "items": row}}},
    )
    references = [("approximated", "/properties/rows/items/$ref"), ("approximated", "/properties/more/$ref")]
    assert sorted(losses) == sorted([*references, ("approximated", "/definitions")])
    inlined = {"type": "array", "items": ROW}
    gemini_schema, losses = to_gemini(schema, source, OLDER_MODEL)
    assert gemini_schema == object_schema({"rows": inlined, "more": inlined})
    assert losses == references


@pytest.mark.parametrize("reference", ["https://example.com/row.json", "#/$defs/missing", "row.json#/a", "#nowhere"])
def test_an_external_reference_is_dropped_and_never_fetched(reference: str) -> None:
    gemini_schema, losses = to_gemini(object_schema({"row": {"$ref": reference, "description": "A row."}}))
    assert gemini_schema == object_schema({"row": {"description": "A row."}})
    assert losses == [("dropped", "/properties/row/$ref")]


@every_source
def test_sc_2_keywords_beside_a_reference_are_kept(source: str) -> None:
    schema = object_schema({"row": {"$ref": "#/$defs/row", "description": "The row."}}, **{"$defs": {"row": ROW}})
    gemini_schema, losses = to_gemini(schema, source)
    union = {"anyOf": [{"$ref": "#/$defs/row"}], "description": "The row."}
    assert gemini_schema == {**schema, "properties": {"row": union}}
    assert losses == [("approximated", "/properties/row/$ref")]
    gemini_schema, losses = to_gemini(schema, source, OLDER_MODEL)
    assert gemini_schema == object_schema({"row": {"description": "The row.", **ROW}})
    assert losses == [("approximated", "/properties/row/$ref")]


def test_constraints_beside_a_reference_are_merged_with_it() -> None:
    schema = {"$ref": "#/$defs/row", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    gemini_schema, _ = to_gemini(object_schema({"row": schema}, **{"$defs": {"row": {**ROW, "required": ["id"]}}}))
    merged = {"name": {"type": "string"}, "id": {"type": "integer"}}
    assert gemini_schema["properties"]["row"] == {"type": "object", "properties": merged, "required": ["name", "id"]}


NODE = object_schema({"next": {"$ref": "#/$defs/node"}})
TREE = object_schema({"root": {"$ref": "#/$defs/node"}}, required=["root"], **{"$defs": {"node": NODE}})


@every_source
def test_sc_3_recursion_is_kept_where_supported_and_left_open_elsewhere(source: str) -> None:
    assert to_gemini(TREE, source) == (TREE, [])
    gemini_schema, losses = to_gemini(TREE, source, OLDER_MODEL)
    assert gemini_schema == object_schema({"root": object_schema({"next": {"type": "object"}})}, required=["root"])
    assert losses == [("approximated", "/properties/root/$ref"), ("approximated", "/$defs/node/properties/next/$ref")]


def test_required_recursion_becomes_optional_for_gemini() -> None:
    gemini_schema, losses = to_gemini({**TREE, "$defs": {"node": {**NODE, "required": ["next"]}}})
    assert gemini_schema == TREE
    assert losses == [("approximated", "/$defs/node/required/0")]


@pytest.mark.parametrize("target", ["gemini", "ollama"])
def test_an_exploding_schema_stays_small(target: str) -> None:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 40):
        two = {"a": {"$ref": f"#/$defs/d{level - 1}"}, "b": {"$ref": f"#/$defs/d{level - 1}"}}
        definitions[f"d{level}"] = object_schema(two)
    schema = object_schema({"x": {"$ref": "#/$defs/d39"}}, **{"$defs": definitions})
    translated = tw.translate(request_with_schemas(ANTHROPIC, schema), ANTHROPIC, target, model=OLDER_MODEL)
    assert len(translated.to_bytes()) < 200_000
    assert ("approximated", "/$defs/d39/properties/a/$ref") in losses_below_schema(translated, ANTHROPIC)


@every_source
def test_sc_4_an_enum_of_other_types_moves_to_the_description_and_keeps_its_type(source: str) -> None:
    schema = object_schema({"n": {"type": "integer", "enum": [15, 60]}, "on": {"type": "boolean", "enum": [True]}})
    described = {"type": "boolean", "description": "enum: [true]"}
    gemini_schema, losses = to_gemini(schema, source)
    assert gemini_schema == object_schema({"n": {"type": "integer", "enum": [15, 60]}, "on": described})
    assert losses == [("approximated", "/properties/on/enum/0")]
    gemini_schema, losses = to_gemini(schema, source, OLDER_MODEL)
    assert gemini_schema == object_schema({"n": {"type": "integer", "description": "enum: [15,60]"}, "on": described})
    assert losses == [("approximated", f"/properties/{path}") for path in ("n/enum/0", "n/enum/1", "on/enum/0")]


@every_source
def test_sc_5_null_leaves_the_enum_and_stays_allowed(source: str) -> None:
    schema = object_schema({"color": {"type": ["string", "null"], "enum": ["red", None]}})
    gemini_schema, losses = to_gemini(schema, source)
    assert gemini_schema == object_schema({"color": {"anyOf": [{"type": "string", "enum": ["red"]}, {"type": "null"}]}})
    assert losses == [("approximated", "/properties/color")]
    gemini_schema, losses = to_gemini(schema, source, OLDER_MODEL)
    assert gemini_schema == object_schema({"color": {"type": "string", "enum": ["red"], "nullable": True}})
    assert ("approximated", "/properties/color") in losses


def test_sc_6_any_stays_any_and_a_null_branch_becomes_nullable() -> None:
    union = {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Perhaps."}
    schema = object_schema({"any": {"anyOf": [{}, {"type": "null"}]}, "text": union})
    assert to_gemini(schema) == (schema, [])
    gemini_schema, losses = to_gemini(schema, model=OLDER_MODEL)
    assert gemini_schema["properties"]["any"] == {}
    assert gemini_schema["properties"]["text"] == {"type": "string", "description": "Perhaps.", "nullable": True}
    assert losses == [("approximated", f"/properties/{name}/anyOf/1") for name in ("any", "text")]


def test_nullable_becomes_a_null_type_where_the_keyword_is_unknown() -> None:
    function = {"name": "f", "parameters": object_schema({"a": {"type": "STRING", "nullable": True, "enum": ["x"]}})}
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "tools": [{"functionDeclarations": [function]}]}
    translated = tw.translate(body, "gemini", ANTHROPIC, model="gemini-2.5-pro")
    nullable = {"type": ["string", "null"], "enum": ["x", None]}
    assert translated.value["tools"][0]["input_schema"] == object_schema({"a": nullable})
    assert [loss.path for loss in translated.losses if loss.path.startswith("/tools")] == []
    assert tw.translate(body, "gemini", "gemini").value == body


def test_sc_7_lists_of_types_and_numbers_as_strings_are_normalized() -> None:
    mixed = {"type": ["string", "array"], "items": {"type": "string"}, "minLength": "1", "maxItems": 4.0}
    gemini_schema, losses = to_gemini(object_schema({"a": mixed}), model=OLDER_MODEL)
    array = {"type": "array", "items": {"type": "string"}, "maxItems": 4}
    assert gemini_schema == object_schema({"a": {"anyOf": [{"type": "string", "minLength": 1}, array]}})
    assert sorted(losses) == [
        ("approximated", "/properties/a/maxItems"),
        ("approximated", "/properties/a/minLength"),
        ("approximated", "/properties/a/type/0"),
        ("approximated", "/properties/a/type/1"),
    ]


@every_source
def test_sc_8_conditions_move_to_the_description_and_boolean_schemas_are_decoded(source: str) -> None:
    condition = {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "not": {"required": ["c"]}}
    schema = object_schema({"a": True, "b": {"type": "string"}, "c": False}, description="Either.", **condition)
    gemini_schema, losses = to_gemini(schema, source)
    text = 'if: {"required":["a"]}, then: {"required":["b"]}, not: {"required":["c"]}'
    assert gemini_schema == object_schema({"a": {}, "b": {"type": "string"}}, description=f"Either. ({text})")
    paths = ("/properties/a", "/properties/c", "/if", "/then", "/not")
    assert losses == [("approximated", path) for path in paths]


def test_a_malformed_schema_is_dropped_and_named() -> None:
    gemini_schema, losses = to_gemini(object_schema({"a": "text", "b": {"type": 99, "items": 3}}, required="a"))
    assert gemini_schema == object_schema({"a": {}, "b": {"items": {}}})
    dropped = ("/properties/a", "/properties/b/type", "/properties/b/items", "/required")
    assert sorted(losses) == sorted(("dropped", path) for path in dropped)


@pytest.mark.parametrize("target", [CHAT, RESPONSES, "openrouter"])
def test_sc_14_a_strict_schema_is_completed_for_the_target(target: str) -> None:
    city, unit = {"type": "string"}, {"type": "string", "enum": ["c", "f"]}
    schema = object_schema({"city": city, "unit": unit}, required=["city"], additionalProperties=False)
    body = anthropic_request(tools=[anthropic_tool(schema=schema, strict=True)])
    translated = tw.translate(body, ANTHROPIC, target)
    (tool,) = translated.value["tools"]
    declared = tool if target == RESPONSES else tool["function"]
    assert declared["strict"] is True
    nullable = {"type": ["string", "null"], "enum": ["c", "f", None]}
    properties = {"city": city, "unit": nullable}
    assert declared["parameters"] == object_schema(properties, required=["city", "unit"], additionalProperties=False)
    assert [(loss.kind, loss.path) for loss in translated.losses if loss.path.startswith("/tools")] == [
        ("approximated", "/tools/0/input_schema/properties/unit")
    ]


@pytest.mark.parametrize("target", [CHAT, RESPONSES, "openrouter"])
def test_an_open_map_disables_strict_and_keeps_the_schema(target: str) -> None:
    schema = object_schema(
        {"labels": {"type": "object", "additionalProperties": {"type": "string"}}}, required=["labels"]
    )
    body = anthropic_request(tools=[anthropic_tool(schema=schema, strict=True)])
    translated = tw.translate(body, ANTHROPIC, target)
    (tool,) = translated.value["tools"]
    declared = tool if target == RESPONSES else tool["function"]
    assert (declared["strict"], declared["parameters"]) == (False, schema)
    assert [(loss.kind, loss.path) for loss in translated.losses if loss.path.startswith("/tools")] == [
        ("approximated", "/tools/0/strict")
    ]


@every_source
def test_a_supported_schema_is_sent_byte_for_byte(source: str) -> None:
    text = '{"type": "object",  "properties": {"b":{"type":"string"}, "a":{"type":"integer"}}, "required": ["a"]}'
    wire = (
        tw.translate(request_with_schemas(source, {"x": 1}), source, source)
        .to_bytes()
        .replace(b'{"x":1}', text.encode())
    )
    for target in ("gemini", "gemini-interactions", "ollama"):
        assert text.encode() in tw.translate(wire, source, target).to_bytes()


WEATHER = object_schema({"city": {"type": "string"}, "unit": {"type": "string"}, "near": {"type": ["string", "null"]}})
STRICT_REQUEST = anthropic_request(tools=[anthropic_tool(schema={**WEATHER, "required": ["city"]}, strict=True)])
ARGUMENTS_WITH_NULLS = '{"city":"Oslo","unit":null,"near":null}'
CLIENT_ARGUMENTS = {"city": "Oslo", "near": None}


def test_null_for_an_absent_argument_is_removed() -> None:
    chat = chat_response(chat_assistant(chat_call("call_1", arguments=ARGUMENTS_WITH_NULLS)))
    translated = tw.translate(chat, CHAT, ANTHROPIC, "response", request=STRICT_REQUEST)
    assert translated.value["content"][0]["input"] == CLIENT_ARGUMENTS
    responses = responses_response(responses_call("call_1", arguments=ARGUMENTS_WITH_NULLS))
    translated = tw.translate(responses, RESPONSES, ANTHROPIC, "response", request=STRICT_REQUEST)
    assert translated.value["content"][0]["input"] == CLIENT_ARGUMENTS


def test_null_for_an_absent_argument_is_removed_from_streams() -> None:
    head = chat_fragment(0, ARGUMENTS_WITH_NULLS[:9], id="call_1", name="get_weather")
    fragments = [chat_fragment(0, piece) for piece in (ARGUMENTS_WITH_NULLS[9:20], ARGUMENTS_WITH_NULLS[20:])]
    (call,) = tool_calls_in_stream(
        ANTHROPIC, translate_stream_bytes(chat_stream(head, *fragments), CHAT, ANTHROPIC, STRICT_REQUEST)
    )
    assert call["arguments"] == CLIENT_ARGUMENTS
