"""Every value of a body, one at a time: where it stands, and the body with another value in its place."""

from collections.abc import Iterator
from typing import Any

MARKER = "zq7MarkedValue"  # the same in both alphabets of base64, which is told in either
NUMBER = 8_675_309
UNKNOWN_KEY = "x_of_tomorrow"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Scalars with their JSON pointers."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{escape(key)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}/{index}")
    else:
        yield path, value


def object_paths(value: Any, path: str = "") -> Iterator[str]:
    """Pointers of all objects."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            yield from object_paths(inner, f"{path}/{escape(key)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from object_paths(inner, f"{path}/{index}")


class SeenShapes:
    """Which places are alike: under the same keys, of objects that have the same keys and say the same of their type,
    all the way up. Of those that are, one is as good as all: the first, and the first of those that are not first in
    their lists."""

    def __init__(self) -> None:
        self._seen: set[tuple[Any, ...]] = set()

    def is_new(self, body: Any, path: str) -> bool:
        shape = tuple(_steps(body, path))
        new = shape not in self._seen
        self._seen.add(shape)
        return new


def _steps(body: Any, path: str) -> Iterator[Any]:
    for step in path.split("/")[1:]:
        if isinstance(body, list):
            yield int(step) > 0
            body = body[int(step)]
        else:
            yield step, frozenset(body), *(str(body.get(name)) for name in ("type", "role", "name"))
            body = body.get(unescape(step))
    yield type(body)


def escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def resolve(body: Any, path: str) -> Any:
    """The value that a pointer names; KeyError if there is none."""
    for step in path.split("/")[1:]:
        try:
            body = body[_key(body, step)]
        except (IndexError, ValueError, TypeError):
            raise KeyError(path) from None
    return body


def with_value(body: Any, path: str, value: Any) -> Any:
    """The body with this value at the pointer. What is not on the way there is shared, since all of a body would be
    copied for each of its leaves."""
    copy, parent, key = _copy_along(body, path)
    parent[key] = value
    return copy


def without_value(body: Any, path: str) -> Any:
    """The body without what the pointer names."""
    copy, parent, key = _copy_along(body, path)
    del parent[key]
    return copy


def _copy_along(body: Any, path: str) -> tuple[Any, Any, Any]:
    """A copy along this way, what holds its end there, and under which key."""
    copy = parent = body.copy()
    *way, last = path.split("/")[1:]
    for step in way:
        key = _key(parent, step)
        parent[key] = parent = parent[key].copy()
    return copy, parent, _key(parent, last)


def _key(parent: Any, step: str) -> int | str:
    return int(step) if isinstance(parent, list) else unescape(step)
