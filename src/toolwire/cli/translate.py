"""`toolwire translate`: translate a body or a stream from one protocol to another."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import toolwire
from toolwire.cli.inputs import BadInput, parse_protocol, read_stdin, report_bad_input

if TYPE_CHECKING:
    from toolwire.canonical.errors import Loss

EXIT_REFUSED = 3


@click.command("translate", short_help="Translate a body or a stream from stdin to stdout.")
@click.option("--from", "source", type=parse_protocol, required=True, metavar="P", help="The input's protocol.")
@click.option("--to", "target", type=parse_protocol, required=True, metavar="P", help="The output's protocol.")
@click.option(
    "--kind",
    type=click.Choice(["request", "response", "stream", "error"]),
    default="request",
    show_default=True,
    help="Kind of input.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Write the losses to this file as JSON, not to stderr.",
)
@click.option("--strict", is_flag=True, help="On any loss, exit with 3 and write nothing to stdout.")
@click.option("--model", metavar="M", help="The model, for protocols that have it in the URL.")
@click.option(
    "--hosted-tools",
    type=click.Choice(["drop", "function", "refuse"]),
    help="Treatment of tools that only the source's provider can run.",
)
@click.option(
    "--binary-results",
    type=click.Choice(["native", "summary"]),
    help="Images and files in tool results: translate them, or replace them with a line of text.",
)
def command(
    *,
    source: str,
    target: str,
    kind: str,
    report: Path | None,
    strict: bool,
    model: str | None,
    hosted_tools: str | None,
    binary_results: str | None,
) -> None:
    """Translate a body or a stream from stdin to stdout.

    Losses are listed on stderr, one per line with the path in the input, or written as JSON with --report. See
    `toolwire protocols` for the names of protocols.

    \b
    Example:
      toolwire translate --from anthropic --to openai-chat < request.json
      toolwire translate --from openai-chat --to anthropic --kind stream < answer.sse
    """
    option_values = {"model": model, "hosted_tools": hosted_tools, "binary_results": binary_results}
    options = {name: value for name, value in option_values.items() if value is not None}
    if kind == "stream" and options:
        flags = ", ".join("--" + name.replace("_", "-") for name in options)
        raise BadInput(f"{flags} can't be used with --kind stream")
    with report_bad_input():
        output, losses = _translate(read_stdin(), source, target, kind, {"strict": strict, **options})
    if report is not None:
        _write_report(losses, report)
    if output is None:
        click.echo(f"Refused: translating to {target} would lose this:", err=True)
    if output is None or report is None:
        _print_losses(losses)
    if output is None:
        raise SystemExit(EXIT_REFUSED)
    # Flush here, so that click can still handle a closed pipe quietly.
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()


def _translate(
    body: bytes, source: str, target: str, kind: Any, options: dict[str, Any]
) -> tuple[bytes | None, "Sequence[Loss]"]:
    """Return the translated body and its losses; None instead of the body if the losses are refused."""
    try:
        if kind != "stream":
            encoded = toolwire.translate(body, source=source, target=target, kind=kind, **options)
            return encoded.to_bytes() + b"\n", encoded.losses
        stream = toolwire.translate_stream([body], source=source, target=target)
        # Translate everything before the first byte is written: a bad stream must leave nothing on stdout.
        output = b"".join(stream)
    except toolwire.LossyTranslationError as refusal:
        return None, refusal.losses
    if stream.broken and stream.error is not None:
        raise BadInput(stream.error.message)
    refused = options["strict"] and stream.losses
    return None if refused else output, stream.losses


def _print_losses(losses: "Sequence[Loss]") -> None:
    """Print each loss with its path."""
    for loss in losses:
        path = loss.path or "body"
        if loss.target is not None:
            path = f"{path} -> {loss.target}"
        click.echo(" ".join(f"{loss.kind} {path}: {loss.reason}".split()), err=True)


def _write_report(losses: "Sequence[Loss]", report: Path) -> None:
    """Write the losses as a JSON list."""
    import msgspec

    encoded = msgspec.json.encode([msgspec.structs.asdict(loss) for loss in losses])
    try:
        report.write_bytes(msgspec.json.format(encoded, indent=2) + b"\n")
    except OSError as error:
        raise BadInput(f"can't write {report}: {error.strerror}") from error
