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

from .settings import Server

Browse: TypeAlias = Callable[[str], Awaitable[None]]
"""Brings an address before a person."""

_PATH = "/callback"
_PATIENCE = 300.0
_DONE = b"You are signed in. This page can be closed."


class SignInNeeded(ToolwireError):
    """The server wants a person to sign in, and nobody can be asked here."""


class _Kept(Struct, omit_defaults=True):
    """`expires` is in seconds since the epoch; `issuer` what the authorisation server says of itself."""

    tokens: str | None = None
    client: str | None = None
    expires: float | None = None
    issuer: str | None = None


class TokenFile:
    """What is kept for one server; with no folder, for as long as the process lives."""

    def __init__(self, folder: Path | None, name: str, url: str) -> None:
        address = hashlib.sha256(msgspec.json.encode([name, url])).hexdigest()[:16]
        self._path = None if folder is None else folder / f"{name}-{address}.json"
        self._kept = _Kept()
        self._context: OAuthContext | None = None
        if self._path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._kept = msgspec.json.decode(self._path.read_bytes(), type=_Kept)

    def restore(self, context: OAuthContext) -> None:
        """What the SDK does not read back: without it a token that ran out would be sent, and renewed elsewhere."""
        self._context = context
        context.token_expiry_time = self._kept.expires
        if self._kept.issuer is not None:
            context.oauth_metadata = OAuthMetadata.model_validate_json(self._kept.issuer)

    async def get_tokens(self) -> OAuthToken | None:
        return None if self._kept.tokens is None else OAuthToken.model_validate_json(self._kept.tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._kept.tokens = tokens.model_dump_json(exclude_none=True)
        if self._context is not None:
            told = self._context.oauth_metadata
            self._kept.expires = self._context.token_expiry_time
            self._kept.issuer = None if told is None else told.model_dump_json(exclude_none=True)
        self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None if self._kept.client is None else OAuthClientInformationFull.model_validate_json(self._kept.client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._kept.client = client_info.model_dump_json(exclude_none=True)
        self._write()

    def forget(self) -> bool:
        """Whether there was anything."""
        held = self._kept != _Kept()
        self._kept = _Kept()
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
            file.write(msgspec.json.encode(self._kept))
        fresh.replace(self._path)


class WayBack:
    """Where the browser comes back to: one address on this machine, which takes one answer to one question."""

    def __init__(self, port: int, browse: Browse) -> None:
        self._port = port
        self._browse = browse
        self._state = ""
        self._found: asyncio.Future[AuthorizationCodeResult] | None = None
        self.address = ""

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator["WayBack"]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", self._port, limit=16 * 1024)
        self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_PATH}"
        try:
            yield self
        finally:
            server.close()

    async def leave(self, url: str) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise SignInNeeded(f"the authorisation server gave an address that is none: {url[:100]!r}")
        self._state = next(iter(parse_qs(urlsplit(url).query).get("state", [])), "")
        self._found = asyncio.get_running_loop().create_future()
        await self._browse(url)

    async def back(self) -> AuthorizationCodeResult:
        if self._found is None:
            raise SignInNeeded("nobody was sent to sign in")
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._found
        except TimeoutError:
            raise SignInNeeded(f"nobody signed in within {_PATIENCE:.0f} seconds") from None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status, said = self._taken(head.split(" ", 2))
                lines = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(said)}\r\n"
                writer.write(f"{lines}Connection: close\r\n\r\n".encode() + said)
                await writer.drain()
        writer.close()

    def _taken(self, line: list[str]) -> tuple[str, bytes]:
        method, target = line[0], line[1]
        parts = urlsplit(target)
        given = {key: values[0] for key, values in parse_qs(parts.query).items()}
        # Any page can send a browser here: only who knows what was asked is listened to.
        known = bool(self._state) and hmac.compare_digest(given.get("state", ""), self._state)
        if method != "GET" or parts.path != _PATH or not known or self._found is None or self._found.done():
            return "404 Not Found", b""
        if "code" not in given:
            why = given.get("error_description") or given.get("error", "no code came back")
            self._found.set_exception(SignInNeeded(f"signing in was refused: {why[:200]}"))
            return "200 OK", b"Signing in was refused."
        self._found.set_result(AuthorizationCodeResult(code=given["code"], state=given["state"], iss=given.get("iss")))
        return "200 OK", _DONE


@asynccontextmanager
async def signing_in(
    name: str, server: Server, folder: Path | None, browse: Browse | None
) -> AsyncGenerator[httpx2.Auth | None]:
    """None if the configuration has credentials of its own."""
    if any(header.lower() == "authorization" for header in server.headers):
        yield None
        return
    store = TokenFile(folder, name, server.url or "")
    if browse is None:
        yield await _provider(server, store, f"http://127.0.0.1{_PATH}", _Nowhere(name))
        return
    async with WayBack(server.oauth.port, browse).listening() as way:
        known = await store.get_client_info()
        # Registered for another port: some authorisation servers would not let it come back here.
        if known is not None and known.redirect_uris and way.address not in map(str, known.redirect_uris):
            store.forget()
        yield await _provider(server, store, way.address, way)


class _Nowhere:
    """For a process that nobody watches."""

    def __init__(self, name: str) -> None:
        self._needed = SignInNeeded(f"it wants you to sign in: toolwire mcp login {name}")

    async def leave(self, url: str) -> None:
        raise self._needed

    async def back(self) -> AuthorizationCodeResult:
        raise self._needed


async def _provider(server: Server, store: TokenFile, address: str, way: WayBack | _Nowhere) -> OAuthClientProvider:
    said = server.oauth
    if said.client_id is not None:
        method = "client_secret_basic" if said.client_secret else "none"
        by_hand = OAuthClientInformationFull(
            client_id=said.client_id,
            client_secret=said.client_secret,
            redirect_uris=[AnyUrl(address)],
            token_endpoint_auth_method=method,
            issuer=said.issuer,
        )
        await store.set_client_info(by_hand)
    made = OAuthClientProvider(
        server_url=server.url or "",
        client_metadata=OAuthClientMetadata(
            client_name="toolwire",
            redirect_uris=[AnyUrl(address)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=said.scope,
        ),
        storage=store,
        redirect_handler=way.leave,
        callback_handler=way.back,
        client_metadata_url=said.client_metadata_url,
    )
    store.restore(made.context)
    return made
