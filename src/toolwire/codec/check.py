"""Findings, what a provider would reject in a body, and the walks over JSON that rule files share."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Literal, NamedTuple

import msgspec

Level = Literal["error", "warning"]
Path = tuple[str | int, ...]
Object = dict[str, object]


class Finding(msgspec.Struct, frozen=True):
    rule: str
    path: str
    message: str
    level: Level = "error"


Findings = Iterator[Finding]


def pointer(path: Path) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


# ---- reading values of any shape


def object_of(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def number_of(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def dig(value: object, *names: str) -> object:
    for name in names:
        value = object_of(value).get(name)
    return value


def members(value: object, path: Path) -> list[tuple[Path, Object]]:
    return [((*path, index), item) for index, item in enumerate(list_of(value)) if isinstance(item, dict)]


def kind_of(value: object) -> str:
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
    words: tuple[str, ...] = ()
    closed: bool = True


Fields = tuple[Field, ...]


class Misfit(NamedTuple):
    kind: Literal["missing", "type", "word"]
    field: Field
    value: object


_FIELD = re.compile(r"([\w-]+)(!?)([:=~])(\S+)")


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@cache
def fields(notation: str) -> Fields:
    """`id!:string role!=user|tool tier~auto|flex`: ! required, = all words, ~ known words."""
    table = []
    for name, required, sign, choices in _FIELD.findall(notation):
        options = tuple(choices.split("|"))
        types, known = (options, ()) if sign == ":" else (("string",), options)
        table.append(Field(name, bool(required), types, known, sign == "="))
    return tuple(table)


def shapes(*rows: str) -> dict[str, tuple[str, Fields]]:
    """`"tool_use,server_tool_use a id!:string"`: tags, a word of the protocol's own choice, fields."""
    table = {}
    for row in rows:
        tags, word, notation = row.split(" ", 2)
        table.update(dict.fromkeys(tags.split(","), (word, fields(notation))))
    return table


def misfits(value: Object, table: Fields) -> Iterator[Misfit]:
    for field in table:
        found = value.get(field.name)
        if field.name not in value:
            if field.required:
                yield Misfit("missing", field, None)
        elif found is None and not field.required:
            continue
        elif not _is_of(found, field.types):
            yield Misfit("type", field, found)
        elif field.words and found not in field.words:
            yield Misfit("word", field, found)


def _is_of(value: object, types: tuple[str, ...]) -> bool:
    kind = kind_of(value)
    return kind in types or (kind == "integer" and "number" in types)


class Voice(NamedTuple):
    """How one provider names places and JSON types, and words a field that does not fit."""

    protocol: str
    place: Callable[[Path], str]
    types: dict[str, str]
    missing: str
    type: str
    word: str
    last: str = " or "

    def found(self, rule: str, path: Path, said: str, level: Level = "error") -> Finding:
        """`{at}` in what is said stands for the place."""
        return Finding(f"{self.protocol}.{rule}", pointer(path), said.replace("{at}", self.place(path)), level)

    def fit(self, path: Path, value: object, table: Fields, tag: str = "") -> Findings:
        """The known fields of an object; some providers put its tag into the name of the place."""
        for kind, field, found in misfits(value, table) if isinstance(value, dict) else ():
            at = (*path, field.name)
            said = {"missing": self.missing, "type": self.type, "word": self.word}[kind].format(
                at=self.place((*path, tag, field.name) if tag else at),
                types=" or ".join(self.types.get(name, name) for name in field.types),
                words=self.listed(field.words),
                got=self.types.get(kind_of(found), kind_of(found)),
                value=text_of(found),
            )
            # A word we don't know may be a newer wire's: only a closed list makes it an error.
            level: Level = "warning" if kind == "word" and not field.closed else "error"
            yield Finding(f"{self.protocol}.field-{kind}", pointer(at), said, level)

    def listed(self, options: Iterable[str]) -> str:
        *most, last = (f"'{option}'" for option in options or ("",))
        return f"{', '.join(most)}{self.last if most[1:] else self.last.lstrip(',')}{last}" if most else last


# ---- JSON Schema

_ONE_SCHEMA = ("items", "additionalProperties", "not", "contains", "if", "then", "else")
_LISTED_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")


def subschemas(schema: object) -> Iterator[tuple[Path, Object]]:
    """The schema and all schemas in it; a property that is called `items` is not taken for the keyword."""
    waiting: list[tuple[Path, object]] = [((), schema)]
    while waiting:
        path, found = waiting.pop()
        if not isinstance(found, dict):
            continue
        yield path, found
        inner: list[tuple[Path, object]] = [((*path, key), found[key]) for key in _ONE_SCHEMA if key in found]
        for key in _LISTED_SCHEMAS:
            inner += [((*path, key, index), item) for index, item in enumerate(list_of(found.get(key)))]
        for key in _NAMED_SCHEMAS:
            inner += [((*path, key, name), item) for name, item in object_of(found.get(key)).items()]
        waiting += reversed(inner)


def unstrict(schema: object, refused: frozenset[str]) -> Iterator[tuple[str, Path, str]]:
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
        for keyword in sorted(refused & part.keys()):
            yield "keyword", path, keyword
