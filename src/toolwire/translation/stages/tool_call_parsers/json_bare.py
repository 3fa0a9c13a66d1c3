"""JSON without marks: the complete answer is a call, or a list of them, possibly in a code fence."""

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall, read_calls
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import call_renderer, render_object

_FIRST_KEYS = ("name", "tool_name", "arguments", "parameters", "args", "type", "function", "id", "tool_call_id")


def _check_head(cursor: Cursor) -> Parse[None]:
    """Check that the first object begins as a call does, so that other JSON is not held back."""
    start = cursor.position
    if (yield from cursor.accept("[")):
        yield from cursor.skip_space()
    yield from cursor.expect("{")
    yield from cursor.skip_space()
    yield from cursor.expect(*[f'"{key}"' for key in _FIRST_KEYS])
    cursor.position = start


def _parse_bare(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse an answer of JSON values, separated by semicolons, commas or line breaks."""
    yield from _check_head(cursor)
    calls: list[ParsedCall] = []
    while True:
        calls += read_calls((yield from cursor.read_json()), bare=True)
        yield from cursor.skip_space()
        yield from cursor.accept(";", ",")
        if (yield from cursor.skip_space()) not in ("{", "["):
            return calls


def _parse_fenced(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse an answer of one code fence around JSON."""
    if (yield from cursor.accept("Action:")):
        yield from cursor.skip_space()
    yield from cursor.expect("```")
    yield from cursor.accept("json", "tool_call", "tool_code")
    if (yield from cursor.skip_space()) not in ("{", "["):
        raise Mismatch
    calls = yield from _parse_bare(cursor)
    yield from cursor.expect("```")
    return calls


_render_bare = call_renderer(render_object)

JSON_BARE = Dialect(
    "json_bare", ("{", "["), _parse_bare, _render_bare, bare=True, models=("llama-3", "qwen2.5-coder", "xlam")
)
JSON_FENCED = Dialect(
    "json_fenced",
    ("```", "Action:"),
    _parse_fenced,
    lambda calls: f"```json\n{_render_bare(calls)}\n```",
    bare=True,
    models=("qwen2.5-coder",),
)

DIALECTS = (JSON_BARE, JSON_FENCED)
