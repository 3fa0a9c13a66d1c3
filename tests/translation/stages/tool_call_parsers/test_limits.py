"""Limits of what the parser holds and of the work that it does in vain."""

import pytest
from msgspec import Raw

from tests.support.samples.text_calls import parse_text
from toolwire.translation.stages.tool_call_parsers.attempts import MAX_BLOCK
from toolwire.translation.stages.tool_call_parsers.parser import MAX_FAILED_WORK, TextCallParser

TOOLS: dict[str, Raw | None] = {"now": None, "get_weather": None}
CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


def test_a_block_beyond_the_limit_is_released_as_text_before_its_end() -> None:
    parser = TextCallParser(TOOLS)
    released = 0
    for _ in range(MAX_BLOCK // 1000 + 2):
        released += sum(len(segment.text) for segment in parser.feed("<function=now><parameter=a>" + "x" * 973))
    assert released > 0


def test_a_large_call_within_the_limit_is_recovered() -> None:
    call = '<tool_call>{"name": "now", "arguments": {"a": "%s"}}</tool_call>' % ("x > y " * 50_000)
    (segment,) = parse_text(call, TOOLS)
    assert (segment.kind, segment.name, len(segment.text)) == ("call", "now", 300_009)


def test_prose_is_held_no_longer_than_a_mark() -> None:
    parser = TextCallParser(TOOLS)
    text = "Compare a < b with <tools and <tool_ca, [TOOL and functool. " * 5
    released = 0
    for number, character in enumerate(text, 1):
        released += sum(len(segment.text) for segment in parser.feed(character))
        assert number - released <= len("<|content_invoke_tool_json|>")


UNCLOSED = "<function=now>\n<parameter=a>"


def test_a_mark_is_text_once_too_much_was_read_in_vain() -> None:
    assert [segment.kind for segment in parse_text(UNCLOSED + CALL + "x" * 1000, TOOLS)] == ["text", "call", "text"]
    (segment,) = parse_text(UNCLOSED + CALL + "x" * 2 * MAX_FAILED_WORK, TOOLS)
    assert segment.kind == "text"


def test_a_call_after_as_much_other_text_is_found() -> None:
    segments = parse_text(UNCLOSED + "x" * 2 * MAX_FAILED_WORK + CALL, TOOLS)
    assert [segment.kind for segment in segments] == ["text", "call"]


@pytest.mark.parametrize("number", ["7_", "1__0", "7_.5", "1_e5", "9" * 50, "1e999", "+", "٣_"])
def test_a_number_that_python_rejects_is_no_error(number: str) -> None:
    schema = Raw(b'{"type":"object","properties":{"a":{"type":"array","items":{"type":"number"}}}}')
    for text in (f"[now(a=[{number},8])]", f'<function name="now"><param name="a">[{number},8]</param></function>'):
        assert parse_text(text, {"now": schema})
