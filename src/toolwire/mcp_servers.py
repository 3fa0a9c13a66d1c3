"""MCP servers for an agent, described in code.

notes = mcp_server("notes", command="uvx", args=["mcp-server-notes"])
agent = Agent(tools=[notes])
agent.run([Text(text="Summarize."), *notes.resource("note:///today")])
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from toolwire.canonical.errors import ToolwireError
from toolwire.gateway.config import ConfigSource, resolve_config, state_directory
from toolwire.gateway.in_process import open_model
from toolwire.installation import require_extra
from toolwire.runtime.mcp.config import (
    LogLevel,
    McpSection,
    McpServerConfig,
    OAuthConfig,
    ProtocolVersion,
    SamplingConfig,
    check_servers,
)
from toolwire.runtime.model import Model

if TYPE_CHECKING:
    from toolwire.runtime.mcp.toolset import McpToolset


class McpServerOptions(TypedDict, total=False):
    """The keys of `[mcp.servers.NAME]`, as keywords of `mcp_server`."""

    command: str
    args: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    url: str
    headers: Mapping[str, str]
    oauth: OAuthConfig | Mapping[str, Any]
    version: ProtocolVersion
    timeout: float
    task_timeout: float
    connect_timeout: float
    roots: Sequence[str]
    log_level: LogLevel
    sampling: SamplingConfig | Mapping[str, Any]
    resources: bool
    tools: Sequence[str]
    without: Sequence[str]


def mcp_server(name: str, *, config: ConfigSource | None = None, **options: Unpack[McpServerOptions]) -> "McpToolset":
    """Return the tools of an MCP server: a program (`command`, `args`) or an HTTP address (`url`).

    The options are the keys of `[mcp.servers.NAME]`. `config` is the gateway configuration for the model that
    `sampling` names.
    """
    if isinstance(options.get("command"), Sequence) and not isinstance(options.get("command"), str):
        raise ToolwireError(f"mcp_server({name!r}): command is one program: put its arguments into `args`")
    try:
        server = msgspec.convert(dict(options), McpServerConfig)
    except msgspec.ValidationError as error:
        raise ToolwireError(f"mcp_server({name!r}): {error}") from None
    check_servers(McpSection(servers={name: server}))
    with require_extra("mcp", "MCP"):
        from toolwire.runtime.mcp.toolset import McpToolset  # noqa: PLC0415 - an extra, and slow to load

    async def open_named_model(model: str) -> Model:
        """Open the model that the server samples."""
        return await open_model(model, resolve_config(config))

    return McpToolset(name, server, token_folder=state_directory(os.environ) / "mcp", open_model=open_named_model)
