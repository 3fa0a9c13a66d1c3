"""Cutting what arrives: the same bytes or text in any pieces."""

import itertools
from collections.abc import Iterator
from typing import TypeVar

from hypothesis import strategies as st

Sliced = TypeVar("Sliced", bytes, str)


def cut(whole: Sliced, points: list[int]) -> list[Sliced]:
    """The pieces between these points; some may be empty."""
    ends = [0, *sorted(point % (len(whole) + 1) for point in points), len(whole)]
    return [whole[start:end] for start, end in itertools.pairwise(ends)]


def cut_in_two(whole: Sliced) -> Iterator[list[Sliced]]:
    """All ways to cut it once."""
    return (cut(whole, [point]) for point in range(len(whole) + 1))


POINTS = st.lists(st.integers(0, 10_000), max_size=12)
