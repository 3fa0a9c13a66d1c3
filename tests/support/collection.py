"""Checks of the manifests: whether pytest collects a test that one names, and whether its source is at hand."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache

from tests.support.paths import ROOT

BROWSER_TESTS = "tests/runtime/tools/browser/chromium/"
"""`make test-browser` runs them: without Chromium, pytest can't even collect them."""

_COLLECTED: dict[str, set[str]] = {}


def record_collected(node_ids: Iterable[str]) -> None:
    """Take note of what the present session collected."""
    for node in node_ids:
        file, _, name = node.partition("::")
        _COLLECTED.setdefault(file, set()).add(name.partition("[")[0])


def collected_tests_in(file: str) -> frozenset[str]:
    """The names of the tests that pytest collects from a file, given by its path from the project's root."""
    if file.startswith(BROWSER_TESTS):
        return _parse_test_names(file)
    return frozenset((_COLLECTED if _is_collection_complete() else _collect_all()).get(file) or ())


def is_collected(node_id: str) -> bool:
    """Whether pytest collects `tests/x.py::test_y`."""
    file, _, name = node_id.partition("::")
    return name in _COLLECTED.get(file, ()) or ((ROOT / file).is_file() and name in collected_tests_in(file))


@cache
def _is_collection_complete() -> bool:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    return {file for file in files if not file.startswith(BROWSER_TESTS)} <= _COLLECTED.keys()


@cache
def _collect_all() -> dict[str, set[str]]:
    """Everything there is, where this session was asked for a part of it."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=--import-mode=importlib"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = {}
    for node in listed.stdout.splitlines():
        file, _, name = node.partition("::")
        found.setdefault(file, set()).add(name.partition("[")[0])
    return found


@cache
def _parse_test_names(file: str) -> frozenset[str]:
    """Those that pytest would collect: no fixture, in no class, and in no other function."""
    tree = ast.parse((ROOT / file).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))
