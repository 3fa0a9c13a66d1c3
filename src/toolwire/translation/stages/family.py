"""Separate the extras of two protocols of one family, and map those that they share.

Protocols of a family share code and field names, so common fields pass unchanged. An encoder writes back all extras of
its family. Therefore extras and wire spelling that the writer does not know move to a family of their own first, and
count as losses.
"""

from operator import is_
from typing import Any, TypeVar

from msgspec.structs import replace

from toolwire.canonical.content import OpaquePart
from toolwire.canonical.events import Event, PartDeltas
from toolwire.canonical.node import Extras, Node
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, SharedExtra
from toolwire.codec.losses import node_fields

N = TypeVar("N", bound=Node)


def is_same_family(reader: Codec, writer: Codec) -> bool:
    """Return whether two different protocols belong to one family, such as two APIs that share wire fields."""
    return reader is not writer and reader.families[0] == writer.families[0]


def share_extras(reader: Codec, writer: Codec) -> bool:
    """Return whether one protocol may know extras (non-canonical wire fields) of the other.

    That is so if both belong to one family or one vendor.
    """
    if reader is writer:
        return False
    return is_same_family(reader, writer) or ("Response" in reader.vendor_extras and "Response" in writer.vendor_extras)


def isolate_foreign_extras(root: N, reader: Codec, writer: Codec) -> N:
    """Prepare the extras (non-canonical wire fields) of a decoded value for a writer of another protocol.

    Extras that the writer knows get its names. Within a protocol family, those that it does not know move to a separate
    family, so that they are reported as losses.
    """
    if is_same_family(reader, writer):
        isolated: N = _FamilyIsolation(reader, writer).isolate(root)
        return isolated
    return root if reader is writer else _map_vendor_extras(root, reader, writer)


class FamilyStage:
    """Prepares the extras of single events for a writer of the same family or vendor."""

    def __init__(self, reader: Codec, writer: Codec) -> None:
        self._reader = reader
        self._writer = writer

    def applies(self, response: Response) -> bool:
        """Return False: a complete response is one value, whose messages can have more extras than a stream's."""
        return False

    def process(self, events: list[Event]) -> list[Event]:
        """Return the events with prepared extras."""
        reader, writer = self._reader, self._writer
        return [
            event if type(event) is PartDeltas else isolate_foreign_extras(event, reader, writer) for event in events
        ]


def _map_vendor_extras(node: N, reader: Codec, writer: Codec) -> N:
    """Return the node with those extras that the vendor's other protocol has as well in the writer's format."""
    kind = type(node).__name__
    sources, targets = reader.vendor_extras.get(kind), writer.vendor_extras.get(kind)
    if sources is None or targets is None:
        return node
    extras = {family: dict(fields) for family, fields in (node.extras or {}).items()}
    for name in [name for name in sources if name in targets]:
        _map_vendor_extra(extras, sources[name], targets[name], node.wire_form)
    mapped = {family: fields for family, fields in extras.items() if fields}
    return replace(node, extras=mapped) if mapped != (node.extras or {}) else node


def _map_vendor_extra(extras: Extras, source: SharedExtra, target: SharedExtra, wire_form: tuple[str, ...]) -> None:
    """Move one extra to the target's key, unless it only repeats canonical data or cannot be converted."""
    fields = extras.get(source.family, {})
    key = next((name for name in (source.key, *source.key_aliases) if name in fields), None)
    if key is None or f"{source.family}:canonical:{key}" in wire_form:
        return
    common = source.decode(fields[key])
    if common is not None and (encoded := target.encode(common)) is not None:
        del fields[key]
        extras.setdefault(target.family, {})[target.key] = encoded


class _FamilyIsolation:
    """Moves extras and `wire_form` tokens that the writer does not know out of the family that it shares.

    They go to a family of the reader's own (`NAME:only`), so that the writer reports them instead of writing them.
    """

    def __init__(self, reader: Codec, writer: Codec) -> None:
        self._family = reader.families[0]
        self._foreign_family = f"{reader.name}:only"
        self._prefix = self._family + ":"
        self._shared_fields = writer.shared_fields
        self._shared_wire_forms = writer.shared_wire_forms

    def isolate(self, node: Any) -> Any:
        """Return the node and all nodes below it with only those extras in the shared family that the writer knows."""
        kind: type = type(node)
        if (fields := node_fields(kind)) is None:
            return node
        changes: dict[str, Any] = {}
        if node.extras and (family_extras := node.extras.get(self._family)):
            shared = self._shared_fields.get(kind.__name__, ())
            if foreign := {key: value for key, value in family_extras.items() if key not in shared}:
                changes["extras"] = self._split_extras(node.extras, foreign)
        if node.wire_form and not self._shared_wire_forms.issuperset(node.wire_form):
            changes["wire_form"] = tuple([self._rename_token(token) for token in node.wire_form])
        if kind is OpaquePart and node.protocol == self._family:
            changes["protocol"] = self._foreign_family
        for field in fields:
            before = getattr(node, field)
            if before is not None and (after := self._isolate_child(before)) is not before:
                changes[field] = after
        return replace(node, **changes) if changes else node

    def _isolate_child(self, child: Any) -> Any:
        """Isolate a node or a tuple of nodes; return the same object if nothing changes."""
        if type(child) is not tuple:
            return self.isolate(child)
        isolated = tuple([self.isolate(node) for node in child])
        return child if all(map(is_, child, isolated)) else isolated

    def _split_extras(self, extras: Extras, foreign: dict[str, Any]) -> Extras:
        """Return the extras with the `foreign` ones moved from the shared family to the reader's own."""
        shared = {key: value for key, value in extras[self._family].items() if key not in foreign}
        others = {name: values for name, values in extras.items() if name != self._family}
        return {**others, **({self._family: shared} if shared else {}), self._foreign_family: foreign}

    def _rename_token(self, token: str) -> str:
        """Return a `wire_form` token, under the reader's own family unless the writer knows it.

        A token records how the vendor spelled a value and starts with its protocol family.
        """
        if token in self._shared_wire_forms or not token.startswith(self._prefix):
            return token
        return f"{self._foreign_family}:{token.removeprefix(self._prefix)}"
