"""`toolwire init`: write a first configuration file."""

import os
import secrets
from pathlib import Path

import click

from toolwire.cli.inputs import BadInput, report_bad_input
from toolwire.cli.output.terminal import print_line, show_progress


@click.command("init", short_help="Write a first configuration file.")
@click.option("--user", is_flag=True, help="Write the user's file, which applies in every folder.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(*, user: bool, force: bool) -> None:
    """Write a toolwire.toml with the providers found in the environment.

    These are the providers with a key in the environment, and Ollama if it answers. Keys are written as env:NAME; no
    secret is in the file. The new file is trusted.

    \b
    Examples:
      toolwire init
      toolwire init --user
    """
    import asyncio

    from toolwire.gateway.config import PROJECT_FILE, state_directory, user_file
    from toolwire.gateway.config.template import render_template
    from toolwire.gateway.config.trust import TrustRecords
    from toolwire.gateway.providers.known_providers import KEY_VARIABLES
    from toolwire.gateway.providers.reachability import find_providers

    path = user_file(os.environ) if user else PROJECT_FILE
    if not force and os.path.lexists(path):
        raise BadInput(f"{path} exists; --force replaces it")
    with show_progress("looking for providers"):
        providers, silent = asyncio.run(find_providers(os.environ))
    text = render_template(providers.values(), KEY_VARIABLES)
    with report_bad_input():
        _write_file(path, text, force=force, private=user)
        if not user:
            TrustRecords(state_directory(os.environ)).add(path, text)
    for note in silent:
        print_line(note, err=True)
    print_line(f"wrote {path}")
    width = max(map(len, providers), default=0)
    for name, provider in providers.items():
        print_line(f"  {name:{width}}  {KEY_VARIABLES[name] if provider.api_key else provider.base_url}")
    if not providers:
        names = ", ".join(dict.fromkeys(KEY_VARIABLES.values()))
        print_line(f"no provider found: edit the file, or use --force after setting one of {names}", indent=2)
    print_line("next:")
    for example, meaning in (
        ("toolwire doctor", "check the keys and the providers"),
        ("toolwire serve", "run the gateway"),
        ('toolwire ask "what is in this folder?"', "run an agent here"),
    ):
        print_line(f"  {example:40} {meaning}")
    if not user:
        print_line("After you edit the file, trust it again: toolwire config trust")


def _write_file(path: Path, text: str, *, force: bool, private: bool) -> None:
    """Write a new file, or replace one atomically; raise `BadInput` if that is not possible."""
    target = path.with_name(f".{path.name}.{secrets.token_hex(8)}") if force else path
    try:
        if private:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if force:
            target.replace(path)
    except OSError as error:
        raise BadInput(f"can't write {path}: {error.strerror}") from None
