"""`toolwire protocols` and the group itself."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from toolwire.cli import main
from toolwire.protocols import PROTOCOLS


def test_every_protocol_is_listed_with_what_it_supports() -> None:
    result = CliRunner().invoke(main, ["protocols"])
    assert result.exit_code == 0, result.output
    header, *rows = [line.split() for line in result.stdout.splitlines()]
    assert header == ["protocol", "requests", "responses", "streams", "errors"]
    assert [row[0] for row in rows] == list(PROTOCOLS)
    for name in ("anthropic", "openai-chat", "openai-responses"):
        assert [name, "yes", "yes", "yes", "yes"] in rows


@pytest.mark.parametrize("command", ["translate", "check", "protocols"])
def test_help_lists_the_command(command: str) -> None:
    shown = CliRunner().invoke(main, ["--help"]).stdout
    assert f"\n  {command} " in shown


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == "toolwire 0.1.0\n"


def test_help_loads_no_codec() -> None:
    program = (
        "import sys\n"
        "from toolwire.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.startswith(('toolwire.protocols', 'toolwire.codec'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
