"""What a provider takes of JSON Schema, as data: each protocol states its own."""

from typing import Literal, NamedTuple

from msgspec import Struct

from toolwire.codec.validation import word_set

EnumType = type[str] | type[int] | type[float] | type[bool]

ANNOTATIONS = word_set("description title default examples example deprecated readOnly writeOnly")
"""Keywords that bind no value."""

BOUNDS = word_set("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf")
COUNTS = word_set("minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains")

DESCRIBABLE = (
    BOUNDS
    | COUNTS
    | word_set("const enum oneOf anyOf not if then else dependentRequired dependentSchemas dependencies")
    | word_set("default examples example deprecated format pattern contentEncoding contentMediaType")
    | word_set("patternProperties propertyNames additionalProperties uniqueItems contains items prefixItems")
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
    keywords: frozenset[str] | None = None
    unsupported_keywords: frozenset[str] = frozenset()
    root_keywords: frozenset[str] | None = None
    references: Literal["kept", "definitions", "inlined"] = "kept"
    formats: frozenset[str] | None = None
    enum_types: tuple[EnumType, ...] | None = None
    requires_types: bool = False
    has_nullable_keyword: bool = False
    closed_objects: Literal["", "closed", "unfit"] = ""
    requires_all_properties: bool = False
    forbids_required_cycles: bool = False
    allows_recursion: bool = True
    items_dialect: "Dialect | None" = None

    def supports(self, keyword: str, *, root: bool = False) -> bool:
        keeps = self.root_keywords if root and self.root_keywords is not None else self.keywords
        return keyword in keeps if keeps is not None else keyword not in self.unsupported_keywords


class SchemaContext(NamedTuple):
    """Where a schema is written. `trail`: the references that led here."""

    dialect: Dialect
    depth: int = 0
    followed_references: frozenset[str] = frozenset([""])
    is_root: bool = False

    def nested(self, dialect: Dialect | None = None) -> "SchemaContext":
        return SchemaContext(dialect or self.dialect, self.depth + 1, self.followed_references)
