"""The `mcp` tool of the Responses API, to a canonical server and back."""

from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.tools import McpServer
from toolwire.codec.connectors import ASKS, BOUND, report_others, strings, unread
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.protocols.openai_responses.wire import FAMILY

_KNOWN = ("type", "server_label", "server_url", "server_description", "authorization", "headers", "require_approval")
_FILTER = f"{FAMILY}:name:allowed=allowed_tools/tool_names"

_decode = msgspec.json.Decoder().decode


# ---- decode


def decode_server(raw: Raw, path: str) -> McpServer | None:
    """The server, if it has an address of its own: connectors and tunnels are the provider's."""
    said = _decode(raw)
    name, url, token, headers = (said.get(key) for key in ("server_label", "server_url", "authorization", "headers"))
    if not isinstance(name, str) or not isinstance(url, str) or not isinstance(token, str | None):
        return None
    if headers is not None and not (isinstance(headers, dict) and strings(list(headers.values()))):
        return None
    allowed = said.get("allowed_tools")
    wrapped = isinstance(allowed, dict) and allowed.keys() == {"tool_names"}
    names = strings(allowed["tool_names"] if wrapped else allowed)
    about = said.get("server_description")
    known = [f"{path}/{key}" for key in _KNOWN]
    if names is not None:
        known.append(f"{path}/allowed_tools/tool_names" if wrapped else f"{path}/allowed_tools")
    return McpServer(
        name=name,
        url=url,
        authorization=token,
        headers=None if headers is None else Raw(msgspec.json.encode(headers)),
        allowed=names,
        description=about if isinstance(about, str) else None,
        unportable=_unportable(said, names),
        others=tuple(unread(said, path, known)),
        form=(_FILTER,) if wrapped else (),
        at="",
    )


def _unportable(said: dict[str, Any], names: tuple[str, ...] | None) -> str | None:
    if said.get("require_approval") != "never":  # left out, somebody is asked each time
        return ASKS
    callers = said.get("allowed_callers")
    if (said.get("allowed_tools") is not None and names is None) or (callers is not None and "direct" not in callers):
        return BOUND
    return None


# ---- encode


def encode_server(server: McpServer, trail: Trail, plan: Plan) -> dict[str, Any]:
    report_others(server, plan)
    wire = {
        "type": "mcp",
        "server_label": server.name,
        "server_url": server.url,
        "server_description": server.description,
        "authorization": server.authorization,
        "headers": server.headers,
        "allowed_tools": server.allowed,
        "require_approval": "never",  # as with other vendors; left out, this one asks
    }
    return {name: value for name, value in wire.items() if value is not None}
