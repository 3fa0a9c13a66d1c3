"""Extras that one answer after the other has: what was found out about them is kept with them.

Collecting losses where they happen, and naming them once, as pointers into the source.

An encoder knows canonical values only. It reports a *trail* from the root of what it encodes, such as
`("messages", 2, "parts", 0)`, and a field. `resolve` walks the trail: a node's own `at`, else the wire name that the
source codec's `names` gives for the field (`"Message.parts": "/content"`; `""` for a canonical group without a wire
object of its own; `"//parallel_tool_calls"` for a field that stands at the root instead) and the index.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.loss import Loss, LossKind
from toolwire.canonical.node import Extras, Node
from toolwire.canonical.response import Response, Usage


class SharedExtras(dict[str, dict[str, Raw]]):
    """The extras of answers that a server tells alike: these of the answer itself, always the same ones of its usage,
    and no others. As all extras are, they are only read.

    `found`: what they come to, by who asked and what for.
    """

    def __init__(self, extras: Extras, wire_form: tuple[str, ...], usage: Usage) -> None:
        super().__init__(extras)
        self._wire_form = wire_form
        self._usage_extras, self._usage_wire_form = usage.extras, usage.wire_form
        self.memo: dict[Any, Any] = {}

    def matches(self, root: Node) -> bool:
        """Whether the answer still is as it was read, but for its words."""
        if type(root) is not Response or root.wire_form is not self._wire_form or (usage := root.usage) is None:
            return False
        if usage.extras is not self._usage_extras or usage.wire_form is not self._usage_wire_form:
            return False
        for candidate in root.candidates:
            if not candidate.plain:
                return False
        return root.error is None and root.continuation is None


SourcePath = tuple[str | int, ...]
WireNames = Mapping[str, str]
N = TypeVar("N", bound=Node)
FieldChanges = Sequence[tuple[Literal["approximated", "dropped"], str, str]]

_ExtraKeys = tuple[str, ...]
"""Of several extras of one value, in place of a field."""

UNLOCATED = "?"
"""Before a text that was invented, in place of where: that is known when the whole is written."""

_decode_array = msgspec.json.Decoder(list[Raw]).decode

REWORDED = ":reworded"
"""After a family: its extras are no values, but places of what is told in other words."""

LIMIT_MEMO_SIZE = 2048
LIMIT_MEMO_ENTRIES = 64
NO_COUNTERPART = "the target has no counterpart"


class LossReport:
    """The losses of one encoding, as trails. `guarded`: one of them may not be."""

    def __init__(self) -> None:
        self.has_constraint = False
        self._entries: list[tuple[LossKind, SourcePath, str | _ExtraKeys, str, str | None, bool]] = []
        self._rewritten: list[tuple[SourcePath, str, FieldChanges]] = []
        self._shared_root: Node | None = None  # of which only the words are its own

    def __bool__(self) -> bool:
        return bool(self._entries or self._rewritten)

    def dropped(
        self, path: SourcePath, field: str = "", reason: str = NO_COUNTERPART, *, constraint: bool = False
    ) -> None:
        self._entries.append(("dropped", path, field, reason, None, constraint))
        self.has_constraint = self.has_constraint or constraint

    def approximated(self, path: SourcePath, field: str, reason: str) -> None:
        self._entries.append(("approximated", path, field, reason, None, False))

    def added(self, path: SourcePath, field: str, target: str, reason: str) -> None:
        self._entries.append(("added", path, field, reason, target, False))

    def rewritten(self, path: SourcePath, field: str, changes: FieldChanges) -> None:
        """Changes inside a value that is one field, each as kind, pointer below the field, and why."""
        if changes:
            self._rewritten.append((path, field, changes))

    def include(self, other: "LossReport", below: SourcePath = ()) -> None:
        """What was reported of a part of the same, which stands below this trail."""
        for kind, trail, field, why, target, guarded in other._entries:  # noqa: SLF001
            self._entries.append((kind, below + trail, field, why, target, guarded))

    def report_foreign_extras(self, root: Node, families: tuple[str, ...]) -> None:
        """Report all extras below `root` that belong to none of these families."""
        shared = root.extras
        if type(shared) is not SharedExtras or not shared.matches(root):
            self._report_foreign_extras(root, families)
            return
        self._shared_root = root
        if (known := shared.memo.get(families)) is None:
            before = len(self._entries)
            self._report_foreign_extras(root, families)
            if not self.has_constraint:
                shared.memo[families] = self._entries[before:]
        else:
            self._entries += known

    def _report_foreign_extras(self, root: Node, families: tuple[str, ...]) -> None:
        cited = True
        for kind, trail, field, *_ in self._entries:
            if kind == "dropped" and not field and trail[-2:-1] == ("annotations",):
                cited = False
        for trail, family, kept in foreign_extras(root, families, has_citations=cited):
            guarded = family.endswith(":constraint")
            self.has_constraint = self.has_constraint or guarded
            why = "may not be dropped" if guarded else "a field that only its own protocol has"
            kind = "dropped"
            if family.endswith(REWORDED):
                kind, why = "approximated", "told by what comes nearest to it"
            self._entries.append((kind, trail, _extra_keys(kept), why, None, guarded))

    def resolve(self, root: Node, wire_names: WireNames) -> list[Loss]:
        """Each as a pointer into the source, whose names these are."""
        shared = root.extras
        if type(shared) is not SharedExtras or root is not self._shared_root or self._rewritten:
            return self._resolve(root, wire_names)
        asked: tuple[Any, ...] = (id(wire_names), *self._entries)
        if (known := shared.memo.get(asked)) is None:
            known = self._resolve(root, wire_names)
            # What lies deeper is of its words.
            if len(shared.memo) < LIMIT_MEMO_ENTRIES and all(len(trail) < 2 for _, trail, *_ in self._entries):
                shared.memo[asked] = known
        return known.copy()

    def _resolve(self, root: Node, wire_names: WireNames) -> list[Loss]:
        facts: list[_LossEntry] = []
        places: dict[SourcePath, _Location] = {}
        size = 0
        for kind, trail, field, why, target, guarded in self._entries:
            if (place := places.get(trail)) is None:
                place = places[trail] = _follow_path(root, trail, wire_names)
            if isinstance(field, tuple):
                facts.append((kind, place[1], field, why, target, guarded))
                size += len(place[1]) + len(why) + sum(map(len, field))
                continue
            for path in _field_pointers(place, field, wire_names):
                facts.append((kind, path, (), why, target, guarded))
                size += len(path) + len(why)
        for trail, field, changes in self._rewritten:
            (base,) = source_pointers(root, trail, field, wire_names)
            facts += [(change, base + below, (), why, None, False) for change, below, why in changes]
        return list(
            _build_losses_cached(*facts) if size < LIMIT_MEMO_SIZE and not self._rewritten else _build_losses(*facts)
        )


_LossEntry = tuple[LossKind, str, _ExtraKeys, str, str | None, bool]
"""The kind, where, and if several are meant that stand there, their keys; why, the target, and whether guarded."""


def _build_losses(*entries: _LossEntry) -> tuple[Loss, ...]:
    """Each thing once; and of what holds another, only itself."""
    found: dict[tuple[str, str, str | None], Loss] = {}
    for kind, base, keys, why, target, guarded in entries:
        for path in [f"{base}/{key}" for key in keys] or (base,):
            key = (kind, path, target)
            if guarded or key not in found:
                found[key] = Loss(kind=kind, path=path, reason=why, target=target, constraint=guarded)
    # What one place has no counterpart for, another may have told in other words: then it is not dropped.
    told = {path for kind, path, _ in found if kind == "approximated"}
    kept = [one for one in found.values() if one.reason != NO_COUNTERPART or one.path not in told]
    gone = {one.path for one in kept if one.kind == "dropped"}
    return tuple([one for one in kept if one.constraint or one.kind == "added" or not _is_below(one.path, gone)])


# The same is lost of one answer after the other.
_build_losses_cached = lru_cache(maxsize=1024)(_build_losses)


def _is_below(path: str, dropped: Container[str]) -> bool:
    """Whether something that holds this place is gone: that says all of it."""
    while above := path.rpartition("/")[0]:
        if above in dropped:
            return True
        path = above
    return False


def _extra_keys(extras: dict[str, Raw]) -> _ExtraKeys:
    """The keys of extras; of a list, those of its elements."""
    if b"[" in b"".join(extras.values()):
        return tuple([place for key, value in extras.items() for place in element_pointers(value, key)])
    return tuple(extras)


def element_pointers(value: Raw, pointer: str) -> list[str]:
    """The path of a value; of a list, those of its elements, since naming a list says too little."""
    found: list[str] = []
    open_values = [(value, pointer)]  # no recursion: lists may be nested as deeply as the decoder takes them
    while open_values:
        value, pointer = open_values.pop()
        if bytes(value)[:1] != b"[" or not (inner := _decode_array(value)):
            found.append(pointer)
        else:
            elements = [(element, f"{pointer}/{index}") for index, element in enumerate(inner)]
            open_values += reversed(elements)
    return found


def source_pointers(root: Node, path: SourcePath, field: str, wire_names: WireNames) -> list[str]:
    """Where the field of the node that the trail leads to stands in the source; if it is a list, its elements."""
    return _field_pointers(_follow_path(root, path, wire_names), field, wire_names)


_Location = tuple[Any, str, str]
"""What a trail leads to, and where it stands; of a list, also the name of its elements' field."""


def _follow_path(root: Node, source_path: SourcePath, wire_names: WireNames) -> _Location:
    if not source_path:
        return root, "", ""
    node: Any = root
    path = ""
    steps = iter(source_path)
    for step in steps:
        owner, name = node, str(step)
        node = getattr(owner, name)
        place = _wire_pointer(owner, name, wire_names)
        if isinstance(node, tuple):
            index = next(steps, None)
            if index is None:
                return node, path, place
            if int(index) >= len(node):
                return owner, path, ""  # it was put there by whoever encodes
            node = node[int(index)]
            place = f"{place}/{index}" if place else ""
        at = getattr(node, "at", None)
        place = place if at is None else at
        path = place[1:] if place.startswith("//") else path + place
    return node, path, ""


def _field_pointers(location: _Location, field: str, wire_names: WireNames) -> list[str]:
    node, path, place = location
    if isinstance(node, tuple):
        return _tuple_pointers(node, path, place)
    if field.startswith("//"):
        return [f"{path}/{field[2:]}"]
    if not field:
        return [path]
    place = _wire_pointer(node, field, wire_names)
    if place.startswith("//"):
        path, place = "", place[1:]
    value: Any = getattr(node, field, None)
    if not isinstance(value, tuple) or any(token.endswith(f":{field}:string") for token in node.wire_form):
        value = ()
    return _tuple_pointers(value, path, place)


def _tuple_pointers(values: tuple[Any, ...], path: str, wire_pointer: str) -> list[str]:
    if not values:
        return [path + wire_pointer]
    ats = [element.at if isinstance(element, Node) else None for element in values]
    return [path + (at if at is not None else f"{wire_pointer}/{index}") for index, at in enumerate(ats)]


def _wire_pointer(node: Node, field: str, wire_names: WireNames) -> str:
    """The wire name of a field, as a pointer. A decoder that met another spelling of it says so in `form`."""
    if node.wire_form:
        mark = f":name:{field}="
        for token in node.wire_form:
            if mark in token:
                return "/" + token.split(mark, 1)[1]
    return wire_names.get(f"{type(node).__name__}.{field}", "/" + field)


def with_source_positions(owner: N, wire_names: WireNames, field: str = "parts") -> N:
    """The same with each element of a list told where it stands, so that others may be put between them."""
    place = _wire_pointer(owner, field, wire_names)
    elements = enumerate(getattr(owner, field))
    fixed = [one if one.at is not None else replace(one, at=f"{place}/{index}") for index, one in elements]
    return replace(owner, **{field: tuple(fixed)})


def has_extras(value: Any) -> bool:
    """Whether there are extras of any family in a value."""
    kind: type = type(value)
    if (fields := node_fields(kind)) is None:
        return False
    if value.extras:
        return True
    for field in fields:
        child = getattr(value, field)
        if type(child) is tuple:
            for element in child:
                if has_extras(element):
                    return True
        elif child is not None and has_extras(child):
            return True
    return False


ForeignExtras = list[tuple[SourcePath, str, dict[str, Raw]]]


def foreign_extras(root: Node, families: Container[str], *, has_citations: bool = True) -> ForeignExtras:
    """By trail and family: those of a value. What a family `...:constraint` holds may not be dropped. Those that
    `form` calls told are only there to be written back: what they say is canonical, too. So is what it calls cited,
    where citations arrived."""
    found: ForeignExtras = []
    _collect_foreign_extras(root, (), families, found, has_citations)
    return found


def _collect_foreign_extras(
    value: Any,
    path: SourcePath,
    families: Container[str],
    collected: ForeignExtras,
    has_citations: bool,  # noqa: FBT001 - called for every node
) -> None:
    if value.extras:
        marks = " ".join(value.wire_form)
        marked = ":canonical:" in marks or ":cited:" in marks
        for family, kept in value.extras.items():
            if family not in families:
                own = _without_canonical(kept, family, value.wire_form, has_citations=has_citations) if marked else kept
                if own:
                    collected.append((path, family, own))
    for field in _NODE_FIELD_GETTERS[type(value)][0]:
        if not (child := getattr(value, field)):
            continue
        if type(child) is tuple:
            for index, element in enumerate(child):
                _, get, nothing = _NODE_FIELD_GETTERS[type(element)]
                if get(element) != nothing:  # a trail is only made where it may lead to something
                    _collect_foreign_extras(element, (*path, field, index), families, collected, has_citations)
        else:
            _, get, nothing = _NODE_FIELD_GETTERS[type(child)]
            if get(child) != nothing:
                _collect_foreign_extras(child, (*path, field), families, collected, has_citations)


class _NodeFieldGetters(dict[type, tuple[tuple[str, ...], Callable[[Any], Any], Any]]):
    """By type: the fields of `children`; and how to get at once what is in them and in extras, which for most parts
    gives this: nothing. Of what is no canonical value, there is nothing to get."""

    def __missing__(self, kind: type) -> tuple[tuple[str, ...], Callable[[Any], Any], Any]:
        fields = node_fields(kind)
        if fields is None:
            found: tuple[tuple[str, ...], Callable[[Any], Any], Any] = ((), lambda _: None, None)
        else:
            get, nothing = attrgetter("extras", *fields), (None,) * (1 + len(fields)) if fields else None
            found = fields, get, nothing
            if hasattr(kind, "plain"):
                found = fields, lambda value: nothing if value.plain else get(value), nothing
        self[kind] = found
        return found


_NODE_FIELD_GETTERS = _NodeFieldGetters()


def _without_canonical(
    extras: dict[str, Raw], family: str, wire_form: Container[str], *, has_citations: bool
) -> dict[str, Raw]:
    words = ("canonical", "cited") if has_citations else ("canonical",)
    return {key: raw for key, raw in extras.items() if not any(f"{family}:{word}:{key}" in wire_form for word in words)}


def holds_constraint(root: Node, families: Container[str]) -> bool:
    """Whether something below may not be dropped, and would be."""
    _, get, nothing = _NODE_FIELD_GETTERS[type(root)]
    if get(root) == nothing:
        return False
    return any(family.endswith(":constraint") for _, family, _ in foreign_extras(root, families))


@cache
def node_fields(kind: type) -> tuple[str, ...] | None:
    """The fields of a canonical type that can hold other canonical values; None if it is no canonical type."""
    if not issubclass(kind, Node):
        return None
    hints = get_type_hints(kind)
    return tuple(spec.name for spec in msgspec.structs.fields(kind) if _holds_nodes(hints[spec.name]))


def _holds_nodes(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType, tuple):
        return any(_holds_nodes(member) for member in get_args(hint))
    return isinstance(hint, type) and issubclass(hint, Node)
