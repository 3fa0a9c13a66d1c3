"""MiniMax M3: every tag follows the mark `]<]minimax[>[`; objects nest as tags, and lists repeat `<item>`."""

from typing import Any

from toolwire.translation.stages.tool_call_parsers.calls import Parameter, ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect

_MARK = "]<]minimax[>["
_MAX_DEPTH = 32


def _parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse one invoke, with the outer mark if it comes first."""
    yield from cursor.expect(_MARK)
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


MINIMAX_M3 = Dialect(
    "minimax_m3",
    (_MARK + "<tool_call>", _MARK + "<invoke"),
    _parse,
    closers=(_MARK + "</tool_call>",),
    models=("minimax-m3",),
)

DIALECTS = (MINIMAX_M3,)
