"""Execution of a target: draw mutations, check each case, and minimize the input of a finding."""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.mutations import MAX_MUTATIONS, OPERATIONS, TOKENS, Mutation, apply_mutations, draw_mutations

FINDINGS = Path(__file__).parent / "corpus" / "findings"
SLOW_SECONDS = 20.0
"""CPU time of the thread that no input of a few kilobytes takes, on however busy a machine."""
MINIMIZE_CHECKS = 3_000
HYPOTHESIS_CASES = 400
"""Cases per Hypothesis run; the time limit is checked between runs."""


class Target(NamedTuple):
    """A fuzz target.

    `check` raises for input that shows a defect, and returns for all other input, valid or not. `tokens` are inserted
    into the initial inputs.
    """

    name: str
    make_seeds: Callable[[], Sequence[bytes]]
    check: Callable[[bytes], None]
    tokens: Sequence[bytes] = TOKENS

    def seeds(self) -> list[bytes]:
        """Return valid inputs to mutate, and inputs of earlier findings: `corpus/findings/NAME.NUMBER`."""
        return [*self.make_seeds(), *(path.read_bytes() for path in sorted(FINDINGS.glob(f"{self.name}.*")))]


class Finding(Exception):
    """An input for which a check failed, minimized."""

    def __init__(self, target: str, data: bytes, cause: BaseException) -> None:
        super().__init__(f"{target}: {type(cause).__name__}: {cause}")
        self.target = target
        self.data = data


class SlowInput(Exception):
    """An input that takes more time than its size justifies."""


def run_random(target: Target, source: random.Random, *, seconds: float = 0, cases: int = 0) -> int:
    """Check randomly drawn cases up to a time or number; return their number."""
    seeds, count, end = target.seeds(), 0, time.monotonic() + seconds
    while count < cases or time.monotonic() < end:
        data = apply_mutations(source.choice(seeds), draw_mutations(source), target.tokens)
        if (cause := _failure(target, data)) is not None:
            small = minimize(target, data)
            raise Finding(target.name, small, cause) from cause
        count += 1
    return count


def run_hypothesis(target: Target, source: random.Random, *, seconds: float = 0, runs: int = 0) -> int:
    """Check cases that Hypothesis draws and shrinks."""
    mutations = st.builds(Mutation, st.sampled_from(OPERATIONS), st.floats(0, 0.999), st.integers(0, (1 << 16) - 1))
    seeds, count, end = target.seeds(), 0, time.monotonic() + seconds
    failed: list[tuple[bytes, BaseException]] = []

    @settings(max_examples=HYPOTHESIS_CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(seeds), st.lists(mutations, max_size=MAX_MUTATIONS))
    def check(data: bytes, drawn: list[Mutation]) -> None:
        nonlocal count
        count += 1
        mutated = apply_mutations(data, drawn, target.tokens)
        if (cause := _failure(target, mutated)) is not None:
            failed.append((mutated, cause))
            raise cause

    while runs > 0 or time.monotonic() < end:
        runs -= 1
        try:
            seed(source.randrange(1 << 32))(check)()
        except BaseException as error:
            if not failed:
                raise
            data, cause = failed[-1]
            raise Finding(target.name, minimize(target, data), cause) from error
    return count


def minimize(target: Target, data: bytes) -> bytes:
    """Remove slices while the check still fails, from large ones to single bytes."""
    remaining, size = MINIMIZE_CHECKS, len(data) // 2
    while size and remaining > 0:
        at = 0
        while at < len(data) and remaining > 0:
            shorter = data[:at] + data[at + size :]
            remaining -= 1
            if _failure(target, shorter) is None:
                at += size
            else:
                data = shorter
        size //= 2
    return data


def _failure(target: Target, data: bytes) -> Exception | None:
    started = time.thread_time()
    try:
        target.check(data)
    except Exception as error:  # noqa: BLE001 - whatever a check lets through is the finding
        return error
    elapsed = time.thread_time() - started
    return SlowInput(f"{len(data)} bytes took {elapsed:.1f} s") if elapsed > SLOW_SECONDS else None
