"""Between wire objects and canonical values: what a shape did not know, kept and put back.

`rest` turns what a reading kept into the `extras` and `form` of a canonical value; `emit` and `restore` are its mirror
image. `known` and `given` cross between UNSET, which is absent on the wire, and None, which is absent in the model.
"""

from contextvars import ContextVar
from operator import attrgetter
from types import NoneType
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.node import Node

from .fields import Extra, Wire, escape, members_of

W = TypeVar("W")

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
NOTHING: dict[str, Any] = {}
_NULL = Raw(b"null")
LIMIT_REMEMBERED = 1024


def known(value: W | UnsetType | None) -> W | None:
    """A wire field as a canonical one: absent is None."""
    return None if value is UNSET else value


def given(value: W | None) -> W | UnsetType:
    """A canonical field as a wire one: None is absent."""
    return UNSET if value is None else value


_noted: ContextVar[list[bool] | None] = ContextVar("extras were made", default=None)


class watching_extras:  # noqa: N801 - read as the statement that it is for
    """While a body is decoded: the list that is not empty once anything went into extras. A value without any need
    not be searched for them."""

    __slots__ = ("_token",)

    def __enter__(self) -> list[bool]:
        seen: list[bool] = []
        self._token = _noted.set(seen)
        return seen

    def __exit__(self, *failure: object) -> None:
        _noted.reset(self._token)


def note_extras() -> None:
    if (seen := _noted.get()) is not None and not seen:
        seen.append(True)


def rest(wire: Wire, family: str, *form: str, under: str = "") -> dict[str, Any]:
    """`extras` and `form` of the canonical value that this wire object becomes.

    Keys of extras are JSON pointers below the value, without the leading slash; `under` is for a wire object that is
    part of a larger canonical value (`metadata` of a request).
    """
    kept, form = left(wire, family, form, under)
    if kept:
        return {"extras": {family: kept}, "form": form}
    return {"form": form} if form else NOTHING


def left(
    wire: Wire, family: str, form: tuple[str, ...] = (), under: str = ""
) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """As `rest`: the extras of the family itself, and the form."""
    if (shape := _KEPT.get((type(wire), family, under))) is None:
        shape = _KEPT[type(wire), family, under] = _Kept(type(wire), family, under)
    nullable, extra = shape.get_nullable(wire), shape.get_extra(wire)
    if None in nullable:
        if nullable.count(None) == 1:
            form += (shape.nullable[nullable.index(None)],)
        else:
            form += tuple([token for token, value in zip(shape.nullable, nullable, strict=False) if value is None])
    if extra == shape.no_extra:
        return NOTHING, form
    last, found = shape.memo  # one read: another thread may replace the pair at any time
    nulls, kept = found if extra == last else shape.look(wire, extra)
    if nulls:
        form += nulls
    if not kept:
        return NOTHING, form
    note_extras()
    return kept.copy(), form


class _Kept:
    """What may be kept of a shape: its fields that are extras by declaration, and those that may be null.

    A server says the same of itself in answer after answer: what was found in extras is remembered until others come.
    """

    def __init__(self, kind: type[Wire], family: str, under: str) -> None:
        hints = get_type_hints(kind, include_extras=True)
        specs = msgspec.structs.fields(kind)
        nullable = [spec for spec in specs if NoneType in members_of(hints[spec.name])]
        extra = [spec for spec in specs if hints[spec.name] is Extra]
        self.nullable = tuple([f"{family}:null:{under}{spec.encode_name}" for spec in nullable])
        self.get_nullable = attrgetter(*(spec.name for spec in nullable), "unknown", "nulls")
        self.get_extra = attrgetter(*(spec.name for spec in extra), "unknown", "nulls")
        self.no_extra = (UNSET,) * (len(extra) + 2)
        self.memo: tuple[tuple[Any, ...], _Found] = (), ((), {})
        self._names = tuple([spec.encode_name for spec in extra])
        self._null = f"{family}:null:{under}"
        self._under = under

    def look(self, wire: Wire, extra: tuple[Any, ...]) -> "_Found":
        """The tokens of what is null, and the rest by its keys."""
        nulls = () if wire.nulls is UNSET else tuple(wire.nulls)
        kept: dict[str, Raw] = {}
        for name, value in zip(self._names, extra, strict=False):
            if value == _NULL:
                nulls += (name,)
            elif value is not UNSET:
                kept[self._under + name] = value
        if wire.unknown is not UNSET:
            kept.update([(self._under + escape(name), value) for name, value in wire.unknown.items()])
        found = tuple([self._null + name for name in nulls]), kept
        if (
            wire.unknown is UNSET
            and wire.nulls is UNSET
            and sum(map(len, map(bytes, kept.values()))) < LIMIT_REMEMBERED
        ):
            # A copy: what is raw holds on to all of the body that it is from.
            last = tuple([value if value is UNSET else value.copy() for value in extra])
            self.memo = last, (found[0], {key: value.copy() for key, value in kept.items()})
        return found


_Found = tuple[tuple[str, ...], dict[str, Raw]]
_KEPT: dict[tuple[type[Wire], str, str], _Kept] = {}


def joined(*rests: dict[str, Any]) -> dict[str, Any]:
    """Several wire objects' rests as one, for the canonical value that they all become part of."""
    extras: dict[str, dict[str, Raw]] = {}
    form: tuple[str, ...] = ()
    for one in filter(None, rests):
        form += one.get("form", ())
        for family, fields in (one.get("extras") or NOTHING).items():
            extras[family] = extras[family] | fields if family in extras else fields
    if extras:
        note_extras()
    return {"extras": extras or None, "form": form}


def emit(wire: Wire, node: Node | None, family: str) -> Any:
    """The wire object with what its canonical value kept of this family."""
    if node is None or (not node.extras and not node.form):
        return wire
    if not _keeps(node, family):
        return wire
    return restore(as_object(wire), node, family)


def _keeps(node: Node, family: str) -> bool:
    if node.extras and family in node.extras:
        return True
    prefix = family + ":null:"
    return any(token.startswith(prefix) for token in node.form)


def restore(out: dict[str, Any], node: Node | None, family: str) -> dict[str, Any]:
    """Put back into a wire object what a canonical value kept of this family; what is there already stays."""
    if node is None or not (node.extras or node.form):
        return out
    if node.extras:
        for key, value in node.extras.get(family, NOTHING).items():
            _put(out, key, value)
    prefix = family + ":null:"
    for token in node.form:
        if token.startswith(prefix):
            _put(out, token[len(prefix) :], None)
    return out


def _put(out: dict[str, Any], key: str, value: Any) -> None:
    if "/" not in key and "~" not in key:
        out.setdefault(key, value)
        return
    *parents, last = key.split("/")
    for name in parents:
        inner = out.get(unescape(name))
        if isinstance(inner, Wire):
            inner = as_object(inner)
        elif isinstance(inner, Raw) and bytes(inner)[:1] == b"{":
            inner = dict(_decode_object(inner))
        elif inner is None:
            inner = {}
        elif not isinstance(inner, dict):
            return
        out[unescape(name)] = inner
        out = inner
    out.setdefault(unescape(last), value)


def unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~") if "~" in step else step


def as_object(wire: Wire) -> dict[str, Any]:
    """The wire object's fields by their wire names."""
    config = type(wire).__struct_config__
    out: dict[str, Any] = {}
    if config.tag is not None and config.tag_field is not None:
        out[config.tag_field] = config.tag
    for name, encoded in zip(wire.__struct_fields__, wire.__struct_encode_fields__, strict=True):
        value = getattr(wire, name)
        if value is not UNSET and not encoded.startswith("\x7f"):
            out[encoded] = value
    return out
