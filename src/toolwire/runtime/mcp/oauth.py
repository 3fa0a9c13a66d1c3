"""Signing in to a server: tokens in a file that only its user may read, and the way back from the browser.

Tokens belong to a server's name and its address together: an address that was changed gets none that another one was
given. Without `browse` nobody is asked to sign in, and only what is stored is used, and renewed.
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from msgspec import Struct
from pydantic import AnyUrl

from toolwire.canonical.errors import ToolwireError
from toolwire.runtime.mcp.config import McpServerConfig

BrowserLauncher: TypeAlias = Callable[[str], Awaitable[None]]
"""Brings an address before a person."""

_CALLBACK_PATH = "/callback"
_SIGN_IN_TIMEOUT = 300.0
_SIGNED_IN_PAGE = b"You are signed in. This page can be closed."


class SignInRequired(ToolwireError):
    """The server wants a person to sign in, and nobody can be asked here."""


class _StoredCredentials(Struct, omit_defaults=True):
    """`expires` is in seconds since the epoch; `issuer` what the authorisation server says of itself."""

    tokens: str | None = None
    client_info: str | None = None
    expires_at: float | None = None
    issuer_metadata: str | None = None


class TokenFile:
    """What is kept for one server; with no folder, for as long as the process lives."""

    def __init__(self, folder: Path | None, name: str, url: str) -> None:
        address = hashlib.sha256(msgspec.json.encode([name, url])).hexdigest()[:16]
        self._path = None if folder is None else folder / f"{name}-{address}.json"
        self._stored = _StoredCredentials()
        self._context: OAuthContext | None = None
        if self._path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._stored = msgspec.json.decode(self._path.read_bytes(), type=_StoredCredentials)

    def restore_context(self, context: OAuthContext) -> None:
        """What the SDK does not read back: without it a token that ran out would be sent, and renewed elsewhere."""
        self._context = context
        context.token_expiry_time = self._stored.expires_at
        if self._stored.issuer_metadata is not None:
            context.oauth_metadata = OAuthMetadata.model_validate_json(self._stored.issuer_metadata)

    async def get_tokens(self) -> OAuthToken | None:
        return None if self._stored.tokens is None else OAuthToken.model_validate_json(self._stored.tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._stored.tokens = tokens.model_dump_json(exclude_none=True)
        if self._context is not None:
            told = self._context.oauth_metadata
            self._stored.expires_at = self._context.token_expiry_time
            self._stored.issuer_metadata = None if told is None else told.model_dump_json(exclude_none=True)
        self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return (
            None
            if self._stored.client_info is None
            else OAuthClientInformationFull.model_validate_json(self._stored.client_info)
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._stored.client_info = client_info.model_dump_json(exclude_none=True)
        self._write()

    def clear(self) -> bool:
        """Whether there was anything."""
        held = self._stored != _StoredCredentials()
        self._stored = _StoredCredentials()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        return held

    def _write(self) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._path.with_suffix(f".{os.getpid()}")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(self._stored))
        fresh.replace(self._path)


class RedirectListener:
    """Where the browser comes back to: one address on this machine, which takes one answer to one question."""

    def __init__(self, port: int, open_browser: BrowserLauncher) -> None:
        self._port = port
        self._open_browser = open_browser
        self._state = ""
        self._code: asyncio.Future[AuthorizationCodeResult] | None = None
        self.redirect_url = ""

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator["RedirectListener"]:
        server = await asyncio.start_server(self._handle_request, "127.0.0.1", self._port, limit=16 * 1024)
        self.redirect_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_CALLBACK_PATH}"
        try:
            yield self
        finally:
            server.close()

    async def open_authorization_url(self, url: str) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise SignInRequired(f"the authorisation server gave an address that is none: {url[:100]!r}")
        self._state = next(iter(parse_qs(urlsplit(url).query).get("state", [])), "")
        self._code = asyncio.get_running_loop().create_future()
        await self._open_browser(url)

    async def wait_for_code(self) -> AuthorizationCodeResult:
        if self._code is None:
            raise SignInRequired("nobody was sent to sign in")
        try:
            async with asyncio.timeout(_SIGN_IN_TIMEOUT):
                return await self._code
        except TimeoutError:
            raise SignInRequired(f"nobody signed in within {_SIGN_IN_TIMEOUT:.0f} seconds") from None

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status, said = self._handle_redirect(head.split(" ", 2))
                lines = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(said)}\r\n"
                writer.write(f"{lines}Connection: close\r\n\r\n".encode() + said)
                await writer.drain()
        writer.close()

    def _handle_redirect(self, request_line: list[str]) -> tuple[str, bytes]:
        method, target = request_line[0], request_line[1]
        parts = urlsplit(target)
        given = {key: values[0] for key, values in parse_qs(parts.query).items()}
        # Any page can send a browser here: only who knows what was asked is listened to.
        known = bool(self._state) and hmac.compare_digest(given.get("state", ""), self._state)
        if method != "GET" or parts.path != _CALLBACK_PATH or not known or self._code is None or self._code.done():
            return "404 Not Found", b""
        if "code" not in given:
            why = given.get("error_description") or given.get("error", "no code came back")
            self._code.set_exception(SignInRequired(f"signing in was refused: {why[:200]}"))
            return "200 OK", b"Signing in was refused."
        self._code.set_result(AuthorizationCodeResult(code=given["code"], state=given["state"], iss=given.get("iss")))
        return "200 OK", _SIGNED_IN_PAGE


@asynccontextmanager
async def oauth_provider(
    name: str, config: McpServerConfig, token_folder: Path | None, open_browser: BrowserLauncher | None
) -> AsyncGenerator[httpx2.Auth | None]:
    """None if the configuration has credentials of its own."""
    if any(header.lower() == "authorization" for header in config.headers):
        yield None
        return
    store = TokenFile(token_folder, name, config.url or "")
    if open_browser is None:
        yield await _build_provider(config, store, f"http://127.0.0.1{_CALLBACK_PATH}", _NoBrowser(name))
        return
    async with RedirectListener(config.oauth.port, open_browser).listen() as way:
        known = await store.get_client_info()
        # Registered for another port: some authorisation servers would not let it come back here.
        if known is not None and known.redirect_uris and way.redirect_url not in map(str, known.redirect_uris):
            store.clear()
        yield await _build_provider(config, store, way.redirect_url, way)


class _NoBrowser:
    """For a process that nobody watches."""

    def __init__(self, name: str) -> None:
        self._error = SignInRequired(f"it wants you to sign in: toolwire mcp login {name}")

    async def open_authorization_url(self, url: str) -> None:
        raise self._error

    async def wait_for_code(self) -> AuthorizationCodeResult:
        raise self._error


async def _build_provider(
    config: McpServerConfig, store: TokenFile, redirect_url: str, redirect: RedirectListener | _NoBrowser
) -> OAuthClientProvider:
    said = config.oauth
    if said.client_id is not None:
        method = "client_secret_basic" if said.client_secret else "none"
        by_hand = OAuthClientInformationFull(
            client_id=said.client_id,
            client_secret=said.client_secret,
            redirect_uris=[AnyUrl(redirect_url)],
            token_endpoint_auth_method=method,
            issuer=said.issuer,
        )
        await store.set_client_info(by_hand)
    made = OAuthClientProvider(
        server_url=config.url or "",
        client_metadata=OAuthClientMetadata(
            client_name="toolwire",
            redirect_uris=[AnyUrl(redirect_url)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=said.scope,
        ),
        storage=store,
        redirect_handler=redirect.open_authorization_url,
        callback_handler=redirect.wait_for_code,
        client_metadata_url=said.client_metadata_url,
    )
    store.restore_context(made.context)
    return made
