"""`toolwire check`: what a provider would say to a request."""

import click

import toolwire
from toolwire.cli.inputs import parse_protocol, read_stdin, report_bad_input

EXIT_REJECTED = 1


@click.command("check", short_help="Say whether a provider would reject the request on stdin.")
@click.option(
    "--protocol", "name", type=parse_protocol, required=True, metavar="P", help="The protocol of the request."
)
def command(name: str) -> None:
    """Say whether a provider would reject the request on stdin, without asking it.

    Prints one finding a line: level, rule, place, and what the provider would say. Exit 1 if it would
    reject the request; otherwise "ok" and exit 0, after findings that are only warnings.

    \b
    Example:
      toolwire check --protocol anthropic < request.json
    """
    with report_bad_input():
        findings = toolwire.check(read_stdin(), name)
    for finding in findings:
        line = f"{finding.level} {finding.rule} {finding.path or 'the body'}: {finding.message}"
        click.echo(" ".join(line.split()))
    if any(finding.level == "error" for finding in findings):
        raise SystemExit(EXIT_REJECTED)
    click.echo("ok")
