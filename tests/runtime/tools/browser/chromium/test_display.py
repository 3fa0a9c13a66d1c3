"""A click hits what the screenshot shows at that point."""

import pytest

from tests.runtime.tools.browser.chromium.browser_session import (
    color_centers,
    current_page,
    evaluate,
    perform_all,
    run_in_session,
)
from tests.support.servers.sites import serve_site
from toolwire.canonical.computer import Click, Navigate, Scroll, Zoom
from toolwire.runtime.tools.browser import BrowserSession, BrowserSettings, LargestImage, Size

# Each target's color is its number. Targets are in corners, on odd pixels, in a frame, and below the fold.
PLACES = [
    (0, 0),
    (1270, 0),
    (0, 790),
    (1270, 790),
    (333, 217),
    (641, 399),
    (1003, 611),
    (87, 533),
    (701, 1502),
    (29, 1611),
]


def target(number: int, x: int, y: int) -> str:
    place = f"position:absolute;left:{x}px;top:{y}px;width:10px;height:10px"
    return f'<div style="{place};background:#{number:06x}" onclick="parent.hits.push({number})"></div>'


NUMBERS = [0x400000 + 0x1111 * index for index in range(len(PLACES))]
FRAMED = 0x0000AA
INNER = f"<!doctype html><body style='margin:0'>{target(FRAMED, 31, 17)}"
TARGETS = (
    "<!doctype html><body style='margin:0;height:3000px;background:#fff'><script>hits = []</script>"
    "<iframe src=/inner style='position:absolute;left:211px;top:107px;width:100px;height:50px;border:3px solid #ddd'>"
    "</iframe>" + "".join(target(number, *place) for number, place in zip(NUMBERS, PLACES, strict=True))
)

LIMITS = {
    "as it is": LargestImage(),
    "edge": LargestImage(edge=1000),
    "area": LargestImage(edge=1568, pixels=600_000),
    "half": LargestImage(edge=640),
}


@pytest.mark.parametrize("largest", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("scale", [1, 1.5, 2, 3])
def test_click_hits_what_the_screenshot_shows(scale: float, largest: LargestImage) -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        for below in (0, 900):
            if below:
                distance = round(below * session.size.height / 800)
                await perform_all(session, Scroll(x=100, y=100, dy=distance))
            shown = (await session.perform([])).screenshot
            assert shown is not None
            assert largest.admits(Size(shown.width, shown.height))
            centers = await color_centers(session, shown)
            seen = [number for number in (*NUMBERS, FRAMED) if number in centers]
            assert len(seen) == (2 if below else 9)
            for number in seen:
                _, x, y = centers[number]
                await perform_all(session, Click(x=x, y=y))
            assert await evaluate(session, "hits.splice(0)") == seen
        assert await evaluate(session, "devicePixelRatio") == scale

    with serve_site({"/": TARGETS, "/inner": INNER}) as site:
        run_in_session(work, site, settings=BrowserSettings(device_scale=scale, largest_image=largest))


@pytest.mark.parametrize(
    ("page", "scale", "largest"),
    [
        (Size(1001, 777), 1, LargestImage()),
        (Size(1367, 613), 1.25, LargestImage()),
        (Size(375, 812), 2.625, LargestImage()),
        (Size(1001, 777), 2.625, LargestImage(edge=799)),
        (Size(1920, 1080), 1, LargestImage(edge=1568, pixels=1_150_000)),
        (Size(1367, 613), 1.75, LargestImage(pixels=333_333)),
    ],
    ids=str,
)
def test_declared_size_equals_screenshot_size(page: Size, scale: float, largest: LargestImage) -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        assert await evaluate(session, "[innerWidth, innerHeight, devicePixelRatio]") == [*page, scale]

    with serve_site({"/": TARGETS, "/inner": INNER}) as site:
        run_in_session(work, site, settings=BrowserSettings(page_size=page, device_scale=scale, largest_image=largest))


FINE = """<!doctype html><body style="margin:0;height:2000px"><script>
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 200;
  const pen = canvas.getContext("2d");
  for (let x = 0; x < 200; x++) for (let y = 0; y < 200; y++) {
    pen.fillStyle = (x + y) % 2 ? "#000000" : "#ffffff";
    pen.fillRect(x, y, 1, 1);
  }
  canvas.style.cssText = "position:absolute;left:600px;top:500px;image-rendering:pixelated";
  document.body.append(canvas);
</script>"""


@pytest.mark.parametrize("scale", [1, 2])
def test_zoom_shows_more_detail(scale: float) -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"), Scroll(x=50, y=50, dy=50))
        whole = await session.perform([Zoom(x0=310, y0=210, x1=390, y1=290)])
        part = whole.observations[0].image
        assert whole.screenshot is not None
        assert part is not None
        assert (whole.screenshot.width, part.width, part.height) == (640, 400, 400)
        # One-pixel squares are gray at half size, and black and white when zoomed.
        small, close = await color_centers(session, whole.screenshot), await color_centers(session, part)
        assert small.get(0x000000, (0,))[0] < 1000
        assert close[0x000000][0] > 60_000
        assert close[0xFFFFFF][0] > 60_000

    with serve_site({"/": FINE}) as site:
        run_in_session(work, site, settings=BrowserSettings(device_scale=scale, largest_image=LargestImage(edge=640)))


def test_screenshot_is_invisible_to_the_page() -> None:
    page = """<!doctype html><script>
      seen = []; onresize = () => seen.push(innerWidth); onscroll = () => seen.push(scrollY)</script>"""

    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        for _ in range(3):
            await perform_all(session, Zoom(x0=0, y0=0, x1=50, y1=50))
        await current_page(session).wait_for_timeout(200)
        assert await evaluate(session, "seen") == []

    with serve_site({"/": page}) as site:
        run_in_session(work, site, settings=BrowserSettings(device_scale=2, largest_image=LargestImage(edge=640)))
