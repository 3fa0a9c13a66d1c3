"""The same input always gives the same bytes: prompt caches and signed prefixes depend on it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.samples import recorded_bodies

ROOT = Path(__file__).parents[2]

# Prints a digest of all fixtures in every protocol, with their losses.
PROGRAM = """
import hashlib
import toolwire as tw
from tests.support.samples import recorded_bodies

digest = hashlib.sha256()
bodies = {
    "request": recorded_bodies.fixture_requests,
    "response": recorded_bodies.fixture_responses,
    "error": recorded_bodies.fixture_errors,
}
for source in recorded_bodies.PROTOCOL_NAMES:
    for target in recorded_bodies.PROTOCOL_NAMES:
        for kind, fixtures in bodies.items():
            for body in fixtures(source).values():
                try:
                    encoded = tw.translate(body, source, target, kind)
                    digest.update(encoded.to_bytes() + repr(encoded.losses).encode())
                except tw.LossyTranslationError as refusal:
                    digest.update(str(refusal).encode())
        for wire in recorded_bodies.fixture_streams(source).values():
            stream = tw.translate_stream([wire], source, target)
            digest.update(b"".join(stream) + repr(stream.losses).encode())
print(digest.hexdigest())
"""


def test_two_processes_encode_the_same_bytes() -> None:
    assert recorded_bodies.PROTOCOL_NAMES
    assert _run("1") == _run("2")


def _run(seed: str) -> str:
    """Run the program with a hash seed, which changes the order of sets."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return process.stdout
