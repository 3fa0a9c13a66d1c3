"""The simple commands that a shell line runs, as far as they can be known."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.deadlines import DEADLINE
from tests.support.runtime.tool_calls import built_in_tool
from toolwire.runtime.policy import Policy
from toolwire.runtime.tools.run_shell_command import parse_simple_commands


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("git status", ["git status"]),
        ("  git   status\t-s ", ["git status -s"]),
        ("a; b && c || d | e & f\ng |& h", ["a", "b", "c", "d", "e", "f", "g", "h"]),
        ("a;b&&c||d|e&f", ["a", "b", "c", "d", "e", "f"]),
        ("(cd x; rm y) && z", ["cd x", "rm y", "z"]),
        ("((a) ; b)", None),
        ("( (a) ; b)", ["a", "b"]),
        ("echo 'a; b' \"c && d\" e\\;f", ["echo 'a; b' 'c && d' 'e;f'"]),
        ('"rm" -rf x', ["rm -rf x"]),
        ("r\\m x", ["rm x"]),
        ("'git status' x", ["'git status' x"]),
        ("echo a # ; rm x\nb", ["echo a", "b"]),
        ("echo a#b", ["echo a#b"]),
        ("echo a \\\n b", ["echo a b"]),
        ("ls *.py ~/x {a,b} [a-z]?", ["ls *.py ~/x {a,b} [a-z]?"]),
        ("make 2>&1 >/dev/null", ["make"]),
        ("make 2>/dev/null </dev/null &>/dev/null; x", ["make", "x"]),
        ("A=b git status", ["A=b git status"]),
        ("echo 'it'\"'\"'s'", ["echo 'it'\"'\"'s'"]),
        ('echo "a\\"b\\\\"', ["echo 'a\"b\\'"]),
        ("", []),
        ("# nothing", []),
    ],
)
def test_simple_commands_are_parsed(line: str, commands: list[str] | None) -> None:
    assert parse_simple_commands(line) == commands


@pytest.mark.parametrize(
    "line",
    [
        "git status $(rm x)",
        "git status `rm x`",
        'git status "$(rm x)"',
        'git status "`rm x`"',
        "git status $X",
        "git status ${X}",
        "$X status",
        "echo $((1))",
        "echo $'a'",
        "git status > file",
        "git status >> file",
        "git status >| file",
        "git status 2> file",
        "git status &> file",
        "git status >& file",
        "git status > /dev/null.txt",
        "git status > /dev/null/../../x",
        "cat < file",
        "cat << EOF\nrm x\nEOF",
        "cat <<< x",
        "diff <(rm x) y",
        "tee >(rm x)",
        "git() { rm x; }; git status",
        "git () { rm x; }",
        "function git { rm x; }",
        "alias git=rm",
        "eval 'rm x'",
        "'eval' 'rm x'",
        "source x",
        ". x",
        "exec rm x",
        "command rm x",
        "builtin cd",
        "trap 'rm x' EXIT",
        "if true; then rm x; fi",
        "for i in a; do rm x; done",
        "while true; do rm x; done",
        "case x in x) rm x;; esac",
        "{ rm x; }",
        "! rm x",
        "time rm x",
        "coproc rm x",
        "[[ a < b ]]",
        "((x=1))",
        "echo 'open",
        'echo "open',
        "echo open\\",
        "(git status",
        "git status)",
        "git @(a|b)",
        "git status\0rm",
        "* x",
        "r? x",
        "{rm,x}",
        "~/rm x",
        "A=b r? x",
        "A=b eval x",
        '"r"? x',
        'echo "a"*',
        "git status\r rm",
        "git\u00a0status",
    ],
)
def test_opaque_lines_are_not_parsed(line: str) -> None:
    assert parse_simple_commands(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "git status; rm -rf x",
        "git status && rm -rf x",
        "git status || rm -rf x",
        "git status | rm -rf x",
        "git status & rm -rf x",
        "git status\nrm -rf x",
        "git status $(rm -rf x)",
        "git status `rm -rf x`",
        'git status "$(rm -rf x)"',
        "git status > /etc/passwd",
        "git status <(rm -rf x)",
        "(git status; rm -rf x)",
        "git status; (rm -rf x)",
        "git status 2>/dev/null; rm -rf x",
        "git status 2>&1 | rm -rf x",
        "git status # harmless\nrm -rf x",
        "git status \\\n; rm -rf x",
        "git() { rm -rf x; }; git status",
        "X=1; git status",
        "PATH=/evil git status",
        '"git status"',
        "git\\ status",
    ],
)
def test_allow_rule_does_not_allow_other_commands(tmp_path: Path, line: str) -> None:
    shell = built_in_tool(tmp_path, "run_shell_command")
    policy = Policy(allow=["run_shell_command(command=git status*)"])
    assert policy.decide(shell, {"command": line}).verdict == "ask"


@pytest.mark.parametrize(
    "line", ["git status", "git status -s", "git status; git status -s", "git status 2>&1", "'git' status 'a; b'"]
)
def test_allow_rule_allows_its_command(tmp_path: Path, line: str) -> None:
    shell = built_in_tool(tmp_path, "run_shell_command")
    policy = Policy(allow=["run_shell_command(command=git status*)"])
    assert policy.decide(shell, {"command": line}).verdict == "allow"


@pytest.mark.parametrize("line", ["rm x", "echo a; rm x", "true && (rm x)", '"rm" x', "r''m x", "\\rm x", "echo|rm x"])
def test_deny_rule_matches_within_a_line(tmp_path: Path, line: str) -> None:
    shell = built_in_tool(tmp_path, "run_shell_command")
    policy = Policy(allow=["run_shell_command"], deny=["run_shell_command(command=rm *)"])
    assert policy.decide(shell, {"command": line}).verdict == "deny"


@pytest.mark.parametrize("line", ["echo $(rm x)", "eval 'rm x'", "r? x", "X=rm; $X x", "if true; then rm x; fi"])
def test_deny_rule_is_not_bypassed_by_opaque_lines(tmp_path: Path, line: str) -> None:
    shell = built_in_tool(tmp_path, "run_shell_command")
    bounded = Policy(allow=["run_shell_command"], deny=["run_shell_command(command=rm *)"])
    assert bounded.decide(shell, {"command": line}).verdict == "ask"
    unbounded = Policy(allow=["run_shell_command"], deny=["write_file(file_path=*)"])
    assert unbounded.decide(shell, {"command": line}).verdict == "allow"


PIECES = st.sampled_from(
    [
        *(
            "probe",
            "probe a",
            " ",
            ";",
            "&&",
            "||",
            "|",
            "&",
            "\n",
            "(",
            ")",
            "'",
            '"',
            "\\",
            "#",
            "$(probe)",
            "`probe`",
        ),
        *("$X", ">", "<", "2>&1", ">/dev/null", "{", "}", "!", "eval probe", "a=b", "x", "if", "then", "fi", "*"),
    ]
)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probed")
    (folder / "probe").write_text(f'#!/bin/sh\necho "$0 $*" >> {folder}/log\n')
    (folder / "probe").chmod(0o755)
    return folder


@settings(max_examples=150, deadline=None)
@given(pieces=st.lists(PIECES, min_size=1, max_size=8))
def test_parsed_commands_match_a_real_shell(probed: Path, pieces: list[str]) -> None:
    line = "".join(pieces)
    commands = parse_simple_commands(line)
    if commands is None:
        return
    log = probed / "log"
    log.unlink(missing_ok=True)
    shell = shutil.which("bash") or "/bin/sh"
    subprocess.run(
        [shell, "-c", line], env={"PATH": str(probed)}, cwd=probed, timeout=DEADLINE, check=False, capture_output=True
    )
    ran = log.read_text().splitlines() if log.exists() else []
    spoken = [command for command in commands if command.split()[0] == "probe" or " probe" in command]
    assert len(ran) <= len(spoken)
