"""Network isolation of pages, whatever they try."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.runtime.tools.browser.chromium.browser_session import (
    current_page,
    evaluate,
    perform_all,
    perform_until_error,
    run_in_session,
    side_observations,
)
from tests.support.deadlines import wait_until_async
from tests.support.servers.sites import PortTrap, SitePage, serve_site, trap_port
from toolwire.canonical.computer import Click, Navigate, ReadText
from toolwire.runtime.tools.browser import BrowserSession, BrowserSettings, NetworkPolicy

# Every way in which a page can make a browser send a request to another server.
ATTEMPTS = {
    "picture": "new Image().src = `${web}/picture`",
    "fetch": "fetch(`${web}/fetch`, {mode: 'no-cors'}).catch(() => 0)",
    "beacon": "navigator.sendBeacon(`${web}/beacon`, 'x')",
    "xhr": "{ const asked = new XMLHttpRequest(); asked.open('POST', `${web}/xhr`); asked.send('x') }",
    "events": "new EventSource(`${web}/events`)",
    "websocket": "new WebSocket(`ws://${host}/socket`)",
    "frame": "add('iframe', {src: `${web}/frame`})",
    "object": "add('object', {data: `${web}/object`})",
    "embed": "add('embed', {src: `${web}/embed`})",
    "script": "add('script', {src: `${web}/script`})",
    "module": "import(`${web}/module`).catch(() => 0)",
    "style": "add('link', {rel: 'stylesheet', href: `${web}/style`})",
    "icon": "add('link', {rel: 'icon', href: `${web}/icon`})",
    "manifest": "add('link', {rel: 'manifest', href: `${web}/manifest`})",
    "preload": "add('link', {rel: 'preload', as: 'image', href: `${web}/preload`})",
    "prefetch": "add('link', {rel: 'prefetch', href: `${web}/prefetch`})",
    "preconnect": "add('link', {rel: 'preconnect', href: web})",
    "prerender": """{ const rules = JSON.stringify({prerender: [{source: 'list', urls: [web]}]});
      add('script', {type: 'speculationrules', textContent: rules}) }""",
    "video": "add('video', {src: `${web}/video`, autoplay: true, muted: true})",
    "font": "new FontFace('f', `url(${web}/font)`).load().catch(() => 0)",
    "worker": "new Worker(URL.createObjectURL(new Blob([`fetch('${web}/worker', {mode: 'no-cors'})`])))",
    "redirected picture": "new Image().src = `/away?${encodeURIComponent(web)}`",
    "redirected fetch": "fetch('/away', {mode: 'no-cors'}).catch(() => 0)",
    "stun": """{ const peer = new RTCPeerConnection({iceServers: [{urls: `stun:${host}`}]});
      peer.createDataChannel('x'); peer.createOffer().then((offer) => peer.setLocalDescription(offer)) }""",
    "turn": """{ const peer = new RTCPeerConnection({iceTransportPolicy: 'relay', iceServers: [
        {urls: [`turn:${host}?transport=udp`, `turn:${host}?transport=tcp`], username: 'u', credential: 'p'}]});
      peer.createDataChannel('x'); peer.createOffer().then((offer) => peer.setLocalDescription(offer)) }""",
    "webtransport": "try { new WebTransport(`https://${host}/transport`).ready.catch(() => 0) } catch { }",
}


def page(host: str, attempts: list[str]) -> str:
    attempt_requests = "\n".join(f"try {{ {ATTEMPTS[name]} }} catch (error) {{ }}" for name in attempts)
    return f"""<!doctype html><body><script>
      const host = "{host}", web = `http://${{host}}`;
      const add = (tag, fields) => document.body.append(Object.assign(document.createElement(tag), fields));
      {attempt_requests}
    </script>"""


def attempt_requests(
    host: str, policy: NetworkPolicy, attempts: list[str], caught: PortTrap, wanted: Callable[[], bool] | None = None
) -> list[str]:
    """`wanted`: until this holds; without it, for a while in which nothing may be touched."""

    async def work(session: BrowserSession) -> None:
        await session.perform([Navigate(url=f"{site.root}/")])
        await (asyncio.sleep(1.5) if wanted is None else wait_until_async(wanted))

    away = SitePage(status=302, headers={"Location": f"http://{host}/redirected"})
    with serve_site({"/away": away, "/": page(host, attempts)}, "127.0.0.2") as site:
        policy = replace(policy, hosts=(*policy.hosts, site.name))
        run_in_session(work, settings=BrowserSettings(network_policy=policy))
    return caught.connections


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_private_address_is_unreachable(name: str) -> None:
    with trap_port() as caught:
        assert attempt_requests(f"{name}:{caught.port}", NetworkPolicy(hosts=("*",)), list(ATTEMPTS), caught) == []


def test_explicitly_allowed_private_address_is_reachable() -> None:
    """Proves that the requests of the previous test are really attempted."""
    web = [name for name in ATTEMPTS if name not in ("stun", "turn", "webtransport", "prerender", "icon", "manifest")]
    with trap_port() as caught:
        host = f"127.0.0.1:{caught.port}"
        kinds = "picture fetch beacon xhr events frame object embed script module style preload video font worker"
        paths = [*(f"/{name} " for name in kinds.split()), "/redirected", "/socket"]

        def reached() -> bool:
            seen = " ".join(caught.connections)
            return all(path in seen for path in paths)

        attempt_requests(host, NetworkPolicy(hosts=("*",), resource_hosts=(host,)), web, caught, reached)
        assert reached()


def test_unlisted_hosts_are_unreachable() -> None:
    with trap_port() as caught:
        assert attempt_requests(f"127.0.0.1:{caught.port}", NetworkPolicy(hosts=()), list(ATTEMPTS), caught) == []


REFUSED = """<!doctype html><style>a { position: absolute; left: 0 }</style>
<a style="top:0" href="{other}/link">link</a>
<a style="top:30px" href="/away">redirect</a>
<a style="top:60px" href="{other}/tab" target=_blank>new tab</a>
<a style="top:90px" href="javascript:void(location = '{other}/script')">script</a>
<form action="{other}/form" method=post><button style="position:absolute;left:0;top:120px">form</button></form>
<a style="top:150px" href="javascript:void(document.head.append(Object.assign(document.createElement('meta'),
  {httpEquiv: 'refresh', content: '0;{other}/meta'})))">meta</a>
<a style="top:180px" href="javascript:void(open('{other}/opened'))">open</a>
<a style="top:210px" href="file:///etc/passwd">file</a>
<a style="top:240px" href="data:text/html,data">data</a>
<a style="top:270px" href="chrome://version">chrome</a>"""


@pytest.mark.parametrize("top", range(0, 300, 30))
def test_resource_host_can_not_be_opened_as_a_page(top: int) -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        done = await session.perform([Click(x=5, y=top + 8)])
        await asyncio.sleep(0.3)
        assert other.requests == []
        assert (await session.perform([])).url in (f"{site.root}/", "chrome-error://chromewebdata/")
        if top < 210:
            refused = [one.text for one in done.observations if one.kind == "refused"]
            assert refused == [f"A page was not opened: {other.name} is not an allowed host."]
        assert len(session._tabs._pages) == 1

    with serve_site({"/": "other"}) as other, serve_site({}, "127.0.0.2") as site:
        site.pages["/"] = REFUSED.replace("{other}", other.root)
        site.pages["/away"] = SitePage(status=302, headers={"Location": f"{other.root}/redirected"})
        policy = NetworkPolicy(hosts=(site.name,), resource_hosts=(other.name,))
        run_in_session(work, settings=BrowserSettings(network_policy=policy))


def test_frame_of_resource_host_is_loaded() -> None:
    async def work(session: BrowserSession) -> None:
        (_, text) = await perform_all(session, Navigate(url=f"{site.root}/"), ReadText())
        assert text == "outside\nframed"

    with serve_site({"/": "framed"}) as other, serve_site({}, "127.0.0.2") as site:
        site.pages["/"] = f"<p>outside</p><iframe src='{other.root}/'></iframe>"
        policy = NetworkPolicy(hosts=(site.name,), resource_hosts=(other.name,))
        run_in_session(work, settings=BrowserSettings(network_policy=policy))


def test_refusals_are_reported() -> None:
    async def work(session: BrowserSession) -> None:
        assert (
            "is not an allowed host" in (await perform_until_error(session, Navigate(url="http://example.com/"))).text
        )
        assert "only http and https" in (await perform_until_error(session, Navigate(url="file:///etc/passwd"))).text
        assert await side_observations(session, Navigate(url=f"{site.root}/")) == [
            "A request to 127.0.0.9:8081 was refused: 127.0.0.9:8081 is not an allowed host for resources."
        ]

    with serve_site({"/": "<img src='http://127.0.0.9:8081/'>"}) as site:
        run_in_session(work, site)


def test_cloud_metadata_address_is_refused() -> None:
    async def work(session: BrowserSession) -> None:
        assert (
            "not on the public internet"
            in (await perform_until_error(session, Navigate(url="http://169.254.169.254/"))).text
        )

    run_in_session(work, settings=BrowserSettings(network_policy=NetworkPolicy(hosts=("*",))))


def test_chromium_makes_no_background_requests() -> None:
    """The proxy would have refused and reported them."""

    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"), Click(x=10, y=10))
        await asyncio.sleep(3)
        assert (await session.perform([])).observations == ()

    with serve_site({"/": "<form><input name=email autocomplete=email><input type=password></form>"}) as site:
        run_in_session(work, site)


POWERS = """async () => {
  const tell = async (work) => { try { return String(await work()) } catch (error) { return error.name } };
  const query = (name) => tell(async () => (await navigator.permissions.query({name})).state);
  return {
    place: await tell(() => new Promise((done) =>
      navigator.geolocation.getCurrentPosition(done, (error) => done(error.code)))),
    camera: await query("camera"),
    notes: await tell(() => Notification.requestPermission()),
    read: await tell(() => navigator.clipboard.readText()),
    clipboard: await query("clipboard-read"),
    geolocation: await query("geolocation"),
    files: "showOpenFilePicker" in window,
    worker: await tell(() => Promise.race([
      navigator.serviceWorker.register("/worker.js").then((found) => "registered " + typeof found?.active),
      new Promise((done) => setTimeout(done, 1000, "none"))])),
  };
}"""


def test_pages_have_no_permissions() -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"), Click(x=100, y=100))
        powers = await current_page(session).evaluate(POWERS)
        assert powers.pop("worker") in ("none", "registered undefined")
        assert powers == {
            "place": "1",
            "camera": "denied",
            "notes": "denied",
            "read": "NotAllowedError",
            "clipboard": "denied",
            "geolocation": "denied",
            "files": False,
        }
        assert "GET /worker.js" not in site.requests

    with serve_site({"/": "x", "/worker.js": SitePage("", headers={"Content-Type": "text/javascript"})}) as site:
        run_in_session(work, site)


def test_downloads_and_uploads_are_disabled() -> None:
    page = """<!doctype html><style>a, input { position: absolute; left: 0 }</style><input type=file style="top:0">
      <a style="top:50px" href="/file">download</a><a style="top:80px" href="/x.txt" download>download</a>"""
    file = SitePage("data", headers={"Content-Disposition": "attachment; filename=evil.exe"})

    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        assert await side_observations(session, Click(x=20, y=10)) == [
            "The page asked for a file; file uploads are disabled."
        ]
        assert await side_observations(session, Click(x=5, y=58)) == [
            "The page offered the file 'evil.exe'; downloads are disabled."
        ]
        assert await side_observations(session, Click(x=5, y=88)) == [
            "The page offered the file 'x.txt'; downloads are disabled."
        ]
        assert await evaluate(session, "document.querySelector('input').files.length") == 0

    with serve_site({"/": page, "/file": file, "/x.txt": "x"}) as site:
        run_in_session(work, site)
