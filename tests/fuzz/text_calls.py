"""Parsers of calls in text: any cut gives the same outcome, and the work grows no faster than the text."""

import random
import sys
from types import FrameType

from msgspec import Raw

from tests.fuzz.engine import Target
from tests.support.samples.text_calls import fixture_cases, parse_pieces, parse_text
from toolwire.translation.stages.tool_call_parsers.parser import MAX_FAILED_SHARE, MAX_FAILED_WORK
from toolwire.translation.stages.tool_call_parsers.registry import DIALECTS, vocabulary
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall

_TOOLS: dict[str, Raw | None] = {
    "get_weather": Raw(b'{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}'),
    "now": None,
}
_WORDS = vocabulary("auto", "auto", None, interleaved=False)
_MARKS = {*_WORDS.calls, *_WORDS.closers_after_call, *_WORDS.reasoning, *_WORDS.stray, *_WORDS.answers}
_INNER = (
    '{"name": "now", "arguments": {}}',
    "now",
    "<parameter=city>",
    "</parameter>",
    "<arg_key>",
    "```",
    "\n",
    '"',
    "[",
)
_TOKENS = [text.encode() for text in sorted({*_MARKS, *_WORDS.turn_ends, *_INNER})]
_REPETITIONS = 32
_CALLS_PER_CHARACTER = 2
"""Function calls for each character that is read; what is read in vain is bounded by the text before it."""


def _seeds() -> list[bytes]:
    """Return written calls in every dialect, and answers of models."""
    calls = [WrittenCall("get_weather", '{"city": "Oslo", "days": 2}'), WrittenCall("now", "{}", 1)]
    rendered = [dialect.render_calls(calls) for dialect in DIALECTS.values()]
    return [text.encode() for text in [*rendered, *[case.text for case in fixture_cases() if len(case.text) < 2_000]]]


def _check_cuts(data: bytes) -> None:
    """Check that one character at a time, and random pieces, give the same segments as the complete text."""
    text = data.decode(errors="replace")
    source = random.Random(data)
    for finished in (True, False):
        whole = parse_pieces([text], _TOOLS, finished=finished)
        assert parse_pieces(list(text), _TOOLS, finished=finished) == whole
        places = sorted(source.randrange(len(text) + 1) for _ in range(5))
        pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
        assert parse_pieces(pieces, _TOOLS, finished=finished) == whole


def _count_calls(text: str) -> int:
    """Return the number of function calls, of Python and of C, that it takes to parse a text."""
    count = 0

    def profile(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    earlier = sys.getprofile()
    sys.setprofile(profile)
    try:
        parse_text(text, _TOOLS)
    finally:
        sys.setprofile(earlier)
    return count


def _check_work(data: bytes) -> None:
    """Check that the work for repeated text is bounded by its length and by what may be read in vain."""
    unit = data.decode(errors="replace")[:400]
    parse_text(2 * unit + ".", _TOOLS)  # compiles the patterns of its marks
    text = unit * _REPETITIONS
    count = _count_calls(text)
    assert count <= _CALLS_PER_CHARACTER * ((1 + MAX_FAILED_SHARE) * len(text) + MAX_FAILED_WORK), (len(text), count)


TARGETS = [
    Target("text-call-cuts", _seeds, _check_cuts, _TOKENS),
    Target("text-call-work", _seeds, _check_work, _TOKENS),
]
