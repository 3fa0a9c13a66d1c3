"""Gemma 4 and FunctionGemma: `call:NAME{key:value}` with a mark for quotes."""

import json
import re
from typing import Any

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Incomplete, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import (
    WrittenCall,
    WrittenResult,
    call_renderer,
    result_renderer,
)

_KEY = re.compile(r"[^\s{}\[\]:,<>\"]*")
_ATOM = re.compile(r"[\w.+\-]*")
_MAX_DEPTH = 32
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


def _parse_value(cursor: Cursor, quote: str, depth: int) -> Parse[Any]:
    """Parse one value: quoted text, an object, a list, a number or a word."""
    if depth > _MAX_DEPTH:
        raise Mismatch
    following = yield from cursor.skip_space()
    if (yield from cursor.accept(quote)):
        return (yield from cursor.read_until(quote))[0]
    if following == "{":
        return (yield from _parse_object(cursor, quote, depth))
    if following == "[":
        cursor.position += 1
        items: list[Any] = []
        while not (yield from _parse_end(cursor, "]", first=not items)):
            items.append((yield from _parse_value(cursor, quote, depth + 1)))
        return items
    if not following:
        raise Incomplete
    word = yield from cursor.read_name(_ATOM)
    if word in _WORDS:
        return _WORDS[word]
    try:
        return json.loads(word, parse_constant=_reject)
    except ValueError:
        raise Mismatch from None


def _reject(name: str) -> None:
    """Reject `NaN` and `Infinity`, which are not JSON."""
    raise ValueError(name)


def _parse_end(cursor: Cursor, closer: str, *, first: bool) -> Parse[bool]:
    """Read the end of an object or list, or else the comma before the next item."""
    yield from cursor.skip_space()
    if (yield from cursor.accept(closer)):
        return True
    if not first:
        yield from cursor.expect(",")
    return False


def _parse_object(cursor: Cursor, quote: str, depth: int) -> Parse[dict[str, Any]]:
    """Parse an object whose keys are bare words or quoted."""
    yield from cursor.expect("{")
    members: dict[str, Any] = {}
    while not (yield from _parse_end(cursor, "}", first=not members)):
        yield from cursor.skip_space()
        if mark := (yield from cursor.accept(quote, '"')):
            key, _ = yield from cursor.read_until(mark)
        else:
            key = yield from cursor.read_name(_KEY)
        yield from cursor.skip_space()
        yield from cursor.expect(":")
        members[key] = yield from _parse_value(cursor, quote, depth + 1)
    return members


def _render_value(value: Any, quote: str) -> str:
    """Write one value."""
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case dict():
            members = [f"{key}:{_render_value(item, quote)}" for key, item in value.items()]
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join([_render_value(item, quote) for item in value])}]"
        case _:
            return json.dumps(value)


def _call_dialect(
    name: str, call_marks: tuple[str, str], result_marks: tuple[str, str], quote: str, models: tuple[str, ...]
) -> Dialect:
    """Return a dialect with these marks around calls and results, and this mark around strings."""
    opener, closer = call_marks

    def parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
        """Parse one call; its closing mark may be missing at the end of the turn."""
        yield from cursor.expect(opener)
        yield from cursor.skip_space()
        yield from cursor.expect("call:")
        function = yield from cursor.read_name()
        arguments = yield from _parse_object(cursor, quote, 0)
        if (yield from cursor.skip_space()):
            yield from cursor.expect(closer)
        text = json.dumps(arguments, ensure_ascii=False)
        return [ParsedCall(function, text if text.isprintable() else json.dumps(arguments))]

    def render(call: WrittenCall) -> str:
        """Write one call; arguments that are no object stay as they are."""
        try:
            arguments = _render_value(json.loads(call.arguments), quote)
        except (ValueError, RecursionError):
            arguments = call.arguments
        return f"{opener}call:{call.name}{arguments}{closer}"

    def render_result(result: WrittenResult) -> str:
        """Write one result."""
        return f"{result_marks[0]}response:{result.name}{{value:{quote}{result.text}{quote}}}{result_marks[1]}"

    return Dialect(
        name,
        (opener,),
        parse,
        call_renderer(render, ""),
        result_renderer(render_result, ""),
        closers=(closer,),
        models=models,
    )


FUNCTIONGEMMA = _call_dialect(
    "functiongemma",
    ("<start_function_call>", "<end_function_call>"),
    ("<start_function_response>", "<end_function_response>"),
    "<escape>",
    ("functiongemma",),
)
GEMMA4 = _call_dialect(
    "gemma4",
    ("<|tool_call>", "<tool_call|>"),
    ("<|tool_response>", "<tool_response|>"),
    '<|"|>',
    ("gemma-4", "gemma4"),
)

DIALECTS = (FUNCTIONGEMMA, GEMMA4)
