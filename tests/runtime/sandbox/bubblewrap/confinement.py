"""Confinement of shell commands in the sandbox. Run by `make test-sandbox`, because it needs bubblewrap."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import wait_until
from tests.support.runtime.tool_calls import built_in_tool, run_tool, run_tool_for_text, single_text, tool_context
from toolwire.runtime.policy import Policy
from toolwire.runtime.sandbox.bubblewrap import detect_bubblewrap
from toolwire.runtime.sandbox.process import CommandLimits
from toolwire.runtime.tool import Tool

# The Python environment of the tests may be in a directory that is hidden from commands.
PYTHON = Path(sys.executable).resolve()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


def shell(root: Path, **settings: object) -> Tool:
    return built_in_tool(root, "run_shell_command", sandbox=detect_bubblewrap(), **settings)


def output(result: str) -> str:
    return result.partition("\nOutput: ")[2].rpartition("\nError: ")[0]


def running_processes(name: str) -> list[str]:
    lines = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if name in line and not line.startswith("Z")]


def test_output_format_in_the_sandbox(root: Path) -> None:
    assert run_tool_for_text(shell(root), command="echo hello; echo oh >&2; exit 3") == (
        "Command: echo hello; echo oh >&2; exit 3\nDirectory: (root)\nOutput: hello\nError: oh\nExit Code: 3"
    )


def test_workspace_is_writable_at_the_same_path(root: Path) -> None:
    (root / "sub").mkdir()
    text = run_tool_for_text(shell(root), command="pwd; echo new > file; mkdir -p deep/er", directory="sub")
    assert output(text) == f"{root.resolve()}/sub"
    assert (root / "sub" / "file").read_text() == "new\n"
    assert (root / "sub" / "file").stat().st_uid == os.getuid()


def test_everything_else_is_read_only(root: Path) -> None:
    beside = root.parent / "beside"
    beside.mkdir()
    (beside / "file").write_text("old")
    paths = ["/etc", "/usr", "/usr/local", "/", "/var", "/opt", "/dev", "/run", "/home", str(beside)]
    lines = [f"touch {path}/toolwire-was-here 2>/dev/null && echo wrote {path}" for path in paths]
    text = run_tool_for_text(shell(root), command="; ".join([*lines, f"echo new > {beside}/file"]))
    assert "wrote" not in output(text)
    assert (beside / "file").read_text() == "old"


def test_private_paths_are_hidden(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    for name in (".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".local/state/toolwire/journal.db"):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text("canary-7f3a")
    (home / "notes.txt").write_text("canary-7f3a")
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "bin" / "tool").write_text("#!/bin/sh\necho works\n")
    (home / ".local" / "bin" / "tool").chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    (state / "journal.db").write_text("canary-7f3a")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    text = run_tool_for_text(
        shell(root), command=f"grep -rs canary-7f3a {home} {state} ~ /tmp /root /home; ls -A ~; ~/.local/bin/tool"
    )
    assert "canary-7f3a" not in output(text)
    assert output(text).splitlines() == [".local", "works"]


def test_home_as_workspace_hides_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").write_text("canary-7f3a")
    (tmp_path / ".netrc").write_text("canary-7f3a")
    (tmp_path / "project").write_text("mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    text = run_tool_for_text(
        shell(tmp_path), command="grep -rs canary-7f3a .; cat project; echo x > .ssh/authorized_keys; ls .ssh"
    )
    assert output(text) == "mine"
    assert sorted(found.name for found in (tmp_path / ".ssh").iterdir()) == ["id_ed25519"]


def test_system_passwords_keys_and_sockets_are_hidden(root: Path) -> None:
    text = run_tool_for_text(
        shell(root), command="cat /etc/shadow /etc/gshadow /etc/sudoers; ls -A /run /etc/ssh /root/.ssh"
    )
    assert output(text).replace("/run:", "").replace("/etc/ssh:", "").split() == []


def test_hidden_paths_in_the_workspace_are_empty(root: Path) -> None:
    (root / "state").mkdir()
    (root / "state" / "journal").write_text("canary-7f3a")
    (root / "token").write_text("canary-7f3a")
    hidden = shell(root, hidden=[root / "state", root / "token"])
    text = run_tool_for_text(
        hidden, command="cat state/* token; ls -A state; rm -rf state; mv state elsewhere; touch state/x"
    )
    assert output(text) == ""
    assert (root / "state" / "journal").read_text() == "canary-7f3a"


def test_files_that_git_executes_are_read_only(root: Path) -> None:
    subprocess.run(["git", "init", "-q", root], check=True)
    (root / "a").write_text("a")
    config = (root / ".git" / "config").read_text()
    text = run_tool_for_text(
        shell(root),
        command="echo run > .git/hooks/pre-commit; echo run >> .git/config; mv .git elsewhere; rm -rf .git/hooks;"
        " git config core.fsmonitor ./run;"
        " git add a && git -c user.name=n -c user.email=e commit -qm done && git log --format=%s",
    )
    assert output(text) == "done"
    assert (root / ".git" / "config").read_text() == config
    assert not (root / ".git" / "hooks" / "pre-commit").exists()
    assert not (root / "elsewhere").exists()


def test_missing_hooks_can_not_be_created(root: Path) -> None:
    subprocess.run(["git", "init", "-q", "--template=", root], check=True)
    run_tool_for_text(shell(root), command="mkdir -p .git/hooks; echo run > .git/hooks/pre-commit")
    assert not (root / ".git" / "hooks" / "pre-commit").exists()


def test_user_configuration_is_not_written(root: Path) -> None:
    (root / "toolwire.toml").write_text("[policy]\n")
    run_tool_for_text(
        shell(root), command="echo 'allow = [\"*\"]' >> toolwire.toml; rm -f toolwire.toml; mv toolwire.toml x"
    )
    assert (root / "toolwire.toml").read_text() == "[policy]\n"


def test_created_configuration_is_renamed(root: Path) -> None:
    mine = root / "sub" / "mine.toml"
    mine.parent.mkdir(exist_ok=True)
    text = run_tool_for_text(shell(root, protected=[mine]), command="echo x > toolwire.toml; ln -s ../a sub/mine.toml")
    assert "Error: [toolwire.toml is the user's configuration: the file created there was renamed to " in text
    assert not os.path.lexists(root / "toolwire.toml")
    assert not os.path.lexists(mine)
    (aside,) = root.glob("toolwire.toml.made-by-a-command-*")
    assert aside.read_text() == "x\n"


def test_there_is_no_network(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = run_tool_for_text(
            shell(root), command=f"(echo > /dev/tcp/127.0.0.1/{port}) && echo reached; cat /proc/net/dev"
        )
    assert "reached" not in output(text)
    assert [line.split(":")[0].strip() for line in output(text).splitlines()[2:]] == ["lo"]


def test_network_is_available_if_allowed(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # The kernel accepts the connection before `accept` is called.
        text = run_tool_for_text(
            shell(root, network=True), command=f"(echo > /dev/tcp/127.0.0.1/{port}) && echo reached"
        )
    assert output(text) == "reached"


def test_abstract_sockets_outside_are_unreachable(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0toolwire-abstract")
        server.listen()
        script = (
            "import socket; print('runs', flush=True); socket.socket(socket.AF_UNIX).connect('\\0toolwire-abstract')"
        )
        text = run_tool_for_text(shell(root), command=f'{PYTHON} -c "{script}" && echo reached')
        assert output(text) == "runs"


def test_processes_outside_are_invisible(root: Path) -> None:
    text = run_tool_for_text(shell(root), command=f"kill -0 {os.getpid()} && echo seen; ls /proc | grep -c '^[0-9]'")
    assert "seen" not in output(text)
    assert int(output(text).splitlines()[-1]) < 10


def test_namespaces_and_mounts_are_denied(root: Path) -> None:
    text = run_tool_for_text(
        shell(root),
        command="unshare -U true && echo user; unshare -m true && echo mount; mount -t tmpfs none /mnt && echo mounted;"
        " mount -o remount,rw / && echo remounted; chroot / true && echo chroot; id -u; grep CapEff /proc/self/status",
    )
    uid = os.getuid() or 1000
    assert output(text).splitlines() == [str(uid), "CapEff:\t0000000000000000"]


def test_only_basic_devices_exist(root: Path) -> None:
    text = run_tool_for_text(shell(root), command="ls /dev; mknod x b 8 0 && echo made; head -c 1 /dev/mem")
    names = set(output(text).split())
    assert "made" not in names
    assert not names & {"sda", "vda", "mem", "kmem", "kvm", "fuse"}


def test_temporary_directories_are_private_and_limited(root: Path) -> None:
    run = shell(root, limits=CommandLimits(scratch_bytes=1024 * 1024))
    text = run_tool_for_text(
        run, command="for d in /tmp /var/tmp /dev/shm ~; do head -c 3000000 /dev/zero > $d/x; stat -c %s $d/x; done"
    )
    assert all(int(size) <= 1024 * 1024 for size in output(text).split())
    assert output(run_tool_for_text(run, command="ls /tmp/x /var/tmp/x /dev/shm/x ~/x 2>/dev/null")) == ""


def test_environment_in_the_sandbox_has_no_secrets(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "TOOLWIRE_KEY", "SSH_AUTH_SOCK", "BASH_ENV"):
        monkeypatch.setenv(name, "canary-7f3a")
    assert "canary-7f3a" not in run_tool_for_text(shell(root), command="env; cat /proc/*/environ; cat /proc/*/cmdline")


@pytest.mark.parametrize("bomb", [":(){ :|:& };:", "env -i setsid bash -c ':(){ :|:& };:'", "perl -e 'fork while 1'"])
def test_a_fork_bomb_is_stopped(root: Path, bomb: str) -> None:
    ended = run_tool(shell(root, limits=CommandLimits(processes=100, seconds=300)), command=f"{bomb}; sleep 300")
    assert "started more than 100 processes" in single_text(ended)
    assert running_processes(str(root)) == []


def test_memory_is_limited_per_process_and_in_total(root: Path) -> None:
    run = shell(root, limits=CommandLimits(memory_bytes=200 * 1024 * 1024, seconds=300))
    grab = f"{PYTHON} -c 'import time; x = bytearray({{}} * 1024 * 1024); time.sleep(100)'"
    assert "MemoryError" in run_tool_for_text(run, command=grab.format(400))
    many = run_tool(run, command=" & ".join([grab.format(90)] * 3))
    assert "used more than 209715200 bytes of memory" in single_text(many)


def test_all_processes_end_with_the_command(root: Path) -> None:
    name = f"sleep-{secrets.token_hex(8)}"
    started = f"cp $(command -v sleep) ./{name}; ./{name} 300 & env -i setsid ./{name} 300 & echo started"
    assert output(run_tool_for_text(shell(root), command=started)) == "started"
    assert running_processes(name) == []
    stopped = run_tool(shell(root, limits=CommandLimits(seconds=1)), command=f"{started}; wait")
    assert (stopped.error_kind, running_processes(name)) == ("timeout", [])

    async def cancelled() -> None:
        run = shell(root)
        task = asyncio.ensure_future(run.run({"command": f"{started}; touch begun; wait"}, tool_context(run)))
        while not (root / "begun").exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert running_processes(name) == []

    asyncio.run(cancelled())


def test_command_dies_with_its_parent(root: Path) -> None:
    name = f"sleep-{secrets.token_hex(8)}"
    program = (
        "import sys, pathlib; from tests.support.runtime.tool_calls import run_tool_for_text;"
        " from tests.runtime.sandbox.bubblewrap.confinement import shell;"
        " run_tool_for_text(shell(pathlib.Path(sys.argv[1])), command=sys.argv[2])"
    )
    command = f"cp $(command -v sleep) ./{name}; touch begun; ./{name} 300"
    parent = subprocess.Popen([sys.executable, "-c", program, str(root), command])
    try:
        wait_until((root / "begun").exists)
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not running_processes(f"./{name} 300"))


def test_link_out_of_the_workspace_is_read_only(root: Path) -> None:
    beside = root.parent / "beside"
    beside.mkdir()
    (root / "link").symlink_to(beside)
    run_tool_for_text(shell(root), command="echo x > link/file")
    assert list(beside.iterdir()) == []


def test_sandboxed_command_runs_with_a_rule(root: Path) -> None:
    run = shell(root)
    assert run.approval_reason({"command": "git status"}) is None
    policy = Policy(allow=["run_shell_command(command=git status*)"])
    assert policy.decide(run, {"command": "git status"}).verdict == "allow"
    assert policy.decide(run, {"command": "git status; rm -rf ."}).verdict == "ask"
