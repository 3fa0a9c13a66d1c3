"""`toolwire protocols` and the group itself."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from toolwire.cli import main
from toolwire.protocols import PROTOCOLS

WIDEST = 100


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["protocols", *arguments])


def test_overview_lists_protocols_and_ratios() -> None:
    result = run()
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[: len(PROTOCOLS)]] == list(PROTOCOLS)
    assert "gemini               Gemini generateContent" in lines
    rows = {
        line.split()[0]: line.split()[1:] for line in lines[len(PROTOCOLS) :] if "/" in line and "=" in line.split()
    }
    assert list(rows) == list(PROTOCOLS)
    for index, cells in enumerate(rows.values()):
        assert len(cells) == len(PROTOCOLS)
        assert cells[index] == "="


def test_pair_lists_features_with_losses() -> None:
    result = run("--from", "anthropic", "--to", "openai-chat")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0].startswith("anthropic to openai-chat: mapped ")
    assert "mapped temperature temperature" in lines
    at = lines.index("reported top-k top_k")
    assert lines[at + 1] == "dropped /top_k: the target has no such field"
    assert not [line for line in lines if " seed " in line]


def test_one_side_has_a_column_for_each_other_protocol() -> None:
    output = run("--from", "ollama").stdout
    taken = run("--to", "ollama").stdout
    others = ["anthropic", "chat", "responses", "gemini", "interactions", "openrouter"]
    assert output.splitlines()[0] == "from ollama to:"
    assert taken.splitlines()[0] == "to ollama from:"
    assert output.splitlines()[2].split() == ["Conversation", *others]
    assert [line.split() for line in output.splitlines() if line.startswith("text ")] == [["text", *"++++++"]]
    assert [line.split() for line in taken.splitlines() if line.startswith("choice-required ")] == [
        ["choice-required", *"------"]
    ]


def test_feature_is_shown_between_all_protocols() -> None:
    result = run("choice-required")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["anthropic", "=", "+", "+", "+", "+", "-", "+"] in rows
    assert ["ollama", "="] in rows


@pytest.mark.parametrize("arguments", [[], ["--from", "gemini-interactions"], ["--to", "openrouter"], ["text"]])
def test_tables_are_readable(arguments: list[str]) -> None:
    assert [line for line in run(*arguments).stdout.splitlines() if len(line) > WIDEST] == []


def test_json_option_has_the_same_content() -> None:
    data = json.loads(run("--json").stdout)
    assert list(data["protocols"]) == list(PROTOCOLS)
    assert len(data["pairs"]) == len(PROTOCOLS) * (len(PROTOCOLS) - 1)
    (pair,) = json.loads(run("--json", "--from", "anthropic", "--to", "openai-chat", "top-k").stdout)["pairs"]
    assert pair == {
        "from": "anthropic",
        "to": "openai-chat",
        "features": {
            "top-k": {
                "outcome": "reported",
                "losses": [{"kind": "dropped", "path": "/top_k", "reason": "the target has no such field"}],
            }
        },
    }


def test_same_protocol_is_unchanged() -> None:
    assert run("--from", "gemini", "--to", "gemini").stdout == "gemini to itself: passed through unchanged.\n"


def test_feature_not_supported_by_the_source() -> None:
    shown = run("--from", "ollama", "--to", "gemini", "cache-marks").stdout
    assert "not supported by ollama: cache marks" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cache-mark"], "unknown feature 'cache-mark': did you mean \"cache-marks\"?"),
        (["xyzzy"], "unknown feature 'xyzzy': `toolwire protocols --from P` lists them"),
        (
            ["--from", "antropic"],
            "unknown protocol 'antropic' (did you mean \"anthropic\"?); expected one of anthropic, ",
        ),
    ],
)
def test_unknown_name_is_a_one_line_error(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["translate", "check", "protocols", "simulate"])
def test_help_lists_the_command(command: str) -> None:
    shown = CliRunner().invoke(main, ["--help"]).stdout
    assert f"\n  {command} " in shown


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == "toolwire 0.1.0\n"


@pytest.mark.parametrize("arguments", [["--help"], ["protocols"]])
def test_help_and_matrix_import_no_codec(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from toolwire.cli import main\n"
        f"main({arguments}, standalone_mode=False)\n"
        "loaded = ('toolwire.protocols.', 'toolwire.codec.wire.reader')\n"
        "print([name for name in sys.modules if name.startswith(loaded)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
