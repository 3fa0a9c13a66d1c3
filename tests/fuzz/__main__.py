"""Run the fuzz targets: `python -m tests.fuzz --seconds 60 [--only NAME] [--seed S] [--hex INPUT]`."""

import argparse
import sys
import time

from tests.fuzz import TARGETS, load_target
from tests.fuzz.mutation import Finding


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the parsers.")
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--only", choices=TARGETS, help="run one target")
    parser.add_argument("--seed", type=int, help="of the mutations; the clock's by default")
    parser.add_argument("--hex", help="check one input of the target that --only names")
    options = parser.parse_args()
    if options.hex is not None:
        if options.only is None:
            parser.error("--hex needs --only")
        load_target(options.only).check(bytes.fromhex(options.hex))
        _say(f"{options.only}: no finding")
        return 0
    names = TARGETS if options.only is None else (options.only,)
    seed = time.time_ns() % 1_000_000 if options.seed is None else options.seed
    failed = [name for name in names if not _run(name, options.seconds / len(names), seed)]
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _run(name: str, seconds: float, seed: int) -> bool:
    began = time.monotonic()
    try:
        cases = load_target(name).run(seconds, seed)
    except Finding as finding:
        _say(f"{name}: FINDING (seed {seed})\n{finding}")
        _say(f"repeat: python -m tests.fuzz --only {name} --hex {finding.data.hex()}")
        return False
    except AssertionError as failure:
        _say(f"{name}: FINDING (seed {seed})\n{failure}")
        _say(f"repeat: python -m tests.fuzz --only {name} --seconds {seconds:g} --seed {seed}")
        return False
    took = time.monotonic() - began
    _say(f"{name}: {cases} cases, {cases / took:.0f}/s, no finding (seed {seed})")
    return True


if __name__ == "__main__":
    sys.exit(main())
