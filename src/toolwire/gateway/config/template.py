"""The file that `toolwire init` writes: the providers found in the environment, with comments on everything else."""

from collections.abc import Iterable, Mapping

from toolwire.codec.toml_text import toml_key, toml_value
from toolwire.upstream.provider import Provider

_HEAD = """\
# Configuration of toolwire. `toolwire config schema` describes all keys.
# Completion and checks in an editor: run `toolwire config schema > toolwire.schema.json`,
# and make this the first line: #:schema ./toolwire.schema.json
# A value "env:NAME" is read from the environment variable NAME, so that no secret is in this file.
"""

_PROVIDERS = """
# ---- Providers: requests name a model as PROVIDER/MODEL. Names that match `models` need no prefix.
"""

_NO_PROVIDER = """
# ---- Providers: requests name a model as PROVIDER/MODEL.
# Without any provider, the built-in simulator answers. `toolwire protocols` lists the protocols.

# [providers.anthropic]
# protocol = "anthropic"
# base_url = "https://api.anthropic.com"
# api_key = "env:ANTHROPIC_API_KEY"
# models = ["claude-*"]
"""

_REST = """
# ---- Short names for models, wherever a model is named.
# [aliases]
# fast = {fast}

# ---- Routes: the first match wins. If one provider fails, the next one is tried.
# [[routes]]
# match = "claude-*"
# providers = [{name}]

# ---- The gateway. Another address than 127.0.0.1 needs keys.
# [server]
# port = 4000
# keys = ["env:TOOLWIRE_KEY"]

# ---- Records of exchanges, for `toolwire journal`.
# [journal]
# enabled = true
# bodies = true

# ---- Rules for the tools of `toolwire ask`.
# [policy]
# allow = ["run_shell_command(command=git status*)"]

# ---- MCP servers, whose tools `toolwire ask` offers.
# [mcp.servers.files]
# command = "npx"
# args = ["-y", "@modelcontextprotocol/server-filesystem", "."]
"""


def render_template(providers: Iterable[Provider], variables: Mapping[str, str]) -> str:
    """Return the text of a file that configures these providers; `variables` names the variable of each key."""
    listed = list(providers)
    default = next((f"{provider.name}/{provider.default_model}" for provider in listed if provider.default_model), None)
    lines = [_HEAD]
    if default is not None:
        lines.append("# The model for requests that name none, or one that no provider has.")
        lines.append(f"default_model = {toml_value(default)}\n")
    lines[-1] = lines[-1].rstrip("\n")
    lines.append(_PROVIDERS if listed else _NO_PROVIDER)
    lines += [_render_provider(provider, variables) for provider in listed]
    name = listed[0].name if listed else "anthropic"
    fast = default or "anthropic/claude-sonnet-4-5"
    return "\n".join(lines) + _REST.format(fast=toml_value(fast), name=toml_value(name))


def _render_provider(provider: Provider, variables: Mapping[str, str]) -> str:
    """Return the table of a provider."""
    values = {
        "protocol": provider.protocol,
        "base_url": provider.base_url,
        "api_key": f"env:{variables[provider.name]}" if provider.api_key is not None else None,
        "models": list(provider.models) or None,
        "default_model": provider.default_model,
    }
    lines = [f"{key} = {toml_value(value)}" for key, value in values.items() if value is not None]
    return "\n".join([f"[providers.{toml_key(provider.name)}]", *lines, ""])
