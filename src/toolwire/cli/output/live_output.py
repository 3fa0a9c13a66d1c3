"""Output of a run on a terminal: activities in progress are animated below the finished lines."""

import os
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from toolwire.cli.output.run_output import TextOutput, truncate_line
from toolwire.cli.output.terminal import open_console, wrap_text
from toolwire.cli.output.word_wrap import WordWrapper
from toolwire.runtime.run.events import CallEnded, RunEnded, RunStarted

_REFRESH_RATE = 10
_SPINNER_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class _LiveArea:
    """The animated lines: one per activity, with its progress and its duration."""

    def __init__(self, width: int) -> None:
        self._width = width
        # Label and start time, by call id; the id "" is the model's thinking.
        self.activities: dict[str, tuple[str, float]] = {}
        self.progress: dict[str, str] = {}

    def __rich__(self) -> Group:
        """Render all activities, as rich calls it for every frame."""
        return Group(*(self._render_line(id, *activity) for id, activity in list(self.activities.items())))

    def _render_line(self, id: str, label: str, started_at: float) -> Text:
        """Render one activity as a line: spinner, label, progress and duration."""
        progress = f": {text}" if (text := self.progress.get(id)) else ""
        description = truncate_line(f"{label}{progress}", self._width - 12)
        now = time.monotonic()
        frame = _SPINNER_FRAMES[int(now * _REFRESH_RATE) % len(_SPINNER_FRAMES)]
        return Text.assemble((frame, "accent"), f" {description} ", (f"{now - started_at:.0f}s", "muted"), no_wrap=True)


class EchoSwitch:
    """Turns the echo of a terminal off, so that what is typed does not break lines that are being drawn."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._attributes: list[Any] | None = None
        self.is_disabled = False
        """Set if the echo is to stay on."""

    def turn_off(self) -> None:
        """Turn the echo off, unless another process has the terminal."""
        if self._attributes is None and not self.is_disabled and self._is_foreground():
            with suppress(termios.error):
                attributes = termios.tcgetattr(self._handle)
                silent = [*attributes[:3], attributes[3] & ~termios.ECHO, *attributes[4:]]
                termios.tcsetattr(self._handle, termios.TCSANOW, silent)
                self._attributes = attributes

    def restore(self) -> None:
        """Set the terminal as it was."""
        attributes, self._attributes = self._attributes, None
        if attributes is not None and self._is_foreground():
            with suppress(termios.error):
                termios.tcsetattr(self._handle, termios.TCSANOW, attributes)

    def _is_foreground(self) -> bool:
        """Return whether this process may change the terminal; the system would stop another one."""
        try:
            return os.tcgetpgrp(self._handle) == os.getpgrp()
        except OSError:
            return False


class LiveOutput(TextOutput):
    """Text output with a live area for running calls, drawn with rich."""

    def __init__(self, workspace: str) -> None:
        self._console = open_console()
        super().__init__(width=self._console.width, workspace=workspace)
        self._area = _LiveArea(self._console.width)
        self._live: Live | None = None
        self._echo = EchoSwitch(sys.stderr.fileno())
        self._is_in_thinking = False
        self._thinking_wrapper = WordWrapper(self._console.width)

    def on_run_started(self, event: RunStarted) -> None:
        """Write the model, and whether the run was resumed."""
        self.write_line(f"{truncate_line(event.model, 100)}{', resumed' if event.resumed else ''}", "muted")

    def on_turn_started(self) -> None:
        """Show that the model is thinking."""
        self._add_activity("", "thinking")

    def on_text(self, text: str) -> None:
        """Write a piece of the answer, on a new line after reasoning."""
        self._remove_activity("")
        if self._is_in_thinking:
            self._end_line()
            self._is_in_thinking = self._has_text_before = False
        super().on_text(text)

    def on_turn_ended(self) -> None:
        """Stop showing that the model is thinking, and end the line."""
        self._remove_activity("")
        super().on_turn_ended()

    def on_thinking(self, text: str) -> None:
        """Write a piece of the model's reasoning, dimmed."""
        self._remove_activity("")
        self._print_thinking(self._thinking_wrapper.feed(text))
        self._is_in_thinking, self._is_mid_line = True, not text.endswith("\n")

    def _print_thinking(self, text: str) -> None:
        """Print a piece of the model's reasoning."""
        if text:
            self._console.print(Text(text, style="thinking"), end="", soft_wrap=True)

    def _end_line(self) -> None:
        """End the line of the answer, or of the reasoning, that was begun."""
        self._print_thinking(self._thinking_wrapper.flush())
        super()._end_line()

    def on_call_started(self, id: str) -> None:
        """Show a running call in the live area."""
        self._remove_activity("")
        self._add_activity(id, self._call_lines.get(id, ""))

    def on_call_progress(self, id: str, text: str) -> None:
        """Show the progress of a running call."""
        self._area.progress[id] = text

    def on_call_ended(self, event: CallEnded) -> None:
        """Remove the call from the live area, and write its result."""
        self._remove_activity("")
        self._remove_activity(event.call_id)
        super().on_call_ended(event)

    def on_run_ended(self, event: RunEnded) -> None:
        """Remove the live area, and write how the run ended."""
        self.close()
        super().on_run_ended(event)

    def close(self) -> None:
        """Remove the live area, and end the current line."""
        self._area.activities.clear()
        self._stop_live()
        self._echo.is_disabled = True  # a second Ctrl-C kills the process, which must leave the echo on
        super().close()

    def write_line(self, text: str, style: str = "") -> None:
        """Write a styled line above the live area."""
        self._end_line()
        self._console.print(Text(text, style=style), soft_wrap=True)

    def write_sentence(self, text: str, style: str = "") -> None:
        """Write a line of prose above the live area, wrapped at words."""
        self._end_line()
        self._console.print(Text(wrap_text(text, self._console.width, 2), style=style), soft_wrap=True)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Hide the live area and hold back events while the user is asked something."""
        self._stop_live()
        with super().pause():
            yield
        if self._area.activities:
            self._start_live()

    def _add_activity(self, id: str, label: str) -> None:
        """Show an activity in the live area."""
        self._area.activities[id] = (label, time.monotonic())
        self._start_live()

    def _remove_activity(self, id: str) -> None:
        """Remove an activity, and stop the live area when none is left."""
        self._area.activities.pop(id, None)
        if not self._area.activities:
            self._stop_live()

    def _start_live(self) -> None:
        """Start drawing the live area, unless it is drawn already."""
        if self._live is None:
            self._end_line()
            self._echo.turn_off()
            self._live = Live(
                self._area,
                console=self._console,
                transient=True,
                refresh_per_second=_REFRESH_RATE,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _stop_live(self) -> None:
        """Stop drawing the live area."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._echo.restore()
