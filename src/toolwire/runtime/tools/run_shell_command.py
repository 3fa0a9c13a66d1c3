"""The `run_shell_command` tool, and a parser that splits a shell line into simple commands for policy rules.

The parser only returns what it is sure of. Substitutions, variables, redirections to files, functions, control
structures and `eval` make the result None: such a line can run anything.
"""

import os
import re
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from toolwire.canonical.content import Text
from toolwire.runtime.native_forms import SHELL_FORMS
from toolwire.runtime.sandbox.bubblewrap import Sandbox, child_environment
from toolwire.runtime.sandbox.process import CommandLimits, ProcessResult, run_process
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput
from toolwire.runtime.tools.workspace import Workspace, object_schema, string_schema

_OPAQUE_WORDS = frozenset(
    {
        *("eval", "source", ".", "exec", "command", "builtin", "trap", "alias", "unalias", "enable", "hash", "bind"),
        *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in", "select"),
        *("function", "coproc", "time", "{", "}", "!", "[[", "]]"),
    }
)
_HARMLESS_REDIRECTION = re.compile(
    r"(?:[0-9]*>>?|&>>?|[0-9]*<)[ \t]*/dev/null(?=[\s;&|)]|$)|[0-9]*[<>]&(?:[0-9]+|-)(?=[\s;&|)]|$)"
)
_SEPARATOR = re.compile(r"&&|\|\||\|&|[;&|\n]")
_ASSIGNMENT = re.compile(r"\w+\+?=")
_EXPANSION = re.compile(r"[*?\[{~]")
_PLAIN_CHARACTERS = re.compile(r"[^\s'\"\\$`;&|<>()#]+")


def parse_simple_commands(line: str) -> list[str] | None:
    """Return the simple commands of a line, with normalized spaces and quotes; None if they can't be known."""
    if "\0" in line:
        return None
    return _CommandParser(line).parse()


class _UnknownCommand(Exception):
    """The line runs something that it does not spell out."""


class _CommandParser:
    """Parses one shell line."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._position = 0
        self._depth = 0
        self._commands = list[str]()
        self._words = list[str]()

    def parse(self) -> list[str] | None:
        """Return the commands of the line, or None if they can't be known."""
        try:
            while self._position < len(self._line):
                self._parse_token()
            self._end_command()
        except _UnknownCommand:
            return None
        return None if self._depth else self._commands

    def _parse_token(self) -> None:
        """Consume a separator, comment, redirection, parenthesis or word of the line."""
        line, position = self._line, self._position
        character = line[position]
        if character in " \t":
            self._position += 1
        elif line.startswith("\\\n", position):
            self._position += 2
        elif character == "#":
            end = line.find("\n", position)
            self._position = len(line) if end < 0 else end
        elif (redirection := _HARMLESS_REDIRECTION.match(line, position)) is not None:
            self._position = redirection.end()
        elif (separator := _SEPARATOR.match(line, position)) is not None:
            self._end_command()
            self._position = separator.end()
        elif character == "(":
            # Elsewhere, a parenthesis begins a function, a pattern or an arithmetic expression.
            if self._words or line.startswith("((", position):
                raise _UnknownCommand
            self._depth += 1
            self._position += 1
        elif character == ")":
            if not self._depth:
                raise _UnknownCommand
            self._end_command()
            self._depth -= 1
            self._position += 1
        else:
            self._words.append(self._parse_word())

    def _end_command(self) -> None:
        """Finish the current command; raise `_UnknownCommand` if it runs something not spelled out."""
        if not self._words:
            return
        command = next((word for word in self._words if not _ASSIGNMENT.match(word)), "")
        # A glob as the name of the command would run whatever matches it.
        if command in _OPAQUE_WORDS or (_EXPANSION.search(command) and not command.startswith("'")):
            raise _UnknownCommand
        self._commands.append(" ".join(self._words))
        self._words = []

    def _parse_word(self) -> str:
        """Consume a word, and return it quoted if necessary."""
        start, parts, quoted, expanded = self._position, list[str](), False, False
        while self._position < len(self._line):
            character = self._line[self._position]
            if (plain := _PLAIN_CHARACTERS.match(self._line, self._position)) is not None:
                parts.append(plain[0])
                expanded = expanded or _EXPANSION.search(plain[0]) is not None
                self._position = plain.end()
            elif character == "#" and self._position > start:
                parts.append(character)
                self._position += 1
            elif character in "'\"\\":
                quoted = True
                parts.append(self._parse_quoted(character))
            elif character in " \t\n;&|)" or _HARMLESS_REDIRECTION.match(self._line, self._position):
                break
            else:  # $ ` < > ( and anything else that a shell interprets
                raise _UnknownCommand
        word = "".join(parts)
        if not quoted:
            return word
        if expanded:
            # Quoting the word would change its meaning.
            raise _UnknownCommand
        return shlex.quote(word)

    def _parse_quoted(self, quote: str) -> str:
        """Consume a quoted part or an escaped character, and return its text."""
        line = self._line
        if quote == "\\":
            if self._position + 1 >= len(line):
                raise _UnknownCommand
            self._position += 2
            return "" if line[self._position - 1] == "\n" else line[self._position - 1]
        if quote == "'":
            end = line.find("'", self._position + 1)
            if end < 0:
                raise _UnknownCommand
            text = line[self._position + 1 : end]
            self._position = end + 1
            return text
        return self._parse_double_quoted()

    def _parse_double_quoted(self) -> str:
        """Consume a double-quoted part, and return its text."""
        characters, position = list[str](), self._position + 1
        while position < len(self._line) and self._line[position] != '"':
            character = self._line[position]
            if character in "$`":
                raise _UnknownCommand
            if character == "\\" and self._line[position + 1 : position + 2] in ("\\", '"', "$", "`", "\n"):
                position += 1
                character = "" if self._line[position] == "\n" else self._line[position]
            characters.append(character)
            position += 1
        if position >= len(self._line):
            raise _UnknownCommand
        self._position = position + 1
        return "".join(characters)


MAX_COMMAND_BYTES = 100_000
"""Linux limits one argument to 128 KiB."""


class ShellOptions(Struct, frozen=True, kw_only=True):
    """The settings of shell commands."""

    sandbox: Sandbox
    limits: CommandLimits = CommandLimits()
    network: bool = False
    hidden: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    protected: Sequence[Path] = ()
    # Variables added to those that are passed on from this process.
    environment: Mapping[str, str] = {}

    async def run(self, workspace: Path, directory: Path, command: str, context: ToolContext) -> ProcessResult:
        """Run a command in the sandbox, or without one if it is not available."""
        environment = child_environment(os.environ, self.environment)
        shell_command = [_shell_path(), "-c", command]
        if self.sandbox.unavailable_reason:
            command_line = self.limits.wrap_command(shell_command, limit_processes=False)
        else:
            command_line = self.sandbox.wrap_command(
                shell_command,
                workspace=workspace,
                directory=directory,
                limits=self.limits,
                environment=os.environ,
                network=self.network,
                hidden=self.hidden,
                readable=self.readable,
                protected=self.protected,
            )
        return await run_process(
            command_line,
            environment=environment,
            limits=self.limits,
            directory=directory if self.sandbox.unavailable_reason else None,
            namespaced=not self.sandbox.unavailable_reason,
            report_progress=context.report_progress,
        )


def _shell_path() -> str:
    """Return the path of bash, or of sh if there is no bash."""
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")


def shell_tools(workspace: Workspace, options: ShellOptions) -> list[Tool]:
    """Return the `run_shell_command` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
        """Run the command in the sandbox."""
        return await _run_command(workspace, options, context, **arguments)

    unsandboxed_reason = options.sandbox.unavailable_reason
    needs_human = bool(unsandboxed_reason) and not options.sandbox.is_waived
    network_note = "with network access" if options.network or unsandboxed_reason else "without network access"
    tool = Tool(
        name="run_shell_command",
        run=run,
        description=f"Runs a shell command in the workspace ({workspace.root}), {network_note}, and returns its output."
        f" It is stopped after {options.limits.seconds:g} seconds. Background processes end with it.",
        parameters=object_schema(
            ("command",),
            command=string_schema("The command, as passed to bash -c."),
            directory=string_schema("The directory to run it in, relative to the workspace. Default: the workspace."),
            description=string_schema("A short description of the command, for the user who approves it."),
        ),
        annotations=Annotations(destructive=True, open_world=options.network or bool(unsandboxed_reason)),
        locus="local" if unsandboxed_reason else "sandbox",
        source="built-in",
        # The command's own timeout comes first, so that its output so far is returned.
        timeout=options.limits.seconds + 15,
        retries=0,
        resources=lambda _: None,
        subcalls=_subcalls,
        approval_reason=lambda _: f"it is not sandboxed: {unsandboxed_reason}" if needs_human else None,
        requires_human=lambda _: needs_human,
        native_forms=SHELL_FORMS,
    )
    return [tool]


def _subcalls(arguments: Arguments) -> Sequence[Arguments] | None:
    """Return one call per simple command of the line, for the policy; None if they can't be known."""
    commands = parse_simple_commands(arguments["command"])
    return None if commands is None else [{**arguments, "command": command} for command in commands]


async def _run_command(
    workspace: Workspace,
    options: ShellOptions,
    context: ToolContext,
    *,
    command: str,
    directory: str | None = None,
    description: str | None = None,
) -> ToolOutput:
    """Run a command and return its output, errors and exit code."""
    if "\0" in command or len(command.encode("utf-8", "replace")) > MAX_COMMAND_BYTES:
        raise ToolError(f"the command contains a NUL character or is longer than {MAX_COMMAND_BYTES} bytes", "command")
    with workspace.open_directory(directory or ".") as opened:
        working_directory = workspace.root.joinpath(*opened.parts)
    absent_paths = _absent_paths(options.protected, workspace.root)
    try:
        result = await options.run(workspace.root, working_directory, command, context)
    finally:
        notes = list(_move_aside(absent_paths))
    if result.stop_reason:
        notes.insert(0, f"[stopped: {result.stop_reason}; all its processes were killed]")
    error = "\n".join(filter(None, [result.error.rstrip("\n"), *notes]))
    text = (
        f"Command: {command}\nDirectory: {directory or '(root)'}\nOutput: {result.output.rstrip(chr(10))}\n"
        f"Error: {error or '(none)'}\nExit Code: {result.exit_code}"
    )
    return ToolOutput(content=(Text(text=text),), is_error=bool(result.stop_reason), error_kind=result.error_kind)


def _absent_paths(paths: Sequence[Path], root: Path) -> list[Path]:
    """Return the protected paths of the workspace that do not exist."""
    return [path for path in paths if root in path.parents and not os.path.lexists(path)]


def _move_aside(paths: Sequence[Path]) -> Iterator[str]:
    """Rename protected files that a command created, and yield a note on each for the model.

    The user's programs would obey these files. Their creation can't be prevented: a mount on a missing name would be
    visible to git as a new file.
    """
    for path in paths:
        new_path = path.with_name(f"{path.name}.made-by-a-command-{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            path.rename(new_path)
            yield f"[{path.name} is the user's configuration: the file created there was renamed to {new_path.name}]"
