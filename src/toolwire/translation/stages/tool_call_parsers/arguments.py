"""Arguments of a recovered call as JSON: parameters that were written as text get the type that the schema declares.

Values are text up to their closing mark, without escapes. A value that fits none of the declared types stays a string.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.codec.schema.references import References
from toolwire.translation.stages.tool_call_parsers.calls import Parameter, ParsedCall, read_members
from toolwire.translation.stages.tool_call_parsers.cursor import Mismatch
from toolwire.translation.stages.tool_call_parsers.literals import read_literal

_ORDER = ("null", "integer", "number", "boolean", "object", "array", "string")
_ALIASES = {"int": "integer", "float": "number", "double": "number", "bool": "boolean"} | {
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "str": "string",
    "text": "string",
}
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_BOOLEANS = {"true": "true", "false": "false", "1": "true", "0": "false"}
_MAX_DEPTH = 32
_MAX_DIGITS = 4000
_WRAPPERS = frozenset({"arguments", "input", "parameters"})
_UNCLOSED = re.compile(r"\n<parameter=([^>\n]+)>\n?")


def _encode_string(text: str) -> str:
    """Return a string as JSON; a lone surrogate becomes an escape."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


class ArgumentEncoder:
    """Encodes the arguments of calls to one declared tool."""

    def __init__(self, parameters: Raw | None) -> None:
        try:
            schema = {} if parameters is None else msgspec.json.decode(parameters)
        except (ValueError, RecursionError):
            schema = {}
        self._schema = schema if isinstance(schema, dict) else {}
        self._references = References(self._schema)
        self._properties = self._find_properties(self._schema, 0)

    def encode(self, call: ParsedCall) -> str:
        """Return the arguments of a call as a JSON object; raises Mismatch if they cannot be this tool's."""
        if call.arguments is not None:
            return call.arguments
        if (wrapped := self._unwrap(call.parameters)) is not None:
            return wrapped
        given = {parameter.name for parameter in call.parameters}
        parameters = [part for parameter in call.parameters for part in self._split(parameter, given)]
        if call.only_declared:
            names = [parameter.name for parameter in parameters]
            if len(set(names)) < len(names) or not self._properties.keys() >= set(names):
                raise Mismatch
        members: dict[str, str] = {}
        for parameter in parameters:
            members.pop(parameter.name, None)  # the last one wins, in its place
            members[parameter.name] = self._encode_parameter(parameter)
        return _join_members(members)

    def _unwrap(self, parameters: tuple[Parameter, ...]) -> str | None:
        """Return all arguments if they are wrapped in one parameter that the schema lacks; else None."""
        if len(parameters) != 1 or parameters[0].name not in _WRAPPERS or parameters[0].name in self._properties:
            return None
        value = parameters[0].value
        if not isinstance(value, str) or not value.lstrip().startswith("{"):
            return None
        try:
            read_members(value)
        except (Mismatch, ValueError, RecursionError):
            return None
        return value.strip()

    def _split(self, parameter: Parameter, given: set[str]) -> Iterator[Parameter]:
        """Yield the parameters of a value that holds others, because its closing mark is missing.

        `given` are the names of all parameters so far.
        """
        name, value, start = parameter.name, parameter.value, 0
        if isinstance(value, str) and "\n<parameter=" in value:
            for match in _UNCLOSED.finditer(value):
                if (following := match[1].strip()) in self._properties and following not in given:
                    given.add(following)
                    yield Parameter(name, value[start : match.start()], None if start else parameter.type)
                    name, start = following, match.end()
        yield Parameter(name, value[start:]) if start else parameter

    def _encode_parameter(self, parameter: Parameter) -> str:
        """Return a parameter's value as JSON; a type that the dialect states wins, unless the schema excludes it."""
        value, stated, schema = parameter.value, parameter.type, self._properties.get(parameter.name)
        allowed = self._find_types(schema, 0)
        if stated is None or (stated == "string" and allowed and "string" not in allowed):
            return self._encode_value(value, schema, 0)
        if stated == "json":
            encoded = _encode_untyped(value)
            return self._encode_value(value, schema, 0) if encoded is None else encoded
        encoded = encode_as(stated, value)
        return _encode_string(value) if encoded is None else encoded

    def _encode_value(self, value: Any, schema: Any, depth: int) -> str:
        """Return a value as JSON, with the type that its schema declares."""
        if depth > _MAX_DEPTH:
            raise Mismatch
        if isinstance(value, dict):
            properties = self._find_properties(schema, 0)
            return _join_members(
                {name: self._encode_value(item, properties.get(name), depth + 1) for name, item in value.items()}
            )
        if isinstance(value, list):
            items = self._find_items(schema)
            return f"[{', '.join([self._encode_value(item, items, depth + 1) for item in value])}]"
        types = self._find_types(schema, 0)
        if not types:
            encoded = _encode_untyped(value)
        else:
            found = [encode_as(name, value) for name in _ORDER if name in types]
            encoded = next((text for text in found if text is not None), None)
        return _encode_string(value) if encoded is None else encoded

    def _variants(self, schema: Any, depth: int) -> list[Any]:
        """Return the schemas that a schema combines or refers to."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return []
        variants = [item for key in ("anyOf", "oneOf", "allOf") for item in _list_or_empty(schema.get(key))]
        if "$ref" in schema and (location := self._references.resolve(schema["$ref"])) is not None:
            variants.append(location.value)
        return variants

    def _find_types(self, schema: Any, depth: int) -> set[str]:
        """Return the JSON types that a schema allows; empty if it does not say."""
        if not isinstance(schema, dict):
            return set()
        declared = schema.get("type")
        names = declared if isinstance(declared, list) else [declared]
        types = {_ALIASES.get(name.lower(), name.lower()) for name in names if isinstance(name, str)}
        if not types:
            values = [*_list_or_empty(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
            types = {_type_of(value) for value in values}
        for variant in self._variants(schema, depth):
            types |= self._find_types(variant, depth + 1)
        if not types:
            types = {name for key, name in (("properties", "object"), ("items", "array")) if key in schema}
        return types & set(_ORDER)

    def _find_properties(self, schema: Any, depth: int) -> dict[str, Any]:
        """Return the schemas of an object's properties."""
        if not isinstance(schema, dict):
            return {}
        properties: dict[str, Any] = {}
        for variant in self._variants(schema, depth):
            properties.update(self._find_properties(variant, depth + 1))
        own = schema.get("properties")
        return properties | own if isinstance(own, dict) else properties

    def _find_items(self, schema: Any) -> Any:
        """Return the schema of a list's items."""
        candidates = [schema, *self._variants(schema, 0)]
        return next((item["items"] for item in candidates if isinstance(item, dict) and "items" in item), None)


def _join_members(members: dict[str, str]) -> str:
    """Return the JSON of an object with encoded values."""
    return "{" + ", ".join([f"{_encode_string(name)}: {value}" for name, value in members.items()]) + "}"


def _list_or_empty(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def _type_of(value: Any) -> str:
    """Return the JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds = {int: "integer", float: "number", str: "string", list: "array"}
    return kinds.get(type(value), "object")


def _encode_untyped(text: str) -> str | None:
    """Return a value without a declared type as JSON, if it is JSON; else None."""
    try:
        msgspec.json.decode(text, type=Raw)
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return text.strip()


def encode_as(type: str, text: str) -> str | None:  # noqa: A002  the schema's own word
    """Return text as JSON of this type; None if it is not one."""
    stripped = text.strip()
    match type:
        case "string":
            return _encode_string(text)
        case "null":
            return "null" if stripped.lower() == "null" else None
        case "boolean":
            return _BOOLEANS.get(stripped.lower())
        case "integer":
            return _encode_integer(stripped)
        case "number":
            return _encode_number(stripped)
        case _:
            return _encode_container(stripped, "{" if type == "object" else "[")


def _encode_integer(text: str) -> str | None:
    """Return the JSON of an integer; None if the text is not one."""
    if _INTEGER.fullmatch(text) and text.isascii() and len(text) < _MAX_DIGITS:
        return str(int(text))
    return None


def _encode_number(text: str) -> str | None:
    """Return the JSON of a number, an integer if it is integral; None if the text is not one."""
    if (integer := _encode_integer(text)) is not None:
        return integer
    if not _NUMBER.fullmatch(text) or not text.isascii() or len(text) >= _MAX_DIGITS:
        return None
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return None
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _encode_container(text: str, opening: str) -> str | None:
    """Return the JSON of an object or list, which may be spelled as in Python; None if the text is not one."""
    if not text.startswith(opening):
        return None
    if (encoded := _encode_untyped(text)) is not None:
        return encoded
    try:
        value = read_literal(text)
    except Mismatch:
        return None
    if (opening == "{") is not isinstance(value, dict):
        return None
    return json.dumps(value, ensure_ascii=not text.isprintable())
