"""A session on a page, and what its pictures show."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Page

from tests.runtime.browser.sites import Site
from toolwire.canonical.computer import Action
from toolwire.runtime.tools.browser import BrowserSettings, Observation, Picture, Reach, Session, open_session

Work = Callable[[Session], Awaitable[None]]


def drive(work: Work, *sites: Site, **settings: Any) -> None:
    """With the sites among the hosts, if no other reach is given."""
    settings.setdefault("reach", Reach(hosts=tuple(site.name for site in sites)))

    async def whole() -> None:
        async with asyncio.timeout(90), open_session(BrowserSettings(**settings)) as session:
            await work(session)

    asyncio.run(whole())


def page_of(session: Session) -> Page:
    return session._tabs._pages[-1]


async def ask(session: Session, expression: str) -> Any:
    return await page_of(session).evaluate(expression)


async def did(session: Session, *actions: Action) -> list[str]:
    """The texts, of actions that must all succeed."""
    done = await session.perform(actions)
    assert [one for one in done.observations if one.error] == []
    assert done.screenshot is not None
    assert (done.screenshot.width, done.screenshot.height) == session.size
    return [one.text for one in done.observations]


async def failed(session: Session, *actions: Action) -> Observation:
    done = await session.perform(actions)
    return next(one for one in done.observations if one.error)


async def told(session: Session, action: Action) -> list[str]:
    """Wait until something happened besides an action that succeeded, and return what it was."""
    done = await session.perform([action])
    assert not done.failed
    kind = type(action).__struct_config__.tag
    seen = list(done.observations)
    while True:
        await asyncio.sleep(0.5)
        seen += (await session.perform([])).observations
        if texts := [one.text for one in seen if one.about != kind]:
            return texts


PIXELS = """async ([data, points]) => {
  const picture = new Image();
  picture.src = "data:image/png;base64," + data;
  await picture.decode();
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  const pen = canvas.getContext("2d");
  pen.drawImage(picture, 0, 0);
  const all = pen.getImageData(0, 0, picture.width, picture.height).data;
  const at = (x, y) => 4 * (y * picture.width + x);
  if (points) return points.map(([x, y]) => [...all.slice(at(x, y), at(x, y) + 3)]);
  const middles = {};
  for (let at = 0; at < all.length; at += 4) {
    const colour = (all[at] << 16) | (all[at + 1] << 8) | all[at + 2];
    const middle = (middles[colour] ??= [0, 0, 0]);
    middle[0] += 1;
    middle[1] += (at / 4) % picture.width;
    middle[2] += Math.floor(at / 4 / picture.width);
  }
  return Object.entries(middles).map(([colour, [count, x, y]]) => [Number(colour), count, x / count, y / count]);
}"""


async def _look(session: Session, picture: Picture, points: list[tuple[int, int]] | None) -> Any:
    browser = page_of(session).context.browser
    assert browser is not None
    beside = await browser.new_page()
    try:
        return await beside.evaluate(PIXELS, [picture.data, points])
    finally:
        await beside.close()


async def colours_at(session: Session, picture: Picture, *points: tuple[int, int]) -> list[tuple[int, int, int]]:
    return [tuple(one) for one in await _look(session, picture, list(points))]


async def middles(session: Session, picture: Picture) -> dict[int, tuple[int, int, int]]:
    """For each colour of a picture how many pixels have it, and the middle of them."""
    found = await _look(session, picture, None)
    return {colour: (count, round(x), round(y)) for colour, count, x, y in found}
