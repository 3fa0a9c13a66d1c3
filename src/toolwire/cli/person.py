"""The person at the terminal, and who stands in where there is none."""

import asyncio
import json
import os
import shlex
import sys
import termios
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from toolwire.runtime.approval import Answer, Ask, Person

from .printable import spelled

_ANSWERS: dict[str, Answer] = {
    **dict.fromkeys(("y", "yes"), "yes"),
    **dict.fromkeys(("n", "no"), "no"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("l", "later"), "later"),
}
_LINES = 40
_LENGTH = 2000


class Screen(Protocol):
    """Where questions are put. `paused`: nothing else moves meanwhile."""

    def paused(self) -> AbstractContextManager[None]: ...
    def line(self, text: str, style: str = "") -> None: ...
    def prompt(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...


def terminal() -> int | None:
    """Where a person can be asked, although stdin may be something else. None: nowhere."""
    if not sys.stderr.isatty():
        return None
    if sys.stdin.isatty():
        return sys.stdin.fileno()
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return None


class AtTerminal:
    """One question after the other, also if several calls have one at once. After a `later` the run stops, so the
    rest of what it wants waits, too."""

    name = "person"

    def __init__(self, handle: int, screen: Screen) -> None:
        self._handle = handle
        self._screen = screen
        self._turn = asyncio.Lock()
        self._left = False

    async def approve(self, ask: Ask) -> Answer:
        async with self._turn:
            if self._left:
                return "later"
            with self._screen.paused():
                answer = await self._decided(ask)
            self._left = answer == "later"
            return answer

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        async with self._turn:
            with self._screen.paused():
                self._screen.line(f"? {spelled(question)}", "bold")
                for number, choice in enumerate(choices, 1):
                    self._screen.line(f"  {number}. {spelled(choice)}")
                said = await self._line("answer (a number, or your own words): " if choices else "answer: ")
        if said is not None and said.isdecimal() and 1 <= int(said) <= len(choices):
            return choices[int(said) - 1]
        return said or None

    async def _decided(self, ask: Ask) -> Answer:
        tool = spelled(ask.tool)
        self._screen.line(f"? {tool} ({spelled(ask.why)})", "bold")
        hidden = self._show(ask, limited=True)
        while True:
            more = ", [d] show all of it" if hidden else ""
            said = await self._line(f"run it? [y]es, [n]o, [a]lways {tool} in this run, [l]ater{more}: ")
            if said is None:
                return "no"
            if said.lower() == "d":
                hidden = self._show(ask, limited=False)
            elif (answer := _ANSWERS.get(said.lower())) in ("yes", "always") and hidden:
                self._screen.line(f"  {hidden} characters of this call were not shown: type d to see all of it first")
            elif answer is not None:
                return answer

    def _show(self, ask: Ask, *, limited: bool) -> int:
        """Show a call, and return how many of its characters are left out."""
        texts = list[tuple[str, Callable[[str], str]]]()
        if ask.preview is None or not ask.preview.startswith("--- "):  # a difference shows all that is given
            texts += [(f"{name}: {text}" if name else text, lambda _: "") for name, text in _arguments(ask)]
        if ask.preview is not None:
            texts.append((ask.preview, _style))
        hidden = 0
        for text, style in texts:
            lines, left_out = _excerpt(spelled(text).rstrip("\n").split("\n"), limited=limited)
            hidden += left_out
            for line in lines:
                self._screen.line(f"  {line}", style(line))
        return hidden

    async def _line(self, prompt: str) -> str | None:
        """What is typed from now on; what was typed before the question was not an answer to it. None at the end."""
        with suppress(termios.error):
            termios.tcflush(self._handle, termios.TCIFLUSH)
        self._screen.prompt(prompt)
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._handle, ready.set)
        try:
            await ready.wait()
            data = os.read(self._handle, 64 * 1024)
        finally:
            loop.remove_reader(self._handle)
        return data.decode("utf-8", "replace").strip() if data else None


def _arguments(ask: Ask) -> Iterable[tuple[str, str]]:
    try:
        given: Any = json.loads(ask.arguments or "{}")
    except ValueError:
        given = ask.arguments
    if not isinstance(given, dict):
        return [("", ask.arguments)]
    return [(name, one if isinstance(one, str) else json.dumps(one)) for name, one in given.items()]


def _excerpt(lines: list[str], *, limited: bool) -> tuple[list[str], int]:
    """Cut the middle out of many lines and of long ones, and say there how much is missing."""
    if not limited:
        return lines, 0
    hidden, tail = 0, _LINES // 4
    if len(lines) > _LINES:
        middle = lines[_LINES - tail : -tail]
        hidden = sum(map(len, middle)) + len(middle)
        mark = f"[... {len(middle)} lines, {hidden} characters not shown ...]"
        lines = [*lines[: _LINES - tail], mark, *lines[-tail:]]
    shown = list[str]()
    for line in lines:
        if (left_out := len(line) - _LENGTH) > 0:
            hidden += left_out
            tail = _LENGTH // 4
            line = f"{line[: _LENGTH - tail]}[... {left_out} characters not shown ...]{line[-tail:]}"  # noqa: PLW2901
        shown.append(line)
    return shown, hidden


def _style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "dim"
    return {"+": "green", "-": "red"}.get(line[:1], "")


class Away:
    """No terminal: what would be asked is denied, or waits, and it is said which rule would allow it."""

    def __init__(self, screen: Screen, *, later: bool) -> None:
        self.name = "nobody"
        self._screen = screen
        self._later = later

    async def approve(self, ask: Ask) -> Answer:
        what = "waits" if self._later else "denied"
        self._screen.note(f"{what}: {ask.tool} ({spelled(ask.why)}, and nobody is there to ask). {_way_out(ask)}")
        return "later" if self._later else "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


def _way_out(ask: Ask) -> str:
    if ask.in_person:
        return "Only a person at a terminal can allow it; for commands without a sandbox, --no-sandbox does"
    if not ask.allow:
        return "No rule can allow it: --yes does, or a person at a terminal"
    quoted = " ".join(f"--allow {shlex.quote(rule)}" for rule in map(spelled, ask.allow))
    return f"To allow it: {quoted}"


class Decided:
    """Answers that were given beforehand, each for one call exactly as it was shown; the rest is another's to say."""

    def __init__(self, answers: dict[str, Answer], other: Person) -> None:
        self._answers = answers
        self._other = other
        self.name = "person"

    async def approve(self, ask: Ask) -> Answer:
        found = self._answers.pop(ask.binding, None)
        self.name = "person" if found else self._other.name
        return found or await self._other.approve(ask)

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return await self._other.answer(question, choices)
