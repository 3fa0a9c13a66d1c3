"""MiniMax M3: every tag follows the mark `]<]minimax[>[`; objects nest as tags, and lists repeat `<item>`."""

import json
from collections.abc import Sequence
from typing import Any

from toolwire.translation.stages.tool_call_parsers.calls import Parameter, ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall, result_renderer

_MARK = "]<]minimax[>["
_MAX_DEPTH = 32


def _parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one invoke, with the outer mark if it comes first."""
    yield from cursor.expect(_MARK, _MARK[1:])
    if (yield from cursor.accept("<tool_call>")):
        yield from cursor.skip_space()
        yield from cursor.expect(_MARK)
    yield from cursor.expect('<invoke name="')
    name, _ = yield from cursor.read_until('">')
    value = yield from _parse_content(cursor, "invoke", 0)
    if isinstance(value, list) or (isinstance(value, str) and value.strip()):
        raise Mismatch
    members = value if isinstance(value, dict) else {}
    return [ParsedCall(name, parameters=tuple([Parameter(key, item) for key, item in members.items()]))]


def _parse_content(cursor: Cursor, tag: str, depth: int) -> Parse[Any]:
    """Parse what a tag holds up to its end: text, or tags as members of an object or items of a list."""
    if depth > _MAX_DEPTH:
        raise Mismatch
    members: list[tuple[str, Any]] = []
    while True:
        text, _ = yield from cursor.read_until(_MARK)
        if (yield from cursor.accept(f"</{tag}>")):
            break
        if text.strip():
            raise Mismatch
        yield from cursor.expect("<")
        name = yield from cursor.read_name()
        yield from cursor.expect(">")
        members.append((name, (yield from _parse_content(cursor, name, depth + 1))))
    if not members:
        return text
    if all(name == "item" for name, _ in members):
        return [value for _, value in members]
    return dict(members)


def _render(calls: Sequence[WrittenCall]) -> str:
    """Write calls in one block."""
    return "\n".join([f"{_MARK}<tool_call>", *map(_render_call, calls), f"{_MARK}</tool_call>"])


def _render_call(call: WrittenCall) -> str:
    """Write one invoke; arguments that are no object are one of their own."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = {"arguments": call.arguments}
    content = _render_content(arguments) if arguments else ""
    return f'{_MARK}<invoke name="{call.name}">{content}{_MARK}</invoke>'


def _render_content(value: Any) -> str:
    """Write what a tag holds; an empty object or list has no tags, and is written as JSON."""
    if not value or not isinstance(value, dict | list):
        return value if isinstance(value, str) else json.dumps(value)
    members = value.items() if isinstance(value, dict) else [("item", item) for item in value]
    return "".join([f"{_MARK}<{name}>{_render_content(item)}{_MARK}</{name}>" for name, item in members])


MINIMAX_M3 = Dialect(
    "minimax_m3",
    # Inside a word, the bracket belongs to the text.
    (_MARK + "<tool_call>", _MARK + "<invoke", _MARK[1:] + "<tool_call>", _MARK[1:] + "<invoke"),
    _parse,
    _render,
    result_renderer(lambda result: f"<response>{result.text}</response>"),
    closers=(_MARK + "</tool_call>",),
    models=("minimax-m3",),
)

DIALECTS = (MINIMAX_M3,)
