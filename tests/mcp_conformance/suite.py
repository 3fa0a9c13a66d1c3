"""The official suite, run for the client and server requirements of each version."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.mcp_conformance.installation import SUITE, program

VERSIONS = ("2025-11-25", "2026-07-28")
ROOT = Path(__file__).parents[2]
_TIMEOUT = 300
_LINE = re.compile(r"^(?P<sign>[✓✗]) (?P<name>\S+): (?P<passed>\d+) passed, (?P<failed>\d+) failed", re.MULTILINE)
_ADDRESS = re.compile(r"http://\S+/mcp")
_NOT_SCORED = re.compile(r"^  [✓✗] (?P<name>\S+) \((?P<why>[^)]+)\)", re.MULTILINE)


class Scenario(Struct, frozen=True):
    name: str
    passed: int
    failed: int
    required: bool

    @property
    def good(self) -> bool:
        return self.failed == 0


class Outcome(Struct, frozen=True):
    """The result of a suite run, and its output."""

    role: str
    version: str
    scenarios: tuple[Scenario, ...]
    output: str

    @property
    def required(self) -> list[Scenario]:
        return [scenario for scenario in self.scenarios if scenario.required]


def as_client(cache: Path, path: str, version: str, folder: Path) -> Outcome:
    command = f"{sys.executable} -m tests.mcp_conformance.client"
    arguments = ["client", "--command", command, "--requirements", version, "--timeout", str(_TIMEOUT * 1000)]
    return _run(cache, path, version, arguments, folder)


def as_server(cache: Path, path: str, version: str, folder: Path) -> Outcome:
    with _serving(folder) as url:
        return _run(cache, path, version, ["server", "--url", url, "--requirements", version], folder)


def _run(cache: Path, path: str, version: str, arguments: list[str], folder: Path) -> Outcome:
    completed = subprocess.run(
        ["node", str(program(cache, SUITE)), *arguments],
        cwd=folder,
        env=_environment(path),
        capture_output=True,
        text=True,
        timeout=2 * _TIMEOUT,
        check=False,
    )
    output = completed.stdout + completed.stderr
    unscored = {match["name"] for match in _NOT_SCORED.finditer(output)}
    scenarios = tuple(
        Scenario(match["name"], int(match["passed"]), int(match["failed"]), match["name"] not in unscored)
        for match in _LINE.finditer(output)
    )
    return Outcome(arguments[0], version, scenarios, output)


def _environment(path: str) -> dict[str, str]:
    return {**os.environ, "PATH": path, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """Run `toolwire mcp serve` with the suite's tools."""
    program = ["-c", "from toolwire.cli import main; main()", "mcp", "serve", "--http", "127.0.0.1:0"]
    tools = ["--servers-only", "--allow", "*", "--module", str(Path(__file__).with_name("fixture_tools.py"))]
    environment = {**_environment(os.environ["PATH"]), "XDG_STATE_HOME": str(folder / "state")}
    log_path = folder / "server.txt"
    with log_path.open("w") as log:
        process = subprocess.Popen([sys.executable, *program, *tools], cwd=folder, env=environment, stderr=log)
    try:
        while (match := _ADDRESS.search(log_path.read_text())) is None:
            if process.poll() is not None:
                raise SystemExit(log_path.read_text())
            time.sleep(0.05)
        yield match[0]
    finally:
        process.terminate()
        process.wait()
