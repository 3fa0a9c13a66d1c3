"""Values of a JSON body by JSON pointer, and copies of the body with one value changed."""

from collections.abc import Iterator
from typing import Any

MARKER = "zq7MarkedValue"  # the same in both alphabets of base64, which is told in either
NUMBER = 8_675_309
UNKNOWN_KEY = "x_of_tomorrow"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield scalars with their JSON pointers."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{escape(key)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}/{index}")
    else:
        yield path, value


def object_paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the JSON pointers of all objects."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            yield from object_paths(inner, f"{path}/{escape(key)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from object_paths(inner, f"{path}/{index}")


class SeenShapes:
    """A filter for equivalent positions in bodies.

    Positions are equivalent if they have the same keys, in objects with the same keys and type, all the way up. Of
    these, only the first position counts, and the first that is not at the start of a list.
    """

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
    """Return the value at a pointer; raise KeyError if there is none."""
    for step in path.split("/")[1:]:
        try:
            body = body[_key(body, step)]
        except (IndexError, ValueError, TypeError):
            raise KeyError(path) from None
    return body


def with_value(body: Any, path: str, value: Any) -> Any:
    """Return the body with this value at the pointer.

    All other values are shared, since copying the body for each of its leaves is slow.
    """
    copy, parent, key = _copy_along(body, path)
    parent[key] = value
    return copy


def without_value(body: Any, path: str) -> Any:
    """Return the body without the value at the pointer."""
    copy, parent, key = _copy_along(body, path)
    del parent[key]
    return copy


def _copy_along(body: Any, path: str) -> tuple[Any, Any, Any]:
    """Copy the containers along a path; return the copy, the innermost container and the last key."""
    copy = parent = body.copy()
    *parents, last = path.split("/")[1:]
    for step in parents:
        key = _key(parent, step)
        parent[key] = parent = parent[key].copy()
    return copy, parent, _key(parent, last)


def _key(parent: Any, step: str) -> int | str:
    return int(step) if isinstance(parent, list) else unescape(step)
