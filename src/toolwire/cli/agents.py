"""What each agent needs to talk to the gateway: variables, arguments, and files in a folder that is not the user's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

# What the gateway is asked for where nobody named a model: it leads to its default.
UNNAMED = "default"


class Aim(Struct, frozen=True, kw_only=True):
    """Where an agent is pointed. `folder` is its own for as long as it runs."""

    root: str
    key: str
    model: str | None
    protocol: str
    folder: Path


class Setup(Struct, frozen=True, kw_only=True):
    """What to start an agent with. A variable that is None is taken out: it would lead elsewhere."""

    variables: dict[str, str | None]
    arguments: tuple[str, ...] = ()
    files: dict[str, str] = {}


class Agent(Struct, frozen=True, kw_only=True):
    """`package` is its name at npm. `protocols`: those it can speak, first the one that it speaks unless told
    otherwise: not Chat, which has no field for what proves a model's thinking."""

    executable: str
    package: str
    protocols: tuple[str, ...]
    setup: Callable[[Aim], Setup]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _named(aim: Aim, *option: str) -> tuple[str, ...]:
    return () if aim.model is None else (*option, aim.model)


def _claude(aim: Aim) -> Setup:
    variables: dict[str, str | None] = {
        "ANTHROPIC_BASE_URL": aim.root,
        # Not as ANTHROPIC_API_KEY: it would ask whether to use a key that it has not seen before.
        "ANTHROPIC_AUTH_TOKEN": aim.key,
        "ANTHROPIC_API_KEY": None,
        "ANTHROPIC_MODEL": None,
        "CLAUDE_CODE_USE_BEDROCK": None,
        "CLAUDE_CODE_USE_VERTEX": None,
        "CLAUDE_CODE_USE_FOUNDRY": None,
        "CLAUDE_CONFIG_DIR": str(aim.folder),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }
    if aim.model is not None:
        # The names under which it asks for smaller work.
        variables |= dict.fromkeys(("ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"), aim.model)
    return Setup(
        variables=variables,
        arguments=_named(aim, "--model"),
        files={".claude.json": _json({"hasCompletedOnboarding": True})},
    )


def _codex(aim: Aim) -> Setup:
    model = "" if aim.model is None else f"model = {json.dumps(aim.model)}\n"
    return Setup(
        variables={"CODEX_HOME": str(aim.folder), "TOOLWIRE_KEY": aim.key},
        files={
            "config.toml": f"""{model}model_provider = "toolwire"
check_for_update_on_startup = false

[model_providers.toolwire]
name = "toolwire"
base_url = {json.dumps(aim.root + "/v1")}
env_key = "TOOLWIRE_KEY"
wire_api = "responses"

[analytics]
enabled = false

[feedback]
enabled = false
"""
        },
    )


def _gemini(aim: Aim) -> Setup:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    return Setup(
        variables={
            "GEMINI_CLI_HOME": str(aim.folder),
            "GEMINI_API_KEY": aim.key,
            "GOOGLE_GEMINI_BASE_URL": aim.root,
            "GEMINI_MODEL": None,
            "GOOGLE_API_KEY": None,
            "GOOGLE_GENAI_USE_GCA": None,
            "GOOGLE_GENAI_USE_VERTEXAI": None,
        },
        arguments=_named(aim, "-m"),
        files={".gemini/settings.json": _json(settings)},
    )


_SDK_PACKAGES = {
    "anthropic": ("@ai-sdk/anthropic", "/v1"),
    "openai-responses": ("@ai-sdk/openai", "/v1"),
    "openai-chat": ("@ai-sdk/openai-compatible", "/v1"),
    "gemini": ("@ai-sdk/google", "/v1beta"),
}


def _opencode(aim: Aim) -> Setup:
    package, path = _SDK_PACKAGES[aim.protocol]
    model = aim.model or UNNAMED
    config = {
        "model": f"toolwire/{model}",
        "small_model": f"toolwire/{model}",
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "toolwire": {
                "name": "toolwire",
                "npm": package,
                "options": {"baseURL": aim.root + path, "apiKey": aim.key},
                "models": {model: {"name": model}},
            }
        },
    }
    places = {f"XDG_{kind}_HOME": str(aim.folder / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    return Setup(
        variables={
            **places,
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "OPENCODE_CONFIG": None,
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_SHARE": "1",
        },
    )


# How Qwen Code calls a protocol, and where it looks for address, key and model.
_QWEN = {
    "anthropic": ("anthropic", "ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL"),
    "openai-chat": ("openai", "OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY", "OPENAI_MODEL"),
    "gemini": ("gemini", "GOOGLE_GEMINI_BASE_URL", "", "GEMINI_API_KEY", "GEMINI_MODEL"),
}


def _qwen(aim: Aim) -> Setup:
    kind, address, path, key, model = _QWEN[aim.protocol]
    settings = {
        "security": {"auth": {"selectedType": kind}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return Setup(
        variables={
            "QWEN_HOME": str(aim.folder),
            address: aim.root + path,
            key: aim.key,
            model: aim.model or UNNAMED,
        },
        arguments=("--auth-type", kind),
        files={"settings.json": _json(settings)},
    )


AGENTS = {
    "claude": Agent(executable="claude", package="@anthropic-ai/claude-code", protocols=("anthropic",), setup=_claude),
    "codex": Agent(executable="codex", package="@openai/codex", protocols=("openai-responses",), setup=_codex),
    "gemini": Agent(executable="gemini", package="@google/gemini-cli", protocols=("gemini",), setup=_gemini),
    "opencode": Agent(executable="opencode", package="opencode-ai", protocols=tuple(_SDK_PACKAGES), setup=_opencode),
    "qwen": Agent(executable="qwen", package="@qwen-code/qwen-code", protocols=tuple(_QWEN), setup=_qwen),
}
