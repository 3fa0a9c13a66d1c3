"""One schema in the words of a dialect: what all its parts say together, wherever they stand, written anew in order.

Several schemas that hold at once (`allOf`, a reference and what stands beside it) are gathered to one. What can't be
said is left out, so that what was valid stays valid, and told in the description where it helps. Each change has its
place in the source. Cost is bounded: references are written out so often only, and nothing is followed too deep.

A schema as a target takes it, or as it is where the target takes all of it.
"""

from collections import deque
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.schema.changes import Change, SchemaChanges, SchemaLocation, SchemaRejected
from toolwire.codec.schema.dialect import ANNOTATIONS, Dialect, SchemaContext
from toolwire.codec.schema.normalize import JSON_TYPES
from toolwire.codec.schema.references import DEFINITIONS, References, is_recursive, relax_required_cycles
from toolwire.codec.schema.writer import SchemaWriter
from toolwire.codec.wire.reader import decode_json

LIMIT_DEPTH = 60
LIMIT_INLINE_COUNT = 2_000


class SchemaRewriter:
    def __init__(self, tree: Any, dialect: Dialect) -> None:
        self.tree = tree
        self.dialect = dialect
        self.references = References(tree)
        self.required_sources: dict[int, tuple[Any, dict[str, str]]] = {}
        self.reference_sources: dict[int, tuple[Any, str]] = {}
        self.changes = SchemaChanges()
        self._definitions: list[SchemaLocation] = []
        self._inline_budget = LIMIT_INLINE_COUNT

    # ---- the whole

    def rewrite(self) -> Any:
        root = self.rewrite_schema([SchemaLocation(self.tree, "")], SchemaContext(self.dialect, is_root=True)) or {}
        if self.dialect.references == "definitions":
            self._write_definitions(root)
        if (
            self.dialect.closed_objects == "unfit"
            and not self.dialect.allows_recursion
            and is_recursive(root, self.references)
        ):
            raise SchemaRejected("it leads back to itself")
        if self.dialect.forbids_required_cycles:
            relax_required_cycles(root, self.required_sources, self.reference_sources, self.changes)
        for definitions in self._definitions:
            for name in definitions.value:
                if (definition := definitions.child(name)).path not in self.references.resolved_paths:
                    self.changes.dropped(definition, "a definition that nothing refers to")
        return root

    def _write_definitions(self, root: dict[str, Any]) -> None:
        """Definitions, at the root; writing one may ask for others."""
        done = 0
        while len(self.references.definition_names) > done:
            for path, name in list(self.references.definition_names.items())[done:]:
                done += 1
                site = self.references.resolve("#" + path)
                made = None if site is None else self.rewrite_schema([site], SchemaContext(self.dialect, 1))
                root.setdefault("$defs", {})[name] = {} if made is None else made

    # ---- one schema

    def rewrite_schema(self, locations: list[SchemaLocation], context: SchemaContext) -> dict[str, Any] | None:
        """One schema that says what all of these say; None if nothing is valid."""
        if context.depth > LIMIT_DEPTH:
            if self.dialect.closed_objects == "unfit":
                raise SchemaRejected("too deep")
            for site in locations:
                self.changes.dropped(site, "too deep")
            return {}
        gathering = KeywordCollection(self, context)
        if not gathering.collect(locations):
            return None
        return SchemaWriter(
            self, gathering.members, context._replace(followed_references=gathering.followed_references), locations[0]
        ).write()

    def spend_inline_budget(self) -> bool:
        self._inline_budget -= 1
        return self._inline_budget >= 0

    def record_definitions(self, location: SchemaLocation) -> None:
        self._definitions.append(location)


class KeywordCollection:
    """The keywords of schemas that hold at once, each with all the places that say it."""

    def __init__(self, rewriter: SchemaRewriter, context: SchemaContext) -> None:
        self.members: dict[str, list[SchemaLocation]] = {}
        self.followed_references = context.followed_references
        self._rewriter = rewriter
        self._changes = rewriter.changes
        self._context = context
        self._inlined: set[str] = set()
        self._waiting: deque[SchemaLocation] = deque()

    def collect(self, locations: list[SchemaLocation]) -> bool:
        """Whether anything can be valid."""
        self._waiting.extend(locations)
        while self._waiting:
            site = self._waiting.popleft()
            if site.value is False:
                for lost in (one for held in self.members.values() for one in held):
                    self._changes.dropped(lost, "beside what is never valid")
                return False
            if site.value is True:
                self._changes.approximated(site, "told as an empty schema")
            elif isinstance(site.value, dict):
                alone = len(locations) == 1 and not self._waiting and not self.members
                for key in site.value:
                    self._collect_keyword(key, site, alone=alone)
            else:
                self._changes.dropped(site, "not a schema")
        return True

    def _collect_keyword(self, key: str, owner: SchemaLocation, *, alone: bool) -> None:
        site, takes = owner.child(key), self._supports
        match key:
            case "$ref":
                self._collect_reference(site, owner, alone=alone)
            case "allOf" if not takes(key) and isinstance(site.value, list):
                self._changes.approximated(site, "told as one schema")
                self._waiting += [site.child(index) for index in range(len(site.value))]
            case "$defs" | "definitions" if self._context.dialect.references != "kept" and isinstance(site.value, dict):
                self._collect_definitions(key, site)
            case "$defs" if self._context.dialect.references != "kept" and "definitions" in owner.value:
                self._changes.malformed(site)
            case "oneOf" if not takes(key) and takes("anyOf"):
                self._changes.approximated(site, "told as anyOf")
                self._add("anyOf", site)
            case "const" if not takes(key) and takes("enum"):
                self._changes.approximated(site, "told as an enum of one")
                self._add("enum", SchemaLocation([site.value], site.path))
            case "items" if isinstance(site.value, list):
                self._changes.approximated(site, "told as prefixItems")
                self._add("prefixItems", site)
            case "additionalItems" if isinstance(owner.value.get("items"), list):
                self._changes.approximated(site, "told as items")
                self._add("items", site)
            case _:
                self._add(key, site)

    def _supports(self, keyword: str) -> bool:
        return self._context.dialect.supports(keyword, root=self._context.is_root)

    def _add(self, key: str, location: SchemaLocation) -> None:
        self.members.setdefault(key, []).append(location)

    def _collect_definitions(self, key: str, location: SchemaLocation) -> None:
        if self._context.is_root and self._context.dialect.references == "definitions":
            if key == "definitions":
                self._changes.approximated(location, "told as $defs")
            self._add("$defs", location)
            for name in location.value:
                self._rewriter.references.definition_name(location.child(name))
        else:
            self._rewriter.record_definitions(location)

    def _collect_reference(self, location: SchemaLocation, owner: SchemaLocation, *, alone: bool) -> None:
        mode, rewriter = self._context.dialect.references, self._rewriter
        target = rewriter.references.resolve(location.value)
        if target is None:
            self._drop_reference(location, "leads nowhere within the schema", dropped=True)
        elif mode == "kept" or (
            mode == "definitions" and alone and _has_only_annotations(owner) and not self._must_be_object()
        ):
            self._add("$ref", location)
        elif target.path in self._inlined:
            self._changes.approximated(location, "written out where it is used")
        elif target.path in self.followed_references:
            self._drop_reference(location, "leads back to itself: left open")
            if isinstance(target.value, dict) and isinstance(target.value.get("type"), str):
                self._add("type", target.child("type"))
        elif not rewriter.spend_inline_budget():
            self._drop_reference(location, "too much to write out: left open")
        else:
            self._changes.approximated(location, "written out where it is used")
            self._inlined.add(target.path)
            self.followed_references |= {target.path}
            self._waiting.append(target)

    def _must_be_object(self) -> bool:
        return self._context.is_root and self._rewriter.dialect.closed_objects == "unfit"

    def _drop_reference(self, location: SchemaLocation, reason: str, *, dropped: bool = False) -> None:
        if self._rewriter.dialect.closed_objects == "unfit":
            raise SchemaRejected(f"a reference {reason}")
        if dropped:
            self._changes.dropped(location, reason)
        else:
            self._changes.approximated(location, reason)


def _has_only_annotations(owner: SchemaLocation) -> bool:
    """Whether a reference stands beside nothing that binds values."""
    return all(key in ANNOTATIONS or key.startswith("$") or key in DEFINITIONS for key in owner.value)


_LIMIT_CACHED_SCHEMA = 32_768


class FittedSchema(NamedTuple):
    """`unfit`: why the dialect can't say it at all; the schema is then as it was."""

    schema: Raw
    changes: tuple[Change, ...] = ()
    rejection: str | None = None


def fit_schema(schema: Raw, dialect: Dialect) -> FittedSchema:
    """Agents declare the same tools in every request, so what short schemas became is remembered."""
    text = bytes(schema)
    found = _fit_cached(text, dialect) if len(text) <= _LIMIT_CACHED_SCHEMA else _fit(text, dialect)
    return found if found.changes else found._replace(schema=schema)


def fit_and_report(schema: Raw, dialect: Dialect, report: LossReport, path: SourcePath, field: str) -> Raw:
    """The schema for the target, its changes reported."""
    found = fit_schema(schema, dialect)
    report.rewritten(path, field, found.changes)
    return found.schema


def fit_strictly_and_report(
    schema: Raw, dialect: Dialect, report: LossReport, path: SourcePath, field: str
) -> tuple[Raw, bool]:
    """The schema of what is to be held to it strictly, and whether the target can do so."""
    found = fit_schema(schema, dialect)
    if found.rejection is not None:
        report.approximated(path, "strict", f"the target can't be strict with this schema: {found.rejection}")
        return schema, False
    report.rewritten(path, field, found.changes)
    return found.schema, True


def _fit(text: bytes, dialect: Dialect) -> FittedSchema:
    tree: Any = None
    try:
        tree = decode_json(text)
        if not dialect.closed_objects and not dialect.requires_types and _is_portable(tree, dialect):
            return FittedSchema(Raw(text))
        rewriter = SchemaRewriter(tree, dialect)
        made = rewriter.rewrite()
        changes = tuple(rewriter.changes)
        return FittedSchema(Raw(msgspec.json.encode(made)) if changes else Raw(text), changes)
    except SchemaRejected as unfit:
        return FittedSchema(Raw(text), (), str(unfit))
    except RecursionError:
        return FittedSchema(Raw(b'{"type":"object"}'), (Change("dropped", "", "too deep"),), "too deep")


def _is_portable(tree: Any, dialect: Dialect) -> bool:
    """Whether a schema says only what every dialect takes: most do, and need no rewriter."""
    level, root = [tree], dialect.root_keywords is not None
    for _ in range(LIMIT_DEPTH):
        below: list[Any] = []
        for node in level:
            if type(node) is not dict:
                return False
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
        level, root = below, False
        if not level:
            return True
    return False


_fit_cached = lru_cache(maxsize=512)(_fit)
