"""`toolwire serve`: the gateway."""

import os
import signal
import sys
import threading
from pathlib import Path

import click

from toolwire.cli.inputs import DEFAULT_CONFIG, report_bad_input, require_extra


@click.command("serve", short_help="Serve every protocol in front of any provider.")
@click.option(
    "--config", "path", type=click.Path(path_type=Path), metavar="FILE", help=f"Default: {DEFAULT_CONFIG}, if there."
)
@click.option("--host", metavar="HOST", help="Default: 127.0.0.1. Any other than loopback needs keys.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Default: 4000. 0 takes any free one.")
@click.option("--model", metavar="PROVIDER/MODEL", help="Answers every name that no provider knows.")
@click.option("--attached", is_flag=True, hidden=True, help="Stop when standard input ends.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, metavar="N", help="Processes. Default: 1.")
def command(
    *, path: Path | None, host: str | None, port: int | None, model: str | None, attached: bool, workers: int
) -> None:
    """Serve every protocol in front of any provider.

    Providers are those of the configuration file; without one, those whose keys are in the environment
    (ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, OPENROUTER_API_KEY, OLLAMA_HOST); without any,
    the embedded simulator.

    \b
    Example:
      toolwire serve --model anthropic/claude-sonnet-4-5
    """
    with report_bad_input(), require_extra("gateway"):
        from toolwire.gateway.config import Config, override_server, read_config
        from toolwire.gateway.server.launch import run_gateway

        if attached:
            threading.Thread(target=_stop_at_end_of_stdin, daemon=True).start()
        found = path or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
        config = Config() if found is None else read_config(found)
        code = run_gateway(override_server(config, host, port), model, workers, lambda text: click.echo(text, err=True))
    sys.exit(code)


def _stop_at_end_of_stdin() -> None:
    """Whoever started this holds the other end of its input, and lets go of it however it ends."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
