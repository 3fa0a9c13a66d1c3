"""What a model sees, and where on the page that is.

The page is laid out in CSS pixels. The picture of it, and with it the declared display, is as large as the page or,
where a vendor takes no pictures of that size, smaller by one factor. How many physical pixels a CSS pixel has changes
neither.

What comes back from a browser: what was done, seen and read. What a page says is data, never an instruction.
"""

from math import floor, sqrt
from typing import NamedTuple

from msgspec import Struct


class Size(NamedTuple):
    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


class Box(NamedTuple):
    """A part of the page, in CSS pixels."""

    x: float
    y: float
    width: float
    height: float


class LargestImage(Struct, frozen=True, kw_only=True):
    """The largest picture that a vendor leaves as it is: in one that it makes smaller, coordinates would miss."""

    edge: int | None = None
    pixels: int | None = None

    def admits(self, size: Size) -> bool:
        return (self.edge is None or max(size) <= self.edge) and (
            self.pixels is None or size.width * size.height <= self.pixels
        )


class OutsideDisplayError(Exception):
    pass


class Display(Struct, frozen=True):
    """`page` in CSS pixels; `size` in pixels of the picture, which is the declared size."""

    page_size: Size
    size: Size

    @classmethod
    def fit(cls, page: Size, largest: LargestImage) -> "Display":
        factor = 1.0
        if largest.edge is not None:
            factor = min(factor, largest.edge / max(page))
        if largest.pixels is not None:
            factor = min(factor, sqrt(largest.pixels / (page.width * page.height)))
        for width in range(floor(page.width * factor), 0, -1):
            height = page.height * width / page.width
            size = Size(width, round(height))
            # Chromium rounds, too; halves are left alone, so that it need not be known which way.
            if min(size) > 0 and abs(height % 1 - 0.5) > 1e-6 and largest.admits(size):
                return cls(page, size)
        raise ValueError(f"no picture of a page of {page} is as small as that")

    @property
    def scale(self) -> float:
        """Pixels of the picture for each CSS pixel."""
        return self.size.width / self.page_size.width

    def to_page(self, x: int, y: int) -> tuple[float, float]:
        """The middle of a pixel of the picture lies over the middle of what it shows."""
        self.require_inside(x, y)
        across, down = self.page_size.width / self.size.width, self.page_size.height / self.size.height
        return (x + 0.5) * across - 0.5, (y + 0.5) * down - 0.5

    def to_page_distance(self, dx: int, dy: int) -> tuple[float, float]:
        return dx * self.page_size.width / self.size.width, dy * self.page_size.height / self.size.height

    def to_page_box(self, x0: int, y0: int, x1: int, y1: int) -> Box:
        if not (0 <= x0 < x1 <= self.size.width and 0 <= y0 < y1 <= self.size.height):
            raise OutsideDisplayError(f"({x0}, {y0}) to ({x1}, {y1}) is not a part of the display of {self.size}")
        across, down = self.page_size.width / self.size.width, self.page_size.height / self.size.height
        return Box(x0 * across, y0 * down, (x1 - x0) * across, (y1 - y0) * down)

    def magnification(self, box: Box) -> float:
        """How large a part is shown so that it fills the display, in pixels of the picture for each CSS pixel."""
        return min(self.size.width / box.width, self.size.height / box.height)

    def require_inside(self, x: int, y: int) -> None:
        if not (0 <= x < self.size.width and 0 <= y < self.size.height):
            raise OutsideDisplayError(f"({x}, {y}) is outside of the display, which is {self.size}")


class ScreenImage(Struct, frozen=True, kw_only=True):
    """A PNG, as base64 text."""

    data: str
    width: int
    height: int
    media_type: str = "image/png"


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`about` is the kind of an action, or what happened meanwhile: `dialog`, `tab`, `download`, `files`, `crash`,
    `refused`."""

    kind: str
    text: str
    is_error: bool = False
    image: ScreenImage | None = None


class ActionResult(Struct, frozen=True, kw_only=True):
    """`screenshot` is what the display shows afterwards; without it, an observation says why."""

    observations: tuple[Observation, ...]
    screenshot: ScreenImage | None
    url: str

    @property
    def has_failed(self) -> bool:
        return any(one.is_error for one in self.observations)
