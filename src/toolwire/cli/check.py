"""`toolwire check`: report why a provider would reject a request."""

import click

import toolwire
from toolwire.cli.inputs import read_stdin, report_bad_input
from toolwire.cli.output.terminal import Style, json_option, print_json, print_line
from toolwire.cli.values import PROTOCOL

EXIT_REJECTED = 1
_LEVEL_STYLES: dict[str, Style] = {"error": "problem", "warning": "warning"}


@click.command("check", short_help="Check whether a provider would reject a request.")
@click.option("--protocol", "name", type=PROTOCOL, required=True, metavar="P", help="The protocol of the request.")
@json_option()
def command(name: str, *, as_json: bool) -> None:
    """Check whether a provider would reject the request on stdin, without sending it.

    Prints one finding per line: level, rule, path, and the provider's message; and "ok" if the request would not be
    rejected. Exit code 1: it would be rejected.

    \b
    Examples:
      toolwire check --protocol anthropic < request.json
      toolwire check --protocol openai-chat --json < request.json
    """
    with report_bad_input():
        findings = toolwire.check(read_stdin(), name)
    is_rejected = any(finding.level == "error" for finding in findings)
    if as_json:
        fields = ("level", "rule", "path", "message")
        listed = [{field: getattr(finding, field) for field in fields} for finding in findings]
        print_json({"ok": not is_rejected, "findings": listed})
    else:
        for finding in findings:
            text = " ".join(f"{finding.rule} {finding.path or 'body'}: {finding.message}".split())
            print_line((finding.level, _LEVEL_STYLES[finding.level]), f" {text}", indent=2)
        if not is_rejected:
            print_line(("ok", "good"))
    if is_rejected:
        raise SystemExit(EXIT_REJECTED)
