"""`run_shell_command`."""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from toolwire.canonical.content import Text
from toolwire.runtime.sandbox.limits import Limits
from toolwire.runtime.sandbox.running import Ended, run
from toolwire.runtime.sandbox.shell import Sandbox, child_environment
from toolwire.runtime.toolset import Annotations, Arguments, Calling, Output, Tool, ToolFault

from .schema import a_string, an_object
from .shell_line import simple_commands
from .workspace import Workspace

LONGEST_COMMAND = 100_000
"""The kernel takes 128 KiB in one argument."""


class Shell(Struct, frozen=True, kw_only=True):
    """How commands are run. `environment` is what a command is given beside what is allowed of ours."""

    sandbox: Sandbox
    limits: Limits = Limits()
    network: bool = False
    hidden: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    protected: Sequence[Path] = ()
    environment: Mapping[str, str] = {}

    async def ran(self, workspace: Path, folder: Path, command: str, calling: Calling) -> Ended:
        environment = child_environment(os.environ, self.environment)
        line = [_shell(), "-c", command]
        if self.sandbox.why_not:
            wrapped = self.limits.wrapped(line, counted=False)
        else:
            wrapped = self.sandbox.wrapped(
                line,
                workspace=workspace,
                folder=folder,
                limits=self.limits,
                environment=os.environ,
                network=self.network,
                hidden=self.hidden,
                readable=self.readable,
                protected=self.protected,
            )
        return await run(
            wrapped,
            environment=environment,
            limits=self.limits,
            folder=folder if self.sandbox.why_not else None,
            namespaced=not self.sandbox.why_not,
            progress=calling.progress,
        )


def _shell() -> str:
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")


def shell_tools(workspace: Workspace, shell: Shell) -> list[Tool]:
    async def run_it(arguments: Arguments, calling: Calling) -> Output:
        return await _run(workspace, shell, calling, **arguments)

    why_not = shell.sandbox.why_not
    exposed = bool(why_not) and not shell.sandbox.waived
    where = "the network can be used" if shell.network or why_not else "there is no network"
    tool = Tool(
        name="run_shell_command",
        run=run_it,
        description=f"Runs a shell command in the workspace ({workspace.root}) and gives its output; {where}. It ends"
        f" after {shell.limits.seconds:g} seconds, and what it started in the background with it.",
        parameters=an_object(
            ("command",),
            command=a_string("The command, as for bash -c."),
            directory=a_string("The folder to run it in, from the root of the workspace on. Absent: the root."),
            description=a_string("What it does, in a few words, for the person who is asked."),
        ),
        annotations=Annotations(destructive=True, open_world=shell.network or bool(why_not)),
        locus="local" if why_not else "sandbox",
        source="built-in",
        # The command's own time runs out first: it then still tells what it said so far.
        timeout=shell.limits.seconds + 15,
        retries=0,
        touches=lambda _: None,
        amounts_to=_amounts_to,
        always_ask=lambda _: f"it is not sandboxed: {why_not}" if exposed else None,
        in_person=lambda _: exposed,
    )
    return [tool]


def _amounts_to(arguments: Arguments) -> Sequence[Arguments] | None:
    commands = simple_commands(arguments["command"])
    return None if commands is None else [{**arguments, "command": command} for command in commands]


async def _run(
    workspace: Workspace,
    shell: Shell,
    calling: Calling,
    *,
    command: str,
    directory: str | None = None,
    description: str | None = None,
) -> Output:
    if "\0" in command or len(command.encode("utf-8", "replace")) > LONGEST_COMMAND:
        raise ToolFault(f"the command has a NUL character, or more than {LONGEST_COMMAND} bytes", "command")
    with workspace.folder(directory or ".") as opened:
        folder = workspace.root.joinpath(*opened.parts)
    absent = _absent(shell.protected, workspace.root)
    try:
        ended = await shell.ran(workspace.root, folder, command, calling)
    finally:
        notes = list(_put_aside(absent))
    if ended.stopped:
        notes.insert(0, f"[It was stopped: {ended.stopped}. All that it started is gone.]")
    error = "\n".join(filter(None, [ended.error.rstrip("\n"), *notes]))
    text = (
        f"Command: {command}\nDirectory: {directory or '(root)'}\nOutput: {ended.output.rstrip(chr(10))}\n"
        f"Error: {error or '(none)'}\nExit Code: {ended.code}"
    )
    return Output(content=(Text(text=text),), is_error=bool(ended.stopped), kind=ended.kind)


def _absent(paths: Sequence[Path], root: Path) -> list[Path]:
    return [path for path in paths if root in path.parents and not os.path.lexists(path)]


def _put_aside(paths: Sequence[Path]) -> Iterator[str]:
    """What a command made there, the person's own programs would obey. It can't be kept from being made: whatever is
    mounted onto a name that is not there, git would want to add."""
    for path in paths:
        aside = path.with_name(f"{path.name}.made-by-a-command-{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            path.rename(aside)
            yield f"[{path.name} is the person's own configuration: what was made there is now {aside.name}.]"
