"""The named steps of one run: an intent is written before its effect, an outcome after it, and both can be found again.

Whoever keeps them (memory, SQLite, another engine) only has to keep this: `begin` and `finish` are durable when they
return. A step that was begun and never finished is one of which nobody knows whether it took effect.

Definitions of tools, as a run began with them: whoever resumes it is warned of those that changed since.
"""

import hashlib
from collections.abc import Iterable
from typing import Protocol

import msgspec

from toolwire.journal.runs import decode_stored
from toolwire.runtime.tool import Tool


class StepLog(Protocol):
    def intent(self, name: str) -> bytes | None: ...
    def outcome(self, name: str) -> bytes | None: ...
    def begin(self, name: str, intent: bytes) -> None: ...
    def finish(self, name: str, outcome: bytes) -> None: ...


class InMemoryStepLog:
    """Steps that nobody will ask for after the process ends."""

    def __init__(self) -> None:
        self._intents: dict[str, bytes] = {}
        self._outcomes: dict[str, bytes] = {}

    def intent(self, name: str) -> bytes | None:
        return self._intents.get(name)

    def outcome(self, name: str) -> bytes | None:
        return self._outcomes.get(name)

    def begin(self, name: str, intent: bytes) -> None:
        self._intents[name] = intent

    def finish(self, name: str, outcome: bytes) -> None:
        self._outcomes[name] = outcome


_TOOLS_STEP = "tools"


class ToolDefinitions:
    """For one run. Digests of its tools are kept as a step, beside those of its turns and calls."""

    def __init__(self, step_log: StepLog) -> None:
        self._step_log = step_log
        self._is_checked = False
        self._warnings: list[str] = []

    def take_warnings(self) -> list[str]:
        """What there is to warn of, since the last time."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def check_changes(self, tools: Iterable[Tool]) -> None:
        """Look once: recorded calls stay as they are, and new ones meet the tools of now."""
        if self._is_checked:
            return
        self._is_checked = True
        now = {tool.name: _declaration_digest(tool) for tool in tools}
        recorded = self._step_log.intent(_TOOLS_STEP)
        if recorded is None:
            self._step_log.begin(_TOOLS_STEP, msgspec.json.encode(now))
            return
        then = decode_stored(recorded, dict[str, str], f"the step {_TOOLS_STEP}")
        changed = [name for name, digest in then.items() if now.get(name, digest) != digest]
        gone = [name for name in then if name not in now]
        self._warnings = [
            *(f"the tool {name} has changed since this run began: new calls meet its present form" for name in changed),
            *(f"the tool {name} is no longer there: the model may still call it, in vain" for name in gone),
        ]


def _declaration_digest(tool: Tool) -> str:
    """Of all that the model is told of a tool, and that its calls are validated against."""
    told = (tool.description, tool.parameters, tool.output_schema, tool.grammar, tool.native)
    return hashlib.blake2s(msgspec.json.encode(told), digest_size=8).hexdigest()
