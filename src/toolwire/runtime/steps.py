"""The named steps of one run: an intent is written before its effect, an outcome after it, and both can be found again.

Whoever keeps them (memory, SQLite, another engine) only has to keep this: `begin` and `finish` are durable when they
return. A step that was begun and never finished is one of which nobody knows whether it took effect.
"""

from typing import Protocol


class Steps(Protocol):
    def begun(self, name: str) -> bytes | None: ...
    def outcome(self, name: str) -> bytes | None: ...
    def begin(self, name: str, intent: bytes) -> None: ...
    def finish(self, name: str, outcome: bytes) -> None: ...


class Remembered:
    """Steps that nobody will ask for after the process ends."""

    def __init__(self) -> None:
        self._begun: dict[str, bytes] = {}
        self._finished: dict[str, bytes] = {}

    def begun(self, name: str) -> bytes | None:
        return self._begun.get(name)

    def outcome(self, name: str) -> bytes | None:
        return self._finished.get(name)

    def begin(self, name: str, intent: bytes) -> None:
        self._begun[name] = intent

    def finish(self, name: str, outcome: bytes) -> None:
        self._finished[name] = outcome
