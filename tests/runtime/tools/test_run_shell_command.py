"""`run_shell_command` without a sandbox: output format, limits, and cleanup of processes."""

import asyncio
import hashlib
import os
import time
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.deadlines import wait_until_async
from tests.support.runtime.tool_calls import (
    NO_SANDBOX,
    built_in_tool,
    run_tool,
    run_tool_async,
    run_tool_for_text,
    single_text,
    tool_context,
)
from toolwire.runtime.calls.approval import NoApprover
from toolwire.runtime.sandbox.bubblewrap import detect_bubblewrap
from toolwire.runtime.sandbox.process import COMMAND_ID_VARIABLE, CommandLimits
from toolwire.runtime.tool import Tool, ToolContext, ToolError, ToolOutput
from toolwire.runtime.tools import built_in_tools

ENOUGH = CommandLimits(seconds=120.0)
BORN = time.time_ns()


def shell(root: Path, limits: CommandLimits = ENOUGH) -> Tool:
    return built_in_tool(root, "run_shell_command", limits=limits)


def run_until_timeout(root: Path, clock: Clock, command: str) -> ToolOutput:
    """Return the output of a command that times out after it has created the file `begun`."""

    async def work() -> ToolOutput:
        task = asyncio.ensure_future(run_tool_async(shell(root), command=command))
        await wait_until_async((root / "begun").exists)
        clock.advance(ENOUGH.seconds)
        return await task

    return asyncio.run(work())


def unique_name(root: Path) -> str:
    """Return a unique name."""
    return hashlib.sha256(f"{root} {os.getpid()} {BORN}".encode()).hexdigest()[:16]


def running_processes(root: Path) -> list[str]:
    """Return the running processes that have the marker of this folder in their arguments."""
    found = list[str]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            if unique_name(root) in line and entry.name != str(os.getpid()):
                found.append(line)
    return found


def test_output_format(tmp_path: Path) -> None:
    assert run_tool_for_text(shell(tmp_path), command="echo hello") == (
        "Command: echo hello\nDirectory: (root)\nOutput: hello\nError: (none)\nExit Code: 0"
    )
    assert run_tool_for_text(shell(tmp_path), command="echo a; echo b >&2; exit 3", description="fails") == (
        "Command: echo a; echo b >&2; exit 3\nDirectory: (root)\nOutput: a\nError: b\nExit Code: 3"
    )
    assert run_tool_for_text(shell(tmp_path), command="true") == (
        "Command: true\nDirectory: (root)\nOutput: \nError: (none)\nExit Code: 0"
    )


def test_directory_option(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    lines = run_tool_for_text(shell(tmp_path), command="pwd", directory="sub").splitlines()
    assert lines[1:3] == ["Directory: sub", f"Output: {tmp_path.resolve()}/sub"]
    (tmp_path / "out").symlink_to("/etc")
    for directory, output in (
        ("../..", "outside"),
        ("/etc", "outside"),
        ("out", "outside"),
        ("none", "file not found"),
    ):
        with pytest.raises(ToolError, match=output):
            run_tool(shell(tmp_path), command="pwd", directory=directory)


def test_failed_command_is_a_result_and_stopped_command_an_error(tmp_path: Path) -> None:
    assert not run_tool(shell(tmp_path), command="false").is_error
    output = run_tool(shell(tmp_path, CommandLimits(seconds=0.3)), command="sleep 60")
    assert (output.is_error, output.error_kind) == (True, "timeout")
    assert single_text(output).splitlines()[3:] == [
        "Error: [stopped: timed out after 0.3 seconds; all its processes were killed]",
        "Exit Code: 124",
    ]


def test_output_before_a_timeout_is_returned(tmp_path: Path, clock: Clock) -> None:
    lines = single_text(
        run_until_timeout(tmp_path, clock, "echo begun; echo oh >&2; touch begun; sleep 600")
    ).splitlines()
    assert lines[2:5] == [
        "Output: begun",
        "Error: oh",
        "[stopped: timed out after 120 seconds; all its processes were killed]",
    ]


def test_signal_exit_code_is_that_of_shells(tmp_path: Path) -> None:
    assert run_tool_for_text(shell(tmp_path), command="kill -TERM $$").endswith("Exit Code: 143")


def test_stdin_is_closed(tmp_path: Path) -> None:
    assert "Output: got nothing" in run_tool_for_text(shell(tmp_path), command="read line || echo got nothing")


def test_invalid_utf_8_output_is_replaced(tmp_path: Path) -> None:
    assert "Output: caf\ufffd\0x" in run_tool_for_text(shell(tmp_path), command="printf 'caf\\351\\0x'")


def test_long_output_keeps_head_and_tail(tmp_path: Path) -> None:
    output = run_tool_for_text(
        shell(tmp_path, CommandLimits(output_bytes=1000)), command="seq 1 100000; seq 1 50000 >&2"
    )
    assert len(output) < 2600
    assert "Output: 1\n2\n" in output
    assert "99999\n100000\nError: 1\n" in output
    assert output.count("bytes omitted]") == 2
    # 588895 bytes are written to stdout, and 288894 to stderr.
    assert "[587895 bytes omitted]" in output
    assert "[287894 bytes omitted]" in output


def test_excessive_output_is_stopped(tmp_path: Path) -> None:
    output = run_tool(shell(tmp_path, CommandLimits(max_total_output=1_000_000, seconds=60)), command="yes")
    assert (output.is_error, output.error_kind) == (True, "limit")
    assert "output exceeded 1000000 bytes" in single_text(output)
    assert len(single_text(output)) < 20_000


@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & echo started",
        "setsid sleep 300 & echo started",
        "nohup sleep 300 > /dev/null 2>&1 & echo started",
        "(setsid sh -c 'setsid sleep 300 & sleep 300' &) ; echo started",
    ],
)
def test_background_processes_are_killed(tmp_path: Path, command: str) -> None:
    name = f"sleep-{unique_name(tmp_path)}"
    line = f"cp $(command -v sleep) ./{name}; " + command.replace("sleep", f"./{name}")
    output = run_tool_for_text(shell(tmp_path), command=line)
    assert "Output: started" in output
    assert "It was stopped" not in output
    assert running_processes(tmp_path) == []


def test_all_processes_are_killed_on_timeout(tmp_path: Path, clock: Clock) -> None:
    name = f"sleep-{unique_name(tmp_path)}"
    line = f"cp $(command -v sleep) ./{name}; ./{name} 300 & setsid ./{name} 300 & touch begun; ./{name} 300"
    assert run_until_timeout(tmp_path, clock, line).error_kind == "timeout"
    assert running_processes(tmp_path) == []


@pytest.mark.parametrize("missing", [["pidfd_open"], ["pidfd_open", "waitid"]])
def test_fallbacks_without_pidfd_and_waitid(
    tmp_path: Path, missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.delattr(os, name)
    name = f"sleep-{unique_name(tmp_path)}"
    line = f"cp $(command -v sleep) ./{name}; ./{name} 300 & echo started; exit 3"
    assert run_tool_for_text(shell(tmp_path), command=line).endswith("Output: started\nError: (none)\nExit Code: 3")
    assert running_processes(tmp_path) == []


def test_all_processes_are_killed_on_cancellation(tmp_path: Path) -> None:
    name = f"sleep-{unique_name(tmp_path)}"
    line = f"cp $(command -v sleep) ./{name}; ./{name} 300 & setsid ./{name} 300 & touch begun; ./{name} 300"
    run = shell(tmp_path)

    async def cancelled() -> None:
        task = asyncio.ensure_future(run.run({"command": line}, tool_context(run)))
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert running_processes(tmp_path) == []

    asyncio.run(cancelled())


def test_process_holding_output_open_does_not_block(tmp_path: Path) -> None:
    # It leaves the session and clears its environment, so it can't be found.
    command = "env -i setsid sh -c 'while [ -e hold ]; do /bin/sleep 0.1; done' & sleep 0.5; echo done"
    hold = tmp_path / "hold"
    hold.touch()
    output = run_tool_for_text(shell(tmp_path), command=command)
    hold.unlink()
    assert "Output: done" in output
    assert "It was stopped" not in output


def test_a_fork_bomb_is_stopped(tmp_path: Path) -> None:
    # The bomb ends at 512 processes, so that a failure of the limit does not stop the machine.
    bomb = "bomb() { if [ $1 -gt 0 ]; then bomb $(($1 - 1)) & bomb $(($1 - 1)) & fi; sleep 100; }; bomb 8"
    output = run_tool(
        shell(tmp_path, CommandLimits(processes=100, seconds=300)), command=f"{bomb} # {unique_name(tmp_path)}"
    )
    assert "started more than 100 processes" in single_text(output)
    assert running_processes(tmp_path) == []


def test_memory_is_limited_per_process_and_in_total(tmp_path: Path) -> None:
    limits = CommandLimits(memory_bytes=200 * 1024 * 1024, seconds=300)
    grab = "python3 -c 'import time; x = bytearray({} * 1024 * 1024); time.sleep(100)'"
    one = run_tool_for_text(shell(tmp_path, limits), command=grab.format(400))
    assert "MemoryError" in one
    many = run_tool(shell(tmp_path, limits), command=" & ".join([grab.format(90)] * 3))
    assert "used more than 209715200 bytes of memory" in single_text(many)


def test_file_size_is_limited(tmp_path: Path) -> None:
    output = run_tool_for_text(
        shell(tmp_path, CommandLimits(file_bytes=1024 * 1024)), command="head -c 5000000 /dev/zero > big; wc -c < big"
    )
    assert "Output: 1048576" in output


def test_environment_has_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TOOLWIRE_KEY", "AWS_SECRET_ACCESS_KEY", "MY_OWN", "SSH_AUTH_SOCK"]
    for name in (*names, "LD_PRELOAD_X", "BASH_ENV", "ENV", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "canary-7f3a")
    output = run_tool_for_text(shell(tmp_path), command="env; cat /proc/self/environ; set")
    assert "canary-7f3a" not in output
    assert "PATH=" in output


def test_only_allowed_variables_are_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("ANYTHING", "x")
    tool = built_in_tool(tmp_path, "run_shell_command", environment={"CI": "1"})
    output = run_tool_for_text(tool, command="env -0 | cut -z -d= -f1 | tr '\\0' ' '")
    names = set(output.partition("Output: ")[2].partition("\n")[0].split())
    shell_variables = {
        "PWD",
        "SHLVL",
        "_",
        COMMAND_ID_VARIABLE,
        "TERM",
        "PAGER",
        "GIT_PAGER",
        "GIT_TERMINAL_PROMPT",
        "OLDPWD",
    }
    known = {name for name in os.environ if name in ("PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL")}
    assert {"CI", *known} <= names
    assert "ANYTHING" not in names
    allowed = {"LOGNAME", "LANGUAGE", "TZ", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "PYENV_ROOT"}
    assert {name for name in names if not name.startswith("LC_")} - shell_variables - known - allowed - {"CI"} == set()


def test_created_configuration_is_renamed_even_after_timeout(tmp_path: Path, clock: Clock) -> None:
    output = single_text(
        run_until_timeout(tmp_path, clock, "echo x > toolwire.toml; touch begun; sleep 600")
    ).splitlines()
    assert output[3].startswith("Error: [stopped: ")
    assert output[4].startswith("[toolwire.toml is the user's configuration: the file created there was renamed to ")
    assert not (tmp_path / "toolwire.toml").exists()


def test_without_sandbox_every_command_needs_a_person(tmp_path: Path) -> None:
    bare = shell(tmp_path)
    assert bare.approval_reason({"command": "ls"}) == f"it is not sandboxed: {NO_SANDBOX.unavailable_reason}"
    assert bare.locus == "local"


def test_sandbox_depends_on_bubblewrap(tmp_path: Path) -> None:
    """With bubblewrap a command is sandboxed and needs no person; without it, the reason is reported."""
    (chosen,) = (one for one in built_in_tools(tmp_path) if one.name == "run_shell_command")
    why_not = detect_bubblewrap().unavailable_reason
    asks = chosen.approval_reason({"command": "ls"})
    assert (asks, chosen.locus) == ((None, "sandbox") if not why_not else (f"it is not sandboxed: {why_not}", "local"))


@pytest.mark.parametrize("path", ["", "/nonexistent"])
def test_missing_bubblewrap_is_reported(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path)
    detect_bubblewrap.cache_clear()
    try:
        assert detect_bubblewrap().unavailable_reason == "bubblewrap is not installed"
    finally:
        detect_bubblewrap.cache_clear()


def test_broken_bubblewrap_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    detect_bubblewrap.cache_clear()
    try:
        assert detect_bubblewrap().unavailable_reason == "bubblewrap does not work here: no namespaces here"
    finally:
        detect_bubblewrap.cache_clear()


@pytest.mark.parametrize("command", ["a\0b", "echo " + "x" * 200_000])
def test_invalid_command_is_an_error(tmp_path: Path, command: str) -> None:
    with pytest.raises(ToolError, match="NUL"):
        run_tool(shell(tmp_path), command=command)


def test_progress_is_reported(tmp_path: Path) -> None:
    run, seen = shell(tmp_path), list[str]()
    watched = ToolContext(
        run="r", id="c", tool=run.name, idempotency_key="k", approver=NoApprover(), report_progress=seen.append
    )
    asyncio.run(run.run({"command": "for i in 1 2 3 4; do echo step $i; sleep 0.4; done"}, watched))  # type: ignore[arg-type]
    assert seen
    assert set(seen) <= {f"step {number}" for number in range(1, 5)}
