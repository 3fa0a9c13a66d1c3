"""A run at the terminal: approvals, signals, the closing hint and the exit code."""

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

from msgspec.structs import replace

from toolwire.agent import Agent
from toolwire.cli.output.run_output import JsonOutput, TextOutput
from toolwire.cli.output.terminal import diff_style, escape_controls
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest, Approver, AutoApprover
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.result import RunStream
from toolwire.runtime.run.state import run_ended

_ANSWER_KEYS: dict[str, ApprovalAnswer] = {
    **dict.fromkeys(("y", "yes"), "yes"),
    **dict.fromkeys(("n", "no"), "no"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("l", "later"), "later"),
}
_MAX_LINES = 40
_MAX_LINE_CHARS = 2000
_MAX_SHOWN_REPLY = 40


class PromptOutput(Protocol):
    """The output that questions to the user are written to."""

    def pause(self) -> AbstractContextManager[None]:
        """Hold back all other output while the context is open."""
        ...

    def write_line(self, text: str, style: str = "") -> None:
        """Write a line with a style such as `dim`."""
        ...

    def write_prompt(self, text: str) -> None:
        """Write a prompt without a newline."""
        ...

    def write_note(self, text: str) -> None:
        """Write a message from toolwire itself."""
        ...


def open_terminal() -> int | None:
    """Return a file descriptor to read the user's answers from, even if stdin is piped; None without a terminal."""
    if not sys.stderr.isatty():
        return None
    if sys.stdin.isatty():
        return sys.stdin.fileno()
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return None


class TerminalApprover:
    """Asks the user at the terminal, one question at a time.

    After the answer "later" the run stops, so all further requests are postponed too.
    """

    name = "person"

    def __init__(self, handle: int, output: PromptOutput) -> None:
        self._handle = handle
        self._output = output
        self._prompt_lock = asyncio.Lock()
        self._has_deferred = False

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask the user whether to run a call."""
        async with self._prompt_lock:
            if self._has_deferred:
                return "later"
            with self._output.pause():
                answer = await self._prompt_decision(request)
            self._has_deferred = answer == "later"
            return answer

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Ask a question of the model. Return the answer, or None if the user gave none."""
        async with self._prompt_lock:
            with self._output.pause():
                self._output.write_line(f"? {escape_controls(question)}", "strong")
                for number, choice in enumerate(choices, 1):
                    self._output.write_line(f"  {number}. {escape_controls(choice)}")
                reply = await self._read_line("answer (a number, or your own text): " if choices else "answer: ")
        if reply is not None and reply.isdecimal() and 1 <= int(reply) <= len(choices):
            return choices[int(reply) - 1]
        return reply or None

    async def _prompt_decision(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Show the call and read the user's decision; a shortened call must be shown in full before approval."""
        tool = escape_controls(request.tool)
        self._output.write_line(f"? {tool} ({escape_controls(request.reason)})", "strong")
        hidden = self._show_call(request, truncate=True)
        while True:
            more = ", [d] show all of it" if hidden else ""
            reply = await self._read_line(f"run it? [y]es, [n]o, [a]lways {tool} in this run, [l]ater{more}: ")
            if reply is None:
                return "no"
            if reply.lower() == "d":
                hidden = self._show_call(request, truncate=False)
            elif (answer := _ANSWER_KEYS.get(reply.lower())) in ("yes", "always") and hidden:
                self._output.write_line(
                    f"  {hidden} characters of this call were not shown: type d to see all of it first"
                )
            elif answer is not None:
                return answer
            else:
                typed = f"{escape_controls(reply[:_MAX_SHOWN_REPLY])!r} is not an answer" if reply else "no answer"
                self._output.write_line(f"  {typed}: type y, n, a or l{', or d' if hidden else ''}", "warning")

    def _show_call(self, request: ApprovalRequest, *, truncate: bool) -> int:
        """Show a call, and return the number of characters left out."""
        texts = list[tuple[str, Callable[[str], str]]]()
        if request.preview is None or not request.preview.startswith("--- "):  # a diff already shows the arguments
            texts += [(f"{name}: {text}" if name else text, lambda _: "") for name, text in _argument_texts(request)]
        if request.preview is not None:
            texts.append((request.preview, diff_style))
        hidden = 0
        for text, style in texts:
            lines, left_out = _excerpt_lines(escape_controls(text).rstrip("\n").split("\n"), truncate=truncate)
            hidden += left_out
            for line in lines:
                self._output.write_line(f"  {line}", style(line))
        return hidden

    async def _read_line(self, prompt: str) -> str | None:
        """Read a line typed after the prompt was shown; None at the end of input."""
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
    """Return the name and the text of each argument of the call to approve."""
    try:
        decoded: Any = json.loads(request.arguments or "{}")
    except ValueError:
        decoded = request.arguments
    if not isinstance(decoded, dict):
        return [("", request.arguments)]
    return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in decoded.items()]


def _excerpt_lines(lines: list[str], *, truncate: bool) -> tuple[list[str], int]:
    """Cut out the middle of a long text and of long lines. Return the lines and the number of characters cut."""
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


class AbsentApprover:
    """Denies or postpones every request, for runs without a terminal, and prints the rule that would allow it."""

    def __init__(self, output: PromptOutput, *, defer: bool) -> None:
        """Postpone requests if `defer` is set, else deny them."""
        self.name = "nobody"
        self._output = output
        self._defer = defer

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Deny or postpone the call, and print the rule that would allow it."""
        outcome = "postponed" if self._defer else "denied"
        self._output.write_note(
            f"{outcome}: {request.tool} ({escape_controls(request.reason)}; no approver available). "
            f"{_allow_hint(request)}"
        )
        return "later" if self._defer else "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return None, since no user is there to answer."""
        return None


def _allow_hint(request: ApprovalRequest) -> str:
    """Return a sentence with the command-line options that would allow the call."""
    if request.requires_human:
        return "Only a person at a terminal can allow it; for commands without a sandbox, use --no-sandbox"
    if not request.suggested_rules:
        return "No rule can allow it: use --yes, or run it at a terminal"
    quoted = " ".join(f"--allow {shlex.quote(rule)}" for rule in map(escape_controls, request.suggested_rules))
    return f"To allow it: {quoted}"


class PresetApprover:
    """Gives answers that the user gave in advance, each for exactly the call that was shown to the user."""

    def __init__(self, answers: dict[str, ApprovalAnswer], fallback: Approver) -> None:
        self._answers = answers
        self._fallback = fallback
        self.name = "person"

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Return the user's earlier answer for exactly this call, or ask the fallback."""
        preset = self._answers.pop(request.digest, None)
        self.name = "person" if preset else self._fallback.name
        return preset or await self._fallback.approve(request)

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Pass the question to the fallback approver."""
        return await self._fallback.answer(question, choices)


EXIT_FINISHED, EXIT_STOPPED, EXIT_WAITING = 0, 1, 3
ANSWER_STOP_CAUSES = frozenset({"finished", "length", "filtered", "refused"})
"""Stop causes after which the model has answered: the run can't be resumed, but the conversation can be continued."""
_SIGNAL_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}

RunOutput = TextOutput | JsonOutput
StartRun = Callable[[Agent], RunStream]


def build_output(workspace: str, *, as_json: bool) -> RunOutput:
    """Return the output for this terminal, or JSON output."""
    if as_json:
        return JsonOutput()
    if sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from toolwire.cli.output.live_output import LiveOutput

        return LiveOutput(workspace)
    return TextOutput(workspace=workspace)


def build_approver(output: RunOutput, *, yes: bool, defer: bool) -> Approver:
    """Return the approver. JSON output never prompts, because a program reads the events."""
    terminal = None if isinstance(output, JsonOutput) else open_terminal()
    approver: Approver = AbsentApprover(output, defer=defer) if terminal is None else TerminalApprover(terminal, output)
    return AutoApprover(approver) if yes else approver


def follow_run(agent: Agent, start: StartRun, output: RunOutput, journal: str | None) -> int:
    """Run the agent to its end, write its events, and return the exit code."""
    end, code = asyncio.run(_follow_events(agent, start, output))
    if not isinstance(output, JsonOutput) and journal is not None:
        output.write_line(_resume_hint(end, journal), "muted")
    return code


async def _follow_events(agent: Agent, start: StartRun, output: RunOutput) -> tuple[RunEnded, int]:
    """Write the events of the run. Return its last event and the exit code."""
    signals = _SignalHandler(output)
    stream = start(agent)
    try:
        async with agent:
            try:
                async for event in stream:
                    output.write_event(event)
            except asyncio.CancelledError:
                if signals.caught_signal is None:
                    raise
                cause = "Ctrl-C" if signals.caught_signal == signal.SIGINT else signals.caught_signal.name
                output.write_event(replace(run_ended(stream.run.state), why=cause))
    finally:
        output.close()
    end = run_ended(stream.run.state)
    return end, _SIGNAL_EXIT_CODES[signals.caught_signal] if signals.caught_signal is not None else exit_code(end)


class _SignalHandler:
    """Stops the run and its tools on the first SIGINT or SIGTERM; the second kills the process."""

    def __init__(self, output: RunOutput) -> None:
        self.caught_signal: signal.Signals | None = None
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        for signal_number in _SIGNAL_EXIT_CODES:
            self._loop.add_signal_handler(signal_number, self._stop, signal_number)

    def _stop(self, caught_signal: signal.Signals) -> None:
        """Cancel the run, and let the next signal kill the process."""
        self.caught_signal = caught_signal
        for signal_number in _SIGNAL_EXIT_CODES:
            self._loop.remove_signal_handler(signal_number)
            signal.signal(signal_number, signal.SIG_DFL)
        self._output.close()
        self._output.write_note("stopping... press Ctrl-C again to kill")
        if self._task is not None:
            self._task.cancel()


def exit_code(end: RunEnded) -> int:
    """Return the exit code for the end of a run."""
    return {"finished": EXIT_FINISHED, "waiting": EXIT_WAITING}.get(end.stopped, EXIT_STOPPED)


def _resume_hint(end: RunEnded, journal: str) -> str:
    """Return the line that names the run, its file and the command to continue it."""
    home = Path.home()
    name = f"~{journal.removeprefix(str(home))}" if journal.startswith(f"{home}/") else journal
    location = f"{end.run} in {name}"
    if end.stopped in ANSWER_STOP_CAUSES:
        return f"{location}; continue with: toolwire ask --continue '...'"
    first_step = f"toolwire runs show {end.run}, then " if end.stopped == "waiting" else ""
    return f"{location}; continue with: {first_step}toolwire runs resume {end.run}"
