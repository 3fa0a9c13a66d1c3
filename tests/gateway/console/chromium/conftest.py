"""These tests drive a real Chromium and fail without one."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from tests.gateway.console.chromium.console_setup import ConsoleGateway, run_console_gateway
from toolwire.runtime.tools.browser import ChromiumNotFound, find_chromium


def pytest_sessionstart(session: pytest.Session) -> None:
    try:
        find_chromium(None)
    except ChromiumNotFound as missing:
        pytest.exit(str(missing), returncode=1)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    with launch_chromium(playwright) as launched:
        yield launched


@pytest.fixture
def caching_browser(playwright: Playwright) -> Iterator[Browser]:
    """A browser with the back/forward cache, which Playwright turns off."""
    with launch_chromium(playwright, ignore_default_args=["--disable-back-forward-cache"]) as launched:
        yield launched


@contextmanager
def launch_chromium(playwright: Playwright, **options: Any) -> Iterator[Browser]:
    launched = playwright.chromium.launch(
        executable_path=Path(find_chromium(None)), chromium_sandbox=os.geteuid() != 0, **options
    )
    yield launched
    launched.close()


@pytest.fixture
def console(tmp_path: Path) -> Iterator[ConsoleGateway]:
    with ExitStack() as stack:
        gateway = run_console_gateway(stack, tmp_path)
        gateway.capture_bodies()
        yield gateway


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", action="store_true", help="write the screenshots of the documentation")
