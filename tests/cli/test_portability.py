"""Commands on systems without what only Linux has: its modules' members, and `/proc`."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import DEADLINE
from toolwire.cli import COMMANDS

# As on macOS: members that only Linux has are missing, and so is /proc.
PREAMBLE = """
import select

for name in dir(select):
    if name.startswith(("epoll", "EPOLL")):
        delattr(select, name)

import errno, importlib, os, pkgutil, resource, signal, socket, sys

for module, prefixes in {
    os: ("pidfd_", "memfd_", "MFD_", "sched_", "eventfd", "EFD_", "copy_file_range", "splice", "posix_fadvise",
         "setns", "unshare", "O_TMPFILE", "O_PATH", "getrandom", "timerfd_"),
    resource: ("prlimit",),
    signal: ("pidfd_send_signal", "SIGRTM", "SIGPOLL", "SIGPWR"),
    socket: ("SO_BINDTODEVICE", "SO_PEERCRED", "AF_NETLINK", "AF_PACKET", "TCP_USER_TIMEOUT", "TCP_QUICKACK"),
}.items():
    for name in dir(module):
        if name.startswith(prefixes):
            delattr(module, name)

os.process_cpu_count = os.cpu_count  # of Python 3.13, which asks for the affinity on Linux

def refuse_proc(event, arguments):
    if event in ("open", "os.listdir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", arguments[0])

sys.addaudithook(refuse_proc)
"""
IMPORT_ALL = """
import toolwire
for module in pkgutil.walk_packages(toolwire.__path__, "toolwire."):
    importlib.import_module(module.name)
"""
RUN = "from toolwire.cli import main\nmain()"


def link_programs(folder: Path) -> Path:
    """Return a folder with the shells alone: a Linux machine may have bubblewrap beside them."""
    folder.mkdir()
    for name in ("bash", "sh"):
        if program := shutil.which(name):
            (folder / name).symlink_to(program)
    return folder


def run_without_linux(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(folder), "PATH": str(link_programs(folder / "programs")), "LANG": "C.UTF-8"}
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + program, *arguments],
        cwd=folder,
        env=environment,
        input='{"model":"m","messages":[{"role":"user","content":"hi"}]}',
        capture_output=True,
        text=True,
        timeout=DEADLINE * 4,
        check=False,
    )


def test_every_module_can_be_imported(tmp_path: Path) -> None:
    finished = run_without_linux(IMPORT_ALL, tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("ask", "--no-sandbox", "--yes", 'run_shell_command {"command": "echo out $((3+4))"}'), "out 7"),
        (("check", "--protocol", "openai-chat"), ""),
        (("doctor",), "simulator"),
        (("models",), "openai/simulated"),
        (("translate", "--from", "openai-chat", "--to", "gemini"), "contents"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_commands_work(tmp_path: Path, arguments: tuple[str, ...], word: str) -> None:
    assert arguments[0] in COMMANDS
    finished = run_without_linux(RUN, tmp_path, *arguments)
    assert (finished.returncode, word in finished.stdout + finished.stderr) == (0, True), finished


def test_missing_sandbox_is_named(tmp_path: Path) -> None:
    finished = run_without_linux(RUN, tmp_path, "ask", "--yes", 'run_shell_command {"command": "echo out"}')
    assert "sandbox" in finished.stdout + finished.stderr
