"""Collect losses where they happen, and resolve them to JSON pointers into the source.

An encoder sees only canonical values. It reports a *source path* from the root of what it encodes, such as
`("messages", 2, "parts", 0)`, and a field. `LossReport.resolve` follows the path. Each step contributes the node's own
`at`, or else the wire name from the source codec's `wire_names` and the index. Wire names are pointers:
`"Message.parts": "/content"`. `""` stands for a canonical group without a wire object of its own, and
`"//parallel_tool_calls"` for a field at the root.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text, ToolCall, ToolResult
from toolwire.canonical.errors import Direction, Loss, LossKind, Severity
from toolwire.canonical.node import Node
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.memo import BoundedMemo
from toolwire.codec.severity import derive_change_severity, derive_extras_severities, derive_severity

SourcePath = tuple[str | int, ...]
WireNames = Mapping[str, str]
N = TypeVar("N", bound=Node)
FieldChanges = Sequence[tuple[Literal["approximated", "dropped"], str, str]]

_ExtraKeys = tuple[str, ...]
"""Keys of several extras of one value, in place of a field."""

UNLOCATED = "?"
"""Prefix of an added text whose target pointer is only known once the body is complete."""


REWORDED = ":reworded"
"""Suffix of a family whose extras are not values, but mark fields that are sent in another form."""

_LIMIT_MEMO_ENTRIES = 32
NO_SUCH_FIELD = "the target has no such field"
NO_EQUIVALENT = "no equivalent in the target protocol"


class LossReport:
    """The losses of one encoding, as source paths into the canonical value."""

    has_constraint = False
    # Created when needed, since most reports have none of these.
    _shared: "list[tuple[int, LossReport]] | None" = None  # each with the number of entries before it
    _located: "tuple[WireNames, list[_LossEntry]] | None" = None
    _rewritten: list[tuple[SourcePath, str, FieldChanges]] | None = None
    _rewritten_ids: dict[str, str] | None = None

    def __init__(self) -> None:
        self._entries: list[_ReportEntry] = []

    def __bool__(self) -> bool:
        return bool(self._entries or self._shared or self._rewritten or self._rewritten_ids)

    def dropped(
        self,
        path: SourcePath,
        field: str = "",
        reason: str = NO_SUCH_FIELD,
        *,
        constraint: bool = False,
        severity: Severity | None = None,
    ) -> None:
        """Report a field that the target does not receive; `constraint` marks a safety limit.

        Without a `severity`, here and below, `toolwire.codec.severity` derives it from the field.
        """
        self._entries.append(("dropped", path, field, reason, None, constraint, severity))
        self.has_constraint = self.has_constraint or constraint

    def dropped_fields(self, path: SourcePath, value: object, *fields: str, reason: str = NO_SUCH_FIELD) -> None:
        """Report those of a value's fields that are set, and that the target does not receive."""
        for field in fields:
            if getattr(value, field) is not None:
                self.dropped(path, field, reason)

    def approximated(self, path: SourcePath, field: str, reason: str, *, severity: Severity | None = None) -> None:
        """Report a field that the target receives in another form."""
        self._entries.append(("approximated", path, field, reason, None, False, severity))

    def retract_approximated(self, path: SourcePath, field: str) -> None:
        """Remove the approximations of a field that is then sent in yet another form, or not at all."""
        reported = ("approximated", path, field)
        self._entries = [entry for entry in self._entries if entry[:3] != reported]

    def added(
        self, path: SourcePath, field: str, target: str, reason: str, *, severity: Severity | None = None
    ) -> None:
        """Report a value at the pointer `target` that the source does not have."""
        self._entries.append(("added", path, field, reason, target, False, severity))

    def rewritten(self, path: SourcePath, field: str, changes: FieldChanges) -> None:
        """Report changes inside a single field, each as kind, pointer below the field, and reason."""
        if changes:
            self._rewritten = self._rewritten or []
            self._rewritten.append((path, field, changes))

    def id_rewritten(self, id: str, encoded: str) -> None:
        """Report a call id that the target receives in another form, wherever it stands in the messages."""
        self._rewritten_ids = self._rewritten_ids or {}
        self._rewritten_ids[id] = encoded

    def include(self, other: "LossReport", below: SourcePath = ()) -> None:
        """Add the losses of a separately encoded value, which stands at the source path `below`."""
        self._entries += [(entry[0], below + entry[1], *entry[2:]) for entry in other.all_entries]

    def share(self, other: "LossReport") -> None:
        """Add the losses of a value that many requests contain, at the same place; they are located once."""
        self._shared = self._shared or []
        self._shared.append((len(self._entries), other))
        self.has_constraint = self.has_constraint or other.has_constraint

    @property
    def all_entries(self) -> "list[_ReportEntry]":
        """Return all entries, also those of shared reports."""
        entries = self._entries.copy()
        for _, shared in self._shared or ():
            entries += shared.all_entries
        return entries

    def report_foreign_extras(self, root: Node, families: tuple[str, ...]) -> None:
        """Report all extras (non-canonical wire fields) below `root` that belong to none of these protocol families."""
        has_citations = not [
            entry
            for entry in self.all_entries
            if entry[0] == "dropped" and not entry[2] and entry[1][-2:-1] == ("annotations",)
        ]
        for path, family, extras in foreign_extras(root, families, has_citations=has_citations):
            constraint = family.endswith(":constraint")
            self.has_constraint = self.has_constraint or constraint
            reason = "may not be dropped: the target cannot enforce it" if constraint else NO_EQUIVALENT
            kind: LossKind = "dropped"
            if family.endswith(REWORDED):
                kind, reason = "approximated", "replaced by the closest equivalent"
            self._entries.append((kind, path, _extra_keys(extras), reason, None, constraint, None))

    def resolve(self, root: Node, wire_names: WireNames) -> list[Loss]:
        """Return the losses with JSON pointers into the source body; `wire_names` are its protocol's field names."""
        if self._rewritten_ids:
            self._report_rewritten_ids(root, self._rewritten_ids)
        direction: Direction = "request" if type(root) is Request else "response"
        entries: list[_LossEntry] = []
        start = 0
        for position, shared in self._shared or ():
            entries += _locate_entries(self._entries[start:position], root, wire_names, direction)
            entries += shared.locate_once(root, wire_names, direction)
            start = position
        entries += _locate_entries(self._entries[start:], root, wire_names, direction)
        for path, field, changes in self._rewritten or ():
            (base,) = source_pointers(root, path, field, wire_names)
            node = _follow_path(root, path, wire_names)[0]
            for change, below, reason in changes:
                found = (derive_change_severity(change, direction, node, field, below),)
                entries.append((change, base + below, (), reason, None, False, found))
        if self._rewritten or len(entries) > _LIMIT_MEMO_ENTRIES:
            return _build_losses(direction, entries)
        key = (direction, *entries)
        if (known := _losses_memo.get(key)) is None:
            known = _build_losses(direction, entries)
            _losses_memo.put(key, known, 500 + 4 * _text_size(entries))
        return known.copy()

    def locate_once(self, root: Node, wire_names: WireNames, direction: Direction) -> "list[_LossEntry]":
        """Return the located entries of a shared report."""
        if self._located is None or self._located[0] is not wire_names:
            self._located = wire_names, _locate_entries(self._entries, root, wire_names, direction)
        return self._located[1]

    def _report_rewritten_ids(self, root: Node, ids: dict[str, str]) -> None:
        """Report every call and result of the client whose id is rewritten."""
        self._rewritten_ids = None
        owners: list[tuple[SourcePath, Any]] = [((), root)]
        if isinstance(root, Response):
            owners = [(("candidates", index), candidate) for index, candidate in enumerate(root.candidates)]
        for path, owner in owners:
            for number, message in enumerate(getattr(owner, "messages", ())):
                for position, part in enumerate(message.parts):
                    if not isinstance(part, ToolCall | ToolResult) or part.executor != "client":
                        continue
                    field = "id" if isinstance(part, ToolCall) else "call_id"
                    if id := ids.get(getattr(part, field) or ""):
                        part_path = (*path, "messages", number, "parts", position)
                        self.approximated(part_path, field, f"sent as {id}", severity="info")


_ReportEntry = tuple[LossKind, SourcePath, str | _ExtraKeys, str, str | None, bool, Severity | None]
"""Kind, source path, field or keys, reason, target pointer, constraint, and severity if it is known."""

_LossEntry = tuple[LossKind, str, _ExtraKeys, str, str | None, bool, tuple[Severity, ...]]
"""Kind, pointer, keys below the pointer (if several), reason, target pointer, constraint, and a severity per key."""


def _locate_entries(
    entries: Iterable[_ReportEntry], root: Node, wire_names: WireNames, direction: Direction
) -> list[_LossEntry]:
    """Return the entries with JSON pointers in place of source paths, and with severities."""
    located: list[_LossEntry] = []
    locations: dict[SourcePath, _Location] = {}
    for kind, path, field, reason, target, constraint, severity in entries:
        if (location := locations.get(path)) is None:
            location = locations[path] = _follow_path(root, path, wire_names)
        if isinstance(field, tuple):
            severities = derive_extras_severities(kind, direction, location[0], field)
            located.append((kind, location[1], field, reason, target, constraint, severities))
            continue
        found = (severity or derive_severity(kind, direction, location[0], field),)
        pointers = _field_pointers(location, field, wire_names)
        located += [(kind, pointer, (), reason, target, constraint, found) for pointer in pointers]
    return located


def _text_size(entries: list[_LossEntry]) -> int:
    """Return the number of characters in pointers, reasons and keys."""
    texts = chain.from_iterable(map(itemgetter(1, 3), entries))
    return sum(map(len, texts)) + sum(map(len, chain.from_iterable(map(itemgetter(2), entries))))


def _build_losses(direction: Direction, entries: Iterable[_LossEntry]) -> list[Loss]:
    """Return the distinct losses of the entries, without those below a dropped value."""
    losses = _distinct_losses(direction, entries)
    # A field that is missing in one place may be approximated in another; then it is not dropped.
    approximated = {loss.path for loss in losses if loss.kind == "approximated"}
    remaining = [loss for loss in losses if loss.reason != NO_SUCH_FIELD or loss.path not in approximated]
    dropped = {loss.path for loss in remaining if loss.kind == "dropped"}
    return [loss for loss in remaining if loss.constraint or loss.kind == "added" or not _is_below(loss.path, dropped)]


def _distinct_losses(direction: Direction, entries: Iterable[_LossEntry]) -> list[Loss]:
    """Return one loss for each kind, path and target; constraints take precedence."""
    losses: dict[tuple[str, str, str | None], Loss] = {}
    for kind, base, keys, reason, target, constraint, severities in entries:
        paths = [f"{base}/{key}" for key in keys] or (base,)
        for path, severity in zip(paths, severities, strict=True):
            key = (kind, path, target)
            if constraint or key not in losses:
                losses[key] = Loss(
                    severity="error" if constraint else severity,
                    kind=kind,
                    path=path,
                    reason=reason,
                    direction=direction,
                    target=target,
                    constraint=constraint,
                )
    return list(losses.values())


# Consecutive responses usually have the same losses.
_losses_memo: BoundedMemo[tuple[Direction | _LossEntry, ...], list[Loss]] = BoundedMemo()


def _is_below(path: str, dropped: Container[str]) -> bool:
    """Return whether an ancestor of the JSON pointer was dropped, which implies the loss at the pointer."""
    while parent := path.rpartition("/")[0]:
        if parent in dropped:
            return True
        path = parent
    return False


def _extra_keys(extras: dict[str, Raw]) -> _ExtraKeys:
    """Return the keys of extras, which are JSON pointers; for a list value, the pointers of its elements."""
    if b"".join(extras.values()).find(b"[") >= 0:
        return tuple([pointer for key, value in extras.items() for pointer in element_pointers(value, key)])
    return tuple(extras)


_decode_elements = msgspec.json.Decoder(list[Raw]).decode  # not the reader's, which imports more than commands need


def element_pointers(value: Raw, pointer: str) -> list[str]:
    """Return the pointer of a value; for a list, those of its elements, at any depth."""
    pointers: list[str] = []
    pending = [(value, pointer)]  # no recursion: lists may be nested as deeply as the decoder takes them
    while pending:
        value, pointer = pending.pop()
        if bytes(value)[:1] != b"[" or not (elements := _decode_elements(value)):
            pointers.append(pointer)
        else:
            pending += reversed([(element, f"{pointer}/{index}") for index, element in enumerate(elements)])
    return pointers


def source_pointers(root: Node, path: SourcePath, field: str, wire_names: WireNames) -> list[str]:
    """Return the JSON pointer of a field of the node at `path`; for a list, those of its elements."""
    return _field_pointers(_follow_path(root, path, wire_names), field, wire_names)


_Location = tuple[Any, str, str]
"""A value and its pointer; for a list, also the wire pointer of the field that holds the elements."""


def _follow_path(root: Node, source_path: SourcePath, wire_names: WireNames) -> _Location:
    """Return the node at a source path, with its JSON pointer in the source body."""
    node: Any = root
    owner: Any = root
    pointer = step_pointer = ""
    for step in source_path:
        if type(step) is str:
            owner, node = node, getattr(node, step)
            if owner.wire_form or (step_pointer := wire_names.get(f"{type(owner).__name__}.{step}", "?")) == "?":
                step_pointer = _wire_pointer(owner, step, wire_names)
            if type(node) is tuple:
                continue  # the next step is an index
        elif step >= len(node):  # type: ignore[operator]
            return owner, pointer, ""  # the encoder added this element
        else:
            node = node[step]
            step_pointer = f"{step_pointer}/{step}" if step_pointer else ""
        if (at := getattr(node, "at", None)) is not None:
            step_pointer = at
        pointer = step_pointer[1:] if step_pointer[:2] == "//" else pointer + step_pointer
    return node, pointer, step_pointer if type(node) is tuple else ""


def _field_pointers(location: _Location, field: str, wire_names: WireNames) -> list[str]:
    """Return the JSON pointers that a field of a located node has in the source body."""
    node, pointer, wire_pointer = location
    if isinstance(node, tuple):
        return _tuple_pointers(node, pointer, wire_pointer)
    if field.startswith("//"):
        return [f"{pointer}/{field[2:]}"]
    if not field:
        return [pointer]
    wire_pointer = _wire_pointer(node, field, wire_names)
    if wire_pointer.startswith("//"):
        pointer, wire_pointer = "", wire_pointer[1:]
    value: Any = getattr(node, field, None)
    if not isinstance(value, tuple) or any(token.endswith(f":{field}:string") for token in node.wire_form):
        value = ()
    return _tuple_pointers(value, pointer, wire_pointer)


def _tuple_pointers(values: tuple[Any, ...], path: str, wire_pointer: str) -> list[str]:
    """Return the JSON pointers of list elements, or that of the list if it is empty."""
    if not values:
        return [path + wire_pointer]
    positions = [element.at if isinstance(element, Node) else None for element in values]
    return [
        path + (position if position is not None else f"{wire_pointer}/{index}")
        for index, position in enumerate(positions)
    ]


def _wire_pointer(node: Node, field: str, wire_names: WireNames) -> str:
    """Return the JSON pointer of a field below its node; a `name` token in `wire_form` overrides `wire_names`."""
    if node.wire_form:
        mark = f":name:{field}="
        for token in node.wire_form:
            if mark in token:
                return "/" + token.split(mark, 1)[1]
    return wire_names.get(f"{type(node).__name__}.{field}", "/" + field)


def with_source_positions(owner: N, wire_names: WireNames, field: str = "parts") -> N:
    """Return the node with its source pointer in `at` of each list element, so that elements can be inserted."""
    pointer = _wire_pointer(owner, field, wire_names)
    elements = enumerate(getattr(owner, field))
    positioned = [
        element if element.at is not None else replace(element, at=f"{pointer}/{index}") for index, element in elements
    ]
    return replace(owner, **{field: tuple(positioned)})


ForeignExtras = list[tuple[SourcePath, str, dict[str, Raw]]]


def foreign_extras(root: Node, families: Container[str], *, has_citations: bool = True) -> ForeignExtras:
    """Return the extras below `root` that would be lost at a target that knows only these protocol families.

    Extras are wire fields without a canonical counterpart. Each result holds the source path of the node, the family of
    its extras, and the extras by JSON pointer. Left out are extras that repeat a canonical field (marked `canonical` in
    `wire_form`) or, with `has_citations`, a citation (`cited`). A family that ends in `:constraint` holds safety
    limits.
    """
    collected: ForeignExtras = []
    _collect_foreign_extras(root, (), families, collected, has_citations)
    return collected


def _collect_foreign_extras(
    value: Any,
    path: SourcePath,
    families: Container[str],
    collected: ForeignExtras,
    has_citations: bool,  # noqa: FBT001 - called for every node
) -> None:
    """Append the foreign extras below a value to `collected`."""
    if value.extras:
        marks = " ".join(value.wire_form)
        marked = ":canonical:" in marks or ":cited:" in marks
        for family, extras in value.extras.items():
            if family not in families:
                foreign = (
                    _without_canonical(extras, family, value.wire_form, has_citations=has_citations)
                    if marked
                    else extras
                )
                if foreign:
                    collected.append((path, family, foreign))
    kind: type = type(value)
    for field in node_fields(kind) or ():
        if not (child := getattr(value, field)):
            continue
        if type(child) is not tuple:
            _collect_foreign_extras(child, (*path, field), families, collected, has_citations)
        elif _hold_extras(child):
            for index, element in enumerate(child):
                _collect_foreign_extras(element, (*path, field, index), families, collected, has_citations)


def _hold_extras(nodes: Sequence[Any]) -> bool:
    """Return whether one of the nodes, or a node below them, has extras.

    Fields of the usual types are read one by one: by name, as those of the others, this would take several times as
    long, and a request has hundreds of them.
    """
    pending = list(nodes)
    for node in pending:  # grows by the nodes below
        kind: type = type(node)
        if kind is FunctionTool and not (node.extras or node.cache):
            pass
        elif kind is Text and not (node.extras or node.annotations or node.signature):
            if node.cache is not None:
                pending.append(node.cache)
        elif kind is Message and not node.extras:
            pending += node.parts
        elif kind is ToolCall and not _may_call_hold_extras(node):
            pass
        elif kind is ToolResult and not _may_result_hold_extras(node):
            pending += node.content or ()
        elif (fields := node_fields(kind)) is not None:
            if node.extras:
                return True
            pending += _nodes_below(node, fields)
    return False


def _nodes_below(node: Node, fields: tuple[str, ...]) -> list[Any]:
    """Return the nodes in these fields."""
    nodes: list[Any] = []
    for child in [getattr(node, field) for field in fields]:
        nodes += child if type(child) is tuple else () if child is None else (child,)
    return nodes


def _may_call_hold_extras(call: ToolCall) -> bool:
    """Return whether a call has extras, or fields that may."""
    return bool(call.extras or call.caller or call.signature or call.cache or call.use or call.screen)


def _may_result_hold_extras(result: ToolResult) -> bool:
    """Return whether a result has extras, or fields besides its content that may."""
    return bool(result.extras or result.caller or result.signature or result.cache or result.use or result.screen)


def _without_canonical(
    extras: dict[str, Raw], family: str, wire_form: Container[str], *, has_citations: bool
) -> dict[str, Raw]:
    """Return the extras without those that, according to `wire_form`, only repeat canonical data."""
    marks = ("canonical", "cited") if has_citations else ("canonical",)
    return {key: raw for key, raw in extras.items() if not any(f"{family}:{mark}:{key}" in wire_form for mark in marks)}


def holds_constraint(root: Node, families: Container[str]) -> bool:
    """Return whether a constraint (a safety limit) that these families can't express stands below `root`."""
    return any(family.endswith(":constraint") for _, family, _ in foreign_extras(root, families))


@cache
def node_fields(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a canonical type that can hold nodes, or None for other types."""
    if not issubclass(kind, Node):
        return None
    hints = get_type_hints(kind)
    return tuple(spec.name for spec in msgspec.structs.fields(kind) if _holds_nodes(hints[spec.name]))


def _holds_nodes(hint: Any) -> bool:
    """Return whether a type annotation admits canonical nodes, alone or in a tuple."""
    if get_origin(hint) in (Union, UnionType, tuple):
        return any(_holds_nodes(member) for member in get_args(hint))
    return isinstance(hint, type) and issubclass(hint, Node)
