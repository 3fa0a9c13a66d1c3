"""Mistakes of the user at the command line: one line on stderr and exit code 2, never a traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import DEADLINE
from tests.support.runtime.cli_process import cli_environment, run_toolwire, start_toolwire
from tests.support.runtime.fork_server import MAIN_PROGRAM

TRANSLATE = ["translate", "--from", "anthropic", "--to", "gemini"]
CONFIG_COMMANDS = [
    ["serve", "--port", "0"],
    ["doctor"],
    ["ask", "hi"],
    ["runs", "list"],
    ["journal", "tail"],
    ["mcp", "list"],
    ["hosts"],
    ["launch", "claude"],
]
MISTAKES = [
    ["nonsense"],
    ["runs", "nonsense"],
    ["--nonsense"],
    ["serve", "--port", "99999"],
    ["serve", "--port", "-1"],
    ["serve", "--port", "four"],
    ["serve", "--workers", "0"],
    ["serve", "--host", "no-such-host.invalid", "--port", "0"],
    ["simulate", "anthropic", "--port", "1e3"],
    ["simulate", "nonsense", "--port", "0"],
    ["simulate", "anthropic", "--port", "0", "--script", "folder"],
    ["simulate", "anthropic", "--port", "0", "--script", "broken.bin"],
    ["simulate", "anthropic", "--port", "0", "--profile", "nonsense"],
    ["simulate", "anthropic", "--port", "0", "--dialect", "nonsense"],
    ["simulate", "anthropic", "--port", "0", "--pace", "nan,"],
    ["translate"],
    ["translate", "--from", "openai", "--to", "gemini"],
    [*TRANSLATE, "--kind", "nonsense"],
    [*TRANSLATE, "--report", "folder"],
    [*TRANSLATE, "--report", "missing/report.json"],
    [*TRANSLATE, "--previous", "missing.json"],
    [*TRANSLATE, "--previous", "folder"],
    [*TRANSLATE, "--previous", "broken.bin"],
    ["check", "--protocol", "nonsense"],
    ["protocols", "nonsense"],
    ["hosts", "nonsense"],
    ["ask"],
    ["ask", "x", "--max-turns", "many"],
    ["ask", "x", "--workspace", "broken.bin"],
    ["ask", "x", "--allow", "write_file("],
    ["ask", "x", "--journal", "folder"],
    ["ask", "x", "--journal", "broken.bin"],
    ["runs", "list", "--journal", "folder"],
    ["runs", "list", "--journal", "broken.bin"],
    ["runs", "list", "-n", "0"],
    ["runs", "show", "nonsense"],
    ["runs", "show", ""],
    ["runs", "resume", "nonsense", "--approve", "x"],
    ["runs", "replay", "nonsense", "--tools", "dead"],
    ["journal", "tail", "--journal", "folder"],
    ["journal", "tail", "--journal", "broken.bin"],
    ["journal", "tail", "--journal", "missing.db"],
    ["journal", "show", "nonsense"],
    ["journal", "export", "last", "-o", "folder"],
    ["mcp", "call", "nonsense", "tool"],
    ["mcp", "serve", "--http", "nonsense"],
    ["mcp", "serve", "--http", "127.0.0.1:99999"],
    ["mcp", "serve", "--workspace", "missing"],
    ["mcp", "login", "nonsense"],
    ["mcp", "import", "missing.json"],
    ["mcp", "import", "folder"],
    ["mcp", "import", "broken.bin"],
    ["doctor", "--timeout", "0"],
    ["doctor", "--probe", "nonsense"],
    ["doctor", "--probe", "nonsense", "--json"],
    ["launch"],
    ["launch", "nonsense"],
    ["completion", "nonsense"],
    *([*command, "--config", name] for command in CONFIG_COMMANDS for name in ("folder", "broken.bin", "missing.toml")),
]


WORDINGS = [
    (["ask", "x", "--alow", "y"], 'unknown option \'--alow\' (did you mean "--allow" or "--allow-host"?) (see `'),
    (["ask", "x", "--nonsense"], "unknown option '--nonsense' (see `toolwire ask --help`)"),
    (["serve", "--port", "99999"], "invalid value for '--port': 99999 is not between 0 and 65535 (see `"),
    (["ask", "x", "--max-turns", "0"], "invalid value for '--max-turns': 0 is less than 1 (see `"),
    (["completion", "nonsense"], "unknown shell 'nonsense'; expected one of bash, zsh, fish"),
]


@pytest.mark.parametrize(("arguments", "wording"), WORDINGS, ids=[" ".join(arguments) for arguments, _ in WORDINGS])
def test_wording_of_usage_errors(arguments: list[str], wording: str, folder: Path) -> None:
    assert f"Error: {wording}" in run_toolwire(folder, *arguments).err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.bin").write_bytes(b"\x80\xff\x00 = [\n" * 100)
    return tmp_path


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistake_is_one_line(arguments: list[str], folder: Path) -> None:
    done = run_toolwire(folder, *arguments, stdin='{"model": "m", "max_tokens": 9, "messages": []}')
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    errors = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert [done.err.splitlines()[-1]] == errors
    assert done.out == ""


def run_process(
    folder: Path, *arguments: str, body: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", MAIN_PROGRAM, *arguments],
        input=body,
        capture_output=True,
        check=False,
        cwd=folder,
        env=cli_environment(folder) | variables,
        timeout=DEADLINE,
    )


BROKEN_BODIES = [b"", b"{", b"\xff", b"9" * 10_000, b"[" * 100_000]


@pytest.mark.parametrize("body", BROKEN_BODIES, ids=range(len(BROKEN_BODIES)))
@pytest.mark.parametrize("arguments", [TRANSLATE, ["check", "--protocol", "anthropic"]], ids=["translate", "check"])
def test_broken_body_is_one_line(arguments: list[str], body: bytes, folder: Path) -> None:
    done = run_process(folder, *arguments, body=body)
    assert done.returncode == 2
    assert done.stderr.startswith(b"Error: ")
    assert done.stderr.count(b"\n") == 1


def test_unreadable_file_is_named(folder: Path) -> None:
    (folder / "toolwire.toml").symlink_to("toolwire.toml")  # a loop is unreadable for root, too
    for arguments in (["doctor"], ["ask", "x"], ["runs", "list"]):
        done = run_toolwire(folder, *arguments, "--config", "toolwire.toml")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "toolwire.toml: " in done.err


@pytest.mark.parametrize("arguments", [["protocols", "--json"], ["hosts"], ["--help"], ["ask", "hello"]], ids=" ".join)
def test_reader_that_closes_the_pipe_ends_the_command_quietly(arguments: list[str], folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed_pipe:
        done = subprocess.run(
            [sys.executable, "-c", MAIN_PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=closed_pipe,
            stderr=subprocess.PIPE,
            check=False,
            cwd=folder,
            env=cli_environment(folder),
            timeout=DEADLINE,
        )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


@pytest.mark.parametrize("arguments", [["check", "--protocol", "gemini"], ["protocols"]], ids=" ".join)
def test_closed_standard_streams_are_no_traceback(arguments: list[str], folder: Path) -> None:
    shell = f'exec "$0" -c "$1" {" ".join(arguments)} <&- >&-'
    done = subprocess.run(
        ["/bin/sh", "-c", shell, sys.executable, MAIN_PROGRAM],
        stderr=subprocess.PIPE,
        check=False,
        cwd=folder,
        env=cli_environment(folder),
        timeout=DEADLINE,
    )
    assert b"Traceback" not in done.stderr


def test_terminal_without_unicode_gets_escapes(folder: Path) -> None:
    done = run_process(folder, "ask", "r\u00e9sum\u00e9", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert b"r\\xe9sum\\xe9" in done.stdout


def test_ctrl_c_is_exit_code_130_without_a_traceback(folder: Path) -> None:
    (folder / "journal.toml").write_text("[journal]\nenabled = true\npath = 'journal.db'\n", encoding="utf-8")
    gateway = start_toolwire(folder, "serve", "--port", "0", "--config", "journal.toml")
    assert gateway.stderr is not None
    gateway.stderr.readline()
    follower = start_toolwire(folder, "journal", "tail", "-f", "--config", "journal.toml")
    assert follower.stderr is not None
    assert follower.stderr.readline() == "no exchanges are recorded yet\n"
    follower.send_signal(signal.SIGINT)
    _, errors = follower.communicate(timeout=DEADLINE)
    gateway.terminate()
    gateway.communicate(timeout=DEADLINE)
    assert (follower.returncode, errors) == (130, "\n")
