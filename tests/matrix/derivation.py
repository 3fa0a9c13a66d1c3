"""The support matrix, from the golden files: what became of each feature of each source at each target.

A loss counts for the most exact feature at or above its place. Where a whole thing was left behind, that says little of
what it held, so it counts for that only where nothing else is known.
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
LOSS = re.compile(r"(?P<kind>\w+) (?P<path>.*?)(?: -> .*?)?: (?P<reason>.*)")
KINDS = {"requests": "request", "responses": "response", "streams": "response", "errors": "error"}

OWN_FIELD = "no equivalent in the target protocol"

MAPPED, APPROXIMATED, REPORTED, REFUSED, VARIES = "mapped", "approximated", "reported", "refused", "varies"


class Loss(NamedTuple):
    kind: str
    path: str
    why: str


class Instance(NamedTuple):
    """A feature in a body: the places that it takes up."""

    feature: str
    places: frozenset[str]


class Body(NamedTuple):
    file: str
    name: str
    instances: tuple[Instance, ...]


@cache
def bodies(protocol: str) -> tuple[Body, ...]:
    """Every fixture of a protocol, by the golden file that it is in."""
    return tuple(
        Body(file, name, (*_instances(KINDS[file], root, protocol), *_unknown(file, name, protocol)))
        for file, name, root in _roots(protocol)
    )


def _roots(protocol: str) -> Iterator[tuple[str, str, Node]]:
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


def _unknown(file: str, name: str, protocol: str) -> Iterator[Instance]:
    """The frames of a stream that nobody knows: they are in no answer."""
    if file != "streams":
        return
    decoder = PROTOCOLS[protocol].stream_decoder(ResponseContext())
    for event in decoder.feed(recorded_bodies.fixture_streams(protocol)[name]):
        if isinstance(event, Notice) and event.kind == UNKNOWN_FRAME and event.extras:
            for kept in event.extras.values():
                told = json.loads(bytes(kept["frame"]))
                yield Instance("answer-own-fields", frozenset({"/" + told.get("type", told.get("event_type"))}))


def _instances(kind: str, root: Node, protocol: str) -> Iterator[Instance]:
    names = PROTOCOLS[protocol].wire_names
    rows = [feature for of, group in GROUPS.values() if of == kind for feature in group]
    for seen in walk(root):
        for feature in rows:
            if fields := feature.found(seen):
                found = {pointer for field in fields for pointer in _pointers(root, seen, field, names)}
                # A canonical group without a wire object of its own stands at the root, and so nowhere.
                if places := found - {""}:
                    yield Instance(feature.name, frozenset(places))
    for trail, family, kept in foreign_extras(root, ()):
        name = PREFIXES[kind] + ("guards" if family.endswith(":constraint") else "own-fields")
        for place in [place for key, value in kept.items() for place in element_pointers(value, key)]:
            yield Instance(name, frozenset(source_pointers(root, trail, "//" + place, names)))


def _pointers(root: Node, seen: LocatedNode, field: str, names: WireNames) -> Iterator[str]:
    yield from source_pointers(root, seen.path, field, names)
    value = getattr(seen.node, field) if field else None
    if isinstance(value, Node):
        yield from source_pointers(root, (*seen.path, field), "", names)
    for index, element in enumerate(value if isinstance(value, tuple) else ()):
        if isinstance(element, Node):  # it may stand apart from what it belongs to
            yield from source_pointers(root, (*seen.path, field, index), "", names)


class Verdict(NamedTuple):
    """What became of one instance. `direct`: not merely because of what it stood in."""

    outcome: str
    losses: tuple[Loss, ...] = ()
    direct: bool = True


def _above(path: str) -> Iterator[str]:
    """A pointer and those of everything around it, the nearest first."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def judge(body: Body, losses: list[Loss], *, refused: bool) -> tuple[list[tuple[str, Verdict]], list[Loss]]:
    """What became of each instance, and the losses that belong to none."""
    own_fields = PREFIXES[KINDS[body.file]] + "own-fields"
    alone = {loss.path for loss in losses if loss.why == OWN_FIELD}
    judged = [(own_fields, Verdict(REPORTED, (loss,))) for loss in losses if loss.path in alone]
    instances = [one for one in body.instances if one.feature != own_fields or alone.isdisjoint(one.places)]
    holders: dict[str, list[int]] = {}
    for number, instance in enumerate(instances):
        for place in instance.places:
            holders.setdefault(place, []).append(number)
    own: dict[int, list[Loss]] = {}
    around: dict[int, list[Loss]] = {}
    stray = []
    for loss in losses:
        if loss.path in alone:
            continue
        nearest = next((place for place in _above(loss.path) if place in holders), None)
        inside = [place for place in holders if place.startswith(loss.path + "/")]
        for number in holders[nearest] if nearest is not None else ():
            own.setdefault(number, []).append(loss)
        for number in (number for place in inside for number in holders[place]):
            around.setdefault(number, []).append(loss)
        if nearest is None and not inside:
            stray.append(loss)
    for number, instance in enumerate(instances):
        verdict = _verdict(instance, own.get(number, []), around.get(number, []), refused=refused)
        if verdict is not None:
            judged.append((instance.feature, verdict))
    return judged, stray


def _verdict(instance: Instance, own: list[Loss], around: list[Loss], *, refused: bool) -> Verdict | None:
    if refused:
        return Verdict(REFUSED, tuple(own)) if own else None
    if not own:
        kind = REPORTED if any(loss.kind == "dropped" for loss in around) else APPROXIMATED
        return Verdict(kind, tuple(around), direct=False) if around else Verdict(MAPPED)
    gone = {loss.path for loss in own if loss.kind == "dropped"}
    deepest = [
        place for place in instance.places if not any(other.startswith(place + "/") for other in instance.places)
    ]
    if all(not gone.isdisjoint(_above(place)) for place in deepest):
        return Verdict(REPORTED, tuple(loss for loss in own if loss.kind == "dropped"))
    return Verdict(APPROXIMATED, tuple(own))


def _read(text: str) -> Loss:
    found = LOSS.fullmatch(text)
    if found is None:
        raise ValueError(f"not a loss: {text}")
    return Loss(found["kind"], found["path"], found["reason"])


def verdicts(source: str, target: str) -> Iterator[tuple[Body, list[tuple[str, Verdict]], list[Loss]]]:
    """For each body: features with what became of them, and the losses that belong to none."""
    golden = {file: json.loads((GOLDEN / f"{source}_to_{target}" / f"{file}.json").read_text()) for file in KINDS}
    for body in bodies(source):
        kept = golden[body.file].get(body.name)
        if kept is None:
            raise LookupError(f"{source} to {target}: no {body.name} in {body.file}.json; run `make golden` first")
        losses = [_read(text) for text in kept.get("refused", kept.get("losses"))]
        told = [loss for loss in losses if loss.kind != "added"]
        yield body, *judge(body, told, refused="refused" in kept)


def cells(source: str, target: str) -> dict[str, Any]:
    """The outcome of each feature that the source can express, with the losses that tell of it."""
    found: dict[str, list[Verdict]] = {}
    for _, judged, _ in verdicts(source, target):
        for feature, verdict in judged:
            found.setdefault(feature, []).append(verdict)
    rows = [feature.name for _, group in GROUPS.values() for feature in group]
    return {name: _cell(found[name]) for name in rows if name in found}


def _cell(found: list[Verdict]) -> str | list[Any]:
    known = [verdict for verdict in found if verdict.direct] or found
    outcomes = {verdict.outcome for verdict in known}
    arrives = outcomes <= {MAPPED, APPROXIMATED}
    outcome = outcomes.pop() if len(outcomes) == 1 else APPROXIMATED if arrives else VARIES
    told: dict[tuple[str, str], list[str]] = {}
    for verdict in known:
        for loss in verdict.losses:
            kind = REFUSED if verdict.outcome == REFUSED else loss.kind
            told.setdefault((kind, loss.why), [kind, _pattern(loss.path), loss.why])
    return [outcome, *told.values()] if told else outcome


def _pattern(path: str) -> str:
    """A pointer without the numbers that only its body had."""
    return re.sub(r"/\d+(?=/|$)", "/*", path)


def matrix() -> dict[str, Any]:
    """What `toolwire protocols` shows: `pairs[source][target][feature]` is an outcome, or a list of it and the losses
    that were seen, each as kind, place and why."""
    pairs: dict[str, Any] = {}
    for source, target in permutations(PROTOCOLS, 2):
        pairs.setdefault(source, {})[target] = cells(source, target)
    return {
        "protocols": {name: _title(name) for name in PROTOCOLS},
        "features": {heading: {one.name: one.title for one in group} for heading, (_, group) in GROUPS.items()},
        "pairs": pairs,
    }


def _title(protocol: str) -> str:
    """What the package that speaks it says of itself."""
    package = import_module(PROTOCOLS[protocol].decode_request.__module__.partition(".request")[0])
    return re.split(r"[.:]", str(package.__doc__))[0]
