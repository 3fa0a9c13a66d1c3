"""The command line: one small module per command."""

import click

from . import ask, check, doctor, journal, launch, mcp, protocols, runs, serve, simulate, translate


@click.group(
    epilog="Exit codes: 0 done, 1 findings, 2 bad input, 3 refused because something would be lost.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="toolwire", message="toolwire %(version)s")
def main() -> None:
    """Translate between tool-calling protocols, and see what could not be carried."""


main.add_command(ask.command)
main.add_command(runs.command)
main.add_command(serve.command)
main.add_command(launch.command)
main.add_command(doctor.command)
main.add_command(journal.command)
main.add_command(mcp.command)
main.add_command(translate.command)
main.add_command(check.command)
main.add_command(protocols.command)
main.add_command(simulate.command)
