"""Completion of commands, options and values: as click computes it, and in real shells."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import DEADLINE
from tests.support.runtime.cli_process import cli_environment, run_toolwire
from tests.support.runtime.fork_server import MAIN_PROGRAM, run_forked
from tests.support.runtime.journal_records import make_batch, make_record
from toolwire.cli.completion import SHELLS
from toolwire.journal.store import open_record_store

CONFIG = """
[journal]
path = "journal.db"
[providers.local]
protocol = "ollama"
base_url = "http://127.0.0.1:1"
default_model = "qwen3"
[mcp.servers.files]
command = "true"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    (folder / "toolwire.toml").write_text(CONFIG, encoding="utf-8")
    run_toolwire(folder, "ask", "hello", "--no-tools")
    store = open_record_store(folder / "journal.db", max_age_days=1e6, max_bytes=1_000_000)
    store.add(make_batch([make_record(7)]))
    store.close()
    binaries = folder / "bin"
    binaries.mkdir()
    program = f'#!/bin/sh\nexec {sys.executable} -c "from toolwire.cli import main; main()" "$@"\n'
    (binaries / "toolwire").write_text(program, encoding="utf-8")
    (binaries / "toolwire").chmod(0o755)
    return folder


def shell_environment(folder: Path) -> dict[str, str]:
    return cli_environment(folder) | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder)}


def complete(folder: Path, line: str) -> list[str]:
    """Return what bash's script gets for a line whose last word is incomplete."""
    words = line.split(" ")
    variables = {"_TOOLWIRE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    environment = shell_environment(folder) | variables
    done = run_forked('import sys; sys.argv[0] = "toolwire"; ' + MAIN_PROGRAM, folder=folder, environment=environment)
    assert done.stderr == ""
    return [item.partition(",")[2] for item in done.stdout.splitlines() if item]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("toolwire jour", ["journal"]),
        ("toolwire translate --from anth", ["anthropic"]),
        ("toolwire check --protocol oll", ["ollama"]),
        ("toolwire simulate al", ["all"]),
        ("toolwire simulate all --profile gro", ["groq"]),
        ("toolwire hosts deeps", ["deepseek"]),
        ("toolwire launch cl", ["claude"]),
        ("toolwire doctor --probe lo", ["local"]),
        ("toolwire ask --model lo", ["local/qwen3"]),
        ("toolwire serve --model lo", ["local/qwen3"]),
        ("toolwire journal replay last --to lo", ["local"]),
        ("toolwire journal show ex", ["ex_7"]),
        ("toolwire mcp call fi", ["files"]),
        ("toolwire protocols cache-m", ["cache-marks"]),
        ("toolwire completion f", ["fish"]),
    ],
)
def test_values_complete(line: str, expected: list[str], folder: Path) -> None:
    assert complete(folder, line) == expected


def test_run_ids_complete(folder: Path) -> None:
    (run,) = (json.loads(line)["id"] for line in run_toolwire(folder, "runs", "list", "--json").out.splitlines())
    assert complete(folder, "toolwire runs show r") == [run]
    assert complete(folder, "toolwire runs resume l") == ["last"]


def test_broken_configuration_completes_nothing(tmp_path: Path, folder: Path) -> None:
    (folder / "broken.toml").write_text("= nonsense", encoding="utf-8")
    assert complete(folder, "toolwire doctor --config broken.toml --probe lo") == []


def test_script_of_each_shell_is_printed(folder: Path) -> None:
    for shell in SHELLS:
        assert "_TOOLWIRE_COMPLETE" in run_toolwire(folder, "completion", shell).out


SCRIPTS = {
    "bash": """
source <(toolwire completion bash)
COMP_WORDS=(toolwire translate --from anth) COMP_CWORD=3
_toolwire_completion toolwire anth --from
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
autoload -Uz compinit && compinit -u
source <(toolwire completion zsh)
compadd() { print -l -- ${(P)argv[-1]} }
words=(toolwire translate --from anth) CURRENT=4
_toolwire_completion
""",
    "fish": """
toolwire completion fish | source
complete -C 'toolwire translate --from anth'
""",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_real_shell_completes(shell: str, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", SCRIPTS[shell]],
        env=shell_environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert "anthropic" in done.stdout.split(), done.stderr
