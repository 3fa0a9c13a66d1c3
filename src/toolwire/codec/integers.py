"""Whole numbers as whole numbers: some models write `10.0` where a tool's schema says integer, and clients refuse it.

Only a number that has no fraction, at a place where the schema knows integers and no other numbers, is written anew.
The arguments are read as they arrive, in pieces of any size, and everything else in them stays as it is.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.content import ToolCall
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool

from .tools import tools_in_force

_WHOLE = re.compile(r"(-?\d+)\.0+")
_NUMBER = re.compile(r"[-+.0-9eE]+")
_STRING = re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)
_PLAIN = re.compile(r'[^"{}\[\],:0-9-]+')
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_LIMIT_SCHEMAS = 200
_LIMIT_DEPTH = 100


def integer_schema(request: Request | None, call: ToolCall) -> Raw | None:
    """The schema of the tool that is called, if it says integer anywhere."""
    if request is None:
        return None
    for placed in tools_in_force(request):
        tool = placed.tool
        if isinstance(tool, FunctionTool) and (tool.namespace, tool.name) == (call.namespace, call.name):
            schema = tool.parameters
            return schema if schema is not None and b'"integer"' in bytes(schema) else None
    return None


def may_need_integers(arguments: str) -> bool:
    return ".0" in arguments


def with_integers(arguments: str, schema: Raw) -> str:
    text = IntegerText(schema)
    return text.feed(arguments) + text.close()


class _Level(Struct):
    """An object or a list that is open. `key` is the member that is being told, as its JSON text."""

    members: bool
    key: str | None = None


class IntegerText:
    def __init__(self, schema: Raw) -> None:
        self._schema: Any = msgspec.json.decode(schema)
        self._levels: list[_Level] = []
        self._inside = False
        self._key: list[str] | None = None
        self._held = ""

    def feed(self, text: str) -> str:
        if self._inside and self._key is None and not self._held and '"' not in text and "\\" not in text:
            return text
        return "".join(self._read(self._held + text))

    def close(self) -> str:
        """A number that nothing came after."""
        held, self._held = self._held, ""
        return held

    def _read(self, text: str) -> Iterator[str]:
        self._held = ""
        place = 0
        while place < len(text):
            if self._inside:
                end = self._string(text, place)
                if end == place:
                    self._held = text[place:]
                    return
                yield text[place:end]
            elif (number := _NUMBER.match(text, place)) is not None:
                end = number.end()
                if end == len(text):
                    self._held = number[0]
                    return
                yield self._number(number[0])
            else:
                plain = _PLAIN.match(text, place)
                end = place + 1 if plain is None else plain.end()
                if plain is None:
                    self._sign(text[place])
                yield text[place:end]
            place = end

    def _string(self, text: str, place: int) -> int:
        """Where a string ends that was begun before, or what is there of it; a lone backslash waits."""
        match = _STRING.match(text, place)
        end = place if match is None else match.end()
        if self._key is not None:
            self._key.append(text[place:end])
        if text[end : end + 1] == '"':
            self._inside = False
            return end + 1
        return end

    def _sign(self, sign: str) -> None:
        level = self._levels[-1] if self._levels else None
        match sign:
            case '"':
                self._inside = True
                self._key = [] if level is not None and level.members and level.key is None else None
            case "{" | "[":
                self._levels.append(_Level(sign == "{"))
            case "}" | "]":
                if level is not None:
                    self._levels.pop()
            case ":":
                if level is not None and self._key is not None:
                    level.key, self._key = "".join(self._key), None
            case _:
                if level is not None:
                    level.key = None

    def _number(self, text: str) -> str:
        whole = _WHOLE.fullmatch(text)
        return whole[1] if whole is not None and self._is_integer() else text

    def _is_integer(self) -> bool:
        """Whether the schema knows integers at this place, and no other numbers."""
        found = [self._schema]
        if len(self._levels) > _LIMIT_DEPTH:
            return False
        for level in self._levels:
            held = list(self._branches(found))
            inner = (_member(schema, level.key) if level.members else _item(schema) for schema in held)
            found = [child for children in inner for child in children]
        words = {word for schema in self._branches(found) for word in _types(schema)}
        return "integer" in words and "number" not in words

    def _branches(self, schemas: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The schemas themselves, with what they refer to and choose from; recursion and size are bounded."""
        waiting = list(schemas)
        seen: set[int] = set()
        while waiting and len(seen) < _LIMIT_SCHEMAS:
            schema = waiting.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            yield schema
            for word in _ALTERNATIVES:
                if isinstance(inner := schema.get(word), list):
                    waiting += inner
            if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
                waiting.append(_resolved(self._schema, reference))


def _resolved(schema: Any, reference: str) -> Any:
    for step in reference.split("/")[1:]:
        schema = schema.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(schema, dict) else None
    return schema


def _member(schema: dict[str, Any], key: str | None) -> Iterator[Any]:
    named = schema.get("properties")
    try:
        name = msgspec.json.decode(f'"{key}"'.encode())
    except (msgspec.DecodeError, UnicodeError):
        return
    if isinstance(named, dict) and name in named:
        yield named[name]
    elif "additionalProperties" in schema:
        yield schema["additionalProperties"]


def _item(schema: dict[str, Any]) -> Iterator[Any]:
    if "items" in schema:
        yield schema["items"]


def _types(schema: dict[str, Any]) -> Iterable[Any]:
    said = schema.get("type")
    return said if isinstance(said, list) else (said,) if isinstance(said, str) else ()
