"""Anthropic's MCP connector, to canonical servers and back: a server, and apart from it the toolset that offers it."""

from typing import Any

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.tools import McpServer, NativeTool, Tool
from toolwire.codec.connectors import BOUND, report_others, strings, token_of, unread
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.protocols.anthropic.wire import FAMILY

BETA = ("anthropic-beta", "mcp-client-2025-11-20")
TOLD = f"{FAMILY}:told:mcp_servers"
"""All servers are those of toolsets, and so are told with them."""

_TOOLSET = "mcp_toolset"
_OF_TOOLSET = ("type", "mcp_server_name", "default_config/enabled")
_OF_SERVER = ("type", "name", "url", "authorization_token", "tool_configuration/enabled")

_decode = msgspec.json.Decoder().decode


# ---- decode


def connected(tools: tuple[Tool, ...], servers: Raw | UnsetType) -> tuple[Tool, ...]:
    """The tools, each toolset with its server; as they are if a server has none, or several."""
    if not isinstance(servers, Raw) or not isinstance(entries := _decode(servers), list):
        return tools
    toolsets = {
        index: _decode(tool.body)
        for index, tool in enumerate(tools)
        if isinstance(tool, NativeTool) and tool.kind == _TOOLSET
    }
    if not all(map(_is_server, entries)):
        return tools
    names = [one["name"] for one in entries]
    if sorted(names) != sorted(str(one.get("mcp_server_name")) for one in toolsets.values()):
        return tools
    made = list(tools)
    for index, toolset in toolsets.items():
        number = names.index(toolset["mcp_server_name"])
        made[index] = replace(made[index], server=_decode_server(entries[number], number, toolset, index))
    return tuple(made)


def is_told(tools: tuple[Tool, ...] | None) -> bool:
    if NativeTool not in map(type, tools or ()):
        return False
    return any(isinstance(tool, NativeTool) and tool.server is not None for tool in tools or ())


def _is_server(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("type") != "url":
        return False
    if not isinstance(entry.get("authorization_token"), str | None):
        return False
    return all(isinstance(entry.get(key), str) for key in ("name", "url"))


def _decode_server(entry: dict[str, Any], number: int, toolset: dict[str, Any], index: int) -> McpServer:
    here, there = f"/mcp_servers/{number}", f"/tools/{index}"
    older = _object(entry.get("tool_configuration"))
    names, unportable = _allowed(toolset)
    known = [f"{here}/{key}" for key in _OF_SERVER] + [f"{there}/{key}" for key in _OF_TOOLSET]
    known += [f"{there}/configs/{name}/enabled" for name in _object(toolset.get("configs"))]
    known += [f"{there}/tools/{place}/name" for place in range(len(toolset.get("tools") or ()))]
    if older.get("enabled") is False:
        unportable = BOUND
    if (also := strings(older.get("allowed_tools"))) is not None:
        names = also if names is None else tuple([name for name in names if name in also])
        known.append(f"{here}/tool_configuration/allowed_tools")
    return McpServer(
        name=entry["name"],
        url=entry["url"],
        authorization=entry.get("authorization_token"),
        allowed=names,
        unportable=unportable,
        others=(*unread(entry, here, known), *unread(toolset, there, known)),
        form=(f"{FAMILY}:name:allowed={there}",),
        at=f"/{here}",
    )


def _allowed(toolset: dict[str, Any]) -> tuple[tuple[str, ...] | None, str | None]:
    """The only tools that may be called, None for all; and why no other vendor can be told so."""
    usually = _object(toolset.get("default_config")).get("enabled", True)
    said = {name: _object(one).get("enabled", usually) for name, one in _object(toolset.get("configs")).items()}
    pinned = toolset.get("tools")
    if pinned is not None:
        listed = [one.get("name") if isinstance(one, dict) else None for one in pinned]
        return tuple([name for name in listed if isinstance(name, str) and said.get(name, usually)]), None
    if not usually:
        return tuple([name for name, enabled in said.items() if enabled]), None
    return None, None if all(said.values()) else BOUND


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---- encode


def encode_server(server: McpServer, trail: Trail, plan: Plan) -> dict[str, Any]:
    """The toolset; the server itself waits in the plan."""
    report_others(server, plan)
    if server.description is not None:
        plan.report.dropped((*trail, "server"), "description")
    entry = {"type": "url", "name": server.name, "url": server.url}
    if (token := token_of(server, trail, plan)) is not None:
        entry["authorization_token"] = token
    plan.servers.append(entry)
    toolset: dict[str, Any] = {"type": _TOOLSET, "mcp_server_name": server.name}
    if server.allowed is not None:
        toolset["default_config"] = {"enabled": False}
        toolset["configs"] = {name: {"enabled": True} for name in server.allowed}
    return toolset
