"""Golden files: every fixture in every other protocol as it was reviewed, with its losses beside it.

`make golden` writes them anew; the difference is then for a person to read.
"""

import json
import os
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from tests.support.samples import recorded_bodies

GOLDEN = Path(__file__).parents[1] / "golden"
BODIES = {
    "request": recorded_bodies.fixture_requests,
    "response": recorded_bodies.fixture_responses,
    "error": recorded_bodies.fixture_errors,
}
REWRITE = os.environ.get("TOOLWIRE_REWRITE_GOLDEN") == "1"


@pytest.mark.parametrize(("source", "target"), list(permutations(recorded_bodies.PROTOCOL_NAMES, 2)))
@pytest.mark.parametrize("kind", ["request", "response", "stream", "error"])
def test_golden(source: str, target: str, kind: str) -> None:
    made = _streams(source, target) if kind == "stream" else _bodies(source, target, kind)
    path = GOLDEN / f"{source}_to_{target}" / f"{kind}s.json"
    if REWRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    kept = json.loads(path.read_text())
    assert made.keys() == kept.keys()
    for name, item in made.items():
        assert item == kept[name], name


def _bodies(source: str, target: str, kind: Any) -> dict[str, Any]:
    bodies = BODIES[kind](source)
    made: dict[str, Any] = {}
    for name, body in bodies.items():
        try:
            encoded = tw.translate(body, source, target, kind)
            made[name] = {"losses": _told(encoded.losses), "body": encoded.value}
        except tw.LossyTranslationError as refusal:
            made[name] = {"refused": _told(refusal.losses)}
    return made


def _streams(source: str, target: str) -> dict[str, Any]:
    made = {}
    for name, wire in recorded_bodies.fixture_streams(source).items():
        stream = tw.translate_stream([wire], source, target)
        text = b"".join(stream).decode()
        made[name] = {"losses": _told(stream.losses), "wire": text.split("\n\n")}
    return made


def _told(losses: list[tw.Loss]) -> list[str]:
    return [f"{loss.kind} {' -> '.join(filter(None, (loss.path, loss.target)))}: {loss.reason}" for loss in losses]
