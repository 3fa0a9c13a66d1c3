"""Lookup of collected tests, for checking the tests that manifests name."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache

from tests.support.paths import ROOT

_COLLECTED: dict[str, set[str]] = {}


def record_collected(node_ids: Iterable[str]) -> None:
    """Record the tests that the current session collected."""
    for node in node_ids:
        file, _, name = node.partition("::")
        _COLLECTED.setdefault(file, set()).add(name.partition("[")[0])


def collected_tests_in(file: str) -> frozenset[str]:
    """Return the names of the tests that pytest collects from a file, given relative to the project root."""
    if _runs_by_name(file):
        return _parse_test_names(file)
    return frozenset((_COLLECTED if _is_collection_complete() else _collect_all()).get(file) or ())


def is_collected(node_id: str) -> bool:
    """Return whether pytest collects `tests/x.py::test_y`."""
    file, _, name = node_id.partition("::")
    return name in _COLLECTED.get(file, ()) or ((ROOT / file).is_file() and name in collected_tests_in(file))


def _runs_by_name(file: str) -> bool:
    """Return whether a test runs only by name. Without Chromium or real servers, pytest cannot collect it."""
    return not _skipped_folders().isdisjoint(file.split("/"))


@cache
def _skipped_folders() -> frozenset[str]:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    return frozenset(options["norecursedirs"])


@cache
def _is_collection_complete() -> bool:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    return {file for file in files if not _runs_by_name(file)} <= _COLLECTED.keys()


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
