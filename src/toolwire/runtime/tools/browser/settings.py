"""What a browser session is allowed, and how it looks."""

from msgspec import Struct

from toolwire.runtime.tools.browser.display import LargestImage, Size
from toolwire.runtime.tools.browser.network_policy import NetworkPolicy

Area = tuple[int, int, int, int]
"""Left, top, width and height, in CSS pixels of the view."""


class SessionLimits(Struct, frozen=True, kw_only=True):
    """How much a session may do. Times are in seconds; those of a person who is asked do not count."""

    batch_actions: int = 50
    actions: int = 500
    action_seconds: float = 30
    session_seconds: float = 3600
    wait_seconds: float = 10
    settle_seconds: float = 2
    read_characters: int = 20_000
    typed_characters: int = 10_000
    tabs: int = 8


class Redaction(Struct, frozen=True, kw_only=True):
    """What is black in every picture: elements, and fixed areas of the view. Elements are left out of texts, too."""

    selectors: tuple[str, ...] = ()
    areas: tuple[Area, ...] = ()


class BrowserSettings(Struct, frozen=True, kw_only=True):
    """`chromium`: the program, if it is not on the path. `actions`: the kinds that may be done, if not all. `secrets`:
    texts that are typed only if a person agrees, and never told. `sensitive`: further words on a control that a person
    must agree to, as a regular expression."""

    chromium: str | None = None
    headless: bool = True
    page_size: Size = Size(1280, 800)
    device_scale: float = 1
    largest_image: LargestImage = LargestImage()
    network_policy: NetworkPolicy = NetworkPolicy()
    limits: SessionLimits = SessionLimits()
    redaction: Redaction = Redaction()
    actions: frozenset[str] | None = None
    secrets: tuple[str, ...] = ()
    sensitive: str | None = None
    clipboard: bool = False
    accept_dialogs: bool = False
