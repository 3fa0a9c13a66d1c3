"""The commands page names every command and every option, and no others."""

import re
from collections.abc import Iterator

import click
import pytest

from tests.support.paths import ROOT
from toolwire.cli import COMMANDS, main

PAGE = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")


def read_section(name: str) -> str:
    """Return the section of a command."""
    _, found, section = PAGE.partition(f"\n## toolwire {name}\n")
    assert found, f"no section for {name}"
    return section.partition("\n## ")[0]


def find_commands(name: str) -> Iterator[click.Command]:
    """Return a command, or those of a group."""
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    if isinstance(command, click.Group):
        yield from command.commands.values()
    else:
        yield command


def options_of(command: click.Command) -> set[str]:
    """Return the long names of the options that are not hidden."""
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    return {name for option in options for name in (*option.opts, *option.secondary_opts) if name.startswith("--")}


@pytest.mark.parametrize("name", COMMANDS)
def test_section_names_every_option_and_no_other(name: str) -> None:
    section = re.sub(r"```console\n.*?```", "", read_section(name), flags=re.DOTALL)
    options = {option for command in find_commands(name) for option in options_of(command)}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section))
    # The page has only `--no-tools`, which changes the default.
    assert options - named - {"--tools"} == set()
    assert named - options == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_synopsis_names_every_subcommand(name: str) -> None:
    synopsis = read_section(name).partition("```text\n")[2].partition("```")[0]
    for command in find_commands(name):
        assert re.search(rf"^toolwire (\w+ )?{command.name}\b", synopsis, re.MULTILINE), command.name
