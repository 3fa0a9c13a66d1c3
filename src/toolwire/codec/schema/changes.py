"""What was changed in a schema, each with its place in the source."""

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from toolwire.codec.fields import escape
from toolwire.codec.losses import elements


class Site(NamedTuple):
    """A value, and where it stands in the source."""

    value: Any
    path: str

    def at(self, step: str | int) -> "Site":
        return Site(self.value[step], f"{self.path}/{escape(str(step))}")


class Change(NamedTuple):
    kind: Literal["approximated", "dropped"]
    path: str
    why: str


class Unfit(Exception):
    """A schema that the dialect has no way to say at all."""


class Changes:
    """Each place once: what is written out twice was changed once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Change] = {}

    def __iter__(self) -> Any:
        return iter(self._found.values())

    def changed(self, site: Site, why: str) -> None:
        self._note("approximated", site, why)

    def lost(self, site: Site, why: str = "the target's schemas have no such keyword") -> None:
        self._note("dropped", site, why)

    def _note(self, kind: Literal["approximated", "dropped"], site: Site, why: str) -> None:
        """To name a list says too little: its elements."""
        named = isinstance(site.value, list)
        for path in elements(Raw(msgspec.json.encode(site.value)), site.path) if named else (site.path,):
            self._found.setdefault((kind, path), Change(kind, path, why))

    def malformed(self, site: Site) -> None:
        self.lost(site, "not what this keyword may be")
