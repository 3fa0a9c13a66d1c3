"""Which simple commands a shell line runs, for rules that allow some of them.

It answers only what it is sure of. Whatever runs or names something that the line does not spell out (substitutions,
variables, redirections to files, functions, control structures, `eval`) makes the answer None: nobody can tell.

`run_shell_command`.
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
from toolwire.runtime.sandbox.bubblewrap import Sandbox, child_environment
from toolwire.runtime.sandbox.process import CommandLimits, ProcessResult, run_process
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput
from toolwire.runtime.tools.schema import object_schema, string_schema
from toolwire.runtime.tools.workspace import Workspace

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
    """Each with one space between its words; a word that was quoted is quoted anew where that is needed."""
    if "\0" in line:
        return None
    return _CommandParser(line).parse()


class _UnknownCommand(Exception):
    pass


class _CommandParser:
    def __init__(self, line: str) -> None:
        self._line = line
        self._position = 0
        self._depth = 0
        self._commands = list[str]()
        self._words = list[str]()

    def parse(self) -> list[str] | None:
        try:
            while self._position < len(self._line):
                self._parse_token()
            self._end_command()
        except _UnknownCommand:
            return None
        return None if self._depth else self._commands

    def _parse_token(self) -> None:
        line, at = self._line, self._position
        one = line[at]
        if one in " \t":
            self._position += 1
        elif line.startswith("\\\n", at):
            self._position += 2
        elif one == "#":
            end = line.find("\n", at)
            self._position = len(line) if end < 0 else end
        elif (harmless := _HARMLESS_REDIRECTION.match(line, at)) is not None:
            self._position = harmless.end()
        elif (separator := _SEPARATOR.match(line, at)) is not None:
            self._end_command()
            self._position = separator.end()
        elif one == "(":
            # Elsewhere it makes a function, a pattern or a sum.
            if self._words or line.startswith("((", at):
                raise _UnknownCommand
            self._depth += 1
            self._position += 1
        elif one == ")":
            if not self._depth:
                raise _UnknownCommand
            self._end_command()
            self._depth -= 1
            self._position += 1
        else:
            self._words.append(self._parse_word())

    def _end_command(self) -> None:
        if not self._words:
            return
        command = next((word for word in self._words if not _ASSIGNMENT.match(word)), "")
        # A pattern for the command's own name runs whatever matches it.
        if command in _OPAQUE_WORDS or (_EXPANSION.search(command) and not command.startswith("'")):
            raise _UnknownCommand
        self._commands.append(" ".join(self._words))
        self._words = []

    def _parse_word(self) -> str:
        start, meant, quoted, expanded = self._position, list[str](), False, False
        while self._position < len(self._line):
            one = self._line[self._position]
            if (plain := _PLAIN_CHARACTERS.match(self._line, self._position)) is not None:
                meant.append(plain[0])
                expanded = expanded or _EXPANSION.search(plain[0]) is not None
                self._position = plain.end()
            elif one == "#" and self._position > start:
                meant.append(one)
                self._position += 1
            elif one in "'\"\\":
                quoted = True
                meant.append(self._parse_quoted(one))
            elif one in " \t\n;&|)" or _HARMLESS_REDIRECTION.match(self._line, self._position):
                break
            else:  # $ ` < > ( and what else a shell would act on
                raise _UnknownCommand
        word = "".join(meant)
        if not quoted:
            return word
        if expanded:
            # Quoted as a whole it would say something else.
            raise _UnknownCommand
        return shlex.quote(word)

    def _parse_quoted(self, quote: str) -> str:
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
            inside = line[self._position + 1 : end]
            self._position = end + 1
            return inside
        return self._parse_double_quoted()

    def _parse_double_quoted(self) -> str:
        found, at = list[str](), self._position + 1
        while at < len(self._line) and self._line[at] != '"':
            one = self._line[at]
            if one in "$`":
                raise _UnknownCommand
            if one == "\\" and self._line[at + 1 : at + 2] in ("\\", '"', "$", "`", "\n"):
                at += 1
                one = "" if self._line[at] == "\n" else self._line[at]
            found.append(one)
            at += 1
        if at >= len(self._line):
            raise _UnknownCommand
        self._position = at + 1
        return "".join(found)


MAX_COMMAND_BYTES = 100_000
"""The kernel takes 128 KiB in one argument."""


class ShellOptions(Struct, frozen=True, kw_only=True):
    """How commands are run. `environment` is what a command is given beside what is allowed of ours."""

    sandbox: Sandbox
    limits: CommandLimits = CommandLimits()
    network: bool = False
    hidden: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    protected: Sequence[Path] = ()
    environment: Mapping[str, str] = {}

    async def run(self, workspace: Path, directory: Path, command: str, context: ToolContext) -> ProcessResult:
        environment = child_environment(os.environ, self.environment)
        line = [_shell_path(), "-c", command]
        if self.sandbox.unavailable_reason:
            wrapped = self.limits.wrap_command(line, limit_processes=False)
        else:
            wrapped = self.sandbox.wrap_command(
                line,
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
            wrapped,
            environment=environment,
            limits=self.limits,
            directory=directory if self.sandbox.unavailable_reason else None,
            namespaced=not self.sandbox.unavailable_reason,
            report_progress=context.report_progress,
        )


def _shell_path() -> str:
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")


def shell_tools(workspace: Workspace, options: ShellOptions) -> list[Tool]:
    async def run_it(arguments: Arguments, calling: ToolContext) -> ToolOutput:
        return await _run_command(workspace, options, calling, **arguments)

    why_not = options.sandbox.unavailable_reason
    exposed = bool(why_not) and not options.sandbox.is_waived
    where = "the network can be used" if options.network or why_not else "there is no network"
    tool = Tool(
        name="run_shell_command",
        run=run_it,
        description=f"Runs a shell command in the workspace ({workspace.root}) and gives its output; {where}. It ends"
        f" after {options.limits.seconds:g} seconds, and what it started in the background with it.",
        parameters=object_schema(
            ("command",),
            command=string_schema("The command, as for bash -c."),
            directory=string_schema("The folder to run it in, from the root of the workspace on. Absent: the root."),
            description=string_schema("What it does, in a few words, for the person who is asked."),
        ),
        annotations=Annotations(destructive=True, open_world=options.network or bool(why_not)),
        locus="local" if why_not else "sandbox",
        source="built-in",
        # The command's own time runs out first: it then still tells what it said so far.
        timeout=options.limits.seconds + 15,
        retries=0,
        resources=lambda _: None,
        subcalls=_subcalls,
        approval_reason=lambda _: f"it is not sandboxed: {why_not}" if exposed else None,
        requires_human=lambda _: exposed,
    )
    return [tool]


def _subcalls(arguments: Arguments) -> Sequence[Arguments] | None:
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
    if "\0" in command or len(command.encode("utf-8", "replace")) > MAX_COMMAND_BYTES:
        raise ToolError(f"the command has a NUL character, or more than {MAX_COMMAND_BYTES} bytes", "command")
    with workspace.open_directory(directory or ".") as opened:
        folder = workspace.root.joinpath(*opened.parts)
    absent = _absent_paths(options.protected, workspace.root)
    try:
        ended = await options.run(workspace.root, folder, command, context)
    finally:
        notes = list(_move_aside(absent))
    if ended.stop_reason:
        notes.insert(0, f"[It was stopped: {ended.stop_reason}. All that it started is gone.]")
    error = "\n".join(filter(None, [ended.error.rstrip("\n"), *notes]))
    text = (
        f"Command: {command}\nDirectory: {directory or '(root)'}\nOutput: {ended.output.rstrip(chr(10))}\n"
        f"Error: {error or '(none)'}\nExit Code: {ended.exit_code}"
    )
    return ToolOutput(content=(Text(text=text),), is_error=bool(ended.stop_reason), error_kind=ended.error_kind)


def _absent_paths(paths: Sequence[Path], root: Path) -> list[Path]:
    return [path for path in paths if root in path.parents and not os.path.lexists(path)]


def _move_aside(paths: Sequence[Path]) -> Iterator[str]:
    """What a command made there, the person's own programs would obey. It can't be kept from being made: whatever is
    mounted onto a name that is not there, git would want to add."""
    for path in paths:
        aside = path.with_name(f"{path.name}.made-by-a-command-{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            path.rename(aside)
            yield f"[{path.name} is the person's own configuration: what was made there is now {aside.name}.]"
