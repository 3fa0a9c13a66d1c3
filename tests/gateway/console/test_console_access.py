"""Access to the console: the page at `/`, other sites, tokens, sign-in, and exchanges of other keys."""

import asyncio
import json
import re
import time
from contextlib import AsyncExitStack
from datetime import date
from pathlib import Path

import pytest

from tests.gateway.console.console_client import ConsoleClient, open_console, settled
from tests.support.gateway.in_process import run_async
from toolwire.gateway.config.sections import KeySection
from toolwire.gateway.console import assets
from toolwire.gateway.console.exchange_feed import MAX_PAGES, MAX_PAGES_OF_A_KEY
from toolwire.gateway.console.session import SESSION_SECONDS, Viewer
from toolwire.gateway.keys.client_key import ClientKey, hash_secret
from toolwire.gateway.server.auth import Principal

STATIC = Path(assets.__file__).parent / "static"
KEYS = '[server]\nkeys = ["the-first-server-key", "the-second-server-key"]\n'
BROWSER = {"accept": "text/html,application/xhtml+xml"}
FIRST, SECOND = "the-first-server-key", "the-second-server-key"


async def sign_in(console: ConsoleClient, key: str) -> ConsoleClient:
    reply = await console.send("POST", "/console/api/session", {"key": key})
    assert reply.status == 200
    cookie = reply.headers["set-cookie"].partition(";")[0]
    return ConsoleClient(console.gateway, {"cookie": cookie})


async def send_as(console: ConsoleClient, key: str) -> str:
    count = len(console.buffer)
    response = await console.gateway.send_question("openai-chat", authorization=f"Bearer {key}")
    await response.read(100_000)
    await settled(console.buffer, count + 1)
    return response.headers["toolwire-exchange"]


def test_root_serves_page_to_browsers_and_text_to_clients() -> None:
    async def work() -> None:
        async with open_console() as console:
            page = await console.send("GET", "/", **BROWSER)
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert b"/console/static/app.js" in page.body
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert "unsafe" not in policy
            for accept in ("*/*", "application/json"):
                reply = await console.send("GET", "/", accept=accept)
                assert reply.body.startswith(b"toolwire is running")
            posted = await console.send("POST", "/", {}, **BROWSER)
            assert posted.status == 405

    run_async(work())


def test_page_loads_only_files_of_the_package() -> None:
    async def work() -> None:
        async with open_console() as console:
            for name in ("app.js", "console.css", "icon.svg"):
                reply = await console.send("GET", f"/console/static/{name}")
                assert reply.status == 200
                cached = await console.send("GET", f"/console/static/{name}", if_none_match=reply.headers["etag"])
                assert (cached.status, cached.body) == (304, b"")
            for name in ("../console.py", "..%2fconsole.py", "missing.js", "", "/etc/passwd"):
                assert (await console.send("GET", f"/console/static/{name}")).status == 404

    run_async(work())


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_static_files_name_no_other_site_and_parse_no_html(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[\w.-]+|//[\w-]+\.[\w.-]+", text)) <= {"http://www.w3.org"}
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style="):
        assert unsafe not in text


def test_disabled_console_is_not_served() -> None:
    async def work() -> None:
        async with open_console("[console]\nenabled = false\n") as console:
            assert (await console.send("GET", "/", **BROWSER)).body.startswith(b"toolwire is running")
            assert (await console.send("GET", "/console/api/session")).status == 404

    run_async(work())


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:9999"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_other_sites_can_neither_read_nor_act(headers: dict[str, str]) -> None:
    async def work() -> None:
        async with open_console() as console:
            token = (await console.get("session")).json["token"]
            assert (await console.get("session", **headers)).status == 403
            assert (await console.get("feed", **headers)).status == 403
            switch = {"seconds": 60}
            reply = await console.send("POST", "/console/api/capture", switch, toolwire_console_token=token, **headers)
            assert reply.status == 403
            assert console.buffer.capture_seconds == 0

    run_async(work())


def test_acting_needs_the_token_of_the_page() -> None:
    async def work() -> None:
        async with open_console() as console:
            for token in ("", "0" * 64):
                reply = await console.send(
                    "POST", "/console/api/capture", {"seconds": 60}, toolwire_console_token=token
                )
                assert reply.status == 403
            assert console.buffer.capture_seconds == 0
            assert (await console.act("capture", {"seconds": 60})).status == 200
            assert (console.buffer.capture_seconds or 0) > 0
            assert (await console.get("capture")).status == 404

    run_async(work())


def test_keys_require_sign_in() -> None:
    async def work() -> None:
        async with open_console(KEYS) as console:
            session = (await console.get("session")).json
            assert (session["needs_key"], session["signed_in"]) == (True, False)
            assert "token" not in session
            for path in ("feed", "hosts", "exchanges/ex_1"):
                assert (await console.get(path)).status == 401
            assert (await console.send("POST", "/console/api/session", {"key": "wrong"})).status == 401
            reply = await console.send("POST", "/console/api/session", {"key": FIRST})
            cookie = reply.headers["set-cookie"]
            assert "HttpOnly; SameSite=Strict" in cookie
            assert f"Max-Age={SESSION_SECONDS}" in cookie
            assert FIRST not in cookie

    run_async(work())


@pytest.mark.parametrize("tampering", [("1", "2"), (".", "x"), ("=", "=9")])
def test_changed_cookie_is_no_session(tampering: tuple[str, str]) -> None:
    async def work() -> None:
        async with open_console(KEYS) as console:
            signed_in = await sign_in(console, FIRST)
            assert (await signed_in.get("hosts")).status == 200
            cookie = signed_in.headers["cookie"].replace(*tampering)
            assert cookie != signed_in.headers["cookie"]
            assert (await console.get("hosts", cookie=cookie)).status == 401

    run_async(work())


def test_key_sees_only_its_own_exchanges() -> None:
    async def work() -> None:
        async with open_console(KEYS + "[console]\nbodies = true\n") as console:
            first_id, second_id = await send_as(console, FIRST), await send_as(console, SECOND)
            first = await sign_in(console, FIRST)
            async with first.feed() as feed:
                assert [row["id"] for row in (await feed.batch())["rows"]] == [first_id]
            for path in ("exchanges", "export"):
                assert (await first.get(f"{path}/{first_id}")).status == 200
                assert (await first.get(f"{path}/{second_id}")).status == 404
            assert (await first.act("capture", {"seconds": 60})).status == 403

    run_async(work())


def named_keys(**sections: str) -> str:
    return "".join(f'[keys.{name}]\nhash = "{hash_secret(name)}"\n{lines}\n' for name, lines in sections.items())


def test_admin_key_sees_the_exchanges_of_all_keys() -> None:
    async def work() -> None:
        config = named_keys(boss="admin = true", first="", second="") + "[console]\nbodies = true\n"
        async with open_console(config) as console:
            ids = [await send_as(console, "first"), await send_as(console, "second")]
            boss, first = await sign_in(console, "boss"), await sign_in(console, "first")
            async with boss.feed() as feed:
                assert [(row["id"], row["key"]) for row in await feed.rows(2)] == [
                    (ids[0], "first"),
                    (ids[1], "second"),
                ]
            async with first.feed() as feed:
                assert [row["id"] for row in (await feed.batch())["rows"]] == ids[:1]
            assert (await boss.get(f"exchanges/{ids[1]}")).status == 200
            assert (await boss.act("capture", {"seconds": 60})).status == 200

    run_async(work())


def test_runs_from_the_page_obey_the_models_and_limits_of_the_key() -> None:
    async def work() -> None:
        config = named_keys(small='models = ["p0/tiny"]\nrequests_per_minute = 1')
        async with open_console(config) as console:
            small = await sign_in(console, "small")
            body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
            wanted = {"protocol": "openai-chat", "body": body, "provider": "p0"}
            assert (await small.act("run", wanted | {"model": "large"})).json["status"] == 403
            assert (await small.act("run", wanted | {"model": "tiny"})).json["status"] == 200
            assert (await small.act("run", wanted | {"model": "tiny"})).json["status"] == 429

    run_async(work())


@pytest.mark.parametrize("expires", ["2000-01-01", "9999-01-01"])
def test_expired_key_cannot_sign_in(expires: str) -> None:
    async def work() -> None:
        async with open_console(named_keys(old=f"expires = {expires}")) as console:
            reply = await console.send("POST", "/console/api/session", {"key": "old"})
            assert reply.status == (401 if expires < "2026" else 200)

    run_async(work())


def test_no_key_can_take_the_pages_of_all() -> None:
    async def work() -> None:
        async with open_console(named_keys(first="", second="")) as console, AsyncExitStack() as stack:
            first, second = await sign_in(console, "first"), await sign_in(console, "second")
            feeds = []
            for _ in range(MAX_PAGES_OF_A_KEY):
                assert (await first.get("session")).json["feed_problem"] is None
                feeds.append(await stack.enter_async_context(first.feed()))
                await feeds[-1].batch()
            refused = await first.open("GET", "/console/api/feed")
            assert refused.status == 503
            error = json.loads(await refused.read(1000))["error"]
            assert error == (await first.get("session")).json["feed_problem"]
            assert "8 pages are open with this key" in error
            async with second.feed() as feed:
                await feed.batch()

    run_async(work())


def test_pages_are_limited_without_keys() -> None:
    async def work() -> None:
        async with open_console() as console, AsyncExitStack() as stack:
            feeds = [await stack.enter_async_context(console.feed()) for _ in range(MAX_PAGES)]
            for feed in feeds:
                await feed.batch()
            refused = await console.open("GET", "/console/api/feed")
            assert refused.status == 503
            assert json.loads(await refused.read(1000)) == {"error": "too many pages are open"}

    run_async(work())


def test_session_ends_with_its_key() -> None:
    def viewer(expires: date, session_seconds: float = 60) -> Viewer:
        key = ClientKey("ann", KeySection(hash=hash_secret("ann"), expires=expires))
        return Viewer(Principal(key.tenant, key=key), is_admin=False, expires_at=time.time() + session_seconds)

    assert not viewer(date(9999, 1, 1)).is_expired()
    assert viewer(date(2000, 1, 1)).is_expired()
    assert viewer(date(9999, 1, 1), session_seconds=-1).is_expired()


def test_request_without_a_valid_key_shows_to_no_key() -> None:
    async def work() -> None:
        async with open_console(KEYS) as console:
            response = await console.gateway.send_question("openai-chat", authorization="Bearer wrong")
            assert response.status == 401
            await settled(console.buffer, 1)
            first = await sign_in(console, FIRST)
            async with first.feed() as feed:
                assert (await feed.batch())["rows"] == []

    run_async(work())


def test_session_is_secure_behind_tls() -> None:
    async def work() -> None:
        async with open_console(KEYS) as console:
            host = console.gateway.origin.authority
            reply = await console.send("POST", "/console/api/session", {"key": FIRST}, origin=f"https://{host}")
            assert reply.headers["set-cookie"].endswith("; Secure")

    run_async(work())


def test_feed_ends_when_the_server_stops() -> None:
    async def work() -> None:
        async with open_console() as console, console.feed() as feed:
            await feed.batch()
            console.gateway.gateway.app.end_feeds()
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(feed.batch(), None)

    run_async(work())
