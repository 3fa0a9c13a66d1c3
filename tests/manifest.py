"""Checks of the manifests: whether pytest collects a test that one names, and whether its source is at hand."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = ROOT / ".." / "shared"
APART = "tests/runtime/browser/chromium/"
"""`make test-browser` runs them: without Chromium, pytest can't even collect them."""

_COLLECTED: dict[str, set[str]] = {}


def needs(place: str) -> pytest.MarkDecorator:
    """Skip a test, visibly, where what it is compared with does not lie beside the project."""
    return pytest.mark.skipif(not (SHARED / place).exists(), reason=f"{place} does not lie beside the project")


def remember(nodes: Iterable[str]) -> None:
    """Take note of what the present session collected."""
    for node in nodes:
        file, _, name = node.partition("::")
        _COLLECTED.setdefault(file, set()).add(name.partition("[")[0])


def functions_in(file: str) -> frozenset[str]:
    """The names of the tests that pytest collects from a file, given by its path from the project's root."""
    if file.startswith(APART):
        return _functions_at_top(file)
    return frozenset((_COLLECTED if _is_everything_collected() else _all_collected()).get(file) or ())


def exists(node: str) -> bool:
    """Whether pytest collects `tests/x.py::test_y`."""
    file, _, name = node.partition("::")
    return name in _COLLECTED.get(file, ()) or ((ROOT / file).is_file() and name in functions_in(file))


@cache
def _is_everything_collected() -> bool:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    return {file for file in files if not file.startswith(APART)} <= _COLLECTED.keys()


@cache
def _all_collected() -> dict[str, set[str]]:
    """Everything there is, where this session was asked for a part of it."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=--import-mode=importlib"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = {}
    for node in listed.stdout.splitlines():
        file, _, name = node.partition("::")
        found.setdefault(file, set()).add(name.partition("[")[0])
    return found


@cache
def _functions_at_top(file: str) -> frozenset[str]:
    """Those that pytest would collect: no fixture, in no class, and in no other function."""
    tree = ast.parse((ROOT / file).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))
