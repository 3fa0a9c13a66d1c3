"""Redacted elements are black in screenshots and absent from texts."""

import pytest

from tests.runtime.tools.browser.chromium.browser_session import (
    colors_at,
    perform_all,
    perform_until_error,
    run_in_session,
)
from tests.support.servers.sites import serve_site
from toolwire.canonical.computer import Click, Keys, Navigate, ReadText, Screenshot, Scroll, Zoom
from toolwire.runtime.tools.browser import BrowserSession, BrowserSettings, LargestImage, Redaction

PAGE = """<!doctype html><body style="margin:0;height:3000px;background:#0f0"><style>* { position: absolute }</style>
<div class=secret style="left:100px;top:100px;width:100px;height:50px;background:#f00">number 4711</div>
<div style="left:300px;top:100px">number 4712</div>
<iframe style="left:500px;top:100px;width:200px;height:200px;border:0" srcdoc="<body style='margin:0;background:#00f'>
<p class=secret style='margin:0;position:absolute;left:50px;top:50px;width:50px;height:50px'>number 4713"></iframe>"""
BLACK, GREEN, BLUE = (0, 0, 0), (0, 255, 0), (0, 0, 255)
REDACTION = Redaction(selectors=(".secret",), areas=((900, 600, 100, 100),))


@pytest.mark.parametrize("scale", [1, 2])
def test_redacted_elements_and_areas_are_black(scale: float) -> None:
    async def work(session: BrowserSession) -> None:
        done = await session.perform([Navigate(url=f"{site.root}/"), Screenshot(), Zoom(x0=40, y0=40, x1=120, y1=90)])
        assert done.screenshot is not None
        points = [(52, 52), (97, 72), (45, 45), (277, 77), (255, 55), (452, 302), (497, 347), (445, 310)]
        expected = [BLACK, BLACK, GREEN, BLACK, BLUE, BLACK, BLACK, GREEN]
        middle, part = done.observations[1].image, done.observations[2].image
        assert middle is not None
        assert part is not None
        for picture in (done.screenshot, middle):
            assert (picture.width, picture.height) == session.size == (640, 400)
            assert await colors_at(session, picture, *points) == expected
        assert (part.width, part.height) == (640, 400)
        assert await colors_at(session, part, (88, 88), (470, 270), (20, 20)) == [BLACK, BLACK, GREEN]

    with serve_site({"/": PAGE}) as site:
        settings = BrowserSettings(redaction=REDACTION, device_scale=scale, largest_image=LargestImage(edge=640))
        run_in_session(work, site, settings=settings)


def test_moved_elements_stay_black() -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        done = await session.perform([Scroll(x=10, y=10, dy=60)])
        assert done.screenshot is not None
        points = [(150, 45), (150, 85), (150, 100), (950, 650)]
        assert await colors_at(session, done.screenshot, *points) == [BLACK, BLACK, GREEN, BLACK]

    with serve_site({"/": PAGE}) as site:
        run_in_session(work, site, settings=BrowserSettings(redaction=REDACTION))


def test_redacted_elements_are_absent_from_text() -> None:
    async def work(session: BrowserSession) -> None:
        (_, text) = await perform_all(session, Navigate(url=f"{site.root}/"), ReadText())
        assert text.split("\n") == ["[redacted]", "number 4712", "[redacted]"]

    with serve_site({"/": PAGE}) as site:
        run_in_session(work, site, settings=BrowserSettings(redaction=REDACTION))


CHOOSING = """<!doctype html><style>select, button { position: absolute; left: 0; width: 200px; height: 30px }</style>
<div class=secret><select style="top:0"><option>account 4711<option>account 4712</select>
<button style="top:50px">Pay from 4711</button></div><select style="top:100px"><option>one<option>two</select>"""


def test_redacted_elements_are_absent_from_click_results() -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        texts = [*await perform_all(session, Click(x=50, y=10)), *await perform_all(session, Keys(keys=("Enter",)))]
        assert [text.rpartition(": ")[2] for text in texts] == ["[redacted]", "[redacted]"]
        (told_of_other,) = await perform_all(session, Click(x=50, y=110))
        assert told_of_other.endswith(": one (chosen); two")
        refused = await perform_until_error(session, Click(x=50, y=60))
        assert refused.text.startswith("Not performed: the control [redacted] looks like it spends money")

    with serve_site({"/": CHOOSING}) as site:
        run_in_session(work, site, settings=BrowserSettings(redaction=Redaction(selectors=(".secret",))))


def test_invalid_selector_gives_no_screenshot() -> None:
    async def work(session: BrowserSession) -> None:
        done = await session.perform([Navigate(url=f"{site.root}/")])
        assert done.has_failed
        assert done.screenshot is None

    with serve_site({"/": PAGE}) as site:
        run_in_session(work, site, settings=BrowserSettings(redaction=Redaction(selectors=("[[",))))
