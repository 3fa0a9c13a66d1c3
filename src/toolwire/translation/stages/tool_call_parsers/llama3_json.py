"""Llama 3: JSON objects after `<|python_tag|>`, separated by semicolons."""

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall, parse_calls
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import render_object, render_string, result_renderer

_MARK = "<|python_tag|>"


def _parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one object, and those after it; a semicolon without one belongs to the text."""
    yield from cursor.expect(_MARK)
    calls = yield from parse_calls(cursor)
    while True:
        end = cursor.position
        yield from cursor.skip_space()
        separated = yield from cursor.accept(";")
        if not separated or (yield from cursor.skip_space()) != "{":
            cursor.position = end
            return calls
        try:
            calls += yield from parse_calls(cursor)
        except Mismatch:
            cursor.position = end
            return calls


LLAMA3_JSON = Dialect(
    "llama3_json",
    (_MARK,),
    _parse,
    lambda calls: _MARK + "; ".join([render_object(call, "parameters") for call in calls]),
    result_renderer(lambda result: f'{{"output": {render_string(result.text)}}}'),
    models=("llama-3", "llama3"),
)

DIALECTS = (LLAMA3_JSON,)
