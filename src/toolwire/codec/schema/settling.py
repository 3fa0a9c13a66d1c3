"""What a dialect asks of a schema as a whole, once its keywords are written."""

from typing import Any, NamedTuple

from .changes import Changes, Site, Unfit
from .dialect import Place
from .values import may_be_null

# What belongs to values of one type only.
_OF_TYPE = {
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties", "propertyOrdering", "minProperties", "maxProperties"),
    "string": ("enum", "format", "pattern", "minLength", "maxLength"),
}


class Settling(NamedTuple):
    """`out` is what is written, `origin` where the schema stands."""

    changes: Changes
    members: dict[str, list[Site]]
    place: Place
    origin: Site
    out: dict[str, Any]

    def settle(self, types: list[str]) -> None:
        if "object" in types or "properties" in self.out:
            self._complete()
            self._close()
        if self.place.dialect.typed:
            self._require(types)
        self._split(types)

    def _complete(self) -> None:
        if not self.place.dialect.complete:
            return
        out = self.out
        required = out.setdefault("required", [])
        for name, made in out.setdefault("properties", {}).items():
            if name not in required:
                required.append(name)
                out["properties"][name] = _nullable(made)
                for site in self.members.get("properties", ()):
                    if isinstance(site.value, dict) and name in site.value:
                        self.changes.changed(site.at(name), "told as required: null where it is absent")

    def _close(self) -> None:
        closed, out = self.place.dialect.closed, self.out
        if not closed or out.get("additionalProperties") is False:
            return
        bare = "properties" not in self.members and not self.place.root
        if closed == "unfit" and (bare or "patternProperties" in self.members):
            raise Unfit("an open map")
        out["additionalProperties"] = False
        self.changes.changed(self.origin, "closed to further properties")

    def _require(self, types: list[str]) -> None:
        """What a typed dialect can't do without."""
        out = self.out
        if "array" in types and "items" not in out:
            if self.place.dialect.closed:
                raise Unfit("an array of anything")
            out["items"] = {}
            self.changes.changed(self.origin, "the target wants items for an array")
        if self.place.dialect.closed and not out.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
            raise Unfit("a value of any type")
        if self.place.dialect.closed and self.place.root and (types != ["object"] or "anyOf" in out):
            raise Unfit("not an object")

    def _split(self, types: list[str]) -> None:
        """Where one word for a type is all there may be, a union of several, each with what belongs to it."""
        out = self.out
        if not self.place.dialect.nullable or len(types) < 2 or "type" in out:
            return
        for site in self.members["type"]:
            self.changes.changed(site, "told as a union")
        if "anyOf" in out:
            return
        branches: list[dict[str, Any]] = [{"type": word} for word in types]
        for branch in branches:
            for key in _OF_TYPE.get(branch["type"], ()):
                if key in out:
                    branch[key] = out.pop(key)
        out["anyOf"] = branches


def _nullable(made: dict[str, Any]) -> dict[str, Any]:
    if may_be_null(made):
        return made
    if "const" in made or "$ref" in made or ("anyOf" in made and "type" in made):
        return {"anyOf": [made, {"type": "null"}]}
    made = dict(made)
    if "anyOf" in made:
        made["anyOf"] = [*made["anyOf"], {"type": "null"}]
    elif "type" in made:
        words = made["type"]
        made["type"] = [*([words] if isinstance(words, str) else words), "null"]
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return made
