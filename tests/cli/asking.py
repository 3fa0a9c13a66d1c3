"""`toolwire` as a user starts it: a process of its own, without anybody's keys, with or without a terminal."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from toolwire.gateway.discovery import VARIABLES
from toolwire.runtime.sandbox.shell import bubblewrap

PROGRAM = "from toolwire.cli import main; main()"
# The terminal becomes the process's own, so that Ctrl-C is a signal to it.
AT_TERMINAL = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {PROGRAM}"


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES.values()}
    return {**kept, "XDG_STATE_HOME": str(folder / ".state"), "PYTHONUNBUFFERED": "1", "TERM": "xterm-256color"}


class Done:
    def __init__(self, finished: "subprocess.CompletedProcess[str]") -> None:
        self.code, self.out, self.err = finished.returncode, finished.stdout, finished.stderr

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def run(self) -> str:
        """The id that the last lines tell."""
        return str(re.findall(r"run_\d+_[0-9a-f]{8}", self.err)[-1])


def toolwire(folder: Path, *arguments: str, piped: str = "", **variables: str) -> Done:
    """In this folder, with nobody at a terminal; `variables` are those of the environment that differ."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=environment(folder) | variables,
        input=piped,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(done)


def started(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Screen:
    """A terminal, and who sits there."""

    def __init__(self, handle: int, process: "subprocess.Popen[bytes]") -> None:
        self._handle = handle
        self._process = process
        self.seen = ""

    def until(self, words: str) -> str:
        """What came on the screen up to these words, since the last ones."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.seen:
            assert time.monotonic() < deadline, f"no {words!r} in:\n{self.seen}"
            if not self._read(0.2) and self._process.poll() is not None:
                raise AssertionError(f"it ended without {words!r}:\n{self.seen}")
        before, _, self.seen = self.seen.partition(words)
        return before

    def types(self, text: str) -> None:
        os.write(self._handle, text.encode())

    def ends(self) -> tuple[int, str]:
        """Its exit code, and the rest of what was shown."""
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on and on:\n{self.seen}"
            self._read(0.1)
        while self._read(0):
            pass
        return self._process.returncode, self.seen

    def _read(self, patience: float) -> bool:
        if not select.select([self._handle], [], [], patience)[0]:
            return False
        try:
            data = os.read(self._handle, 65_536)
        except OSError:  # the other side is closed
            return False
        self.seen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


@contextmanager
def at_terminal(folder: Path, *arguments: str, piped: str | None = None) -> Iterator[Screen]:
    """`piped`: stdin is not the terminal, but this text."""
    handle, other = pty.openpty()
    program = AT_TERMINAL if piped is None else AT_TERMINAL.replace("ioctl(0", "ioctl(2")
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=environment(folder),
        stdin=other if piped is None else subprocess.PIPE,
        stdout=other,
        stderr=other,
        start_new_session=True,
    )
    os.close(other)
    try:
        if piped is not None and process.stdin is not None:
            process.stdin.write(piped.encode())
            process.stdin.close()
        yield Screen(handle, process)
    finally:
        process.kill()
        process.wait()
        os.close(handle)


def scripted(folder: Path, *turns: Mapping[str, Any], more: str = "", sandbox: bool | None = None) -> None:
    """The embedded model plays these turns, each after as many answers as stand before it. Commands run in a sandbox
    where one works, unless a test says which."""
    if not (bubblewrap().why_not == "" if sandbox is None else sandbox):
        more += "[tools]\nsandbox = false\n"
    played = [{"after": number, "repeat": 0, **turn} for number, turn in enumerate(turns)]
    (folder / "turns.json").write_text(json.dumps({"turns": played}), encoding="utf-8")
    (folder / "toolwire.toml").write_text(f'[simulator]\nscript = "{folder}/turns.json"\n{more}', encoding="utf-8")


def calls(*made: tuple[str, Mapping[str, Any]], text: str | None = None) -> dict[str, Any]:
    turn: dict[str, Any] = {"calls": [{"name": name, "arguments": dict(arguments)} for name, arguments in made]}
    return turn if text is None else turn | {"text": text}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, **more}


def write(folder: Path, name: str, content: str) -> tuple[str, dict[str, str]]:
    return "write_file", {"file_path": str(folder / name), "content": content}


def read(folder: Path, name: str) -> tuple[str, dict[str, str]]:
    return "read_file", {"absolute_path": str(folder / name)}


def shell(command: str) -> tuple[str, dict[str, str]]:
    return "run_shell_command", {"command": command}


def named(events: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [event for event in events if event["event"] == name]
