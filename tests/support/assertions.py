"""Assertions that fail with a readable message."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def non_empty(items: Iterable[T]) -> Iterator[T]:
    """Iterate over the items and fail if there are none, so that assertions in a loop cannot be skipped."""
    empty = True
    for item in items:
        empty = False
        yield item
    assert not empty, "there is nothing to loop over"


def json_differences(before: Any, after: Any, path: str = "") -> list[str]:
    """List the paths at which two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        differences = [f"{path}/{key} appeared" for key in after.keys() - before.keys()]
        differences += [f"{path}/{key} is gone" for key in before.keys() - after.keys()]
        for key in before.keys() & after.keys():
            differences += json_differences(before[key], after[key], f"{path}/{key}")
        return differences
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [text for index, pair in pairs for text in json_differences(*pair, f"{path}/{index}")]
    return [] if before == after else [f"{path}: {str(before)[:60]} became {str(after)[:60]}"]
