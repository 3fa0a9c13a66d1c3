"""OAuth sign-in: token storage and the redirect from the browser."""

import asyncio
import json
import stat
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from mcp.shared.auth import OAuthToken

from tests.support.clock import Clock
from tests.support.deadlines import DEADLINE
from tests.support.mcp.oauth_server import OAuthServer, serve_oauth
from toolwire.runtime.mcp.config import McpServerConfig, OAuthConfig
from toolwire.runtime.mcp.oauth import RedirectListener, SignInRequired, TokenFile, oauth_provider
from toolwire.runtime.mcp.toolset import McpToolset


def test_token_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "mcp"

    async def work() -> None:
        store = TokenFile(folder, "far", "https://far.example/mcp")
        await store.set_tokens(OAuthToken(access_token="secret-token"))
        again = await TokenFile(folder, "far", "https://far.example/mcp").get_tokens()
        assert again is not None
        assert again.access_token == "secret-token"
        assert await TokenFile(folder, "far", "https://other.example/mcp").get_tokens() is None

    asyncio.run(work())
    (kept,) = folder.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_invalid_token_file_is_ignored(tmp_path: Path) -> None:
    def store() -> TokenFile:
        return TokenFile(tmp_path, "far", "https://far.example")

    asyncio.run(store().set_tokens(OAuthToken(access_token="t")))
    next(tmp_path.iterdir()).write_text("{", encoding="utf-8")
    assert asyncio.run(store().get_tokens()) is None


async def get(url: str) -> int:
    async with httpx2.AsyncClient(trust_env=False) as browser:
        return (await browser.get(url)).status_code


def test_redirect_requires_the_matching_state() -> None:
    async def work() -> None:
        opened: list[str] = []

        async def browse(url: str) -> None:
            opened.append(url)

        async with RedirectListener(0, browse).listen() as way:
            assert urlsplit(way.redirect_url).hostname == "127.0.0.1"
            assert await get(f"{way.redirect_url}?code=early&state=") == 404
            await way.open_authorization_url("https://as.example/authorize?state=right&x=1")
            assert await get(f"{way.redirect_url}?code=c&state=wrong") == 404
            assert await get(f"{way.redirect_url}?code=c") == 404
            assert await get(way.redirect_url.replace("/callback", "/other") + "?code=c&state=right") == 404
            assert await get(f"{way.redirect_url}?code=good&state=right&iss=https%3A%2F%2Fas.example") == 200
            assert await get(f"{way.redirect_url}?code=late&state=right") == 404
            found = await way.wait_for_code()
        assert (found.code, found.state, found.iss) == ("good", "right", "https://as.example")
        assert opened == ["https://as.example/authorize?state=right&x=1"]

    asyncio.run(work())


def test_denied_sign_in_is_reported() -> None:
    async def work() -> None:
        async def browse(url: str) -> None:
            pass

        async with RedirectListener(0, browse).listen() as way:
            await way.open_authorization_url("https://as.example/authorize?state=s")
            assert await get(f"{way.redirect_url}?error=access_denied&state=s") == 200
            with pytest.raises(SignInRequired, match="access_denied"):
                await way.wait_for_code()

    asyncio.run(work())


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "vscode://run?x=1", "https://[as.example"]
)
def test_only_http_urls_are_opened(url: str) -> None:
    async def work() -> None:
        opened: list[str] = []

        async def browse(url: str) -> None:
            opened.append(url)

        with pytest.raises(SignInRequired):
            await RedirectListener(0, browse).open_authorization_url(url)
        assert opened == []

    asyncio.run(work())


def test_authorization_header_disables_oauth() -> None:
    async def work() -> None:
        server = McpServerConfig(url="https://far.example", headers={"authorization": "Bearer x"})
        async with oauth_provider("far", server, None, None) as auth:
            assert auth is None

    asyncio.run(work())


async def follow(url: str) -> None:
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as browser:
        await browser.get(url)


async def used(given: OAuthServer, folder: Path | None, *, browses: bool, **more: Any) -> McpToolset:
    settings = McpServerConfig(url=given.url, oauth=OAuthConfig(**more), connect_timeout=DEADLINE)
    toolset = McpToolset("far", settings, token_folder=folder, open_browser=follow if browses else None)
    await toolset.tools()
    await toolset.close()
    return toolset


def test_sign_in_happens_once_and_tokens_are_refreshed(tmp_path: Path) -> None:
    async def work() -> None:
        async with serve_oauth() as given:
            unknown = await used(given, tmp_path, browses=False)
            assert "toolwire mcp login far" in unknown.take_warnings()[0]
            assert (await used(given, tmp_path, browses=True)).take_warnings() == []
            assert given.grants == ["authorization_code"]
            assert (await used(given, tmp_path, browses=False)).take_warnings() == []
            assert given.grants == ["authorization_code"]
            given.expired = True
            age(tmp_path)
            assert (await used(given, tmp_path, browses=False)).take_warnings() == []
            assert given.grants == ["authorization_code", "refresh_token"]
        asked = parse_qs(urlsplit(given.authorized[0]).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["resource"] == [given.url]
        assert all(one == "" for one in given.queries)

    asyncio.run(work())


def age(folder: Path) -> None:
    """Expire the stored token."""
    (path,) = folder.glob("far-*.json")
    kept = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**kept, "expires_at": time.time() - 10}), encoding="utf-8")


def test_configured_client_is_not_registered_again() -> None:
    async def work() -> None:
        async with serve_oauth() as given:
            toolset = await used(given, None, browses=True, client_id="by-hand", client_secret="s3cret-s3cret")
            assert toolset.take_warnings() == []
            assert given.registered == 0
            assert parse_qs(urlsplit(given.authorized[0]).query)["client_id"] == ["by-hand"]

    asyncio.run(work())


def test_client_secret_goes_only_to_its_issuer() -> None:
    async def work() -> None:
        async with serve_oauth() as given:
            more = {"client_id": "by-hand", "client_secret": "s3cret-s3cret", "issuer": "https://another.example"}
            await used(given, None, browses=True, **more)
            assert given.secrets == []

    asyncio.run(work())


@pytest.mark.parametrize("authentication", ["basic", "post"])
def test_client_credentials_sign_in_without_a_person(authentication: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with serve_oauth() as given:
            more = {"client_id": "nightly", "client_secret": "s3cret", "issuer": given.base}
            toolset = await used(
                given, tmp_path, browses=False, grant="client_credentials", authentication=authentication, **more
            )
            assert toolset.take_warnings() == []
            assert (given.grants, given.registered) == (["client_credentials"], 0)
            sent = given.secrets if authentication == "basic" else given.forms[-1]["client_secret"]
            assert sent == (["nightly:s3cret"] if authentication == "basic" else ["s3cret"])

    asyncio.run(work())


def test_private_key_signs_the_client_assertion() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    async def work() -> None:
        async with serve_oauth() as given:
            more = {"client_id": "nightly", "private_key": pem, "algorithm": "ES256", "issuer": given.base}
            toolset = await used(given, None, browses=False, grant="client_credentials", **more)
            assert toolset.take_warnings() == []
            (assertion,) = given.forms[-1]["client_assertion"]
            claims = jwt.decode(assertion, key.public_key(), algorithms=["ES256"], audience=given.base)
            assert (claims["iss"], claims["sub"]) == ("nightly", "nightly")

    asyncio.run(work())


def test_client_credentials_go_only_to_their_issuer() -> None:
    async def work() -> None:
        async with serve_oauth() as given:
            more = {"client_id": "nightly", "client_secret": "s3cret", "issuer": "https://another.example"}
            toolset = await used(given, None, browses=False, grant="client_credentials", **more)
            assert "another.example" in toolset.take_warnings()[0]
            assert given.grants == []

    asyncio.run(work())


def test_sign_in_through_a_slow_authorization_server_is_awaited(clock: Clock) -> None:
    """The requests of the sign-in are not taken for an old server that ignores `server/discover`."""

    async def work() -> None:
        async with serve_oauth() as given:
            given.on_token = lambda: clock.advance(100)
            toolset = McpToolset("far", McpServerConfig(url=given.url), open_browser=follow)
            await toolset.tools()
            version = await toolset.protocol_version()
            await toolset.close()
            assert (toolset.take_warnings(), version) == ([], "2026-07-28")

    asyncio.run(work())
