"""A run as it is watched: the answer on stdout, everything else on stderr.

Three ways: lines (`Lines`), lines with a moving one below them on a terminal (`cli/terminal.py`), and events as JSON
(`Stream`). Whatever model, tools or files said goes through `printable` on its way.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import msgspec

from toolwire.canonical.response import Usage
from toolwire.runtime.events import (
    CallEnded,
    CallProgressed,
    CallProposed,
    CallRecord,
    CallStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextGrew,
    ThinkingGrew,
    TurnEnded,
    TurnStarted,
    Warned,
)

from .printable import in_one_line, shown

_MARKS = {"ok": ("+", "green"), "error": ("x", "red"), "denied": ("-", "yellow")}
_SHORT = 100
_DOUBT = "in doubt: it may have taken effect, and was not run again"


class Lines:
    """Whole lines, in order. `width` bounds those that tell of calls."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, width: int = 120, workspace: str = ""
    ) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self.width = width
        self._root = f"{workspace}/" if workspace else ""
        self._calls: dict[str, str] = {}
        self._midway = False
        self._said = False
        self._began = time.monotonic()
        self._is_paused = False
        self._held: list[RunEvent] = []

    def take(self, event: RunEvent) -> None:
        if self._is_paused:
            self._held.append(event)
        else:
            self._tell(event)

    def _tell(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self.started(event)
            case TurnStarted():
                self.turn()
            case TextGrew():
                self.text(shown(event.text))
            case ThinkingGrew():
                self.thought(shown(event.text))
            case TurnEnded():
                self.turn_ended()
            case CallProposed():
                self._calls[event.call_id] = call_line(event.tool, event.arguments, self._root)
            case CallStarted():
                self.call_started(event.call_id)
            case CallProgressed():
                self.call_progressed(event.call_id, in_one_line(event.text, self.width))
            case CallEnded():
                self.call_ended(event)
            case Warned():
                self.note(f"warning: {event.text}")
            case RunEnded():
                self.ended(event)

    # ---- what differs between the ways

    def started(self, event: RunStarted) -> None:
        pass

    def turn(self) -> None:
        pass

    def turn_ended(self) -> None:
        self._break()

    def thought(self, text: str) -> None:
        pass

    def call_started(self, id: str) -> None:
        pass

    def call_progressed(self, id: str, text: str) -> None:
        pass

    def close(self) -> None:
        self._break()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While a person is asked: what happens elsewhere is told afterwards."""
        self._break()
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            held, self._held = self._held, []
            for event in held:
                self._tell(event)

    def line(self, text: str, style: str = "") -> None:
        """One that is ours, or was made harmless."""
        self._break()
        self._err.write(f"{text}\n")
        self._err.flush()

    def prompt(self, text: str) -> None:
        self._err.write(text)
        self._err.flush()

    # ---- what is common

    def text(self, text: str) -> None:
        if self._said and not self._midway:
            self._out.write("\n")  # between what it said before its calls, and after
        self._said = False
        self._out.write(text)
        self._out.flush()
        self._midway = not text.endswith("\n")

    def note(self, text: str) -> None:
        self.line(f"toolwire: {in_one_line(text, 1000)}", "yellow")

    def call_ended(self, event: CallEnded) -> None:
        mark, style = _MARKS[event.status]
        record = event.record
        call = self._calls.get(event.call_id) or in_one_line(record.tool, 100)
        seconds = f"  {_seconds(record.end - record.start)}" if record.end > record.start else ""
        self.line(f"{mark} {in_one_line(call, self.width - 10)}{seconds}", style)
        if record.error == "in_doubt":
            self.line(f"  {_DOUBT}", "red")
        elif gist := gist_of(record):
            self.line(f"  {in_one_line(gist, self.width - 3)}", "dim")

    def ended(self, event: RunEnded) -> None:
        self.line(told(event, time.monotonic() - self._began), "dim" if event.stopped == "finished" else "yellow")

    def _break(self) -> None:
        if self._midway:
            self._out.write("\n")
            self._out.flush()
            self._said, self._midway = True, False


class Stream:
    """Events as JSON, one in a line: ASCII alone, so that nothing in them is a terminal's to obey."""

    def take(self, event: RunEvent) -> None:
        text = json.dumps(msgspec.to_builtins(event)).replace("\x7f", "\\u007f")
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def close(self) -> None:
        pass

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield

    def line(self, text: str, style: str = "") -> None:
        pass

    def prompt(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        sys.stderr.write(f"toolwire: {in_one_line(text, 1000)}\n")


# ---- in words


def call_line(tool: str, arguments: str, root: str = "") -> str:
    """A call in one line: the tool, and what it was given that fits there. Paths are told from `root` on."""
    try:
        given: Any = json.loads(arguments or "{}")
    except ValueError:
        given = arguments
    values = list(given.values()) if isinstance(given, dict) else [given]
    texts = [one if isinstance(one, str) else json.dumps(one) for one in values]
    fitting = [one for one in texts if len(one) <= _SHORT and "\n" not in one] or texts[:1]
    told = " ".join(in_one_line(one.removeprefix(root), _SHORT) for one in fitting)
    return f"{in_one_line(tool, 100)} {told}".strip()


def gist_of(record: CallRecord) -> str:
    """What came of a call: the first line that says something. A shell's result begins by repeating the command, and
    what a denied call came to is told to the model; a person wants to know by whom."""
    if record.error == "denied":
        return record.approval
    lines = [line for line in record.summary.splitlines() if line.strip()]
    if lines and lines[0].startswith("Command: "):
        lines = [line.removeprefix("Output: ") for line in lines[2:] if line not in ("Output:", "Error: (none)")]
    return lines[0] if lines else ""


def told(event: RunEnded, seconds: float) -> str:
    """How a run ended, and what it took."""
    why = f" ({in_one_line(event.why, 300)})" if event.why else ""
    counts = f"{_many(event.turns, 'turn')}, {_many(event.calls, 'call')}"
    return f"{event.stopped}{why}: {counts}, {tokens(event.usage)}, {_seconds(seconds)}"


def tokens(usage: Usage | None) -> str:
    if usage is None:
        return "tokens not told"
    kept = f" ({usage.cache_read} from cache)" if usage.cache_read else ""
    about = " (estimated)" if usage.estimated else ""
    return f"{usage.input_tokens or 0} tokens in{kept}, {usage.output_tokens or 0} out{about}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s" if seconds >= 0.1 else f"{seconds * 1000:.0f}ms"
