"""Byte mutation over a seed corpus: cases, the loop that tries them, and the smallest input that still fails."""

import itertools
import random
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

CORPUS = Path(__file__).parent / "corpus"
_MINIMISE_SECONDS = 20.0

Check = Callable[[bytes], None]


class Finding(AssertionError):
    """Two readings of one input differ, or a parser broke. `data` is the smallest input that shows it."""

    def __init__(self, why: str, data: bytes) -> None:
        super().__init__(f"{why}\ninput: {data!r}")
        self.why = why
        self.data = data


def read_seeds(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


class Bound(Struct):
    """How long a target is run: for `seconds`, or for a number of `cases` if there is one."""

    seconds: float
    seed: int
    cases: int | None = None


def fuzz(check: Check, name: str, tokens: Sequence[bytes], bound: Bound) -> int:
    """Try the seeds as they are, then mutations of them. `check` raises AssertionError at a finding."""
    deadline = time.monotonic() + bound.seconds
    tried = 0
    for data in _inputs(read_seeds(name), tokens, random.Random(bound.seed)):
        if (tried >= bound.cases) if bound.cases is not None else (time.monotonic() > deadline):
            break
        tried += 1
        if (why := _failure_of(check, data)) is not None:
            smallest = _minimise(check, data)
            raise Finding(_failure_of(check, smallest) or why, smallest)
    return tried


def _inputs(seeds: list[bytes], tokens: Sequence[bytes], dice: random.Random) -> Iterator[bytes]:
    yield from seeds
    while True:
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.choice((1, 1, 2, 3, 5))):
            _mutate(data, seeds, tokens, dice)
        yield bytes(data)


def _mutate(data: bytearray, seeds: list[bytes], tokens: Sequence[bytes], dice: random.Random) -> None:
    at = dice.randrange(len(data) + 1)
    end = min(len(data), at + dice.choice((1, 1, 2, 4, 16, 64)))
    match dice.randrange(8):
        case 0 if at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        case 1 if at < len(data):
            data[at] = dice.choice(b"\x00\t\n\r :;,=019afAF\x7f\x80\xff")
        case 2:
            del data[at:end]
        case 3:
            data[at:at] = data[at:end] * dice.choice((1, 2, 9))
        case 4:
            data[at:end] = dice.choice(tokens)
        case 5:
            other = dice.choice(seeds)
            data[at:] = other[dice.randrange(len(other) + 1) :]
        case 6:
            data += dice.choice(seeds)
        case _:
            data[at:at] = dice.choice(tokens)


def _failure_of(check: Check, data: bytes) -> str | None:
    try:
        check(data)
    except AssertionError as failure:
        return str(failure)
    except Exception as crash:  # noqa: BLE001 - whatever a parser raises is a finding
        return "".join(traceback.format_exception(crash))
    return None


def _minimise(check: Check, data: bytes) -> bytes:
    """Leave out pieces, from halves to single bytes, for as long as it still fails."""
    deadline = time.monotonic() + _MINIMISE_SECONDS
    size = max(1, len(data) // 2)
    while time.monotonic() < deadline:
        for start in range(0, len(data), size):
            shorter = data[:start] + data[start + size :]
            if _failure_of(check, shorter) is not None:
                data = shorter
                break
        else:
            if size == 1:
                break
            size //= 2
    return data


def split(data: bytes) -> list[bytes]:
    """Cut the input into packets, always the same ones for the same input."""
    dice = random.Random(zlib.crc32(data))
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 1, 2, 5))))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]
