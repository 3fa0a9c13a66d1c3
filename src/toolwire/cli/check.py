"""`toolwire check`: report why a provider would reject a request."""

import click

import toolwire
from toolwire.cli.inputs import parse_protocol, read_stdin, report_bad_input

EXIT_REJECTED = 1


@click.command("check", short_help="Check whether a provider would reject a request.")
@click.option(
    "--protocol", "name", type=parse_protocol, required=True, metavar="P", help="The protocol of the request."
)
def command(name: str) -> None:
    """Check whether a provider would reject the request on stdin, without sending it.

    Prints one finding per line: level, rule, path, and the provider's message. Exits with 1 if the request would be
    rejected. Otherwise prints "ok", after any warnings, and exits with 0.

    \b
    Example:
      toolwire check --protocol anthropic < request.json
    """
    with report_bad_input():
        findings = toolwire.check(read_stdin(), name)
    for finding in findings:
        line = f"{finding.level} {finding.rule} {finding.path or 'body'}: {finding.message}"
        click.echo(" ".join(line.split()))
    if any(finding.level == "error" for finding in findings):
        raise SystemExit(EXIT_REJECTED)
    click.echo("ok")
