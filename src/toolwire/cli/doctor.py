"""`toolwire doctor`: diagnose the configuration, keys and providers of the gateway."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolwire.cli.inputs import BadInput, NumberOption, config_option, default_model, report_bad_input
from toolwire.cli.output.terminal import Style, json_option, print_json, print_line, show_progress
from toolwire.cli.values import complete_providers

if TYPE_CHECKING:
    from toolwire.gateway.config import Config
    from toolwire.gateway.doctor import Finding

_STATUS_WIDTH = 9


@click.command("doctor", short_help="Check the gateway's configuration, keys and providers.")
@config_option
@click.option(
    "--timeout",
    cls=NumberOption,
    type=click.FloatRange(min=0.1),
    default=5,
    metavar="SECONDS",
    help="Timeout per provider. Default: 5.",
)
@click.option(
    "--probe",
    metavar="PROVIDER",
    shell_complete=complete_providers,
    help="Find out with tiny requests what a provider accepts.",
)
@click.option("--model", metavar="MODEL", help="The model to probe. Default: the provider's default_model.")
@json_option("Print one JSON object; not with --probe.")
def command(config_path: Path | None, timeout: float, probe: str | None, model: str | None, *, as_json: bool) -> None:
    """Check the configuration that `toolwire serve` would use, its access control, and each provider.

    Prints one line per check, with advice where something is wrong. Providers are only asked for their list of models.
    Exit code 1: a problem was found. 2: the configuration can't be read.

    With --probe, sends about 20 requests for a short answer instead, and prints a table [hosts.PROVIDER] to keep in
    toolwire.toml. Progress goes to standard error. Works for the protocols openai-chat, openai-responses and anthropic.

    \b
    Examples:
      toolwire doctor --config toolwire.toml
      toolwire doctor --probe company >> toolwire.toml
    """
    with report_bad_input():
        import asyncio

        from toolwire.gateway.config import load_config
        from toolwire.gateway.doctor import diagnose

        loaded = load_config(config_path)
        if probe is not None and as_json:
            raise BadInput("--json can't be used with --probe, which prints TOML")
        if probe is not None:
            _probe(loaded.config, probe, model, timeout)
            return
        with show_progress("asking the providers"):
            findings = asyncio.run(diagnose(loaded, os.environ, timeout, default_model(None)))
    is_ok = all(finding.is_ok for finding in findings)
    if as_json:
        print_json({"ok": is_ok, "findings": [_as_json(finding) for finding in findings]})
    else:
        for finding in findings:
            _print_finding(finding)
    if not is_ok:
        sys.exit(1)


def _print_finding(finding: "Finding") -> None:
    """Print a finding with its advice."""
    status: tuple[str, Style] = ("ok", "good") if finding.is_ok else ("problem", "problem")
    padding = " " * (_STATUS_WIDTH - len(status[0]))
    advice = f"; {finding.advice}" if finding.advice else ""
    print_line(status, padding, f"{finding.subject}: {finding.detail}{advice}", indent=_STATUS_WIDTH)


def _as_json(finding: "Finding") -> dict[str, Any]:
    """Return a finding as JSON data."""
    return {"ok": finding.is_ok, "subject": finding.subject, "detail": finding.detail, "advice": finding.advice}


def _probe(config: "Config", name: str, model: str | None, timeout: float) -> None:
    """Probe a provider, and print the table of its host."""
    import asyncio

    from toolwire.codec.suggestions import unknown_name
    from toolwire.gateway.config import build_providers
    from toolwire.gateway.probes.runner import PROBE_SETS, ProbeFailed, probe_host, render_table
    from toolwire.gateway.providers.discovery import discover_providers
    from toolwire.upstream.transport import Transport

    providers = build_providers(config) or discover_providers(os.environ)
    if (provider := providers.get(name)) is None:
        raise click.UsageError(unknown_name("provider", name, providers))
    if (probes := PROBE_SETS.get(provider.protocol)) is None:
        raise click.UsageError(
            f"{name} has the protocol {provider.protocol}; only {', '.join(PROBE_SETS)} can be probed"
        )
    if (probed := model or provider.default_model) is None:
        raise click.UsageError(f"{name} has no default_model; add --model MODEL")
    count = len(probes.forms) + len(probes.changes)
    click.echo(f"probing {name} with {probed}: {count} requests, each for a short answer", err=True)

    async def run() -> str:
        transport = Transport()
        try:
            result = await probe_host(provider, probed, transport, timeout, _report_probe)
            return render_table(provider, result)
        finally:
            transport.close()

    try:
        click.echo(asyncio.run(run()))
    except ProbeFailed as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def _report_probe(name: str, accepted: bool) -> None:  # noqa: FBT001 - a callback
    """Print the result of one probe."""
    click.echo(f"{'accepted' if accepted else 'rejected':9} {name}", err=True)
