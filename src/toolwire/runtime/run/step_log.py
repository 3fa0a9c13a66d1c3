"""The step log of a run: each step has an intent, recorded before its effect, and an outcome, recorded after it.

Implementations must make `begin` and `finish` durable before they return. Whether a step with an intent but no outcome
took effect is unknown.
"""

import hashlib
from collections.abc import Iterable
from typing import Protocol

import msgspec

from toolwire.journal.runs import decode_stored
from toolwire.runtime.tool import Tool


class StepLog(Protocol):
    """A durable log of the named steps of one run."""

    def intent(self, name: str) -> bytes | None:
        """Return the recorded intent of a step, encoded; None if it never started."""
        ...

    def outcome(self, name: str) -> bytes | None:
        """Return the recorded outcome of a step, encoded; None if it did not finish."""
        ...

    def begin(self, name: str, intent: bytes) -> None:
        """Record that a step starts."""
        ...

    def finish(self, name: str, outcome: bytes) -> None:
        """Record the outcome of a step."""
        ...


class InMemoryStepLog:
    """A step log for runs that are not resumed after the process ends."""

    def __init__(self) -> None:
        self._intents: dict[str, bytes] = {}
        self._outcomes: dict[str, bytes] = {}

    def intent(self, name: str) -> bytes | None:
        """Return the recorded intent of a step; None if it never started."""
        return self._intents.get(name)

    def outcome(self, name: str) -> bytes | None:
        """Return the recorded outcome of a step; None if it did not finish."""
        return self._outcomes.get(name)

    def begin(self, name: str, intent: bytes) -> None:
        """Record that a step starts."""
        self._intents[name] = intent

    def finish(self, name: str, outcome: bytes) -> None:
        """Record the outcome of a step."""
        self._outcomes[name] = outcome


_TOOLS_STEP = "tools"


class ToolDefinitions:
    """Detects tools that changed since a resumed run began.

    Digests of the tool definitions are recorded as a step of the run.
    """

    def __init__(self, step_log: StepLog) -> None:
        self._step_log = step_log
        self._is_checked = False
        self._warnings: list[str] = []

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call and clear them."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def check_changes(self, tools: Iterable[Tool]) -> None:
        """Record the definitions when a run begins; warn about changes when it resumes. Only the first call counts."""
        if self._is_checked:
            return
        self._is_checked = True
        current = {tool.name: _declaration_digest(tool) for tool in tools}
        stored = self._step_log.intent(_TOOLS_STEP)
        if stored is None:
            self._step_log.begin(_TOOLS_STEP, msgspec.json.encode(current))
            return
        recorded = decode_stored(stored, dict[str, str], f"step {_TOOLS_STEP}")
        changed = [name for name, digest in recorded.items() if current.get(name, digest) != digest]
        removed = [name for name in recorded if name not in current]
        self._warnings = [
            *(
                f"tool {name} has changed since this run began: new calls use its current definition"
                for name in changed
            ),
            *(f"tool {name} is no longer available: calls of it will fail" for name in removed),
        ]


def _declaration_digest(tool: Tool) -> str:
    """Return a hex digest of the declaration that the model sees and that calls are validated against."""
    declaration = (tool.description, tool.parameters, tool.output_schema, tool.grammar, tool.native)
    return hashlib.blake2s(msgspec.json.encode(declaration), digest_size=8).hexdigest()
