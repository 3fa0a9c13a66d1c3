"""Screenshots of the documentation, in light and dark: `make test-console ARGUMENTS=--screenshots`."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.gateway.console.chromium.console_setup import (
    ConsoleGateway,
    record_runs,
    run_console_gateway,
    send_traffic,
)
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "guides" / "console"
ROWS = ".rows-spacer .row"
LOSSY = f"{ROWS}:has-text('anthropic → openai-chat')"
SIZE = {"width": 1280, "height": 760}


PICTURES = {"list-light", "request-light", "request-dark", "stream-light", "other-providers-light", "playground-dark"}
PICTURES |= {"status-light"}


def take(page: Page, name: str, scheme: str) -> None:
    if f"{name}-{scheme}" not in PICTURES:
        return
    page.mouse.move(0, 0)
    page.screenshot(path=FOLDER / f"{name}-{scheme}.png", animations="disabled")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_take_screenshots(request: pytest.FixtureRequest, browser: Browser, tmp_path: Path, scheme: str) -> None:
    if not request.config.getoption("--screenshots"):
        pytest.skip("needs --screenshots, as it writes into docs/")
    FOLDER.mkdir(exist_ok=True)
    record_runs(tmp_path)
    with ExitStack() as stack:
        send_traffic(run_console_gateway(stack, tmp_path))  # what a first request loads would show in the times
        gateway = run_console_gateway(stack, tmp_path, pace=0.004)
        gateway.capture_bodies()
        send_traffic(gateway)
        page = gateway.open_page(browser, viewport=SIZE, color_scheme=scheme)
        _exchanges(page, scheme)
        _views(gateway, page, scheme)
        page.context.close()


def _exchanges(page: Page, scheme: str) -> None:
    expect(page.locator(ROWS)).to_have_count(8)
    take(page, "list", scheme)
    page.locator(LOSSY).click()
    expect(page.locator(".pane")).to_have_count(2)
    take(page, "request", scheme)
    page.get_by_role("tab", name="Stream").click()
    expect(page.locator("svg.timeline")).to_be_visible()
    take(page, "stream", scheme)
    page.get_by_role("tab", name="Other providers").click()
    page.get_by_role("button", name="gemini", exact=True).click()
    expect(page.get_by_role("heading", name="To gemini")).to_be_visible()
    take(page, "other-providers", scheme)


def _views(gateway: ConsoleGateway, page: Page, scheme: str) -> None:
    for view, selector in (("playground", ".playground-result .pane"), ("status", "svg.chart")):
        page.goto(f"{gateway.url}/#/{view}")
        page.wait_for_selector(selector)
        page.wait_for_selector(".feed-state.live")
        take(page, view, scheme)
