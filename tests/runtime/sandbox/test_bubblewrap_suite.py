"""The bubblewrap suite fails with a clear message without bubblewrap."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_suite_without_bubblewrap_fails_with_a_reason() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.runtime.sandbox.bubblewrap"],
        cwd=ROOT,
        env={**os.environ, "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "nothing was tested: bubblewrap is not installed\n"
