"""Laws of recovering calls from text: the same outcome for every cut, totality, and no call that was not written."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from tests.support.samples.corpus import needs_recordings
from tests.support.samples.text_calls import all_cases, fixture_cases, outcome, parse_pieces, parse_text
from toolwire.translation.stages.tool_call_parsers.registry import DIALECTS, vocabulary

EXAMPLES = 10_000 if os.environ.get("TOOLWIRE_WHOLE_CORPUS") else 400
TOOLS: dict[str, Raw | None] = {
    "get_weather": Raw(b'{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}'),
    "now": None,
}
WORDS = vocabulary("auto", "auto", None, interleaved=False)
MARKS = sorted(
    {
        *WORDS.calls,
        *WORDS.closers_after_call,
        *WORDS.reasoning,
        *WORDS.stray,
        *WORDS.answers,
        *WORDS.turn_ends,
        *[mark for dialect in DIALECTS.values() for mark in dialect.openers],
    }
)
INNER = (
    '{"name": "',
    '", "arguments": {',
    '"city": "Oslo"',
    "}}",
    "}",
    "]",
    ")",
    "(",
    '(city="Oslo")',
    '{"city": "Oslo"}',
    "<parameter=city>",
    "</parameter>",
    '<parameter name="city">',
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|tool_call_argument_begin|>",
    "<|message|>",
    "<\uff5ctool\u2581sep\uff5c>",
    ":0",
    '">',
    ">",
    "```",
    "`",
    "> ",
    "\n",
    " ",
    "Let me see.",
    "é😀",
    "\\",
    '"',
)
pieces_of = st.lists(st.one_of(st.sampled_from(MARKS), st.sampled_from(INNER), st.text(max_size=6)), max_size=14)


def names(*values: str) -> st.SearchStrategy[str]:
    return st.sampled_from(values)


def texts(*tool_names: str) -> st.SearchStrategy[str]:
    """Return texts of marks, parts of calls and these tool names."""
    piece = st.one_of(
        st.sampled_from(MARKS), st.sampled_from(MARKS), st.sampled_from(INNER), names(*tool_names), st.text(max_size=6)
    )
    return st.lists(piece, max_size=16).map("".join)


whole_calls = st.sampled_from([(case.text, case.tools) for case in fixture_cases() if case.kind == "call"])


@st.composite
def broken_calls(draw: st.DrawFn) -> tuple[str, dict[str, Raw | None]]:
    """Return a written call with a piece cut out, doubled, or put elsewhere."""
    text, tools = draw(whole_calls)
    start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    place = draw(st.integers(0, len(text)))
    change = draw(st.sampled_from(("cut", "double", "insert")))
    if change == "cut":
        return text[:start] + text[end:], tools
    if change == "double":
        return text[:place] + text[start:end] + text[place:], tools
    return text[:place] + draw(texts("get_weather", "now")) + text[place:], tools


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@settings(max_examples=EXAMPLES)
@given(st.data(), st.booleans())
def test_the_outcome_does_not_depend_on_how_text_is_cut(data: st.DataObject, finished: bool) -> None:
    text, tools = data.draw(
        st.one_of(broken_calls(), texts("get_weather", "now", "other").map(lambda text: (text, TOOLS)))
    )
    whole = parse_pieces([text], tools, finished=finished)
    assert parse_pieces(list(text), tools, finished=finished) == whole
    assert parse_pieces(data.draw(cuts(text)), tools, finished=finished) == whole


@settings(max_examples=EXAMPLES)
@given(texts("undeclared", "other.tool", "functions.undeclared:0"))
def test_no_text_around_the_marks_gives_a_call_that_was_not_written(text: str) -> None:
    assert outcome(parse_text(text, TOOLS)).calls == []


@settings(max_examples=EXAMPLES // 10)
@given(whole_calls, st.sampled_from(("```\n{}\n```", "~~~xml\n{}\n~~~")), st.text(max_size=10))
def test_no_call_in_a_code_block_amid_prose_is_recovered(
    written: tuple[str, dict[str, Raw | None]], block: str, prose: str
) -> None:
    text, tools = written
    if "```" in text or "<think>" in text or "~~~" in text:
        return  # it ends the block, or stands at the beginning
    shown = "It is written as:\n" + block.format(text) + "\n" + prose
    assert outcome(parse_text(shown, tools)).calls == []


@settings(max_examples=EXAMPLES)
@given(texts("get_weather", "now", "undeclared"))
def test_text_without_anything_recovered_is_unchanged(text: str) -> None:
    segments = parse_pieces([text], TOOLS)
    if {segment.kind for segment in segments} <= {"text"} and not any(mark in text for mark in DROPPED):
        assert "".join([segment.text for segment in segments]) == text


DROPPED = {*WORDS.stray, *WORDS.answers, *WORDS.turn_ends, *WORDS.reasoning}


@needs_recordings
@pytest.mark.skipif(not os.environ.get("TOOLWIRE_WHOLE_CORPUS"), reason="all splits of all cases: make test-laws")
def test_every_single_cut_of_every_case_gives_the_same_outcome() -> None:
    for case in [case for case in all_cases() if len(case.text) < 600]:
        whole = parse_pieces([case.text], case.tools, finished=case.finished)
        for place in range(len(case.text)):
            halves = [case.text[:place], case.text[place:]]
            assert parse_pieces(halves, case.tools, finished=case.finished) == whole, (case.id, place)
