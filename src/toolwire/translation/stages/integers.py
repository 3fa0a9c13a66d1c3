"""Rewrite integral floats as integers: some models write `10.0` where the schema says integer, which clients reject.

Only numbers without a fraction are rewritten, where the schema admits integers and no other numbers. Arguments are
processed as they arrive, in pieces of any size, and everything else in them stays unchanged.
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
_find_integral_end = re.compile(r"\.0+(?![0-9])").search
_NUMBER = re.compile(r"[-+.0-9eE]+")
_STRING = re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL)
_INSIGNIFICANT = re.compile(r'[^"{}\[\],:0-9-]+')
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_LIMIT_SCHEMAS = 200
_LIMIT_DEPTH = 100


def integer_schema(request: Request | None, call: ToolCall) -> Raw | None:
    """Return the schema of the called tool, if it mentions integers."""
    if request is None:
        return None
    for located in conversation_tools(request):
        tool = located.tool
        if isinstance(tool, FunctionTool) and (tool.namespace, tool.name) == (call.namespace, call.name):
            schema = tool.parameters
            return schema if schema is not None and b'"integer"' in bytes(schema) else None
    return None


def may_need_integers(arguments: str) -> bool:
    """Return whether JSON arguments may contain an integral float such as `1.0`."""
    return ".0" in arguments and _find_integral_end(arguments) is not None


def with_integers(arguments: str, schema: Raw) -> str:
    """Return complete JSON arguments with integral floats (`1.0`) as integers where the schema wants these."""
    rewriter = IntegerArguments(schema)
    return rewriter.feed(arguments) + rewriter.close()


class _OpenContainer(Struct):
    """An object or list that is still open."""

    is_object: bool
    key: str | None = None  # the current member, as JSON text


class IntegerArguments:
    """Rewrites integral floats in arguments that arrive in pieces."""

    def __init__(self, schema: Raw) -> None:
        self._schema: Any = decode_json(schema)
        self._containers: list[_OpenContainer] = []
        self._in_string = False
        self._key: list[str] | None = None
        self._incomplete = ""

    def feed(self, text: str) -> str:
        """Return the next piece of the arguments, rewritten; an incomplete number is held back."""
        if self._in_string and self._key is None and not self._incomplete and '"' not in text and "\\" not in text:
            return text
        return "".join(self._rewrite(self._incomplete + text))

    def close(self) -> str:
        """Return the number that was held back at the end of the arguments, if any."""
        incomplete, self._incomplete = self._incomplete, ""
        return incomplete

    def _rewrite(self, text: str) -> Iterator[str]:
        """Yield the text with numbers rewritten, tracking the position in the JSON value."""
        self._incomplete = ""
        position = 0
        while position < len(text):
            if self._in_string:
                end = self._string_end(text, position)
                if end == position:
                    self._incomplete = text[position:]
                    return
                yield text[position:end]
            elif (number := _NUMBER.match(text, position)) is not None:
                end = number.end()
                if end == len(text):
                    self._incomplete = number[0]
                    return
                yield self._rewrite_number(number[0])
            else:
                plain = _INSIGNIFICANT.match(text, position)
                end = position + 1 if plain is None else plain.end()
                if plain is None:
                    self._track_punctuation(text[position])
                yield text[position:end]
            position = end

    def _string_end(self, text: str, index: int) -> int:
        """Return the index after the current string, or after the last character that is certain to belong to it."""
        match = _STRING.match(text, index)
        end = index if match is None else match.end()
        if self._key is not None:
            self._key.append(text[index:end])
        if text[end : end + 1] == '"':
            self._in_string = False
            return end + 1
        return end

    def _track_punctuation(self, character: str) -> None:
        """Update the open objects and lists, and whether a key or a value comes next."""
        container = self._containers[-1] if self._containers else None
        match character:
            case '"':
                self._in_string = True
                self._key = [] if container is not None and container.is_object and container.key is None else None
            case "{" | "[":
                self._containers.append(_OpenContainer(character == "{"))
            case "}" | "]":
                if container is not None:
                    self._containers.pop()
            case ":":
                if container is not None and self._key is not None:
                    container.key, self._key = "".join(self._key), None
            case _:
                if container is not None:
                    container.key = None

    def _rewrite_number(self, text: str) -> str:
        """Return the number, as an integer if the schema says so."""
        integral = _INTEGRAL_NUMBER.fullmatch(text)
        return integral[1] if integral is not None and self._is_integer() else text

    def _is_integer(self) -> bool:
        """Return whether the schema admits integers and no other numbers at this position."""
        schemas = [self._schema]
        if len(self._containers) > _LIMIT_DEPTH:
            return False
        for container in self._containers:
            branches = list(self._branches(schemas))
            nested = (
                _member_schemas(schema, container.key) if container.is_object else _item_schemas(schema)
                for schema in branches
            )
            schemas = [child for children in nested for child in children]
        types = {name for schema in self._branches(schemas) for name in _types(schema)}
        return "integer" in types and "number" not in types

    def _branches(self, schemas: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Yield the schemas and all that their references and alternatives (`anyOf`) lead to, within a limit."""
        stack = list(schemas)
        seen: set[int] = set()
        while stack and len(seen) < _LIMIT_SCHEMAS:
            schema = stack.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            yield schema
            for keyword in _ALTERNATIVES:
                if isinstance(alternatives := schema.get(keyword), list):
                    stack += alternatives
            if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
                stack.append(_resolve_reference(self._schema, reference))


def _resolve_reference(schema: Any, reference: str) -> Any:
    """Return the schema that a local reference points to; None if there is none."""
    for step in reference.split("/")[1:]:
        schema = schema.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(schema, dict) else None
    return schema


def _member_schemas(schema: dict[str, Any], key: str | None) -> Iterator[Any]:
    """Yield the schemas that apply to the object member `key`."""
    properties = schema.get("properties")
    try:
        name = msgspec.json.decode(f'"{key}"'.encode())
    except (msgspec.DecodeError, UnicodeError):
        return
    if isinstance(properties, dict) and name in properties:
        yield properties[name]
    elif "additionalProperties" in schema:
        yield schema["additionalProperties"]


def _item_schemas(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the schemas that apply to the items of a list."""
    if "items" in schema:
        yield schema["items"]


def _types(schema: dict[str, Any]) -> Iterable[Any]:
    """Return the values of `type` in a schema, also of a single one."""
    types = schema.get("type")
    return types if isinstance(types, list) else (types,) if isinstance(types, str) else ()
