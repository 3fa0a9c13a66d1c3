"""The same input always gives the same bytes: prompt caches and signed prefixes depend on it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.samples import recorded_bodies

ROOT = Path(__file__).parents[2]

# What a process makes of every fixture, in every protocol, with its losses.
PROGRAM = """
import hashlib
import toolwire as tw
from tests.support.samples import recorded_bodies as material

digest = hashlib.sha256()
bodies = {
    "request": material.fixture_requests,
    "response": material.fixture_responses,
    "error": material.fixture_errors,
}
for source in material.PROTOCOL_NAMES:
    for target in material.PROTOCOL_NAMES:
        for kind, fixtures in bodies.items():
            for body in fixtures(source).values():
                try:
                    encoded = tw.translate(body, source, target, kind)
                    digest.update(encoded.to_bytes() + repr(encoded.losses).encode())
                except tw.LossyTranslationError as refusal:
                    digest.update(str(refusal).encode())
        for wire in material.fixture_streams(source).values():
            stream = tw.translate_stream([wire], source, target)
            digest.update(b"".join(stream) + repr(stream.losses).encode())
print(digest.hexdigest())
"""


def test_two_processes_write_the_same_bytes() -> None:
    assert recorded_bodies.PROTOCOL_NAMES
    assert _run("1") == _run("2")


def _run(seed: str) -> str:
    """Sets are ordered by the seed, so that one in the way of the output shows."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout
