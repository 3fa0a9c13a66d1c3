"""Example values for JSON Schemas and regular expressions: small, deterministic and valid."""

import math
import re
from typing import Any

_ESCAPE_EXAMPLES = {"d": "0", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t", "r": "\r"}
_ZERO_WIDTH_ESCAPES = "bBAZzG"
_NEGATED_CLASS_CANDIDATES = "aA0-_ .~"
_MAX_REPEATS = 10_000
_REPEAT_COUNT = re.compile(r"\{(\d+)(,\d*)?\}")
_GROUP_PREFIX = re.compile(r"\?(?::|P?<\w+>)")


def build_match(pattern: str, min_length: int = 0) -> str | None:
    """Return a short text that matches a regular expression, or None if it is not supported."""
    for repeats in (0, min_length):
        try:
            text = _PatternSample(pattern, min(repeats, _MAX_REPEATS)).read_alternatives()
            if len(text) >= min_length and re.search(pattern, text):
                return text
        except (re.error, ValueError, IndexError, RecursionError):
            return None
    return None


class _PatternSample:
    """Parses a pattern from left to right. `repeats` is the count for open-ended repetitions."""

    def __init__(self, pattern: str, repeats: int) -> None:
        self._rest = pattern
        self._repeats = repeats

    def read_alternatives(self) -> str:
        """Consume alternatives (`a|b`), and return a text that matches the first one."""
        first = self._read_sequence()
        while self._rest[:1] == "|":
            self._take(1)
            self._read_sequence()
        return first

    def _take(self, size: int) -> str:
        """Consume and return the next `size` characters of the pattern."""
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _read_sequence(self) -> str:
        """Consume a sequence of atoms with their quantifiers, and return a text that matches it."""
        texts: list[str] = []
        while self._rest and self._rest[0] not in "|)":
            atom = self._read_atom()
            texts.append(atom * self._read_repeat_count())
        return "".join(texts)

    def _read_repeat_count(self) -> int:
        """Consume a quantifier, if any, and return how often to repeat."""
        minimum = 1
        if self._rest[:1] in ("*", "+", "?"):
            sign = self._take(1)
            minimum = 0 if sign == "?" else max(self._repeats, sign == "+")
        elif (bounds := _REPEAT_COUNT.match(self._rest)) is not None:
            self._take(bounds.end())
            minimum = int(bounds[1])
            if bounds[2] == ",":
                minimum = max(minimum, self._repeats)
        else:
            return minimum
        if self._rest[:1] in ("?", "+"):
            self._take(1)
        return min(minimum, _MAX_REPEATS)

    def _read_atom(self) -> str:
        r"""Consume one atom of the pattern, such as `\d` or `(...)`, and return a text that matches it."""
        match self._take(1):
            case "(":
                return self._read_group()
            case "[":
                return self._read_class()
            case "\\":
                letter = self._take(1)
                return "" if letter in _ZERO_WIDTH_ESCAPES else _ESCAPE_EXAMPLES.get(letter, letter)
            case "^" | "$":
                return ""
            case ".":
                return "a"
            case literal:
                return literal

    def _read_group(self) -> str:
        """Consume a group `(...)` and return a text that matches it."""
        if self._rest[:1] == "?":
            prefix = _GROUP_PREFIX.match(self._rest)
            if prefix is None:
                raise ValueError("lookaround assertions are not supported")
            self._take(prefix.end())
        text = self.read_alternatives()
        self._take(1)
        return text

    def _read_class(self) -> str:
        """Consume a character class `[...]` and return one of its characters."""
        end = self._rest.index("]", 2 if self._rest[:1] == "^" else 1)
        while self._rest[end - 1] == "\\":
            end = self._rest.index("]", end + 1)
        members = self._take(end + 1)[:-1]
        if members[:1] == "^":
            return next(letter for letter in _NEGATED_CLASS_CANDIDATES if re.match(f"[{members}]", letter))
        return _ESCAPE_EXAMPLES.get(members[1], members[1]) if members[0] == "\\" else members[0]


Schema = dict[str, Any]

_FORMAT_EXAMPLES = {
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_DEFAULT_STRING = "example"
_MAX_DEPTH = 12
_UNION_KEYWORDS = ("anyOf", "oneOf")


def build_example(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """Return a minimal value that is valid: required properties only, and the first of several choices."""
    root = schema if root is None else root
    schema = resolve_schema(schema, root)
    if not schema:
        return _DEFAULT_STRING
    if values := _given_values(schema):
        return values[0]
    if depth > _MAX_DEPTH:
        return None
    for keyword in _UNION_KEYWORDS:
        if isinstance(schema.get(keyword), list) and schema[keyword]:
            return build_example(
                _merge_schemas(schema, _first_non_null(schema[keyword], root), keyword), root, depth + 1
            )
    match schema_type(schema):
        case "object":
            return _build_object(schema, root, depth)
        case "array":
            return _build_array(schema, root, depth)
        case "integer" | "number" as kind:
            return _build_number(schema, integer=kind == "integer")
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _build_string(schema)


def _given_values(schema: Schema) -> list[Any]:
    """Return the valid values that the schema itself gives: `const`, `default`, the first of `enum` or `examples`."""
    if "const" in schema:
        return [schema["const"]]
    lists = [values for keyword in ("enum", "examples") if isinstance(values := schema.get(keyword), list)]
    candidates = [*([schema["default"]] if "default" in schema else []), *(values[0] for values in lists if values)]
    return [value for value in candidates if matches_schema(value, schema)]


def resolve_schema(schema: Any, root: Any) -> Schema:
    """Return the schema with `$ref` and `allOf` resolved at its top level."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        if isinstance(schema.get("$ref"), str):
            siblings = {key: value for key, value in schema.items() if key != "$ref"}
            referenced = _resolve_pointer(schema["$ref"], root)
            schema = {**referenced, **siblings} if isinstance(referenced, dict) else siblings
        elif isinstance(schema.get("allOf"), list):
            merged = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                merged = _merge_schemas(merged, resolve_schema(part, root))
            schema = merged
        else:
            return schema
    return {}


def _resolve_pointer(pointer: str, root: Any) -> Any:
    """Return the schema that a JSON pointer refers to in `root`."""
    value = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _first_non_null(choices: list[Any], root: Any) -> Any:
    """Return the first choice whose type is not null."""
    return next((choice for choice in choices if schema_type(resolve_schema(choice, root)) != "null"), choices[0])


def _merge_schemas(schema: Schema, other: Any, dropped_keyword: str = "") -> Schema:
    """Merge two schemas; the second wins, but properties and `required` are united.

    `dropped_keyword` of the first schema is left out.
    """
    other = other if isinstance(other, dict) else {}
    merged = {**{key: value for key, value in schema.items() if key != dropped_keyword}, **other}
    if "properties" in schema and "properties" in other:
        merged["properties"] = {**schema["properties"], **other["properties"]}
    if "required" in schema and "required" in other:
        merged["required"] = list(dict.fromkeys([*schema["required"], *other["required"]]))
    return merged


def schema_type(schema: Schema) -> str:
    """Return the type of a schema in lower case, inferred if it is missing; "" if unknown."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if isinstance(kind, str):
        return kind.lower()
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else ""


def schema_properties(schema: Schema) -> dict[str, Any]:
    """Return the schemas of the properties by name."""
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def required_properties(schema: Schema) -> list[str]:
    """Return the names of the required properties, in the order of declaration."""
    listed = schema.get("required")
    required = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    properties = schema_properties(schema)
    return [name for name in properties if name in required] + [name for name in required if name not in properties]


def _build_object(schema: Schema, root: Any, depth: int) -> dict[str, Any]:
    """Return an object with the required properties, and more up to `minProperties`."""
    properties = schema_properties(schema)
    value = {name: build_example(properties.get(name, {}), root, depth + 1) for name in required_properties(schema)}
    for name in properties:
        if len(value) >= _bound(schema, "minProperties", 0):
            break
        value.setdefault(name, build_example(properties[name], root, depth + 1))
    return value


def _build_array(schema: Schema, root: Any, depth: int) -> list[Any]:
    """Return an array of the minimal length, or with one item."""
    first = schema["prefixItems"] if isinstance(schema.get("prefixItems"), list) else []
    size = max(_bound(schema, "minItems", 1), len(first))
    size = min(size, _bound(schema, "maxItems", size))
    items = [*first, *[schema.get("items", {})] * (size - len(first))][:size]
    values = [build_example(item, root, depth + 1) for item in items]
    if schema.get("uniqueItems") is True:
        values = [_make_distinct(value, index) for index, value in enumerate(values)]
    return values


def _make_distinct(value: Any, index: int) -> Any:
    """Return the value changed by its index in the array, so that items differ as `uniqueItems` requires."""
    if index == 0 or isinstance(value, bool):
        return value
    return value + index if isinstance(value, int | float) else f"{value}{index}" if isinstance(value, str) else value


def _bound(schema: Schema, name: str, default: int) -> int:
    """Return a numeric keyword of the schema, or the default."""
    bound = schema.get(name)
    return int(bound) if isinstance(bound, int | float) and bound >= 0 else default


def _build_number(schema: Schema, *, integer: bool) -> int | float:
    """Return a number within the bounds of the schema, 1 if possible."""
    step = schema.get("multipleOf") or (1 if integer else 0)
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if isinstance(above := schema.get("exclusiveMinimum"), int | float):
        low = max(low, above + (step or 0.5))
    if isinstance(below := schema.get("exclusiveMaximum"), int | float):
        high = min(high, below - (step or 0.5))
    value: float = min(max(1, low), high)
    if step:
        value = (math.ceil(value / step) if value < high else math.floor(value / step)) * step
    return int(value) if integer or float(value).is_integer() else value


def _build_string(schema: Schema) -> str:
    """Return a text for the pattern, format and length of the schema."""
    min_length = _bound(schema, "minLength", 0)
    if isinstance(pattern := schema.get("pattern"), str) and (match := build_match(pattern, min_length)) is not None:
        return match
    text = _FORMAT_EXAMPLES.get(str(schema.get("format")), _DEFAULT_STRING)
    text = text if len(text) >= min_length else text + "x" * (min(min_length, 10_000) - len(text))
    return text[: _bound(schema, "maxLength", len(text))]


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def matches_schema(value: Any, schema: Schema) -> bool:
    """Return whether a value fits the schema's type, `enum`, `const`, bounds and length. Subschemas are not checked."""
    kinds = _PYTHON_TYPES.get(schema_type(schema), (object,))
    listed = schema.get("type")
    nullable = value is None and isinstance(listed, list) and "null" in listed
    if not nullable and (not isinstance(value, kinds) or (isinstance(value, bool) and int in kinds)):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if isinstance(value, str):
        return _bound(schema, "minLength", 0) <= len(value) <= _bound(schema, "maxLength", len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _is_in_range(value, schema)
    return True


def _is_in_range(value: float, schema: Schema) -> bool:
    """Return whether a number fits the bounds and `multipleOf` of the schema."""
    step = schema.get("multipleOf")
    return (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and value > schema.get("exclusiveMinimum", -math.inf)
        and value < schema.get("exclusiveMaximum", math.inf)
        and not (step and value % step)
    )
