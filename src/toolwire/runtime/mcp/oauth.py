"""OAuth sign-in to MCP servers: token storage in files with mode 0600, and the redirect from the browser.

Tokens belong to a server's name and URL together, so a changed URL receives no tokens of the old one. Without a
browser, only stored tokens are used and refreshed.
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp.shared.exceptions import MCPDeprecationWarning
from msgspec import Struct
from pydantic import AnyUrl

from toolwire.canonical.errors import ToolwireError
from toolwire.runtime.mcp.config import McpServerConfig

BrowserLauncher: TypeAlias = Callable[[str], Awaitable[None]]
"""Opens a URL in the user's browser."""

_CALLBACK_PATH = "/callback"
_SIGN_IN_TIMEOUT = 300.0
_SIGNED_IN_PAGE = b"You are signed in. You can close this page."


class SignInRequired(ToolwireError):
    """The server requires the user to sign in, and that failed or is not possible here."""


class _StoredCredentials(Struct, omit_defaults=True):
    """The content of a token file; tokens, client and metadata are JSON texts of the SDK's models."""

    tokens: str | None = None
    client_info: str | None = None
    expires_at: float | None = None
    """Expiry of the access token, in seconds since the epoch."""
    issuer_metadata: str | None = None
    """Metadata of the authorization server."""


class TokenFile:
    """The stored credentials of one server (the SDK's `TokenStorage`). Without a folder, they are held in memory."""

    def __init__(self, folder: Path | None, name: str, url: str) -> None:
        digest = hashlib.sha256(msgspec.json.encode([name, url])).hexdigest()[:16]
        self._path = None if folder is None else folder / f"{name}-{digest}.json"
        self._stored = _StoredCredentials()
        self._context: OAuthContext | None = None
        if self._path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._stored = msgspec.json.decode(self._path.read_bytes(), type=_StoredCredentials)

    def restore_context(self, context: OAuthContext) -> None:
        """Restore what the SDK does not load itself: token expiry and issuer metadata.

        Without them, the SDK would send expired tokens and refresh them at the wrong endpoint.
        """
        self._context = context
        context.token_expiry_time = self._stored.expires_at
        if self._stored.issuer_metadata is not None:
            context.oauth_metadata = OAuthMetadata.model_validate_json(self._stored.issuer_metadata)

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens; None if there are none."""
        return None if self._stored.tokens is None else OAuthToken.model_validate_json(self._stored.tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new tokens with their expiry and the issuer's metadata."""
        self._stored.tokens = tokens.model_dump_json(exclude_none=True)
        if self._context is not None:
            metadata = self._context.oauth_metadata
            self._stored.expires_at = self._context.token_expiry_time
            self._stored.issuer_metadata = None if metadata is None else metadata.model_dump_json(exclude_none=True)
        self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the stored registration of this OAuth client; None if there is none."""
        return (
            None
            if self._stored.client_info is None
            else OAuthClientInformationFull.model_validate_json(self._stored.client_info)
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the registration of this OAuth client."""
        self._stored.client_info = client_info.model_dump_json(exclude_none=True)
        self._write()

    def clear(self) -> bool:
        """Delete the credentials; returns True if there were any."""
        had_credentials = self._stored != _StoredCredentials()
        self._stored = _StoredCredentials()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        return had_credentials

    def _write(self) -> None:
        """Replace the file atomically, readable by its owner only."""
        if self._path is None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary_path = self._path.with_suffix(f".{os.getpid()}")
        temporary_path.unlink(missing_ok=True)
        descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(self._stored))
        temporary_path.replace(self._path)


class RedirectListener:
    """A local HTTP server that receives the OAuth redirect of one sign-in."""

    def __init__(self, port: int, open_browser: BrowserLauncher) -> None:
        self._port = port
        self._open_browser = open_browser
        self._state = ""
        self._code: asyncio.Future[AuthorizationCodeResult] | None = None
        self.redirect_url = ""

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator["RedirectListener"]:
        """Listen on the loopback interface, and set `redirect_url`."""
        server = await asyncio.start_server(self._handle_request, "127.0.0.1", self._port, limit=16 * 1024)
        self.redirect_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_CALLBACK_PATH}"
        try:
            yield self
        finally:
            server.close()

    async def open_authorization_url(self, url: str) -> None:
        """Open the sign-in page, and remember its `state` parameter."""
        try:
            is_http = urlsplit(url).scheme in ("http", "https")
        except ValueError:  # brackets that are no IPv6 address
            is_http = False
        if not is_http:
            raise SignInRequired(f"the authorization server sent an invalid URL: {url[:100]!r}")
        self._state = next(iter(parse_qs(urlsplit(url).query).get("state", [])), "")
        self._code = asyncio.get_running_loop().create_future()
        await self._open_browser(url)

    async def wait_for_code(self) -> AuthorizationCodeResult:
        """Wait for the redirect, and return its authorization code."""
        if self._code is None:
            raise SignInRequired("the sign-in page was not opened")
        try:
            async with asyncio.timeout(_SIGN_IN_TIMEOUT):
                return await self._code
        except TimeoutError:
            raise SignInRequired(f"sign-in timed out after {_SIGN_IN_TIMEOUT:.0f} seconds") from None

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one HTTP request of the browser."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status, body = self._handle_redirect(head.split(" ", 2))
                lines = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"{lines}Connection: close\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    def _handle_redirect(self, request_line: list[str]) -> tuple[str, bytes]:
        """Take the code or error from the redirect; return the status line and body of the response."""
        method, target = request_line[0], request_line[1]
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        # Any web page can send a browser here, so the request must have the `state` of our sign-in.
        is_ours = bool(self._state) and hmac.compare_digest(query.get("state", ""), self._state)
        if method != "GET" or parts.path != _CALLBACK_PATH or not is_ours or self._code is None or self._code.done():
            return "404 Not Found", b""
        if "code" not in query:
            reason = query.get("error_description") or query.get("error", "the redirect has no code")
            self._code.set_exception(SignInRequired(f"sign-in was denied: {reason[:200]}"))
            return "200 OK", b"Sign-in was denied."
        self._code.set_result(AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss")))
        return "200 OK", _SIGNED_IN_PAGE


@asynccontextmanager
async def oauth_provider(
    name: str, config: McpServerConfig, token_folder: Path | None, open_browser: BrowserLauncher | None
) -> AsyncGenerator[httpx2.Auth | None]:
    """Yield the OAuth provider of a server; None if its configuration sets an `Authorization` header."""
    if any(header.lower() == "authorization" for header in config.headers):
        yield None
        return
    store = TokenFile(token_folder, name, config.url or "")
    if config.oauth.grant == "client_credentials":
        yield _build_machine_provider(config, store)
        return
    if open_browser is None:
        yield await _build_provider(config, store, f"http://127.0.0.1{_CALLBACK_PATH}", _NoBrowser(name))
        return
    async with RedirectListener(config.oauth.port, open_browser).listen() as listener:
        client = await store.get_client_info()
        # Some authorization servers reject a redirect to a port other than the registered one: register again.
        if client is not None and client.redirect_uris and listener.redirect_url not in map(str, client.redirect_uris):
            store.clear()
        yield await _build_provider(config, store, listener.redirect_url, listener)


def _build_machine_provider(config: McpServerConfig, store: TokenFile) -> OAuthClientProvider:
    """Build the SDK's provider for the `client_credentials` grant, which needs no person."""
    oauth, url, client_id = config.oauth, config.url or "", config.oauth.client_id or ""
    provider: OAuthClientProvider
    with warnings.catch_warnings():
        # Without an issuer, the server chooses the authorization server; the guide recommends to set it.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        if oauth.private_key is None:
            provider = ClientCredentialsOAuthProvider(
                url,
                store,
                client_id,
                oauth.client_secret or "",
                token_endpoint_auth_method="client_secret_post"
                if oauth.authentication == "post"
                else "client_secret_basic",
                scope=oauth.scope,
                issuer=oauth.issuer,
            )
        else:
            signing = SignedJWTParameters(
                issuer=client_id,
                subject=client_id,
                signing_key=oauth.private_key,
                signing_algorithm=oauth.algorithm,
            )
            provider = PrivateKeyJWTOAuthProvider(
                url,
                store,
                client_id,
                signing.create_assertion_provider(),
                scope=oauth.scope,
                issuer=oauth.issuer,
            )
    store.restore_context(provider.context)
    return provider


class _NoBrowser:
    """Takes the place of `RedirectListener` in processes without a user: every sign-in fails."""

    def __init__(self, name: str) -> None:
        self._error = SignInRequired(f"sign-in required: run `toolwire mcp login {name}`")

    async def open_authorization_url(self, url: str) -> None:
        """Raise `SignInRequired`."""
        raise self._error

    async def wait_for_code(self) -> AuthorizationCodeResult:
        """Raise `SignInRequired`."""
        raise self._error


async def _build_provider(
    config: McpServerConfig, store: TokenFile, redirect_url: str, redirect: RedirectListener | _NoBrowser
) -> OAuthClientProvider:
    """Build the SDK's provider, with the configured client if there is one."""
    oauth = config.oauth
    if oauth.client_id is not None:
        client_info = OAuthClientInformationFull(
            client_id=oauth.client_id,
            client_secret=oauth.client_secret,
            redirect_uris=[AnyUrl(redirect_url)],
            token_endpoint_auth_method="client_secret_basic" if oauth.client_secret else "none",
            issuer=oauth.issuer,
        )
        await store.set_client_info(client_info)
    provider = OAuthClientProvider(
        server_url=config.url or "",
        client_metadata=OAuthClientMetadata(
            client_name="toolwire",
            redirect_uris=[AnyUrl(redirect_url)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=oauth.scope,
        ),
        storage=store,
        redirect_handler=redirect.open_authorization_url,
        callback_handler=redirect.wait_for_code,
        client_metadata_url=oauth.client_metadata_url,
    )
    store.restore_context(provider.context)
    return provider
