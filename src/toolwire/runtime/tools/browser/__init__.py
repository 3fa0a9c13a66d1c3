"""A browser for models: canonical computer actions on pages in an installed Chromium, within limits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolwire.runtime.tools.browser.display import (
    ActionResult,
    Area,
    BrowserSettings,
    LargestImage,
    Observation,
    Redaction,
    ScreenImage,
    SessionLimits,
    Size,
)
from toolwire.runtime.tools.browser.guard import Guard
from toolwire.runtime.tools.browser.network_policy import NetworkPolicy

if TYPE_CHECKING:
    from toolwire.runtime.tools.browser.session import (
        ApproveAction,
        BrowserSession,
        ChromiumNotFound,
        find_chromium,
        open_session,
    )

__all__ = [
    "ActionResult",
    "ApproveAction",
    "Area",
    "BrowserSession",
    "BrowserSettings",
    "ChromiumNotFound",
    "Guard",
    "LargestImage",
    "NetworkPolicy",
    "Observation",
    "Redaction",
    "ScreenImage",
    "SessionLimits",
    "Size",
    "find_chromium",
    "open_session",
]

_PLAYWRIGHT_NAMES = {
    "ChromiumNotFound": "session",
    "find_chromium": "session",
    "ApproveAction": "session",
    "BrowserSession": "session",
    "open_session": "session",
}
"""Names that need Playwright, which is an optional dependency."""


def __getattr__(name: str) -> Any:
    """Import the names that need Playwright on first use."""
    if (module := _PLAYWRIGHT_NAMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
