"""Help texts: whole, with examples that the commands accept, and commands listed by purpose."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from toolwire.cli import COMMANDS, SECTIONS, main


def list_commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command with its path, such as `("journal", "show")`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from list_commands(command, (*path, name))


ALL_COMMANDS = dict(list_commands(main))
NAMES = [" ".join(path) for path in ALL_COMMANDS]


def show_help(*path: str) -> str:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    return result.output


def read_examples(text: str) -> list[str]:
    """Return the lines of the Examples section of a help text."""
    _, _, after = text.partition("  Examples:\n")
    return [line.strip() for line in after.partition("\n\n")[0].splitlines()]


def test_toolwire_alone_shows_the_commands_by_purpose() -> None:
    result = CliRunner().invoke(main, [])
    lines = result.output.splitlines()
    assert [line for line in lines if line.rstrip(":") in SECTIONS] == [f"{title}:" for title in SECTIONS]
    assert [line.split()[0] for line in lines if re.match(r"  \w+  +[A-Z]", line)] == list(COMMANDS)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    "name", ["", *(name for name in NAMES if isinstance(ALL_COMMANDS[tuple(name.split())], click.Group))]
)
def test_summaries_in_group_help_are_whole(name: str) -> None:
    assert "..." not in re.sub(r"\[ARGS\]\.\.\.", "", show_help(*name.split()))


@pytest.mark.parametrize("name", ["", *NAMES])
def test_examples_are_accepted(name: str) -> None:
    examples = read_examples(show_help(*name.split()))
    assert examples
    for example in examples:
        parse_example(example)
        assert name in example


def parse_example(example: str) -> None:
    """Parse an example as the shell and the command would, without running it."""
    command = re.sub(r"( [<>]+ \S+| +#.*)", "", example.rpartition(" | ")[2])
    program, *arguments = shlex.split(command)
    assert program == "toolwire"
    current: click.Command = main
    context = click.Context(main, info_name="toolwire")
    while isinstance(current, click.Group):
        found = current.get_command(context, arguments.pop(0))
        assert found is not None
        current = found
    try:
        current.make_context("toolwire", arguments, parent=context)
    except click.BadParameter as error:  # the files of an example do not exist
        if not re.search(r"(No such file or directory|does not exist\.)$", error.message):
            raise


@pytest.mark.parametrize("name", ["", *NAMES])
def test_options_are_described_in_one_style(name: str) -> None:
    """Values have names, and defaults are sentences; ranges are left to the errors."""
    text = show_help(*name.split())
    assert re.findall(r"\[default: |x>=|<=x|--[\w-]+ (?:TEXT|INTEGER|FLOAT|PATH|FILENAME|DIRECTORY)\b", text) == []


@pytest.mark.parametrize("name", ["", *NAMES])
def test_lines_fit_80_columns(name: str) -> None:
    assert [line for line in show_help(*name.split()).splitlines() if len(line) > 80] == []
