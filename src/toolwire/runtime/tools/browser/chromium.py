"""An installed Chromium: found, and started so that it reaches the network only through a proxy."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from toolwire.canonical.errors import ToolwireError

PROGRAM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# In addition to Playwright's own flags.
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
# Disable what bypasses a TCP proxy, and what asks the user for files or devices.
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
    """No usable Chromium is installed."""


def find_chromium(configured: str | None) -> str:
    """Return the path of Chromium, as configured or else from the PATH."""
    if configured is not None:
        path = shutil.which(configured)
        if path is None:
            raise ChromiumNotFound(f"the configured browser {configured!r} is not an executable program")
        return path
    for name in PROGRAM_NAMES:
        if path := shutil.which(name):
            return path
    raise ChromiumNotFound(
        "Chromium not found on the PATH. Install it (Debian and Ubuntu: `apt install chromium`; macOS: `brew install "
        "--cask chromium`), or set `chromium` to its path in the settings."
    )


@asynccontextmanager
async def launch_chromium(program: str, *, headless: bool, proxy_port: int) -> AsyncIterator[Browser]:
    """Start Chromium with a temporary profile, which is removed at the end."""
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=Path(program),
            headless=headless,
            # Chromium's own sandbox does not work for root; otherwise it is always on.
            chromium_sandbox=not as_root,
            proxy={"server": f"http://127.0.0.1:{proxy_port}", "bypass": "<-loopback>"},
            args=[*PRIVACY_FLAGS, *ISOLATION_FLAGS, *RENDERING_FLAGS],
        )
        try:
            yield browser
        finally:
            await browser.close()
