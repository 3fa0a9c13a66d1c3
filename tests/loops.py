"""Loops that prove something only if they run."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def some(items: Iterable[T]) -> Iterator[T]:
    """Iterate, and fail where there is nothing to iterate over: assertions in a loop that never runs assert nothing."""
    empty = True
    for item in items:
        empty = False
        yield item
    assert not empty, "there is nothing to loop over"
