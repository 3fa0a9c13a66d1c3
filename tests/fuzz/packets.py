"""Initial inputs stored as files, and the packets in which a parser receives its input."""

import itertools
import random
import zlib
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def read_seeds(folder: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / folder).iterdir())]


def split(data: bytes) -> list[bytes]:
    """Split the input into packets, always the same for the same input."""
    dice = random.Random(zlib.crc32(data))
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 1, 2, 5))))
    return [data[start:end] for start, end in itertools.pairwise([0, *cuts, len(data)]) if start < end]
