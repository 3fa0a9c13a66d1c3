"""`python -m tests.fuzz`: run every target for its share of the time, and stop at the first finding."""

import argparse
import random
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.engine import Finding, Target, run_hypothesis, run_random

OUTPUT = Path(".cache/fuzz")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="time for all targets together (default: 600)")
    parser.add_argument("--only", default="", help="run the targets whose names contain this")
    parser.add_argument("--seed", type=int, default=None, help="seed of the random source (default: the clock)")
    parser.add_argument("--case", type=Path, help="check the input in this file once, with the targets of --only")
    options = parser.parse_args()
    chosen = [target for target in targets.all_targets() if options.only in target.name]
    if not chosen:
        parser.error(
            f"no target's name contains {options.only!r}: {', '.join(target.name for target in targets.all_targets())}"
        )
    if options.case:
        for target in chosen:
            target.check(options.case.read_bytes())
            print(f"{target.name}: nothing found")
        return 0
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"{len(chosen)} targets, {options.seconds:g} s, seed {seed}")
    return max(_run(target, seed, options.seconds / len(chosen)) for target in chosen)


def _run(target: Target, seed: int, seconds: float) -> int:
    source, started = random.Random(f"{seed} {target.name}"), time.monotonic()
    try:
        count = run_random(target, source, seconds=seconds * 0.6)
        count += run_hypothesis(target, source, seconds=seconds * 0.4)
    except Finding as finding:
        OUTPUT.mkdir(parents=True, exist_ok=True)
        path = OUTPUT / target.name
        path.write_bytes(finding.data)
        traceback.print_exception(finding.__cause__)
        print(f"{finding}\ninput, {len(finding.data)} bytes: {finding.data[:2000]!r}")
        print(f"again: python -m tests.fuzz --only {target.name} --case {path}", flush=True)
        return 1
    elapsed = time.monotonic() - started
    print(f"{target.name}: {count} cases, {count / elapsed:.0f}/s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
