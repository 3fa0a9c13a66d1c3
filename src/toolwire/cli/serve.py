"""`toolwire serve`: run the gateway."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolwire.cli.inputs import NumberOption, config_option, default_model, report_bad_input
from toolwire.cli.values import complete_models

if TYPE_CHECKING:
    from toolwire.gateway.config import LoadedConfig


@click.command("serve", short_help="Run the gateway.")
@config_option
@click.option("--host", metavar="HOST", help="Default: 127.0.0.1. Any other than loopback needs keys.")
@click.option(
    "--port", cls=NumberOption, type=click.IntRange(0, 65535), metavar="N", help="Default: 4000. 0 picks a free port."
)
@click.option(
    "--model",
    metavar="PROVIDER/MODEL",
    shell_complete=complete_models,
    help="Model for names that no provider serves. Default: TOOLWIRE_MODEL.",
)
@click.option("--record", is_flag=True, help="Record exchanges for `toolwire journal`.")
@click.option("--record-bodies", is_flag=True, help="Record bodies, too: of the client's and the provider's messages.")
@click.option("--attached", is_flag=True, hidden=True, help="Stop when standard input ends.")
@click.option(
    "--workers",
    cls=NumberOption,
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Number of processes. Default: 1.",
)
def command(
    *,
    config_path: Path | None,
    host: str | None,
    port: int | None,
    model: str | None,
    record: bool,
    record_bodies: bool,
    attached: bool,
    workers: int,
) -> None:
    """Run the gateway: clients of any protocol can use any provider.

    Providers come from the configuration files, or else from the API keys in the environment (ANTHROPIC_API_KEY,
    OPENAI_API_KEY, GEMINI_API_KEY, OPENROUTER_API_KEY, OLLAMA_HOST). Without any, the built-in simulator is used.

    \b
    Examples:
      toolwire serve
      toolwire serve --model anthropic/claude-sonnet-4-5
      toolwire serve --port 4010 --record-bodies
    """
    with report_bad_input():
        from msgspec.structs import replace

        from toolwire.cli.output.terminal import end_interrupted_line, print_line
        from toolwire.gateway.config import load_config, override_journal, override_server
        from toolwire.gateway.server.launch import CLIENT_COMMANDS, run_gateway

        if attached:
            threading.Thread(target=_stop_at_end_of_stdin, daemon=True).start()

        def load() -> "LoadedConfig":
            """Read the configuration files, with the options of the command line above them."""
            loaded = load_config(config_path)
            config = override_journal(override_server(loaded.config, host, port), record=record, bodies=record_bodies)
            return replace(loaded, config=config)

        def echo(text: str) -> None:
            """Print the start-up message: wrapped on a terminal, otherwise in one write, since programs wait for it."""
            if not sys.stderr.isatty():
                click.echo(text, err=True)
                return
            notes, commands_title, commands = text.partition(CLIENT_COMMANDS)
            for line in f"{notes}{commands_title}".splitlines():
                print_line(line, indent=4, err=True)
            if commands:
                click.echo(commands.lstrip("\n"), err=True)  # not wrapped, so that they can be copied

        exit_code = run_gateway(load, default_model(model), workers, echo)
        end_interrupted_line()
    sys.exit(exit_code)


def _stop_at_end_of_stdin() -> None:
    """Stop the gateway when the process that started it ends, which closes stdin."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
