"""A run at the terminal: approvals, signals, the closing hint and the exit code."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from toolwire.agent import Agent
from toolwire.cli.output.run_output import JsonOutput, TextOutput
from toolwire.cli.output.terminal import diff_style
from toolwire.codec.escapes import escape_controls
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest, Approver, AutoApprover
from toolwire.runtime.calls.terminal_approver import PromptOutput, TerminalApprover, open_terminal
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.result import RunStream
from toolwire.runtime.run.state import run_ended


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
    approver: Approver = (
        AbsentApprover(output, defer=defer)
        if terminal is None
        else TerminalApprover(terminal, output, line_style=diff_style)
    )
    return AutoApprover(approver) if yes else approver


def follow_run(agent: Agent, start: StartRun, output: RunOutput, journal: str | None) -> int:
    """Run the agent to its end, write its events, and return the exit code."""
    end, code = asyncio.run(_follow_events(agent, start, output))
    if not isinstance(output, JsonOutput) and journal is not None:
        location, *commands = _resume_hint(end, journal)
        output.write_sentence(location, "muted")
        for line in commands:
            output.write_line(line, "muted")
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
                output.write_event(replace(run_ended(stream.run.state), reason=cause))
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


def _resume_hint(end: RunEnded, journal: str) -> list[str]:
    """Return lines with the id of the run, its file, and the commands that continue it, ready to copy."""
    home = Path.home()
    name = f"~{journal.removeprefix(str(home))}" if journal.startswith(f"{home}/") else journal
    location = f"{end.run} in {name}"
    if end.stopped in ANSWER_STOP_CAUSES:
        return [location, "continue with: toolwire ask --continue '...'"]
    resume = f"continue with: toolwire runs resume {end.run}"
    if end.stopped == "waiting":
        return [location, f"see the call with: toolwire runs show {end.run}", resume]
    return [location, resume]
