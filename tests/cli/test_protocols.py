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


def test_every_protocol_is_listed_with_what_it_is_and_how_much_arrives() -> None:
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


def test_a_pair_shows_each_feature_with_its_losses() -> None:
    result = run("--from", "anthropic", "--to", "openai-chat")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0].startswith("anthropic to openai-chat: mapped ")
    assert "mapped temperature temperature" in lines
    at = lines.index("reported top-k top_k")
    assert lines[at + 1] == "dropped /top_k: the target has no such field"
    assert not [line for line in lines if " seed " in line]


def test_one_side_has_a_column_for_each_other_protocol() -> None:
    given = run("--from", "ollama").stdout
    taken = run("--to", "ollama").stdout
    others = ["anthropic", "chat", "responses", "gemini", "interactions", "openrouter"]
    assert given.splitlines()[0] == "from ollama to:"
    assert taken.splitlines()[0] == "to ollama from:"
    assert given.splitlines()[2].split() == ["Conversation", *others]
    assert [line.split() for line in given.splitlines() if line.startswith("text ")] == [["text", *"++++++"]]
    assert [line.split() for line in taken.splitlines() if line.startswith("choice-required ")] == [
        ["choice-required", *"------"]
    ]


def test_a_feature_is_shown_between_all() -> None:
    result = run("choice-required")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["anthropic", "=", "+", "+", "+", "+", "-", "+"] in rows
    assert ["ollama", "="] in rows


@pytest.mark.parametrize("arguments", [[], ["--from", "gemini-interactions"], ["--to", "openrouter"], ["text"]])
def test_tables_are_readable(arguments: list[str]) -> None:
    assert [line for line in run(*arguments).stdout.splitlines() if len(line) > WIDEST] == []


def test_json_holds_the_same() -> None:
    whole = json.loads(run("--json").stdout)
    assert list(whole["protocols"]) == list(PROTOCOLS)
    assert len(whole["pairs"]) == len(PROTOCOLS) * (len(PROTOCOLS) - 1)
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


def test_to_itself_everything_comes_back() -> None:
    assert run("--from", "gemini", "--to", "gemini").stdout == "gemini to itself: everything comes back as it was.\n"


def test_a_feature_that_the_source_has_no_words_for() -> None:
    shown = run("--from", "ollama", "--to", "gemini", "cache-marks").stdout
    assert "ollama has no words for it: cache marks" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cache-mark"], "unknown feature 'cache-mark': did you mean cache-marks"),
        (["xyzzy"], "unknown feature 'xyzzy': 'toolwire protocols --from P' lists them"),
        (["--from", "antropic"], "unknown protocol 'antropic': choose from anthropic, "),
    ],
)
def test_an_unknown_name_is_one_line(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {said}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["translate", "check", "protocols", "simulate"])
def test_help_lists_the_command(command: str) -> None:
    shown = CliRunner().invoke(main, ["--help"]).stdout
    assert f"\n  {command} " in shown


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == "toolwire 0.1.0\n"


@pytest.mark.parametrize("arguments", [["--help"], ["protocols"]])
def test_help_and_the_matrix_load_no_codec(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from toolwire.cli import main\n"
        f"main({arguments}, standalone_mode=False)\n"
        "loaded = ('toolwire.protocols.', 'toolwire.codec.wire.reader')\n"
        "print([name for name in sys.modules if name.startswith(loaded)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
