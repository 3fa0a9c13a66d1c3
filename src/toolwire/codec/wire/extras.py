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
from toolwire.codec.wire.reader import Extra, WireObject, escape_pointer, union_members

W = TypeVar("W")

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
EMPTY: dict[str, Any] = {}
_NULL = Raw(b"null")
LIMIT_MEMO_SIZE = 1024


def unset_to_none(value: W | UnsetType | None) -> W | None:
    """A wire field as a canonical one: absent is None."""
    return None if value is UNSET else value


def none_to_unset(value: W | None) -> W | UnsetType:
    """A canonical field as a wire one: None is absent."""
    return UNSET if value is None else value


_extras_seen: ContextVar[list[bool] | None] = ContextVar("extras were made", default=None)


class track_extras:  # noqa: N801 - read as the statement that it is for
    """While a body is decoded: the list that is not empty once anything went into extras. A value without any need
    not be searched for them."""

    __slots__ = ("_token",)

    def __enter__(self) -> list[bool]:
        seen: list[bool] = []
        self._token = _extras_seen.set(seen)
        return seen

    def __exit__(self, *failure: object) -> None:
        _extras_seen.reset(self._token)


def mark_extras_seen() -> None:
    if (seen := _extras_seen.get()) is not None and not seen:
        seen.append(True)


def collect_extras(wire: WireObject, family: str, *wire_form: str, prefix: str = "") -> dict[str, Any]:
    """`extras` and `form` of the canonical value that this wire object becomes.

    Keys of extras are JSON pointers below the value, without the leading slash; `under` is for a wire object that is
    part of a larger canonical value (`metadata` of a request).
    """
    kept, wire_form = extras_and_wire_form(wire, family, wire_form, prefix)
    if kept:
        return {"extras": {family: kept}, "wire_form": wire_form}
    return {"wire_form": wire_form} if wire_form else EMPTY


def extras_and_wire_form(
    wire: WireObject, family: str, wire_form: tuple[str, ...] = (), prefix: str = ""
) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """As `rest`: the extras of the family itself, and the form."""
    if (shape := _LAYOUTS.get((type(wire), family, prefix))) is None:
        shape = _LAYOUTS[type(wire), family, prefix] = _ExtrasLayout(type(wire), family, prefix)
    nullable, extra = shape.get_nullable(wire), shape.get_extra(wire)
    if None in nullable:
        if nullable.count(None) == 1:
            wire_form += (shape.null_tokens[nullable.index(None)],)
        else:
            wire_form += tuple(
                [token for token, value in zip(shape.null_tokens, nullable, strict=False) if value is None]
            )
    if extra == shape.empty_extra:
        return EMPTY, wire_form
    last, found = shape.memo  # one read: another thread may replace the pair at any time
    nulls, kept = found if extra == last else shape.collect(wire, extra)
    if nulls:
        wire_form += nulls
    if not kept:
        return EMPTY, wire_form
    mark_extras_seen()
    return kept.copy(), wire_form


class _ExtrasLayout:
    """What may be kept of a shape: its fields that are extras by declaration, and those that may be null.

    A server says the same of itself in answer after answer: what was found in extras is remembered until others come.
    """

    def __init__(self, kind: type[WireObject], family: str, prefix: str) -> None:
        hints = get_type_hints(kind, include_extras=True)
        specs = msgspec.structs.fields(kind)
        nullable = [spec for spec in specs if NoneType in union_members(hints[spec.name])]
        extra = [spec for spec in specs if hints[spec.name] is Extra]
        self.null_tokens = tuple([f"{family}:null:{prefix}{spec.encode_name}" for spec in nullable])
        self.get_nullable = attrgetter(*(spec.name for spec in nullable), "unknown", "nulls")
        self.get_extra = attrgetter(*(spec.name for spec in extra), "unknown", "nulls")
        self.empty_extra = (UNSET,) * (len(extra) + 2)
        self.memo: tuple[tuple[Any, ...], _TokensAndExtras] = (), ((), {})
        self._names = tuple([spec.encode_name for spec in extra])
        self._null_prefix = f"{family}:null:{prefix}"
        self._prefix = prefix

    def collect(self, wire: WireObject, extra: tuple[Any, ...]) -> "_TokensAndExtras":
        """The tokens of what is null, and the rest by its keys."""
        nulls = () if wire.nulls is UNSET else tuple(wire.nulls)
        kept: dict[str, Raw] = {}
        for name, value in zip(self._names, extra, strict=False):
            if value == _NULL:
                nulls += (name,)
            elif value is not UNSET:
                kept[self._prefix + name] = value
        if wire.unknown is not UNSET:
            kept.update([(self._prefix + escape_pointer(name), value) for name, value in wire.unknown.items()])
        found = tuple([self._null_prefix + name for name in nulls]), kept
        if wire.unknown is UNSET and wire.nulls is UNSET and sum(map(len, map(bytes, kept.values()))) < LIMIT_MEMO_SIZE:
            # A copy: what is raw holds on to all of the body that it is from.
            last = tuple([value if value is UNSET else value.copy() for value in extra])
            self.memo = last, (found[0], {key: value.copy() for key, value in kept.items()})
        return found


_TokensAndExtras = tuple[tuple[str, ...], dict[str, Raw]]
_LAYOUTS: dict[tuple[type[WireObject], str, str], _ExtrasLayout] = {}


def merge_extras(*collected: dict[str, Any]) -> dict[str, Any]:
    """Several wire objects' rests as one, for the canonical value that they all become part of."""
    extras: dict[str, dict[str, Raw]] = {}
    form: tuple[str, ...] = ()
    for one in filter(None, collected):
        form += one.get("wire_form", ())
        for family, fields in (one.get("extras") or EMPTY).items():
            extras[family] = extras[family] | fields if family in extras else fields
    if extras:
        mark_extras_seen()
    return {"extras": extras or None, "wire_form": form}


def encode_with_extras(wire: WireObject, node: Node | None, family: str) -> Any:
    """The wire object with what its canonical value kept of this family."""
    if node is None or (not node.extras and not node.wire_form):
        return wire
    if not _has_family(node, family):
        return wire
    return restore_extras(as_dict(wire), node, family)


def _has_family(node: Node, family: str) -> bool:
    if node.extras and family in node.extras:
        return True
    prefix = family + ":null:"
    return any(token.startswith(prefix) for token in node.wire_form)


def restore_extras(out: dict[str, Any], node: Node | None, family: str) -> dict[str, Any]:
    """Put back into a wire object what a canonical value kept of this family; what is there already stays."""
    if node is None or not (node.extras or node.wire_form):
        return out
    if node.extras:
        for key, value in node.extras.get(family, EMPTY).items():
            _insert_at_pointer(out, key, value)
    prefix = family + ":null:"
    for token in node.wire_form:
        if token.startswith(prefix):
            _insert_at_pointer(out, token[len(prefix) :], None)
    return out


def _insert_at_pointer(out: dict[str, Any], key: str, value: Any) -> None:
    if "/" not in key and "~" not in key:
        out.setdefault(key, value)
        return
    *parents, last = key.split("/")
    for name in parents:
        inner = out.get(unescape_pointer(name))
        if isinstance(inner, WireObject):
            inner = as_dict(inner)
        elif isinstance(inner, Raw) and bytes(inner)[:1] == b"{":
            inner = dict(_decode_object(inner))
        elif inner is None:
            inner = {}
        elif not isinstance(inner, dict):
            return
        out[unescape_pointer(name)] = inner
        out = inner
    out.setdefault(unescape_pointer(last), value)


def unescape_pointer(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~") if "~" in step else step


def as_dict(wire: WireObject) -> dict[str, Any]:
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
