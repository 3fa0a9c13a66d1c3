"""Values of arguments and options, with their completion in a shell."""

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from toolwire.cli.inputs import parse_protocol

_MAX_ITEMS = 50
_MAX_HELP = 60
Items = Iterable[tuple[str, str]]
"""Values to complete, each with a short explanation."""


def completion(list_items: Callable[[dict[str, Any]], Items]) -> Callable[..., list[CompletionItem]]:
    """Return the `shell_complete` function of a parameter; the items depend on the parameters before it."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the items that begin with what is typed; none if they can't be read."""
        try:
            found = [(value, text) for value, text in list_items(ctx.params) if value.startswith(incomplete)]
        except Exception:  # noqa: BLE001 - a broken configuration must not break the shell's prompt
            return []
        return [CompletionItem(value, help=_one_line(text)) for value, text in found[:_MAX_ITEMS]]

    return complete


def _one_line(text: str) -> str:
    """Return the beginning of a text, as one line that can't control the terminal."""
    return "".join(char for char in " ".join(text.split())[:_MAX_HELP] if char.isprintable())


def _list_protocols(_: dict[str, Any]) -> Items:
    """Return the installed protocols."""
    from toolwire.protocols import PROTOCOLS

    return [(name, "") for name in PROTOCOLS]


def _list_hosts(_: dict[str, Any]) -> Items:
    """Return the hosts with a profile."""
    from toolwire.codec.hosts.registry import HOST_NAMES

    return [(name, "") for name in HOST_NAMES]


def _list_providers(params: dict[str, Any]) -> Items:
    """Return the providers that the configuration or the environment names."""
    from toolwire.gateway.config import load_config
    from toolwire.gateway.providers.discovery import configured_providers

    config = load_config(params.get("config_path")).config
    return [(name, provider.base_url) for name, provider in configured_providers(config).items()]


def _list_models(params: dict[str, Any]) -> Items:
    """Return the default model of each provider, and the provider as the beginning of a name."""
    from toolwire.gateway.config import load_config
    from toolwire.gateway.providers.discovery import configured_providers

    config = load_config(params.get("config_path")).config
    for name, provider in configured_providers(config).items():
        yield f"{name}/{provider.default_model or ''}", provider.base_url


def _list_runs(params: dict[str, Any]) -> Items:
    """Return the latest runs, and `last`."""
    from toolwire.cli.agent_options import open_runs
    from toolwire.cli.output.run_report import load_reports
    from toolwire.gateway.config import load_config

    config = load_config(params.get("config_path")).config
    runs = open_runs(params.get("journal"), config)
    try:
        reports = list(load_reports(runs, config, _MAX_ITEMS, None))
        return [("last", "the newest run"), *((report.id, f"{report.state}: {report.prompt}") for report in reports)]
    finally:
        runs.close()


def _list_exchanges(params: dict[str, Any]) -> Items:
    """Return the latest exchanges, and `last`."""
    from toolwire.cli.journal import open_journal

    with open_journal(params.get("path"), params.get("config_path")) as (store, _, redactor):
        records = [redactor.redact_record(record) for _, record in reversed(store.latest(_MAX_ITEMS))]
    items = [(record.id, f"{record.status} {record.provider}/{record.model}") for record in records]
    return [("last", "the newest exchange"), *items]


def _list_mcp_servers(params: dict[str, Any]) -> Items:
    """Return the configured MCP servers."""
    from toolwire.gateway.config import load_config

    config = load_config(params.get("config_path")).config
    return [(name, server.url or server.command or "") for name, server in config.mcp.servers.items()]


complete_mcp_servers = completion(_list_mcp_servers)
complete_hosts = completion(_list_hosts)
complete_providers = completion(_list_providers)
complete_models = completion(_list_models)
complete_runs = completion(_list_runs)
complete_exchanges = completion(_list_exchanges)


class ProtocolName(click.ParamType[str]):
    """The name of an installed protocol."""

    name = "protocol"
    # Not `click.Choice`, which needs the names when the command is declared: that would import every codec.

    def __init__(self, *others: str) -> None:
        self._others = others

    def convert(self, value: Any, _: click.Parameter | None, __: click.Context | None) -> str:
        """Return the name; raise `BadInput` if there is no such protocol."""
        return str(value) if value in self._others else parse_protocol(str(value))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the protocols that begin with what is typed."""
        return completion(lambda params: [*_list_protocols(params), *((name, "") for name in self._others)])(
            ctx, param, incomplete
        )


PROTOCOL = ProtocolName()
