"""Input of commands: protocol names, the configuration, the body on stdin, and the error for bad input."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

import toolwire

_Function = TypeVar("_Function", bound=Callable[..., Any])


class BadInput(click.ClickException):
    """An input error, printed as one line on stderr; the exit code is 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class NumberOption(click.Option):
    """A numeric option, whose range stands in the error for a number outside of it, not in the help text."""

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return what the help text states besides the description."""
        return {name: value for name, value in super().get_help_extra(ctx).items() if name != "range"}


class NameChoice(click.Choice[str]):
    """A choice whose error suggests the nearest names."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if it is one of the choices."""
        from toolwire.codec.suggestions import unknown_name

        if value not in self.choices:
            kind = "name" if param is None else param.make_metavar(ctx or click.Context(click.Command(None))).lower()
            raise BadInput(unknown_name(kind, str(value), self.choices))
        return super().convert(value, param, ctx)


def parse_protocol(name: str) -> str:
    """Return `name` if a protocol of that name is installed, else raise `BadInput`."""
    # Not `click.Choice`, which needs the names when the command is declared: that would import every codec.
    from toolwire.codec.suggestions import unknown_name
    from toolwire.protocols import PROTOCOLS

    if name not in PROTOCOLS:
        raise BadInput(unknown_name("protocol", name, PROTOCOLS))
    return name


def read_stdin() -> bytes:
    """Read all of stdin as bytes."""
    if sys.stdin is None or sys.stdin.closed:
        raise BadInput("stdin is closed: pass the body on stdin")
    if sys.stdin.isatty():
        click.echo("reading the body from the terminal: end it with Ctrl-D", err=True)
    return sys.stdin.buffer.read()


@contextmanager
def report_bad_input() -> Iterator[None]:
    """Turn a `ToolwireError` into `BadInput`."""
    try:
        yield
    except toolwire.ToolwireError as error:
        raise BadInput(str(error)) from error


def config_option(function: _Function) -> _Function:
    """Add the option that names a configuration file, as `config_path`."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Read only this file. Default: toolwire.toml over the user's file.",
    )(function)


def default_model(option: str | None) -> str | None:
    """Return the model of `--model`, or else of `TOOLWIRE_MODEL`."""
    return option or os.environ.get("TOOLWIRE_MODEL") or None
