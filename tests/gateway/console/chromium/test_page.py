"""Sign-in, reconnects, accessibility, and many exchanges, in a real Chromium."""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from tests.gateway.console.chromium.console_setup import (
    ConsoleGateway,
    claude_request,
    other_site,
    record_runs,
    run_console_gateway,
    send_traffic,
)
from tests.support.deadlines import DEADLINE, wait_until
from tests.support.servers.asgi import serve_app
from toolwire.gateway.keys.client_key import hash_secret

ROWS = ".rows-spacer .row"
AXE = Path(os.environ.get("TOOLWIRE_AXE", "") or ".cache/console/node_modules/axe-core/axe.min.js")


def test_sign_in_and_out(browser: Browser, tmp_path: Path) -> None:
    key = "the-first-server-key"
    with ExitStack() as stack:
        extra = f'[server]\nkeys = ["{key}", "the-second-server-key"]\n[console]\nbodies = true\n'
        gateway = run_console_gateway(stack, tmp_path, extra=extra)
        page = gateway.open_page(browser)
        page.get_by_label("Key").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("this key is not valid")
        page.get_by_label("Key").fill(key)
        page.keyboard.press("Enter")
        expect(page.locator(".feed-state.live")).to_be_attached()
        gateway.post("/v1/messages", claude_request(), authorization=f"Bearer {key}")
        other = gateway.post("/v1/messages", claude_request(), authorization="Bearer the-second-server-key")
        expect(page.locator(ROWS)).to_have_count(1)
        assert page.evaluate("document.cookie") == ""
        assert key not in page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
        assert page.get_by_role("link", name="Runs").count() == 0
        (cookie,) = page.context.cookies(f"{gateway.url}/console/api/")
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/console")
        assert page.context.cookies(gateway.url) == []  # not sent with requests to models
        page.reload()
        expect(page.locator(ROWS)).to_have_count(1)
        page.goto(f"{gateway.url}/#/exchanges/{other.headers['toolwire-exchange']}")
        expect(page.locator(".detail-body")).to_contain_text("this exchange is unknown")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Key")).to_be_visible()
        page.reload()
        expect(page.get_by_label("Key")).to_be_visible()
        page.context.close()


def test_lines_to_copy_have_a_key_if_one_is_required(browser: Browser, tmp_path: Path) -> None:
    key = "the-first-server-key"
    for keys in (f'[server]\nkeys = ["{key}"]\n', ""):
        with ExitStack() as stack:
            extra = f'default_model = "groq/llama-3.3-70b-versatile"\n{keys}'
            gateway = run_console_gateway(stack, tmp_path, extra=extra)
            page = gateway.open_page(browser)
            if keys:
                page.get_by_label("Key").fill(key)
                page.keyboard.press("Enter")
            page.get_by_role("button", name="Copy the command for curl").click()
            command = page.evaluate("navigator.clipboard.readText()")
            shown = page.locator(".samples").inner_text()
            assert (shown.count("$TOOLWIRE_KEY"), shown.count("=none")) == ((3, 0) if keys else (0, 2))
            environment = os.environ | {"TOOLWIRE_KEY": key}
            answer = subprocess.run(command, shell=True, env=environment, capture_output=True, check=True, text=True)
            assert '"role":"assistant"' in answer.stdout
            page.context.close()


def test_admin_sees_which_key_made_a_request(browser: Browser, tmp_path: Path) -> None:
    keys = "".join(f'[keys.{name}]\nhash = "{hash_secret(name)}"\n{rest}' for name, rest in (("ann", ""), ("bob", "")))
    with ExitStack() as stack:
        extra = f'{keys}[keys.boss]\nhash = "{hash_secret("boss")}"\nadmin = true\n'
        gateway = run_console_gateway(stack, tmp_path, extra=extra)
        page = gateway.open_page(browser)
        page.get_by_label("Key").fill("boss")
        page.keyboard.press("Enter")
        for name in ("ann", "bob"):
            gateway.post("/v1/messages", claude_request(), authorization=f"Bearer {name}")
        expect(page.locator(ROWS)).to_have_count(2)
        page.get_by_label("Search exchanges").fill("key:ann")
        expect(page.locator(ROWS)).to_have_count(1)
        expect(page.locator(ROWS)).to_contain_text("key ann")
        page.locator(ROWS).click()
        expect(page.locator(".facts div", has_text="Key")).to_contain_text("ann")
        page.context.close()


def start_program(folder: Path, port: int = 0) -> tuple[subprocess.Popen[str], str]:
    """Start `toolwire serve` on its built-in simulator, and return the process and its address."""
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("_API_KEY") and name != "PYTHONPATH"
    }
    environment |= {"HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    command = [str(Path(sys.executable).with_name("toolwire")), "serve", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder)
    assert process.stderr is not None
    return process, process.stderr.readline().split()[-1]


def test_costs_of_the_simulator_are_no_real_money(browser: Browser, tmp_path: Path) -> None:
    process, url = start_program(tmp_path)
    with process:
        try:
            request = claude_request("claude-sonnet-4-5")
            assert httpx.post(f"{url}/v1/messages", json=request, timeout=DEADLINE).status_code == 200
            page = browser.new_context().new_page()
            page.goto(url)
            expect(page.locator(ROWS)).to_contain_text("simulated", timeout=60_000)
            expect(page.locator(f"{ROWS} .c6")).to_have_text(re.compile(r"^~\$0\.00\d+$"))
            page.locator(ROWS).click()
            expect(page.locator(".facts")).to_contain_text("Simulated cost~$0.00")
            page.evaluate("location.hash = '#/status'")
            expect(page.locator(".figure-title").last).to_have_text("Simulated cost")
            page.context.close()
        finally:
            process.terminate()


def test_page_in_the_cache_of_the_browser_holds_no_connection(
    console: ConsoleGateway, caching_browser: Browser
) -> None:
    """A page that is left lives on in the back/forward cache, without its feed; the feed goes on after a return."""
    assert console.app.console is not None
    feed = console.app.console._feed
    with serve_app(other_site) as url:
        page = console.open_page(caching_browser)
        expect(page.locator(".feed-state.live")).to_be_attached()
        assert feed._pages.total() == 1
        page.evaluate("addEventListener('pageshow', event => { window.isRestored = event.persisted; })")
        page.goto(url)
        wait_until(lambda: feed._pages.total() == 0)
        console.post("/v1/messages", claude_request())
        page.go_back(wait_until="commit")  # a restored page does not load again
        expect(page.locator(ROWS)).to_have_count(1)
        assert page.evaluate("window.isRestored") is True
        assert feed._pages.total() == 1


def test_page_reconnects_after_a_restart(browser: Browser, tmp_path: Path) -> None:
    """The first process is stopped with the page open; the second one starts on the same port."""

    def stop(process: subprocess.Popen[str]) -> None:
        with process:
            process.terminate()
        assert process.returncode == 0

    process, url = start_program(tmp_path)
    page = browser.new_context().new_page()
    try:
        page.goto(url)
        expect(page.locator(".feed-state.live")).to_be_attached(timeout=60_000)
        started = time.monotonic()
        stop(process)
        assert time.monotonic() - started < 10  # an open page does not delay the stop
        expect(page.locator(".feed-state.lost")).to_be_attached(timeout=60_000)
        process, _ = start_program(tmp_path, int(url.rpartition(":")[2]))
        expect(page.locator(".feed-state.live")).to_be_attached(timeout=60_000)
        page.evaluate("location.hash = '#/playground'")
        page.get_by_role("button", name="Run").click()  # the first token is of the process that is gone
        expect(page.locator(".run-answer .status")).to_have_text("200", timeout=60_000)
    finally:
        page.context.close()
        stop(process)


def check_accessibility(page: Page) -> None:
    """Assert that axe finds nothing serious."""
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [
        f"{violation['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical", "moderate")
        for node in violation["nodes"]
    ]
    assert serious == []


@pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core: make test-console installs it")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_nothing_serious(
    console: ConsoleGateway, browser: Browser, tmp_path: Path, scheme: str, width: int
) -> None:
    runs = record_runs(tmp_path)
    send_traffic(console)
    page = console.open_page(
        browser, viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce"
    )
    page.add_script_tag(path=AXE)
    expect(page.locator(ROWS).first).to_be_visible()
    check_accessibility(page)
    ids = page.locator(ROWS).evaluate_all("rows => rows.map(row => row.id.slice(4))")
    for tab, selector in (
        ("request", ".pane"),
        ("response", ".pane"),
        ("stream", ".event, .hint"),
        ("elsewhere", ".pane"),
    ):
        for id in ids[:2]:
            page.evaluate(f"location.hash = '#/exchanges/{id}/{tab}'")
            page.wait_for_selector(f".detail-body :is({selector})")
            check_accessibility(page)
    for path, selector in (
        ("playground", ".playground-result .pane"),
        (f"runs/{runs[0]}", ".call"),
        (f"runs/{runs[1]}", ".waiting-note"),
        ("status", ".table-box"),
    ):
        page.evaluate(f"location.hash = '#/{path}'")
        page.wait_for_selector(selector)
        check_accessibility(page)


FILL = """async count => {
    const { ExchangeStore } = await import('/console/static/exchange_store.js');
    const original = ExchangeStore.prototype.update;
    const store = await new Promise(resolve => {
        ExchangeStore.prototype.update = function () {
            resolve(this);
            ExchangeStore.prototype.update = original;
            return original.call(this);
        };
        document.querySelector('.search-input').dispatchEvent(new Event('input'));
    });
    window.store = store;
    const rows = Array.from({ length: count }, (_, index) => ({
        id: `ex_${String(index).padStart(16, '0')}`, number: index + 1, at: 1_700_000_000 + index,
        path: '/v1/messages', method: 'POST', client: 'anthropic', client_model: `claude-${index % 7}`,
        provider: `provider-${index % 3}`, protocol: 'openai-chat', model: `model-${index % 11}`,
        status: index % 20 ? 200 : 500, error: index % 20 ? '' : 'overloaded', streamed: index % 2 === 0,
        first: 0.1, duration: 1 + index % 9, input: index * 3, output: index, cost: index / 1e5,
        losses: index % 4 ? undefined : { warning: index % 3, info: 1 },
    }));
    for (let start = 0; start < count; start += 500) {
        store.addBatch({ rows: rows.slice(start, start + 500), complete: true });
    }
}"""
# Scrolls through the list while exchanges arrive, and returns the times between frames in milliseconds.
MEASURE_FRAMES = """() => new Promise(resolve => {
    const rows = document.querySelector('.rows'), frames = [];
    let previous = performance.now(), step = 0;
    const frame = now => {
        frames.push(now - previous);
        previous = now;
        rows.scrollTop += 400 + (step % 5) * 300;
        if (step % 10 === 0) {
            const row = { id: `ex_new_${step}`, number: 9000 + step, at: 1_800_000_000 + step, path: '/' };
            window.store.addBatch({ complete: true, rows: [{ ...row, client: 'ollama', status: 200 }] });
        }
        if (++step < 240) requestAnimationFrame(frame);
        else resolve(frames.slice(2));
    };
    requestAnimationFrame(frame);
})"""
MEASURE_SEARCH = """() => {
    const start = performance.now();
    window.store.setFilter({ search: 'model-3 status:2xx' });
    window.store.update();
    const milliseconds = performance.now() - start;
    window.store.setFilter({ search: '' });
    window.store.update();
    return milliseconds;
}"""
MEASURE_SORT = """() => {
    window.store.setSort('cost');
    const start = performance.now();
    window.store.update();
    return performance.now() - start;
}"""


def busy_milliseconds(session: CDPSession) -> float:
    """Return how long the page has computed so far."""
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return 1000 * float(sum(metrics[name] for name in ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")))


def test_five_thousand_exchanges_without_jank(console: ConsoleGateway, browser: Browser) -> None:
    """Scrolling, typing and growing keep the page fast, and only the rows in view are elements."""
    console.post("/v1/messages", claude_request())
    page = console.open_page(browser)
    expect(page.locator(ROWS)).to_have_count(1)  # the first batch of the feed replaces what the page has
    page.evaluate(FILL, 5000)
    expect(page.locator(".count")).to_have_text("5,001 exchanges")
    assert page.locator(ROWS).count() < 60
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time, whatever else runs
    before = busy_milliseconds(session)
    frames = sorted(page.evaluate(MEASURE_FRAMES))
    busy = (busy_milliseconds(session) - before) / len(frames)
    typing, sorting = page.evaluate(MEASURE_SEARCH), page.evaluate(MEASURE_SORT)
    sys.stdout.write(
        f"\n5,000 exchanges: {busy:.1f} ms of script, style and layout per frame; median frame "
        f"{frames[len(frames) // 2]:.1f} ms, 99 % {frames[int(len(frames) * 0.99) - 1]:.1f} ms; "
        f"search {typing:.1f} ms, sort {sorting:.1f} ms\n"
    )
    assert busy < 16  # the page's share of a frame; a busy machine delays frames, whatever the page does
    assert typing < 200
