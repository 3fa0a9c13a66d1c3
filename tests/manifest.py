"""What a manifest of tests is checked with: the tests that a file really holds."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def functions_in(file: str) -> frozenset[str]:
    """The names of the test functions of a file, given by its path from the project's root."""
    tree = ast.parse((ROOT / file).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def exists(node: str) -> bool:
    """Whether `tests/x.py::test_y` is a test of this project."""
    file, _, name = node.partition("::")
    return (ROOT / file).is_file() and name in functions_in(file)
