"""An MCP client that writes raw JSON-RPC messages."""

import json
from typing import Any, Self

import httpx2

from tests.support.deadlines import DEADLINE
from tests.support.mcp.toolsets import NEW_VERSION, OLD_VERSION


class RawMcpClient:
    """A client that sends arbitrary messages."""

    def __init__(self, url: str, version: str, meta: dict[str, Any], **headers: str) -> None:
        self._url, self._version, self._meta = url, version, meta
        self._client = httpx2.AsyncClient(trust_env=False, timeout=DEADLINE)
        self._headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version, **headers}

    async def __aenter__(self) -> Self:
        if self._version == OLD_VERSION:
            params = {
                "protocolVersion": OLD_VERSION,
                "capabilities": {},
                "clientInfo": {"name": "plain", "version": "1"},
            }
            response = await self.post({"method": "initialize", "id": 0, "params": params})
            if (session := response.headers.get("mcp-session-id")) is not None:
                self._headers["mcp-session-id"] = session
            await self.post({"method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def post(self, message: dict[str, Any], **headers: str) -> httpx2.Response:
        return await self._client.post(self._url, json={"jsonrpc": "2.0", **message}, headers=self._headers | headers)

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {}
        if self._version == NEW_VERSION:
            params = {**params, "_meta": self._meta}
            headers = {"mcp-method": method}
            if (name := params.get("name", params.get("uri"))) is not None:
                headers["mcp-name"] = name
        response = await self.post({"method": method, "id": 1, "params": params}, **headers)
        text = response.text
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        reply: dict[str, Any] = json.loads(lines[-1] if lines else text)
        return reply


ELICITATION_META = {
    "io.modelcontextprotocol/protocolVersion": NEW_VERSION,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
