"""Output of a run while it happens: the answer on stdout, everything else on stderr.

`TextOutput` writes lines, `LiveOutput` (in `live_output`) adds an animated area on a terminal, and `JsonOutput`
writes events as JSON. Text from the model, tools and files must not control the terminal: control characters are
removed from text that is only read, and escaped in text that the user decides on.
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
from toolwire.cli.output.terminal import Style, apply_style, is_styled, terminal_width, wrap_text
from toolwire.cli.output.word_wrap import WordWrapper
from toolwire.runtime.run.events import (
    CallEnded,
    CallLogged,
    CallProgressed,
    CallProposed,
    CallRecord,
    CallStarted,
    HandedOff,
    RunEnded,
    RunEvent,
    RunStarted,
    RunWarning,
    SubAgentEvent,
    TextDelta,
    ThinkingDelta,
    TurnEnded,
    TurnStarted,
)

# CSI, OSC and similar sequences (ECMA-48), in 7-bit or 8-bit form. An unterminated one hides only the rest of its line.
_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL_CHARACTER = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)


def strip_controls(text: str) -> str:
    """Remove escape sequences, control characters and bidirectional overrides."""
    return _CONTROL_CHARACTER.sub("", _ESCAPE_SEQUENCE.sub("", text.replace("\r\n", "\n")))


def truncate_line(text: str, width: int) -> str:
    """Return the beginning of a text as one line of at most `width` characters."""
    line = " ".join(strip_controls(text[: 20 * width]).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


_STATUS_MARKS: dict[str, tuple[str, Style]] = {
    "ok": ("+", "good"),
    "error": ("x", "problem"),
    "denied": ("-", "warning"),
}
_MAX_VALUE_CHARS = 100
_MAX_ERROR_LINES = 15
_MAX_ERROR_CHARS = 500
_IN_DOUBT_TEXT = "in doubt: it may have taken effect; not run again"
# The record of a call that was denied because no approver was available, and the text shown for it.
_UNATTENDED_DENIAL = "no by nobody"
_UNATTENDED_DENIAL_TEXT = "denied: no approver available"


_STOP_STYLES: dict[str, Style] = {"finished": "muted", "failed": "problem"}
_STOP_LABELS = {
    "turns": "turn limit",
    "seconds": "time limit",
    "tokens": "token limit",
    "requests": "request limit",
    "cost": "cost limit",
    "repeats": "repeated calls",
    "output": "invalid answer",
    "length": "length limit",
}


def format_stop(cause: str) -> str:
    """Return the words for the stop cause of a run, or for another state."""
    return _STOP_LABELS.get(cause, cause)


def _format_note(event: RunWarning | CallLogged) -> str:
    """Format a warning, or a log message of a call with its level."""
    return f"{'warning' if isinstance(event, RunWarning) else event.level}: {event.text}"


class TextOutput:
    """Output as complete lines, in the order of the events."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, width: int = 120, workspace: str = ""
    ) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        # The maximum width of lines about calls.
        self.width = width
        self._path_prefix = f"{workspace}/" if workspace else ""
        self._call_lines: dict[str, str] = {}
        self._is_mid_line = False
        columns = terminal_width() if self._out is sys.stdout else None
        self._wrapper = None if columns is None else WordWrapper(columns)
        self._has_text_before = False
        self._started_at = time.monotonic()
        # The duration of a run that was executed elsewhere or earlier; by default, the time since the start.
        self.duration: float | None = None
        self._is_paused = False
        self._pending_events: list[RunEvent] = []

    def write_event(self, event: RunEvent) -> None:
        """Write one event, or hold it back while the output is paused."""
        if self._is_paused:
            self._pending_events.append(event)
        else:
            self._dispatch_event(event)

    def _dispatch_event(self, event: RunEvent) -> None:
        """Call the `on_...` method of an event, with control characters removed from its text."""
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
                if event.stop != "max_tokens":  # otherwise the answer may be continued
                    self.on_turn_ended()
            case CallProposed():
                self._call_lines[event.call_id] = format_call(event.tool, event.arguments, self._path_prefix)
            case CallStarted():
                self._call_lines.setdefault(event.call_id, event.tool)  # the provider's calls are not proposed
                self.on_call_started(event.call_id)
            case CallProgressed():
                self.on_call_progress(event.call_id, truncate_line(event.text, self.width))
            case CallEnded():
                self.on_call_ended(event)
            case HandedOff() | SubAgentEvent():
                self._on_other_agent(event)
            case RunWarning() | CallLogged():
                self.write_note(_format_note(event))
            case RunEnded():
                self.on_run_ended(event)

    # ---- events that subclasses handle differently

    def on_run_started(self, event: RunStarted) -> None:
        """Do nothing: plain text does not show the start of a run."""

    def on_turn_started(self) -> None:
        """Do nothing: plain text does not show the start of a turn."""

    def on_turn_ended(self) -> None:
        """End the line of the answer."""
        self._end_line()

    def on_thinking(self, text: str) -> None:
        """Do nothing: plain text does not show reasoning."""

    def on_call_started(self, id: str) -> None:
        """Do nothing: plain text shows a call when it ends."""

    def on_call_progress(self, id: str, text: str) -> None:
        """Do nothing: plain text does not show progress."""

    def close(self) -> None:
        """End the line that was begun, if any."""
        self._end_line()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Hold back events while the user is asked something, and write them afterwards."""
        self._end_line()
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            pending, self._pending_events = self._pending_events, []
            for event in pending:
                self._dispatch_event(event)

    def write_line(self, text: str, style: str = "") -> None:
        """Write a line to stderr. The text must not contain control characters."""
        self._end_line()
        self._err.write(f"{apply_style(text, style) if self._err is sys.stderr and is_styled(err=True) else text}\n")
        self._err.flush()

    def write_sentence(self, text: str, style: str = "") -> None:
        """Write a line of prose to stderr, which a terminal wraps at words."""
        width = terminal_width(err=True) if self._err is sys.stderr else None
        for line in (text if width is None else wrap_text(text, width, 2)).split("\n"):
            self.write_line(line, style)

    def write_prompt(self, text: str) -> None:
        """Write a prompt to stderr without a newline."""
        self._err.write(text)
        self._err.flush()

    # ---- events that all outputs handle alike

    def _on_other_agent(self, event: HandedOff | SubAgentEvent) -> None:
        """Write a note about a hand-off, or show what a sub-agent calls as the progress of its call."""
        if isinstance(event, HandedOff):
            self.write_note(f"{event.previous} hands off to {event.agent}")
        elif isinstance(event.inner, CallProposed):
            call = format_call(event.inner.tool, event.inner.arguments, self._path_prefix)
            self.on_call_progress(event.call_id, truncate_line(f"{event.agent}: {call}", self.width))

    def on_text(self, text: str) -> None:
        """Write a piece of the answer to stdout."""
        if self._has_text_before and not self._is_mid_line:
            self._out.write("\n")  # separates the text before and after tool calls
        self._has_text_before = False
        self._out.write(text if self._wrapper is None else self._wrapper.feed(text))
        self._out.flush()
        self._is_mid_line = not text.endswith("\n")

    def write_note(self, text: str) -> None:
        """Write a message from toolwire itself."""
        self.write_sentence(f"toolwire: {truncate_line(text, 1000)}", "warning")

    def on_call_ended(self, event: CallEnded) -> None:
        """Write the call with its status and duration, and the first line of its result."""
        mark, style = _STATUS_MARKS[event.status]
        record = event.record
        call = self._call_lines.get(event.call_id) or truncate_line(record.tool, 100)
        if record.locus == "provider":  # its arguments are known only now
            call = format_call(record.tool, json.dumps(record.arguments))
        seconds = f"  {format_seconds(record.end - record.start)}" if record.end > record.start else ""
        self.write_line(f"{mark} {truncate_line(call, self.width - 10)}{seconds}", style)
        if record.error == "in_doubt":
            self.write_line(f"  {_IN_DOUBT_TEXT}", "problem")
            return
        outcome = outcome_lines(record)
        if event.status != "error":
            outcome = [truncate_line(line, self.width - 3) for line in outcome[:1]]
        for line in outcome[:_MAX_ERROR_LINES]:
            self.write_line(f"  {truncate_line(line, _MAX_ERROR_CHARS)}", "muted")
        if len(outcome) > _MAX_ERROR_LINES:
            self.write_line(f"  ... {len(outcome) - _MAX_ERROR_LINES} more lines (toolwire runs show last)", "muted")

    def on_run_ended(self, event: RunEnded) -> None:
        """Write how the run ended, with its counts and duration."""
        self.write_sentence(
            format_run_end(event, self.duration or time.monotonic() - self._started_at),
            _STOP_STYLES.get(event.stopped, "warning"),
        )

    def _end_line(self) -> None:
        """End the line of text that was begun on stdout, if any."""
        if self._is_mid_line:
            self._out.write("\n" if self._wrapper is None else f"{self._wrapper.flush()}\n")
            self._out.flush()
            self._has_text_before, self._is_mid_line = True, False


class JsonOutput:
    """Output as JSON lines, in ASCII so that nothing in them controls a terminal."""

    def write_event(self, event: RunEvent) -> None:
        """Write one event to stdout as a line of JSON."""
        text = json.dumps(msgspec.to_builtins(event)).replace("\x7f", "\\u007f")
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Do nothing: every line is complete."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Do nothing: JSON output never prompts."""
        yield

    def write_line(self, text: str, style: str = "") -> None:
        """Do nothing: only events are written."""

    def write_prompt(self, text: str) -> None:
        """Do nothing: JSON output never prompts."""

    def write_note(self, text: str) -> None:
        """Write a message from toolwire itself to stderr."""
        sys.stderr.write(f"toolwire: {truncate_line(text, 1000)}\n")


# ---- formatting


def format_call(tool: str, arguments: str, path_prefix: str = "") -> str:
    """Format a call as one line: the tool, and the arguments that fit. `path_prefix` is removed from paths."""
    try:
        decoded: Any = json.loads(arguments or "{}")
    except ValueError:
        decoded = arguments
    values = list(decoded.values()) if isinstance(decoded, dict) else [decoded]
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    short_texts = [text for text in texts if len(text) <= _MAX_VALUE_CHARS and "\n" not in text] or texts[:1]
    summary = " ".join(truncate_line(text.removeprefix(path_prefix), _MAX_VALUE_CHARS) for text in short_texts)
    return f"{truncate_line(tool, 100)} {summary}".strip()


def outcome_lines(record: CallRecord) -> list[str]:
    """Return the meaningful lines of a call's result.

    A denied call gives the decision instead. Shell results start with the command, which is skipped.
    """
    if record.error == "denied":
        return [_UNATTENDED_DENIAL_TEXT if record.approval == _UNATTENDED_DENIAL else record.approval]
    lines = [line for line in record.summary.splitlines() if line.strip()]
    if lines and lines[0].startswith("Command: "):
        lines = [line.removeprefix("Output: ") for line in lines[2:] if line not in ("Output:", "Error: (none)")]
    return lines


def format_run_end(event: RunEnded, seconds: float) -> str:
    """Format the stop cause of a run, its turns, calls and tokens, and its duration."""
    reason = f" ({truncate_line(event.reason, 300)})" if event.reason else ""
    counts = f"{_pluralize(event.turns, 'turn')}, {_pluralize(event.calls, 'call')}"
    return f"{format_stop(event.stopped)}{reason}: {counts}, {format_usage(event.usage)}, {format_seconds(seconds)}"


def format_usage(usage: Usage | None) -> str:
    """Format token usage as text."""
    if usage is None:
        return "token usage not reported"
    cached = f" ({usage.cache_read} from cache)" if usage.cache_read else ""
    estimated = " (estimated)" if usage.estimated else ""
    return f"{usage.input_tokens or 0} tokens in{cached}, {usage.output_tokens or 0} out{estimated}"


def _pluralize(count: int, noun: str) -> str:
    """Return count and noun, such as `1 turn` or `2 turns`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    """Format a duration, such as `12s`, `1.5s` or `80ms`."""
    return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s" if seconds >= 0.1 else f"{seconds * 1000:.0f}ms"
