"""`toolwire doctor`: what would keep the gateway from working."""

import os
import sys
from pathlib import Path

import click

from toolwire.cli.inputs import DEFAULT_CONFIG, report_bad_input, require_extra


@click.command("doctor", short_help="Check the gateway's configuration, keys and providers.")
@click.option(
    "--config", "path", type=click.Path(path_type=Path), metavar="FILE", help=f"Default: {DEFAULT_CONFIG}, if there."
)
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=5, metavar="SECONDS", help="For each provider. Default: 5."
)
def command(path: Path | None, timeout: float) -> None:
    """Check what `toolwire serve` would start with: the configuration, who may ask, and each provider.

    One line for each, with what to do where something is wrong. Providers are asked for their list of models only.
    Exit code 1: there is a problem. 2: the configuration can't be read.

    \b
    Example:
      toolwire doctor --config toolwire.toml
    """
    with report_bad_input(), require_extra("gateway"):
        import asyncio

        from toolwire.gateway.config import Config, key_variables, read_config
        from toolwire.gateway.doctor import Finding, diagnose

        found = path or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
        config = Config() if found is None else read_config(found)
        variables = {} if found is None else key_variables(found)
        told = f"no {DEFAULT_CONFIG}: keys are looked for in the environment" if found is None else str(found)
        findings = [Finding("configuration", told)]
        findings += asyncio.run(diagnose(config, variables, os.environ, timeout))
    for finding in findings:
        click.echo(str(finding))
    if not all(finding.is_ok for finding in findings):
        sys.exit(1)
