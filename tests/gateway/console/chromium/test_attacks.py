"""Contents that attack the page, and other sites that attack the gateway, in a real Chromium."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect

from tests.gateway.console.chromium.conftest import launch_chromium
from tests.gateway.console.chromium.console_setup import (
    ConsoleGateway,
    chat_request,
    claude_request,
    other_site,
    run_console_gateway,
    send_traffic,
)
from tests.gateway.console.chromium.hostile import HostileProvider, record_hostile_runs
from tests.support.servers.asgi import serve_app
from toolwire.gateway.keys.client_key import hash_secret
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

ROWS = ".rows-spacer .row"
PAYLOADS = [
    "<img src=x onerror=window.hacked=1>",
    "<script>window.hacked=1</script>",
    '"><svg onload=window.hacked=1>',
    "javascript:window.hacked=1",
    "'-alert(1)-'",
    "${window.hacked=1}",
    "</textarea><iframe src=javascript:parent.hacked=1>",
]


@contextmanager
def harmless(page: Page) -> Iterator[None]:
    """Fail if anything on the page runs, is parsed as HTML, or is blocked by the policy of the page."""
    violations: list[str] = []
    page.on("console", lambda message: violations.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: violations.append(str(error)))
    page.on("dialog", lambda dialog: violations.append(dialog.message))
    yield
    assert page.evaluate("window.hacked") is None
    assert page.locator("img:not(.screenshot), iframe, script:not([type=module])").count() == 0
    assert violations == []


def visit_exchange(page: Page, row: int) -> None:
    """Open the exchange in a row, show each of its tabs, and open its first events."""
    page.locator(f"{ROWS}[aria-rowindex='{row}']").click()
    id = page.locator(f"{ROWS}[aria-rowindex='{row}']").get_attribute("id")
    assert id is not None
    expect(page.locator(".id-button")).to_have_text(id.removeprefix("row-"))
    for tab in ("request", "response", "stream", "elsewhere"):
        page.locator(f"#tab-{tab}").click()
        expect(page.locator(f"#tab-{tab}")).to_have_attribute("aria-selected", "true")
        expect(page.locator(".detail-body > *").first).to_be_visible()
        for marker in page.locator(".event summary").all()[:6]:
            marker.click()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_contents_are_only_ever_text(console: ConsoleGateway, browser: Browser, payload: str, tmp_path: Path) -> None:
    """The payload stands in every field that a client controls, and the simulated model repeats it."""
    page = console.open_page(browser)
    with harmless(page):
        tool = {"name": "t", "description": payload, "input_schema": {"type": "object", "properties": {payload: {}}}}
        request = claude_request(
            f"groq/{payload}",
            system=payload,
            tools=[tool],
            messages=[{"role": "user", "content": payload}],
            metadata={"user_id": payload, payload: payload},
            **{payload: {payload: [payload]}},
        )
        console.post("/v1/messages", request)
        console.post("/v1/messages", request | {"stream": True})
        console.post("/v1/chat/completions", chat_request(payload, payload))  # an error that quotes the model
        console.client.get(f"{console.url}/{payload.replace('/', '%2f')}")
        expect(page.locator(ROWS)).to_have_count(4)
        assert payload in page.locator(".rows-spacer").inner_text()
        page.get_by_label("Search exchanges").fill(f"loss:{payload.partition(' ')[0]}")
        page.get_by_label("Search exchanges").fill("")
        for row in range(2, 6):
            visit_exchange(page, row)
        page.evaluate("location.hash = '#/playground'")
        page.get_by_label("Body", exact=True).fill(json.dumps(request))
        expect(page.locator(".playground-result .pane").first).to_be_visible()
        page.evaluate("location.hash = '#/status'")
        expect(page.locator("svg.chart").first).to_be_visible()


@pytest.mark.parametrize("address", ["%E0%A4%A", PAYLOADS[0], "../../export/x"])
def test_address_of_no_exchange_is_only_text(console: ConsoleGateway, browser: Browser, address: str) -> None:
    page = console.open_page(browser, f"/#/exchanges/{address}/{address}")
    expect(page.locator(".detail-body")).to_have_text(re.compile("^(this exchange is unknown|not found)"))
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("payload", [PAYLOADS[0], PAYLOADS[2]])
def test_texts_of_a_hostile_provider_are_only_text(browser: Browser, tmp_path: Path, payload: str) -> None:
    """The payload stands in every field of responses, streams, errors and lists of models."""
    with ExitStack() as stack:
        url = stack.enter_context(serve_app(HostileProvider(payload)))
        extra = f'[providers.evil]\nprotocol = "openai-chat"\nbase_url = "{url}"\napi_key = "a-key-of-evil"\n'
        extra += 'default_model = "m"\n'
        gateway = run_console_gateway(stack, tmp_path, extra=extra)
        gateway.capture_bodies()
        page = gateway.open_page(browser)
        with harmless(page):
            for model, stream in ((payload, True), (payload, False), ("fail", False), ("fail", True)):
                gateway.post("/v1/messages", claude_request(f"evil/{model}", stream=stream))
                gateway.post("/v1/chat/completions", chat_request(f"evil/{model}", stream=stream))
            expect(page.locator(ROWS)).to_have_count(8)
            for row in range(2, 10):
                visit_exchange(page, row)
                page.locator("#tab-response").click()
                expect(page.locator(".detail")).to_contain_text("window.hacked=1")
            page.evaluate("location.hash = '#/playground'")
            page.get_by_label("Run on").select_option("evil")
            page.get_by_role("button", name="Run").click()
            expect(page.locator(".run-answer")).to_contain_text("window.hacked=1")
            page.evaluate("location.hash = '#/status'")
            expect(page.get_by_role("row", name=f"evil/{payload}")).to_be_visible()
            page.get_by_role("button", name="Run the checks").click()
            expect(page.locator(".doctor li", has_text="evil")).not_to_have_count(0)
        page.context.close()


@pytest.mark.parametrize("payload", [PAYLOADS[0], PAYLOADS[1]])
def test_runs_of_a_hostile_model_are_only_text(
    console: ConsoleGateway, browser: Browser, tmp_path: Path, payload: str
) -> None:
    finished, waiting = record_hostile_runs(tmp_path, payload)
    page = console.open_page(browser, f"/#/runs/{finished}")
    with harmless(page):
        expect(page.locator(".call")).to_have_count(3)
        for call in page.locator(".call summary").all():
            call.click()
        for part in (".run-link", ".facts", ".turn .prose", ".call-name", ".call-body .json", ".call-body .result"):
            expect(page.locator(part, has_text="window.hacked=1").first).to_be_visible()
        assert page.locator("img").count() == 0  # an SVG can hold scripts
        page.get_by_role("link", name=payload).first.click()
        expect(page.locator(".waiting-note")).to_be_visible()
        page.get_by_role("button", name="Copy the command for send_mail").click()
        expect(page.locator("#toast.shown")).to_be_visible()
        command = page.evaluate("navigator.clipboard.readText()")
    assert shlex.split(command) == ["toolwire", "runs", "resume", waiting, "--approve", payload]


def test_errors_and_answers_of_a_model_are_only_text(browser: Browser, tmp_path: Path) -> None:
    payload = PAYLOADS[0]
    script = {
        "turns": [
            {"text": payload},
            {"calls": [{"name": payload, "arguments": {payload: payload}}]},
            {"error": {"kind": "invalid_request", "message": payload}},
        ]
    }
    with ExitStack() as stack:
        simulator = Simulator(["openai-chat"], script=parse_script(json.dumps(script).encode(), "script", toml=False))
        url = stack.enter_context(serve_app(simulator))
        extra = f'[providers.evil]\nprotocol = "openai-chat"\nbase_url = "{url}"\napi_key = "a-key-of-evil"\n'
        gateway = run_console_gateway(stack, tmp_path, extra=extra)
        gateway.capture_bodies()
        for _ in script["turns"]:
            gateway.post("/v1/messages", claude_request("evil/m", stream=False))
        page = gateway.open_page(browser)
        with harmless(page):
            expect(page.locator(ROWS)).to_have_count(3)
            for row in (2, 3, 4):
                page.locator(f"{ROWS}[aria-rowindex='{row}']").click()
                page.get_by_role("tab", name="Response").click()
                expect(page.locator(".detail")).to_contain_text("window.hacked=1")
        page.context.close()


def test_copied_command_holds_no_control_characters(console: ConsoleGateway, browser: Browser) -> None:
    """A terminal would obey them when the command is pasted."""
    body = json.dumps(claude_request(system="a\u009b201~reboot\u007f"), ensure_ascii=False)
    response = console.client.post(f"{console.url}/v1/messages", content=body.encode())
    page = console.open_page(browser, f"/#/exchanges/{response.headers['toolwire-exchange']}")
    page.get_by_role("button", name="Copy curl", exact=True).click()
    expect(page.locator("#toast.shown")).to_be_visible()
    command = page.evaluate("navigator.clipboard.readText()")
    assert r"a\u009b201~reboot\u007f" in command
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", command)


def test_browser_enforces_the_policy(console: ConsoleGateway, browser: Browser) -> None:
    page = console.open_page(browser)
    expect(page.locator(".feed-state.live")).to_be_attached()
    blocked = page.evaluate(
        """() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch (error) { return error.name } }"""
    )
    assert blocked == "TypeError"  # Trusted Types
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => error.name)") == "TypeError"


def test_page_requests_nothing_from_anywhere_else(console: ConsoleGateway, browser: Browser) -> None:
    send_traffic(console)
    page = console.open_page(browser)
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    for view in ("exchanges", "playground", "runs", "status"):
        page.goto(f"{console.url}/#/{view}")
        page.reload()
        page.wait_for_selector("#view > *")
    assert requested
    assert [url for url in requested if not url.startswith(console.url + "/")] == []


# Each attempt returns what the other site learned.
ATTACK = """async url => {
    const api = `${url}/console/api/`, outcomes = {};
    const attempts = {
        session: {}, feed: {}, status: {}, runs: {},
        capture: { method: 'POST', body: '{"seconds": 0}' },
        run: { method: 'POST', body: '{}', mode: 'no-cors' },
        diagnose: { method: 'POST', body: '{}', mode: 'no-cors', headers: { 'content-type': 'text/plain' } },
    };
    for (const [path, options] of Object.entries(attempts)) {
        try {
            const response = await fetch(api + path, { credentials: 'include', ...options });
            outcomes[path] = response.type === 'opaque' ? 'opaque' : await response.text();
        } catch {
            outcomes[path] = 'blocked';
        }
    }
    const load = (tag, properties) => new Promise(resolve => {
        const element = Object.assign(document.createElement(tag), properties);
        element.onload = () => resolve('loaded');
        element.onerror = () => resolve('blocked');
        document.body.append(element);
    });
    outcomes.script = await load('script', { src: `${api}session` });
    outcomes.style = await load('link', { rel: 'stylesheet', href: `${url}/console/static/console.css` });
    outcomes.image = await load('img', { src: `${url}/console/static/icon.svg` });
    outcomes.events = await new Promise(resolve => {
        const source = new EventSource(`${api}feed`, { withCredentials: true });
        source.onmessage = () => resolve('read');
        source.onerror = () => { source.close(); resolve('blocked'); };
    });
    const frame = document.createElement('iframe');
    frame.src = `${url}/`;
    document.body.append(frame);
    await new Promise(resolve => { frame.onload = resolve; });
    try {
        outcomes.frame = frame.contentDocument === null ? 'blocked' : 'readable';
    } catch {
        outcomes.frame = 'blocked';
    }
    return outcomes;
}"""
SUBMIT_FORM = """url => {
    const form = Object.assign(document.createElement('form'), { method: 'post', action: url, enctype: 'text/plain' });
    form.append(Object.assign(document.createElement('input'), { name: '{"seconds": 0, "x": "', value: '"}' }));
    document.body.append(form);
    form.submit();
}"""


@pytest.mark.parametrize("has_keys", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_another_site_can_neither_read_nor_act(browser: Browser, tmp_path: Path, has_keys: bool, host: str) -> None:
    """The viewer is signed in, and opens a page of another port, which browsers take for the same site."""
    key = "the-first-server-key"
    with ExitStack() as stack:
        extra = f'[keys.boss]\nhash = "{hash_secret(key)}"\nadmin = true\n' if has_keys else ""
        gateway = run_console_gateway(stack, tmp_path, extra=extra)
        other = stack.enter_context(serve_app(other_site)).replace("127.0.0.1", host)
        page = gateway.open_page(browser)
        if has_keys:
            page.get_by_label("Key").fill(key)
            page.keyboard.press("Enter")
        expect(page.locator(".feed-state.live")).to_be_attached()
        gateway.capture_bodies()
        page.goto(other)
        outcomes = page.evaluate(ATTACK, gateway.url)
        assert {name: outcome for name, outcome in outcomes.items() if outcome not in ("blocked", "opaque")} == {}
        with page.expect_response(re.compile("/console/api/capture")) as submitted:
            page.evaluate(SUBMIT_FORM, f"{gateway.url}/console/api/capture")
        assert submitted.value.status == 403
        assert gateway.app.console is not None
        assert (gateway.app.console.buffer.capture_seconds or 0) > 60
        page.context.close()


def test_opened_window_is_out_of_reach(console: ConsoleGateway, browser: Browser) -> None:
    """Another site that opens the console as a window has no handle of it."""
    with serve_app(other_site) as url:
        page = browser.new_context().new_page()
        page.goto(url)
        with page.expect_popup() as popup:
            page.evaluate("url => { window.opened = open(url); }", console.url + "/")
        expect(popup.value.locator(".feed-state.live")).to_be_attached()
        assert popup.value.evaluate("window.opener") is None
        assert page.evaluate("window.opened.closed") is True  # as seen from there
        page.context.close()


@pytest.mark.parametrize("has_keys", [False, True])
def test_rebound_name_of_another_site_gets_nothing(playwright: Playwright, tmp_path: Path, has_keys: bool) -> None:
    """The name of the other site now resolves to this machine, so that the browser takes the gateway for that site."""
    rules = "--host-resolver-rules=MAP evil.test 127.0.0.1"
    extra = '[server]\nkeys = ["the-first-server-key"]\n' if has_keys else ""
    with ExitStack() as stack:
        gateway = run_console_gateway(stack, tmp_path, extra=extra)
        page = stack.enter_context(launch_chromium(playwright, args=[rules])).new_page()
        response = page.goto(gateway.url.replace("127.0.0.1", "evil.test") + "/")
        assert response is not None
        assert response.status == (200 if has_keys else 403)  # the page for signing in, which holds nothing
        for path in ("session", "feed", "status", "exchanges/ex_1"):
            status, text = page.evaluate(
                "path => fetch('/console/api/' + path).then(async answer => [answer.status, await answer.text()])", path
            )
            if has_keys and path == "session":
                assert json.loads(text)["signed_in"] is False
                assert "token" not in json.loads(text)
            else:
                assert status == (401 if has_keys else 403)
