"""Calls as a dialect's parser reads them, before names and arguments are checked against the declared tools."""

import json
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolwire.codec.wire.reader import decode_elements, decode_members
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Mismatch, Parse

Tree = "str | list[Tree] | dict[str, Tree]"


class Parameter(Struct, frozen=True):
    """One argument as text without a type: the tool's schema says what it is."""

    name: str
    value: Any  # text, or lists and dicts of it where the dialect nests them
    type: str | None = None  # the JSON type, where the dialect states it


class ParsedCall(Struct, frozen=True):
    """One call as written: its arguments are JSON, or else parameters that the schema types."""

    name: str
    arguments: str | None = None  # JSON source of an object
    parameters: tuple[Parameter, ...] = ()
    source: str = ""  # of one call in a list of several
    only_declared: bool = False  # a parameter that the schema lacks makes it text


_NAME_KEYS = ("name", "tool_name")
_ARGUMENT_KEYS = ("arguments", "parameters", "args")
_BARE_KEYS = frozenset({*_NAME_KEYS, *_ARGUMENT_KEYS, "id", "type", "tool_call_id"})


def read_members(source: str) -> dict[str, Raw]:
    """Decode a JSON object to its members' source; tolerates raw line breaks in strings."""
    try:
        return decode_members(source)
    except (ValueError, RecursionError):
        return decode_members(_normalize(source))


def read_items(source: str) -> list[Raw]:
    """Decode a JSON list to its items' source; tolerates raw line breaks in strings."""
    try:
        return decode_elements(source)
    except (ValueError, RecursionError):
        return decode_elements(_normalize(source))


def _normalize(source: str) -> str:
    """Return JSON with raw control characters in strings escaped; raises Mismatch if it is invalid otherwise."""
    try:
        return json.dumps(json.loads(source, strict=False, parse_constant=_reject_constant), ensure_ascii=False)
    except (ValueError, RecursionError):
        raise Mismatch from None


def _reject_constant(name: str) -> None:
    """Reject `NaN` and `Infinity`, which are not JSON."""
    raise ValueError(name)


def decode_object(source: str) -> str:
    """Return the JSON of an object, from its source or from a string that holds it."""
    try:
        read_members(source)
    except (ValueError, RecursionError):
        raise Mismatch from None
    return source


def _read_arguments(value: Raw) -> str:
    """Return the arguments as JSON of an object; they may be written as a string of JSON."""
    source = bytes(value).decode()
    if source.startswith('"'):
        source = msgspec.json.decode(value, type=str)
    if not source.lstrip().startswith("{"):
        raise Mismatch
    read_members(source)
    return source


def read_call(source: str, *, bare: bool = False) -> ParsedCall:
    """Read a JSON object that has a name and arguments as a call.

    Without marks around it (`bare`), an object with any other member is data.
    """
    try:
        members = read_members(source)
        if "function" in members and "name" not in members:  # the API's own shape
            members = read_members(bytes(members["function"]).decode())
            if "arguments" not in members:
                raise Mismatch
        elif bare and not members.keys() <= _BARE_KEYS:
            raise Mismatch
        name = next((members[key] for key in _NAME_KEYS if key in members), None)
        arguments = next((members[key] for key in _ARGUMENT_KEYS if key in members), None)
        if name is None or arguments is None:
            raise Mismatch
        return ParsedCall(msgspec.json.decode(name, type=str), _read_arguments(arguments), source=source)
    except (ValueError, RecursionError):
        raise Mismatch from None


def read_calls(source: str, *, bare: bool = False) -> list[ParsedCall]:
    """Read a JSON object, or a list of them, as calls."""
    if not source.startswith("["):
        return [read_call(source, bare=bare)]
    try:
        items = read_items(source)
    except (ValueError, RecursionError):
        raise Mismatch from None
    if not items:
        raise Mismatch
    return [read_call(bytes(item).decode(), bare=bare) for item in items]


def parse_calls(cursor: Cursor) -> Parse[list[ParsedCall]]:
    """Parse a JSON object, or a list of them, as calls."""
    yield from cursor.skip_space()
    return read_calls((yield from cursor.read_json()))
