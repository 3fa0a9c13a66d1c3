"""Definitions of tools, as a run began with them: whoever resumes it is warned of those that changed since."""

import hashlib
from collections.abc import Iterable

import msgspec

from toolwire.journal.runs import decode_entry

from .steps import Steps
from .toolset import Tool

_STEP = "tools"


class Definitions:
    """For one run. Digests of its tools are kept as a step, beside those of its turns and calls."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._compared = False
        self._warnings: list[str] = []

    def warned(self) -> list[str]:
        """What there is to warn of, since the last time."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def compare(self, tools: Iterable[Tool]) -> None:
        """Look once: recorded calls stay as they are, and new ones meet the tools of now."""
        if self._compared:
            return
        self._compared = True
        now = {tool.name: _digest(tool) for tool in tools}
        recorded = self._steps.begun(_STEP)
        if recorded is None:
            self._steps.begin(_STEP, msgspec.json.encode(now))
            return
        then = decode_entry(recorded, dict[str, str], f"the step {_STEP}")
        changed = [name for name, digest in then.items() if now.get(name, digest) != digest]
        gone = [name for name in then if name not in now]
        self._warnings = [
            *(f"the tool {name} has changed since this run began: new calls meet its present form" for name in changed),
            *(f"the tool {name} is no longer there: the model may still call it, in vain" for name in gone),
        ]


def _digest(tool: Tool) -> str:
    """Of all that the model is told of a tool, and that its calls are validated against."""
    told = (tool.description, tool.parameters, tool.output_schema, tool.grammar, tool.native)
    return hashlib.blake2s(msgspec.json.encode(told), digest_size=8).hexdigest()
