"""Rewrite a schema to a dialect.

Schemas that hold at once (`allOf`, or a reference beside other keywords) are merged into one. Unsupported keywords are
left out, so that valid values stay valid, and mentioned in the description where that helps. Each change is recorded
with its location in the source. The cost is bounded: references are inlined a limited number of times, to a limited
depth.
"""

from collections import deque
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.schema.dialect import (
    ANNOTATIONS,
    Dialect,
    SchemaChange,
    SchemaChanges,
    SchemaContext,
    SchemaLocation,
    SchemaRejected,
)
from toolwire.codec.schema.normalize import JSON_TYPES
from toolwire.codec.schema.references import DEFINITIONS, References, is_recursive, relax_required_cycles
from toolwire.codec.schema.writer import SchemaWriter
from toolwire.codec.wire.reader import decode_json

LIMIT_DEPTH = 60
LIMIT_INLINE_COUNT = 2_000


class SchemaRewriter:
    """Rewrites one schema, including its definitions."""

    def __init__(self, tree: Any, dialect: Dialect) -> None:
        self.tree = tree
        self.dialect = dialect
        self.references = References(tree)
        self.required_sources: dict[int, tuple[Any, dict[str, str]]] = {}
        self.reference_sources: dict[int, tuple[Any, str]] = {}
        self.changes = SchemaChanges()
        self._definitions: list[SchemaLocation] = []
        self._inline_budget = LIMIT_INLINE_COUNT

    # ---- the root

    def rewrite(self) -> Any:
        """Return the schema as the dialect allows it."""
        root = self.rewrite_schema([SchemaLocation(self.tree, "")], SchemaContext(self.dialect, is_root=True)) or {}
        if self.dialect.references == "definitions":
            self._write_definitions(root)
        if (
            self.dialect.closed_objects == "unfit"
            and not self.dialect.allows_recursion
            and is_recursive(root, self.references)
        ):
            raise SchemaRejected("recursive schemas are not supported")
        if self.dialect.forbids_required_cycles:
            relax_required_cycles(root, self.required_sources, self.reference_sources, self.changes)
        for definitions in self._definitions:
            for name in definitions.value:
                if (definition := definitions.child(name)).path not in self.references.resolved_paths:
                    self.changes.dropped(definition, "unused definition")
        return root

    def _write_definitions(self, root: dict[str, Any]) -> None:
        """Write the definitions at the root; writing one may request others."""
        count = 0
        while len(self.references.definition_names) > count:
            for path, name in list(self.references.definition_names.items())[count:]:
                count += 1
                location = self.references.resolve("#" + path)
                schema = None if location is None else self.rewrite_schema([location], SchemaContext(self.dialect, 1))
                root.setdefault("$defs", {})[name] = {} if schema is None else schema

    # ---- one schema

    def rewrite_schema(self, locations: list[SchemaLocation], context: SchemaContext) -> dict[str, Any] | None:
        """Return one schema for values that match the schemas at all these locations; None if no value can."""
        if context.depth > LIMIT_DEPTH:
            if self.dialect.closed_objects == "unfit":
                raise SchemaRejected("nested too deeply")
            for location in locations:
                self.changes.dropped(location, "nested too deeply")
            return {}
        collection = KeywordCollection(self, context)
        if not collection.collect(locations):
            return None
        if collection.followed_references is not context.followed_references:
            context = context._replace(followed_references=collection.followed_references)
        return SchemaWriter(self, collection.members, context, locations[0]).write()

    def spend_inline_budget(self) -> bool:
        """Count one inlined reference, and return whether it is within the limit."""
        self._inline_budget -= 1
        return self._inline_budget >= 0

    def record_definitions(self, location: SchemaLocation) -> None:
        """Remember a `$defs` object below the root, so that its unused definitions are reported at the end."""
        self._definitions.append(location)


class KeywordCollection:
    """The keywords of schemas that hold at once, each with all locations that state it."""

    def __init__(self, rewriter: SchemaRewriter, context: SchemaContext) -> None:
        self.members: dict[str, list[SchemaLocation]] = {}
        self.followed_references = context.followed_references
        self._rewriter = rewriter
        self._changes = rewriter.changes
        self._context = context
        self._inlined: set[str] = set()
        self._waiting: deque[SchemaLocation] = deque()

    def collect(self, locations: list[SchemaLocation]) -> bool:
        """Collect the keywords of all these schemas, and return whether any value can match them together."""
        self._waiting.extend(locations)
        while self._waiting:
            location = self._waiting.popleft()
            if location.value is False:
                for keyword in (keyword for group in self.members.values() for keyword in group):
                    self._changes.dropped(keyword, "combined with a schema that is never valid")
                return False
            if location.value is True:
                self._changes.approximated(location, "written as an empty schema")
            elif isinstance(location.value, dict):
                alone = len(locations) == 1 and not self._waiting and not self.members
                for key in location.value:
                    self._collect_keyword(key, location, alone=alone)
            else:
                self._changes.dropped(location, "not a JSON Schema")
        return True

    def _collect_keyword(self, key: str, owner: SchemaLocation, *, alone: bool) -> None:
        """Collect one keyword, replacing it by a supported equivalent if there is one."""
        location, supports = owner.child(key), self._supports
        match key:
            case "$ref":
                self._collect_reference(location, owner, alone=alone)
            case "allOf" if not supports(key) and isinstance(location.value, list):
                self._changes.approximated(location, "merged into one schema")
                self._waiting += [location.child(index) for index in range(len(location.value))]
            case "$defs" | "definitions" if self._context.dialect.references != "kept" and isinstance(
                location.value, dict
            ):
                self._collect_definitions(key, location)
            case "$defs" if self._context.dialect.references != "kept" and "definitions" in owner.value:
                self._changes.malformed(location)
            case "oneOf" if not supports(key) and supports("anyOf"):
                self._changes.approximated(location, "written as anyOf")
                self._add("anyOf", location)
            case "const" if not supports(key) and supports("enum"):
                self._changes.approximated(location, "written as an enum of one")
                self._add("enum", SchemaLocation([location.value], location.path))
            case "items" if isinstance(location.value, list):
                self._changes.approximated(location, "written as prefixItems")
                self._add("prefixItems", location)
            case "additionalItems" if isinstance(owner.value.get("items"), list):
                self._changes.approximated(location, "written as items")
                self._add("items", location)
            case _:
                self._add(key, location)

    def _supports(self, keyword: str) -> bool:
        """Return whether the dialect supports a keyword here."""
        return self._context.dialect.supports(keyword, root=self._context.is_root)

    def _add(self, key: str, location: SchemaLocation) -> None:
        """Add a location to those that state a keyword."""
        self.members.setdefault(key, []).append(location)

    def _collect_definitions(self, key: str, location: SchemaLocation) -> None:
        """Name the definitions of the root, or remember those of other schemas."""
        if self._context.is_root and self._context.dialect.references == "definitions":
            if key == "definitions":
                self._changes.approximated(location, "written as $defs")
            self._add("$defs", location)
            for name in location.value:
                self._rewriter.references.definition_name(location.child(name))
        else:
            self._rewriter.record_definitions(location)

    def _collect_reference(self, location: SchemaLocation, owner: SchemaLocation, *, alone: bool) -> None:
        """Keep a `$ref`, collect the keywords of its target instead, or drop it, as the dialect demands."""
        mode, rewriter = self._context.dialect.references, self._rewriter
        target = rewriter.references.resolve(location.value)
        if target is None:
            self._drop_reference(location, "unresolvable reference", dropped=True)
        elif mode == "kept" or (
            mode == "definitions" and alone and _has_only_annotations(owner) and not self._must_be_object()
        ):
            self._add("$ref", location)
        elif target.path in self._inlined:
            self._changes.approximated(location, "reference inlined")
        elif target.path in self.followed_references:
            self._drop_reference(location, "recursive reference: left unrestricted")
            if isinstance(target.value, dict) and isinstance(target.value.get("type"), str):
                self._add("type", target.child("type"))
        elif not rewriter.spend_inline_budget():
            self._drop_reference(location, "too many references to inline: left unrestricted")
        else:
            self._changes.approximated(location, "reference inlined")
            self._inlined.add(target.path)
            self.followed_references |= {target.path}
            self._waiting.append(target)

    def _must_be_object(self) -> bool:
        """Return whether the dialect demands an object here, so that a reference must be inlined."""
        return self._context.is_root and self._rewriter.dialect.closed_objects == "unfit"

    def _drop_reference(self, location: SchemaLocation, reason: str, *, dropped: bool = False) -> None:
        """Record a reference that is not written, or reject the schema if it must be strict."""
        if self._rewriter.dialect.closed_objects == "unfit":
            raise SchemaRejected(reason)
        if dropped:
            self._changes.dropped(location, reason)
        else:
            self._changes.approximated(location, reason)


def _has_only_annotations(owner: SchemaLocation) -> bool:
    """Return whether nothing beside a reference restricts values."""
    return all(key in ANNOTATIONS or key.startswith("$") or key in DEFINITIONS for key in owner.value)


_LIMIT_CACHED_SCHEMA = 32_768


class FittedSchema(NamedTuple):
    """The result of fitting a schema to a dialect."""

    schema: Raw
    changes: tuple[SchemaChange, ...] = ()
    rejection: str | None = None  # why the dialect cannot express the schema; it is then unchanged


def fit_schema(schema: Raw, dialect: Dialect) -> FittedSchema:
    """Return the schema with only what a dialect allows, and the changes made; results for short schemas are cached."""
    text = bytes(schema)
    fitted = _fit_cached(text, dialect) if len(text) <= _LIMIT_CACHED_SCHEMA else _fit(text, dialect)
    return fitted if fitted.changes else fitted._replace(schema=schema)


def fit_and_report(schema: Raw, dialect: Dialect, report: LossReport, path: SourcePath, field: str) -> Raw:
    """Return the schema with only what a dialect allows, and report the changes as losses of `field`."""
    fitted = fit_schema(schema, dialect)
    report.rewritten(path, field, fitted.changes)
    return fitted.schema


def fit_strictly_and_report(
    schema: Raw, dialect: Dialect, report: LossReport, path: SourcePath, field: str
) -> tuple[Raw, bool]:
    """Return the schema of a strict tool or output fitted to a dialect, and whether the target can enforce it."""
    fitted = fit_schema(schema, dialect)
    if fitted.rejection is not None:
        report.approximated(path, "strict", f"the target cannot enforce this schema: {fitted.rejection}")
        return schema, False
    report.rewritten(path, field, fitted.changes)
    return fitted.schema, True


def _fit(text: bytes, dialect: Dialect) -> FittedSchema:
    """Fit a schema, given as JSON, to a dialect; see `fit_schema`."""
    tree: Any = None
    try:
        tree = decode_json(text)
        if not dialect.closed_objects and not dialect.requires_types and _is_portable(tree, dialect):
            return FittedSchema(Raw(text))
        rewriter = SchemaRewriter(tree, dialect)
        schema = rewriter.rewrite()
        changes = tuple(rewriter.changes)
        return FittedSchema(Raw(msgspec.json.encode(schema)) if changes else Raw(text), changes)
    except SchemaRejected as rejected:
        return FittedSchema(Raw(text), (), str(rejected))
    except RecursionError:
        return FittedSchema(
            Raw(b'{"type":"object"}'), (SchemaChange("dropped", "", "nested too deeply"),), "nested too deeply"
        )


def _is_portable(tree: Any, dialect: Dialect) -> bool:
    """Return whether a schema uses only keywords that every dialect supports, as most do."""
    level, root = [tree], dialect.root_keywords is not None
    for _ in range(LIMIT_DEPTH):
        below: list[Any] = []
        for node in level:
            if type(node) is not dict or not _collect_portable(node, below, root=root):
                return False
        level, root = below, False
        if not level:
            return True
    return False


def _collect_portable(node: dict[str, Any], below: list[Any], *, root: bool) -> bool:
    """Add the nested schemas to `below`, and return whether all keywords of the node are portable."""
    for key, value in node.items():
        if key == "properties" and type(value) is dict:
            below += value.values()
        elif key == "items" and not root:
            below.append(value)
        elif key == "required" and type(value) is list:
            if not all(type(name) is str for name in value) or len(set(value)) < len(value):
                return False
        elif type(value) is not str or not (
            (key == "type" and value in JSON_TYPES) or (key == "description" and not root)
        ):
            return False
    return True


_fit_cached = lru_cache(maxsize=512)(_fit)
