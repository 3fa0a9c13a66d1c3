"""The command line interface: one module per command."""

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
    "hosts",
    "simulate",
)


class _CommandGroup(click.Group):
    """A click group that imports the module of a command only when the command is used or listed."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """Import and return the command `name`, or None if there is no such command."""
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{name}", __name__).command
        return command


@click.group(
    cls=_CommandGroup,
    epilog="Exit codes: 0 success, 1 problems found, 2 bad input, 3 refused because something would be lost.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="toolwire", message="toolwire %(version)s")
def main() -> None:
    """Translate between tool-calling protocols, and report what could not be translated."""
    # Start-up allocates many objects and frees hardly any; garbage collection took a fifth of the time.
    gc.set_threshold(20_000, 5, 5)
