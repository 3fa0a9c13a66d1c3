"""MCP connectors: servers of tools that a provider itself calls for the model, and what it called.

A protocol folder reads its own declaration into an `McpServer`, and writes one in its own words. Where `unportable`
says why, other vendors can't be bound in the same way (a person is to be asked, some tools may not be called): such a
tool is dropped whole, so that it can't run unguarded.
"""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from toolwire.canonical.content import Foreign, Part, Text, ToolCall, ToolResult
from toolwire.canonical.tools import McpServer, NativeTool

from .fields import escape
from .losses import Trail
from .plan import Plan

ASKS = "a person is to be asked before its tools are called"
BOUND = "which of its tools may be called can't be said to the target"

_CALLED = frozenset({"mcp_tool_use", "mcp_tool_result", "mcp_call", "mcp_server_tool_call", "mcp_server_tool_result"})
_BEARER = "Bearer "
_decode = msgspec.json.Decoder().decode


# ---- decode


def strings(value: Any) -> tuple[str, ...] | None:
    """The names in a list of nothing but names."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    return None


def unread(value: Any, at: str, known: Collection[str]) -> Iterator[str]:
    """The pointers to all that is not known in a declaration; `known` are pointers, too."""
    if at in known or value is None or value == {}:
        return
    if isinstance(value, dict | list) and any(one.startswith(at + "/") for one in known):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from unread(inner, f"{at}/{escape(str(name))}", known)
    else:
        yield at


# ---- encode


def connector(tool: NativeTool) -> McpServer | None:
    """The server that a target with connectors may be told of."""
    return None if tool.server is None or tool.server.unportable is not None else tool.server


def headers_of(server: McpServer) -> dict[str, str]:
    """All headers, for a target that takes a key only among them."""
    found: dict[str, str] = {} if server.headers is None else _decode(server.headers)
    return found if server.authorization is None else {**found, "Authorization": _BEARER + server.authorization}


def token_of(server: McpServer, trail: Trail, plan: Plan) -> str | None:
    """The key, for a target that takes no other headers: those are reported."""
    token = server.authorization
    for name, value in ({} if server.headers is None else _decode(server.headers)).items():
        if token is None and name.lower() == "authorization" and value.startswith(_BEARER):
            token = value.removeprefix(_BEARER)
        else:
            plan.report.dropped((*trail, "server"), f"//headers/{escape(name)}", "the target sends no such header")
    return token


def report_others(server: McpServer, plan: Plan) -> None:
    """What else its declaration said, which only its own protocol has."""
    for pointer in server.others:
        plan.report.dropped((), f"/{pointer}", "the target's connector has no such setting")


# ---- what was called


def is_connected(part: Part) -> bool:
    """Whether it is a call of a server's tool, or its result."""
    return isinstance(part, ToolCall | ToolResult) and part.native in _CALLED


def text_of(result: ToolResult) -> str:
    """What a server's tool said."""
    said = result.content or ()
    texts = [one.text if isinstance(one, Text) else one.gist for one in said if isinstance(one, Text | Foreign)]
    return "\n".join(text for text in texts if text)
