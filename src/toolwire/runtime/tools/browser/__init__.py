"""A browser for models: canonical actions on real pages in an installed Chromium, within bounds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .display import Largest, Size
from .guard import Guard
from .observation import Observation, Performed, Picture
from .reach import Reach
from .settings import Area, Bounds, BrowserSettings, Redaction

if TYPE_CHECKING:
    from .chromium import NoChromium, find_chromium
    from .session import Approve, Session, open_session

__all__ = [
    "Approve",
    "Area",
    "Bounds",
    "BrowserSettings",
    "Guard",
    "Largest",
    "NoChromium",
    "Observation",
    "Performed",
    "Picture",
    "Reach",
    "Redaction",
    "Session",
    "Size",
    "find_chromium",
    "open_session",
]

_DRIVING = {
    "NoChromium": "chromium",
    "find_chromium": "chromium",
    "Approve": "session",
    "Session": "session",
    "open_session": "session",
}
"""What needs Playwright, which is there only when somebody drives."""


def __getattr__(name: str) -> Any:
    if (home := _DRIVING.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
