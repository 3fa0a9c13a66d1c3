"""An installed Chromium, found and started so that it reaches nobody but through a proxy."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from toolwire.canonical.errors import ToolwireError

PROGRAM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# Beyond those with which Playwright starts it.
PRIVACY_FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--dns-prefetch-disable",
)
# What would go past a proxy for TCP, and what asks the user for files or devices.
ISOLATION_FLAGS = (
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-blink-features=FileSystemAccess,FileSystemAccessLocal,WebUSB,Serial,WebHID,WebBluetooth,Prerender2",
    "--deny-permission-prompts",
    "--disable-print-preview",
)
RENDERING_FLAGS = ("--disable-gpu", "--disable-smooth-scrolling")


class ChromiumNotFound(ToolwireError):
    pass


def find_chromium(configured: str | None) -> str:
    if configured is not None:
        found = shutil.which(configured)
        if found is None:
            raise ChromiumNotFound(f"the configured browser {configured!r} is not a program that can be run")
        return found
    for name in PROGRAM_NAMES:
        if found := shutil.which(name):
            return found
    raise ChromiumNotFound(
        "a browser session needs Chromium, and none is on the path. Install it (Debian and Ubuntu: `apt install "
        "chromium`; macOS: `brew install --cask chromium`), or say in the settings where it is (`chromium`)."
    )


@asynccontextmanager
async def launch_chromium(program: str, *, headless: bool, proxy_port: int) -> AsyncIterator[Browser]:
    """With a profile of its own, which is removed at the end."""
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=Path(program),
            headless=headless,
            # Chromium's own sandbox can't be set up by root, and is never given up otherwise.
            chromium_sandbox=not as_root,
            proxy={"server": f"http://127.0.0.1:{proxy_port}", "bypass": "<-loopback>"},
            args=[*PRIVACY_FLAGS, *ISOLATION_FLAGS, *RENDERING_FLAGS],
        )
        try:
            yield browser
        finally:
            await browser.close()
