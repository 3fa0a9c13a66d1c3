"""A short round of every target; `make fuzz` runs them for minutes."""

import random

import pytest

from tests.fuzz.engine import Finding, Target, run_hypothesis, run_random
from tests.fuzz.targets import all_targets

CASES = 10


@pytest.mark.parametrize("target", all_targets(), ids=lambda target: target.name)
def test_short_round_has_no_findings(target: Target) -> None:
    for seed in target.seeds():
        target.check(seed)
    assert run_random(target, random.Random(1), cases=CASES) == CASES


def _refuse_marks(data: bytes) -> None:
    assert b"[[" not in data


BROKEN = Target("broken", lambda: [b'{"a": [1, 2, 3], "b": "some text that does not matter"}'], _refuse_marks)


def test_random_finding_is_minimized() -> None:
    with pytest.raises(Finding) as finding:
        run_random(BROKEN, random.Random(1), cases=100_000)
    assert finding.value.data == b"[["


def test_hypothesis_finding_is_minimized() -> None:
    with pytest.raises(Finding) as finding:
        run_hypothesis(BROKEN, random.Random(1), runs=100)
    assert finding.value.data == b"[["


def test_drafts_of_calls_in_reasoning_take_bounded_work() -> None:
    """Blocks that were read before a mismatch were not counted, and were read again from each of them on."""
    opener = b']<]minimax[>[<invoke name="'
    unit = b'<mm:think>">]<]minimax[>[<city>]<]minimax[>[</city>]<]minimax[>[</invoke>' + opener
    (target,) = [target for target in all_targets() if target.name == "text-call-work"]
    target.check(unit)
