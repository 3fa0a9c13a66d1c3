"""Write the keywords of one schema in a dialect, in their original order."""

from typing import TYPE_CHECKING, Any

import msgspec

from toolwire.codec.schema.dialect import BOUNDS, COUNTS, DESCRIBABLE, SchemaContext, SchemaLocation, SchemaRejected
from toolwire.codec.schema.normalize import SchemaNormalization, SchemaValues, may_be_null
from toolwire.codec.validation import word_set

if TYPE_CHECKING:
    from toolwire.codec.schema.rewriter import SchemaRewriter

LIMIT_HINT = 400

_SCHEMA_KEYWORDS = word_set(
    "not if then else contains propertyNames unevaluatedProperties unevaluatedItems contentSchema"
)
_NAMED_SCHEMA_KEYWORDS = word_set("patternProperties dependentSchemas $defs definitions")
_LISTED_SCHEMA_KEYWORDS = word_set("allOf oneOf")
_TEXT_KEYWORDS = word_set("description title pattern format $id $anchor $comment")


class SchemaWriter:
    """Writes one schema from its collected keywords."""

    def __init__(
        self,
        rewriter: "SchemaRewriter",
        members: dict[str, list[SchemaLocation]],
        context: SchemaContext,
        origin: SchemaLocation,
    ) -> None:
        self._rewriter = rewriter
        self._changes = rewriter.changes
        self._members = members
        self._context = context
        self._dialect = context.dialect
        self._origin = origin
        self._hints: dict[str, Any] = {}
        self._out: dict[str, Any] = {}
        self._values = SchemaValues(members, context, origin, rewriter.changes, self._describe_or_drop)

    def write(self) -> dict[str, Any]:
        """Return the schema, with each collected keyword as the dialect allows it."""
        members, out = self._members, self._out
        self._values.read()
        for key, locations in members.items():
            if key in ("type", "enum", "nullable"):
                self._values.write(key, out)
            elif key == "prefixItems" or (key == "items" and "prefixItems" not in members):
                self._write_items()
            elif key == "additionalProperties":
                self._write_additional_properties(locations)
            elif key == "items":
                continue
            elif not self._supports(key):
                self._drop_keyword(key, locations)
            else:
                self._write_keyword(key, locations)
        SchemaNormalization(self._rewriter.changes, self._members, self._context, self._origin, self._out).normalize(
            self._values.types or []
        )
        if self._hints:
            self._append_hints()
        self._values.finish(self._out)
        return self._out

    def _supports(self, key: str) -> bool:
        """Return whether the dialect supports a keyword here."""
        return self._dialect.supports(key, root=self._context.is_root)

    # ---- keywords

    def _write_keyword(self, key: str, locations: list[SchemaLocation]) -> None:
        """Write a supported keyword, which the merged schemas state at these locations."""
        location, out = locations[0], self._out
        writers = {
            "properties": self._write_properties,
            "required": self._write_required,
            "anyOf": self._write_union,
            "description": self._write_description,
        }
        if key in writers:
            writers[key](locations)
        elif key == "$ref":
            self._write_reference(location)
        elif key == "$defs" and isinstance(location.value, dict) and self._dialect.references == "definitions":
            out[key] = {}
        elif key in _SCHEMA_KEYWORDS:
            out[key] = self._write_nested(locations)
        elif key in _NAMED_SCHEMA_KEYWORDS or key in _LISTED_SCHEMA_KEYWORDS:
            self._write_subschemas(key, locations)
        elif key in BOUNDS or key in COUNTS:
            self._write_number(key, locations)
        elif key in _TEXT_KEYWORDS and not isinstance(location.value, str):
            self._changes.malformed(location)
        elif key == "format" and self._dialect.formats is not None and location.value not in self._dialect.formats:
            self._describe_or_drop(key, location)
        else:
            out[key] = location.value
            self._report_duplicates(key, locations)

    def _drop_keyword(self, key: str, locations: list[SchemaLocation]) -> None:
        """Leave out an unsupported keyword, or replace it by a near equivalent."""
        for location in locations:
            self._describe_or_drop(key, location)
        # An inclusive bound approximates an exclusive one.
        bound = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(key)
        if bound and bound not in self._members and self._supports(bound) and _is_number(locations[0].value):
            self._out[bound] = locations[0].value

    def _describe_or_drop(self, key: str, location: SchemaLocation) -> None:
        """Mention a keyword in the description if that is short and helpful, else drop it."""
        hint = msgspec.json.encode(location.value)
        if key not in DESCRIBABLE or len(hint) > LIMIT_HINT or key in self._hints or not self._supports("description"):
            self._changes.dropped(location)
        else:
            self._hints[key] = hint.decode()
            self._changes.approximated(location, "moved into the description")

    def _append_hints(self) -> None:
        """Append the keywords that could only be mentioned to the description."""
        hint = ", ".join(f"{name}: {value}" for name, value in self._hints.items())
        description = self._out.get("description")
        self._out["description"] = f"{description} ({hint})" if isinstance(description, str) else hint

    def _report_duplicates(self, key: str, locations: list[SchemaLocation]) -> None:
        """Report all but the first location of a keyword, whose values are left out; that rejects no valid value."""
        for location in locations[1:]:
            if location.value != locations[0].value:
                self._changes.dropped(location, "given twice; the target accepts only one")

    def _write_description(self, locations: list[SchemaLocation]) -> None:
        """Write the descriptions of the merged schemas, one per line."""
        texts: list[str] = []
        for location in locations:
            if not isinstance(location.value, str):
                self._changes.malformed(location)
            elif location.value not in texts:
                texts.append(location.value)
        if texts:
            self._out["description"] = "\n".join(texts)

    def _write_number(self, key: str, locations: list[SchemaLocation]) -> None:
        """Write a numeric bound such as `minimum`; a numeric string becomes a number.

        Of several merged schemas that state it, each at one of `locations`, the first one counts.
        """
        value = locations[0].value
        if isinstance(value, str) and value.strip().removeprefix("-").isdecimal() and len(value) < 19:
            value = int(value)
        if isinstance(value, float) and key in COUNTS and value.is_integer():
            value = int(value)
        if key.startswith("exclusive") and isinstance(value, bool):
            self._describe_or_drop(key, locations[0])
            return
        if not _is_number(value) or (key in COUNTS and (not isinstance(value, int) or value < 0)):
            self._changes.malformed(locations[0])
            return
        if value is not locations[0].value:
            self._changes.approximated(locations[0], "written as a number")
        self._out[key] = value
        self._report_duplicates(key, locations)

    def _write_reference(self, location: SchemaLocation) -> None:
        """Write a reference, pointing to a definition at the root if the dialect requires that."""
        out, rewriter = self._out, self._rewriter
        if self._dialect.references == "kept":
            out["$ref"] = location.value
            return
        target = rewriter.references.resolve(location.value)
        pointer = "#"
        if target is not None and target.path:
            name = rewriter.references.definition_name(target)
            pointer = "#/$defs/" + name.replace("~", "~0").replace("/", "~1")
        if pointer != location.value:
            self._changes.approximated(location, f"written as {pointer}")
        reference = {"$ref": pointer}
        rewriter.reference_sources[id(reference)] = (reference, location.path)
        if self._context.is_root or all(key.startswith("$") for key in self._members):
            self._out = reference = {**out, **reference}
            rewriter.reference_sources[id(reference)] = (reference, location.path)
        else:
            # Anthropic and OpenAI reject other keywords beside a reference below the root.
            self._changes.approximated(location, "wrapped in anyOf: the target allows no keywords beside a reference")
            out["anyOf"] = [reference]

    # ---- nested schemas

    def _write_nested(self, locations: list[SchemaLocation]) -> Any:
        """Return the nested schema that merges these locations; False if it admits no value."""
        schema = self._rewriter.rewrite_schema(locations, self._context.nested())
        return False if schema is None else schema

    def _write_subschemas(self, key: str, locations: list[SchemaLocation]) -> None:
        """Write a keyword whose value is an object or a list of schemas, each rewritten.

        Of several merged schemas that state it, each at one of `locations`, the first one counts.
        """
        location = locations[0]
        self._report_duplicates(key, locations)
        if key in _NAMED_SCHEMA_KEYWORDS and isinstance(location.value, dict):
            self._out[key] = {name: self._write_nested([location.child(name)]) for name in location.value}
        elif key in _LISTED_SCHEMA_KEYWORDS and isinstance(location.value, list) and location.value:
            self._out[key] = [self._write_nested([location.child(index)]) for index in range(len(location.value))]
        else:
            self._changes.malformed(location)

    def _write_properties(self, locations: list[SchemaLocation]) -> None:
        """Write the properties of all merged schemas."""
        locations_by_name: dict[str, list[SchemaLocation]] = {}
        for location in locations:
            if not isinstance(location.value, dict):
                self._changes.malformed(location)
                continue
            for name in location.value:
                locations_by_name.setdefault(name, []).append(location.child(name))
        if not locations_by_name and not any(isinstance(location.value, dict) for location in locations):
            return
        properties = self._out["properties"] = {}
        for name, property_locations in locations_by_name.items():
            schema: Any = self._rewriter.rewrite_schema(property_locations, self._context.nested())
            if schema is None and self._dialect.keywords is None:
                properties[name] = False
            elif schema is None:
                self._changes.approximated(property_locations[0], "no value is valid: left out")
            else:
                properties[name] = schema

    def _write_required(self, locations: list[SchemaLocation]) -> None:
        """Write the names of required properties, and remember where the source states them."""
        names: dict[str, str] = {}
        declared = {
            name
            for location in self._members.get("properties", ())
            if isinstance(location.value, dict)
            for name in location.value
        }
        for location in locations:
            if not isinstance(location.value, list):
                self._changes.malformed(location)
                continue
            for index, name in enumerate(location.value):
                if not isinstance(name, str) or (self._dialect.requires_types and name not in declared):
                    self._changes.dropped(location.child(index), "not the name of a declared property")
                else:
                    names.setdefault(name, f"{location.path}/{index}")
        if names or any(location.value == [] for location in locations):
            self._out["required"] = list(names)
            self._rewriter.required_sources[id(self._out)] = (self._out, names)

    def _write_union(self, locations: list[SchemaLocation]) -> None:
        """Write `anyOf`, with null as a keyword where the dialect requires that."""
        location = locations[0]
        for duplicate in locations[1:]:
            self._describe_or_drop("anyOf", duplicate)
        if not isinstance(location.value, list) or not location.value:
            self._changes.malformed(location)
            return
        branches = self._write_branches(location)
        if self._values.adds_null and branches and not any(may_be_null(branch) for branch in branches):
            branches.append({"type": "null"})
        if self._dialect.requires_types and any(_is_untyped(branch) for branch in branches):
            self._describe_or_drop("anyOf", location)
        elif self._is_mergeable(branches):
            self._out.update(branches[0])
        elif branches:
            self._out["anyOf"] = branches

    def _write_branches(self, union: SchemaLocation) -> list[Any]:
        """Return the rewritten branches of a union, without those that admit no value or only null."""
        branches: list[Any] = []
        for index in range(len(union.value)):
            location = union.child(index)
            branch = self._rewriter.rewrite_schema([location], self._context.nested())
            if branch is None and self._dialect.keywords is None:
                branches.append(False)
            elif branch is None:
                self._changes.approximated(location, "no value is valid: left out")
            elif self._dialect.has_nullable_keyword and branch == {"type": "null"}:
                self._changes.approximated(location, "written as nullable")
                self._values.nullable = True
            else:
                branches.append(branch)
        return branches

    def _is_mergeable(self, branches: list[Any]) -> bool:
        """Return whether a union has a single branch that does not overlap with the other keywords."""
        if not self._dialect.has_nullable_keyword or len(branches) != 1:
            return False
        return not branches[0].keys() & (self._members.keys() | self._out.keys())

    def _write_items(self) -> None:
        """Write `prefixItems` and `items`; without support for tuples, a union of their positions."""
        prefix, items, out = self._tuple_locations(), self._members.get("items", []), self._out
        context = self._context.nested(self._dialect.items_dialect)
        item_schema = self._rewriter.rewrite_schema(items, context) if items else {}
        if not self._supports("items"):
            self._drop_keyword("items", items)
            self._drop_keyword("prefixItems", prefix)
            return
        if prefix:
            self._write_positions(prefix[0], item_schema if items else None, context, has_items=bool(items))
        if item_schema is None:
            self._changes.approximated(items[0], "written as maxItems")
            if "maxItems" not in self._members and self._supports("maxItems"):
                out["maxItems"] = len(prefix[0].value) if prefix else 0
        elif items and "items" not in out:
            out["items"] = item_schema

    def _tuple_locations(self) -> list[SchemaLocation]:
        """Return the locations of valid `prefixItems`; all but the first are reported."""
        locations: list[SchemaLocation] = []
        for location in self._members.get("prefixItems", []):
            if isinstance(location.value, list) and location.value:
                locations.append(location)
            else:
                self._changes.malformed(location)
        self._report_duplicates("prefixItems", locations)
        for position in [location.child(index) for location in locations[1:] for index in range(len(location.value))]:
            if not isinstance(position.value, dict | bool):
                self._changes.dropped(position, "not a JSON Schema")
        return locations

    def _write_positions(
        self, prefix: SchemaLocation, item_schema: dict[str, Any] | None, context: SchemaContext, *, has_items: bool
    ) -> None:
        """Write the schemas of a tuple's positions, or one union that also covers further items."""
        positions = [prefix.child(index) for index in range(len(prefix.value))]
        schemas = [self._rewriter.rewrite_schema([position], context) for position in positions]
        if self._supports("prefixItems"):
            self._out["prefixItems"] = [{} if schema is None else schema for schema in schemas]
            return
        self._describe_or_drop("prefixItems", prefix)
        if has_items:
            distinct: list[dict[str, Any]] = []
            for schema in (*schemas, item_schema):
                if schema is not None and schema not in distinct:
                    distinct.append(schema)
            self._out["items"] = self._union_of(distinct)

    def _union_of(self, schemas: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a schema for values that match any of these."""
        if self._dialect.requires_types and any(_is_untyped(schema) for schema in schemas):
            return {}
        others = [schema for schema in schemas if schema != {"type": "null"}]
        if not self._dialect.has_nullable_keyword or len(others) in (0, len(schemas)):
            return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        union = others[0] if len(others) == 1 else {"anyOf": others}
        return union if may_be_null(union) else {**union, "nullable": True}

    def _write_additional_properties(self, locations: list[SchemaLocation]) -> None:
        """Write the schema of undeclared properties.

        Where several schemas share an object, none of them may close it to the others.
        """
        location, values = locations[0], [location.value for location in locations]
        patterns = self._members.get("patternProperties", [])
        shared = len(self._members.get("properties", ())) > 1 or len({location.path for location in locations}) > 1
        if not self._supports("additionalProperties"):
            self._drop_additional_properties(locations)
        elif self._dialect.closed_objects:
            self._out["additionalProperties"] = False
            if any(value is not False for value in values):
                if self._dialect.closed_objects == "unfit":
                    raise SchemaRejected("objects with arbitrary properties are not supported")
                self._changes.approximated(location, "closed to undeclared properties")
        elif shared and any(value is not True for value in values):
            for conflicting in locations:
                self._changes.dropped(conflicting, "would reject properties of another merged schema")
        elif patterns and not self._supports("patternProperties"):
            self._replace_patterns(location, patterns[0])
        elif isinstance(location.value, bool):
            self._out["additionalProperties"] = location.value
        else:
            self._out["additionalProperties"] = self._write_nested(locations)

    def _drop_additional_properties(self, locations: list[SchemaLocation]) -> None:
        """Leave out the keyword; a schema is mentioned in the description."""
        for location in locations:
            if isinstance(location.value, bool):
                self._changes.dropped(location)
            else:
                self._describe_or_drop("additionalProperties", location)

    def _replace_patterns(self, location: SchemaLocation, patterns: SchemaLocation) -> None:
        """Admit properties that match the patterns of an otherwise closed object."""
        self._changes.approximated(location, "opened to properties that match the patterns")
        if location.value is False and isinstance(patterns.value, dict) and len(patterns.value) == 1:
            self._out["additionalProperties"] = self._write_nested([patterns.child(next(iter(patterns.value)))])


def _is_untyped(schema: dict[str, Any]) -> bool:
    """Return whether a union branch only restricts keywords declared beside the union."""
    return bool(schema) and not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}


def _is_number(value: Any) -> bool:
    """Return whether a value is a number and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)
