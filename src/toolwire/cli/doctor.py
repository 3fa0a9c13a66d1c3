"""`toolwire doctor`: diagnose the configuration, keys and providers of the gateway."""

import os
import sys
from pathlib import Path

import click

from toolwire.cli.inputs import DEFAULT_CONFIG, report_bad_input, require_extra


@click.command("doctor", short_help="Check the gateway's configuration, keys and providers.")
@click.option(
    "--config", "path", type=click.Path(path_type=Path), metavar="FILE", help=f"Default: {DEFAULT_CONFIG}, if present."
)
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=5, metavar="SECONDS", help="Timeout per provider. Default: 5."
)
def command(path: Path | None, timeout: float) -> None:
    """Check the configuration that `toolwire serve` would use, its access control, and each provider.

    Prints one line per check, with advice where something is wrong. Providers are only asked for their list of models.
    Exit code 1: a problem was found. 2: the configuration can't be read.

    \b
    Example:
      toolwire doctor --config toolwire.toml
    """
    with report_bad_input(), require_extra("gateway"):
        import asyncio

        from toolwire.gateway.config import Config, key_variables, read_config
        from toolwire.gateway.doctor import Finding, diagnose

        config_path = path or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
        config = Config() if config_path is None else read_config(config_path)
        variables = {} if config_path is None else key_variables(config_path)
        source = (
            f"no {DEFAULT_CONFIG}; using API keys from the environment" if config_path is None else str(config_path)
        )
        findings = [Finding("configuration", source)]
        findings += asyncio.run(diagnose(config, variables, os.environ, timeout))
    for finding in findings:
        click.echo(str(finding))
    if not all(finding.is_ok for finding in findings):
        sys.exit(1)
