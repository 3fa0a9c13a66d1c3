"""The mapping between pixels of the screenshot and the page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.runtime.tools.browser.display import Display, LargestImage, OutsideDisplayError, Size

sizes = st.builds(Size, st.integers(50, 4000), st.integers(50, 4000))
limits = st.builds(
    LargestImage, edge=st.none() | st.integers(100, 3000), pixels=st.none() | st.integers(10_000, 4_000_000)
)


@given(page=sizes, largest=limits)
def test_display_is_as_large_as_allowed(page: Size, largest: LargestImage) -> None:
    display = Display.fit(page, largest)
    assert largest.admits(display.size)
    assert display.size == page or display.size < page
    # The aspect ratio is the page's, up to rounding.
    assert abs(display.size.height - page.height * display.scale) <= 0.5
    if largest.admits(page):
        assert display.size == page


@given(page=sizes, largest=limits, data=st.data())
def test_display_pixel_maps_to_the_page(page: Size, largest: LargestImage, data: st.DataObject) -> None:
    display = Display.fit(page, largest)
    x = data.draw(st.integers(0, display.size.width - 1))
    y = data.draw(st.integers(0, display.size.height - 1))
    across, down = display.to_page(x, y)
    assert 0 <= across <= page.width - 1
    assert 0 <= down <= page.height - 1
    assert x * page.width / display.size.width <= across + 0.5 <= (x + 1) * page.width / display.size.width
    assert y * page.height / display.size.height <= down + 0.5 <= (y + 1) * page.height / display.size.height


def test_display_equals_page_without_limit() -> None:
    display = Display.fit(Size(1280, 800), LargestImage())
    assert display.size == (1280, 800)
    assert display.to_page(17, 31) == (17, 31)
    assert display.to_page_distance(-5, 300) == (-5, 300)


def test_limits_on_edge_and_area() -> None:
    assert Display.fit(Size(1920, 1080), LargestImage(edge=1568)).size == (1568, 882)
    fitted = Display.fit(Size(1920, 1080), LargestImage(edge=1568, pixels=1_150_000)).size
    assert fitted == (1429, 804)
    assert Display.fit(Size(1000, 3000), LargestImage(edge=1500)).to_page_distance(0, 10) == (0, 20)


@pytest.mark.parametrize(("x", "y"), [(-1, 0), (0, -1), (1280, 0), (0, 800)])
def test_point_outside_the_display_is_refused(x: int, y: int) -> None:
    with pytest.raises(OutsideDisplayError, match="1280x800"):
        Display.fit(Size(1280, 800), LargestImage()).to_page(x, y)


@pytest.mark.parametrize("corners", [(0, 0, 1281, 10), (10, 10, 10, 20), (20, 20, 10, 30), (-1, 0, 5, 5)])
def test_invalid_region_is_refused(corners: tuple[int, int, int, int]) -> None:
    with pytest.raises(OutsideDisplayError):
        Display.fit(Size(1280, 800), LargestImage()).to_page_box(*corners)


def test_region_is_magnified_to_the_display() -> None:
    display = Display.fit(Size(1600, 1000), LargestImage(edge=800))
    box = display.to_page_box(100, 50, 300, 150)
    assert box == (200, 100, 400, 200)
    assert display.magnification(box) == 2
