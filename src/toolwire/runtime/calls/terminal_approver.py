"""Approval at the terminal: shows a call in full, with control characters escaped, and reads the user's answer."""

import asyncio
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

from toolwire.codec.escapes import escape_controls
from toolwire.runtime.calls.approval import NO_APPROVER, ApprovalAnswer, ApprovalRequest, Approver, NoApprover

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

    def __init__(
        self,
        handle: int,
        output: PromptOutput,
        *,
        line_style: Callable[[str], str] = lambda _: "",
        may_defer: bool = True,
    ) -> None:
        """Read answers from a file descriptor.

        `line_style` returns the style of a line of a diff. With `may_defer`, the user may answer `later`.
        """
        self._handle = handle
        self._output = output
        self._line_style = line_style
        self._answers = {key: answer for key, answer in _ANSWER_KEYS.items() if may_defer or answer != "later"}
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
            more = (", [l]ater" if "l" in self._answers else "") + (", [d] show all of it" if hidden else "")
            reply = await self._read_line(f"run it? [y]es, [n]o, [a]lways {tool} in this run{more}: ")
            if reply is None:
                return "no"
            if reply.lower() == "d":
                hidden = self._show_call(request, truncate=False)
            elif (answer := self._answers.get(reply.lower())) in ("yes", "always") and hidden:
                self._output.write_line(
                    f"  {hidden} characters of this call were not shown: type d to see all of it first"
                )
            elif answer is not None:
                return answer
            else:
                typed = f"{escape_controls(reply[:_MAX_SHOWN_REPLY])!r} is not an answer" if reply else "no answer"
                keys = [*(key for key in self._answers if len(key) == 1), *("d" if hidden else "")]
                self._output.write_line(f"  {typed}: type {', '.join(keys[:-1])} or {keys[-1]}", "warning")

    def _show_call(self, request: ApprovalRequest, *, truncate: bool) -> int:
        """Show a call, and return the number of characters left out."""
        texts = list[tuple[str, Callable[[str], str]]]()
        if request.preview is None or not request.preview.startswith("--- "):  # a diff already shows the arguments
            texts += [(f"{name}: {text}" if name else text, lambda _: "") for name, text in _argument_texts(request)]
        if request.preview is not None:
            texts.append((request.preview, self._line_style))
        hidden = 0
        for text, style in texts:
            lines, left_out = _excerpt_lines(escape_controls(text).rstrip("\n").split("\n"), truncate=truncate)
            hidden += left_out
            for line in lines:
                self._output.write_line(f"  {line}", style(line))
        return hidden

    async def _read_line(self, prompt: str) -> str | None:
        """Read a line typed after the prompt was shown; None at the end of input."""
        import termios  # noqa: PLC0415 - not on Windows

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


class PlainPrompt:
    """Writes questions to stderr, for programs without output of their own."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Do nothing: there is no other output."""
        yield

    def write_line(self, text: str, style: str = "") -> None:
        """Write a line."""
        self.write_prompt(f"{text}\n")

    def write_prompt(self, text: str) -> None:
        """Write a prompt without a newline."""
        sys.stderr.write(text)
        sys.stderr.flush()

    def write_note(self, text: str) -> None:
        """Write a message from toolwire itself."""
        self.write_line(f"toolwire: {text}")


class UnattendedApprover(NoApprover):
    """Denies every request, and warns the developer with the code that would allow it."""

    name = NO_APPROVER

    def __init__(self) -> None:
        self._warned: set[str] = set()

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Deny the call; warn once for each tool."""
        if request.tool not in self._warned:
            self._warned.add(request.tool)
            warnings.warn(_denial_hint(request), CallDeniedWarning, stacklevel=2)
        return "no"


class CallDeniedWarning(UserWarning):
    """A call was denied because it needs approval and there is no approver."""


def _denial_hint(request: ApprovalRequest) -> str:
    """Return why a call was denied, and what to write instead."""
    denied = f"{request.tool} was denied: {request.reason}, and there is no approver."
    if request.requires_human or not request.suggested_rules:
        return f"{denied} Run the program at a terminal, or pass Agent(approver=...)."
    return (
        f"{denied} To allow it, write Agent(..., policy=tw.Policy(allow=[{request.tool!r}])); "
        "for a function that changes nothing, @tw.tool(read_only=True); "
        "to decide on each call, Agent(..., approver=...)."
    )


def default_approver() -> Approver:
    """Return the approver of an agent that has none: the user at the terminal, if there is one."""
    # Within pytest at a terminal (`pytest -s`), a test would wait for its user.
    can_ask = sys.platform != "win32" and "PYTEST_CURRENT_TEST" not in os.environ and sys.stdin.isatty()
    terminal = open_terminal() if can_ask else None
    return UnattendedApprover() if terminal is None else TerminalApprover(terminal, PlainPrompt(), may_defer=False)
