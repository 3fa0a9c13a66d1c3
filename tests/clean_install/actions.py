"""The first action of every command, as a new user would try it, without keys and without a network."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.deadlines import DEADLINE

CHAT_REQUEST = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
LISTENS = re.compile(r"(http://127\.0\.0\.1:\d+)")
# Each command with its input, exit code, and a word of its output. Servers are started by `serving`.
ACTIONS: dict[str, tuple[tuple[str, ...], str, int, str]] = {
    "ask": (("hi",), "", 0, "simulated model"),
    "check": (("--protocol", "openai-chat"), CHAT_REQUEST, 0, ""),
    "completion": (("bash",), "", 0, "toolwire"),
    "config": (("path",), "", 0, "(not present)"),
    "doctor": ((), "", 0, "using the built-in simulator"),
    "hosts": ((), "", 0, "deepseek"),
    "journal": (("tail",), "", 2, "journal"),
    "keys": (("create", "alice"), "", 0, "sk-tw-"),
    "launch": (("codex",), "", 2, "npm install"),
    "mcp": (("list",), "", 2, "toolwire[mcp]"),
    "models": ((), "", 0, "openai/simulated"),
    "protocols": ((), "", 0, "gemini"),
    "runs": (("list",), "", 0, "run_"),
    "usage": ((), "", 0, "no usage"),
    "work": (("--once",), "", 0, "worker: executes the runs"),
    "translate": (("--from", "openai-chat", "--to", "gemini"), CHAT_REQUEST, 0, "contents"),
    "init": ((), "", 0, "wrote toolwire.toml"),  # the last one, as the others read the file
}
SERVERS = {"serve": ("--port", "0"), "simulate": ("all", "--port", "0")}
# What needs an extra, and the extra that the error must name.
NEEDS_EXTRA = {"browser": ("ask", "--browser", "http://127.0.0.1", "hi"), "code": ("ask", "--code", "hi")}


def user_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a user without keys, settings or agents."""
    return {"HOME": str(folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "COLUMNS": "80"}


def run(
    command: list[str], folder: Path, given: str = "", environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command, and return its exit code and all output."""
    finished = subprocess.run(
        command,
        input=given,
        cwd=folder,
        env=user_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return finished.returncode, finished.stdout


@contextmanager
def serving(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server until the end of the block, and yield its URL."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment or user_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            output = ""
            for line in process.stdout or ():
                output += line
                if (listens := LISTENS.search(line)) is not None:
                    yield listens[1]
                    break
            else:
                raise AssertionError(f"{command} ended: {output}")
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()


def find_problems(toolwire: str, folder: Path) -> Iterator[str]:
    """Run every command's help and first action, and yield a line for each that does not do what it should."""
    code, listing = run([toolwire, "--help"], folder)
    commands = re.findall(r"^  ([a-z]+)  ", listing, re.MULTILINE)
    if code != 0 or {*ACTIONS, *SERVERS} != set(commands):
        yield f"toolwire --help: exit code {code}, other commands than are tried: {listing}"
    for command in commands:
        code, output = run([toolwire, command, "--help"], folder)
        if code != 0 or "Usage:" not in output:
            yield f"{command} --help: exit code {code}: {output}"
    for command, (arguments, given, expected, word) in ACTIONS.items():
        code, output = run([toolwire, command, *arguments], folder, given)
        if code != expected or word not in output or "Traceback" in output:
            yield f"{command}: exit code {code} in place of {expected}: {output}"
    for command, arguments in SERVERS.items():
        with serving([toolwire, command, *arguments], folder) as url:
            request = urllib.request.Request(
                f"{url}/v1/chat/completions", CHAT_REQUEST.encode(), {"authorization": "x"}
            )
            with urllib.request.urlopen(request, timeout=DEADLINE) as response:
                if b"simulated model" not in response.read():
                    yield f"{command}: does not answer"


def find_unnamed_extras(toolwire: str, folder: Path) -> Iterator[str]:
    """Yield a line for each feature whose error does not name the extra that it needs."""
    config = folder / "toolwire.toml"
    for extra, arguments in {**NEEDS_EXTRA, "mcp": ("mcp", "list", "--config", "toolwire.toml")}.items():
        config.write_text('[mcp.servers.math]\ncommand = "math"\n' if extra == "mcp" else "")
        code, output = run([toolwire, *arguments], folder)
        if code != 2 or f"toolwire[{extra}]" not in output or output.count("\n") > 2:
            yield f"without the extra {extra}: exit code {code}: {output}"
    config.unlink()
