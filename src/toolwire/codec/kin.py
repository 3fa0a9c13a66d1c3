"""Between two protocols of one family: what the other one does not know is set apart, so that it is a loss there.

They are read and written by the same code, under the same names, so that what both have passes as it is. An encoder
writes all of its family back: so before it sees a value of its relative, whatever it does not know is given to a family
of its own, and so is spelling, which only counts at home.
"""

from typing import Any, TypeVar

from msgspec.structs import replace

from toolwire.canonical.content import Foreign
from toolwire.canonical.node import Extras, Node
from toolwire.canonical.response import Response

from .interface import Codec
from .losses import children
from .probabilities import hand_on

N = TypeVar("N", bound=Node)


def are_kin(reader: Codec, writer: Codec) -> bool:
    return reader is not writer and reader.families[0] == writer.families[0]


def are_related(reader: Codec, writer: Codec) -> bool:
    """Whether something is to be done to an answer between them: they are kin, or have one vendor."""
    alike = reader.alike.keys() & writer.alike.keys() - {"Request"}
    return are_kin(reader, writer) or (reader is not writer and bool(alike))


def set_apart(root: N, reader: Codec, writer: Codec) -> N:
    """The value as `writer` is to have it; the same one if it is no relative's."""
    made: Any = root
    if are_kin(reader, writer):
        made = _Apart(reader, writer).value(root)
    elif reader is not writer:
        made = _handed_on(root, reader, writer)
    if type(made) is Response and (here := reader.probabilities) and (there := writer.probabilities):
        made = hand_on(made, here, there)
    handed: N = made
    return handed


def _handed_on(node: N, reader: Codec, writer: Codec) -> N:
    """Extras that the writer has, too, as its own."""
    ours, theirs = reader.alike.get(type(node).__name__), writer.alike.get(type(node).__name__)
    if ours is None or theirs is None:
        return node
    extras = {family: dict(kept) for family, kept in (node.extras or {}).items()}
    for word in [word for word in ours if word in theirs]:
        here, there = ours[word], theirs[word]
        kept = extras.get(here.family, {})
        key = next((name for name in (here.key, *here.spelt) if name in kept), None)
        common = None if key is None or f"{here.family}:told:{key}" in node.form else here.read(kept[key])
        if key is not None and common is not None and (told := there.write(common)) is not None:
            del kept[key]
            extras.setdefault(there.family, {})[there.key] = told
    left = {family: kept for family, kept in extras.items() if kept}
    return replace(node, extras=left) if left != (node.extras or {}) else node


class _Apart:
    def __init__(self, reader: Codec, writer: Codec) -> None:
        self._family = reader.families[0]
        self._own = f"{reader.name} itself"
        self._prefix = self._family + ":"
        self._known = writer.known
        self._spelling = writer.spelling

    def value(self, node: Any) -> Any:
        kind: type = type(node)
        if (fields := children(kind)) is None:
            return node
        changed: dict[str, Any] = {}
        if node.extras and (kept := node.extras.get(self._family)):
            known = self._known.get(kind.__name__, ())
            if apart := {key: value for key, value in kept.items() if key not in known}:
                changed["extras"] = self._divided(node.extras, apart)
        if node.form and not self._spelling.issuperset(node.form):
            changed["form"] = tuple([self._renamed(token) for token in node.form])
        if kind is Foreign and node.protocol == self._family:
            changed["protocol"] = self._own
        for field in fields:
            before = getattr(node, field)
            if type(before) is tuple:
                after: Any = tuple([self.value(one) for one in before])
                if any(one is not other for one, other in zip(before, after, strict=True)):
                    changed[field] = after
            elif before is not None and (after := self.value(before)) is not before:
                changed[field] = after
        return replace(node, **changed) if changed else node

    def _divided(self, extras: Extras, apart: dict[str, Any]) -> Extras:
        kept = {key: value for key, value in extras[self._family].items() if key not in apart}
        others = {name: values for name, values in extras.items() if name != self._family}
        return {**others, **({self._family: kept} if kept else {}), self._own: apart}

    def _renamed(self, token: str) -> str:
        if token in self._spelling or not token.startswith(self._prefix):
            return token
        return f"{self._own}:{token.removeprefix(self._prefix)}"
