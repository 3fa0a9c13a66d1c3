"""The traffic whose instructions are counted is translated, and marked where a count begins and ends."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import toolwire
from benchmarks.instructions import CASES, MEASURED, WARM_UP, draw_bodies, translate_marked


def _call_noted(translated: list[str], kind: str, function: Callable[..., Any], *given: Any) -> Any:
    translated.append(kind)
    return function(*given)


def test_every_case_is_translated_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies, translated, marks = tmp_path / "bodies", list[str](), list[int]()
    translate, translate_stream = toolwire.translate, toolwire.translate_stream
    monkeypatch.setattr(os, "getpgrp", lambda: marks.append(len(translated)))
    monkeypatch.setattr(toolwire, "translate", partial(_call_noted, translated, "body", translate))
    monkeypatch.setattr(toolwire, "translate_stream", partial(_call_noted, translated, "stream", translate_stream))
    bodies.write_bytes(msgspec.msgpack.encode(draw_bodies(1)))
    translate_marked(bodies)
    total = WARM_UP + MEASURED
    assert marks == [case * total + number for case in range(len(CASES)) for number in (WARM_UP, total)]


def test_traffic_is_repeated_by_its_seed_only() -> None:
    assert draw_bodies(1) == draw_bodies(1) != draw_bodies(2)
