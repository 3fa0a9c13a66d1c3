"""Kimi K3: blocks between `<|open|>` and `<|close|>`, with the type of each argument."""

import html
import re
from collections.abc import Sequence

from toolwire.translation.stages.tool_call_parsers.calls import Parameter, ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall, written_values

_TOOLS, _CALL, _ARGUMENT, _SEP = "<|open|>tools<|sep|>", "<|open|>call ", "<|open|>argument ", "<|sep|>"
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


def _parse_attributes(cursor: Cursor) -> Parse[dict[str, str]]:
    """Parse attributes, whose values are escaped, up to the separator."""
    text, _ = yield from cursor.read_until(_SEP)
    return {match[1]: html.unescape(match[2]) for match in _ATTRIBUTE.finditer(text)}


def _parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one call, with the mark of the block if it comes first."""
    if (yield from cursor.accept(_TOOLS)):
        yield from cursor.skip_space()
    yield from cursor.expect(_CALL)
    name = (yield from _parse_attributes(cursor)).get("tool", "")
    parameters: list[Parameter] = []
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.expect(_ARGUMENT, "<|close|>call<|sep|>")) != _ARGUMENT:
            break
        attributes = yield from _parse_attributes(cursor)
        value, _ = yield from cursor.read_until("<|close|>argument<|sep|>")
        if "key" not in attributes:
            raise Mismatch
        parameters.append(Parameter(attributes["key"], value, attributes.get("type")))
    return [ParsedCall(name, parameters=tuple(parameters))]


def _render(calls: Sequence[WrittenCall]) -> str:
    """Write calls in one block."""
    return f"{_TOOLS}{''.join(map(_render_call, calls))}<|close|>tools{_SEP}"


def _render_call(call: WrittenCall) -> str:
    """Write one call with the types of its arguments."""
    arguments = [
        f'{_ARGUMENT}key="{html.escape(value.name)}" type="{value.type}"{_SEP}{value.text}<|close|>argument{_SEP}'
        for value in written_values(call)
    ]
    name = html.escape(call.name)
    return f'{_CALL}tool="{name}" index="{call.number}"{_SEP}{"".join(arguments)}<|close|>call{_SEP}'


KIMI_K3 = Dialect(
    "kimi_k3",
    (_TOOLS, _CALL),
    _parse,
    _render,
    closers=("<|close|>tools<|sep|>", "<|close|>message<|sep|>"),
    models=("kimi-k3",),
)

DIALECTS = (KIMI_K3,)
