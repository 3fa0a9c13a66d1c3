"""`toolwire keys`: create keys for clients of the gateway."""

import re

import click

from toolwire.cli.groups import CommandGroup
from toolwire.cli.inputs import BadInput, report_bad_input
from toolwire.cli.output.terminal import json_option, print_json, print_line

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@click.group("keys", cls=CommandGroup, short_help="Create keys for clients of the gateway.")
def command() -> None:
    """Create keys for clients of the gateway.

    A key is a table [keys.NAME] of the configuration, which holds the hash of its secret. To revoke a key, delete the
    table, run `toolwire config trust`, and restart the gateway or send it SIGHUP. To renew it, replace the hash in the
    same way; what is stored for the key remains.

    \b
    Examples:
      toolwire keys create alice
    """


@command.command("create")
@click.argument("name")
@click.option("--admin", is_flag=True, help="The key may see the exchanges of all keys, and /metrics.")
@json_option("Print one JSON object.")
def create(name: str, *, admin: bool, as_json: bool) -> None:
    """Create a secret, and print it once with the table for the configuration.

    The secret is stored nowhere: give it to the client, who uses it as API key. The table holds only its hash.

    \b
    Examples:
      toolwire keys create alice
      toolwire keys create grafana --admin
    """
    with report_bad_input():
        if not _NAME.fullmatch(name):
            raise BadInput(f"invalid name {name!r}: use up to 64 letters, digits, - and _")
    from toolwire.gateway.keys.client_key import create_secret, hash_secret

    secret = create_secret()
    digest = hash_secret(secret)
    if as_json:
        print_json({"name": name, "secret": secret, "hash": digest, "admin": admin})
        return
    print_line(("the secret, shown only this once:", "muted"), err=True)
    click.echo(secret)
    print_line(("add to toolwire.toml, with the limits that you want:", "muted"), err=True)
    lines = [
        f"[keys.{name}]",
        f'hash = "{digest}"',
        *(["admin = true"] if admin else []),
        '# models = ["openai/gpt-5*"]    # by default all',
        "# requests_per_minute = 60",
        "# dollars_per_month = 50",
    ]
    click.echo("\n" + "\n".join(lines))
