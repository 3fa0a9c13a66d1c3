"""Every example in the documentation runs and prints the documented output.

A `python` block is a program. Its output is compared with the comments in it that start with `# -> `, if there are any.
A `console` block is a shell session of lines that start with `$ `: the output of each command, including stderr, is
compared with the lines below it. `...` matches anything. Every block runs in an empty folder, so that it can be copied
alone. An `sh` block holds make targets, and a `toml` block a configuration. Other blocks are `text` and do not run.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.assertions import non_empty
from tests.support.deadlines import DEADLINE
from tests.support.runtime.fork_server import run_forked
from toolwire.gateway.config import parse_config
from toolwire.protocols import PROTOCOLS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (?P<command>.*(?:\\\n.*)*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
PRINTED = re.compile(r"^ *# -> (.*\n)", re.MULTILINE)
# As `python FILE` does.
RUN_FILE = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
# SDKs that the blocks import; each takes a second.
SLOW_IMPORTS = ("anthropic", "openai", "mcp")
# The commands of this environment.
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def blocks(*languages: str) -> dict[str, str]:
    """Return every block in these languages, by file and line."""
    found = {}
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match["language"] in languages:
                found[f"{document.relative_to(ROOT)}:{line}"] = match["text"]
    return found


PYTHON = blocks("python")
CONSOLE = blocks("console")
SHELL = blocks("sh")
TOML = blocks("toml")


def environment_in(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": PATH, "XDG_STATE_HOME": str(folder / ".state")}


def run(command: list[str], folder: Path) -> tuple[int, str]:
    completed = subprocess.run(
        command,
        cwd=folder,
        env=environment_in(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    return completed.returncode, completed.stdout


@pytest.mark.parametrize("block", list(PYTHON.values()), ids=list(PYTHON))
def test_python_block_runs(block: str, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(block, encoding="utf-8")
    done = run_forked(
        RUN_FILE,
        str(program),
        folder=tmp_path,
        environment=environment_in(tmp_path),
        merge_streams=True,
        preload={name for name in SLOW_IMPORTS if f"import {name}" in block},
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback (most recent call last)" not in done.stdout, done.stdout
    if expected := "".join(PRINTED.findall(block)):
        assert doctest.OutputChecker().check_output(expected, done.stdout, doctest.ELLIPSIS), done.stdout


def test_python_blocks_can_be_copied() -> None:
    assert [where for where, block in non_empty(PYTHON.items()) if ">>>" in block] == []


@pytest.mark.parametrize("block", list(CONSOLE.values()), ids=list(CONSOLE))
def test_console_block_prints_the_documented_output(block: str, tmp_path: Path) -> None:
    compare = doctest.OutputChecker()
    assert "".join(match[0] for match in COMMAND.finditer(block)) == block
    for match in COMMAND.finditer(block):
        _, output = run(["bash", "-c", match["command"]], tmp_path)
        assert compare.check_output(match["output"], output, doctest.ELLIPSIS), f"$ {match['command']}\n{output}"


@pytest.mark.parametrize("block", list(SHELL.values()), ids=list(SHELL))
def test_shell_block_names_make_targets(block: str) -> None:
    for line in non_empty(block.splitlines()):
        program, *arguments = shlex.split(line.partition("#")[0])
        assert program == "make"
        code, output = run(["make", "--dry-run", *arguments], ROOT)
        assert code == 0, output


@pytest.mark.parametrize("block", list(TOML.values()), ids=list(TOML))
def test_toml_block_is_a_valid_configuration(block: str) -> None:
    parse_config(block, dict.fromkeys(re.findall(r'"env:(\w+)"', block), "a secret of some length"))


def test_python_blocks_can_be_pasted() -> None:
    assert [where for where, block in PYTHON.items() if ">>>" in block] == []


def test_readme_has_python_and_console_examples() -> None:
    assert (
        {where.partition(":")[0] for where in PYTHON} >= {"README.md"} <= {where.partition(":")[0] for where in CONSOLE}
    )


def test_every_code_block_has_a_known_language() -> None:
    fences = sum(len(re.findall(r"^```", document.read_text(encoding="utf-8"), re.MULTILINE)) for document in DOCUMENTS)
    assert fences == 2 * len(PYTHON | CONSOLE | SHELL | TOML | blocks("text"))


def test_links_are_valid() -> None:
    links = [
        (document, link)
        for document in DOCUMENTS
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8"))
    ]
    broken = [f"{document}: {link}" for document, link in non_empty(links) if not (document.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_every_protocol_page_has_the_same_sections(protocol: str) -> None:
    page = (ROOT / "docs" / "protocols" / f"{protocol}.md").read_text(encoding="utf-8")
    assert re.match(rf"# .*: `{protocol}`\n", page)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [
        "From other protocols",
        "To other protocols",
        "Protocol-specific fields",
        "Refused translations",
        "Verified with",
    ]
    assert f"| `{protocol}` |" in (ROOT / "README.md").read_text(encoding="utf-8")
