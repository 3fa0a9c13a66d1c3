"""Lookup of collected tests, for checking the tests that manifests name."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache

from tests.support.paths import ROOT

BROWSER_TESTS = "tests/runtime/tools/browser/chromium/"
"""Tests that `make test-browser` runs. Without Chromium, pytest cannot collect them."""

_SERVER_TESTS = "tests/real_servers/"  # run by `make test-servers`
_COLLECTED: dict[str, set[str]] = {}


def record_collected(node_ids: Iterable[str]) -> None:
    """Record the tests that the current session collected."""
    for node in node_ids:
        file, _, name = node.partition("::")
        _COLLECTED.setdefault(file, set()).add(name.partition("[")[0])


def collected_tests_in(file: str) -> frozenset[str]:
    """Return the names of the tests that pytest collects from a file, given relative to the project root."""
    if file.startswith(BROWSER_TESTS):
        return _parse_test_names(file)
    return frozenset((_COLLECTED if _is_collection_complete() else _collect_all()).get(file) or ())


def is_collected(node_id: str) -> bool:
    """Return whether pytest collects `tests/x.py::test_y`."""
    file, _, name = node_id.partition("::")
    return name in _COLLECTED.get(file, ()) or ((ROOT / file).is_file() and name in collected_tests_in(file))


@cache
def _is_collection_complete() -> bool:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    return {file for file in files if not file.startswith((BROWSER_TESTS, _SERVER_TESTS))} <= _COLLECTED.keys()


@cache
def _collect_all() -> dict[str, set[str]]:
    """Collect all tests, for sessions that run only some of them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=--import-mode=importlib"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names: dict[str, set[str]] = {}
    for node in completed.stdout.splitlines():
        file, _, name = node.partition("::")
        names.setdefault(file, set()).add(name.partition("[")[0])
    return names


@cache
def _parse_test_names(file: str) -> frozenset[str]:
    """Return the test functions at module level, as pytest would collect them."""
    tree = ast.parse((ROOT / file).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))
