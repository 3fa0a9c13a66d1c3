"""Findings about bodies that a provider would reject, and JSON traversal for the rule files."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Literal, NamedTuple

import msgspec

Level = Literal["error", "warning"]
JsonPath = tuple[str | int, ...]
JsonObject = dict[str, object]


class Finding(msgspec.Struct, frozen=True):
    """One problem in a request body."""

    rule: str
    path: str  # JSON pointer to the problem
    message: str
    level: Level = "error"


Findings = Iterator[Finding]


def json_pointer(path: JsonPath) -> str:
    """Join member names and indexes to a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


# ---- accessors that tolerate any type


def object_of(value: object) -> JsonObject:
    """Return the value if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def number_of(value: object) -> float | None:
    """Return the value if it is a number (not a boolean), else None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def value_at(value: object, *names: str) -> object:
    """Return the value at nested member names; None if one of them is missing."""
    for name in names:
        value = object_of(value).get(name)
    return value


def object_items(value: object, path: JsonPath) -> list[tuple[JsonPath, JsonObject]]:
    """Return the objects of a list, each with its path."""
    return [((*path, index), item) for index, item in enumerate(list_of(value)) if isinstance(item, dict)]


def json_type(value: object) -> str:
    """Return the JSON Schema type name of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


# ---- tables of known fields, one line per object


class Field(NamedTuple):
    """A known field: its JSON types, or the values that it accepts."""

    name: str
    required: bool
    types: tuple[str, ...]
    choices: tuple[str, ...] = ()
    is_closed: bool = True  # other values than `choices` are errors, not warnings


Fields = tuple[Field, ...]


class FieldError(NamedTuple):
    """A field that is missing, or has the wrong type or an unknown value."""

    kind: Literal["missing", "type", "word"]
    field: Field
    value: object


_FIELD_NOTATION = re.compile(r"([\w-]+)(!?)([:=~])(\S+)")


def word_set(text: str) -> frozenset[str]:
    """Return the set of whitespace-separated words."""
    return frozenset(text.split())


@cache
def parse_fields(notation: str) -> Fields:
    """Parse a table of fields such as `id!:string role!=user|tool tier~auto|flex`.

    `!` marks a required field, `:` its types, `=` a closed list of values, `~` a list that may grow.
    """
    table = []
    for name, required, sign, choices in _FIELD_NOTATION.findall(notation):
        options = tuple(choices.split("|"))
        types, values = (options, ()) if sign == ":" else (("string",), options)
        table.append(Field(name, bool(required), types, values, sign == "="))
    return tuple(table)


def parse_shapes(*rows: str) -> dict[str, tuple[str, Fields]]:
    """Parse rows such as `"tool_use,server_tool_use a id!:string"`: tags, a protocol-defined word, fields."""
    table = {}
    for row in rows:
        tags, word, notation = row.split(" ", 2)
        table.update(dict.fromkeys(tags.split(","), (word, parse_fields(notation))))
    return table


def field_errors(value: JsonObject, table: Fields) -> Iterator[FieldError]:
    """Yield an error for each field of an object that its table does not allow."""
    for field in table:
        content = value.get(field.name)
        if field.name not in value:
            if field.required:
                yield FieldError("missing", field, None)
        elif content is None and not field.required:
            continue
        elif not _has_type(content, field.types):
            yield FieldError("type", field, content)
        elif field.choices and content not in field.choices:
            yield FieldError("word", field, content)


def _has_type(value: object, types: tuple[str, ...]) -> bool:
    """Return whether a value has one of the JSON types."""
    kind = json_type(value)
    return kind in types or (kind == "integer" and "number" in types)


class ErrorWording(NamedTuple):
    """A provider's wording of paths, types and field errors."""

    protocol: str
    format_path: Callable[[JsonPath], str]
    type_names: dict[str, str]
    missing_message: str
    type_message: str
    choice_message: str
    last_separator: str = " or "

    def finding(self, rule: str, path: JsonPath, message: str, level: Level = "error") -> Finding:
        """Build a finding in the provider's words; `{at}` in the message stands for the path."""
        return Finding(
            f"{self.protocol}.{rule}", json_pointer(path), message.replace("{at}", self.format_path(path)), level
        )

    def check_fields(self, path: JsonPath, value: object, table: Fields, tag: str = "") -> Findings:
        """Yield findings for the known fields of an object; `tag` becomes part of the displayed path."""
        for kind, field, content in field_errors(value, table) if isinstance(value, dict) else ():
            field_path = (*path, field.name)
            message = {"missing": self.missing_message, "type": self.type_message, "word": self.choice_message}[
                kind
            ].format(
                at=self.format_path((*path, tag, field.name) if tag else field_path),
                types=" or ".join(self.type_names.get(name, name) for name in field.types),
                words=self.join_choices(field.choices),
                got=self.type_names.get(json_type(content), json_type(content)),
                value=text_of(content),
            )
            # A word we don't know may be a newer wire's: only a closed list makes it an error.
            level: Level = "warning" if kind == "word" and not field.is_closed else "error"
            yield Finding(f"{self.protocol}.field-{kind}", json_pointer(field_path), message, level)

    def join_choices(self, options: Iterable[str]) -> str:
        """Join the quoted options of a field, as the provider's messages list them."""
        *first, last = (f"'{option}'" for option in options or ("",))
        return (
            f"{', '.join(first)}{self.last_separator if first[1:] else self.last_separator.lstrip(',')}{last}"
            if first
            else last
        )


# ---- JSON Schema

_ONE_SCHEMA = ("items", "additionalProperties", "not", "contains", "if", "then", "else")
_LISTED_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")


def subschemas(schema: object) -> Iterator[tuple[JsonPath, JsonObject]]:
    """Yield the schema and all schemas in it; a property named `items` is not mistaken for the keyword."""
    stack: list[tuple[JsonPath, object]] = [((), schema)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        inner: list[tuple[JsonPath, object]] = [((*path, key), node[key]) for key in _ONE_SCHEMA if key in node]
        for key in _LISTED_SCHEMAS:
            inner += [((*path, key, index), item) for index, item in enumerate(list_of(node.get(key)))]
        for key in _NAMED_SCHEMAS:
            inner += [((*path, key, name), item) for name, item in object_of(node.get(key)).items()]
        stack += reversed(inner)


def strict_violations(schema: object, unsupported_keywords: frozenset[str]) -> Iterator[tuple[str, JsonPath, str]]:
    """Yield deviations of a schema from the strict subset: the kind, the path, and the name at fault.

    Kinds are `open` for an object that allows undeclared properties, `optional` for a property, and `keyword`.
    """
    for path, part in subschemas(schema):
        properties = object_of(part.get("properties"))
        if part.get("type") == "object" or "properties" in part:
            if part.get("additionalProperties") is not False:
                yield "open", path, ""
            required = list_of(part.get("required"))
            for name in properties:
                if name not in required:
                    yield "optional", path, name
        for keyword in sorted(unsupported_keywords & part.keys()):
            yield "keyword", path, keyword
