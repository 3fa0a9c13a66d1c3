"""Which values a schema names: their types, an enum, and null in its three spellings.

What a dialect asks of a schema as a whole, once its keywords are written.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from toolwire.codec.schema.changes import SchemaChanges, SchemaLocation, SchemaRejected
from toolwire.codec.schema.dialect import SchemaContext

# In the order of Google's enumeration, whose numbers some clients write.
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
    """`null`: to be told by the keyword `nullable`; `added_null`: that keyword was met where null is a type."""

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
        self._read_types()
        self._read_nullable()
        for site in self._members.get("enum", ())[:1]:
            self._read_enum(site)

    def _read_types(self) -> None:
        sites = self._members.get("type", [])
        for site in sites:
            words = self._type_names(site)
            both = [word for word in words if word in (self.types or words) or _is_subtype(word, self.types or [])]
            if words and not both:
                self._changes.dropped(site, "nothing is of both types")
            elif words:
                self.types = both
        if self.types is None:
            return
        self._has_type_list = isinstance(sites[0].value, list)
        if self._dialect.has_nullable_keyword and "null" in self.types and len(self.types) > 1:
            self.types.remove("null")
            self.nullable = True
            self._changes.approximated(sites[0], "null is told as nullable")
        if self._context.is_root and self._dialect.root_keywords is not None and self._has_type_list:
            self.types, self._has_type_list = ["object"], False
            self._changes.approximated(sites[0], "told as an object")

    def _type_names(self, location: SchemaLocation) -> list[str]:
        places = (
            [location.child(index) for index in range(len(location.value))]
            if isinstance(location.value, list)
            else [location]
        )
        words: list[str] = []
        for place in places:
            word = place.value.lower() if isinstance(place.value, str) else None
            if type(place.value) is int and 0 < place.value <= len(JSON_TYPES):
                word = JSON_TYPES[place.value - 1]
            if word not in JSON_TYPES:
                self._changes.dropped(place, "not a type")
                continue
            if word != place.value:
                self._changes.approximated(place, f"told as {word}")
            if word not in words:
                words.append(word)
        return words

    def _read_nullable(self) -> None:
        for site in self._members.get("nullable", ())[:1]:
            if not isinstance(site.value, bool):
                self._changes.malformed(site)
            elif self._supports("nullable"):
                self.nullable = self.nullable or site.value is True
            elif site.value is True:
                self._changes.approximated(site, "told as a type")
                self.adds_null = True
                if self.types is not None and "null" not in self.types:
                    self.types.append("null")
            else:
                self._changes.dropped(site)

    def _read_enum(self, location: SchemaLocation) -> None:
        if not isinstance(location.value, list) or not location.value:
            self._changes.malformed(location)
            return
        values = list(location.value)
        for other in self._members["enum"][1:]:
            self._changes.dropped(other, "said twice, and only one can be told")
        if self.adds_null and None not in values:
            values.append(None)
        if not self._supports("enum"):
            self._describe("enum", _described_location(location))
        elif self._dialect.enum_types is None:
            self._enum = values
        else:
            self._restrict_enum([value for value in values if value is not None], location, null=None in values)

    def _restrict_enum(self, values: list[Any], location: SchemaLocation, *, null: bool) -> None:
        """The values, if they are such as the dialect can name; else their type."""
        kinds = {type(value) for value in values}
        if not kinds <= set(self._dialect.enum_types or ()):
            self._describe("enum", _described_location(location))
            if len(kinds) == 1 and self.types is None:
                self.types = [_TYPE_NAMES.get(kinds.pop(), "number")]  # a number that Python can't hold is `Raw`
                self._add_null(null=null)
            return
        if self._dialect.requires_types and self.types is None and kinds == {str}:
            self.types = ["string"]
            self._changes.approximated(location, "the target wants a type")
        self._enum = values or None
        if null:
            self._changes.approximated(self._origin, "null is told beside the enum")
            if self._dialect.has_nullable_keyword:
                self._add_null(null=True)
            elif not values:
                self.types, self._has_type_list = ["null"], False
            elif self.types is None or "null" in self.types:
                self._unite_with_null(location)

    def _add_null(self, *, null: bool) -> None:
        if null and self._dialect.has_nullable_keyword:
            self.nullable = True
        elif null and self.types is not None and "null" not in self.types:
            self.types.append("null")

    def _unite_with_null(self, location: SchemaLocation) -> None:
        """An enum that may be null, as a union with null."""
        if "anyOf" in self._members or "$ref" in self._members:
            self._enum = None
            self._describe("enum", _described_location(location))
        else:
            self._has_null_union = True

    def _supports(self, key: str) -> bool:
        return self._dialect.supports(key, root=self._context.is_root)

    # ---- write

    def write(self, key: str, out: dict[str, Any]) -> None:
        if key == "nullable":
            if self._supports(key) and isinstance(value := self._members[key][0].value, bool):
                out[key] = value
            return
        if self._has_null_union:
            words = [word for word in self.types or () if word != "null"]
            named = {"type": words[0] if len(words) == 1 else words} if words else {}
            out["anyOf"] = [{**named, "enum": self._enum}, {"type": "null"}]
            return
        if self.types is not None and "type" not in out and self._supports("type"):
            single = len(self.types) == 1 and (not self._has_type_list or self._dialect.has_nullable_keyword)
            if single or not self._dialect.has_nullable_keyword:
                out["type"] = self.types[0] if single else list(self.types)
        if key == "enum" and self._enum is not None:
            out["enum"] = self._enum

    def finish(self, out: dict[str, Any]) -> None:
        if self.nullable and self._dialect.has_nullable_keyword and not may_be_null(out):
            out["nullable"] = True


def may_be_null(schema: dict[str, Any]) -> bool:
    """Whether null is surely among what a written schema lets be valid."""
    if schema.get("nullable") is True:
        return True
    if "$ref" in schema or "const" in schema or ("enum" in schema and None not in schema["enum"]):
        return False
    if "anyOf" in schema and not any(may_be_null(branch) for branch in schema["anyOf"]):
        return False
    words = schema.get("type", "null")
    return words == "null" or (isinstance(words, list) and "null" in words)


def _is_subtype(type_name: str, types: list[str]) -> bool:
    return type_name == "integer" and "number" in types


def _is_constant(location: SchemaLocation) -> bool:
    """Whether an enum of one stands where the source has a constant."""
    return location.path.endswith("/const")


def _described_location(location: SchemaLocation) -> SchemaLocation:
    return SchemaLocation(location.value[0], location.path) if _is_constant(location) else location


# What belongs to values of one type only.
_KEYWORDS_BY_TYPE = {
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties", "propertyOrdering", "minProperties", "maxProperties"),
    "string": ("enum", "format", "pattern", "minLength", "maxLength"),
}


class SchemaNormalization(NamedTuple):
    """`out` is what is written, `origin` where the schema stands."""

    changes: SchemaChanges
    members: dict[str, list[SchemaLocation]]
    context: SchemaContext
    origin: SchemaLocation
    out: dict[str, Any]

    def normalize(self, types: list[str]) -> None:
        if "object" in types or "properties" in self.out:
            self._require_all_properties()
            self._close_object()
        if self.context.dialect.requires_types:
            self._require_types(types)
        self._split_types(types)

    def _require_all_properties(self) -> None:
        if not self.context.dialect.requires_all_properties:
            return
        out = self.out
        required = out.setdefault("required", [])
        for name, made in out.setdefault("properties", {}).items():
            if name not in required:
                required.append(name)
                out["properties"][name] = _make_nullable(made)
                for site in self.members.get("properties", ()):
                    if isinstance(site.value, dict) and name in site.value:
                        self.changes.approximated(site.child(name), "told as required: null where it is absent")

    def _close_object(self) -> None:
        closed, out = self.context.dialect.closed_objects, self.out
        if not closed or out.get("additionalProperties") is False:
            return
        bare = "properties" not in self.members and not self.context.is_root
        if closed == "unfit" and (bare or "patternProperties" in self.members):
            raise SchemaRejected("an open map")
        out["additionalProperties"] = False
        self.changes.approximated(self.origin, "closed to further properties")

    def _require_types(self, types: list[str]) -> None:
        """What a typed dialect can't do without."""
        out = self.out
        if "array" in types and "items" not in out:
            if self.context.dialect.closed_objects:
                raise SchemaRejected("an array of anything")
            out["items"] = {}
            self.changes.approximated(self.origin, "the target wants items for an array")
        if self.context.dialect.closed_objects and not out.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
            raise SchemaRejected("a value of any type")
        if self.context.dialect.closed_objects and self.context.is_root and (types != ["object"] or "anyOf" in out):
            raise SchemaRejected("not an object")

    def _split_types(self, types: list[str]) -> None:
        """Where one word for a type is all there may be, a union of several, each with what belongs to it."""
        out = self.out
        if not self.context.dialect.has_nullable_keyword or len(types) < 2 or "type" in out:
            return
        for site in self.members["type"]:
            self.changes.approximated(site, "told as a union")
        if "anyOf" in out:
            return
        branches: list[dict[str, Any]] = [{"type": word} for word in types]
        for branch in branches:
            for key in _KEYWORDS_BY_TYPE.get(branch["type"], ()):
                if key in out:
                    branch[key] = out.pop(key)
        out["anyOf"] = branches


def _make_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if may_be_null(schema):
        return schema
    if "const" in schema or "$ref" in schema or ("anyOf" in schema and "type" in schema):
        return {"anyOf": [schema, {"type": "null"}]}
    schema = dict(schema)
    if "anyOf" in schema:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    elif "type" in schema:
        words = schema["type"]
        schema["type"] = [*([words] if isinstance(words, str) else words), "null"]
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema
