"""The keywords of one schema, written in the order in which they were said."""

from typing import TYPE_CHECKING, Any

import msgspec

from toolwire.codec.check import words

from .changes import Site, Unfit
from .dialect import BOUNDS, COUNTS, TELLING, Place
from .settling import Settling
from .values import Values, may_be_null

if TYPE_CHECKING:
    from .rewriter import Rewriter

LIMIT_HINT = 400

_SCHEMAS = words("not if then else contains propertyNames unevaluatedProperties unevaluatedItems contentSchema")
_NAMED = words("patternProperties dependentSchemas $defs definitions")
_LISTED = words("allOf oneOf")
_TEXTS = words("description title pattern format $id $anchor $comment")


class Writer:
    """`origin` is where the schema stands, for what it lacks as a whole."""

    def __init__(self, rewriter: "Rewriter", members: dict[str, list[Site]], place: Place, origin: Site) -> None:
        self._rewriter = rewriter
        self._changes = rewriter.changes
        self._members = members
        self._place = place
        self._dialect = place.dialect
        self._origin = origin
        self._told: dict[str, Any] = {}
        self._out: dict[str, Any] = {}
        self._values = Values(members, place, origin, rewriter.changes, self._tell)

    def write(self) -> dict[str, Any]:
        members, out = self._members, self._out
        self._values.read()
        for key, sites in members.items():
            if key in ("type", "enum", "nullable"):
                self._values.write(key, out)
            elif key == "prefixItems" or (key == "items" and "prefixItems" not in members):
                self._write_items()
            elif key == "additionalProperties":
                self._write_additional(sites)
            elif key == "items":
                continue
            elif not self._takes(key):
                self._leave(key, sites)
            else:
                self._write(key, sites)
        Settling(self._rewriter.changes, self._members, self._place, self._origin, self._out).settle(
            self._values.types or []
        )
        if self._told:
            self._describe()
        self._values.finish(self._out)
        return self._out

    def _takes(self, key: str) -> bool:
        return self._dialect.takes(key, root=self._place.root)

    # ---- keywords

    def _write(self, key: str, sites: list[Site]) -> None:
        site, out = sites[0], self._out
        if key == "$ref":
            self._refer(site)
        elif key == "properties":
            self._write_properties(sites)
        elif key == "required":
            self._write_required(sites)
        elif key == "anyOf":
            self._write_union(sites)
        elif key == "description":
            self._write_description(sites)
        elif key == "$defs" and isinstance(site.value, dict) and self._dialect.references == "definitions":
            out[key] = {}
        elif key in _SCHEMAS:
            out[key] = self._one(sites)
        elif key in _NAMED or key in _LISTED:
            self._write_many(key, sites)
        elif key in BOUNDS or key in COUNTS:
            self._write_number(key, sites)
        elif key in _TEXTS and not isinstance(site.value, str):
            self._changes.malformed(site)
        elif key == "format" and self._dialect.formats is not None and site.value not in self._dialect.formats:
            self._tell(key, site)
        else:
            out[key] = site.value
            self._first(key, sites)

    def _leave(self, key: str, sites: list[Site]) -> None:
        for site in sites:
            self._tell(key, site)
        # The bound itself excluded is close to a bound.
        bound = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(key)
        if bound and bound not in self._members and self._takes(bound) and _is_number(sites[0].value):
            self._out[bound] = sites[0].value

    def _tell(self, key: str, site: Site) -> None:
        """In the description, if it helps and is short."""
        hint = msgspec.json.encode(site.value)
        if key not in TELLING or len(hint) > LIMIT_HINT or key in self._told or not self._takes("description"):
            self._changes.lost(site)
        else:
            self._told[key] = hint.decode()
            self._changes.changed(site, "told in the description")

    def _describe(self) -> None:
        hint = ", ".join(f"{name}: {value}" for name, value in self._told.items())
        about = self._out.get("description")
        self._out["description"] = f"{about} ({hint})" if isinstance(about, str) else hint

    def _first(self, key: str, sites: list[Site]) -> None:
        """Of several the first is kept: fewer bounds let no less be valid."""
        for site in sites[1:]:
            if site.value != sites[0].value:
                self._changes.lost(site, "said twice, and only one can be told")

    def _write_description(self, sites: list[Site]) -> None:
        texts: list[str] = []
        for site in sites:
            if not isinstance(site.value, str):
                self._changes.malformed(site)
            elif site.value not in texts:
                texts.append(site.value)
        if texts:
            self._out["description"] = "\n".join(texts)

    def _write_number(self, key: str, sites: list[Site]) -> None:
        value = sites[0].value
        if isinstance(value, str) and value.strip().removeprefix("-").isdecimal() and len(value) < 19:
            value = int(value)
        if isinstance(value, float) and key in COUNTS and value.is_integer():
            value = int(value)
        if key.startswith("exclusive") and isinstance(value, bool):
            self._tell(key, sites[0])
            return
        if not _is_number(value) or (key in COUNTS and (not isinstance(value, int) or value < 0)):
            self._changes.malformed(sites[0])
            return
        if value is not sites[0].value:
            self._changes.changed(sites[0], "told as a number")
        self._out[key] = value
        self._first(key, sites)

    def _refer(self, site: Site) -> None:
        out, rewriter = self._out, self._rewriter
        if self._dialect.references == "kept":
            out["$ref"] = site.value
            return
        target = rewriter.references.resolve(site.value)
        pointer = "#"
        if target is not None and target.path:
            name = rewriter.references.name(target)
            pointer = "#/$defs/" + name.replace("~", "~0").replace("/", "~1")
        if pointer != site.value:
            self._changes.changed(site, f"told as {pointer}")
        reference = {"$ref": pointer}
        rewriter.pointed[id(reference)] = (reference, site.path)
        if self._place.root or all(key.startswith("$") for key in self._members):
            self._out = reference = {**out, **reference}
            rewriter.pointed[id(reference)] = (reference, site.path)
        else:
            # Both providers refuse anything beside a reference below the root.
            self._changes.changed(site, "told in a union of one, since it may not stand beside others")
            out["anyOf"] = [reference]

    # ---- schemas inside

    def _one(self, sites: list[Site]) -> Any:
        made = self._rewriter.schema(sites, self._place.deeper())
        return False if made is None else made

    def _write_many(self, key: str, sites: list[Site]) -> None:
        site = sites[0]
        self._first(key, sites)
        if key in _NAMED and isinstance(site.value, dict):
            self._out[key] = {name: self._one([site.at(name)]) for name in site.value}
        elif key in _LISTED and isinstance(site.value, list) and site.value:
            self._out[key] = [self._one([site.at(index)]) for index in range(len(site.value))]
        else:
            self._changes.malformed(site)

    def _write_properties(self, sites: list[Site]) -> None:
        named: dict[str, list[Site]] = {}
        for site in sites:
            if not isinstance(site.value, dict):
                self._changes.malformed(site)
                continue
            for name in site.value:
                named.setdefault(name, []).append(site.at(name))
        if not named and not any(isinstance(site.value, dict) for site in sites):
            return
        made = self._out["properties"] = {}
        for name, places in named.items():
            one: Any = self._rewriter.schema(places, self._place.deeper())
            if one is None and self._dialect.keeps is None:
                made[name] = False
            elif one is None:
                self._changes.changed(places[0], "may never be given: left out")
            else:
                made[name] = one

    def _write_required(self, sites: list[Site]) -> None:
        names: dict[str, str] = {}
        declared = {
            name for site in self._members.get("properties", ()) if isinstance(site.value, dict) for name in site.value
        }
        for site in sites:
            if not isinstance(site.value, list):
                self._changes.malformed(site)
                continue
            for index, name in enumerate(site.value):
                if not isinstance(name, str) or (self._dialect.typed and name not in declared):
                    self._changes.lost(site.at(index), "not the name of a property")
                else:
                    names.setdefault(name, f"{site.path}/{index}")
        if names or any(site.value == [] for site in sites):
            self._out["required"] = list(names)
            self._rewriter.required[id(self._out)] = (self._out, names)

    def _write_union(self, sites: list[Site]) -> None:
        site, rewriter = sites[0], self._rewriter
        branches: list[Any] = []
        for other in sites[1:]:
            self._tell("anyOf", other)
        if not isinstance(site.value, list) or not site.value:
            self._changes.malformed(site)
            return
        for index in range(len(site.value)):
            branch = site.at(index)
            made = rewriter.schema([branch], self._place.deeper())
            if made is None and self._dialect.keeps is None:
                branches.append(False)
            elif made is None:
                self._changes.changed(branch, "may never be chosen: left out")
            elif self._dialect.nullable and made == {"type": "null"}:
                self._changes.changed(branch, "told as nullable")
                self._values.null = True
            else:
                branches.append(made)
        if self._values.added_null and branches and not any(may_be_null(made) for made in branches):
            branches.append({"type": "null"})
        if self._dialect.typed and any(_is_untyped(made) for made in branches):
            self._tell("anyOf", site)
        elif (
            self._dialect.nullable
            and len(branches) == 1
            and not branches[0].keys() & (self._members.keys() | self._out.keys())
        ):
            self._out.update(branches[0])
        elif branches:
            self._out["anyOf"] = branches

    def _write_items(self) -> None:
        """A tuple's places, or what may be at any of them, where the dialect knows only that."""
        rewriter, out = self._rewriter, self._out
        below = self._place.deeper(self._dialect.items)
        prefix, items = self._members.get("prefixItems", []), self._members.get("items", [])
        for site in prefix:
            if not isinstance(site.value, list) or not site.value:
                self._changes.malformed(site)
        prefix = [site for site in prefix if isinstance(site.value, list) and site.value]
        self._first("prefixItems", prefix)
        for again in [site.at(index) for site in prefix[1:] for index in range(len(site.value))]:
            if not isinstance(again.value, dict | bool):
                self._changes.lost(again, "not a schema")
        made = rewriter.schema(items, below) if items else {}
        places = [prefix[0].at(index) for index in range(len(prefix[0].value))] if prefix else []
        if not self._takes("items"):
            self._leave("items", items)
            self._leave("prefixItems", prefix)
            return
        firsts = [rewriter.schema([one], below) for one in places]
        if places and self._takes("prefixItems"):
            out["prefixItems"] = [{} if one is None else one for one in firsts]
        elif places:
            self._tell("prefixItems", prefix[0])
            if made is not None and items:
                firsts.append(made)
            kinds = [one for index, one in enumerate(firsts) if one is not None and one not in firsts[:index]]
            if made is None or items:
                out["items"] = self._either(kinds)
        if made is None:
            self._changes.changed(items[0], "told as a bound")
            if "maxItems" not in self._members and self._takes("maxItems"):
                out["maxItems"] = len(places)
        elif items and "items" not in out:
            out["items"] = made

    def _either(self, kinds: list[dict[str, Any]]) -> dict[str, Any]:
        """What is one of several."""
        if self._dialect.typed and any(_is_untyped(made) for made in kinds):
            return {}
        others = [made for made in kinds if made != {"type": "null"}]
        if not self._dialect.nullable or len(others) in (0, len(kinds)):
            return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        made = others[0] if len(others) == 1 else {"anyOf": others}
        return made if may_be_null(made) else {**made, "nullable": True}

    def _write_additional(self, sites: list[Site]) -> None:
        """What else an object may hold. Where two schemas share an object, neither may close it to the other."""
        site, closed = sites[0], self._dialect.closed
        patterns = self._members.get("patternProperties", [])
        shared = len(self._members.get("properties", ())) > 1 or len({one.path for one in sites}) > 1
        if not self._takes("additionalProperties"):
            for one in sites:
                if isinstance(one.value, bool):
                    self._changes.lost(one)
                else:
                    self._tell("additionalProperties", one)
        elif closed:
            self._out["additionalProperties"] = False
            if any(one.value is not False for one in sites):
                if closed == "unfit":
                    raise Unfit("an open map")
                self._changes.changed(site, "closed to further properties")
        elif shared and any(one.value is not True for one in sites):
            for one in sites:
                self._changes.lost(one, "would bind what another schema declares")
        elif patterns and not self._takes("patternProperties"):
            self._changes.changed(site, "opened to what the patterns allow")
            found = patterns[0].value
            if site.value is False and isinstance(found, dict) and len(found) == 1:
                self._out["additionalProperties"] = self._one([patterns[0].at(next(iter(found)))])
        elif isinstance(site.value, bool):
            self._out["additionalProperties"] = site.value
        else:
            self._out["additionalProperties"] = self._one(sites)


def _is_untyped(made: dict[str, Any]) -> bool:
    """Whether a branch of a union only binds what is declared beside it."""
    return bool(made) and not made.keys() & {"type", "anyOf", "$ref", "enum", "const"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
