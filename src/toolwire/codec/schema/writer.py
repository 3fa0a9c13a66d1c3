"""The keywords of one schema, written in the order in which they were said."""

from typing import TYPE_CHECKING, Any

import msgspec

from toolwire.codec.schema.changes import SchemaLocation, SchemaRejected
from toolwire.codec.schema.dialect import BOUNDS, COUNTS, DESCRIBABLE, SchemaContext
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
    """`origin` is where the schema stands, for what it lacks as a whole."""

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
        members, out = self._members, self._out
        self._values.read()
        for key, sites in members.items():
            if key in ("type", "enum", "nullable"):
                self._values.write(key, out)
            elif key == "prefixItems" or (key == "items" and "prefixItems" not in members):
                self._write_items()
            elif key == "additionalProperties":
                self._write_additional_properties(sites)
            elif key == "items":
                continue
            elif not self._supports(key):
                self._drop_keyword(key, sites)
            else:
                self._write_keyword(key, sites)
        SchemaNormalization(self._rewriter.changes, self._members, self._context, self._origin, self._out).normalize(
            self._values.types or []
        )
        if self._hints:
            self._append_hints()
        self._values.finish(self._out)
        return self._out

    def _supports(self, key: str) -> bool:
        return self._dialect.supports(key, root=self._context.is_root)

    # ---- keywords

    def _write_keyword(self, key: str, locations: list[SchemaLocation]) -> None:
        site, out = locations[0], self._out
        if key == "$ref":
            self._write_reference(site)
        elif key == "properties":
            self._write_properties(locations)
        elif key == "required":
            self._write_required(locations)
        elif key == "anyOf":
            self._write_union(locations)
        elif key == "description":
            self._write_description(locations)
        elif key == "$defs" and isinstance(site.value, dict) and self._dialect.references == "definitions":
            out[key] = {}
        elif key in _SCHEMA_KEYWORDS:
            out[key] = self._write_nested(locations)
        elif key in _NAMED_SCHEMA_KEYWORDS or key in _LISTED_SCHEMA_KEYWORDS:
            self._write_subschemas(key, locations)
        elif key in BOUNDS or key in COUNTS:
            self._write_number(key, locations)
        elif key in _TEXT_KEYWORDS and not isinstance(site.value, str):
            self._changes.malformed(site)
        elif key == "format" and self._dialect.formats is not None and site.value not in self._dialect.formats:
            self._describe_or_drop(key, site)
        else:
            out[key] = site.value
            self._report_duplicates(key, locations)

    def _drop_keyword(self, key: str, locations: list[SchemaLocation]) -> None:
        for site in locations:
            self._describe_or_drop(key, site)
        # The bound itself excluded is close to a bound.
        bound = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(key)
        if bound and bound not in self._members and self._supports(bound) and _is_number(locations[0].value):
            self._out[bound] = locations[0].value

    def _describe_or_drop(self, key: str, location: SchemaLocation) -> None:
        """In the description, if it helps and is short."""
        hint = msgspec.json.encode(location.value)
        if key not in DESCRIBABLE or len(hint) > LIMIT_HINT or key in self._hints or not self._supports("description"):
            self._changes.dropped(location)
        else:
            self._hints[key] = hint.decode()
            self._changes.approximated(location, "told in the description")

    def _append_hints(self) -> None:
        hint = ", ".join(f"{name}: {value}" for name, value in self._hints.items())
        about = self._out.get("description")
        self._out["description"] = f"{about} ({hint})" if isinstance(about, str) else hint

    def _report_duplicates(self, key: str, locations: list[SchemaLocation]) -> None:
        """Of several the first is kept: fewer bounds let no less be valid."""
        for site in locations[1:]:
            if site.value != locations[0].value:
                self._changes.dropped(site, "said twice, and only one can be told")

    def _write_description(self, locations: list[SchemaLocation]) -> None:
        texts: list[str] = []
        for site in locations:
            if not isinstance(site.value, str):
                self._changes.malformed(site)
            elif site.value not in texts:
                texts.append(site.value)
        if texts:
            self._out["description"] = "\n".join(texts)

    def _write_number(self, key: str, locations: list[SchemaLocation]) -> None:
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
            self._changes.approximated(locations[0], "told as a number")
        self._out[key] = value
        self._report_duplicates(key, locations)

    def _write_reference(self, location: SchemaLocation) -> None:
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
            self._changes.approximated(location, f"told as {pointer}")
        reference = {"$ref": pointer}
        rewriter.reference_sources[id(reference)] = (reference, location.path)
        if self._context.is_root or all(key.startswith("$") for key in self._members):
            self._out = reference = {**out, **reference}
            rewriter.reference_sources[id(reference)] = (reference, location.path)
        else:
            # Both providers refuse anything beside a reference below the root.
            self._changes.approximated(location, "told in a union of one, since it may not stand beside others")
            out["anyOf"] = [reference]

    # ---- schemas inside

    def _write_nested(self, locations: list[SchemaLocation]) -> Any:
        made = self._rewriter.rewrite_schema(locations, self._context.nested())
        return False if made is None else made

    def _write_subschemas(self, key: str, locations: list[SchemaLocation]) -> None:
        site = locations[0]
        self._report_duplicates(key, locations)
        if key in _NAMED_SCHEMA_KEYWORDS and isinstance(site.value, dict):
            self._out[key] = {name: self._write_nested([site.child(name)]) for name in site.value}
        elif key in _LISTED_SCHEMA_KEYWORDS and isinstance(site.value, list) and site.value:
            self._out[key] = [self._write_nested([site.child(index)]) for index in range(len(site.value))]
        else:
            self._changes.malformed(site)

    def _write_properties(self, locations: list[SchemaLocation]) -> None:
        named: dict[str, list[SchemaLocation]] = {}
        for site in locations:
            if not isinstance(site.value, dict):
                self._changes.malformed(site)
                continue
            for name in site.value:
                named.setdefault(name, []).append(site.child(name))
        if not named and not any(isinstance(site.value, dict) for site in locations):
            return
        made = self._out["properties"] = {}
        for name, places in named.items():
            one: Any = self._rewriter.rewrite_schema(places, self._context.nested())
            if one is None and self._dialect.keywords is None:
                made[name] = False
            elif one is None:
                self._changes.approximated(places[0], "may never be given: left out")
            else:
                made[name] = one

    def _write_required(self, locations: list[SchemaLocation]) -> None:
        names: dict[str, str] = {}
        declared = {
            name for site in self._members.get("properties", ()) if isinstance(site.value, dict) for name in site.value
        }
        for site in locations:
            if not isinstance(site.value, list):
                self._changes.malformed(site)
                continue
            for index, name in enumerate(site.value):
                if not isinstance(name, str) or (self._dialect.requires_types and name not in declared):
                    self._changes.dropped(site.child(index), "not the name of a property")
                else:
                    names.setdefault(name, f"{site.path}/{index}")
        if names or any(site.value == [] for site in locations):
            self._out["required"] = list(names)
            self._rewriter.required_sources[id(self._out)] = (self._out, names)

    def _write_union(self, locations: list[SchemaLocation]) -> None:
        site, rewriter = locations[0], self._rewriter
        branches: list[Any] = []
        for other in locations[1:]:
            self._describe_or_drop("anyOf", other)
        if not isinstance(site.value, list) or not site.value:
            self._changes.malformed(site)
            return
        for index in range(len(site.value)):
            branch = site.child(index)
            made = rewriter.rewrite_schema([branch], self._context.nested())
            if made is None and self._dialect.keywords is None:
                branches.append(False)
            elif made is None:
                self._changes.approximated(branch, "may never be chosen: left out")
            elif self._dialect.has_nullable_keyword and made == {"type": "null"}:
                self._changes.approximated(branch, "told as nullable")
                self._values.nullable = True
            else:
                branches.append(made)
        if self._values.adds_null and branches and not any(may_be_null(made) for made in branches):
            branches.append({"type": "null"})
        if self._dialect.requires_types and any(_is_untyped(made) for made in branches):
            self._describe_or_drop("anyOf", site)
        elif (
            self._dialect.has_nullable_keyword
            and len(branches) == 1
            and not branches[0].keys() & (self._members.keys() | self._out.keys())
        ):
            self._out.update(branches[0])
        elif branches:
            self._out["anyOf"] = branches

    def _write_items(self) -> None:
        """A tuple's places, or what may be at any of them, where the dialect knows only that."""
        rewriter, out = self._rewriter, self._out
        below = self._context.nested(self._dialect.items_dialect)
        prefix, items = self._members.get("prefixItems", []), self._members.get("items", [])
        for site in prefix:
            if not isinstance(site.value, list) or not site.value:
                self._changes.malformed(site)
        prefix = [site for site in prefix if isinstance(site.value, list) and site.value]
        self._report_duplicates("prefixItems", prefix)
        for again in [site.child(index) for site in prefix[1:] for index in range(len(site.value))]:
            if not isinstance(again.value, dict | bool):
                self._changes.dropped(again, "not a schema")
        made = rewriter.rewrite_schema(items, below) if items else {}
        places = [prefix[0].child(index) for index in range(len(prefix[0].value))] if prefix else []
        if not self._supports("items"):
            self._drop_keyword("items", items)
            self._drop_keyword("prefixItems", prefix)
            return
        firsts = [rewriter.rewrite_schema([one], below) for one in places]
        if places and self._supports("prefixItems"):
            out["prefixItems"] = [{} if one is None else one for one in firsts]
        elif places:
            self._describe_or_drop("prefixItems", prefix[0])
            if made is not None and items:
                firsts.append(made)
            kinds = [one for index, one in enumerate(firsts) if one is not None and one not in firsts[:index]]
            if made is None or items:
                out["items"] = self._union_of(kinds)
        if made is None:
            self._changes.approximated(items[0], "told as a bound")
            if "maxItems" not in self._members and self._supports("maxItems"):
                out["maxItems"] = len(places)
        elif items and "items" not in out:
            out["items"] = made

    def _union_of(self, schemas: list[dict[str, Any]]) -> dict[str, Any]:
        """What is one of several."""
        if self._dialect.requires_types and any(_is_untyped(made) for made in schemas):
            return {}
        others = [made for made in schemas if made != {"type": "null"}]
        if not self._dialect.has_nullable_keyword or len(others) in (0, len(schemas)):
            return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        made = others[0] if len(others) == 1 else {"anyOf": others}
        return made if may_be_null(made) else {**made, "nullable": True}

    def _write_additional_properties(self, locations: list[SchemaLocation]) -> None:
        """What else an object may hold. Where two schemas share an object, neither may close it to the other."""
        site, closed = locations[0], self._dialect.closed_objects
        patterns = self._members.get("patternProperties", [])
        shared = len(self._members.get("properties", ())) > 1 or len({one.path for one in locations}) > 1
        if not self._supports("additionalProperties"):
            for one in locations:
                if isinstance(one.value, bool):
                    self._changes.dropped(one)
                else:
                    self._describe_or_drop("additionalProperties", one)
        elif closed:
            self._out["additionalProperties"] = False
            if any(one.value is not False for one in locations):
                if closed == "unfit":
                    raise SchemaRejected("an open map")
                self._changes.approximated(site, "closed to further properties")
        elif shared and any(one.value is not True for one in locations):
            for one in locations:
                self._changes.dropped(one, "would bind what another schema declares")
        elif patterns and not self._supports("patternProperties"):
            self._changes.approximated(site, "opened to what the patterns allow")
            found = patterns[0].value
            if site.value is False and isinstance(found, dict) and len(found) == 1:
                self._out["additionalProperties"] = self._write_nested([patterns[0].child(next(iter(found)))])
        elif isinstance(site.value, bool):
            self._out["additionalProperties"] = site.value
        else:
            self._out["additionalProperties"] = self._write_nested(locations)


def _is_untyped(schema: dict[str, Any]) -> bool:
    """Whether a branch of a union only binds what is declared beside it."""
    return bool(schema) and not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
