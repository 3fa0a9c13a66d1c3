"""Slices of bytes or text, for tests of incremental parsers."""

import itertools
from collections.abc import Iterator
from typing import TypeVar

from hypothesis import strategies as st

BytesOrText = TypeVar("BytesOrText", bytes, str)


def slice_at(data: BytesOrText, points: list[int]) -> list[BytesOrText]:
    """Return the slices between these points; some may be empty."""
    ends = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def slice_in_two(data: BytesOrText) -> Iterator[list[BytesOrText]]:
    """Yield every split into two slices."""
    return (slice_at(data, [point]) for point in range(len(data) + 1))


CUT_POINTS = st.lists(st.integers(0, 10_000), max_size=12)
