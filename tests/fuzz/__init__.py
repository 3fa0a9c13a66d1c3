"""Fuzzing: mutated input for each parser, compared with an independent reading of the same bytes.

A target is a module of this folder with `run` and `check`, named in `TARGETS`. `python -m tests.fuzz` runs them all;
`make test` runs a few cases of each.
"""

from importlib import import_module
from typing import Protocol

TARGETS = ("encodings", "http_client", "http_server", "websocket")


class Target(Protocol):
    def check(self, data: bytes) -> None:
        """Try one input; raise AssertionError at a finding."""

    def run(self, seconds: float, seed: int, cases: int | None = None) -> int:
        """Try cases until the time or their number is used up, and return how many; raise at the first finding."""


def load_target(name: str) -> Target:
    target: Target = import_module(f"tests.fuzz.{name}")
    return target
