"""Answers in which models wrote calls as text: what comes out of each."""

import random

import pytest

from tests.support.assertions import non_empty
from tests.support.samples.text_calls import (
    CONTRADICTORY,
    DRAFT_IN_OPEN_REASONING,
    ENDLESS_REASONING,
    TextCase,
    all_cases,
    fixture_cases,
    merge_segments,
    outcome,
    parse_pieces,
    parse_whole,
    squeeze,
)
from toolwire.translation.stages.tool_call_parsers.parser import TextCallParser, find_open_reasoning

CALLS = ("call", "call_open_think")
JUDGED = {case.id: case for case in fixture_cases() if case.id not in CONTRADICTORY | ENDLESS_REASONING}


@pytest.mark.parametrize("id", [id for id, case in JUDGED.items() if case.kind in CALLS])
def test_a_call_is_recovered_with_its_arguments(id: str) -> None:
    assert outcome(parse_whole(JUDGED[id])).calls == JUDGED[id].calls


@pytest.mark.parametrize("id", [id for id, case in JUDGED.items() if case.kind in ("negative", "plain")])
def test_text_that_only_looks_like_a_call_stays_text(id: str) -> None:
    case, result = JUDGED[id], outcome(parse_whole(JUDGED[id]))
    assert (result.calls, result.content, result.reasoning) == ([], squeeze(case.content), squeeze(case.reasoning))


@pytest.mark.parametrize("id", [id for id, case in JUDGED.items() if case.kind == "truncated"])
def test_a_truncated_call_stays_text(id: str) -> None:
    result = outcome(parse_whole(JUDGED[id]))
    assert (result.calls, result.content) == ([], squeeze(JUDGED[id].text))


@pytest.mark.parametrize("id", [id for id, case in JUDGED.items() if case.kind == "reasoning"])
def test_reasoning_is_separated_from_the_answer(id: str) -> None:
    case, result = JUDGED[id], outcome(parse_whole(JUDGED[id]))
    assert (result.calls, result.content, result.reasoning) == ([], squeeze(case.content), squeeze(case.reasoning))


def test_98_percent_of_all_calls_are_right() -> None:
    judged = [case for case in all_cases() if case.kind in CALLS]
    wrong = [case.id for case in judged if outcome(parse_whole(case)).calls != case.calls]
    assert len(wrong) <= 0.02 * len(judged), wrong


def test_no_other_answer_gives_a_call() -> None:
    others = [case for case in all_cases() if case.kind in ("negative", "plain", "truncated", "reasoning")]
    assert [case.id for case in non_empty(others) if outcome(parse_whole(case)).calls] == []


def cut(text: str, numbers: random.Random) -> list[str]:
    places = sorted(numbers.randrange(len(text) + 1) for _ in range(numbers.randrange(1, 12)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def test_streamed_equals_buffered_in_any_split() -> None:
    numbers = random.Random(7)
    for case in non_empty(all_cases()):
        whole, closer = parse_whole(case), find_open_reasoning(case.text, "auto")
        for pieces in [list(case.text), *[cut(case.text, numbers) for _ in range(20)]]:
            streamed = parse_pieces(pieces, case.tools, finished=case.finished, reasoning_closer=closer)
            assert streamed == whole, (case.id, pieces)


def test_a_stream_gives_the_same_calls_where_only_the_end_of_reasoning_is_seen() -> None:
    cases = [case for case in all_cases() if find_open_reasoning(case.text, "auto")]
    for case in non_empty([case for case in cases if case.id not in DRAFT_IN_OPEN_REASONING]):
        streamed = outcome(parse_pieces(list(case.text), case.tools, finished=case.finished))
        assert streamed.calls == outcome(parse_whole(case)).calls, case.id


def test_a_setting_tells_that_reasoning_is_open() -> None:
    for id in non_empty([case.id for case in all_cases() if case.id in ENDLESS_REASONING | DRAFT_IN_OPEN_REASONING]):
        case: TextCase = next(case for case in all_cases() if case.id == id)
        parser = TextCallParser(case.tools, reasoning="deepseek_r1")
        segments = [segment for character in case.text for segment in parser.feed(character)]
        result = outcome(merge_segments([*segments, *parser.finish()]))
        assert (result.calls, result.reasoning) == (case.calls, squeeze(case.reasoning))


def test_the_fixtures_cover_all_dialects() -> None:
    from toolwire.translation.stages.tool_call_parsers.registry import DIALECTS

    assert {case.dialect for case in fixture_cases()} >= DIALECTS.keys() - {"llama4_pythonic"}
    assert len(fixture_cases()) >= 150
