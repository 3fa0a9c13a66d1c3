"""Groups of commands: complete help texts, and user errors in one line, never as a traceback."""

import errno
import io
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from toolwire.cli.output.terminal import print_error

PROGRAM = "toolwire"
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class CommandGroup(click.Group):
    """A group that lists its commands with their full summaries, which click would truncate."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names of all commands, in the order of their definition."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the nearest ones."""
        name, names = args[0] if args else "", self.list_commands(ctx)
        if name and not name.startswith("-") and name not in names:
            from toolwire.codec.suggestions import suggest

            ctx.fail(f"unknown command {name!r}: {suggest(name, names, 'expected one of ' + ', '.join(names))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries of all commands."""
        self.write_section(ctx, formatter, "Commands", self.list_commands(ctx))

    def write_section(self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: list[str]) -> None:
        """Write the summaries of some commands under a title."""
        commands = [(name, self.get_command(ctx, name)) for name in names]
        rows = [(name, found.get_short_help_str(limit=1000)) for name, found in commands if found is not None]
        with formatter.section(title):
            formatter.write_dl(rows)


class MainGroup(CommandGroup):
    """The group of all commands, each in a module that is imported only when the command is used or listed."""

    def __init__(self, *arguments: Any, sections: dict[str, tuple[str, ...]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sections = sections
        self._names = [name for names in sections.values() for name in names]

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the sections."""
        return self._names

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """Import and return the command `name`, or None if there is no such command."""
        if name not in self._names:
            return None
        command: click.Command = import_module(f".{name}", "toolwire.cli").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each section."""
        for title, names in self._sections.items():
            self.write_section(ctx, formatter, title, list(names))

    # The entry point and `click.testing.CliRunner` need only this form.
    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        *,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **options: Any,
    ) -> Any:
        """Run the command line, and exit with its code; a mistake of the user is one line on stderr.

        Usage texts name the program `toolwire`, however it was started.
        """
        if not standalone_mode:
            return super().main(args, PROGRAM, standalone_mode=False, **options)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
                stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 shows escapes
        try:
            code = super().main(args, PROGRAM, standalone_mode=False, **options)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.message, err=True)
            sys.exit(EXIT_BAD_INPUT)
        except click.ClickException as error:
            print_error(_describe_error(error))
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(EXIT_INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            print_error(describe_os_error(error))
            sys.exit(EXIT_BAD_INPUT)
        sys.exit(code if isinstance(code, int) else 0)


def _describe_error(error: click.ClickException) -> str:
    """Return the message of an error, with the command whose help explains the usage."""
    message = error.format_message()
    if not isinstance(error, click.UsageError):
        return message
    if isinstance(error, click.NoSuchOption):
        from toolwire.codec.suggestions import suggest

        suggestion = suggest(error.option_name, error.possibilities or ())
        message = f"unknown option {error.option_name!r}{suggestion and f' ({suggestion})'}"
    message = f"{message[:1].lower()}{message[1:]}".rstrip(".")
    message = message.replace("a valid integer range", "an integer").replace("a valid float range", "a number")
    message = re.sub(r"is not in the range (\S+?)<=x<=(\S+)", r"is not between \1 and \2", message)
    message = re.sub(r"is not in the range x>=(\S+)", r"is less than \1", message)
    return message if error.ctx is None else f"{message} (see `{error.ctx.command_path} --help`)"


def describe_os_error(error: OSError) -> str:
    """Return what the system refused, and for which file."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason
