"""Laws of writing calls in a dialect: the dialect's parser reads back what its renderer wrote."""

import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from tests.support.assertions import non_empty
from tests.support.samples.text_calls import TextCase, all_cases, outcome, parse_text
from toolwire.translation.stages.tool_call_parsers.registry import DIALECTS
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall, WrittenResult

EXAMPLES = 500 if os.environ.get("TOOLWIRE_WHOLE_CORPUS") else 50
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "deep": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "floors": {"type": "array", "items": {"type": "integer"}}},
        },
        "nothing": {"type": "null"},
    },
}
TOOLS: dict[str, Raw | None] = {
    name: Raw(json.dumps(SCHEMA).encode()) for name in ("look_up", "now", "files-read", "a1")
}

# The schema declares a string where the call has an object, or nothing for a string that looks like a number.
UNTYPED = frozenset({"gigachat3-8b1b122565", "gigachat3-d38a3ffc39", "gigachat3-401c7c56bc", "glm-c758f1df6a"})

# Signs that begin a mark of some dialect: values with these are legal, but a value that holds the dialect's closing
# mark ends there, as it does for the model's engine.
strings = st.text(st.characters(exclude_characters="<]", exclude_categories=["Cs"]), max_size=30)
numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9).map(
    lambda number: int(number) if number.is_integer() else number
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "text": strings,
        "count": st.integers(-(10**12), 10**12),
        "share": numbers,
        "deep": st.booleans(),
        "names": st.lists(strings, max_size=3),
        "place": st.fixed_dictionaries(
            {}, optional={"city": strings, "floors": st.lists(st.integers(-9, 99), max_size=3)}
        ),
        "nothing": st.none(),
    },
)
calls_to_write = st.lists(st.tuples(st.sampled_from(sorted(TOOLS)), arguments), min_size=1, max_size=3)


def written(calls: list[dict[str, Any]]) -> list[WrittenCall]:
    return [
        WrittenCall(call["name"], json.dumps(call["arguments"], ensure_ascii=False), number)
        for number, call in enumerate(calls)
    ]


def is_declared(case: TextCase, *, strict: bool) -> bool:
    """Return whether the schemas of a case declare its arguments as they are, which dialects without types need."""
    if case.id in UNTYPED:
        return False
    schemas = [(call, json.loads(bytes(case.tools[call["name"]] or b"{}"))) for call in case.calls]
    return not strict or all(
        call["arguments"].keys() <= schema.get("properties", {}).keys() for call, schema in schemas
    )


@pytest.mark.parametrize("parser", ["auto", "named"])
@pytest.mark.parametrize("name", DIALECTS)
def test_the_calls_of_every_case_are_read_back_in_every_dialect(name: str, parser: str) -> None:
    dialect = DIALECTS[name]
    cases = [case for case in all_cases() if case.kind == "call" and case.calls]
    for case in non_empty([case for case in cases if is_declared(case, strict=name == "minicpm5")]):
        text = dialect.render_calls(written(case.calls))
        model = next(iter(dialect.models), None)
        result = outcome(parse_text(text, case.tools, calls="auto" if parser == "auto" else name, model=model))
        assert (result.calls, result.content) == (case.calls, ""), (case.id, text)


@pytest.mark.parametrize("name", DIALECTS)
def test_any_calls_are_read_back_in_every_dialect(name: str) -> None:
    @settings(max_examples=EXAMPLES)
    @given(calls_to_write)
    def law(calls: list[tuple[str, dict[str, Any]]]) -> None:
        expected = [{"name": tool, "arguments": values} for tool, values in calls]
        text = DIALECTS[name].render_calls(written(expected))
        assert outcome(parse_text(text, TOOLS, calls=name)).calls == expected, text

    law()


@pytest.mark.parametrize("name", DIALECTS)
def test_results_are_written_in_order_and_are_no_calls(name: str) -> None:
    text = DIALECTS[name].render_results([WrittenResult("now", "12:30", 0), WrittenResult("look_up", "no match", 1)])
    assert 0 < text.index("12:30") < text.index("no match")
    assert outcome(parse_text(text, TOOLS)).calls == []


@pytest.mark.parametrize("name", DIALECTS)
def test_arguments_that_are_no_object_are_written_as_they_are(name: str) -> None:
    assert "12, 13" in DIALECTS[name].render_calls([WrittenCall("now", "[12, 13")])
