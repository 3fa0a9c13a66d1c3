"""`toolwire translate`: translate a body or a stream from one protocol to another."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import toolwire
from toolwire.cli.inputs import BadInput, read_stdin, report_bad_input
from toolwire.cli.output.terminal import SEVERITY_STYLES, print_line
from toolwire.cli.values import PROTOCOL

if TYPE_CHECKING:
    from toolwire.canonical.errors import Loss

EXIT_REFUSED = 3


@click.command("translate", short_help="Translate a body or a stream from stdin to stdout.")
@click.option("--from", "source", type=PROTOCOL, required=True, metavar="P", help="The input's protocol.")
@click.option("--to", "target", type=PROTOCOL, required=True, metavar="P", help="The output's protocol.")
@click.option(
    "--kind",
    type=click.Choice(["request", "response", "stream", "error"]),
    default="request",
    help="Kind of input. Default: request.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Write the losses to this file as JSON, not to stderr.",
)
@click.option(
    "--strict",
    type=click.Choice(["warning", "error"]),
    is_flag=False,
    flag_value="warning",
    help="Fail on any loss but info, with exit code 3 and nothing on stdout; with --strict=error, on errors only.",
)
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
@click.option(
    "--cache",
    type=click.Choice(["auto", "off"]),
    help="Add the marks or the key that the target's prompt cache needs, as the gateway does. Default: off.",
)
@click.option(
    "--previous",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="The previous request of the conversation: estimate how much could be read from the prompt cache.",
)
def command(
    *,
    source: str,
    target: str,
    kind: str,
    report: Path | None,
    strict: str | None,
    model: str | None,
    hosted_tools: str | None,
    binary_results: str | None,
    cache: str | None,
    previous: Path | None,
) -> None:
    """Translate a body or a stream from stdin to stdout.

    Losses are listed on stderr, one per line with severity and path in the input, or written as JSON with --report.
    Those of severity info, which are of no consequence, are only counted on stderr. See `toolwire protocols` for the
    names of protocols.

    \b
    Examples:
      toolwire translate --from anthropic --to openai-chat < request.json
      toolwire translate --from gemini --to anthropic --kind stream < answer.sse
    """
    option_values = {"model": model, "hosted_tools": hosted_tools, "binary_results": binary_results, "cache": cache}
    options = {name: value for name, value in option_values.items() if value is not None}
    if previous is not None and kind != "request":
        raise BadInput(f"--previous can't be used with --kind {kind}")
    if kind == "stream" and options:
        flags = ", ".join("--" + name.replace("_", "-") for name in options)
        raise BadInput(f"{flags} can't be used with --kind stream")
    with report_bad_input():
        strictness = strict == "warning" or strict or False
        body = read_stdin()
        _check_contents(body, source, kind)
        output, losses = _translate(body, source, target, kind, {"strict": strictness, **options})
    if report is not None:
        _write_report(losses, report)
    if output is None:
        print_line(("Refused:", "problem"), f" translating to {target} would lose this:", err=True)
    if output is None or report is None:
        _print_losses(losses)
    if output is None:
        raise SystemExit(EXIT_REFUSED)
    if previous is not None:
        with report_bad_input():
            _print_cache_share(output, previous.read_bytes(), source, target, options)
    # Flush here, so that click can still handle a closed pipe quietly.
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()


def _check_contents(body: bytes, source: str, kind: str) -> None:
    """Raise `BadInput` for a body without anything to translate, as one of another protocol or kind."""
    from toolwire.codec.interface import ResponseContext, Route
    from toolwire.protocols import PROTOCOLS

    codec, is_empty = PROTOCOLS[source], False
    with contextlib.suppress(toolwire.ToolwireError):  # the translation reports what it can't repair
        if kind == "request":
            request = codec.decode_request(body, Route())
            # A stored prompt or conversation can take the place of messages.
            is_empty = not request.messages and request.continuation is None and b'"prompt"' not in body
        elif kind == "response":
            response = codec.decode_response(body, ResponseContext())
            is_empty = not response.candidates and response.error is None
    if is_empty:
        missing = "messages" if kind == "request" else "answer"
        raise BadInput(f"the body has no {missing}: is it a {kind} of {source}? --from and --kind describe the input")


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
    from toolwire.translation.body import refused_losses

    if stream.broken and stream.error is not None:
        raise BadInput(stream.error.message)
    refused = refused_losses(stream.losses, strict=options["strict"])
    return (None, refused) if refused else (output, stream.losses)


def _print_cache_share(output: bytes, previous: bytes, source: str, target: str, options: dict[str, Any]) -> None:
    """Print how much of the translated request could be read from the cache after the previous request."""
    from toolwire.protocols import PROTOCOLS
    from toolwire.translation.cache_share import estimate_cache_share

    earlier = toolwire.translate(previous, source=source, target=target, **options).to_bytes()
    share = estimate_cache_share(output, [earlier], PROTOCOLS[target])
    tokens = f"{share.readable_tokens} of about {share.tokens} tokens"
    click.echo(f"could be read from the prompt cache: {tokens} ({share.share:.0%})", err=True)


def _print_losses(losses: "Sequence[Loss]") -> None:
    """Print each loss with severity and path, and the number of those of no consequence."""
    counted = [loss for loss in losses if loss.severity != "info"]
    for loss in counted:
        print_line(
            (loss.severity, SEVERITY_STYLES[loss.severity]), str(loss).removeprefix(loss.severity), indent=2, err=True
        )
    if (others := len(losses) - len(counted)) > 0:
        print_line((f"info: {others} more of no consequence (--report lists them)", "muted"), err=True)


def _write_report(losses: "Sequence[Loss]", report: Path) -> None:
    """Write the losses as a JSON list."""
    import msgspec

    encoded = msgspec.json.encode([msgspec.structs.asdict(loss) for loss in losses])
    try:
        report.write_bytes(msgspec.json.format(encoded, indent=2) + b"\n")
    except OSError as error:
        raise BadInput(f"can't write {report}: {error.strerror}") from error
