"""A text that matches a regular expression: the shortest that its syntax offers, or None where that is no match.

Values made from a JSON Schema: small, always the same, and valid against it.
"""

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
    """`shortest`: where the pattern has no length of its own, at least so long."""
    for often in (0, min_length):
        try:
            text = _PatternSample(pattern, min(often, _MAX_REPEATS)).read_alternatives()
            if len(text) >= min_length and re.search(pattern, text):
                return text
        except (re.error, ValueError, IndexError, RecursionError):
            return None
    return None


class _PatternSample:
    """Reads a pattern from left to right. `often` is how many times to take what may be repeated without end."""

    def __init__(self, pattern: str, repeats: int) -> None:
        self._rest = pattern
        self._repeats = repeats

    def read_alternatives(self) -> str:
        """The first of several."""
        first = self._read_sequence()
        while self._rest[:1] == "|":
            self._take(1)
            self._read_sequence()
        return first

    def _take(self, size: int) -> str:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _read_sequence(self) -> str:
        made: list[str] = []
        while self._rest and self._rest[0] not in "|)":
            atom = self._read_atom()
            made.append(atom * self._read_repeat_count())
        return "".join(made)

    def _read_repeat_count(self) -> int:
        least = 1
        if self._rest[:1] in ("*", "+", "?"):
            sign = self._take(1)
            least = 0 if sign == "?" else max(self._repeats, sign == "+")
        elif (count := _REPEAT_COUNT.match(self._rest)) is not None:
            self._take(count.end())
            least = int(count[1])
            if count[2] == ",":
                least = max(least, self._repeats)
        else:
            return least
        if self._rest[:1] in ("?", "+"):
            self._take(1)
        return min(least, _MAX_REPEATS)

    def _read_atom(self) -> str:
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
        if self._rest[:1] == "?":
            plain = _GROUP_PREFIX.match(self._rest)
            if plain is None:
                raise ValueError("a look at what is around it")
            self._take(plain.end())
        inside = self.read_alternatives()
        self._take(1)
        return inside

    def _read_class(self) -> str:
        edge = self._rest.index("]", 2 if self._rest[:1] == "^" else 1)
        while self._rest[edge - 1] == "\\":
            edge = self._rest.index("]", edge + 1)
        inside = self._take(edge + 1)[:-1]
        if inside[:1] == "^":
            return next(letter for letter in _NEGATED_CLASS_CANDIDATES if re.match(f"[{inside}]", letter))
        return _ESCAPE_EXAMPLES.get(inside[1], inside[1]) if inside[0] == "\\" else inside[0]


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
    """The least value that fits: required properties only, the first of several choices."""
    root = schema if root is None else root
    schema = resolve_schema(schema, root)
    if not schema:
        return _DEFAULT_STRING
    if "const" in schema:
        return schema["const"]
    if "default" in schema and matches_schema(schema["default"], schema):
        return schema["default"]
    for keyword in ("enum", "examples"):
        if isinstance(schema.get(keyword), list) and schema[keyword] and matches_schema(schema[keyword][0], schema):
            return schema[keyword][0]
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


def resolve_schema(schema: Any, root: Any) -> Schema:
    """The schema itself, with what it refers to and what `allOf` adds in its place."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        if isinstance(schema.get("$ref"), str):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            found = _resolve_pointer(schema["$ref"], root)
            schema = {**found, **beside} if isinstance(found, dict) else beside
        elif isinstance(schema.get("allOf"), list):
            whole = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                whole = _merge_schemas(whole, resolve_schema(part, root))
            schema = whole
        else:
            return schema
    return {}


def _resolve_pointer(pointer: str, root: Any) -> Any:
    found = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _first_non_null(choices: list[Any], root: Any) -> Any:
    """The first choice that is not merely null."""
    return next((one for one in choices if schema_type(resolve_schema(one, root)) != "null"), choices[0])


def _merge_schemas(schema: Schema, other: Any, dropped_keyword: str = "") -> Schema:
    other = other if isinstance(other, dict) else {}
    joined = {**{key: value for key, value in schema.items() if key != dropped_keyword}, **other}
    if "properties" in schema and "properties" in other:
        joined["properties"] = {**schema["properties"], **other["properties"]}
    if "required" in schema and "required" in other:
        joined["required"] = list(dict.fromkeys([*schema["required"], *other["required"]]))
    return joined


def schema_type(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if isinstance(kind, str):
        return kind.lower()
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else ""


def schema_properties(schema: Schema) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def required_properties(schema: Schema) -> list[str]:
    listed = schema.get("required")
    asked = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    known = schema_properties(schema)
    return [name for name in known if name in asked] + [name for name in asked if name not in known]


def _build_object(schema: Schema, root: Any, depth: int) -> dict[str, Any]:
    known = schema_properties(schema)
    made = {name: build_example(known.get(name, {}), root, depth + 1) for name in required_properties(schema)}
    for name in known:
        if len(made) >= _bound(schema, "minProperties", 0):
            break
        made.setdefault(name, build_example(known[name], root, depth + 1))
    return made


def _build_array(schema: Schema, root: Any, depth: int) -> list[Any]:
    first = schema["prefixItems"] if isinstance(schema.get("prefixItems"), list) else []
    size = max(_bound(schema, "minItems", 1), len(first))
    size = min(size, _bound(schema, "maxItems", size))
    items = [*first, *[schema.get("items", {})] * (size - len(first))][:size]
    made = [build_example(item, root, depth + 1) for item in items]
    if schema.get("uniqueItems") is True:
        made = [_make_distinct(value, place) for place, value in enumerate(made)]
    return made


def _make_distinct(value: Any, index: int) -> Any:
    if index == 0 or isinstance(value, bool):
        return value
    return value + index if isinstance(value, int | float) else f"{value}{index}" if isinstance(value, str) else value


def _bound(schema: Schema, name: str, default: int) -> int:
    bound = schema.get(name)
    return int(bound) if isinstance(bound, int | float) and bound >= 0 else default


def _build_number(schema: Schema, *, integer: bool) -> int | float:
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
    short = _bound(schema, "minLength", 0)
    if isinstance(pattern := schema.get("pattern"), str) and (found := build_match(pattern, short)) is not None:
        return found
    text = _FORMAT_EXAMPLES.get(str(schema.get("format")), _DEFAULT_STRING)
    text = text if len(text) >= short else text + "x" * (min(short, 10_000) - len(text))
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
    """Whether a value keeps to what the schema says of itself: type, choice, bounds and length."""
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
        step = schema.get("multipleOf")
        return (
            schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and value > schema.get("exclusiveMinimum", -math.inf)
            and value < schema.get("exclusiveMaximum", math.inf)
            and not (step and value % step)
        )
    return True
