"""One schema in the words of a dialect: what all its parts say together, wherever they stand, written anew in order.

Several schemas that hold at once (`allOf`, a reference and what stands beside it) are gathered to one. What can't be
said is left out, so that what was valid stays valid, and told in the description where it helps. Each change has its
place in the source. Cost is bounded: references are written out so often only, and nothing is followed too deep.
"""

from collections import deque
from typing import Any

from .changes import Changes, Site, Unfit
from .cycles import is_recursive, loosen
from .dialect import ANNOTATIONS, Dialect, Place
from .references import DEFINITIONS, References
from .writer import Writer

LIMIT_DEPTH = 60
LIMIT_WRITTEN_OUT = 2_000


class Rewriter:
    def __init__(self, tree: Any, dialect: Dialect) -> None:
        self.tree = tree
        self.dialect = dialect
        self.references = References(tree)
        self.required: dict[int, tuple[Any, dict[str, str]]] = {}
        self.pointed: dict[int, tuple[Any, str]] = {}
        self.changes = Changes()
        self._definitions: list[Site] = []
        self._left = LIMIT_WRITTEN_OUT

    # ---- the whole

    def rewrite(self) -> Any:
        root = self.schema([Site(self.tree, "")], Place(self.dialect, root=True)) or {}
        if self.dialect.references == "definitions":
            self._define(root)
        if self.dialect.closed == "unfit" and not self.dialect.recursive and is_recursive(root, self.references):
            raise Unfit("it leads back to itself")
        if self.dialect.unrolled:
            loosen(root, self.required, self.pointed, self.changes)
        for definitions in self._definitions:
            for name in definitions.value:
                if (definition := definitions.at(name)).path not in self.references.used:
                    self.changes.lost(definition, "a definition that nothing refers to")
        return root

    def _define(self, root: dict[str, Any]) -> None:
        """Definitions, at the root; writing one may ask for others."""
        done = 0
        while len(self.references.names) > done:
            for path, name in list(self.references.names.items())[done:]:
                done += 1
                site = self.references.resolve("#" + path)
                made = None if site is None else self.schema([site], Place(self.dialect, 1))
                root.setdefault("$defs", {})[name] = {} if made is None else made

    # ---- one schema

    def schema(self, sites: list[Site], place: Place) -> dict[str, Any] | None:
        """One schema that says what all of these say; None if nothing is valid."""
        if place.depth > LIMIT_DEPTH:
            if self.dialect.closed == "unfit":
                raise Unfit("too deep")
            for site in sites:
                self.changes.lost(site, "too deep")
            return {}
        gathering = Gathering(self, place)
        if not gathering.gather(sites):
            return None
        return Writer(self, gathering.members, place._replace(trail=gathering.trail), sites[0]).write()

    def affordable(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def define(self, site: Site) -> None:
        self._definitions.append(site)


class Gathering:
    """The keywords of schemas that hold at once, each with all the places that say it."""

    def __init__(self, rewriter: Rewriter, place: Place) -> None:
        self.members: dict[str, list[Site]] = {}
        self.trail = place.trail
        self._rewriter = rewriter
        self._changes = rewriter.changes
        self._place = place
        self._here: set[str] = set()
        self._waiting: deque[Site] = deque()

    def gather(self, sites: list[Site]) -> bool:
        """Whether anything can be valid."""
        self._waiting.extend(sites)
        while self._waiting:
            site = self._waiting.popleft()
            if site.value is False:
                for lost in (one for held in self.members.values() for one in held):
                    self._changes.lost(lost, "beside what is never valid")
                return False
            if site.value is True:
                self._changes.changed(site, "told as an empty schema")
            elif isinstance(site.value, dict):
                alone = len(sites) == 1 and not self._waiting and not self.members
                for key in site.value:
                    self._read(key, site, alone=alone)
            else:
                self._changes.lost(site, "not a schema")
        return True

    def _read(self, key: str, owner: Site, *, alone: bool) -> None:
        site, takes = owner.at(key), self._takes
        match key:
            case "$ref":
                self._refer(site, owner, alone=alone)
            case "allOf" if not takes(key) and isinstance(site.value, list):
                self._changes.changed(site, "told as one schema")
                self._waiting += [site.at(index) for index in range(len(site.value))]
            case "$defs" | "definitions" if self._place.dialect.references != "kept" and isinstance(site.value, dict):
                self._define(key, site)
            case "$defs" if self._place.dialect.references != "kept" and "definitions" in owner.value:
                self._changes.malformed(site)
            case "oneOf" if not takes(key) and takes("anyOf"):
                self._changes.changed(site, "told as anyOf")
                self._add("anyOf", site)
            case "const" if not takes(key) and takes("enum"):
                self._changes.changed(site, "told as an enum of one")
                self._add("enum", Site([site.value], site.path))
            case "items" if isinstance(site.value, list):
                self._changes.changed(site, "told as prefixItems")
                self._add("prefixItems", site)
            case "additionalItems" if isinstance(owner.value.get("items"), list):
                self._changes.changed(site, "told as items")
                self._add("items", site)
            case _:
                self._add(key, site)

    def _takes(self, keyword: str) -> bool:
        return self._place.dialect.takes(keyword, root=self._place.root)

    def _add(self, key: str, site: Site) -> None:
        self.members.setdefault(key, []).append(site)

    def _define(self, key: str, site: Site) -> None:
        if self._place.root and self._place.dialect.references == "definitions":
            if key == "definitions":
                self._changes.changed(site, "told as $defs")
            self._add("$defs", site)
            for name in site.value:
                self._rewriter.references.name(site.at(name))
        else:
            self._rewriter.define(site)

    def _refer(self, site: Site, owner: Site, *, alone: bool) -> None:
        mode, rewriter = self._place.dialect.references, self._rewriter
        target = rewriter.references.resolve(site.value)
        if target is None:
            self._cut(site, "leads nowhere within the schema", dropped=True)
        elif mode == "kept" or (mode == "definitions" and alone and _is_plain(owner) and not self._must_be_object()):
            self._add("$ref", site)
        elif target.path in self._here:
            self._changes.changed(site, "written out where it is used")
        elif target.path in self.trail:
            self._cut(site, "leads back to itself: left open")
            if isinstance(target.value, dict) and isinstance(target.value.get("type"), str):
                self._add("type", target.at("type"))
        elif not rewriter.affordable():
            self._cut(site, "too much to write out: left open")
        else:
            self._changes.changed(site, "written out where it is used")
            self._here.add(target.path)
            self.trail |= {target.path}
            self._waiting.append(target)

    def _must_be_object(self) -> bool:
        return self._place.root and self._rewriter.dialect.closed == "unfit"

    def _cut(self, site: Site, why: str, *, dropped: bool = False) -> None:
        if self._rewriter.dialect.closed == "unfit":
            raise Unfit(f"a reference {why}")
        if dropped:
            self._changes.lost(site, why)
        else:
            self._changes.changed(site, why)


def _is_plain(owner: Site) -> bool:
    """Whether a reference stands beside nothing that binds values."""
    return all(key in ANNOTATIONS or key.startswith("$") or key in DEFINITIONS for key in owner.value)
