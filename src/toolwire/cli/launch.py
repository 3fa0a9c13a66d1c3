"""`toolwire launch`: start a coding agent that talks to the gateway.

Each agent gets environment variables, arguments and settings in a temporary folder, so that the user's own settings
are neither read nor changed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from toolwire.cli.inputs import BadInput, NameChoice, config_option, default_model, report_bad_input
from toolwire.cli.values import complete_models

if TYPE_CHECKING:
    from toolwire.gateway.config import ServerSection


# The model name sent when the user named none: the gateway routes it to its default model.
DEFAULT_MODEL = "default"


class LaunchTarget(Struct, frozen=True, kw_only=True):
    """The gateway, model and protocol that an agent is pointed at."""

    gateway_url: str
    api_key: str
    model: str | None
    protocol: str
    # A temporary folder for the agent's settings, removed when it ends.
    config_folder: Path


class LaunchSetup(Struct, frozen=True, kw_only=True):
    """The environment, arguments and settings files that an agent is started with."""

    # Variables to set; None removes a variable that would point the agent elsewhere.
    env: dict[str, str | None]
    arguments: tuple[str, ...] = ()
    # File contents by path below the settings folder.
    files: dict[str, str] = {}


class AgentProgram(Struct, frozen=True, kw_only=True):
    """A coding agent that `toolwire launch` can start."""

    executable: str
    # The npm package that installs it.
    package: str
    # The protocols it can speak, the default first. Chat is never the default: it has no field for thinking signatures.
    protocols: tuple[str, ...]
    build_setup: Callable[[LaunchTarget], LaunchSetup]


def _format_json(value: Any) -> str:
    """Format a value as the indented JSON of a settings file."""
    return json.dumps(value, indent=2) + "\n"


def _model_arguments(target: LaunchTarget, *option: str) -> tuple[str, ...]:
    """Return the option and the model to pass to the agent; empty if the user named no model."""
    return () if target.model is None else (*option, target.model)


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
        # The models that Claude Code uses for small tasks.
        env |= dict.fromkeys(("ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"), target.model)
    return LaunchSetup(
        env=env,
        arguments=_model_arguments(target, "--model"),
        files={".claude.json": _format_json({"hasCompletedOnboarding": True})},
    )


def _codex_setup(target: LaunchTarget) -> LaunchSetup:
    """Return the environment, arguments and settings that point Codex at the gateway."""
    model = "" if target.model is None else f"model = {json.dumps(target.model)}\n"
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
"""
        },
    )


def _gemini_setup(target: LaunchTarget) -> LaunchSetup:
    """Return the environment, arguments and settings that point Gemini CLI at the gateway."""
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
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
    config = {
        "model": f"toolwire/{model}",
        "small_model": f"toolwire/{model}",
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "toolwire": {
                "name": "toolwire",
                "npm": package,
                "options": {"baseURL": target.gateway_url + path, "apiKey": target.api_key},
                "models": {model: {"name": model}},
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
    settings = {
        "security": {"auth": {"selectedType": auth_type}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
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
        executable="claude", package="@anthropic-ai/claude-code", protocols=("anthropic",), build_setup=_claude_setup
    ),
    "codex": AgentProgram(
        executable="codex", package="@openai/codex", protocols=("openai-responses",), build_setup=_codex_setup
    ),
    "gemini": AgentProgram(
        executable="gemini", package="@google/gemini-cli", protocols=("gemini",), build_setup=_gemini_setup
    ),
    "opencode": AgentProgram(
        executable="opencode", package="opencode-ai", protocols=tuple(_SDK_PACKAGES), build_setup=_opencode_setup
    ),
    "qwen": AgentProgram(
        executable="qwen", package="@qwen-code/qwen-code", protocols=tuple(_QWEN_PROTOCOLS), build_setup=_qwen_setup
    ),
}

_START_TIMEOUT = 20
_LISTENING_PREFIX = "toolwire listens on "


@click.command("launch", short_help="Start a coding agent on any model.")
@click.argument("name", metavar="AGENT", type=NameChoice(list(AGENTS)))
@click.option(
    "--model",
    metavar="PROVIDER/MODEL",
    shell_complete=complete_models,
    help="Default: TOOLWIRE_MODEL, or the agent's own model, routed by the gateway.",
)
@click.option("--protocol", "protocol", metavar="PROTOCOL", help="For agents that support several protocols.")
@config_option
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]")
def command(
    *, name: str, model: str | None, protocol: str | None, config_path: Path | None, arguments: tuple[str, ...]
) -> None:
    """Start AGENT in this terminal: claude, codex, gemini, opencode or qwen.

    The agent uses the gateway at the configured address. If none is running there, one is started and stopped with the
    agent. The agent's settings are in a temporary folder, which is removed afterwards: your own settings are neither
    read nor changed.

    \b
    Examples:
      toolwire launch claude --model openai/gpt-5.5
      toolwire launch codex --model anthropic/claude-sonnet-4-5 -- exec "Fix the tests."
    """
    agent = AGENTS[name]
    program = shutil.which(agent.executable)
    if program is None:
        raise BadInput(f"{agent.executable} is not installed: npm install -g {agent.package}")
    if protocol is not None and protocol not in agent.protocols:
        from toolwire.codec.suggestions import suggest

        expected = ", ".join(agent.protocols)
        hint = suggest(protocol, agent.protocols)
        raise BadInput(
            f"{name} does not support protocol {protocol!r}{hint and f' ({hint})'}; expected one of {expected}"
        )
    with report_bad_input():
        from toolwire.gateway.config import load_config

        model = default_model(model)
        server = load_config(config_path).config.server
        with _temporary_folder(name) as folder, _ensure_gateway(server, config_path, model, folder) as gateway_url:
            config_folder = folder / "agent"
            config_folder.mkdir()
            api_key = server.keys[0] if server.keys else "none"
            target = LaunchTarget(
                gateway_url=gateway_url,
                api_key=api_key,
                model=model,
                protocol=protocol or agent.protocols[0],
                config_folder=config_folder,
            )
            exit_code = _run_agent(program, agent, target, arguments)
    sys.exit(exit_code)


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


@contextmanager
def _ensure_gateway(server: "ServerSection", path: Path | None, model: str | None, folder: Path) -> Iterator[str]:
    """Yield the URL of the gateway that is already running, or else start one and stop it afterwards."""
    from toolwire.gateway.providers.discovery import is_gateway_at

    url = f"http://{f'[{server.host}]' if ':' in server.host else server.host}:{server.port}"
    if is_gateway_at(server.host, server.port):
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
            yield _wait_for_gateway(process, log)
        finally:
            process.terminate()


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


def _run_agent(program: str, agent: AgentProgram, target: LaunchTarget, arguments: tuple[str, ...]) -> int:
    """Run the agent in this terminal and return its exit code, as a shell reports it."""
    setup = agent.build_setup(target)
    for name, text in setup.files.items():
        path = target.config_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    # The gateway is on this machine, which a configured proxy could not reach.
    no_proxy = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1,localhost,::1")))
    variables = os.environ | setup.env | {"NO_PROXY": no_proxy, "no_proxy": no_proxy}
    environment = {name: value for name, value in variables.items() if value is not None}
    # The agent handles Ctrl-C itself; signals that terminate this command are forwarded to the agent.
    signal.signal(signal.SIGINT, lambda *_: None)
    process = subprocess.Popen(  # noqa: S603 - the agent that the user named
        [program, *setup.arguments, *arguments], env=environment
    )
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, lambda signal_number, _: process.send_signal(signal_number))
    return_code = process.wait()
    return return_code if return_code >= 0 else 128 - return_code
