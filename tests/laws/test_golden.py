"""Golden files: the reviewed translation of every fixture to every other protocol, with its losses.

`make golden` rewrites them; review the difference.
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
    translations = _translate_streams(source, target) if kind == "stream" else _translate_bodies(source, target, kind)
    path = GOLDEN / f"{source}_to_{target}" / f"{kind}s.json"
    if REWRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(translations, indent=1, ensure_ascii=False) + "\n")
    golden = json.loads(path.read_text())
    assert translations.keys() == golden.keys()
    for name, item in translations.items():
        assert item == golden[name], name


def _translate_bodies(source: str, target: str, kind: Any) -> dict[str, Any]:
    bodies = BODIES[kind](source)
    translations: dict[str, Any] = {}
    for name, body in bodies.items():
        try:
            encoded = tw.translate(body, source, target, kind)
            translations[name] = {"losses": _format_losses(encoded.losses), "body": encoded.value}
        except tw.LossyTranslationError as refusal:
            translations[name] = {"refused": _format_losses(refusal.losses)}
    return translations


def _translate_streams(source: str, target: str) -> dict[str, Any]:
    translations = {}
    for name, wire in recorded_bodies.fixture_streams(source).items():
        stream = tw.translate_stream([wire], source, target)
        text = b"".join(stream).decode()
        translations[name] = {"losses": _format_losses(stream.losses), "wire": text.split("\n\n")}
    return translations


def _format_losses(losses: list[tw.Loss]) -> list[str]:
    return [str(loss) for loss in losses]
