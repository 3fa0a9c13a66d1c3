"""A browser for models: canonical actions on real pages in an installed Chromium, within bounds."""

from .chromium import NoChromium, find_chromium
from .display import Largest, Size
from .guard import Guard
from .observation import Observation, Performed, Picture
from .reach import Reach
from .session import Approve, Session, open_session
from .settings import Area, Bounds, BrowserSettings, Redaction

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
