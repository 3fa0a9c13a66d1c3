"""Types, enums and null of a schema, and requirements of a dialect on complete schemas."""

from collections.abc import Callable
from typing import Any, NamedTuple

from toolwire.codec.schema.dialect import SchemaChanges, SchemaContext, SchemaLocation, SchemaRejected

# In the order of Google's `Type` enum, since some clients send its numbers.
JSON_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")

_TYPE_NAMES: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}


class SchemaValues:
    """The values that a schema admits: its types, its enum, and null in any of its three spellings."""

    def __init__(
        self,
        members: dict[str, list[SchemaLocation]],
        context: SchemaContext,
        origin: SchemaLocation,
        changes: SchemaChanges,
        describe: Callable[[str, SchemaLocation], None],
    ) -> None:
        self.types: list[str] | None = None
        self.nullable = False
        self.adds_null = False
        self._members = members
        self._context = context
        self._origin = origin
        self._dialect = context.dialect
        self._changes = changes
        self._describe = describe
        self._has_type_list = False
        self._enum: list[Any] | None = None
        self._has_null_union = False

    # ---- read

    def read(self) -> None:
        """Read the keywords `type`, `nullable` and `enum` of the merged schemas."""
        self._read_types()
        self._read_nullable()
        for location in self._members.get("enum", ())[:1]:
            self._read_enum(location)

    def _read_types(self) -> None:
        """Read `type`; several schemas that hold at once are intersected."""
        locations = self._members.get("type", [])
        for location in locations:
            self._intersect_types(location)
        if self.types is None:
            return
        self._has_type_list = isinstance(locations[0].value, list)
        if self._dialect.has_nullable_keyword and "null" in self.types and len(self.types) > 1:
            self.types.remove("null")
            self.nullable = True
            self._changes.approximated(locations[0], "null is written as nullable")
        if self._has_type_list and self._is_root_object:
            self.types, self._has_type_list = ["object"], False
            self._changes.approximated(locations[0], "written as an object")

    @property
    def _is_root_object(self) -> bool:
        """Whether this is the schema of all arguments, which the dialect requires to be an object."""
        return self._context.is_root and self._dialect.root_keywords is not None

    def _intersect_types(self, location: SchemaLocation) -> None:
        """Keep only types that are also named at this location."""
        names = self._type_names(location)
        if not names:
            return
        known = self.types or names
        common = [name for name in names if name in known or _is_subtype(name, self.types or [])]
        if common:
            self.types = common
        else:
            self._changes.dropped(location, "contradicts another type of the same schema")

    def _type_names(self, location: SchemaLocation) -> list[str]:
        """Return the JSON Schema types named at a location, in lower case; anything else is recorded as dropped."""
        candidates = (
            [location.child(index) for index in range(len(location.value))]
            if isinstance(location.value, list)
            else [location]
        )
        names: list[str] = []
        for candidate in candidates:
            name = candidate.value.lower() if isinstance(candidate.value, str) else None
            if type(candidate.value) is int and 0 < candidate.value <= len(JSON_TYPES):
                name = JSON_TYPES[candidate.value - 1]
            if name not in JSON_TYPES:
                self._changes.dropped(candidate, "not a JSON Schema type")
                continue
            if name != candidate.value:
                self._changes.approximated(candidate, f"written as {name}")
            if name not in names:
                names.append(name)
        return names

    def _read_nullable(self) -> None:
        """Read `nullable`, and turn it into a type where the dialect has no such keyword."""
        for location in self._members.get("nullable", ())[:1]:
            if not isinstance(location.value, bool):
                self._changes.malformed(location)
            elif self._supports("nullable"):
                self.nullable = self.nullable or location.value is True
            elif location.value is True and not self._is_root_object:
                self._changes.approximated(location, "written as a type")
                self.adds_null = True
                if self.types is not None and "null" not in self.types:
                    self.types.append("null")
            else:
                self._changes.dropped(location)

    def _read_enum(self, location: SchemaLocation) -> None:
        """Read the values of `enum` at a location, as far as the dialect supports them."""
        if not isinstance(location.value, list) or not location.value:
            self._changes.malformed(location)
            return
        values = list(location.value)
        for duplicate in self._members["enum"][1:]:
            self._changes.dropped(duplicate, "given twice; the target accepts only one")
        if self.adds_null and None not in values:
            values.append(None)
        if not self._supports("enum"):
            self._describe("enum", _described_location(location))
        elif self._dialect.enum_types is None:
            self._enum = values
        else:
            self._restrict_enum([value for value in values if value is not None], location, null=None in values)

    def _restrict_enum(self, values: list[Any], location: SchemaLocation, *, null: bool) -> None:
        """Keep the values if the dialect supports their types, else only the type."""
        types = {type(value) for value in values}
        if not types <= set(self._dialect.enum_types or ()):
            self._describe("enum", _described_location(location))
            if len(types) == 1 and self.types is None:
                self.types = [_TYPE_NAMES.get(types.pop(), "number")]  # a number that Python can't hold is `Raw`
                self._add_null(null=null)
            return
        if self._dialect.requires_types and self.types is None and types == {str}:
            self.types = ["string"]
            self._changes.approximated(location, "the target requires a type")
        self._enum = values or None
        if null:
            self._changes.approximated(self._origin, "null is written beside the enum")
            if self._dialect.has_nullable_keyword:
                self._add_null(null=True)
            elif not values:
                self.types, self._has_type_list = ["null"], False
            elif self.types is None or "null" in self.types:
                self._unite_with_null(location)

    def _add_null(self, *, null: bool) -> None:
        """Admit null, as a keyword or as a type."""
        if null and self._dialect.has_nullable_keyword:
            self.nullable = True
        elif null and self.types is not None and "null" not in self.types:
            self.types.append("null")

    def _unite_with_null(self, location: SchemaLocation) -> None:
        """Write a nullable enum as a union with null."""
        if "anyOf" in self._members or "$ref" in self._members:
            self._enum = None
            self._describe("enum", _described_location(location))
        else:
            self._has_null_union = True

    def _supports(self, key: str) -> bool:
        """Return whether the dialect supports a keyword here."""
        return self._dialect.supports(key, root=self._context.is_root)

    # ---- write

    def write(self, key: str, out: dict[str, Any]) -> None:
        """Write `type`, `enum` or `nullable`, named by `key`, to the schema `out`."""
        if key == "nullable":
            if self._supports(key) and isinstance(value := self._members[key][0].value, bool):
                out[key] = value
            return
        if self._has_null_union:
            out["anyOf"] = [self._enum_without_null(), {"type": "null"}]
            return
        if self.types is not None and "type" not in out and self._supports("type"):
            single = len(self.types) == 1 and (not self._has_type_list or self._dialect.has_nullable_keyword)
            if single or not self._dialect.has_nullable_keyword:
                out["type"] = self.types[0] if single else list(self.types)
        if key == "enum" and self._enum is not None:
            out["enum"] = self._enum

    def _enum_without_null(self) -> dict[str, Any]:
        """Return the branch of a nullable enum that holds the values."""
        names = [name for name in self.types or () if name != "null"]
        typed = {"type": names[0] if len(names) == 1 else names} if names else {}
        return {**typed, "enum": self._enum}

    def finish(self, out: dict[str, Any]) -> None:
        """Add `nullable` if null is admitted but not yet written."""
        if self.nullable and self._dialect.has_nullable_keyword and not may_be_null(out):
            out["nullable"] = True


def may_be_null(schema: dict[str, Any]) -> bool:
    """Return whether a written schema certainly admits null."""
    if schema.get("nullable") is True:
        return True
    if "$ref" in schema or "const" in schema or ("enum" in schema and None not in schema["enum"]):
        return False
    if "anyOf" in schema and not any(may_be_null(branch) for branch in schema["anyOf"]):
        return False
    types = schema.get("type", "null")
    return types == "null" or (isinstance(types, list) and "null" in types)


def _is_subtype(type_name: str, types: list[str]) -> bool:
    """Return whether a type is contained in another of the list."""
    return type_name == "integer" and "number" in types


def _is_constant(location: SchemaLocation) -> bool:
    """Return whether a single-value enum stands for a `const` of the source."""
    return location.path.endswith("/const")


def _described_location(location: SchemaLocation) -> SchemaLocation:
    """Return the location to describe: for a constant, its value rather than an enum."""
    return SchemaLocation(location.value[0], location.path) if _is_constant(location) else location


# Keywords that apply to values of one type only.
_KEYWORDS_BY_TYPE = {
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties", "propertyOrdering", "minProperties", "maxProperties"),
    "string": ("enum", "format", "pattern", "minLength", "maxLength"),
}


class SchemaNormalization(NamedTuple):
    """Requirements of a dialect that concern a schema after its keywords are written."""

    changes: SchemaChanges
    members: dict[str, list[SchemaLocation]]
    context: SchemaContext
    origin: SchemaLocation  # the location of the schema
    out: dict[str, Any]  # the written schema

    def normalize(self, types: list[str]) -> None:
        """Change the written schema so that it meets all requirements of the dialect."""
        if "object" in types or "properties" in self.out:
            self._require_all_properties()
            self._close_object()
        if self.context.dialect.requires_types:
            self._require_types(types)
        self._split_types(types)

    def _require_all_properties(self) -> None:
        """Make all properties required, and nullable if they were optional."""
        if not self.context.dialect.requires_all_properties:
            return
        out = self.out
        required = out.setdefault("required", [])
        for name, property_schema in out.setdefault("properties", {}).items():
            if name not in required:
                required.append(name)
                out["properties"][name] = _make_nullable(property_schema)
                for location in self.members.get("properties", ()):
                    if isinstance(location.value, dict) and name in location.value:
                        self.changes.approximated(location.child(name), "written as required and nullable")

    def _close_object(self) -> None:
        """Forbid undeclared properties (`additionalProperties: false`) where the dialect requires that."""
        closed, out = self.context.dialect.closed_objects, self.out
        if not closed or out.get("additionalProperties") is False:
            return
        bare = "properties" not in self.members and not self.context.is_root
        if closed == "unfit" and (bare or "patternProperties" in self.members):
            raise SchemaRejected("objects with arbitrary properties are not supported")
        out["additionalProperties"] = False
        self.changes.approximated(self.origin, "closed to undeclared properties")

    def _require_types(self, types: list[str]) -> None:
        """Add `items` to arrays, or reject the schema, where the dialect demands that every value has a type."""
        out = self.out
        if "array" in types and "items" not in out:
            if self.context.dialect.closed_objects:
                raise SchemaRejected("arrays without items are not supported")
            out["items"] = {}
            self.changes.approximated(self.origin, "the target requires items for an array")
        if self.context.dialect.closed_objects and not out.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
            raise SchemaRejected("values without a type are not supported")
        if self.context.dialect.closed_objects and self.context.is_root and (types != ["object"] or "anyOf" in out):
            raise SchemaRejected("the root must be an object")

    def _split_types(self, types: list[str]) -> None:
        """Write several types as a union, each with the keywords that apply to it."""
        out = self.out
        if not self.context.dialect.has_nullable_keyword or len(types) < 2 or "type" in out:
            return
        for location in self.members["type"]:
            self.changes.approximated(location, "written as a union")
        if "anyOf" in out:
            return
        branches: list[dict[str, Any]] = [{"type": name} for name in types]
        for branch in branches:
            for key in _KEYWORDS_BY_TYPE.get(branch["type"], ()):
                if key in out:
                    branch[key] = out.pop(key)
        out["anyOf"] = branches


def _make_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also admits null."""
    if may_be_null(schema):
        return schema
    if "const" in schema or "$ref" in schema or ("anyOf" in schema and "type" in schema):
        return {"anyOf": [schema, {"type": "null"}]}
    schema = dict(schema)
    if "anyOf" in schema:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    elif "type" in schema:
        types = schema["type"]
        schema["type"] = [*([types] if isinstance(types, str) else types), "null"]
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema
