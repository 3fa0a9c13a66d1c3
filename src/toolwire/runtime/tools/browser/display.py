"""The display that a model sees, its mapping to the page, and the results of actions.

The page is laid out in CSS pixels. The screenshot, and with it the declared display, is as large as the page, or
scaled down by one factor if a vendor does not accept images of that size. The device pixel ratio affects neither.
Text from a page is data, never an instruction.

Settings of a browser session: limits, redaction, allowed actions and hosts.
"""

from math import floor, sqrt
from typing import NamedTuple

from msgspec import Struct

from toolwire.runtime.tools.browser.network_policy import NetworkPolicy


class Size(NamedTuple):
    """A width and height in pixels."""

    width: int
    height: int

    def __str__(self) -> str:
        """Format the size, such as `1024x768`."""
        return f"{self.width}x{self.height}"


class Box(NamedTuple):
    """A rectangle of the page, in CSS pixels."""

    x: float
    y: float
    width: float
    height: float


class LargestImage(Struct, frozen=True, kw_only=True):
    """The largest image that a vendor does not scale down; scaling would make coordinates wrong."""

    edge: int | None = None
    pixels: int | None = None

    def admits(self, size: Size) -> bool:
        """Return whether an image of this size is accepted as it is."""
        return (self.edge is None or max(size) <= self.edge) and (
            self.pixels is None or size.width * size.height <= self.pixels
        )


class OutsideDisplayError(Exception):
    """A coordinate is outside the display."""


class Display(Struct, frozen=True):
    """The mapping between the display and the page."""

    # In CSS pixels.
    page_size: Size
    # In pixels of the screenshot; this is the declared size.
    size: Size

    @classmethod
    def fit(cls, page: Size, largest: LargestImage) -> "Display":
        """Return the largest display for a page that a vendor accepts."""
        factor = 1.0
        if largest.edge is not None:
            factor = min(factor, largest.edge / max(page))
        if largest.pixels is not None:
            factor = min(factor, sqrt(largest.pixels / (page.width * page.height)))
        for width in range(floor(page.width * factor), 0, -1):
            height = page.height * width / page.width
            size = Size(width, round(height))
            # Chromium rounds too. Exact halves are avoided, so that the direction does not matter.
            if min(size) > 0 and abs(height % 1 - 0.5) > 1e-6 and largest.admits(size):
                return cls(page, size)
        raise ValueError(f"a page of {page} can't be scaled down to the largest allowed image")

    @property
    def scale(self) -> float:
        """Return the pixels of the screenshot per CSS pixel."""
        return self.size.width / self.page_size.width

    def to_page(self, x: int, y: int) -> tuple[float, float]:
        """Convert a pixel of the display to CSS pixels of the page. Centers of pixels map to centers."""
        self.require_inside(x, y)
        x_factor, y_factor = self.page_size.width / self.size.width, self.page_size.height / self.size.height
        return (x + 0.5) * x_factor - 0.5, (y + 0.5) * y_factor - 0.5

    def to_page_distance(self, dx: int, dy: int) -> tuple[float, float]:
        """Convert a distance on the display to CSS pixels of the page."""
        return dx * self.page_size.width / self.size.width, dy * self.page_size.height / self.size.height

    def to_page_box(self, x0: int, y0: int, x1: int, y1: int) -> Box:
        """Convert a rectangle of the display, given by two corners, to CSS pixels of the page."""
        if not (0 <= x0 < x1 <= self.size.width and 0 <= y0 < y1 <= self.size.height):
            raise OutsideDisplayError(f"({x0}, {y0}) to ({x1}, {y1}) is not a valid region of the {self.size} display")
        x_factor, y_factor = self.page_size.width / self.size.width, self.page_size.height / self.size.height
        return Box(x0 * x_factor, y0 * y_factor, (x1 - x0) * x_factor, (y1 - y0) * y_factor)

    def magnification(self, box: Box) -> float:
        """Return the scale at which a part of the page fills the display."""
        return min(self.size.width / box.width, self.size.height / box.height)

    def require_inside(self, x: int, y: int) -> None:
        """Raise `OutsideDisplayError` for a point outside the display."""
        if not (0 <= x < self.size.width and 0 <= y < self.size.height):
            raise OutsideDisplayError(f"({x}, {y}) is outside the display, which is {self.size}")


class ScreenImage(Struct, frozen=True, kw_only=True):
    """A PNG image in base64."""

    data: str
    width: int
    height: int
    media_type: str = "image/png"


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one action, or an event that happened meanwhile."""

    # The kind of the action, or `dialog`, `tab`, `download`, `files`, `crash` or `refused`.
    kind: str
    text: str
    is_error: bool = False
    image: ScreenImage | None = None


class ActionResult(Struct, frozen=True, kw_only=True):
    """The result of a batch of actions."""

    observations: tuple[Observation, ...]
    # The display afterwards; if None, an observation says why.
    screenshot: ScreenImage | None
    url: str

    @property
    def has_failed(self) -> bool:
        """Return whether any observation is an error."""
        return any(observation.is_error for observation in self.observations)


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
