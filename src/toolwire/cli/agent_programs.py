"""The coding agents that `toolwire launch` can start, and the settings that point each at the gateway.

Each agent gets environment variables, arguments, and a settings folder of its own for each project, so that the user's
own settings are neither read nor changed, and its sessions can be resumed. Keys are only in the environment.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

# The model name sent when the user named none: the gateway routes it to its default model.
DEFAULT_MODEL = "default"


class LaunchTarget(Struct, frozen=True, kw_only=True):
    """The gateway, model and protocol that an agent is pointed at."""

    gateway_url: str
    api_key: str
    model: str | None
    # The model for titles and other small tasks.
    small_model: str | None = None
    protocol: str
    # Context window in tokens; None if unknown.
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
    # A model that it requests if the user names none.
    usual_model: str = DEFAULT_MODEL
    has_small_model: bool = False


def format_json(value: Any) -> str:
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
        files={".claude.json": format_json({"hasCompletedOnboarding": True})},
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
    """Return the `[projects]` of Codex's previous settings as TOML, so that Codex does not ask again which to trust."""
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


# The context window that Gemini CLI assumes for every model. It compacts at a share of this size.
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
        files={".gemini/settings.json": format_json(settings)},
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
        files={"settings.json": format_json(settings)},
    )


AGENTS = {
    "claude": AgentProgram(
        executable="claude",
        package="@anthropic-ai/claude-code",
        protocols=("anthropic",),
        build_setup=_claude_setup,
        resume="--resume ID",
        usual_model="claude-sonnet-4-5",
        has_small_model=True,
    ),
    "codex": AgentProgram(
        executable="codex",
        package="@openai/codex",
        protocols=("openai-responses",),
        build_setup=_codex_setup,
        resume="resume ID",
        usual_model="gpt-5.5",
    ),
    "gemini": AgentProgram(
        executable="gemini",
        package="@google/gemini-cli",
        protocols=("gemini",),
        build_setup=_gemini_setup,
        resume="--resume",
        usual_model="gemini-3-pro-preview",
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
