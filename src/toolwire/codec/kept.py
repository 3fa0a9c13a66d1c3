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


class _Kept:
    """A shape's nullable fields, and those that are extras by declaration: their names, and how to get them at once.

    `unknown` and `nulls` come first of either.
    """

    def __init__(self, kind: type[Wire]) -> None:
        hints = get_type_hints(kind, include_extras=True)
        specs = msgspec.structs.fields(kind)
        nullable = [spec for spec in specs if NoneType in members_of(hints[spec.name])]
        extra = [spec for spec in specs if hints[spec.name] is Extra]
        self.nullable = ("", "", *(spec.encode_name for spec in nullable))
        self.extra = ("", "", *(spec.encode_name for spec in extra))
        self.get_nullable = attrgetter("unknown", "nulls", *(spec.name for spec in nullable))
        self.get_extra = attrgetter("unknown", "nulls", *(spec.name for spec in extra))
        self.no_extra = (UNSET, UNSET) + (UNSET,) * len(extra)


_KEPT: dict[type[Wire], _Kept] = {}


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
    if (shape := _KEPT.get(type(wire))) is None:
        shape = _KEPT[type(wire)] = _Kept(type(wire))
    extra, nullable = shape.get_extra(wire), shape.get_nullable(wire)
    plain = extra == shape.no_extra
    if plain and None not in nullable:
        return {"form": form} if form else NOTHING
    nulls: list[str] = []
    if (count := nullable.count(None)) == 1:
        nulls.append(shape.nullable[nullable.index(None)])
    elif count:
        nulls += [name for name, value in zip(shape.nullable, nullable, strict=True) if value is None]
    if wire.nulls is not UNSET:
        nulls += wire.nulls
    found: dict[str, Any] = {}
    if not plain:
        kept: dict[str, Any] = {}
        for name, value in zip(shape.extra, extra, strict=True):
            if value is UNSET or not name:
                continue
            if value == _NULL:
                nulls.append(name)
            else:
                kept[under + name] = value
        if wire.unknown is not UNSET:
            kept.update([(under + escape(name), value) for name, value in wire.unknown.items()])
        if kept:
            found["extras"] = {family: kept}
            note_extras()
    if nulls:
        form = (*form, *[f"{family}:null:{under}{name}" for name in nulls])
    if form:
        found["form"] = form
    return found


def joined(*rests: dict[str, Any]) -> dict[str, Any]:
    """Several wire objects' rests as one, for the canonical value that they all become part of."""
    extras: dict[str, dict[str, Raw]] = {}
    form: tuple[str, ...] = ()
    for one in rests:
        if not one:
            continue
        if kept := one.get("extras"):
            for family, fields in kept.items():
                extras[family] = extras[family] | fields if family in extras else fields
        form += one.get("form", ())
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
    if node is None:
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
