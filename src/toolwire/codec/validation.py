"""Findings, what a provider would reject in a body, and the walks over JSON that rule files share."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Literal, NamedTuple

import msgspec

Level = Literal["error", "warning"]
JsonPath = tuple[str | int, ...]
JsonObject = dict[str, object]


class Finding(msgspec.Struct, frozen=True):
    rule: str
    path: str
    message: str
    level: Level = "error"


Findings = Iterator[Finding]


def json_pointer(path: JsonPath) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


# ---- reading values of any shape


def object_of(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def number_of(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def value_at(value: object, *names: str) -> object:
    for name in names:
        value = object_of(value).get(name)
    return value


def object_items(value: object, path: JsonPath) -> list[tuple[JsonPath, JsonObject]]:
    return [((*path, index), item) for index, item in enumerate(list_of(value)) if isinstance(item, dict)]


def json_type(value: object) -> str:
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


# ---- tables of known fields, in a notation of one line an object


class Field(NamedTuple):
    """One known field: its JSON types, or the words it takes."""

    name: str
    required: bool
    types: tuple[str, ...]
    choices: tuple[str, ...] = ()
    is_closed: bool = True


Fields = tuple[Field, ...]


class FieldError(NamedTuple):
    kind: Literal["missing", "type", "word"]
    field: Field
    value: object


_FIELD_NOTATION = re.compile(r"([\w-]+)(!?)([:=~])(\S+)")


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


@cache
def parse_fields(notation: str) -> Fields:
    """`id!:string role!=user|tool tier~auto|flex`: ! required, = all words, ~ known words."""
    table = []
    for name, required, sign, choices in _FIELD_NOTATION.findall(notation):
        options = tuple(choices.split("|"))
        types, known = (options, ()) if sign == ":" else (("string",), options)
        table.append(Field(name, bool(required), types, known, sign == "="))
    return tuple(table)


def parse_shapes(*rows: str) -> dict[str, tuple[str, Fields]]:
    """`"tool_use,server_tool_use a id!:string"`: tags, a word of the protocol's own choice, fields."""
    table = {}
    for row in rows:
        tags, word, notation = row.split(" ", 2)
        table.update(dict.fromkeys(tags.split(","), (word, parse_fields(notation))))
    return table


def field_errors(value: JsonObject, table: Fields) -> Iterator[FieldError]:
    for field in table:
        found = value.get(field.name)
        if field.name not in value:
            if field.required:
                yield FieldError("missing", field, None)
        elif found is None and not field.required:
            continue
        elif not _has_type(found, field.types):
            yield FieldError("type", field, found)
        elif field.choices and found not in field.choices:
            yield FieldError("word", field, found)


def _has_type(value: object, types: tuple[str, ...]) -> bool:
    kind = json_type(value)
    return kind in types or (kind == "integer" and "number" in types)


class ErrorWording(NamedTuple):
    """How one provider names places and JSON types, and words a field that does not fit."""

    protocol: str
    format_path: Callable[[JsonPath], str]
    type_names: dict[str, str]
    missing_message: str
    type_message: str
    choice_message: str
    last_separator: str = " or "

    def finding(self, rule: str, path: JsonPath, message: str, level: Level = "error") -> Finding:
        """`{at}` in what is said stands for the place."""
        return Finding(
            f"{self.protocol}.{rule}", json_pointer(path), message.replace("{at}", self.format_path(path)), level
        )

    def check_fields(self, path: JsonPath, value: object, table: Fields, tag: str = "") -> Findings:
        """The known fields of an object; some providers put its tag into the name of the place."""
        for kind, field, found in field_errors(value, table) if isinstance(value, dict) else ():
            at = (*path, field.name)
            said = {"missing": self.missing_message, "type": self.type_message, "word": self.choice_message}[
                kind
            ].format(
                at=self.format_path((*path, tag, field.name) if tag else at),
                types=" or ".join(self.type_names.get(name, name) for name in field.types),
                words=self.join_choices(field.choices),
                got=self.type_names.get(json_type(found), json_type(found)),
                value=text_of(found),
            )
            # A word we don't know may be a newer wire's: only a closed list makes it an error.
            level: Level = "warning" if kind == "word" and not field.is_closed else "error"
            yield Finding(f"{self.protocol}.field-{kind}", json_pointer(at), said, level)

    def join_choices(self, options: Iterable[str]) -> str:
        *most, last = (f"'{option}'" for option in options or ("",))
        return (
            f"{', '.join(most)}{self.last_separator if most[1:] else self.last_separator.lstrip(',')}{last}"
            if most
            else last
        )


# ---- JSON Schema

_ONE_SCHEMA = ("items", "additionalProperties", "not", "contains", "if", "then", "else")
_LISTED_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")


def subschemas(schema: object) -> Iterator[tuple[JsonPath, JsonObject]]:
    """The schema and all schemas in it; a property that is called `items` is not taken for the keyword."""
    waiting: list[tuple[JsonPath, object]] = [((), schema)]
    while waiting:
        path, found = waiting.pop()
        if not isinstance(found, dict):
            continue
        yield path, found
        inner: list[tuple[JsonPath, object]] = [((*path, key), found[key]) for key in _ONE_SCHEMA if key in found]
        for key in _LISTED_SCHEMAS:
            inner += [((*path, key, index), item) for index, item in enumerate(list_of(found.get(key)))]
        for key in _NAMED_SCHEMAS:
            inner += [((*path, key, name), item) for name, item in object_of(found.get(key)).items()]
        waiting += reversed(inner)


def strict_violations(schema: object, unsupported_keywords: frozenset[str]) -> Iterator[tuple[str, JsonPath, str]]:
    """Where a schema leaves a strict subset: an `open` object, an `optional` property, a refused `keyword`."""
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
