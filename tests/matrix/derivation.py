"""The support matrix, derived from the golden files: the outcome of each feature for each pair of protocols.

A loss counts for the most specific feature at or above its path. The loss of a containing value says little about the
feature, so it counts only if nothing else is known.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from tests.matrix.features import GROUPS, PREFIXES
from tests.matrix.located_nodes import LocatedNode, walk
from tests.support.samples import recorded_bodies
from toolwire.canonical.events import UNKNOWN_FRAME, Notice
from toolwire.canonical.fold import fold
from toolwire.canonical.node import Node
from toolwire.codec.interface import ResponseContext, Route
from toolwire.codec.losses import WireNames, element_pointers, foreign_extras, source_pointers
from toolwire.protocols import PROTOCOLS

GOLDEN = Path(__file__).parents[1] / "golden"
LOSS = re.compile(r"(?:error|warning|info) (?P<kind>\w+) (?P<path>.*?)(?: -> .*?)?: (?P<reason>.*)")
KINDS = {"requests": "request", "responses": "response", "streams": "response", "errors": "error"}

NO_EQUIVALENT = "no equivalent in the target protocol"

MAPPED, APPROXIMATED, REPORTED, REFUSED, VARIES = "mapped", "approximated", "reported", "refused", "varies"


class Loss(NamedTuple):
    """A loss as the golden files record it."""

    kind: str
    path: str
    reason: str


class Instance(NamedTuple):
    """A feature in a body, with the JSON pointers of its values."""

    feature: str
    paths: frozenset[str]


class Body(NamedTuple):
    """A fixture with its features."""

    file: str
    name: str
    instances: tuple[Instance, ...]


@cache
def bodies(protocol: str) -> tuple[Body, ...]:
    """Return every fixture of a protocol with its golden file."""
    return tuple(
        Body(file, name, (*_instances(KINDS[file], root, protocol), *_unknown_frames(file, name, protocol)))
        for file, name, root in _roots(protocol)
    )


def _roots(protocol: str) -> Iterator[tuple[str, str, Node]]:
    """Yield the golden file, the name and the decoded body of every fixture."""
    codec = PROTOCOLS[protocol]
    for name, body in recorded_bodies.fixture_requests(protocol).items():
        yield "requests", name, codec.decode_request(json.dumps(body).encode(), Route())
    for name, body in recorded_bodies.fixture_responses(protocol).items():
        yield "responses", name, codec.decode_response(json.dumps(body).encode(), ResponseContext())
    for name, wire in recorded_bodies.fixture_streams(protocol).items():
        decoder = codec.stream_decoder(ResponseContext())
        yield "streams", name, fold(decoder.feed(wire) + decoder.close())
    for name, body in recorded_bodies.fixture_errors(protocol).items():
        yield "errors", name, codec.decode_error(json.dumps(body).encode(), None)


def _unknown_frames(file: str, name: str, protocol: str) -> Iterator[Instance]:
    """Yield the unknown frames of a stream, which are in no folded response."""
    if file != "streams":
        return
    decoder = PROTOCOLS[protocol].stream_decoder(ResponseContext())
    for event in decoder.feed(recorded_bodies.fixture_streams(protocol)[name]):
        if isinstance(event, Notice) and event.kind == UNKNOWN_FRAME and event.extras:
            for extras in event.extras.values():
                frame = json.loads(bytes(extras["frame"]))
                yield Instance("answer-own-fields", frozenset({"/" + frame.get("type", frame.get("event_type"))}))


def _instances(kind: str, root: Node, protocol: str) -> Iterator[Instance]:
    """Yield every feature of a body, and its vendor-specific fields."""
    names = PROTOCOLS[protocol].wire_names
    rows = [feature for group_kind, group in GROUPS.values() if group_kind == kind for feature in group]
    for located in walk(root):
        for feature in rows:
            if fields := feature.present_fields(located):
                pointers = {pointer for field in fields for pointer in _pointers(root, located, field, names)}
                # A canonical group without a wire object points to the root, which is no position.
                if paths := pointers - {""}:
                    yield Instance(feature.name, frozenset(paths))
    for trail, family, extras in foreign_extras(root, ()):
        name = PREFIXES[kind] + ("guards" if family.endswith(":constraint") else "own-fields")
        for pointer in [pointer for key, value in extras.items() for pointer in element_pointers(value, key)]:
            yield Instance(name, frozenset(source_pointers(root, trail, "//" + pointer, names)))


def _pointers(root: Node, located: LocatedNode, field: str, names: WireNames) -> Iterator[str]:
    """Yield the JSON pointers of a field and of the nodes in it."""
    yield from source_pointers(root, located.path, field, names)
    value = getattr(located.node, field) if field else None
    if isinstance(value, Node):
        yield from source_pointers(root, (*located.path, field), "", names)
    for index, element in enumerate(value if isinstance(value, tuple) else ()):
        if isinstance(element, Node):  # an element may stand outside its parent on the wire
            yield from source_pointers(root, (*located.path, field, index), "", names)


class Verdict(NamedTuple):
    """The outcome of one instance."""

    outcome: str
    losses: tuple[Loss, ...] = ()
    direct: bool = True  # false if only a containing value was lost


def _path_and_parents(path: str) -> Iterator[str]:
    """Yield a pointer and those of its parents, nearest first."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def judge(body: Body, losses: list[Loss], *, refused: bool) -> tuple[list[tuple[str, Verdict]], list[Loss]]:
    """Return the outcome of each instance, and the losses that belong to none."""
    own_fields = PREFIXES[KINDS[body.file]] + "own-fields"
    vendor_paths = {loss.path for loss in losses if loss.reason == NO_EQUIVALENT}
    judged = [(own_fields, Verdict(REPORTED, (loss,))) for loss in losses if loss.path in vendor_paths]
    instances = [
        instance
        for instance in body.instances
        if instance.feature != own_fields or vendor_paths.isdisjoint(instance.paths)
    ]
    instances_at: dict[str, list[int]] = {}
    for number, instance in enumerate(instances):
        for path in instance.paths:
            instances_at.setdefault(path, []).append(number)
    direct_losses: dict[int, list[Loss]] = {}
    parent_losses: dict[int, list[Loss]] = {}
    unassigned = []
    for loss in losses:
        if loss.path in vendor_paths:
            continue
        nearest = next((path for path in _path_and_parents(loss.path) if path in instances_at), None)
        inside = [path for path in instances_at if path.startswith(loss.path + "/")]
        for number in instances_at[nearest] if nearest is not None else ():
            direct_losses.setdefault(number, []).append(loss)
        for number in (number for path in inside for number in instances_at[path]):
            parent_losses.setdefault(number, []).append(loss)
        if nearest is None and not inside:
            unassigned.append(loss)
    for number, instance in enumerate(instances):
        verdict = _verdict(instance, direct_losses.get(number, []), parent_losses.get(number, []), refused=refused)
        if verdict is not None:
            judged.append((instance.feature, verdict))
    return judged, unassigned


def _verdict(
    instance: Instance, direct_losses: list[Loss], parent_losses: list[Loss], *, refused: bool
) -> Verdict | None:
    """Judge one instance by its own losses, or by those of a containing value."""
    if refused:
        return Verdict(REFUSED, tuple(direct_losses)) if direct_losses else None
    if not direct_losses:
        kind = REPORTED if any(loss.kind == "dropped" for loss in parent_losses) else APPROXIMATED
        return Verdict(kind, tuple(parent_losses), direct=False) if parent_losses else Verdict(MAPPED)
    dropped = {loss.path for loss in direct_losses if loss.kind == "dropped"}
    deepest = [path for path in instance.paths if not any(other.startswith(path + "/") for other in instance.paths)]
    if all(not dropped.isdisjoint(_path_and_parents(path)) for path in deepest):
        return Verdict(REPORTED, tuple(loss for loss in direct_losses if loss.kind == "dropped"))
    return Verdict(APPROXIMATED, tuple(direct_losses))


def _parse_loss(text: str) -> Loss:
    """Parse a loss from its text in a golden file."""
    match = LOSS.fullmatch(text)
    if match is None:
        raise ValueError(f"not a loss: {text}")
    return Loss(match["kind"], match["path"].removeprefix("body"), match["reason"])


def verdicts(source: str, target: str) -> Iterator[tuple[Body, list[tuple[str, Verdict]], list[Loss]]]:
    """Yield each body with the outcomes of its features and the losses that belong to none."""
    golden = {file: json.loads((GOLDEN / f"{source}_to_{target}" / f"{file}.json").read_text()) for file in KINDS}
    for body in bodies(source):
        entry = golden[body.file].get(body.name)
        if entry is None:
            raise LookupError(f"{source} to {target}: no {body.name} in {body.file}.json; run `make golden` first")
        losses = [_parse_loss(text) for text in entry.get("refused", entry.get("losses"))]
        reported = [loss for loss in losses if loss.kind != "added"]
        yield body, *judge(body, reported, refused="refused" in entry)


def cells(source: str, target: str) -> dict[str, Any]:
    """Return the outcome of each feature of the source, with its losses."""
    by_feature: dict[str, list[Verdict]] = {}
    for _, judged, _ in verdicts(source, target):
        for feature, verdict in judged:
            by_feature.setdefault(feature, []).append(verdict)
    rows = [feature.name for _, group in GROUPS.values() for feature in group]
    return {name: _summarize_verdicts(by_feature[name]) for name in rows if name in by_feature}


def _summarize_verdicts(all_verdicts: list[Verdict]) -> str | list[Any]:
    """Combine the verdicts of one feature into a cell."""
    known = [verdict for verdict in all_verdicts if verdict.direct] or all_verdicts
    outcomes = {verdict.outcome for verdict in known}
    arrives = outcomes <= {MAPPED, APPROXIMATED}
    outcome = outcomes.pop() if len(outcomes) == 1 else APPROXIMATED if arrives else VARIES
    losses: dict[tuple[str, str], list[str]] = {}
    for verdict in known:
        for loss in verdict.losses:
            kind = REFUSED if verdict.outcome == REFUSED else loss.kind
            losses.setdefault((kind, loss.reason), [kind, _without_indices(loss.path), loss.reason])
    return [outcome, *losses.values()] if losses else outcome


def _without_indices(path: str) -> str:
    """Replace the indices of a pointer by `*`."""
    return re.sub(r"/\d+(?=/|$)", "/*", path)


def matrix() -> dict[str, Any]:
    """Build the data that `toolwire protocols` shows.

    `pairs[source][target][feature]` is an outcome, or a list of an outcome and its losses: kind, path and reason.
    """
    pairs: dict[str, Any] = {}
    for source, target in permutations(PROTOCOLS, 2):
        pairs.setdefault(source, {})[target] = cells(source, target)
    return {
        "protocols": {name: _title(name) for name in PROTOCOLS},
        "features": {
            heading: {feature.name: feature.title for feature in group} for heading, (_, group) in GROUPS.items()
        },
        "pairs": pairs,
    }


def _title(protocol: str) -> str:
    """Return the title of a protocol from its package's docstring."""
    package = import_module(PROTOCOLS[protocol].decode_request.__module__.partition(".request")[0])
    return re.split(r"[.:]", str(package.__doc__))[0]
