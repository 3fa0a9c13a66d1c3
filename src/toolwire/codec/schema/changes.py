"""What was changed in a schema, each with its place in the source."""

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from toolwire.codec.losses import element_pointers
from toolwire.codec.wire.reader import escape_pointer


class SchemaLocation(NamedTuple):
    """A value, and where it stands in the source."""

    value: Any
    path: str

    def child(self, step: str | int) -> "SchemaLocation":
        return SchemaLocation(self.value[step], f"{self.path}/{escape_pointer(str(step))}")


class Change(NamedTuple):
    kind: Literal["approximated", "dropped"]
    path: str
    reason: str


class SchemaRejected(Exception):
    """A schema that the dialect has no way to say at all."""


class SchemaChanges:
    """Each place once: what is written out twice was changed once."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, str], Change] = {}

    def __iter__(self) -> Any:
        return iter(self._changes.values())

    def approximated(self, location: SchemaLocation, reason: str) -> None:
        self._record("approximated", location, reason)

    def dropped(self, location: SchemaLocation, reason: str = "the target's schemas have no such keyword") -> None:
        self._record("dropped", location, reason)

    def _record(self, kind: Literal["approximated", "dropped"], location: SchemaLocation, reason: str) -> None:
        """To name a list says too little: its elements."""
        named = isinstance(location.value, list)
        for path in (
            element_pointers(Raw(msgspec.json.encode(location.value)), location.path) if named else (location.path,)
        ):
            self._changes.setdefault((kind, path), Change(kind, path, reason))

    def malformed(self, location: SchemaLocation) -> None:
        self.dropped(location, "not what this keyword may be")
