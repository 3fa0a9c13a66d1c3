"""Protocol folders have the same layout (decision 0004), and files and functions stay short."""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolwire
from tests.support.assertions import non_empty
from tests.support.paths import ROOT
from toolwire.protocols import PROTOCOLS

SOURCES = Path(toolwire.__file__).parent
FOLDERS = [SOURCES / "protocols" / name.replace("-", "_") for name in PROTOCOLS]

SHARED_FILES = {
    "wire",
    "request",
    "settings",
    "tools",
    "response",
    "errors",
    "stream_decoder",
    "stream_encoder",
    "fields",
    "rules",
    "parts",
}
OPTIONAL_FILES = {"computer", "fast_path", "field_case", "hosts", "repairs", "stream_part_encoder"}
OPTIONAL_FILES |= {"context_management"}  # where the vendor has it
OPTIONAL_FILES |= {"stream_calls", "stream_details", "variant"}  # of Chat, which compatible servers vary
EXTENSION_FILES = {"request", "settings", "tools", "response", "errors", "stream_encoder", "rules"}
PART_FILES = {"content", "calls", "messages"}

LONGEST_FILE = 600
LONGEST_FUNCTION = 65


def modules(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir() if not path.name.startswith("__")}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_protocol_folders_have_the_same_files(folder: Path) -> None:
    files = modules(folder)
    if folder.name == "openrouter":  # a profile of Chat, with the fields that it adds
        assert files == EXTENSION_FILES
        return
    assert files <= SHARED_FILES | OPTIONAL_FILES
    assert not SHARED_FILES - files
    assert modules(folder / "parts") >= PART_FILES


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_files_and_functions_are_short() -> None:
    long_files, long_functions = [], []
    for path in non_empty(sorted(SOURCES.rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(SOURCES))
        if text.count("\n") > LONGEST_FILE:
            long_files.append(name)
        for function in functions(ast.parse(text)):
            length = (function.end_lineno or 0) - function.lineno + 1
            if length > LONGEST_FUNCTION:
                long_functions.append(f"{name}: {function.name} has {length} lines")
    assert long_files == []
    assert long_functions == []


def test_warnings_are_errors_in_our_code_only() -> None:
    source = r"text = '\d'"
    for ours in ("src/toolwire/made_up.py", "tests/made_up.py", "benchmarks/made_up.py"):
        with pytest.raises(SyntaxError, match="invalid escape sequence"):
            compile(source, str(ROOT / ours), "exec")
    with warnings.catch_warnings(record=True) as caught:
        compile(source, str(ROOT / ".venv/lib/python3/site-packages/google/genai/types.py"), "exec")
    assert len(caught) == 1
