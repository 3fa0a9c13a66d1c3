"""Between two protocols of one family: what the other one does not know is set apart, so that it is a loss there.

They are read and written by the same code, under the same names, so that what both have passes as it is. An encoder
writes all of its family back: so before it sees a value of its relative, whatever it does not know is given to a family
of its own, and so is spelling, which only counts at home.
"""

from typing import Any, TypeVar

from msgspec.structs import replace

from toolwire.canonical.content import OpaquePart
from toolwire.canonical.node import Extras, Node
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec
from toolwire.codec.losses import node_fields
from toolwire.translation.stages.logprobs import move_logprobs

N = TypeVar("N", bound=Node)


def is_same_family(reader: Codec, writer: Codec) -> bool:
    return reader is not writer and reader.families[0] == writer.families[0]


def share_extras(reader: Codec, writer: Codec) -> bool:
    """Whether something is to be done to an answer between them: they are kin, or have one vendor."""
    alike = reader.vendor_extras.keys() & writer.vendor_extras.keys() - {"Request"}
    return is_same_family(reader, writer) or (reader is not writer and bool(alike))


def isolate_foreign_extras(root: N, reader: Codec, writer: Codec) -> N:
    """The value as `writer` is to have it; the same one if it is no relative's."""
    made: Any = root
    if is_same_family(reader, writer):
        made = _FamilyIsolation(reader, writer).isolate(root)
    elif reader is not writer:
        made = _map_vendor_extras(root, reader, writer)
    if type(made) is Response and (here := reader.logprobs) and (there := writer.logprobs):
        made = move_logprobs(made, here, there)
    handed: N = made
    return handed


def _map_vendor_extras(node: N, reader: Codec, writer: Codec) -> N:
    """Extras that the writer has, too, as its own."""
    ours, theirs = reader.vendor_extras.get(type(node).__name__), writer.vendor_extras.get(type(node).__name__)
    if ours is None or theirs is None:
        return node
    extras = {family: dict(kept) for family, kept in (node.extras or {}).items()}
    for word in [word for word in ours if word in theirs]:
        here, there = ours[word], theirs[word]
        kept = extras.get(here.family, {})
        key = next((name for name in (here.key, *here.key_aliases) if name in kept), None)
        common = None if key is None or f"{here.family}:canonical:{key}" in node.wire_form else here.decode(kept[key])
        if key is not None and common is not None and (told := there.encode(common)) is not None:
            del kept[key]
            extras.setdefault(there.family, {})[there.key] = told
    left = {family: kept for family, kept in extras.items() if kept}
    return replace(node, extras=left) if left != (node.extras or {}) else node


class _FamilyIsolation:
    def __init__(self, reader: Codec, writer: Codec) -> None:
        self._family = reader.families[0]
        self._foreign_family = f"{reader.name}:only"
        self._prefix = self._family + ":"
        self._shared_fields = writer.shared_fields
        self._shared_wire_forms = writer.shared_wire_forms

    def isolate(self, node: Any) -> Any:
        kind: type = type(node)
        if (fields := node_fields(kind)) is None:
            return node
        changed: dict[str, Any] = {}
        if node.extras and (kept := node.extras.get(self._family)):
            known = self._shared_fields.get(kind.__name__, ())
            if apart := {key: value for key, value in kept.items() if key not in known}:
                changed["extras"] = self._split_extras(node.extras, apart)
        if node.wire_form and not self._shared_wire_forms.issuperset(node.wire_form):
            changed["wire_form"] = tuple([self._rename_token(token) for token in node.wire_form])
        if kind is OpaquePart and node.protocol == self._family:
            changed["protocol"] = self._foreign_family
        for field in fields:
            before = getattr(node, field)
            if type(before) is tuple:
                after: Any = tuple([self.isolate(one) for one in before])
                if any(one is not other for one, other in zip(before, after, strict=True)):
                    changed[field] = after
            elif before is not None and (after := self.isolate(before)) is not before:
                changed[field] = after
        return replace(node, **changed) if changed else node

    def _split_extras(self, extras: Extras, foreign: dict[str, Any]) -> Extras:
        kept = {key: value for key, value in extras[self._family].items() if key not in foreign}
        others = {name: values for name, values in extras.items() if name != self._family}
        return {**others, **({self._family: kept} if kept else {}), self._foreign_family: foreign}

    def _rename_token(self, token: str) -> str:
        if token in self._shared_wire_forms or not token.startswith(self._prefix):
            return token
        return f"{self._foreign_family}:{token.removeprefix(self._prefix)}"
