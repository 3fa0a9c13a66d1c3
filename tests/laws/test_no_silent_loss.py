"""No silent loss: every value arrives, or a loss reports its exact position."""

from functools import cached_property
from typing import Any

import pytest

import toolwire as tw
from tests.support.assertions import non_empty
from tests.support.samples import recorded_bodies
from tests.support.samples.json_leaves import (
    MARKER,
    NUMBER,
    UNKNOWN_KEY,
    SeenShapes,
    leaves,
    object_paths,
    resolve,
    with_value,
    without_value,
)

# Settings for the response, which the gateway applies without the provider.
RESPONSE_SETTINGS = ("/stream_options/include_usage",)
OTHER_VALUES: list[Any] = [None, "", 0, [], {}, True, "other", [{}]]
"""Values of a wrong type. `make test` tries each place with half of them."""


class Probe:
    """A body to translate unchanged, once, or with one value replaced."""

    def __init__(self, body: Any, source: str, target: str, kind: Any, **options: Any) -> None:
        self.body = body
        self._translation = (source, target, kind)
        self._options = options

    def changed(self, path: str, value: Any) -> tw.Translation | None:
        """Translate the body with a value replaced, or return None if it is refused."""
        try:
            return tw.translate(with_value(self.body, path, value), *self._translation, **self._options)
        except (tw.DecodeError, tw.LossyTranslationError):
            return None

    @cached_property
    def unchanged(self) -> tuple[Any, list[tw.Loss]] | None:
        """The translated body and route with its losses, or None if it is refused."""
        try:
            encoded = tw.translate(self.body, *self._translation, **self._options)
        except tw.LossyTranslationError:
            return None
        return (encoded.value, encoded.route), encoded.losses


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_changed_value_arrives_or_is_reported(source: str, target: str, kind: Any) -> None:
    silent_losses = []
    shapes = SeenShapes()
    for name, body in _bodies(source, kind).items():
        probe = Probe(body, source, target, kind)
        for path, value in leaves(body):
            mark = _marker_for(value)
            new = mark is not None and path not in RESPONSE_SETTINGS and shapes.is_new(body, path)
            tried = new and recorded_bodies.is_sampled(path, target, one_in=2)
            if tried and not _is_accounted_for(probe, path, mark):
                silent_losses.append(f"{name}{path}")
    assert silent_losses == []


@pytest.mark.parametrize("host", ["generic", "mistral"])
@pytest.mark.parametrize("source", [name for name in recorded_bodies.PROTOCOL_NAMES if name != "openai-chat"])
def test_a_changed_value_arrives_at_a_host_or_is_reported(source: str, host: str) -> None:
    silent_losses = []
    shapes = SeenShapes()
    for name, body in _bodies(source, "request").items():
        probe = Probe(body, source, "openai-chat", "request", host=host)
        for path, value in leaves(body):
            mark = _marker_for(value)
            new = mark is not None and path not in RESPONSE_SETTINGS and shapes.is_new(body, path)
            if new and not _is_accounted_for(probe, path, mark):
                silent_losses.append(f"{name}{path}")
    assert silent_losses == []


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_an_unknown_field_arrives_or_is_reported(source: str, target: str, kind: Any) -> None:
    silent_losses = []
    shapes = SeenShapes()
    for name, body in _bodies(source, kind).items():
        probe = Probe(body, source, target, kind)
        new = [path for path in object_paths(body) if shapes.is_new(body, path)]
        silent_losses += [
            f"{name}{path}"
            for path in new
            if recorded_bodies.is_sampled(path, target, one_in=2)
            and not _is_accounted_for(probe, f"{path}/{UNKNOWN_KEY}", MARKER)
        ]
    assert silent_losses == []


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_an_unknown_field_survives_within_its_protocol(protocol: str, kind: Any) -> None:
    shapes = SeenShapes()
    for name, body in non_empty(_bodies(protocol, kind).items()):
        for path in [path for path in object_paths(body) if shapes.is_new(body, path)]:
            changed = with_value(body, f"{path}/{UNKNOWN_KEY}", {"a": [1, None]})
            encoded = tw.translate(changed, protocol, protocol, kind)
            assert encoded.value == changed, f"{name}{path}"
            assert encoded.losses == []


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("number", range(len(OTHER_VALUES)))
def test_a_value_of_the_wrong_type_survives_or_is_refused_by_name(protocol: str, kind: Any, number: int) -> None:
    wrong = []
    shapes = SeenShapes()
    for name, body in _bodies(protocol, kind).items():
        for path in [path for path, _ in leaves(body) if shapes.is_new(body, path)]:
            if not recorded_bodies.is_selected(path, number, one_in=2):
                continue
            changed = with_value(body, path, OTHER_VALUES[number])
            try:
                encoded = tw.translate(changed, protocol, protocol, kind)
            except tw.LossyTranslationError as error:  # a name that cannot stand in a URL path
                if [loss.path for loss in error.losses] != [path]:
                    wrong.append(f"{name}{path}: {error}")
                continue
            except tw.DecodeError as error:
                if not (path.startswith(error.path) or error.path.startswith(path)):
                    wrong.append(f"{name}{path}: refused at {error.path}")
                continue
            if encoded.value != changed:
                wrong.append(f"{name}{path}: was changed")
    assert wrong == []


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_body_without_a_field_survives_or_is_refused(protocol: str, kind: Any) -> None:
    wrong = []
    shapes = SeenShapes()
    for name, body in _bodies(protocol, kind).items():
        paths = [*(path for path, _ in leaves(body)), *(path for path in object_paths(body) if path)]
        for path in [path for path in paths if shapes.is_new(body, path)]:
            changed = without_value(body, path)
            try:
                encoded = tw.translate(changed, protocol, protocol, kind)
            except tw.DecodeError:
                continue
            if encoded.value != changed:
                wrong.append(f"{name} without {path}: was changed")
    assert wrong == []


def _bodies(protocol: str, kind: str) -> dict[str, Any]:
    return (
        recorded_bodies.fixture_requests(protocol) if kind == "request" else recorded_bodies.fixture_responses(protocol)
    )


def _marker_for(value: Any) -> Any:
    """Return a value of the same type that is easy to find."""
    if isinstance(value, str):
        return MARKER
    if isinstance(value, bool):
        return not value
    if value is None:
        return None
    return NUMBER if isinstance(value, int) else NUMBER + 0.5


def _is_accounted_for(probe: Probe, path: str, mark: Any) -> bool:
    """Whether the marked value is in the output, or a loss reports it or an object that contains it.

    A number may be part of a sum, so a changed output is enough. One boolean may be the default, so a loss
    of its opposite is enough.
    """
    if (encoded := probe.changed(path, mark)) is None:
        return True
    if isinstance(mark, str) and mark in encoded.to_bytes().decode() + str(encoded.route):
        return True
    losses = encoded.losses
    if not isinstance(mark, str):
        if (unchanged := probe.unchanged) is None:
            return True
        output, unchanged_losses = unchanged
        if (encoded.value, encoded.route) != output:
            return True
        losses = losses + unchanged_losses if isinstance(mark, bool) else losses
    return any(_covers(loss.path, path, probe.body) for loss in losses)


def _covers(loss: str, path: str, body: Any) -> bool:
    """Whether a loss covers a path: the path itself or what it contains, unless it is a list or the root."""
    if loss == path:
        return True
    if not loss or not path.startswith(loss + "/"):
        return False
    return not isinstance(resolve(body, loss), list)
