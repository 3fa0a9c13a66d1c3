"""The command line: one small module per command."""

import gc
from importlib import import_module

import click

COMMANDS = (
    "ask",
    "runs",
    "serve",
    "launch",
    "doctor",
    "journal",
    "mcp",
    "translate",
    "check",
    "protocols",
    "simulate",
)


class _CommandGroup(click.Group):
    """Each command's module is loaded when it is named, or listed: one need not wait for what the others import."""

    def list_commands(self, _: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{name}", __name__).command
        return command


@click.group(
    cls=_CommandGroup,
    epilog="Exit codes: 0 done, 1 findings, 2 bad input, 3 refused because something would be lost.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="toolwire", message="toolwire %(version)s")
def main() -> None:
    """Translate between tool-calling protocols, and see what could not be carried."""
    # A start makes very many objects and no garbage: looking for it took a fifth of the time.
    gc.set_threshold(20_000, 5, 5)
