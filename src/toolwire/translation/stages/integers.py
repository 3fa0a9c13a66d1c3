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
from toolwire.codec.encoding.tools import conversation_tools
from toolwire.codec.wire.reader import decode_json

_INTEGRAL_NUMBER = re.compile(r"(-?\d+)\.0+")
_NUMBER = re.compile(r"[-+.0-9eE]+")
_STRING = re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)
_INSIGNIFICANT = re.compile(r'[^"{}\[\],:0-9-]+')
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_LIMIT_SCHEMAS = 200
_LIMIT_DEPTH = 100


def integer_schema(request: Request | None, call: ToolCall) -> Raw | None:
    """The schema of the tool that is called, if it says integer anywhere."""
    if request is None:
        return None
    for placed in conversation_tools(request):
        tool = placed.tool
        if isinstance(tool, FunctionTool) and (tool.namespace, tool.name) == (call.namespace, call.name):
            schema = tool.parameters
            return schema if schema is not None and b'"integer"' in bytes(schema) else None
    return None


def may_need_integers(arguments: str) -> bool:
    return ".0" in arguments


def with_integers(arguments: str, schema: Raw) -> str:
    text = IntegerArguments(schema)
    return text.feed(arguments) + text.close()


class _OpenContainer(Struct):
    """An object or a list that is open. `key` is the member that is being told, as its JSON text."""

    is_object: bool
    key: str | None = None


class IntegerArguments:
    def __init__(self, schema: Raw) -> None:
        self._schema: Any = decode_json(schema)
        self._containers: list[_OpenContainer] = []
        self._in_string = False
        self._key: list[str] | None = None
        self._incomplete = ""

    def feed(self, text: str) -> str:
        if self._in_string and self._key is None and not self._incomplete and '"' not in text and "\\" not in text:
            return text
        return "".join(self._rewrite(self._incomplete + text))

    def close(self) -> str:
        """A number that nothing came after."""
        held, self._incomplete = self._incomplete, ""
        return held

    def _rewrite(self, text: str) -> Iterator[str]:
        self._incomplete = ""
        place = 0
        while place < len(text):
            if self._in_string:
                end = self._string_end(text, place)
                if end == place:
                    self._incomplete = text[place:]
                    return
                yield text[place:end]
            elif (number := _NUMBER.match(text, place)) is not None:
                end = number.end()
                if end == len(text):
                    self._incomplete = number[0]
                    return
                yield self._rewrite_number(number[0])
            else:
                plain = _INSIGNIFICANT.match(text, place)
                end = place + 1 if plain is None else plain.end()
                if plain is None:
                    self._track_punctuation(text[place])
                yield text[place:end]
            place = end

    def _string_end(self, text: str, index: int) -> int:
        """Where a string ends that was begun before, or what is there of it; a lone backslash waits."""
        match = _STRING.match(text, index)
        end = index if match is None else match.end()
        if self._key is not None:
            self._key.append(text[index:end])
        if text[end : end + 1] == '"':
            self._in_string = False
            return end + 1
        return end

    def _track_punctuation(self, character: str) -> None:
        level = self._containers[-1] if self._containers else None
        match character:
            case '"':
                self._in_string = True
                self._key = [] if level is not None and level.is_object and level.key is None else None
            case "{" | "[":
                self._containers.append(_OpenContainer(character == "{"))
            case "}" | "]":
                if level is not None:
                    self._containers.pop()
            case ":":
                if level is not None and self._key is not None:
                    level.key, self._key = "".join(self._key), None
            case _:
                if level is not None:
                    level.key = None

    def _rewrite_number(self, text: str) -> str:
        whole = _INTEGRAL_NUMBER.fullmatch(text)
        return whole[1] if whole is not None and self._is_integer() else text

    def _is_integer(self) -> bool:
        """Whether the schema knows integers at this place, and no other numbers."""
        found = [self._schema]
        if len(self._containers) > _LIMIT_DEPTH:
            return False
        for level in self._containers:
            held = list(self._branches(found))
            inner = (
                _member_schemas(schema, level.key) if level.is_object else _item_schemas(schema) for schema in held
            )
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
                waiting.append(_resolve_reference(self._schema, reference))


def _resolve_reference(schema: Any, reference: str) -> Any:
    for step in reference.split("/")[1:]:
        schema = schema.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(schema, dict) else None
    return schema


def _member_schemas(schema: dict[str, Any], key: str | None) -> Iterator[Any]:
    named = schema.get("properties")
    try:
        name = msgspec.json.decode(f'"{key}"'.encode())
    except (msgspec.DecodeError, UnicodeError):
        return
    if isinstance(named, dict) and name in named:
        yield named[name]
    elif "additionalProperties" in schema:
        yield schema["additionalProperties"]


def _item_schemas(schema: dict[str, Any]) -> Iterator[Any]:
    if "items" in schema:
        yield schema["items"]


def _types(schema: dict[str, Any]) -> Iterable[Any]:
    said = schema.get("type")
    return said if isinstance(said, list) else (said,) if isinstance(said, str) else ()
