"""DeepSeek V3 and R1-0528 (JSON in a code fence), and V3.1 (JSON after a separator), with the bars in two spellings."""

from collections.abc import Callable, Sequence

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall, decode_object
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import CallRenderer, WrittenCall, WrittenResult


def _spell(word: str) -> tuple[str, ...]:
    """Return a mark in all its spellings; the first is the tokenizer's."""
    return tuple(
        f"<{bar}{word.replace('_', gap)}{bar}>" for bar, gap in (("｜", "▁"), ("|", "▁"), ("｜", "_"), ("|", "_"))
    )


_CALLS_BEGIN, _CALLS_END = _spell("tool_calls_begin")[:2], _spell("tool_calls_end")[:2]
_CALL_BEGIN, _CALL_END = _spell("tool_call_begin")[:2], _spell("tool_call_end")[:2]
_SEPARATOR = _spell("tool_sep")[:2]


def _parse_head(cursor: Cursor) -> Parse[str]:
    """Parse the marks before a call, and the text up to the separator."""
    yield from cursor.accept(*_CALLS_BEGIN)
    yield from cursor.skip_space()
    yield from cursor.expect(*_CALL_BEGIN)
    head = yield from cursor.read_name()
    yield from cursor.skip_space()
    yield from cursor.expect(*_SEPARATOR)
    return head


def _parse_v3(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call with its arguments in a code fence."""
    if (yield from _parse_head(cursor)) != "function":
        raise Mismatch
    yield from cursor.skip_space()
    name = yield from cursor.read_name()
    yield from cursor.skip_space()
    yield from cursor.expect("```")
    yield from cursor.accept("json")
    yield from cursor.skip_space()
    arguments = decode_object((yield from cursor.read_json()))
    yield from cursor.skip_space()
    yield from cursor.accept("```")
    yield from _end_call(cursor)
    return [ParsedCall(name, arguments)]


def _parse_v31(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call with its arguments after the separator."""
    name = yield from _parse_head(cursor)
    yield from cursor.skip_space()
    arguments = decode_object((yield from cursor.read_json()))
    yield from _end_call(cursor)
    return [ParsedCall(name, arguments)]


def _end_call(cursor: Cursor) -> Parse[None]:
    """Read the end of a call; it may be missing at the end of the turn."""
    if (yield from cursor.skip_space()):
        yield from cursor.expect(*_CALL_END, *_CALLS_END)


def _call_renderer(template: Callable[[WrittenCall], str]) -> CallRenderer:
    """Return a renderer of calls within the marks of the section."""

    def render(calls: Sequence[WrittenCall]) -> str:
        """Write the calls."""
        written = [f"{_CALL_BEGIN[0]}{template(call)}{_CALL_END[0]}" for call in calls]
        return f"{_CALLS_BEGIN[0]}{''.join(written)}{_CALLS_END[0]}"

    return render


def _render_results(results: Sequence[WrittenResult]) -> str:
    """Write the results within the marks of their section."""
    outputs = [f"{_OUTPUT_BEGIN}{result.text}{_OUTPUT_END}" for result in results]
    return f"{_OUTPUTS_BEGIN}{''.join(outputs)}{_OUTPUTS_END}"


_OUTPUTS_BEGIN, _OUTPUTS_END = _spell("tool_outputs_begin")[0], _spell("tool_outputs_end")[0]
_OUTPUT_BEGIN, _OUTPUT_END = _spell("tool_output_begin")[0], _spell("tool_output_end")[0]
_OPENERS = (*_CALLS_BEGIN, *_CALL_BEGIN)
_CLOSERS = (*_CALL_END, *_CALLS_END)
DEEPSEEK_V3 = Dialect(
    "deepseek_v3",
    _OPENERS,
    _parse_v3,
    _call_renderer(lambda call: f"function{_SEPARATOR[0]}{call.name}\n```json\n{call.arguments}\n```"),
    _render_results,
    closers=_CLOSERS,
    models=("deepseek-v3", "deepseek-r1"),
)
DEEPSEEK_V31 = Dialect(
    "deepseek_v31",
    _OPENERS,
    _parse_v31,
    _call_renderer(lambda call: f"{call.name}{_SEPARATOR[0]}{call.arguments}"),
    _render_results,
    closers=_CLOSERS,
    models=("deepseek-v3.1",),
)

DIALECTS = (DEEPSEEK_V3, DEEPSEEK_V31)
