"""No silent loss: whatever is said anywhere arrives, or is named in the report by its exact place."""

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

# What a request says about its own answer: whoever writes that obeys it, and the provider is not asked.
FOR_THE_ANSWER = ("/stream_options/include_usage",)


class Crossing:
    """A body on its way to another protocol: as it is, which is translated once, or with something changed in it."""

    def __init__(self, body: Any, source: str, target: str, kind: Any, **options: Any) -> None:
        self.body = body
        self._way = (source, target, kind)
        self._options = options

    def changed(self, path: str, value: Any) -> tw.Translation | None:
        """None if it is refused."""
        try:
            return tw.translate(with_value(self.body, path, value), *self._way, **self._options)
        except (tw.DecodeError, tw.LossyTranslationError):
            return None

    @cached_property
    def unchanged(self) -> tuple[Any, list[tw.Loss]] | None:
        """What is made of it, and what is lost; None if it is refused."""
        try:
            encoded = tw.translate(self.body, *self._way, **self._options)
        except tw.LossyTranslationError:
            return None
        return (encoded.value, encoded.route), encoded.losses


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_changed_value_arrives_or_is_reported(source: str, target: str, kind: Any) -> None:
    silent = []
    shapes = SeenShapes()
    for name, body in _bodies(source, kind).items():
        crossing = Crossing(body, source, target, kind)
        for path, value in leaves(body):
            mark = _mark(value)
            new = mark is not None and path not in FOR_THE_ANSWER and shapes.is_new(body, path)
            if new and not _told(crossing, path, mark):
                silent.append(f"{name}{path}")
    assert silent == []


@pytest.mark.parametrize("host", ["generic", "mistral"])
@pytest.mark.parametrize("source", [name for name in recorded_bodies.PROTOCOL_NAMES if name != "openai-chat"])
def test_a_changed_value_arrives_at_a_host_or_is_reported(source: str, host: str) -> None:
    silent = []
    shapes = SeenShapes()
    for name, body in _bodies(source, "request").items():
        crossing = Crossing(body, source, "openai-chat", "request", host=host)
        for path, value in leaves(body):
            mark = _mark(value)
            new = mark is not None and path not in FOR_THE_ANSWER and shapes.is_new(body, path)
            if new and not _told(crossing, path, mark):
                silent.append(f"{name}{path}")
    assert silent == []


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_an_unknown_field_arrives_or_is_reported(source: str, target: str, kind: Any) -> None:
    silent = []
    shapes = SeenShapes()
    for name, body in _bodies(source, kind).items():
        crossing = Crossing(body, source, target, kind)
        new = [path for path in object_paths(body) if shapes.is_new(body, path)]
        silent += [f"{name}{path}" for path in new if not _told(crossing, f"{path}/{UNKNOWN_KEY}", MARKER)]
    assert silent == []


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_an_unknown_field_comes_home(protocol: str, kind: Any) -> None:
    shapes = SeenShapes()
    for name, body in non_empty(_bodies(protocol, kind).items()):
        for path in [path for path in object_paths(body) if shapes.is_new(body, path)]:
            other = with_value(body, f"{path}/{UNKNOWN_KEY}", {"a": [1, None]})
            encoded = tw.translate(other, protocol, protocol, kind)
            assert encoded.value == other, f"{name}{path}"
            assert encoded.losses == []


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("value", [None, "", 0, [], {}, True, "other", [{}]])
def test_a_value_of_another_type_comes_home_or_is_refused_by_name(protocol: str, kind: Any, value: Any) -> None:
    wrong = []
    shapes = SeenShapes()
    for name, body in _bodies(protocol, kind).items():
        for path in [path for path, _ in leaves(body) if shapes.is_new(body, path)]:
            other = with_value(body, path, value)
            try:
                encoded = tw.translate(other, protocol, protocol, kind)
            except tw.LossyTranslationError as error:  # a name that can't stand in a path
                if [loss.path for loss in error.losses] != [path]:
                    wrong.append(f"{name}{path}: {error}")
                continue
            except tw.DecodeError as error:
                if not (path.startswith(error.path) or error.path.startswith(path)):
                    wrong.append(f"{name}{path}: refused at {error.path}")
                continue
            if encoded.value != other:
                wrong.append(f"{name}{path}: came back as something else")
    assert wrong == []


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_body_that_lacks_something_comes_home_or_is_refused(protocol: str, kind: Any) -> None:
    wrong = []
    shapes = SeenShapes()
    for name, body in _bodies(protocol, kind).items():
        places = [*(path for path, _ in leaves(body)), *(path for path in object_paths(body) if path)]
        for path in [path for path in places if shapes.is_new(body, path)]:
            other = without_value(body, path)
            try:
                encoded = tw.translate(other, protocol, protocol, kind)
            except tw.DecodeError:
                continue
            if encoded.value != other:
                wrong.append(f"{name} without {path}: came back as something else")
    assert wrong == []


def _bodies(protocol: str, kind: str) -> dict[str, Any]:
    return (
        recorded_bodies.fixture_requests(protocol) if kind == "request" else recorded_bodies.fixture_responses(protocol)
    )


def _mark(value: Any) -> Any:
    """Another value of the same type that is easy to find again."""
    if isinstance(value, str):
        return MARKER
    if isinstance(value, bool):
        return not value
    if value is None:
        return None
    return NUMBER if isinstance(value, int) else NUMBER + 0.5


def _told(crossing: Crossing, path: str, mark: Any) -> bool:
    """Whether the marked value is in the output, or reported: at its place, or at an object that holds it.

    A number may arrive as part of a sum, so it is enough that the output changed with it. Of a boolean and its opposite
    one may be what the target does anyway: it is enough that the other is reported.
    """
    if (encoded := crossing.changed(path, mark)) is None:
        return True
    if isinstance(mark, str) and mark in encoded.to_bytes().decode() + str(encoded.route):
        return True
    losses = encoded.losses
    if not isinstance(mark, str):
        if (unchanged := crossing.unchanged) is None:
            return True
        made, lost = unchanged
        if (encoded.value, encoded.route) != made:
            return True
        losses = losses + lost if isinstance(mark, bool) else losses
    return any(_covers(loss.path, path, crossing.body) for loss in losses)


def _covers(loss: str, path: str, body: Any) -> bool:
    """A loss covers its own place and what is in it, unless it names a list or the root."""
    if loss == path:
        return True
    if not loss or not path.startswith(loss + "/"):
        return False
    return not isinstance(resolve(body, loss), list)
