"""Watching a run to its end: who is asked, what Ctrl-C does, what is said last, and the exit code."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from toolwire.agent import Agent
from toolwire.runtime.approval import Consenting, Person
from toolwire.runtime.events import RunEnded
from toolwire.runtime.loop import ended
from toolwire.runtime.run import RunStream

from .person import AtTerminal, Away, terminal
from .view import Lines, Stream

FINISHED, STOPPED, WAITING = 0, 1, 3
ANSWERED = frozenset({"finished", "length", "filtered", "refused"})
"""The model has said what it would: there is nothing to take up again, but the conversation can go on."""
_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}

View = Lines | Stream
Start = Callable[[Agent], RunStream]


def view_of(workspace: str, *, as_json: bool) -> View:
    if as_json:
        return Stream()
    if sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from .terminal import Terminal

        return Terminal(workspace)
    return Lines(workspace=workspace)


def person_of(view: View, *, yes: bool, later: bool) -> Person:
    """Who answers. A program that reads events is no person, whatever terminal it was started from."""
    handle = None if isinstance(view, Stream) else terminal()
    there: Person = Away(view, later=later) if handle is None else AtTerminal(handle, view)
    return Consenting(there) if yes else there


def conduct(agent: Agent, start: Start, view: View, journal: Path | None) -> int:
    """The run, from its start to its exit code."""
    end, code = asyncio.run(_conducted(agent, start, view))
    if not isinstance(view, Stream) and journal is not None:
        view.line(_last_line(end, journal), "dim")
    return code


async def _conducted(agent: Agent, start: Start, view: View) -> tuple[RunEnded, int]:
    stopping = _Stopping(view)
    stream = start(agent)
    try:
        async with agent:
            try:
                async for event in stream:
                    view.take(event)
            except asyncio.CancelledError:
                if stopping.by is None:
                    raise
                view.take(ended(stream.run.state))
    finally:
        view.close()
    end = ended(stream.run.state)
    return end, _SIGNALS[stopping.by] if stopping.by is not None else code_of(end)


class _Stopping:
    """The first signal stops the run, and its tools; the second is the system's to carry out."""

    def __init__(self, view: View) -> None:
        self.by: signal.Signals | None = None
        self._view = view
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        for one in _SIGNALS:
            self._loop.add_signal_handler(one, self._stop, one)

    def _stop(self, by: signal.Signals) -> None:
        self.by = by
        for one in _SIGNALS:
            self._loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        self._view.close()
        self._view.note("stopping; once more to kill")
        if self._task is not None:
            self._task.cancel()


def code_of(end: RunEnded) -> int:
    return {"finished": FINISHED, "waiting": WAITING}.get(end.stopped, STOPPED)


def _last_line(end: RunEnded, journal: Path) -> str:
    home = Path.home()
    where = f"{end.run} in {f'~/{journal.relative_to(home)}' if journal.is_relative_to(home) else journal}"
    if end.stopped in ANSWERED:
        return f"{where}; go on: toolwire ask --continue '...'"
    seen = f"toolwire runs show {end.run}, then " if end.stopped == "waiting" else ""
    return f"{where}; go on: {seen}toolwire runs resume {end.run}"
