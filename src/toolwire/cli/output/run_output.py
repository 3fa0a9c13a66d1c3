"""Text by others, for a terminal: nothing in it is obeyed.

What is read is shown without whatever steers a terminal. What a person decides on is spelled out instead, so that
nothing in it hides.

A run as it is watched: the answer on stdout, everything else on stderr.

Three ways: lines (`Lines`), lines with a moving one below them on a terminal (`cli/terminal.py`), and events as JSON
(`Stream`). Whatever model, tools or files said goes through `printable` on its way.
"""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import msgspec

from toolwire.canonical.response import Usage
from toolwire.runtime.run.events import (
    CallEnded,
    CallProgressed,
    CallProposed,
    CallRecord,
    CallStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    RunWarning,
    TextDelta,
    ThinkingDelta,
    TurnEnded,
    TurnStarted,
)

# CSI and OSC and their like, in seven bits or eight; a command that is not ended hides the rest of its line only.
_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL_CHARACTER = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)


def strip_controls(text: str) -> str:
    """Without escape sequences, control characters, and what turns the direction of writing around."""
    return _CONTROL_CHARACTER.sub("", _ESCAPE_SEQUENCE.sub("", text.replace("\r\n", "\n")))


def escape_controls(text: str) -> str:
    """All of it, with an escape for each character that can't be seen."""
    return "".join(one if one.isprintable() or one == "\n" else _escape_character(one) for one in text)


def truncate_line(text: str, width: int) -> str:
    """The beginning of a text."""
    line = " ".join(strip_controls(text[: 20 * width]).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _escape_character(character: str) -> str:
    if character == "\t":
        return "\t"
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_STATUS_MARKS = {"ok": ("+", "green"), "error": ("x", "red"), "denied": ("-", "yellow")}
_MAX_VALUE_CHARS = 100
_IN_DOUBT_TEXT = "in doubt: it may have taken effect, and was not run again"


class TextOutput:
    """Whole lines, in order. `width` bounds those that tell of calls."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, width: int = 120, workspace: str = ""
    ) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self.width = width
        self._path_prefix = f"{workspace}/" if workspace else ""
        self._call_lines: dict[str, str] = {}
        self._is_mid_line = False
        self._has_text_before = False
        self._started_at = time.monotonic()
        self._is_paused = False
        self._pending_events: list[RunEvent] = []

    def write_event(self, event: RunEvent) -> None:
        if self._is_paused:
            self._pending_events.append(event)
        else:
            self._dispatch_event(event)

    def _dispatch_event(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self.on_run_started(event)
            case TurnStarted():
                self.on_turn_started()
            case TextDelta():
                self.on_text(strip_controls(event.text))
            case ThinkingDelta():
                self.on_thinking(strip_controls(event.text))
            case TurnEnded():
                self.on_turn_ended()
            case CallProposed():
                self._call_lines[event.call_id] = format_call(event.tool, event.arguments, self._path_prefix)
            case CallStarted():
                self.on_call_started(event.call_id)
            case CallProgressed():
                self.on_call_progress(event.call_id, truncate_line(event.text, self.width))
            case CallEnded():
                self.on_call_ended(event)
            case RunWarning():
                self.write_note(f"warning: {event.text}")
            case RunEnded():
                self.on_run_ended(event)

    # ---- what differs between the ways

    def on_run_started(self, event: RunStarted) -> None:
        pass

    def on_turn_started(self) -> None:
        pass

    def on_turn_ended(self) -> None:
        self._end_line()

    def on_thinking(self, text: str) -> None:
        pass

    def on_call_started(self, id: str) -> None:
        pass

    def on_call_progress(self, id: str, text: str) -> None:
        pass

    def close(self) -> None:
        self._end_line()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """While a person is asked: what happens elsewhere is told afterwards."""
        self._end_line()
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            held, self._pending_events = self._pending_events, []
            for event in held:
                self._dispatch_event(event)

    def write_line(self, text: str, style: str = "") -> None:
        """One that is ours, or was made harmless."""
        self._end_line()
        self._err.write(f"{text}\n")
        self._err.flush()

    def write_prompt(self, text: str) -> None:
        self._err.write(text)
        self._err.flush()

    # ---- what is common

    def on_text(self, text: str) -> None:
        if self._has_text_before and not self._is_mid_line:
            self._out.write("\n")  # between what it said before its calls, and after
        self._has_text_before = False
        self._out.write(text)
        self._out.flush()
        self._is_mid_line = not text.endswith("\n")

    def write_note(self, text: str) -> None:
        self.write_line(f"toolwire: {truncate_line(text, 1000)}", "yellow")

    def on_call_ended(self, event: CallEnded) -> None:
        mark, style = _STATUS_MARKS[event.status]
        record = event.record
        call = self._call_lines.get(event.call_id) or truncate_line(record.tool, 100)
        seconds = f"  {_format_seconds(record.end - record.start)}" if record.end > record.start else ""
        self.write_line(f"{mark} {truncate_line(call, self.width - 10)}{seconds}", style)
        if record.error == "in_doubt":
            self.write_line(f"  {_IN_DOUBT_TEXT}", "red")
        elif gist := outcome_line(record):
            self.write_line(f"  {truncate_line(gist, self.width - 3)}", "dim")

    def on_run_ended(self, event: RunEnded) -> None:
        self.write_line(
            format_run_end(event, time.monotonic() - self._started_at),
            "dim" if event.stopped == "finished" else "yellow",
        )

    def _end_line(self) -> None:
        if self._is_mid_line:
            self._out.write("\n")
            self._out.flush()
            self._has_text_before, self._is_mid_line = True, False


class JsonOutput:
    """Events as JSON, one in a line: ASCII alone, so that nothing in them is a terminal's to obey."""

    def write_event(self, event: RunEvent) -> None:
        text = json.dumps(msgspec.to_builtins(event)).replace("\x7f", "\\u007f")
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def close(self) -> None:
        pass

    @contextmanager
    def pause(self) -> Iterator[None]:
        yield

    def write_line(self, text: str, style: str = "") -> None:
        pass

    def write_prompt(self, text: str) -> None:
        pass

    def write_note(self, text: str) -> None:
        sys.stderr.write(f"toolwire: {truncate_line(text, 1000)}\n")


# ---- in words


def format_call(tool: str, arguments: str, path_prefix: str = "") -> str:
    """A call in one line: the tool, and what it was given that fits there. Paths are told from `root` on."""
    try:
        given: Any = json.loads(arguments or "{}")
    except ValueError:
        given = arguments
    values = list(given.values()) if isinstance(given, dict) else [given]
    texts = [one if isinstance(one, str) else json.dumps(one) for one in values]
    fitting = [one for one in texts if len(one) <= _MAX_VALUE_CHARS and "\n" not in one] or texts[:1]
    told = " ".join(truncate_line(one.removeprefix(path_prefix), _MAX_VALUE_CHARS) for one in fitting)
    return f"{truncate_line(tool, 100)} {told}".strip()


def outcome_line(record: CallRecord) -> str:
    """What came of a call: the first line that says something. A shell's result begins by repeating the command, and
    what a denied call came to is told to the model; a person wants to know by whom."""
    if record.error == "denied":
        return record.approval
    lines = [line for line in record.summary.splitlines() if line.strip()]
    if lines and lines[0].startswith("Command: "):
        lines = [line.removeprefix("Output: ") for line in lines[2:] if line not in ("Output:", "Error: (none)")]
    return lines[0] if lines else ""


def format_run_end(event: RunEnded, seconds: float) -> str:
    """How a run ended, and what it took."""
    why = f" ({truncate_line(event.why, 300)})" if event.why else ""
    counts = f"{_pluralize(event.turns, 'turn')}, {_pluralize(event.calls, 'call')}"
    return f"{event.stopped}{why}: {counts}, {format_usage(event.usage)}, {_format_seconds(seconds)}"


def format_usage(usage: Usage | None) -> str:
    if usage is None:
        return "tokens not told"
    kept = f" ({usage.cache_read} from cache)" if usage.cache_read else ""
    about = " (estimated)" if usage.estimated else ""
    return f"{usage.input_tokens or 0} tokens in{kept}, {usage.output_tokens or 0} out{about}"


def _pluralize(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s" if seconds >= 0.1 else f"{seconds * 1000:.0f}ms"
