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


def said(text: str, parameters: Any = None, *, repair: bool = False) -> str:
    with pytest.raises(CallValidationError) as caught:
        read_arguments(tool(parameters), text, repair=repair)
    return str(caught.value)


def test_valid_arguments_are_given_as_they_are() -> None:
    assert read_arguments(tool(), '{"absolute_path": "/a", "offset": 3}') == ({"absolute_path": "/a", "offset": 3}, ())


def test_no_text_is_no_arguments() -> None:
    assert read_arguments(tool({"type": "object"}), " ") == ({}, ())


def test_a_wrong_name_is_told_with_the_right_ones() -> None:
    message = said('{"file_path": "/a"}')
    assert "nothing was run" in message
    assert "'file_path' was unexpected" in message
    assert "allowed: absolute_path, offset" in message
    assert '"absolute_path" is a required property (required)' in message


def test_path_and_rule_are_named() -> None:
    assert "- /offset: -1 is less than the minimum of 0 (minimum)" in said('{"absolute_path": "a", "offset": -1}')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"absolute_path": ', "not valid JSON"),
        ('{"absolute_path": "a", "absolute_path": "b"}', "duplicate name 'absolute_path'"),
        ('{"absolute_path": NaN}', "NaN is not a JSON value"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_is_told(text: str, why: str) -> None:
    assert why in said(text)


def test_integers_of_any_size_are_exact() -> None:
    big = 2**200
    assert read_arguments(tool({"type": "object"}), json.dumps({"n": big}))[0] == {"n": big}


def test_long_messages_and_many_errors_are_bounded() -> None:
    many = {"type": "object", "additionalProperties": {"type": "integer"}}
    message = said(json.dumps({f"k{n}": "x" * 10_000 for n in range(1000)}), many)
    assert len(message) < 10_000


def test_a_remote_reference_is_never_fetched() -> None:
    with pytest.raises(InvalidSchema, match="read_file"):
        check_schema(tool({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}))


def test_a_pattern_can_not_hold_up_everything() -> None:
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


def test_repairs_are_made_only_when_asked_for() -> None:
    assert "is not of type" in said('{"options": "{\\"deep\\": true}"}', NESTED)


def test_double_encoded_json_is_read_and_reported() -> None:
    text = json.dumps({"options": '{"deep": true}', "items": ['{"n": 1}'], "note": '{"a": 1}'})
    value, repairs = read_arguments(tool(NESTED), text, repair=True)
    assert value == {"options": {"deep": True}, "items": [{"n": 1}], "note": '{"a": 1}'}
    assert repairs == (
        "/options: decoded a JSON string to an object",
        "/items/0: decoded a JSON string to an object",
    )


def test_the_whole_may_be_double_encoded() -> None:
    value, repairs = read_arguments(tool(), json.dumps('{"absolute_path": "/a"}'), repair=True)
    assert value == {"absolute_path": "/a"}
    assert len(repairs) == 1


def test_a_whole_float_is_the_integer_that_it_is() -> None:
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
def test_r_10_almost_json_is_mended_when_asked_for(text: str, value: Any, notes: list[str]) -> None:
    """R-10: a trailing comma and single quotes were mended by nobody."""
    assert "not valid JSON" in said(text)
    assert re.search(r"\(char \d+\)", said(text))
    assert read_arguments(tool(), text, repair=True) == (value, tuple(notes))


@pytest.mark.parametrize(
    "text", ["{'absolute_path': 'a", "{'absolute_path': 'it's'}", '{"absolute_path": "a",', "{'a", "'"]
)
def test_r_10_what_would_have_to_be_guessed_is_not_mended(text: str) -> None:
    assert "not valid JSON" in said(text, repair=True)


def test_r_10_mending_takes_time_in_proportion_to_the_text() -> None:
    text = '{"absolute_path": "' + '\\"' * 500_000
    assert "not valid JSON" in said(text, repair=True)


def test_a_repair_that_does_not_make_it_valid_is_not_made() -> None:
    assert "is not of type" in said('{"options": "{\\"deep\\": 3}"}', NESTED, repair=True)


# ---- grammars

PATCH = Grammar(
    syntax="lark",
    definition='start: "*** Begin Patch" LF hunk+ "*** End Patch" LF?\nhunk: "+" /[^\\n]*/ LF\nLF: "\\n"\n',
)


def test_a_text_that_fits_its_grammar_is_the_input() -> None:
    text = "*** Begin Patch\n+é\n*** End Patch"
    assert read_arguments(tool(grammar=PATCH), text) == (text, ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("*** Begin Patch\nabc\n*** End Patch", "unexpected 'abc\\n*** End Patch' at byte 16"),
        ("*** Begin Patch\n+abc\n", "unexpected end of input"),
        ("+" * 2_000_000, "longer than"),
    ],
)
def test_where_a_text_leaves_its_grammar_is_told(text: str, why: str) -> None:
    with pytest.raises(CallValidationError) as caught:
        read_arguments(tool(grammar=PATCH), text)
    assert why in str(caught.value)
    assert caught.value.kind == "grammar"


def test_a_regular_grammar_holds_for_the_whole_text() -> None:
    digits = Grammar(syntax="regex", definition=r"\d{3}")
    assert read_arguments(tool(grammar=digits), "123")[0] == "123"
    with pytest.raises(CallValidationError, match="does not match"):
        read_arguments(tool(grammar=digits), "1234")


@pytest.mark.parametrize(
    "bad", [Grammar(syntax="lark", definition="start: ("), Grammar(syntax="regex", definition="(")]
)
def test_a_grammar_that_is_wrong_says_so(bad: Grammar) -> None:
    with pytest.raises(CallValidationError, match="invalid grammar"):
        read_arguments(tool(grammar=bad), "x")


def test_arguments_that_would_take_for_ever_to_check_are_refused_at_once() -> None:
    branch = {"properties": {"a": {"$ref": "#"}}, "required": ["a", "b"]}
    text = '{"a": ' * 40 + "{}" + ', "b": 1}' * 40
    # Ten to the power of forty branches: it would never end.
    assert "nested too deeply" in said(text, {"type": "object", "anyOf": [branch] * 10})


def test_a_tree_may_be_deep() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    text = '{"children": [' * 40 + "]}" * 40
    assert read_arguments(tool(tree), text)[1] == ()
