"""`toolwire hosts`: list the known servers, and what each accepts of its protocol."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from toolwire.cli.inputs import BadInput


@click.command("hosts", short_help="List the known servers and what they accept.")
@click.argument("name", required=False)
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Include [hosts] of this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
        from difflib import get_close_matches

        similar = get_close_matches(name, list(tables.names), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(similar)}?" if similar else "'toolwire hosts' lists them"
        raise BadInput(f"unknown host {name!r}: {hint}")
    if as_json:
        names = list(tables.names) if name is None else [name]
        click.echo(json.dumps([_as_json(profile) for name in names for profile in tables.profiles(name)], indent=2))
    else:
        click.echo("\n".join(_overview_lines(tables) if name is None else _host_lines(tables, name)))


def _configured_hosts(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the hosts of a configuration file, or of `toolwire.toml` if that exists."""
    from toolwire.gateway.config import ConfigError, read_config

    path = path or (default if (default := Path("toolwire.toml")).exists() else None)
    if path is None:
        return {}
    try:
        return read_config(path).hosts
    except ConfigError as error:
        raise BadInput(str(error)) from None


def _overview_lines(tables: Any) -> Iterator[str]:
    """Yield a line for each host: its name, its title, its protocols and its addresses."""
    from toolwire.codec.hosts.description import describe_addresses

    rows = [(name, tables.profiles(name)) for name in tables.names]
    width = max(len(name) for name, _ in rows) + 2
    for name, profiles in rows:
        protocols = ", ".join(profile.protocol for profile in profiles)
        yield f"{name.ljust(width)}{profiles[0].title or name} ({protocols})"
        if addresses := describe_addresses(profiles[0]):
            yield f"{' ' * width}{addresses}"


def _host_lines(tables: Any, name: str) -> Iterator[str]:
    """Yield every fact in which a host differs from the vendor's API, with its source, for each of its protocols."""
    from toolwire.codec.hosts.description import describe_addresses, describe_facts, describe_source

    for profile in tables.profiles(name):
        yield f"{profile.title or name}: {profile.protocol}"
        if addresses := describe_addresses(profile):
            yield f"  {addresses}"
        for fact in describe_facts(profile):
            yield f"  {fact.name.ljust(26)}{fact.value}"
            if source := describe_source(fact.source):
                yield f"  {' ' * 26}[{source}]"
        yield ""


def _as_json(profile: Any) -> Any:
    """Return a profile as JSON data, with the facts that differ from the vendor's API."""
    import msgspec

    return msgspec.to_builtins(profile)
