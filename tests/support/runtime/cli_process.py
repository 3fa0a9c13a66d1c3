"""The `toolwire` command as a process without API keys, with or without a terminal."""

import json
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.configuration import named_config
from tests.support.deadlines import DEADLINE
from tests.support.runtime.fork_server import MAIN_PROGRAM, ForkedProcess, run_forked, start_forked
from toolwire.gateway.providers.known_providers import KEY_VARIABLES
from toolwire.runtime.sandbox.bubblewrap import detect_bubblewrap

# The process gets the terminal as its controlling terminal, so that Ctrl-C sends a signal.
TERMINAL_PROGRAM = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {MAIN_PROGRAM}"


def cli_environment(folder: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in KEY_VARIABLES.values()}
    fixed = {"XDG_STATE_HOME": str(folder / ".state"), "PYTHONUNBUFFERED": "1", "TERM": "xterm-256color"}
    return environment | named_config(folder) | fixed


class CliResult:
    def __init__(self, finished: "subprocess.CompletedProcess[str]") -> None:
        self.code, self.out, self.err = finished.returncode, finished.stdout, finished.stderr

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def run(self) -> str:
        """Return the run id that the last lines of the output name."""
        return str(re.findall(r"run_\d+_[0-9a-f]{8}", self.err)[-1])


def run_toolwire(folder: Path, *arguments: str, stdin: str = "", **variables: str) -> CliResult:
    """Run the command in this folder without a terminal; `variables` override the environment."""
    environment = cli_environment(folder) | variables
    preload = ["toolwire.runtime.mcp.toolset"] if arguments[0] == "mcp" else []
    return CliResult(
        run_forked(MAIN_PROGRAM, *arguments, folder=folder, environment=environment, stdin=stdin, preload=preload)
    )


def start_toolwire(folder: Path, *arguments: str) -> ForkedProcess:
    return start_forked(*arguments, folder=folder, environment=cli_environment(folder))


class Terminal:
    """A pseudo-terminal with a running command."""

    def __init__(self, handle: int, process: ForkedProcess) -> None:
        self._handle = handle
        self._process = process
        self.output = ""

    def read_until(self, text: str) -> str:
        """Return the output up to this text, since the last read."""
        deadline = time.monotonic() + DEADLINE
        while text not in self.output:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.output}"
            if not self._read(0.2) and self._process.poll() is not None:
                raise AssertionError(f"it ended without {text!r}:\n{self.output}")
        before, _, self.output = self.output.partition(text)
        return before

    def type_text(self, text: str) -> None:
        os.write(self._handle, text.encode())

    @property
    def echoes(self) -> bool:
        """Return whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._handle)[3] & termios.ECHO)

    def wait(self) -> tuple[int, str]:
        """Wait for the exit; return the exit code and the remaining output."""
        deadline = time.monotonic() + DEADLINE
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on and on:\n{self.output}"
            self._read(0.1)
        while self._read(0):
            pass
        return self._process.returncode, self.output

    def _read(self, timeout: float) -> bool:
        if not select.select([self._handle], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._handle, 65_536)
        except OSError:  # the other side is closed
            return False
        self.output += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


@contextmanager
def open_terminal(
    folder: Path, *arguments: str, stdin: str | None = None, program: str = TERMINAL_PROGRAM
) -> Iterator[Terminal]:
    """Start the command, or a program, in a pseudo-terminal; with `stdin`, standard input is this text instead."""
    handle, terminal_end = pty.openpty()
    program = program if stdin is None else program.replace("ioctl(0", "ioctl(2")
    process = start_forked(
        *arguments,
        folder=folder,
        environment=cli_environment(folder),
        program=program,
        stdin=terminal_end if stdin is None else subprocess.PIPE,
        stdout=terminal_end,
        stderr=terminal_end,
        new_session=True,
    )
    os.close(terminal_end)
    try:
        if stdin is not None and process.stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        yield Terminal(handle, process)
    finally:
        process.kill()
        process.wait()
        os.close(handle)


def write_script(folder: Path, *turns: Mapping[str, Any], extra_config: str = "", sandbox: bool | None = None) -> None:
    """Write a script whose turns the built-in simulator plays.

    Commands run in a sandbox if one is available, unless a test selects one.
    """
    if not (detect_bubblewrap().unavailable_reason == "" if sandbox is None else sandbox):
        extra_config += "[tools]\nsandbox = false\n"
    script_turns = [{"after": number, "repeat": 0, **turn} for number, turn in enumerate(turns)]
    (folder / "turns.json").write_text(json.dumps({"turns": script_turns}), encoding="utf-8")
    (folder / "toolwire.toml").write_text(
        f'[simulator]\nscript = "{folder}/turns.json"\n{extra_config}', encoding="utf-8"
    )


def calls_turn(*calls: tuple[str, Mapping[str, Any]], text: str | None = None) -> dict[str, Any]:
    turn: dict[str, Any] = {"calls": [{"name": name, "arguments": dict(arguments)} for name, arguments in calls]}
    return turn if text is None else turn | {"text": text}


def text_reply(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, **more}


def write_file_call(folder: Path, name: str, content: str) -> tuple[str, dict[str, str]]:
    return "write_file", {"file_path": str(folder / name), "content": content}


def read_file_call(folder: Path, name: str) -> tuple[str, dict[str, str]]:
    return "read_file", {"absolute_path": str(folder / name)}


def shell_call(command: str) -> tuple[str, dict[str, str]]:
    return "run_shell_command", {"command": command}


def events_named(events: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [event for event in events if event["event"] == name]
