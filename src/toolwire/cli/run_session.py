"""The person at the terminal, and who stands in where there is none.

Watching a run to its end: who is asked, what Ctrl-C does, what is said last, and the exit code.
"""

import asyncio
import json
import os
import shlex
import signal
import sys
import termios
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Protocol

from toolwire.agent import Agent
from toolwire.cli.output.run_output import JsonOutput, TextOutput, escape_controls
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest, Approver, AutoApprover
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.loop import run_ended
from toolwire.runtime.run.result import RunStream

_ANSWER_KEYS: dict[str, ApprovalAnswer] = {
    **dict.fromkeys(("y", "yes"), "yes"),
    **dict.fromkeys(("n", "no"), "no"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("l", "later"), "later"),
}
_MAX_LINES = 40
_MAX_LINE_CHARS = 2000


class PromptOutput(Protocol):
    """Where questions are put. `paused`: nothing else moves meanwhile."""

    def pause(self) -> AbstractContextManager[None]: ...
    def write_line(self, text: str, style: str = "") -> None: ...
    def write_prompt(self, text: str) -> None: ...
    def write_note(self, text: str) -> None: ...


def open_terminal() -> int | None:
    """Where a person can be asked, although stdin may be something else. None: nowhere."""
    if not sys.stderr.isatty():
        return None
    if sys.stdin.isatty():
        return sys.stdin.fileno()
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return None


class TerminalApprover:
    """One question after the other, also if several calls have one at once. After a `later` the run stops, so the
    rest of what it wants waits, too."""

    name = "person"

    def __init__(self, handle: int, output: PromptOutput) -> None:
        self._handle = handle
        self._output = output
        self._prompt_lock = asyncio.Lock()
        self._has_deferred = False

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        async with self._prompt_lock:
            if self._has_deferred:
                return "later"
            with self._output.pause():
                answer = await self._prompt_decision(request)
            self._has_deferred = answer == "later"
            return answer

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        async with self._prompt_lock:
            with self._output.pause():
                self._output.write_line(f"? {escape_controls(question)}", "bold")
                for number, choice in enumerate(choices, 1):
                    self._output.write_line(f"  {number}. {escape_controls(choice)}")
                said = await self._read_line("answer (a number, or your own words): " if choices else "answer: ")
        if said is not None and said.isdecimal() and 1 <= int(said) <= len(choices):
            return choices[int(said) - 1]
        return said or None

    async def _prompt_decision(self, request: ApprovalRequest) -> ApprovalAnswer:
        tool = escape_controls(request.tool)
        self._output.write_line(f"? {tool} ({escape_controls(request.reason)})", "bold")
        hidden = self._show_call(request, truncate=True)
        while True:
            more = ", [d] show all of it" if hidden else ""
            said = await self._read_line(f"run it? [y]es, [n]o, [a]lways {tool} in this run, [l]ater{more}: ")
            if said is None:
                return "no"
            if said.lower() == "d":
                hidden = self._show_call(request, truncate=False)
            elif (answer := _ANSWER_KEYS.get(said.lower())) in ("yes", "always") and hidden:
                self._output.write_line(
                    f"  {hidden} characters of this call were not shown: type d to see all of it first"
                )
            elif answer is not None:
                return answer

    def _show_call(self, request: ApprovalRequest, *, truncate: bool) -> int:
        """Show a call, and return how many of its characters are left out."""
        texts = list[tuple[str, Callable[[str], str]]]()
        if request.preview is None or not request.preview.startswith("--- "):  # a difference shows all that is given
            texts += [(f"{name}: {text}" if name else text, lambda _: "") for name, text in _argument_texts(request)]
        if request.preview is not None:
            texts.append((request.preview, _diff_style))
        hidden = 0
        for text, style in texts:
            lines, left_out = _excerpt_lines(escape_controls(text).rstrip("\n").split("\n"), truncate=truncate)
            hidden += left_out
            for line in lines:
                self._output.write_line(f"  {line}", style(line))
        return hidden

    async def _read_line(self, prompt: str) -> str | None:
        """What is typed from now on; what was typed before the question was not an answer to it. None at the end."""
        with suppress(termios.error):
            termios.tcflush(self._handle, termios.TCIFLUSH)
        self._output.write_prompt(prompt)
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._handle, ready.set)
        try:
            await ready.wait()
            data = os.read(self._handle, 64 * 1024)
        finally:
            loop.remove_reader(self._handle)
        return data.decode("utf-8", "replace").strip() if data else None


def _argument_texts(request: ApprovalRequest) -> Iterable[tuple[str, str]]:
    try:
        given: Any = json.loads(request.arguments or "{}")
    except ValueError:
        given = request.arguments
    if not isinstance(given, dict):
        return [("", request.arguments)]
    return [(name, one if isinstance(one, str) else json.dumps(one)) for name, one in given.items()]


def _excerpt_lines(lines: list[str], *, truncate: bool) -> tuple[list[str], int]:
    """Cut the middle out of many lines and of long ones, and say there how much is missing."""
    if not truncate:
        return lines, 0
    hidden, tail = 0, _MAX_LINES // 4
    if len(lines) > _MAX_LINES:
        middle = lines[_MAX_LINES - tail : -tail]
        hidden = sum(map(len, middle)) + len(middle)
        mark = f"[... {len(middle)} lines, {hidden} characters not shown ...]"
        lines = [*lines[: _MAX_LINES - tail], mark, *lines[-tail:]]
    shown = list[str]()
    for line in lines:
        if (left_out := len(line) - _MAX_LINE_CHARS) > 0:
            hidden += left_out
            tail = _MAX_LINE_CHARS // 4
            line = f"{line[: _MAX_LINE_CHARS - tail]}[... {left_out} characters not shown ...]{line[-tail:]}"  # noqa: PLW2901
        shown.append(line)
    return shown, hidden


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "dim"
    return {"+": "green", "-": "red"}.get(line[:1], "")


class AbsentApprover:
    """No terminal: what would be asked is denied, or waits, and it is said which rule would allow it."""

    def __init__(self, output: PromptOutput, *, defer: bool) -> None:
        self.name = "nobody"
        self._output = output
        self._defer = defer

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        what = "waits" if self._defer else "denied"
        self._output.write_note(
            f"{what}: {request.tool} ({escape_controls(request.reason)}, and nobody is there to ask). "
            f"{_allow_hint(request)}"
        )
        return "later" if self._defer else "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


def _allow_hint(request: ApprovalRequest) -> str:
    if request.requires_human:
        return "Only a person at a terminal can allow it; for commands without a sandbox, --no-sandbox does"
    if not request.suggested_rules:
        return "No rule can allow it: --yes does, or a person at a terminal"
    quoted = " ".join(f"--allow {shlex.quote(rule)}" for rule in map(escape_controls, request.suggested_rules))
    return f"To allow it: {quoted}"


class PresetApprover:
    """Answers that were given beforehand, each for one call exactly as it was shown; the rest is another's to say."""

    def __init__(self, answers: dict[str, ApprovalAnswer], fallback: Approver) -> None:
        self._answers = answers
        self._fallback = fallback
        self.name = "person"

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        found = self._answers.pop(request.digest, None)
        self.name = "person" if found else self._fallback.name
        return found or await self._fallback.approve(request)

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return await self._fallback.answer(question, choices)


EXIT_FINISHED, EXIT_STOPPED, EXIT_WAITING = 0, 1, 3
ANSWER_STOP_CAUSES = frozenset({"finished", "length", "filtered", "refused"})
"""The model has said what it would: there is nothing to take up again, but the conversation can go on."""
_SIGNAL_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}

RunOutput = TextOutput | JsonOutput
StartRun = Callable[[Agent], RunStream]


def build_output(workspace: str, *, as_json: bool) -> RunOutput:
    if as_json:
        return JsonOutput()
    if sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from toolwire.cli.output.live_output import LiveOutput

        return LiveOutput(workspace)
    return TextOutput(workspace=workspace)


def build_approver(output: RunOutput, *, yes: bool, defer: bool) -> Approver:
    """Who answers. A program that reads events is no person, whatever terminal it was started from."""
    handle = None if isinstance(output, JsonOutput) else open_terminal()
    there: Approver = AbsentApprover(output, defer=defer) if handle is None else TerminalApprover(handle, output)
    return AutoApprover(there) if yes else there


def follow_run(agent: Agent, start: StartRun, output: RunOutput, journal: Path | None) -> int:
    """The run, from its start to its exit code."""
    end, code = asyncio.run(_follow_events(agent, start, output))
    if not isinstance(output, JsonOutput) and journal is not None:
        output.write_line(_resume_hint(end, journal), "dim")
    return code


async def _follow_events(agent: Agent, start: StartRun, output: RunOutput) -> tuple[RunEnded, int]:
    stopping = _SignalHandler(output)
    stream = start(agent)
    try:
        async with agent:
            try:
                async for event in stream:
                    output.write_event(event)
            except asyncio.CancelledError:
                if stopping.caught_signal is None:
                    raise
                output.write_event(run_ended(stream.run.state))
    finally:
        output.close()
    end = run_ended(stream.run.state)
    return end, _SIGNAL_EXIT_CODES[stopping.caught_signal] if stopping.caught_signal is not None else exit_code(end)


class _SignalHandler:
    """The first signal stops the run, and its tools; the second is the system's to carry out."""

    def __init__(self, output: RunOutput) -> None:
        self.caught_signal: signal.Signals | None = None
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        for one in _SIGNAL_EXIT_CODES:
            self._loop.add_signal_handler(one, self._stop, one)

    def _stop(self, caught_signal: signal.Signals) -> None:
        self.caught_signal = caught_signal
        for one in _SIGNAL_EXIT_CODES:
            self._loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        self._output.close()
        self._output.write_note("stopping; once more to kill")
        if self._task is not None:
            self._task.cancel()


def exit_code(end: RunEnded) -> int:
    return {"finished": EXIT_FINISHED, "waiting": EXIT_WAITING}.get(end.stopped, EXIT_STOPPED)


def _resume_hint(end: RunEnded, journal: Path) -> str:
    home = Path.home()
    where = f"{end.run} in {f'~/{journal.relative_to(home)}' if journal.is_relative_to(home) else journal}"
    if end.stopped in ANSWER_STOP_CAUSES:
        return f"{where}; go on: toolwire ask --continue '...'"
    seen = f"toolwire runs show {end.run}, then " if end.stopped == "waiting" else ""
    return f"{where}; go on: {seen}toolwire runs resume {end.run}"
