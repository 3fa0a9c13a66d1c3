import json
import re
from typing import Any

import pytest

from toolwire.canonical.tools import Grammar
from toolwire.runtime.calls.validation import CallValidationError, InvalidSchema, check_schema, read_arguments
from toolwire.runtime.tool import Tool

READ = {
    "type": "object",
    "properties": {"absolute_path": {"type": "string"}, "offset": {"type": "integer", "minimum": 0}},
    "required": ["absolute_path"],
    "additionalProperties": False,
}


async def nothing(arguments: Any, calling: Any) -> None:
    return None


def tool(parameters: Any = None, grammar: Grammar | None = None) -> Tool:
    return Tool(name="read_file", run=nothing, parameters=parameters or READ, grammar=grammar)


def validation_message(text: str, parameters: Any = None, *, repair: bool = False) -> str:
    with pytest.raises(CallValidationError) as caught:
        read_arguments(tool(parameters), text, repair=repair)
    return str(caught.value)


def test_valid_arguments_are_unchanged() -> None:
    assert read_arguments(tool(), '{"absolute_path": "/a", "offset": 3}') == ({"absolute_path": "/a", "offset": 3}, ())


def test_empty_text_means_no_arguments() -> None:
    assert read_arguments(tool({"type": "object"}), " ") == ({}, ())


def test_unknown_argument_error_lists_the_allowed_names() -> None:
    message = validation_message('{"file_path": "/a"}')
    assert "nothing was run" in message
    assert "'file_path' was unexpected" in message
    assert "allowed: absolute_path, offset" in message
    assert '"absolute_path" is a required property (required)' in message


def test_errors_name_path_and_keyword() -> None:
    assert "- /offset: -1 is less than the minimum of 0 (minimum)" in validation_message(
        '{"absolute_path": "a", "offset": -1}'
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"absolute_path": ', "not valid JSON"),
        ('{"absolute_path": "a", "absolute_path": "b"}', "duplicate name 'absolute_path'"),
        ('{"absolute_path": NaN}', "NaN is not a JSON value"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_invalid_json_is_reported(text: str, reason: str) -> None:
    assert reason in validation_message(text)


def test_half_of_a_surrogate_pair_in_a_name_is_reported() -> None:
    assert "half of a surrogate pair" in validation_message('{"\\ud83d": "x"}')
    assert "half of a surrogate pair" in validation_message('{"a": 1, "\\ud83d": "x"}', {"type": "array"})
    assert read_arguments(tool({"type": "object"}), '{"\\ud83d\\ude00": "x"}')[0] == {"\U0001f600": "x"}


def test_integers_of_any_size_are_exact() -> None:
    big = 2**200
    assert read_arguments(tool({"type": "object"}), json.dumps({"n": big}))[0] == {"n": big}


def test_long_messages_and_many_errors_are_bounded() -> None:
    many = {"type": "object", "additionalProperties": {"type": "integer"}}
    message = validation_message(json.dumps({f"k{n}": "x" * 10_000 for n in range(1000)}), many)
    assert len(message) < 10_000


def test_remote_reference_is_never_fetched() -> None:
    with pytest.raises(InvalidSchema, match="read_file"):
        check_schema(tool({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}))


def test_regex_pattern_takes_bounded_time() -> None:
    evil = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|a?)+$"}}}
    with pytest.raises(CallValidationError):  # by backtracking it would take 2 to the power of 90 steps
        read_arguments(tool(evil), json.dumps({"a": "a" * 90 + "!"}))


# ---- repairs

NESTED = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "options": {"type": "object", "properties": {"deep": {"type": "boolean"}}},
        "note": {"type": ["string", "object"]},
    },
    "$defs": {"item": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    "additionalProperties": False,
}


def test_arguments_are_repaired_only_on_request() -> None:
    assert "is not of type" in validation_message('{"options": "{\\"deep\\": true}"}', NESTED)


def test_double_encoded_json_is_decoded_and_reported() -> None:
    text = json.dumps({"options": '{"deep": true}', "items": ['{"n": 1}'], "note": '{"a": 1}'})
    value, repairs = read_arguments(tool(NESTED), text, repair=True)
    assert value == {"options": {"deep": True}, "items": [{"n": 1}], "note": '{"a": 1}'}
    assert repairs == (
        "/options: decoded a JSON string to an object",
        "/items/0: decoded a JSON string to an object",
    )


def test_top_level_object_may_be_double_encoded() -> None:
    value, repairs = read_arguments(tool(), json.dumps('{"absolute_path": "/a"}'), repair=True)
    assert value == {"absolute_path": "/a"}
    assert len(repairs) == 1


def test_whole_float_is_converted_to_an_integer() -> None:
    value, repairs = read_arguments(tool(NESTED), '{"items": [{"n": 10.0}]}', repair=True)
    assert value["items"][0]["n"] == 10
    assert type(value["items"][0]["n"]) is int
    assert repairs == ("/items/0/n: converted 10.0 to an integer",)


ALMOST = [
    ('{"absolute_path": "a",}', {"absolute_path": "a"}, ["/: removed a trailing comma"]),
    (
        "{'absolute_path': 'it\\'s \"a\"'}",
        {"absolute_path": 'it\'s "a"'},
        ["/: replaced single quotes with double quotes"],
    ),
    ('{"absolute_path": "a,}", }', {"absolute_path": "a,}"}, ["/: removed a trailing comma"]),
]


@pytest.mark.parametrize(("text", "value", "notes"), ALMOST)
def test_almost_valid_json_is_repaired_on_request(text: str, value: Any, notes: list[str]) -> None:
    """Trailing commas and single quotes were not repaired."""
    assert "not valid JSON" in validation_message(text)
    assert re.search(r"\(char \d+\)", validation_message(text))
    assert read_arguments(tool(), text, repair=True) == (value, tuple(notes))


@pytest.mark.parametrize(
    "text", ["{'absolute_path': 'a", "{'absolute_path': 'it's'}", '{"absolute_path": "a",', "{'a", "'"]
)
def test_ambiguous_errors_are_not_repaired(text: str) -> None:
    assert "not valid JSON" in validation_message(text, repair=True)


def test_repair_takes_linear_time() -> None:
    text = '{"absolute_path": "' + '\\"' * 500_000
    assert "not valid JSON" in validation_message(text, repair=True)


def test_repair_that_leaves_arguments_invalid_is_discarded() -> None:
    assert "is not of type" in validation_message('{"options": "{\\"deep\\": 3}"}', NESTED, repair=True)


# ---- grammars

PATCH = Grammar(
    syntax="lark",
    definition='start: "*** Begin Patch" LF hunk+ "*** End Patch" LF?\nhunk: "+" /[^\\n]*/ LF\nLF: "\\n"\n',
)


def test_text_that_matches_its_grammar_is_the_input() -> None:
    text = "*** Begin Patch\n+é\n*** End Patch"
    assert read_arguments(tool(grammar=PATCH), text) == (text, ())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("*** Begin Patch\nabc\n*** End Patch", "unexpected 'abc\\n*** End Patch' at byte 16"),
        ("*** Begin Patch\n+abc\n", "unexpected end of input"),
        ("+" * 2_000_000, "longer than"),
    ],
)
def test_grammar_error_names_the_position(text: str, reason: str) -> None:
    with pytest.raises(CallValidationError) as caught:
        read_arguments(tool(grammar=PATCH), text)
    assert reason in str(caught.value)
    assert caught.value.kind == "grammar"


def test_regex_grammar_must_match_the_complete_text() -> None:
    digits = Grammar(syntax="regex", definition=r"\d{3}")
    assert read_arguments(tool(grammar=digits), "123")[0] == "123"
    with pytest.raises(CallValidationError, match="does not match"):
        read_arguments(tool(grammar=digits), "1234")


@pytest.mark.parametrize(
    "bad", [Grammar(syntax="lark", definition="start: ("), Grammar(syntax="regex", definition="(")]
)
def test_invalid_grammar_is_reported(bad: Grammar) -> None:
    with pytest.raises(CallValidationError, match="invalid grammar"):
        read_arguments(tool(grammar=bad), "x")


def test_arguments_too_costly_to_validate_are_refused() -> None:
    branch = {"properties": {"a": {"$ref": "#"}}, "required": ["a", "b"]}
    text = '{"a": ' * 40 + "{}" + ', "b": 1}' * 40
    # Ten to the power of forty branches: it would never end.
    assert "nested too deeply" in validation_message(text, {"type": "object", "anyOf": [branch] * 10})


def test_recursive_schema_accepts_deep_values() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    text = '{"children": [' * 40 + "]}" * 40
    assert read_arguments(tool(tree), text)[1] == ()
