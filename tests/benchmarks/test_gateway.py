"""The gateway benchmark: signals stop its processes, and a short run measures real exchanges."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gateway.peers import tree
from tests.support.deadlines import DEADLINE, wait_until

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "benchmarks.gateway", "--only", "chat", "--no-peers", "--no-delays", "--scale", "0"]


def commands(process: "subprocess.Popen[bytes]") -> dict[int, str]:
    """Return the command lines of its child processes, by process id."""
    command_lines = {}
    for pid in tree(process.pid)[1:]:
        command_lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return command_lines


def wait_for(seconds: float, *words: str, process: "subprocess.Popen[bytes]") -> dict[int, str]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        running = commands(process)
        if all(any(word in command for command in running.values()) for word in words):
            return running
        time.sleep(0.1)
    raise AssertionError(f"it did not start {words}: {commands(process)}")


def test_signal_stops_the_benchmark_and_its_processes() -> None:
    process = subprocess.Popen([*COMMAND, "--rounds", "10000"], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        started = wait_for(DEADLINE, "upstream", "load", "toolwire serve", process=process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 1
    finally:
        process.kill()
        process.wait(DEADLINE)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "the end of its processes")


def test_run_without_a_compiler_says_that_ratios_are_not_comparable() -> None:
    environment = os.environ | {"CC": "no-such-compiler"}
    command = [*COMMAND, "--rounds", "1", "--slice", "0.01", "--seed", "5"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "seed 5" in run.stdout
    assert "NO C COMPILER" in run.stdout
    (row, *_) = [line.split() for line in run.stdout.splitlines() if line.startswith("chat ")]
    assert float(row[3].replace(",", "")) > 0  # toolwire, after size and nginx
