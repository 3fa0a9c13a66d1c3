"""`toolwire hosts`: list the known servers, and what each accepts of its protocol."""

from pathlib import Path
from typing import Any

import click

from toolwire.cli.inputs import BadInput, config_option, report_bad_input
from toolwire.cli.output.terminal import json_option, print_json, print_line
from toolwire.cli.values import complete_hosts


@click.command("hosts", short_help="List the known servers and what they accept.")
@click.argument("name", required=False, shell_complete=complete_hosts)
@config_option
@json_option()
def command(name: str | None, config_path: Path | None, *, as_json: bool) -> None:
    """List the known servers, or show one: which part of each protocol it accepts, and how that is known.

    A server is recognized by the base URL of its provider; `host` in [providers.NAME] overrides that.

    \b
    Examples:
      toolwire hosts
      toolwire hosts deepseek
      toolwire hosts mine --config toolwire.toml
    """
    from toolwire.codec.hosts.custom import HostTables

    tables = HostTables(_configured_hosts(config_path))
    if name is not None and name not in tables.names:
        from toolwire.codec.suggestions import suggest

        raise BadInput(f"unknown host {name!r}: {suggest(name, tables.names, '`toolwire hosts` lists them')}")
    if as_json:
        names = list(tables.names) if name is None else [name]
        print_json([_as_json(profile) for name in names for profile in tables.profiles(name)])
    elif name is None:
        _print_overview(tables)
    else:
        _print_host(tables, name)


def _configured_hosts(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the hosts of the configuration."""
    from toolwire.gateway.config import load_config

    with report_bad_input():
        return load_config(path).config.hosts


def _print_overview(tables: Any) -> None:
    """Print two lines for each host: its name, its title, its protocols and its addresses."""
    from toolwire.codec.hosts.description import describe_addresses

    rows = [(name, tables.profiles(name)) for name in tables.names]
    width = max(len(name) for name, _ in rows) + 2
    for name, profiles in rows:
        protocols = ", ".join(profile.protocol for profile in profiles)
        title = f"{' ' * (width - len(name))}{profiles[0].title or name} "
        print_line((name, "accent"), title, (f"({protocols})", "muted"), indent=width)
        if addresses := describe_addresses(profiles[0]):
            print_line(f"{' ' * width}{addresses}", indent=width)


def _print_host(tables: Any, name: str) -> None:
    """Print every fact in which a host differs from the vendor's API, with its source, for each of its protocols."""
    from toolwire.codec.hosts.description import describe_addresses, describe_facts, describe_source

    profiles = tables.profiles(name)
    width = max((len(fact.name) for profile in profiles for fact in describe_facts(profile)), default=0) + 4
    for profile in profiles:
        print_line((f"{profile.title or name}: {profile.protocol}", "strong"))
        if addresses := describe_addresses(profile):
            print_line(f"  {addresses}", indent=2)
        for fact in describe_facts(profile):
            print_line("  ", (fact.name, "accent"), f"{' ' * (width - 2 - len(fact.name))}{fact.value}", indent=width)
            if source := describe_source(fact.source):
                print_line(" " * width, (f"[{source}]", "muted"), indent=width)
        print_line()


def _as_json(profile: Any) -> Any:
    """Return a profile as JSON data, with the facts that differ from the vendor's API."""
    import msgspec

    return {"name": profile.name, "protocol": profile.protocol} | msgspec.to_builtins(profile)
