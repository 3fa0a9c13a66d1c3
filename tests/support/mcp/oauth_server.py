"""An MCP server that requires OAuth, and its authorization server, at one address."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, quote

import uvicorn
from msgspec import Struct, field


class OAuthServer(Struct):
    base: str = ""
    expired: bool = False
    registered: int = 0
    grants: list[str] = field(default_factory=list)
    authorized: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    forms: list[dict[str, list[str]]] = field(default_factory=list)
    on_token: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    def respond(
        self, method: str, path: str, query: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any, dict[str, str]]:
        match path:
            case "/mcp":
                return self.tools(query, headers, body)
            case "/.well-known/oauth-protected-resource/mcp":
                return 200, {"resource": self.url, "authorization_servers": [self.base]}, {}
            case "/.well-known/oauth-authorization-server":
                endpoints = {
                    f"{name}_endpoint": f"{self.base}/{name}" for name in ("authorization", "token", "registration")
                }
                auth_methods = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
                return (
                    200,
                    {"issuer": self.base, **endpoints, "token_endpoint_auth_methods_supported": auth_methods},
                    {},
                )
            case "/registration":
                self.registered += 1
                return 201, {**json.loads(body), "client_id": "made", "token_endpoint_auth_method": "none"}, {}
            case "/authorization":
                self.authorized.append(f"{path}?{query}")
                params = {key: values[0] for key, values in parse_qs(query).items()}
                redirect = f"{params['redirect_uri']}?code=c0de&state={quote(params['state'])}"
                return 302, None, {"location": redirect}
            case "/token":
                return self.token(headers, parse_qs(body.decode()))
            case _:
                return 404, None, {}

    def token(self, headers: dict[str, str], form: dict[str, list[str]]) -> tuple[int, Any, dict[str, str]]:
        self.grants += form["grant_type"]
        self.forms.append(form)
        self.on_token()
        if (basic := headers.get("authorization", "")).startswith("Basic "):
            self.secrets.append(base64.b64decode(basic[6:]).decode())
        self.expired = False
        name = f"token-{len(self.grants)}"
        return 200, {"access_token": name, "token_type": "Bearer", "expires_in": 3600, "refresh_token": "again"}, {}

    def tools(self, query: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        self.queries.append(query)
        if self.expired or headers.get("authorization") != f"Bearer token-{len(self.grants)}":
            challenge = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            return 401, None, {"www-authenticate": challenge}
        message = json.loads(body)
        hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        results: dict[str, Any] = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **hints},
            "tools/list": {"tools": [], **hints},
        }
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}, {}


@asynccontextmanager
async def serve_oauth() -> AsyncIterator[OAuthServer]:
    server_state = OAuthServer()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more_body = b"", True
        while more_body:
            message = await receive()
            body, more_body = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = scope["query_string"].decode()
        status, content, extra = server_state.respond(scope["method"], scope["path"], query, headers, body)
        response_headers = {"content-type": "application/json", **extra}
        pairs = [(name.encode(), value.encode()) for name, value in response_headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": b"" if content is None else json.dumps(content).encode()})

    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event for it
        await asyncio.sleep(0.01)
    server_state.base = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield server_state
    finally:
        server.should_exit = True
        await task
