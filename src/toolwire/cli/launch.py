"""What each agent needs to talk to the gateway: variables, arguments, and files in a folder that is not the user's.

`toolwire launch`: an agent in front of the gateway, with settings that last as long as it runs.
"""

import http.client
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

from toolwire.cli.inputs import DEFAULT_CONFIG, BadInput, report_bad_input, require_extra

if TYPE_CHECKING:
    from toolwire.gateway.config import ServerSection


# What the gateway is asked for where nobody named a model: it leads to its default.
DEFAULT_MODEL = "default"


class LaunchTarget(Struct, frozen=True, kw_only=True):
    """Where an agent is pointed. `folder` is its own for as long as it runs."""

    gateway_url: str
    api_key: str
    model: str | None
    protocol: str
    config_folder: Path


class LaunchSetup(Struct, frozen=True, kw_only=True):
    """What to start an agent with. A variable that is None is taken out: it would lead elsewhere."""

    env: dict[str, str | None]
    arguments: tuple[str, ...] = ()
    files: dict[str, str] = {}


class AgentProgram(Struct, frozen=True, kw_only=True):
    """`package` is its name at npm. `protocols`: those it can speak, first the one that it speaks unless told
    otherwise: not Chat, which has no field for what proves a model's thinking."""

    executable: str
    package: str
    protocols: tuple[str, ...]
    build_setup: Callable[[LaunchTarget], LaunchSetup]


def _format_json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _model_arguments(target: LaunchTarget, *option: str) -> tuple[str, ...]:
    return () if target.model is None else (*option, target.model)


def _claude_setup(target: LaunchTarget) -> LaunchSetup:
    variables: dict[str, str | None] = {
        "ANTHROPIC_BASE_URL": target.gateway_url,
        # Not as ANTHROPIC_API_KEY: it would ask whether to use a key that it has not seen before.
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
        # The names under which it asks for smaller work.
        variables |= dict.fromkeys(("ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"), target.model)
    return LaunchSetup(
        env=variables,
        arguments=_model_arguments(target, "--model"),
        files={".claude.json": _format_json({"hasCompletedOnboarding": True})},
    )


def _codex_setup(target: LaunchTarget) -> LaunchSetup:
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
    places = {
        f"XDG_{kind}_HOME": str(target.config_folder / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")
    }
    return LaunchSetup(
        env={
            **places,
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "OPENCODE_CONFIG": None,
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_SHARE": "1",
        },
    )


# How Qwen Code calls a protocol, and where it looks for address, key and model.
_QWEN_PROTOCOLS = {
    "anthropic": ("anthropic", "ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL"),
    "openai-chat": ("openai", "OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY", "OPENAI_MODEL"),
    "gemini": ("gemini", "GOOGLE_GEMINI_BASE_URL", "", "GEMINI_API_KEY", "GEMINI_MODEL"),
}


def _qwen_setup(target: LaunchTarget) -> LaunchSetup:
    kind, address, path, key, model = _QWEN_PROTOCOLS[target.protocol]
    settings = {
        "security": {"auth": {"selectedType": kind}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return LaunchSetup(
        env={
            "QWEN_HOME": str(target.config_folder),
            address: target.gateway_url + path,
            key: target.api_key,
            model: target.model or DEFAULT_MODEL,
        },
        arguments=("--auth-type", kind),
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


@click.command("launch", short_help="Start an agent that uses any model.")
@click.argument("name", metavar="AGENT", type=click.Choice(list(AGENTS)))
@click.option("--model", metavar="PROVIDER/MODEL", help="Default: the agent's own, as the gateway routes it.")
@click.option("--protocol", "spoken", metavar="PROTOCOL", help="For an agent that speaks several.")
@click.option(
    "--config", "path", type=click.Path(path_type=Path), metavar="FILE", help=f"Default: {DEFAULT_CONFIG}, if there."
)
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
    with report_bad_input(), require_extra("gateway"):
        from toolwire.gateway.config import Config, read_config

        found = path or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
        server = (Config() if found is None else read_config(found)).server
        with _temporary_folder(name) as folder, _ensure_gateway(server, found, model, folder) as root:
            own = folder / "agent"
            own.mkdir()
            key = server.keys[0] if server.keys else "none"
            aim = LaunchTarget(
                gateway_url=root, api_key=key, model=model, protocol=spoken or agent.protocols[0], config_folder=own
            )
            code = _run_agent(program, agent, aim, arguments)
    sys.exit(code)


@contextmanager
def _temporary_folder(name: str) -> Iterator[Path]:
    """A folder for as long as the agent runs. Not among the temporary ones, where Codex makes no programs."""
    from toolwire.gateway.config import state_directory

    kept = state_directory(os.environ)
    try:
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = TemporaryDirectory(prefix=f"{name}-", dir=kept, ignore_cleanup_errors=True)
    except OSError as error:
        raise BadInput(f"can't write to {kept}: {error.strerror}") from None
    with made as folder:
        yield Path(folder)


@contextmanager
def _ensure_gateway(server: "ServerSection", path: Path | None, model: str | None, folder: Path) -> Iterator[str]:
    """The address of the gateway that runs already, or else of one that runs meanwhile."""
    root = f"http://{f'[{server.host}]' if ':' in server.host else server.host}:{server.port}"
    if _is_gateway_running(server):
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
            yield _wait_for_gateway(process, log)
        finally:
            process.terminate()


def _is_gateway_running(server: "ServerSection") -> bool:
    """Whether a gateway answers there, and not just anything."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().getheader("toolwire-exchange") is not None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _wait_for_gateway(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        first, end, _ = log.read_text(encoding="utf-8", errors="replace").partition("\n")
        if end and first.startswith(_LISTENING_PREFIX):
            return first.removeprefix(_LISTENING_PREFIX)
        if process.poll() is not None:
            raise BadInput(first.removeprefix("Error: ") or "the gateway did not start")
        time.sleep(0.02)
    raise BadInput(f"the gateway did not start within {_START_TIMEOUT} seconds")


def _run_agent(program: str, agent: AgentProgram, target: LaunchTarget, arguments: tuple[str, ...]) -> int:
    """Run it in this terminal until it ends, and tell its exit code as a shell would."""
    setup = agent.build_setup(target)
    for name, text in setup.files.items():
        place = target.config_folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    # A proxy that is set for the world outside has no way to this machine.
    around = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1,localhost,::1")))
    changed = os.environ | setup.env | {"NO_PROXY": around, "no_proxy": around}
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
