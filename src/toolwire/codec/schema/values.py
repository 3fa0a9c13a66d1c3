"""Which values a schema names: their types, an enum, and null in its three spellings."""

from collections.abc import Callable
from typing import Any

from .changes import Changes, Site
from .dialect import Place

# In the order of Google's enumeration, whose numbers some clients write.
TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")

_WORDS: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}


class Values:
    """`null`: to be told by the keyword `nullable`; `added_null`: that keyword was met where null is a type."""

    def __init__(
        self,
        members: dict[str, list[Site]],
        place: Place,
        origin: Site,
        changes: Changes,
        tell: Callable[[str, Site], None],
    ) -> None:
        self.types: list[str] | None = None
        self.null = False
        self.added_null = False
        self._members = members
        self._place = place
        self._origin = origin
        self._dialect = place.dialect
        self._changes = changes
        self._tell = tell
        self._listed = False
        self._values: list[Any] | None = None
        self._union = False

    # ---- read

    def read(self) -> None:
        self._read_types()
        self._read_nullable()
        for site in self._members.get("enum", ())[:1]:
            self._read_enum(site)

    def _read_types(self) -> None:
        sites = self._members.get("type", [])
        for site in sites:
            words = self._words(site)
            both = [word for word in words if word in (self.types or words) or _is_part(word, self.types or [])]
            if words and not both:
                self._changes.lost(site, "nothing is of both types")
            elif words:
                self.types = both
        if self.types is None:
            return
        self._listed = isinstance(sites[0].value, list)
        if self._dialect.nullable and "null" in self.types and len(self.types) > 1:
            self.types.remove("null")
            self.null = True
            self._changes.changed(sites[0], "null is told as nullable")
        if self._place.root and self._dialect.root is not None and self._listed:
            self.types, self._listed = ["object"], False
            self._changes.changed(sites[0], "told as an object")

    def _words(self, site: Site) -> list[str]:
        places = [site.at(index) for index in range(len(site.value))] if isinstance(site.value, list) else [site]
        words: list[str] = []
        for place in places:
            word = place.value.lower() if isinstance(place.value, str) else None
            if type(place.value) is int and 0 < place.value <= len(TYPES):
                word = TYPES[place.value - 1]
            if word not in TYPES:
                self._changes.lost(place, "not a type")
                continue
            if word != place.value:
                self._changes.changed(place, f"told as {word}")
            if word not in words:
                words.append(word)
        return words

    def _read_nullable(self) -> None:
        for site in self._members.get("nullable", ())[:1]:
            if not isinstance(site.value, bool):
                self._changes.malformed(site)
            elif self._takes("nullable"):
                self.null = self.null or site.value is True
            elif site.value is True:
                self._changes.changed(site, "told as a type")
                self.added_null = True
                if self.types is not None and "null" not in self.types:
                    self.types.append("null")
            else:
                self._changes.lost(site)

    def _read_enum(self, site: Site) -> None:
        if not isinstance(site.value, list) or not site.value:
            self._changes.malformed(site)
            return
        values = list(site.value)
        for other in self._members["enum"][1:]:
            self._changes.lost(other, "said twice, and only one can be told")
        if self.added_null and None not in values:
            values.append(None)
        if not self._takes("enum"):
            self._tell("enum", _told(site))
        elif self._dialect.enumerable is None:
            self._values = values
        else:
            self._name([value for value in values if value is not None], site, null=None in values)

    def _name(self, values: list[Any], site: Site, *, null: bool) -> None:
        """The values, if they are such as the dialect can name; else their type."""
        kinds = {type(value) for value in values}
        if not kinds <= set(self._dialect.enumerable or ()):
            self._tell("enum", _told(site))
            if len(kinds) == 1 and self.types is None:
                self.types = [_WORDS[kinds.pop()]]
                self._add_null(null=null)
            return
        if self._dialect.typed and self.types is None and kinds == {str}:
            self.types = ["string"]
            self._changes.changed(site, "the target wants a type")
        self._values = values or None
        if null:
            self._changes.changed(self._origin, "null is told beside the enum")
            if self._dialect.nullable:
                self._add_null(null=True)
            elif not values:
                self.types, self._listed = ["null"], False
            elif self.types is None or "null" in self.types:
                self._unite(site)

    def _add_null(self, *, null: bool) -> None:
        if null and self._dialect.nullable:
            self.null = True
        elif null and self.types is not None and "null" not in self.types:
            self.types.append("null")

    def _unite(self, site: Site) -> None:
        """An enum that may be null, as a union with null."""
        if "anyOf" in self._members or "$ref" in self._members:
            self._values = None
            self._tell("enum", _told(site))
        else:
            self._union = True

    def _takes(self, key: str) -> bool:
        return self._dialect.takes(key, root=self._place.root)

    # ---- write

    def write(self, key: str, out: dict[str, Any]) -> None:
        if key == "nullable":
            if self._takes(key) and isinstance(value := self._members[key][0].value, bool):
                out[key] = value
            return
        if self._union:
            words = [word for word in self.types or () if word != "null"]
            named = {"type": words[0] if len(words) == 1 else words} if words else {}
            out["anyOf"] = [{**named, "enum": self._values}, {"type": "null"}]
            return
        if self.types is not None and "type" not in out and self._takes("type"):
            single = len(self.types) == 1 and (not self._listed or self._dialect.nullable)
            if single or not self._dialect.nullable:
                out["type"] = self.types[0] if single else list(self.types)
        if key == "enum" and self._values is not None:
            out["enum"] = self._values

    def finish(self, out: dict[str, Any]) -> None:
        if self.null and self._dialect.nullable and not may_be_null(out):
            out["nullable"] = True


def may_be_null(made: dict[str, Any]) -> bool:
    """Whether null is surely among what a written schema lets be valid."""
    if made.get("nullable") is True:
        return True
    if "$ref" in made or "const" in made or ("enum" in made and None not in made["enum"]):
        return False
    if "anyOf" in made and not any(may_be_null(branch) for branch in made["anyOf"]):
        return False
    words = made.get("type", "null")
    return words == "null" or (isinstance(words, list) and "null" in words)


def _is_part(word: str, types: list[str]) -> bool:
    return word == "integer" and "number" in types


def _is_constant(site: Site) -> bool:
    """Whether an enum of one stands where the source has a constant."""
    return site.path.endswith("/const")


def _told(site: Site) -> Site:
    return Site(site.value[0], site.path) if _is_constant(site) else site
