"""`toolwire launch`: an agent in front of the gateway, with settings that last as long as it runs."""

import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from .agents import AGENTS, Agent, Aim
from .arguments import BadInput, needing, refusing_bad_input
from .serve import USUAL

if TYPE_CHECKING:
    from toolwire.gateway.config import ServerSection

_START_SECONDS = 20
_LISTENS = "toolwire listens on "


@click.command("launch", short_help="Start an agent that uses any model.")
@click.argument("name", metavar="AGENT", type=click.Choice(list(AGENTS)))
@click.option("--model", metavar="PROVIDER/MODEL", help="Default: the agent's own, as the gateway routes it.")
@click.option("--protocol", "spoken", metavar="PROTOCOL", help="For an agent that speaks several.")
@click.option("--config", "path", type=click.Path(path_type=Path), metavar="FILE", help=f"Default: {USUAL}, if there.")
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]")
def command(*, name: str, model: str | None, spoken: str | None, path: Path | None, arguments: tuple[str, ...]) -> None:
    """Start AGENT in this terminal: claude, codex, gemini, opencode or qwen.

    It uses the gateway that runs where the configuration says; if none does, one runs as long as the agent. The
    agent's settings are in a folder of their own, which is removed afterwards: yours are neither read nor changed.

    \b
    Example:
      toolwire launch claude --model openai/gpt-5.5
      toolwire launch codex --model anthropic/claude-sonnet-4-5 -- exec "Fix the tests."
    """
    agent = AGENTS[name]
    program = shutil.which(agent.executable)
    if program is None:
        raise BadInput(f"{agent.executable} is not installed: npm install -g {agent.package}")
    if spoken is not None and spoken not in agent.protocols:
        raise BadInput(f"{name} does not speak {spoken!r}: choose from {', '.join(agent.protocols)}")
    with refusing_bad_input(), needing("gateway"):
        from toolwire.gateway.config import Config, read_config

        found = path or (USUAL if USUAL.exists() else None)
        server = (Config() if found is None else read_config(found)).server
        with _folder(name) as folder, _gateway(server, found, model, folder) as root:
            own = folder / "agent"
            own.mkdir()
            key = server.keys[0] if server.keys else "none"
            aim = Aim(root=root, key=key, model=model, protocol=spoken or agent.protocols[0], folder=own)
            code = _hand_over(program, agent, aim, arguments)
    sys.exit(code)


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    """A folder for as long as the agent runs. Not among the temporary ones, where Codex makes no programs."""
    from toolwire.gateway.seals import state_folder

    kept = state_folder(os.environ)
    try:
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = TemporaryDirectory(prefix=f"{name}-", dir=kept, ignore_cleanup_errors=True)
    except OSError as error:
        raise BadInput(f"can't write to {kept}: {error.strerror}") from None
    with made as folder:
        yield Path(folder)


@contextmanager
def _gateway(server: "ServerSection", path: Path | None, model: str | None, folder: Path) -> Iterator[str]:
    """The address of the gateway that runs already, or else of one that runs meanwhile."""
    root = f"http://{f'[{server.host}]' if ':' in server.host else server.host}:{server.port}"
    if _is_served(server):
        yield root
        return
    log = folder / "gateway.log"
    command = [sys.executable, "-c", "from toolwire.cli import main; main()", "serve", "--port", "0", "--attached"]
    command += [] if path is None else ["--config", str(path)]
    command += [] if model is None else ["--model", model]
    # In a session of its own, or Ctrl-C in the agent would end it. Whatever ends this program ends its input, too.
    with (
        log.open("wb") as told,
        subprocess.Popen(  # noqa: S603 - this very program
            command, stdin=subprocess.PIPE, stderr=told, start_new_session=True
        ) as process,
    ):
        try:
            yield _listening(process, log)
        finally:
            process.terminate()


def _is_served(server: "ServerSection") -> bool:
    """Whether a gateway answers there, and not just anything."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().getheader("toolwire-exchange") is not None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        first, end, _ = log.read_text(encoding="utf-8", errors="replace").partition("\n")
        if end and first.startswith(_LISTENS):
            return first.removeprefix(_LISTENS)
        if process.poll() is not None:
            raise BadInput(first.removeprefix("Error: ") or "the gateway did not start")
        time.sleep(0.02)
    raise BadInput(f"the gateway did not start within {_START_SECONDS} seconds")


def _hand_over(program: str, agent: Agent, aim: Aim, arguments: tuple[str, ...]) -> int:
    """Run it in this terminal until it ends, and tell its exit code as a shell would."""
    setup = agent.setup(aim)
    for name, text in setup.files.items():
        place = aim.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    # A proxy that is set for the world outside has no way to this machine.
    around = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1,localhost,::1")))
    changed = os.environ | setup.variables | {"NO_PROXY": around, "no_proxy": around}
    environment = {name: value for name, value in changed.items() if value is not None}
    # Ctrl-C is the agent's to understand; what would end this command ends the agent first.
    signal.signal(signal.SIGINT, lambda *_: None)
    process = subprocess.Popen(  # noqa: S603 - the agent that was asked for
        [program, *setup.arguments, *arguments], env=environment
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: process.send_signal(number))
    code = process.wait()
    return code if code >= 0 else 128 - code
