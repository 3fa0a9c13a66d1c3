"""The watchdog ends tests that hang."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PROGRAM = """
import sys
import pytest
from tests.support.watchdog import Watchdog
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[Watchdog(float(sys.argv[1]))]))
"""
HANGING_TEST = """
import re
import threading

def wait_in_a_thread():
    threading.Event().wait()

def test_passes():
    pass

def test_hangs():
    threading.Thread(target=wait_in_a_thread, daemon=True).start()
    WAIT
"""
WAITS = {
    "on a lock": "threading.Event().wait()",
    "without giving up the interpreter": "re.match('(a|a)*b', 'a' * 100)",
}


def run_pytest(folder: Path, limit_seconds: float, test: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_one.py").write_text(test)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, str(limit_seconds), "--rootdir", str(folder), "test_one.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_hanging_test_is_ended_with_the_stacks_of_all_threads(tmp_path: Path, wait: str) -> None:
    finished = run_pytest(tmp_path, 0.5, HANGING_TEST.replace("WAIT", wait))
    assert finished.returncode == -14  # SIGALRM
    assert "in test_hangs" in finished.stderr
    assert "in wait_in_a_thread" in finished.stderr
    assert "." in finished.stdout.splitlines()[0]  # the test before it


def test_limit_is_that_of_one_test(tmp_path: Path) -> None:
    imports = "import signal\n\n"
    within = "assert 599 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600"
    after = "assert signal.getitimer(signal.ITIMER_REAL)[0] == 0"
    (tmp_path / "conftest.py").write_text(f"{imports}def pytest_sessionfinish():\n    {after}\n")
    finished = run_pytest(tmp_path, 600, f"{imports}def test_one():\n    {within}\n")
    assert finished.returncode == 0, finished.stdout
