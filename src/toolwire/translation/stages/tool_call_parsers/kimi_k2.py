"""Kimi K2: `functions.NAME:IDX` and JSON between marks, in a section."""

import re
from collections.abc import Sequence

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall, decode_object
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall, result_renderer

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_NAME = re.compile(r"[\w.\-]*")
_MAX_NOISE = 200


def _parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call; the marks before its name may be lost."""
    if (yield from cursor.accept(_SECTION)):
        yield from cursor.skip_to(_CALL, _MAX_NOISE)  # models put blanks and stray words here
    else:
        yield from cursor.accept(_CALL)
    yield from cursor.skip_space()
    yield from cursor.accept("functions.")
    name = yield from cursor.read_name(_NAME)
    yield from cursor.skip_space()
    yield from cursor.expect(":")
    yield from cursor.read_name(_DIGITS)
    yield from cursor.skip_space()
    yield from cursor.expect(_ARGUMENTS)
    yield from cursor.skip_space()
    arguments = decode_object((yield from cursor.read_json()))
    if (yield from cursor.skip_space()):
        yield from cursor.expect(_CALL_END, _SECTION_END)
    return [ParsedCall(name, arguments)]


def _render(calls: Sequence[WrittenCall]) -> str:
    """Write calls in one section; each has its number in the conversation."""
    written = [f"{_CALL}functions.{call.name}:{call.number}{_ARGUMENTS}{call.arguments}{_CALL_END}" for call in calls]
    return f"{_SECTION}{''.join(written)}{_SECTION_END}"


_DIGITS = re.compile(r"\d*")

KIMI_K2 = Dialect(
    "kimi_k2",
    (_SECTION, _CALL),
    _parse,
    _render,
    result_renderer(lambda result: f"## Return of functions.{result.name}:{result.number}\n{result.text}", "\n\n"),
    starters=("functions.",),
    closers=(_SECTION_END, _CALL_END),
    models=("kimi-k2", "kimi"),
)

DIALECTS = (KIMI_K2,)
