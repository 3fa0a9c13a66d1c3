"""Every example in the documentation runs, and prints what it says it prints.

A `python` block is a program of its own; one that starts with `>>>` is a session, and its output is
compared. A `console` block whose first line starts with `$ ` is a shell session: each command's output,
stderr included, is compared with the lines below it. `...` stands for anything. Every block starts in an
empty folder, so that it can be copied alone.
"""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?P<language>python|console)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (?P<command>.*(?:\\\n.*)*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
# The commands of this very environment.
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def blocks(language: str, first: str = "") -> dict[str, str]:
    """Every block of a language whose first line starts so, by where it stands."""
    found = {}
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match["language"] == language and match["text"].startswith(first):
                found[f"{document.relative_to(ROOT)}:{line}"] = match["text"]
    return found


PYTHON = blocks("python")
CONSOLE = blocks("console", "$ ")


def run(command: list[str], folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("block", list(PYTHON.values()), ids=list(PYTHON))
def test_python_block(block: str, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    if block.startswith(">>>"):
        program.write_text(f"r'''\n{block}'''\n", encoding="utf-8")
        command = [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", str(program)]
    else:
        program.write_text(block, encoding="utf-8")
        command = [sys.executable, str(program)]
    code, output = run(command, tmp_path)
    assert code == 0, output


@pytest.mark.parametrize("block", list(CONSOLE.values()), ids=list(CONSOLE))
def test_console_block(block: str, tmp_path: Path) -> None:
    compare = doctest.OutputChecker()
    assert "".join(match[0] for match in COMMAND.finditer(block)) == block
    for match in COMMAND.finditer(block):
        _, output = run(["bash", "-c", match["command"]], tmp_path)
        assert compare.check_output(match["output"], output, doctest.ELLIPSIS), f"$ {match['command']}\n{output}"


def test_readme_has_a_taste_of_both() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {match["language"] for match in BLOCK.finditer(readme)} == {"python", "console"}
