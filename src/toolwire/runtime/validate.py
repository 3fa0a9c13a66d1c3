"""What a call was given, held against what its tool asks for: a value to run with, or a text that the model can act on.

1. Arguments are read exactly: integers of any size, no NaN, and no name twice, since what a person approved and what
   runs must be the same.
2. Schemas are checked without ever fetching a reference, in bounded time.
"""

import difflib
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from toolwire.canonical.errors import ToolwireError

from .grammars import grammar_error
from .repair import mend_json, repaired
from .toolset import Arguments, Tool
from .weighing import too_costly, weigh

_MOST_ERRORS = 10
_LONGEST = 300


class BadSchema(ToolwireError):
    """A tool's schema can't be used."""


class Invalid(Exception):
    """The call can't be run as it is; the message is for the model."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_arguments(tool: Tool, text: str, *, repair: bool = False) -> tuple[Arguments, tuple[str, ...]]:
    """The arguments, and what was repaired in them. Nothing at all means no arguments."""
    if tool.grammar is not None:
        if (error := grammar_error(tool.grammar, text)) is not None:
            raise Invalid(f"the input of {tool.name} does not fit its grammar: {error}", "grammar")
        return text, ()
    repairs: tuple[str, ...] = ()
    if repair:
        text, repairs = _mended(tool, text)
    value = parse_input(tool, text)
    if repair:
        value, more = repaired(value, tool.parameters, lambda found: not _errors(tool.parameters, found))
        repairs += more
    if errors := _errors(tool.parameters, value):
        raise Invalid(_told(tool, errors), "schema")
    return value, repairs


def _mended(tool: Tool, text: str) -> tuple[str, tuple[str, ...]]:
    """The text as valid JSON, if it is almost that; else the text itself, whose fault is then reported."""
    try:
        parse_input(tool, text)
    except Invalid:
        mended, notes = mend_json(text)
        with suppress(Invalid):
            parse_input(tool, mended)
            return mended, notes
    return text, ()


def is_cut_off(text: str) -> bool:
    """Whether nothing in a text speaks against its having been cut off: else it is invalid where it is wrong."""
    text = text.rstrip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        ends = text.endswith(("}", "]")) and not error.msg.startswith("Unterminated string")
        return error.pos >= len(text) or not ends
    except RecursionError:
        pass
    return True


def parse_input(tool: Tool, text: str) -> Arguments:
    """The arguments that a text stands for, which was valid when it was read."""
    return text if tool.grammar is not None else _parsed(tool.name, text if text.strip() else "{}")


def check_output(tool: Tool, value: Any) -> None:
    """What a tool promises of its result."""
    if tool.output_schema is not None and (errors := _errors(tool.output_schema, value)):
        lines = "\n".join(_line(tool, error, parameters=False) for error in errors)
        raise Invalid(f"{tool.name} gave what its own output schema does not allow:\n{lines}", "output_schema")


def check_schema(tool: Tool) -> None:
    """A tool whose schema is wrong can't be offered."""
    for schema in (tool.parameters, tool.output_schema):
        if schema is not None:
            try:
                _validator(msgspec.json.encode(schema))
            except ValueError as error:
                raise BadSchema(f"the schema of the tool {tool.name!r} can't be used: {error}") from None


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Invalid(f"the arguments of {name} are not valid JSON: {why}", "json") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")


@lru_cache(maxsize=4096)
def _validator(schema: bytes) -> Any:
    import jsonschema_rs  # noqa: PLC0415 - only who runs tools needs it

    bounds = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=1_000_000)
    return jsonschema_rs.validator_for(json.loads(schema), offline=True, pattern_options=bounds)


@lru_cache(maxsize=4096)
def _weight(schema: bytes) -> tuple[float, int]:
    return weigh(json.loads(schema))


def _errors(schema: dict[str, Any], value: Any) -> list[Any]:
    encoded = msgspec.json.encode(schema)
    if too_costly(_weight(encoded), value):
        raise Invalid("the value is nested so deeply that its schema can't be checked in any useful time", "schema")
    validator = _validator(encoded)
    if validator.is_valid(value):
        return []
    return [error for error, _ in zip(validator.iter_errors(value), range(_MOST_ERRORS), strict=False)]


def _told(tool: Tool, errors: Sequence[Any]) -> str:
    lines = "\n".join(_line(tool, error, parameters=True) for error in errors)
    return f"the arguments of {tool.name} are not valid; nothing was run:\n{lines}"


def _line(tool: Tool, error: Any, *, parameters: bool) -> str:
    """Where, what, and by which rule."""
    path = "".join(f"/{step}" for step in error.instance_path) or "/"
    rule = error.kind.name
    said = error.message if len(error.message) <= _LONGEST else error.message[:_LONGEST] + "..."
    hint = ""
    known = tool.parameters.get("properties")
    if parameters and path == "/" and rule == "additionalProperties" and isinstance(known, dict):
        hint = f"; it takes {', '.join(known) or 'none'}"
    return f"- {path}: {said} ({rule}){hint}"


def unknown_tool(name: str, known: Sequence[str]) -> str:
    """What a model is told that called what is not there."""
    close = difflib.get_close_matches(name[:200], known, n=1)
    meant = f" Did you mean {close[0]}?" if close else ""
    listed = ", ".join(known[:50]) + (", ..." if len(known) > 50 else "")
    return f"there is no tool {name[:200]!r}; nothing was run.{meant} The tools are: {listed or 'none'}"
