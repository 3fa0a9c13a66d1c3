"""`toolwire launch`: start a coding agent that talks to the gateway.

Each agent gets environment variables, arguments, and a settings folder of its own for each project, so that the user's
own settings are neither read nor changed, and its sessions can be resumed. Keys are only in the environment.
"""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click
from msgspec import Struct

from toolwire.cli.inputs import BadInput, NameChoice, config_option, default_model, report_bad_input
from toolwire.cli.values import complete_models

if TYPE_CHECKING:
    from toolwire.gateway.config import Config, LoadedConfig


# The model name sent when the user named none: the gateway routes it to its default model.
DEFAULT_MODEL = "default"


class LaunchTarget(Struct, frozen=True, kw_only=True):
    """The gateway, model and protocol that an agent is pointed at."""

    gateway_url: str
    api_key: str
    model: str | None
    # For titles and other small tasks.
    small_model: str | None = None
    protocol: str
    # Tokens of prompt and response together; None if unknown.
    context: int | None = None
    # The folder of the agent's settings and sessions for this project.
    config_folder: Path


class LaunchSetup(Struct, frozen=True, kw_only=True):
    """The environment, arguments and settings files that an agent is started with."""

    # Variables to set; None removes a variable that would point the agent elsewhere.
    env: dict[str, str | None]
    arguments: tuple[str, ...] = ()
    # File contents by path below the settings folder. JSON is merged with what the agent added in earlier runs.
    files: dict[str, str] = {}


class AgentProgram(Struct, frozen=True, kw_only=True):
    """A coding agent that `toolwire launch` can start."""

    executable: str
    # The npm package that installs it.
    package: str
    # The protocols it can speak, the default first. Chat is never the default: it has no field for thinking signatures.
    protocols: tuple[str, ...]
    build_setup: Callable[[LaunchTarget], LaunchSetup]
    # The arguments that resume a session.
    resume: str
    has_small_model: bool = False


def _format_json(value: Any) -> str:
    """Format a value as the indented JSON of a settings file."""
    return json.dumps(value, indent=2) + "\n"


def _model_arguments(target: LaunchTarget, *option: str) -> tuple[str, ...]:
    """Return the option and the model to pass to the agent; empty if the user named no model."""
    return () if target.model is None else (*option, target.model)


_SMALL_CONTEXT = 128_000
_MOST_OUTPUT = 32_000


def _output_limit(context: int) -> int:
    """Return the tokens that a response may take, so that most of the context is left for the prompt."""
    return min(_MOST_OUTPUT, context // 4)


def _claude_setup(target: LaunchTarget) -> LaunchSetup:
    """Return the environment and arguments that point Claude Code at the gateway."""
    env: dict[str, str | None] = {
        "ANTHROPIC_BASE_URL": target.gateway_url,
        # Not ANTHROPIC_API_KEY: Claude Code asks for confirmation before it uses a new API key.
        "ANTHROPIC_AUTH_TOKEN": target.api_key,
        "ANTHROPIC_API_KEY": None,
        "ANTHROPIC_MODEL": None,
        "CLAUDE_CODE_USE_BEDROCK": None,
        "CLAUDE_CODE_USE_VERTEX": None,
        "CLAUDE_CODE_USE_FOUNDRY": None,
        "CLAUDE_CONFIG_DIR": str(target.config_folder),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }
    if target.model is not None:
        env |= dict.fromkeys(("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL"), target.model)
    if (small_model := target.small_model or target.model) is not None:
        # The models that Claude Code uses for small tasks.
        env |= dict.fromkeys(("ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"), small_model)
    if target.context is not None:
        # It compacts at this size, and assumes a million tokens for models that it does not know.
        env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(target.context)
        if target.context < _SMALL_CONTEXT:
            env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(_output_limit(target.context))
    return LaunchSetup(
        env=env,
        arguments=_model_arguments(target, "--model"),
        files={".claude.json": _format_json({"hasCompletedOnboarding": True})},
    )


def _codex_setup(target: LaunchTarget) -> LaunchSetup:
    """Return the environment, arguments and settings that point Codex at the gateway."""
    model = "" if target.model is None else f"model = {json.dumps(target.model)}\n"
    if target.context is not None:
        model += f"model_context_window = {target.context}\n"
        model += f"model_auto_compact_token_limit = {target.context * 4 // 5}\n"
    return LaunchSetup(
        env={"CODEX_HOME": str(target.config_folder), "TOOLWIRE_KEY": target.api_key},
        files={
            "config.toml": f"""{model}model_provider = "toolwire"
check_for_update_on_startup = false

[model_providers.toolwire]
name = "toolwire"
base_url = {json.dumps(target.gateway_url + "/v1")}
env_key = "TOOLWIRE_KEY"
wire_api = "responses"

[analytics]
enabled = false

[feedback]
enabled = false
{_read_trusted_projects(target.config_folder / "config.toml")}"""
        },
    )


def _read_trusted_projects(path: Path) -> str:
    """Return the `[projects]` of Codex's previous settings as TOML, so that it does not ask again whom to trust."""
    import tomllib

    try:
        projects = tomllib.loads(path.read_text(encoding="utf-8")).get("projects", {})
    except (OSError, ValueError):
        return ""
    levels = [(name, table.get("trust_level")) for name, table in projects.items() if isinstance(table, dict)]
    return "".join(
        f"\n[projects.{json.dumps(name)}]\ntrust_level = {json.dumps(level)}\n"
        for name, level in levels
        if isinstance(level, str)
    )


# What Gemini CLI assumes of every model. It compacts at a share of that.
_GEMINI_CONTEXT = 1_048_576


def _gemini_setup(target: LaunchTarget) -> LaunchSetup:
    """Return the environment, arguments and settings that point Gemini CLI at the gateway."""
    settings: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    if target.context is not None:
        settings["model"] = {"compressionThreshold": round(min(0.7, 0.7 * target.context / _GEMINI_CONTEXT), 4)}
    return LaunchSetup(
        env={
            "GEMINI_CLI_HOME": str(target.config_folder),
            "GEMINI_API_KEY": target.api_key,
            "GOOGLE_GEMINI_BASE_URL": target.gateway_url,
            "GEMINI_MODEL": None,
            "GOOGLE_API_KEY": None,
            "GOOGLE_GENAI_USE_GCA": None,
            "GOOGLE_GENAI_USE_VERTEXAI": None,
        },
        arguments=_model_arguments(target, "-m"),
        files={".gemini/settings.json": _format_json(settings)},
    )


_SDK_PACKAGES = {
    "anthropic": ("@ai-sdk/anthropic", "/v1"),
    "openai-responses": ("@ai-sdk/openai", "/v1"),
    "openai-chat": ("@ai-sdk/openai-compatible", "/v1"),
    "gemini": ("@ai-sdk/google", "/v1beta"),
}


def _opencode_setup(target: LaunchTarget) -> LaunchSetup:
    """Return the environment, arguments and settings that point opencode at the gateway."""
    package, path = _SDK_PACKAGES[target.protocol]
    model = target.model or DEFAULT_MODEL
    small_model, context = target.small_model or model, target.context
    # Without a limit, opencode never compacts.
    limits = {} if context is None else {"limit": {"context": context, "output": _output_limit(context)}}
    config = {
        "model": f"toolwire/{model}",
        "small_model": f"toolwire/{small_model}",
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "toolwire": {
                "name": "toolwire",
                "npm": package,
                "options": {"baseURL": target.gateway_url + path, "apiKey": target.api_key},
                "models": {small_model: {"name": small_model}} | {model: {"name": model, **limits}},
            }
        },
    }
    folders = {
        f"XDG_{kind}_HOME": str(target.config_folder / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")
    }
    return LaunchSetup(
        env={
            **folders,
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "OPENCODE_CONFIG": None,
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_SHARE": "1",
        },
    )


# By protocol: Qwen Code's auth type, its base URL variable and path, its key variable, its model variable.
_QWEN_PROTOCOLS = {
    "anthropic": ("anthropic", "ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL"),
    "openai-chat": ("openai", "OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY", "OPENAI_MODEL"),
    "gemini": ("gemini", "GOOGLE_GEMINI_BASE_URL", "", "GEMINI_API_KEY", "GEMINI_MODEL"),
}


def _qwen_setup(target: LaunchTarget) -> LaunchSetup:
    """Return the environment, arguments and settings that point Qwen Code at the gateway."""
    auth_type, url_variable, path, key_variable, model_variable = _QWEN_PROTOCOLS[target.protocol]
    settings: dict[str, Any] = {
        "security": {"auth": {"selectedType": auth_type}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    if target.context is not None:
        settings["model"] = {"generationConfig": {"contextWindowSize": target.context}}
    return LaunchSetup(
        env={
            "QWEN_HOME": str(target.config_folder),
            url_variable: target.gateway_url + path,
            key_variable: target.api_key,
            model_variable: target.model or DEFAULT_MODEL,
        },
        arguments=("--auth-type", auth_type),
        files={"settings.json": _format_json(settings)},
    )


AGENTS = {
    "claude": AgentProgram(
        executable="claude",
        package="@anthropic-ai/claude-code",
        protocols=("anthropic",),
        build_setup=_claude_setup,
        resume="--resume ID",
        has_small_model=True,
    ),
    "codex": AgentProgram(
        executable="codex",
        package="@openai/codex",
        protocols=("openai-responses",),
        build_setup=_codex_setup,
        resume="resume ID",
    ),
    "gemini": AgentProgram(
        executable="gemini",
        package="@google/gemini-cli",
        protocols=("gemini",),
        build_setup=_gemini_setup,
        resume="--resume",
    ),
    "opencode": AgentProgram(
        executable="opencode",
        package="opencode-ai",
        protocols=tuple(_SDK_PACKAGES),
        build_setup=_opencode_setup,
        resume="--session ID",
        has_small_model=True,
    ),
    "qwen": AgentProgram(
        executable="qwen",
        package="@qwen-code/qwen-code",
        protocols=tuple(_QWEN_PROTOCOLS),
        build_setup=_qwen_setup,
        resume="--resume ID",
    ),
}

_START_TIMEOUT = 20
_CHECK_TIMEOUT = 3
_LIMIT_MODEL = 64 * 1024
_LISTENING_PREFIX = "toolwire listens on "


@click.command("launch", short_help="Start a coding agent on any model.")
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
@click.option("--protocol", "protocol", metavar="PROTOCOL", help="For agents that support several protocols.")
@config_option
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]")
def command(
    *,
    name: str,
    model: str | None,
    small_model: str | None,
    protocol: str | None,
    config_path: Path | None,
    arguments: tuple[str, ...],
) -> None:
    """Start AGENT in this terminal: claude, codex, gemini, opencode or qwen.

    The agent uses the gateway at the configured address. If none is running there, one is started and stopped with the
    agent. Your own settings of the agent are neither read nor changed: it gets a folder for each project, below
    ~/.local/state/toolwire, which keeps its sessions but no keys. It is told the context window of the model, so that
    it compacts its history in time.

    \b
    Examples:
      toolwire launch claude --model openai/gpt-5.5
      toolwire launch codex --model anthropic/claude-sonnet-4-5 -- exec "Fix the tests."
      toolwire launch claude -- --resume SESSION
    """
    agent = AGENTS[name]
    program = shutil.which(agent.executable)
    if program is None:
        raise BadInput(f"{agent.executable} is not installed: npm install -g {agent.package}")
    if small_model is not None and not agent.has_small_model:
        raise BadInput(f"{name} uses one model for everything: leave out --small-model")
    if protocol is not None and protocol not in agent.protocols:
        from toolwire.codec.suggestions import suggest

        expected = ", ".join(agent.protocols)
        hint = suggest(protocol, agent.protocols)
        raise BadInput(
            f"{name} does not support protocol {protocol!r}{hint and f' ({hint})'}; expected one of {expected}"
        )
    selected = {"--model": model, "--small-model": small_model, "--protocol": protocol}
    context = None
    with report_bad_input():
        from toolwire.gateway.config import load_config

        model = default_model(model)
        loaded = load_config(config_path)
        api_key = _find_key(loaded.config)
        with _temporary_folder(name) as folder, _ensure_gateway(loaded, config_path, model, folder) as gateway_url:
            for requested in filter(None, (small_model, model)):
                context = _fetch_context(gateway_url, api_key, requested)
            target = LaunchTarget(
                gateway_url=gateway_url,
                api_key=api_key,
                model=model,
                small_model=small_model,
                protocol=protocol or agent.protocols[0],
                context=context if model is not None else None,
                config_folder=_project_folder(name, Path.cwd()),
            )
            exit_code = _run_agent(program, agent, target, arguments)
    if sys.stderr.isatty():
        options = "".join(f" {option} {shlex.quote(value)}" for option, value in selected.items() if value is not None)
        click.echo(f"resume a session with: toolwire launch {name}{options} -- {agent.resume}", err=True)
    sys.exit(exit_code)


def _find_key(config: "Config") -> str:
    """Return the key for the gateway: one of `server.keys`, or `TOOLWIRE_KEY` if only hashes of keys are configured."""
    if config.server.keys:
        return config.server.keys[0]
    if not config.keys:
        return "none"
    if not (key := os.environ.get("TOOLWIRE_KEY")):
        raise BadInput("the gateway needs a key: set TOOLWIRE_KEY to the secret of one of [keys]")
    return key


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


def _fetch_context(gateway_url: str, api_key: str, model: str) -> int | None:
    """Return the context window of a model, as the gateway knows it; None if it does not.

    Raises `BadInput` for a model that the gateway does not serve.
    """
    connection = http.client.HTTPConnection(urlsplit(gateway_url).netloc, timeout=_START_TIMEOUT)
    try:
        connection.request("GET", f"/v1/models/{quote(model)}", headers={"authorization": f"Bearer {api_key}"})
        response = connection.getresponse()
        body = json.loads(response.read(_LIMIT_MODEL))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    if response.status in (HTTPStatus.NOT_FOUND, HTTPStatus.UNAUTHORIZED):
        raise BadInput(str(body["error"]["message"]))
    context = body.get("context_length")
    return context if isinstance(context, int) else None


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
        click.echo(text, err=True)


@contextmanager
def _ensure_gateway(loaded: "LoadedConfig", path: Path | None, model: str | None, folder: Path) -> Iterator[str]:
    """Yield the URL of the gateway that is already running, or else start one and stop it afterwards."""
    from toolwire.gateway.providers.discovery import SIMULATOR_NOTE, is_gateway_at

    server = loaded.config.server
    url = f"http://{f'[{server.host}]' if ':' in server.host else server.host}:{server.port}"
    if is_gateway_at(server.host, server.port):
        _note_on_terminal(f"using the gateway that already runs at {url}, with its providers")
        yield url
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
            yield gateway_url
        finally:
            process.terminate()


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
    return _format_json(_merge(existing, json.loads(text))) if isinstance(existing, dict) else text


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
