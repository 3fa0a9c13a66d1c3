"""Collecting losses where they happen, and naming them once, as pointers into the source.

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
from toolwire.canonical.node import Node

from .shared import SharedExtras

Trail = tuple[str | int, ...]
Names = Mapping[str, str]
N = TypeVar("N", bound=Node)
Changes = Sequence[tuple[Literal["approximated", "dropped"], str, str]]

_Keys = tuple[str, ...]
"""Of several extras of one value, in place of a field."""

UNPLACED = "?"
"""Before a text that was invented, in place of where: that is known when the whole is written."""

_decode_array = msgspec.json.Decoder(list[Raw]).decode

REWORDED = ":reworded"
"""After a family: its extras are no values, but places of what is told in other words."""

LIMIT_REMEMBERED = 2048
LIMIT_FOUND = 64
NO_COUNTERPART = "the target has no counterpart"


class Report:
    """The losses of one encoding, as trails. `guarded`: one of them may not be."""

    def __init__(self) -> None:
        self.guarded = False
        self._entries: list[tuple[LossKind, Trail, str | _Keys, str, str | None, bool]] = []
        self._rewritten: list[tuple[Trail, str, Changes]] = []
        self._alike: Node | None = None  # of which only the words are its own

    def __bool__(self) -> bool:
        return bool(self._entries or self._rewritten)

    def dropped(self, trail: Trail, field: str = "", why: str = NO_COUNTERPART, *, guarded: bool = False) -> None:
        self._entries.append(("dropped", trail, field, why, None, guarded))
        self.guarded = self.guarded or guarded

    def approximated(self, trail: Trail, field: str, why: str) -> None:
        self._entries.append(("approximated", trail, field, why, None, False))

    def invented(self, trail: Trail, field: str, target: str, why: str) -> None:
        self._entries.append(("invented", trail, field, why, target, False))

    def rewritten(self, trail: Trail, field: str, changes: Changes) -> None:
        """Changes inside a value that is one field, each as kind, pointer below the field, and why."""
        if changes:
            self._rewritten.append((trail, field, changes))

    def include(self, other: "Report", below: Trail = ()) -> None:
        """What was reported of a part of the same, which stands below this trail."""
        for kind, trail, field, why, target, guarded in other._entries:  # noqa: SLF001
            self._entries.append((kind, below + trail, field, why, target, guarded))

    def unclaimed(self, root: Node, families: tuple[str, ...]) -> None:
        """Report all extras below `root` that belong to none of these families."""
        shared = root.extras
        if type(shared) is not SharedExtras or not shared.are_all_of(root):
            self._unclaimed(root, families)
            return
        self._alike = root
        if (known := shared.found.get(families)) is None:
            before = len(self._entries)
            self._unclaimed(root, families)
            if not self.guarded:
                shared.found[families] = self._entries[before:]
        else:
            self._entries += known

    def _unclaimed(self, root: Node, families: tuple[str, ...]) -> None:
        cited = True
        for kind, trail, field, *_ in self._entries:
            if kind == "dropped" and not field and trail[-2:-1] == ("annotations",):
                cited = False
        for trail, family, kept in foreign_extras(root, families, cited=cited):
            guarded = family.endswith(":guarded")
            self.guarded = self.guarded or guarded
            why = "may not be dropped" if guarded else "a field that only its own protocol has"
            kind = "dropped"
            if family.endswith(REWORDED):
                kind, why = "approximated", "told by what comes nearest to it"
            self._entries.append((kind, trail, _keys(kept), why, None, guarded))

    def resolve(self, root: Node, names: Names) -> list[Loss]:
        """Each as a pointer into the source, whose names these are."""
        shared = root.extras
        if type(shared) is not SharedExtras or root is not self._alike or self._rewritten:
            return self._resolve(root, names)
        asked: tuple[Any, ...] = (id(names), *self._entries)
        if (known := shared.found.get(asked)) is None:
            known = self._resolve(root, names)
            # What lies deeper is of its words.
            if len(shared.found) < LIMIT_FOUND and all(len(trail) < 2 for _, trail, *_ in self._entries):
                shared.found[asked] = known
        return known.copy()

    def _resolve(self, root: Node, names: Names) -> list[Loss]:
        facts: list[_Fact] = []
        places: dict[Trail, _Place] = {}
        size = 0
        for kind, trail, field, why, target, guarded in self._entries:
            if (place := places.get(trail)) is None:
                place = places[trail] = _led(root, trail, names)
            if isinstance(field, tuple):
                facts.append((kind, place[1], field, why, target, guarded))
                size += len(place[1]) + len(why) + sum(map(len, field))
                continue
            for path in _pointers(place, field, names):
                facts.append((kind, path, (), why, target, guarded))
                size += len(path) + len(why)
        for trail, field, changes in self._rewritten:
            (base,) = pointers(root, trail, field, names)
            facts += [(change, base + below, (), why, None, False) for change, below, why in changes]
        return list(_remembered(*facts) if size < LIMIT_REMEMBERED and not self._rewritten else _losses(*facts))


_Fact = tuple[LossKind, str, _Keys, str, str | None, bool]
"""The kind, where, and if several are meant that stand there, their keys; why, the target, and whether guarded."""


def _losses(*facts: _Fact) -> tuple[Loss, ...]:
    """Each thing once; and of what holds another, only itself."""
    found: dict[tuple[str, str, str | None], Loss] = {}
    for kind, base, keys, why, target, guarded in facts:
        for path in [f"{base}/{key}" for key in keys] or (base,):
            key = (kind, path, target)
            if guarded or key not in found:
                found[key] = Loss(kind=kind, path=path, why=why, target=target, guarded=guarded)
    # What one place has no counterpart for, another may have told in other words: then it is not dropped.
    told = {path for kind, path, _ in found if kind == "approximated"}
    kept = [one for one in found.values() if one.why != NO_COUNTERPART or one.path not in told]
    gone = {one.path for one in kept if one.kind == "dropped"}
    return tuple([one for one in kept if one.guarded or one.kind == "invented" or not _is_below(one.path, gone)])


# The same is lost of one answer after the other.
_remembered = lru_cache(maxsize=1024)(_losses)


def _is_below(path: str, gone: Container[str]) -> bool:
    """Whether something that holds this place is gone: that says all of it."""
    while above := path.rpartition("/")[0]:
        if above in gone:
            return True
        path = above
    return False


def _keys(kept: dict[str, Raw]) -> _Keys:
    """The keys of extras; of a list, those of its elements."""
    if b"[" in b"".join(kept.values()):
        return tuple([place for key, value in kept.items() for place in elements(value, key)])
    return tuple(kept)


def elements(value: Raw, path: str) -> list[str]:
    """The path of a value; of a list, those of its elements, since naming a list says too little."""
    if bytes(value)[:1] != b"[" or not (inner := _decode_array(value)):
        return [path]
    return [place for index, element in enumerate(inner) for place in elements(element, f"{path}/{index}")]


def pointers(root: Node, trail: Trail, field: str, names: Names) -> list[str]:
    """Where the field of the node that the trail leads to stands in the source; if it is a list, its elements."""
    return _pointers(_led(root, trail, names), field, names)


_Place = tuple[Any, str, str]
"""What a trail leads to, and where it stands; of a list, also the name of its elements' field."""


def _led(root: Node, trail: Trail, names: Names) -> _Place:
    if not trail:
        return root, "", ""
    node: Any = root
    path = ""
    steps = iter(trail)
    for step in steps:
        owner, name = node, str(step)
        node = getattr(owner, name)
        place = _place(owner, name, names)
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


def _pointers(led: _Place, field: str, names: Names) -> list[str]:
    node, path, place = led
    if isinstance(node, tuple):
        return _element_paths(node, path, place)
    if field.startswith("//"):
        return [f"{path}/{field[2:]}"]
    if not field:
        return [path]
    place = _place(node, field, names)
    if place.startswith("//"):
        path, place = "", place[1:]
    value: Any = getattr(node, field, None)
    if not isinstance(value, tuple) or any(token.endswith(f":{field}:string") for token in node.form):
        value = ()
    return _element_paths(value, path, place)


def _element_paths(values: tuple[Any, ...], path: str, place: str) -> list[str]:
    if not values:
        return [path + place]
    ats = [element.at if isinstance(element, Node) else None for element in values]
    return [path + (at if at is not None else f"{place}/{index}") for index, at in enumerate(ats)]


def _place(node: Node, field: str, names: Names) -> str:
    """The wire name of a field, as a pointer. A decoder that met another spelling of it says so in `form`."""
    if node.form:
        mark = f":name:{field}="
        for token in node.form:
            if mark in token:
                return "/" + token.split(mark, 1)[1]
    return names.get(f"{type(node).__name__}.{field}", "/" + field)


def pinned(owner: N, names: Names, field: str = "parts") -> N:
    """The same with each element of a list told where it stands, so that others may be put between them."""
    place = _place(owner, field, names)
    elements = enumerate(getattr(owner, field))
    fixed = [one if one.at is not None else replace(one, at=f"{place}/{index}") for index, one in elements]
    return replace(owner, **{field: tuple(fixed)})


def has_extras(value: Any) -> bool:
    """Whether there are extras of any family in a value."""
    kind: type = type(value)
    if (fields := children(kind)) is None:
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


Found = list[tuple[Trail, str, dict[str, Raw]]]


def foreign_extras(root: Node, families: Container[str], *, cited: bool = True) -> Found:
    """By trail and family: those of a value. What a family `...:guarded` holds may not be dropped. Those that
    `form` calls told are only there to be written back: what they say is canonical, too. So is what it calls cited,
    where citations arrived."""
    found: Found = []
    _collect(root, (), families, found, cited)
    return found


def _collect(value: Any, trail: Trail, families: Container[str], found: Found, cited: bool) -> None:  # noqa: FBT001
    if value.extras:
        marks = " ".join(value.form)
        marked = ":told:" in marks or ":cited:" in marks
        for family, kept in value.extras.items():
            if family not in families:
                own = _untold(kept, family, value.form, cited=cited) if marked else kept
                if own:
                    found.append((trail, family, own))
    for field in _INNER[type(value)][0]:
        if not (child := getattr(value, field)):
            continue
        if type(child) is tuple:
            for index, element in enumerate(child):
                _, get, nothing = _INNER[type(element)]
                if get(element) != nothing:  # a trail is only made where it may lead to something
                    _collect(element, (*trail, field, index), families, found, cited)
        else:
            _, get, nothing = _INNER[type(child)]
            if get(child) != nothing:
                _collect(child, (*trail, field), families, found, cited)


class _Inner(dict[type, tuple[tuple[str, ...], Callable[[Any], Any], Any]]):
    """By type: the fields of `children`; and how to get at once what is in them and in extras, which for most parts
    gives this: nothing. Of what is no canonical value, there is nothing to get."""

    def __missing__(self, kind: type) -> tuple[tuple[str, ...], Callable[[Any], Any], Any]:
        fields = children(kind)
        if fields is None:
            found: tuple[tuple[str, ...], Callable[[Any], Any], Any] = ((), lambda _: None, None)
        else:
            get, nothing = attrgetter("extras", *fields), (None,) * (1 + len(fields)) if fields else None
            found = fields, get, nothing
            if hasattr(kind, "plain"):
                found = fields, lambda value: nothing if value.plain else get(value), nothing
        self[kind] = found
        return found


_INNER = _Inner()


def _untold(kept: dict[str, Raw], family: str, form: Container[str], *, cited: bool) -> dict[str, Raw]:
    words = ("told", "cited") if cited else ("told",)
    return {key: raw for key, raw in kept.items() if not any(f"{family}:{word}:{key}" in form for word in words)}


def guards(root: Node, families: Container[str]) -> bool:
    """Whether something below may not be dropped, and would be."""
    _, get, nothing = _INNER[type(root)]
    if get(root) == nothing:
        return False
    return any(family.endswith(":guarded") for _, family, _ in foreign_extras(root, families))


@cache
def children(kind: type) -> tuple[str, ...] | None:
    """The fields of a canonical type that can hold other canonical values; None if it is no canonical type."""
    if not issubclass(kind, Node):
        return None
    hints = get_type_hints(kind)
    return tuple(spec.name for spec in msgspec.structs.fields(kind) if _holds_nodes(hints[spec.name]))


def _holds_nodes(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType, tuple):
        return any(_holds_nodes(member) for member in get_args(hint))
    return isinstance(hint, type) and issubclass(hint, Node)
