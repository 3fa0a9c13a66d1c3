"""MCP servers as Google's protocols declare them, to canonical and back; only the newer one bounds their tools."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.tools import McpServer
from toolwire.codec.connectors import BOUND, headers_of, report_others, strings, unread
from toolwire.codec.hosted import json_of
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan

_TRANSPORTS = ("streamableHttpTransport", "streamable_http_transport")


# ---- decode


def decode_newer(raw: Raw, path: str) -> McpServer | None:
    said = json_of(raw)
    if not isinstance(said, dict):
        return None
    wanted = said.get("allowed_tools")
    only = wanted[0] if isinstance(wanted, list) and len(wanted) == 1 and isinstance(wanted[0], dict) else {}
    names = strings(only.get("tools")) if only.get("mode") in (None, "auto") else None
    known = ["type", "name", "url", "headers", *(["allowed_tools/0/tools", "allowed_tools/0/mode"] if names else [])]
    return _server(said, said, path, known, names, unportable=BOUND if wanted and names is None else None)


def decode_older(raw: Raw, path: str) -> McpServer | None:
    said = json_of(raw)
    if not isinstance(said, dict):
        return None
    word = next((one for one in _TRANSPORTS if isinstance(said.get(one), dict)), None)
    if word is None:
        return None
    return _server(said, said[word], path, ["name", f"{word}/url", f"{word}/headers"])


def _server(
    said: Mapping[str, Any],
    transport: Mapping[str, Any],
    path: str,
    known: list[str],
    names: tuple[str, ...] | None = None,
    *,
    unportable: str | None = None,
) -> McpServer | None:
    name, url, headers = said.get("name"), transport.get("url"), transport.get("headers")
    if not isinstance(name, str) or not isinstance(url, str):
        return None
    if headers is not None and not (isinstance(headers, dict) and strings(list(headers.values())) is not None):
        return None
    return McpServer(
        name=name,
        url=url,
        headers=Raw(msgspec.json.encode(headers)) if headers else None,
        allowed=names,
        unportable=unportable,
        others=tuple(unread(said, path, [f"{path}/{one}" for one in known])),
        at="",
    )


# ---- encode


def encode_newer(server: McpServer, trail: Trail, plan: Plan) -> dict[str, Any]:
    wire = {"type": "mcp_server", "name": server.name, **_reached(server, trail, plan)}
    return wire if server.allowed is None else {**wire, "allowed_tools": [{"tools": server.allowed}]}


def encode_older(server: McpServer, trail: Trail, plan: Plan) -> dict[str, Any]:
    return {"name": server.name, "streamableHttpTransport": _reached(server, trail, plan)}


def _reached(server: McpServer, trail: Trail, plan: Plan) -> dict[str, Any]:
    report_others(server, plan)
    if server.description is not None:
        plan.report.dropped((*trail, "server"), "description")
    headers = headers_of(server)
    return {"url": server.url, **({"headers": headers} if headers else {})}
