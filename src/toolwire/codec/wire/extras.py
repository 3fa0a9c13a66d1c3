"""Preserve and restore wire fields without a canonical counterpart (`extras`) and wire spelling (`wire_form`).

`collect_extras` turns the unknown fields of a wire object into `extras` and `wire_form`; `encode_with_extras` and
`restore_extras` are its inverse. `unset_to_none` and `none_to_unset` convert between UNSET, which means absent on the
wire, and None, which means absent in the canonical model.
"""

from operator import attrgetter
from types import NoneType
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.node import Node
from toolwire.codec.wire.reader import Extra, WireObject, decode_members, escape_pointer, union_members

W = TypeVar("W")

EMPTY: dict[str, Any] = {}
_NULL = Raw(b"null")
LIMIT_MEMO_SIZE = 1024


def unset_to_none(value: W | UnsetType | None) -> W | None:
    """Convert an absent wire field (UNSET) to None."""
    return None if value is UNSET else value


def none_to_unset(value: W | None) -> W | UnsetType:
    """Convert None to an absent wire field (UNSET)."""
    return UNSET if value is None else value


def collect_extras(wire: WireObject, family: str, *wire_form: str, prefix: str = "") -> dict[str, Any]:
    """Return `extras` and `wire_form`, as keyword arguments, for the canonical value that a wire object becomes.

    Keys of extras are JSON pointers below the value, without the leading slash. `prefix` locates a wire object that is
    only part of the canonical value, such as `metadata` of a request.
    """
    extras, wire_form = extras_and_wire_form(wire, family, wire_form, prefix)
    if extras:
        return {"extras": {family: extras}, "wire_form": wire_form}
    return {"wire_form": wire_form} if wire_form else EMPTY


def extras_and_wire_form(
    wire: WireObject, family: str, wire_form: tuple[str, ...] = (), prefix: str = ""
) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """Return the non-canonical fields of a wire object (extras), and `wire_form` with a token for each null field."""
    if (layout := _LAYOUTS.get((type(wire), family, prefix))) is None:
        layout = _LAYOUTS[type(wire), family, prefix] = _ExtrasLayout(type(wire), family, prefix)
    nullable, extra = layout.get_nullable(wire), layout.get_extra(wire)
    if None in nullable:
        if nullable.count(None) == 1:
            wire_form += (layout.null_tokens[nullable.index(None)],)
        else:
            wire_form += tuple(
                [token for token, value in zip(layout.null_tokens, nullable, strict=False) if value is None]
            )
    if extra == layout.empty_extra:
        return EMPTY, wire_form
    previous, cached = layout.memo  # a single read, since another thread may replace the pair
    nulls, extras = cached if extra == previous else layout.collect(wire, extra)
    if nulls:
        wire_form += nulls
    if not extras:
        return EMPTY, wire_form
    return extras.copy(), wire_form


class _ExtrasLayout:
    """The fields of a wire type that may go into extras or `wire_form`.

    Servers repeat the same extra values in every response, so the last result is cached until they change.
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
        """Return the `wire_form` tokens of null fields, and the extras by JSON pointer."""
        nulls = () if wire.nulls is UNSET else tuple(wire.nulls)
        extras: dict[str, Raw] = {}
        for name, value in zip(self._names, extra, strict=False):
            if value is UNSET:
                continue
            if value == _NULL:
                nulls += (name,)
            else:
                extras[self._prefix + name] = value
        if wire.unknown is not UNSET:
            extras.update([(self._prefix + escape_pointer(name), value) for name, value in wire.unknown.items()])
        result = tuple([self._null_prefix + name for name in nulls]), extras
        if (
            wire.unknown is UNSET
            and wire.nulls is UNSET
            and sum(map(len, map(bytes, extras.values()))) < LIMIT_MEMO_SIZE
        ):
            # Copy, since a Raw value keeps the entire body alive.
            values = tuple([value if value is UNSET else value.copy() for value in extra])
            self.memo = values, (result[0], {key: value.copy() for key, value in extras.items()})
        return result


_TokensAndExtras = tuple[tuple[str, ...], dict[str, Raw]]
_LAYOUTS: dict[tuple[type[WireObject], str, str], _ExtrasLayout] = {}


def merge_extras(*collected: dict[str, Any]) -> dict[str, Any]:
    """Merge the `extras` and `wire_form` of several wire objects that become one canonical value."""
    extras: dict[str, dict[str, Raw]] = {}
    wire_form: tuple[str, ...] = ()
    for entry in filter(None, collected):
        wire_form += entry.get("wire_form", ())
        for family, fields in (entry.get("extras") or EMPTY).items():
            extras[family] = extras[family] | fields if family in extras else fields
    return {"extras": extras or None, "wire_form": wire_form}


def encode_with_extras(wire: WireObject, node: Node | None, family: str) -> Any:
    """Return the wire object, or a dict that also has the node's extras of this family, if there are any."""
    if node is None or (not node.extras and not node.wire_form):
        return wire
    if not _has_family(node, family):
        return wire
    return restore_extras(as_dict(wire), node, family)


def _has_family(node: Node, family: str) -> bool:
    """Return whether a node has extras, or `wire_form` tokens of null fields, of this family."""
    if node.extras and family in node.extras:
        return True
    prefix = family + ":null:"
    return any(token.startswith(prefix) for token in node.wire_form)


def restore_extras(out: dict[str, Any], node: Node | None, family: str) -> dict[str, Any]:
    """Add the node's extras of this family to the wire object `out`, and return it; existing members win."""
    if node is None or not (node.extras or node.wire_form):
        return out
    if node.extras:
        for key, value in node.extras.get(family, EMPTY).items():
            insert_at_pointer(out, key, value)
    prefix = family + ":null:"
    for token in node.wire_form:
        if token.startswith(prefix):
            insert_at_pointer(out, token[len(prefix) :], None)
    return out


def insert_at_pointer(out: dict[str, Any], key: str, value: Any) -> None:
    """Set a member at a JSON pointer unless it exists, creating objects on the way and parsing raw ones."""
    if "/" not in key and "~" not in key:
        out.setdefault(key, value)
        return
    *parents, last = key.split("/")
    for name in parents:
        child = out.get(unescape_pointer(name))
        if isinstance(child, WireObject):
            child = as_dict(child)
        elif isinstance(child, Raw) and bytes(child)[:1] == b"{":
            child = dict(decode_members(child))
        elif child is None:
            child = {}
        elif not isinstance(child, dict):
            return
        out[unescape_pointer(name)] = child
        out = child
    out.setdefault(unescape_pointer(last), value)


def unescape_pointer(step: str) -> str:
    """Decode one step of a JSON pointer."""
    return step.replace("~1", "/").replace("~0", "~") if "~" in step else step


def as_dict(wire: WireObject) -> dict[str, Any]:
    """Return the fields of a wire object by their wire names."""
    config = type(wire).__struct_config__
    out: dict[str, Any] = {}
    if config.tag is not None and config.tag_field is not None:
        out[config.tag_field] = config.tag
    for name, wire_name in zip(wire.__struct_fields__, wire.__struct_encode_fields__, strict=True):
        value = getattr(wire, name)
        if value is not UNSET and not wire_name.startswith("\x7f"):
            out[wire_name] = value
    return out
