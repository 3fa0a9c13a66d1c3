"""Changes made to a schema, each with its location in the source."""

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from toolwire.codec.losses import element_pointers
from toolwire.codec.wire.reader import escape_pointer


class SchemaLocation(NamedTuple):
    """A value in the source schema, and its JSON pointer."""

    value: Any
    path: str

    def child(self, step: str | int) -> "SchemaLocation":
        """Return the location of a member or an element."""
        return SchemaLocation(self.value[step], f"{self.path}/{escape_pointer(str(step))}")


class Change(NamedTuple):
    """One change to a schema."""

    kind: Literal["approximated", "dropped"]
    path: str
    reason: str


class SchemaRejected(Exception):
    """Raised for a schema that the dialect cannot express at all."""


class SchemaChanges:
    """The changes to a schema; each location is recorded once, even if it is written several times."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, str], Change] = {}

    def __iter__(self) -> Any:
        return iter(self._changes.values())

    def approximated(self, location: SchemaLocation, reason: str) -> None:
        """Record a keyword that is written in another form."""
        self._record("approximated", location, reason)

    def dropped(
        self, location: SchemaLocation, reason: str = "the target does not support this schema keyword"
    ) -> None:
        """Record a keyword that is left out."""
        self._record("dropped", location, reason)

    def _record(self, kind: Literal["approximated", "dropped"], location: SchemaLocation, reason: str) -> None:
        """Record a change; for a list, one for each element."""
        is_list = isinstance(location.value, list)
        for path in (
            element_pointers(Raw(msgspec.json.encode(location.value)), location.path) if is_list else (location.path,)
        ):
            self._changes.setdefault((kind, path), Change(kind, path, reason))

    def malformed(self, location: SchemaLocation) -> None:
        """Record a keyword that is left out because of an invalid value."""
        self.dropped(location, "invalid value for this schema keyword")
