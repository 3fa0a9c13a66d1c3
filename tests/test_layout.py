"""Every protocol folder looks like its neighbours (decision 0004), and no file or function outgrows its reader."""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolwire
from tests.support.paths import ROOT
from toolwire.protocols import PROTOCOLS

SOURCES = Path(toolwire.__file__).parent
FOLDERS = [SOURCES / "protocols" / name.replace("-", "_") for name in PROTOCOLS]

SIX = {
    "wire": set[str](),
    "parts": {"content", "calls", "messages"},
    "request": {"body", "tools", "settings"},
    "response": {"body", "errors"},
    "stream": {"decoder", "encoder"},
    "rules": {"checks", "vocabulary"},
}

LONGEST_FILE = 600
LONGEST_FUNCTION = 65


def modules(folder: Path) -> set[str]:
    return {found.stem for found in folder.iterdir() if not found.name.startswith("__")}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_protocol_folder_has_the_same_six_parts(folder: Path) -> None:
    if folder.name == "openrouter":  # what it adds to Chat
        assert modules(folder) <= SIX.keys()
        return
    assert modules(folder) == SIX.keys()
    for part, files in SIX.items():
        assert not files or modules(folder / part) >= files


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST_FILE
    lengths = {one.name: (one.end_lineno or 0) - one.lineno + 1 for one in functions(ast.parse(text))}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_a_warning_about_our_code_is_an_error_and_one_about_the_code_of_others_is_not() -> None:
    careless = r"text = '\d'"
    for ours in ("src/toolwire/made_up.py", "tests/made_up.py", "benchmarks/made_up.py"):
        with pytest.raises(SyntaxError, match="invalid escape sequence"):
            compile(careless, str(ROOT / ours), "exec")
    with warnings.catch_warnings(record=True) as told:
        compile(careless, str(ROOT / ".venv/lib/python3/site-packages/google/genai/types.py"), "exec")
    assert len(told) == 1
