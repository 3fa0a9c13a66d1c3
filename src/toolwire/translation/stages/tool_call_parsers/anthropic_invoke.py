"""`<invoke name="NAME">` with a `<parameter name="KEY">` per argument, under several prefixes and outer marks.

Drafts of Claude and models tuned on them, MiniMax M2, dots, DeepSeek V3.2 and V4 (DSML), Step-3, Muse Glimmer.
"""

import re
from collections.abc import Sequence

from toolwire.translation.stages.tool_call_parsers.calls import Parameter, ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Incomplete, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.qwen3_coder import parse_value
from toolwire.translation.stages.tool_call_parsers.rendering import (
    ResultRenderer,
    WrittenCall,
    WrittenResult,
    render_tool_responses,
    result_renderer,
    written_values,
)

_ATTRIBUTE = re.compile(r"""([\w:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_MAX_TAG = 512


def parse_attributes(cursor: Cursor) -> Parse[tuple[dict[str, str], bool]]:
    """Parse the attributes of a tag up to its `>`; return them, and whether the tag closes itself."""
    text, _ = yield from cursor.read_until(">")
    if len(text) > _MAX_TAG or "\n" in text:
        raise Mismatch
    attributes = {match[1]: match[2] or match[3] or match[4] or "" for match in _ATTRIBUTE.finditer(text)}
    return attributes, text.endswith("/")


def _parameter(attributes: dict[str, str], value: str) -> Parameter:
    """Return a parameter with the type that its tag may state (DSML: `string="true|false"`)."""
    if "name" not in attributes:
        raise Mismatch
    kind = {"true": "string", "false": "json"}.get(attributes.get("string", ""))
    return Parameter(attributes["name"], value, kind)


def parse_invoke(cursor: Cursor, prefix: str, *outer: str) -> Parse[ParsedCall]:
    """Parse one `<invoke>`; its end may be missing at the end of the turn if every value is closed."""
    yield from cursor.expect(f"<{prefix}invoke ", f"<{prefix}invoke\t")
    attributes, closed = yield from parse_attributes(cursor)
    if not (name := attributes.get("name")):
        raise Mismatch
    parameters: list[Parameter] = []
    opener, closer, end = f"<{prefix}parameter ", f"</{prefix}parameter>", f"</{prefix}invoke>"
    while not closed:
        following = yield from cursor.skip_space()
        if (yield from cursor.accept(opener)):
            attributes, empty = yield from parse_attributes(cursor)
            value = "" if empty else (yield from parse_value(cursor, closer, opener, end, *outer))
            parameters.append(_parameter(attributes, value))
        elif (yield from cursor.accept(end)) or (outer and (yield from cursor.upcoming(*outer))):
            closed = True
        elif following:
            raise Mismatch
        elif not cursor.finished or not parameters:
            raise Incomplete
        else:
            closed = True
    return ParsedCall(name, parameters=tuple(parameters))


def render_invoke(call: WrittenCall, prefix: str = "", *, typed: bool = False) -> str:
    """Write one invoke; `typed` parameters state whether they are strings, as in DSML."""
    values: list[str] = []
    for value in written_values(call):
        type_attribute = f' string="{str(value.is_string).lower()}"' if typed else ""
        values.append(f'<{prefix}parameter name="{value.name}"{type_attribute}>{value.text}</{prefix}parameter>\n')
    return f'<{prefix}invoke name="{call.name}">\n{"".join(values)}</{prefix}invoke>'


def _render_function_results(results: Sequence[WrittenResult]) -> str:
    """Write results as Claude's text form has them."""
    items = [
        f"<result>\n<tool_name>{result.name}</tool_name>\n<stdout>{result.text}</stdout>\n</result>\n"
        for result in results
    ]
    return f"<function_results>\n{''.join(items)}</function_results>"


def _render_dsml_results(results: Sequence[WrittenResult]) -> str:
    """Write results as DeepSeek V3.2 reads them."""
    items = [f"<result>{result.text}</result>\n" for result in results]
    return f"<function_results>\n{''.join(items)}</function_results>"


def _invoke_dialect(
    name: str,
    prefixes: tuple[str, ...],
    outer: tuple[tuple[str, str], ...],
    models: tuple[str, ...] = (),
    *,
    typed: bool = False,
    render_results: ResultRenderer = render_tool_responses,
) -> Dialect:
    """Return a dialect of invokes with one of these prefixes, inside one of these outer marks or none."""
    openers = tuple(opener for opener, _ in outer)
    closers = tuple(closer for _, closer in outer)
    starts = tuple(f"<{prefix}invoke " for prefix in prefixes)

    def parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
        """Parse one call, with the outer mark if it comes first."""
        if openers and (yield from cursor.accept(*openers)):
            yield from cursor.skip_space()
        start = yield from cursor.upcoming(*starts)
        if not start:
            raise Mismatch
        return [(yield from parse_invoke(cursor, start[1 : -len("invoke ")], *closers))]

    def render(calls: Sequence[WrittenCall]) -> str:
        """Write the calls between the first of the outer marks."""
        return "\n".join([openers[0], *[render_invoke(call, prefixes[0], typed=typed) for call in calls], closers[0]])

    return Dialect(name, openers + starts, parse, render, render_results, closers=closers, models=models)


def _dsml_tag_pairs(*words: str) -> tuple[tuple[str, str], ...]:
    """Return the opening and closing DSML tags for these words, in every spelling of the vertical bars."""
    return tuple((f"<{prefix}{word}>", f"</{prefix}{word}>") for prefix in _DSML_PREFIXES for word in words)


_DSML_PREFIXES = ("｜DSML｜", "|DSML|", "｜｜DSML｜｜", "||DSML||", "‖DSML‖", " | DSML | ", "| DSML | ")

ANTHROPIC_INVOKE = _invoke_dialect(
    "anthropic_invoke",
    ("",),
    (
        ("<function_calls>", "</function_calls>"),
        ("<dots_function_call>", "</dots_function_call>"),
        ("<function_calls>", "</function_calls>"),
    ),
    ("claude", "dots"),
    render_results=_render_function_results,
)
MINIMAX_M2 = _invoke_dialect(
    "minimax_m2",
    ("",),
    (("<minimax:tool_call>", "</minimax:tool_call>"),),
    ("minimax-m2", "minimax-m1"),
    render_results=result_renderer(lambda result: f"<response>{result.text}</response>"),
)
DSML = _invoke_dialect(
    "dsml",
    _DSML_PREFIXES,
    _dsml_tag_pairs("function_calls", "tool_calls", "tool_use", "calls"),
    ("deepseek-v3.2", "deepseek-v4"),
    typed=True,
    render_results=_render_dsml_results,
)

DIALECTS = (ANTHROPIC_INVOKE, MINIMAX_M2, DSML)
