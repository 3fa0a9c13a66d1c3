"""A few cases of every fuzz target, always the same ones; `make fuzz` tries new ones for minutes."""

import pytest

from tests.fuzz import TARGETS, load_target
from tests.fuzz.mutation import Bound, Finding, fuzz


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_has_no_finding_in_its_first_cases(name: str) -> None:
    assert load_target(name).run(seconds=0, seed=20, cases=200) == 200


def test_a_finding_has_the_smallest_input() -> None:
    def check(data: bytes) -> None:
        assert b"\x1f\x8b" not in data, "here it is"

    with pytest.raises(Finding, match="here it is") as found:
        fuzz(check, "encodings", (b"x",), Bound(seconds=0, seed=1, cases=10))
    assert found.value.data == b"\x1f\x8b"


def test_a_crash_is_a_finding() -> None:
    def check(data: bytes) -> None:
        raise KeyError(data[0])

    with pytest.raises(Finding, match="KeyError"):
        fuzz(check, "encodings", (b"x",), Bound(seconds=0, seed=1, cases=1))
