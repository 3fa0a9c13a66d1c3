"""How commands read: protocol names, the body on stdin, and one line for what is no good."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

import toolwire


class BadInput(click.ClickException):
    """One line on stderr, whatever the message holds, and exit code 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def parse_protocol(name: str) -> str:
    # Not `click.Choice`: it wants the names when the command is declared, and they come with every codec.
    from toolwire.protocols import PROTOCOLS

    if name not in PROTOCOLS:
        raise BadInput(f"unknown protocol {name!r}: choose from {', '.join(PROTOCOLS)}")
    return name


def read_stdin() -> bytes:
    return sys.stdin.buffer.read()


@contextmanager
def report_bad_input() -> Iterator[None]:
    """Answer what toolwire can't read as `BadInput`."""
    try:
        yield
    except toolwire.ToolwireError as error:
        raise BadInput(str(error)) from error


@contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Say what to install where a part's own packages are not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise BadInput(f"{error.name} is not installed: pip install 'toolwire[{extra}]'") from error


DEFAULT_CONFIG = Path("toolwire.toml")
