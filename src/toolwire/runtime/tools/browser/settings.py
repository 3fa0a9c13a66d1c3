"""Settings of a browser session: limits, redaction, allowed actions and hosts."""

from msgspec import Struct

from toolwire.runtime.tools.browser.display import LargestImage, Size
from toolwire.runtime.tools.browser.network_policy import NetworkPolicy

Area = tuple[int, int, int, int]
"""Left, top, width and height, in CSS pixels of the viewport."""


class SessionLimits(Struct, frozen=True, kw_only=True):
    """The limits of a session. Times are in seconds, without the time spent waiting for approval."""

    # Actions per batch and per session.
    batch_actions: int = 50
    actions: int = 500
    action_seconds: float = 30
    session_seconds: float = 3600
    # The longest wait action.
    wait_seconds: float = 10
    # Time for the page to load before the final screenshot.
    settle_seconds: float = 2
    read_characters: int = 20_000
    typed_characters: int = 10_000
    tabs: int = 8


class Redaction(Struct, frozen=True, kw_only=True):
    """Elements and areas that are black in every screenshot. Elements are also left out of texts."""

    selectors: tuple[str, ...] = ()
    areas: tuple[Area, ...] = ()


class BrowserSettings(Struct, frozen=True, kw_only=True):
    """The settings of a browser session."""

    # The executable, if it is not on the PATH.
    chromium: str | None = None
    headless: bool = True
    page_size: Size = Size(1280, 800)
    device_scale: float = 1
    largest_image: LargestImage = LargestImage()
    network_policy: NetworkPolicy = NetworkPolicy()
    limits: SessionLimits = SessionLimits()
    redaction: Redaction = Redaction()
    # The allowed kinds of actions; None allows all.
    actions: frozenset[str] | None = None
    # Texts that are typed only with approval, and never shown.
    secrets: tuple[str, ...] = ()
    # A regular expression for control names that need approval, in addition to the built-in ones.
    sensitive: str | None = None
    clipboard: bool = False
    accept_dialogs: bool = False
