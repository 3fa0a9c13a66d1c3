"""`toolwire launch`: start a coding agent that talks to the gateway."""

import hashlib
import http.client
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click
from msgspec import Struct

from toolwire.cli.agent_programs import AGENTS, DEFAULT_MODEL, AgentProgram, LaunchTarget, format_json
from toolwire.cli.inputs import BadInput, NameChoice, config_option, default_model, report_bad_input
from toolwire.cli.values import complete_models

if TYPE_CHECKING:
    from toolwire.gateway.config import Config, LoadedConfig

_START_TIMEOUT = 20
_CHECK_TIMEOUT = 3
_LIMIT_MODEL = 64 * 1024
_NO_KEY = "none"
_NEW_GATEWAY = "start another one with --new-gateway"
_LISTENING_PREFIX = "toolwire listens on "


class GatewayForAgent(Struct, frozen=True):
    """The gateway that the agent uses."""

    url: str
    is_shared: bool
    """Whether the gateway was already running. If so, it has the providers that it was started with."""


class LaunchCommand(click.Command):
    """A command whose error for an unknown option says how to pass options to the agent."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; what follows `--` is for the agent."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from toolwire.codec.suggestions import suggest

            option, known = error.option_name, [name for parameter in self.params for name in parameter.opts]
            agent = next((argument for argument in given if argument in AGENTS), "AGENT")
            suggestion = suggest(option, [name for name in known if name.startswith("--")])
            message = f"unknown option {option!r}{suggestion and f' ({suggestion})'}; "
            message += f"options of the agent go after --, as in `{ctx.command_path} {agent} -- {option}`"
            raise click.UsageError(message, ctx) from None


@click.command("launch", short_help="Start a coding agent on any model.", cls=LaunchCommand)
@click.argument("name", metavar="AGENT", type=NameChoice(list(AGENTS)))
@click.option(
    "--model",
    metavar="PROVIDER/MODEL",
    shell_complete=complete_models,
    help="Default: TOOLWIRE_MODEL, or the agent's own model, routed by the gateway.",
)
@click.option(
    "--small-model",
    metavar="PROVIDER/MODEL",
    shell_complete=complete_models,
    help="For titles and other small tasks. Default: --model.",
)
@click.option("--protocol", "protocol", metavar="P", help="For agents that support several protocols.")
@click.option("--new-gateway", is_flag=True, help="Start a gateway for this agent, even if one is running.")
@config_option
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]")
def command(
    *,
    name: str,
    model: str | None,
    small_model: str | None,
    protocol: str | None,
    new_gateway: bool,
    config_path: Path | None,
    arguments: tuple[str, ...],
) -> None:
    """Start AGENT in this terminal: claude, codex, gemini, opencode or qwen.

    The agent uses the gateway at the configured address, with the providers of that gateway. If none is running there,
    one is started and stopped with the agent. Your own settings of the agent are neither read nor changed: it gets a
    folder for each project, below ~/.local/state/toolwire, which keeps its sessions but no keys. It gets the context
    window of the model, so that it compacts its history in time.

    \b
    Examples:
      toolwire launch claude --model openai/gpt-5.5
      toolwire launch codex --model ollama/qwen3-coder -- exec "Fix the tests."
      toolwire launch claude --model openai/gpt-5.5 -- --resume SESSION
    """
    agent = AGENTS[name]
    program = shutil.which(agent.executable)
    if program is None:
        raise BadInput(f"{agent.executable} is not installed: npm install -g {agent.package}")
    _check_options(name, agent, small_model, protocol)
    selected = {"--model": model, "--small-model": small_model, "--protocol": protocol}
    with report_bad_input():
        from toolwire.gateway.config import load_config

        model = default_model(model)
        loaded = load_config(config_path)
        api_key = _find_key(loaded.config)
        with (
            _temporary_folder(name) as folder,
            _ensure_gateway(loaded, config_path, model, folder, is_new=new_gateway) as gateway,
        ):
            if small_model is not None:
                _fetch_context(gateway, api_key, small_model)
            if model is None:
                _report_unserved_model(gateway, api_key, name, agent)
            _report_unusable_providers(gateway, api_key, model or agent.usual_model)
            target = LaunchTarget(
                gateway_url=gateway.url,
                api_key=api_key,
                model=model,
                small_model=small_model,
                protocol=protocol or agent.protocols[0],
                context=None if model is None else _fetch_context(gateway, api_key, model),
                config_folder=_project_folder(name, Path.cwd()),
            )
            exit_code = _run_agent(program, agent, target, arguments)
    if sys.stderr.isatty():
        options = "".join(f" {option} {shlex.quote(value)}" for option, value in selected.items() if value is not None)
        click.echo("resume a session with:", err=True)
        click.echo(f"  toolwire launch {name}{options} -- {agent.resume}", err=True)
    sys.exit(exit_code)


def _check_options(name: str, agent: AgentProgram, small_model: str | None, protocol: str | None) -> None:
    """Raise `BadInput` for an option that the agent does not support."""
    if small_model is not None and not agent.has_small_model:
        raise BadInput(f"{name} uses one model for everything: leave out --small-model")
    if protocol is not None and protocol not in agent.protocols:
        from toolwire.codec.suggestions import suggest

        expected = ", ".join(agent.protocols)
        hint = suggest(protocol, agent.protocols)
        raise BadInput(
            f"{name} does not support protocol {protocol!r}{hint and f' ({hint})'}; expected one of {expected}"
        )


def _find_key(config: "Config") -> str:
    """Return the key for the gateway: `TOOLWIRE_KEY`, or else the first of `server.keys`."""
    if key := os.environ.get("TOOLWIRE_KEY"):
        return key
    if config.keys and not config.server.keys:
        raise BadInput("the gateway needs a key: set TOOLWIRE_KEY to the secret of one of [keys]")
    return config.server.keys[0] if config.server.keys else _NO_KEY


def _project_folder(name: str, project: Path) -> Path:
    """Return the folder for an agent's settings and sessions of a project, which only the user can read."""
    from toolwire.gateway.config import state_directory

    path = os.path.realpath(project)
    digest = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:12]
    folder = state_directory(os.environ) / "agents" / name / f"{Path(path).name or 'root'}-{digest}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise BadInput(f"can't write to {folder}: {error.strerror}") from None
    return folder


def _fetch_context(gateway: GatewayForAgent, api_key: str, model: str) -> int | None:
    """Return the context window of a model, as the gateway knows it; None if it does not.

    Raises `BadInput` for a key that the gateway rejects, and for a model that it does not serve.
    """
    status, body = _fetch_model(gateway, api_key, model)
    if status == HTTPStatus.NOT_FOUND:
        cause = f" (the gateway at {gateway.url} was already running: {_NEW_GATEWAY})" if gateway.is_shared else ""
        raise BadInput(f"{body['error']['message']}{cause}")
    context = body.get("context_length")
    return context if isinstance(context, int) else None


def _report_unserved_model(gateway: GatewayForAgent, api_key: str, name: str, agent: AgentProgram) -> None:
    """Write to stderr if no provider serves the models that the agent requests by itself.

    Raises `BadInput` for a key that the gateway rejects.
    """
    from toolwire.cli.output.terminal import print_line

    status, _ = _fetch_model(gateway, api_key, agent.usual_model)
    if status == HTTPStatus.NOT_FOUND:
        example = "" if agent.usual_model == DEFAULT_MODEL else f", such as {agent.usual_model}"
        text = f" no provider serves the models that {name} uses by itself{example}: choose one with --model "
        print_line(("warning:", "warning"), f"{text}PROVIDER/MODEL (`toolwire models` lists them)", err=True)


def _report_unusable_providers(gateway: GatewayForAgent, api_key: str, model: str) -> None:
    """Write to stderr which providers of the model a running gateway can't reach, or whose key is rejected."""
    from toolwire.cli.output.terminal import print_line

    if not gateway.is_shared:
        return  # its providers were checked when it was started
    _, body = _fetch(gateway, api_key, f"/toolwire/providers/{quote(model)}")
    for provider in body.get("providers", ()):
        if provider["problem"] is not None:
            text = f" {provider['name']}: {provider['problem']}, from the gateway that already runs at {gateway.url}"
            advice = f"run `toolwire doctor`, and start that gateway again, or {_NEW_GATEWAY}"
            print_line(("warning:", "warning"), f"{text}; {advice}", err=True)


def _fetch_model(gateway: GatewayForAgent, api_key: str, model: str) -> tuple[int, dict[str, Any]]:
    """Fetch a model from the gateway, as `_fetch` does."""
    return _fetch(gateway, api_key, f"/v1/models/{quote(model)}")


def _fetch(gateway: GatewayForAgent, api_key: str, path: str) -> tuple[int, dict[str, Any]]:
    """Fetch JSON from the gateway; return the status and the body, or 0 and an empty body if the request fails.

    Raises `BadInput` for a key that the gateway rejects.
    """
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=_START_TIMEOUT)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {api_key}"})
        response = connection.getresponse()
        body = json.loads(response.read(_LIMIT_MODEL))
    except (OSError, http.client.HTTPException, ValueError):
        return 0, {}
    finally:
        connection.close()
    if response.status == HTTPStatus.UNAUTHORIZED:
        problem = "needs a key" if api_key == _NO_KEY else "rejects this key"
        raise BadInput(
            f"the gateway at {gateway.url} {problem}: set TOOLWIRE_KEY to one of its keys, or {_NEW_GATEWAY}"
        )
    return response.status, body


@contextmanager
def _temporary_folder(name: str) -> Iterator[Path]:
    """Yield a folder below the state directory. Codex writes no executables into the system's temporary one."""
    from toolwire.gateway.config import state_directory

    parent = state_directory(os.environ)
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = TemporaryDirectory(prefix=f"{name}-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise BadInput(f"can't write to {parent}: {error.strerror}") from None
    with temporary as folder:
        yield Path(folder)


def _note_on_terminal(text: str) -> None:
    """Write a note to stderr if a person reads it there; scripts get only the agent's own output."""
    if sys.stderr.isatty():
        from toolwire.cli.output.terminal import print_line

        print_line(text, err=True)


@contextmanager
def _ensure_gateway(
    loaded: "LoadedConfig", path: Path | None, model: str | None, folder: Path, *, is_new: bool
) -> Iterator[GatewayForAgent]:
    """Yield the running gateway, or start one and stop it at the end. With `is_new`, always start one."""
    from toolwire.gateway.providers.discovery import SIMULATOR_NOTE, find_listener

    server = loaded.config.server
    listener = "none" if is_new else find_listener(server.host, server.port)
    if listener in ("gateway", "simulator"):
        url = f"http://{f'[{server.host}]' if ':' in server.host else server.host}:{server.port}"
        _describe_running_gateway(url, loaded.config, is_simulated=listener == "simulator")
        yield GatewayForAgent(url, is_shared=True)
        return
    log = folder / "gateway.log"
    command = [sys.executable, "-c", "from toolwire.cli import main; main()", "serve", "--port", "0", "--attached"]
    command += [] if path is None else ["--config", str(path)]
    command += [] if model is None else ["--model", model]
    # A new session, so that Ctrl-C in the agent does not stop it. `--attached` stops it when this process ends.
    with (
        log.open("wb") as log_file,
        subprocess.Popen(  # noqa: S603 - toolwire itself
            command, stdin=subprocess.PIPE, stderr=log_file, start_new_session=True
        ) as process,
    ):
        try:
            # The agent would only show its spinner while it tries again.
            _report_provider_problems(loaded, model)
            gateway_url = _wait_for_gateway(process, log)
            if SIMULATOR_NOTE in log.read_text(encoding="utf-8", errors="replace"):
                _note_on_terminal(f"{SIMULATOR_NOTE} (run `toolwire doctor` for details)")
            yield GatewayForAgent(gateway_url, is_shared=False)
        finally:
            process.terminate()


def _describe_running_gateway(url: str, config: "Config", *, is_simulated: bool) -> None:
    """Write to stderr that the agent uses a running gateway; warn if it has the simulator, not these providers."""
    from toolwire.cli.output.terminal import print_line
    from toolwire.gateway.providers.discovery import configured_providers

    unused = configured_providers(config) if is_simulated else {}
    if unused:
        text = f" the gateway at {url} uses the built-in simulator, not {', '.join(unused)}"
        text += f": start it again here, or {_NEW_GATEWAY}"
        print_line(("warning:", "warning"), text, err=True)
    else:
        _note_on_terminal(f"using the gateway that already runs at {url}, with its providers")


def _report_provider_problems(loaded: "LoadedConfig", model: str | None) -> None:
    """Write to stderr why the model's providers can't be reached, if they can't."""
    import asyncio

    from toolwire.cli.output.terminal import print_line
    from toolwire.gateway.doctor import find_provider_problems

    problems = asyncio.run(
        find_provider_problems(loaded.config, loaded.key_variables, os.environ, model, _CHECK_TIMEOUT)
    )
    for problem in problems:
        text = f" {problem.subject}: {problem.detail}; {problem.advice}"
        print_line(("warning:", "warning"), text, err=True)


def _wait_for_gateway(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the started gateway writes its URL to the log, and return the URL."""
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        first_line, end, _ = log.read_text(encoding="utf-8", errors="replace").partition("\n")
        if end and first_line.startswith(_LISTENING_PREFIX):
            return first_line.removeprefix(_LISTENING_PREFIX)
        if process.poll() is not None:
            raise BadInput(first_line.removeprefix("Error: ") or "the gateway did not start")
        time.sleep(0.02)
    raise BadInput(f"the gateway did not start within {_START_TIMEOUT} seconds")


def _merge_settings(path: Path, text: str) -> str:
    """Return settings with those that the agent added to its file in an earlier run, if that is JSON."""
    if path.suffix != ".json" or not path.exists():
        return text
    try:
        existing = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return text
    return format_json(_merge(existing, json.loads(text))) if isinstance(existing, dict) else text


def _merge(existing: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the members of another added, which win."""
    merged = dict(existing)
    for name, value in added.items():
        earlier = merged.get(name)
        merged[name] = _merge(earlier, value) if isinstance(earlier, dict) and isinstance(value, dict) else value
    return merged


def _run_agent(program: str, agent: AgentProgram, target: LaunchTarget, arguments: tuple[str, ...]) -> int:
    """Run the agent in this terminal and return its exit code, as a shell reports it."""
    setup = agent.build_setup(target)
    for name, text in setup.files.items():
        path = target.config_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_merge_settings(path, text), encoding="utf-8")
    # The gateway is on this machine, which a configured proxy could not reach.
    no_proxy = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1,localhost,::1")))
    variables = os.environ | setup.env | {"NO_PROXY": no_proxy, "no_proxy": no_proxy}
    environment = {name: value for name, value in variables.items() if value is not None}
    # The agent handles Ctrl-C itself; signals that terminate this command are forwarded to the agent.
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        process = subprocess.Popen(  # noqa: S603 - the agent that the user named
            [program, *setup.arguments, *arguments], env=environment
        )
    except OSError as error:
        raise BadInput(f"can't run {program}: {error.strerror}; try npm install -g {agent.package}") from None
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, lambda signal_number, _: process.send_signal(signal_number))
    return_code = process.wait()
    return return_code if return_code >= 0 else 128 - return_code
