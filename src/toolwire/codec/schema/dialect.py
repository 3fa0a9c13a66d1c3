"""What a provider takes of JSON Schema, as data: each protocol states its own."""

from typing import Literal, NamedTuple

from msgspec import Struct

from toolwire.codec.check import words

Kind = type[str] | type[int] | type[float] | type[bool]

ANNOTATIONS = words("description title default examples example deprecated readOnly writeOnly")
"""Keywords that bind no value."""

BOUNDS = words("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf")
COUNTS = words("minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains")

TELLING = (
    BOUNDS
    | COUNTS
    | words("const enum oneOf anyOf not if then else dependentRequired dependentSchemas dependencies")
    | words("default examples example deprecated format pattern contentEncoding contentMediaType")
    | words("patternProperties propertyNames additionalProperties uniqueItems contains items prefixItems")
)
"""Keywords that help a model also where nothing enforces them: in words."""


class Dialect(Struct, frozen=True, eq=False, kw_only=True):
    """`keeps`: its keywords, or None if it takes all but what it `lacks`. `root`: those of the outermost schema, where
    these are others. `items`: the dialect below an array, where that is another.

    `references`: `kept` as they stand; only to `definitions` at the root; or written out (`inlined`). `enumerable`:
    what an enum may hold; None is anything. `typed`: an enum, an array, a union's branch and what is required must be
    declared. `nullable`: null is a keyword, not a type, and a type is one word.

    `closed`: no object may have more than its properties; an open map is then closed too, or makes the schema `unfit`.
    `complete`: all properties are required, and those that were not may be null. `unrolled`: what is required may not
    lead back to itself. `recursive`: whether a strict schema may.
    """

    name: str
    keeps: frozenset[str] | None = None
    lacks: frozenset[str] = frozenset()
    root: frozenset[str] | None = None
    references: Literal["kept", "definitions", "inlined"] = "kept"
    formats: frozenset[str] | None = None
    enumerable: tuple[Kind, ...] | None = None
    typed: bool = False
    nullable: bool = False
    closed: Literal["", "closed", "unfit"] = ""
    complete: bool = False
    unrolled: bool = False
    recursive: bool = True
    items: "Dialect | None" = None

    def takes(self, keyword: str, *, root: bool = False) -> bool:
        keeps = self.root if root and self.root is not None else self.keeps
        return keyword in keeps if keeps is not None else keyword not in self.lacks


class Place(NamedTuple):
    """Where a schema is written. `trail`: the references that led here."""

    dialect: Dialect
    depth: int = 0
    trail: frozenset[str] = frozenset([""])
    root: bool = False

    def deeper(self, dialect: Dialect | None = None) -> "Place":
        return Place(dialect or self.dialect, self.depth + 1, self.trail)
