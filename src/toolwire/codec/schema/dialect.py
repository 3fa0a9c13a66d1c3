"""The subset of JSON Schema that a provider accepts, as data that each protocol declares.

Changes made to a schema, each with its location in the source.
"""

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct

from toolwire.codec.losses import element_pointers
from toolwire.codec.validation import word_set
from toolwire.codec.wire.reader import escape_pointer

EnumType = type[str] | type[int] | type[float] | type[bool]

ANNOTATIONS = word_set("description title default examples example deprecated readOnly writeOnly")
"""Keywords that do not restrict values."""

BOUNDS = word_set("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf")
COUNTS = word_set("minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains")

DESCRIBABLE = (
    BOUNDS
    | COUNTS
    | word_set("const enum oneOf anyOf not if then else dependentRequired dependentSchemas dependencies")
    | word_set("default examples example deprecated format pattern contentEncoding contentMediaType")
    | word_set("patternProperties propertyNames additionalProperties uniqueItems contains items prefixItems")
)
"""Keywords that still help a model if they are only mentioned in the description."""


class Dialect(Struct, frozen=True, eq=False, kw_only=True):
    """A provider's subset of JSON Schema."""

    name: str
    keywords: frozenset[str] | None = None  # supported keywords; None: all but `unsupported_keywords`
    unsupported_keywords: frozenset[str] = frozenset()
    root_keywords: frozenset[str] | None = None  # supported keywords of the outermost schema, if they differ
    # `kept` as they are, moved to `definitions` at the root, or `inlined`
    references: Literal["kept", "definitions", "inlined"] = "kept"
    formats: frozenset[str] | None = None  # supported values of `format`; None: all
    enum_types: tuple[EnumType, ...] | None = None  # types of enum values; None: any
    requires_types: bool = False  # enums, arrays, union branches and required properties must be declared
    has_nullable_keyword: bool = False  # null is expressed by `nullable`, and `type` is a single name
    # objects accept only declared properties; open maps are closed as well, or make the schema `unfit`
    closed_objects: Literal["", "closed", "unfit"] = ""
    requires_all_properties: bool = False  # all properties are required; optional ones become nullable
    forbids_required_cycles: bool = False  # required properties must not lead back to themselves
    allows_recursion: bool = True  # strict schemas may be recursive
    items_dialect: "Dialect | None" = None  # the dialect below an array, if it differs

    def supports(self, keyword: str, *, root: bool = False) -> bool:
        """Return whether the provider supports a schema keyword; `root` asks about the top of the schema."""
        supported = self.root_keywords if root and self.root_keywords is not None else self.keywords
        return keyword in supported if supported is not None else keyword not in self.unsupported_keywords


class SchemaContext(NamedTuple):
    """The position of a schema that is being written."""

    dialect: Dialect
    depth: int = 0
    followed_references: frozenset[str] = frozenset([""])  # pointers of the references that led here
    is_root: bool = False

    def nested(self, dialect: Dialect | None = None) -> "SchemaContext":
        """Return the context of a schema below this one."""
        return SchemaContext(dialect or self.dialect, self.depth + 1, self.followed_references)


class SchemaLocation(NamedTuple):
    """A value in the source schema, and its JSON pointer."""

    value: Any
    path: str

    def child(self, step: str | int) -> "SchemaLocation":
        """Return the location of the member or element at `step`."""
        return SchemaLocation(self.value[step], f"{self.path}/{escape_pointer(str(step))}")


class SchemaChange(NamedTuple):
    """One change to a schema."""

    kind: Literal["approximated", "dropped"]
    path: str
    reason: str


class SchemaRejected(Exception):
    """Raised for a schema that the dialect cannot express at all."""


class SchemaChanges:
    """The changes to a schema; each location is recorded once, even if it is written several times."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, str], SchemaChange] = {}

    def __iter__(self) -> Any:
        return iter(self._changes.values())

    def approximated(self, location: SchemaLocation, reason: str) -> None:
        """Record a keyword that is written in another form."""
        self._record("approximated", location, reason)

    def dropped(
        self, location: SchemaLocation, reason: str = "the target does not support this schema keyword"
    ) -> None:
        """Record a keyword that is left out."""
        self._record("dropped", location, reason)

    def _record(self, kind: Literal["approximated", "dropped"], location: SchemaLocation, reason: str) -> None:
        """Record a change at a location; if its value is a list, one change for each element."""
        is_list = isinstance(location.value, list)
        for path in (
            element_pointers(Raw(msgspec.json.encode(location.value)), location.path) if is_list else (location.path,)
        ):
            self._changes.setdefault((kind, path), SchemaChange(kind, path, reason))

    def malformed(self, location: SchemaLocation) -> None:
        """Record a keyword that is left out because of an invalid value."""
        self.dropped(location, "invalid value for this schema keyword")
