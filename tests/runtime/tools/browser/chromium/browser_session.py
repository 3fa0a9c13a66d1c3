"""Helpers: a session on a page, and analysis of screenshots."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace
from playwright.async_api import Page

from tests.support.servers.sites import Site
from toolwire.canonical.computer import Action
from toolwire.runtime.tools.browser import (
    BrowserSession,
    BrowserSettings,
    NetworkPolicy,
    Observation,
    ScreenImage,
    open_session,
)

SessionScenario = Callable[[BrowserSession], Awaitable[None]]


def run_in_session(work: SessionScenario, *sites: Site, settings: BrowserSettings | None = None) -> None:
    """Run in a session. If sites are given, its network policy allows these only."""
    settings = settings or BrowserSettings()
    if sites:
        settings = replace(settings, network_policy=NetworkPolicy(hosts=tuple(site.name for site in sites)))

    async def whole() -> None:
        async with asyncio.timeout(90), open_session(settings) as session:
            await work(session)

    asyncio.run(whole())


def current_page(session: BrowserSession) -> Page:
    return session._tabs._pages[-1]


async def evaluate(session: BrowserSession, expression: str) -> Any:
    return await current_page(session).evaluate(expression)


async def perform_all(session: BrowserSession, *actions: Action) -> list[str]:
    """Perform actions that must all succeed, and return their texts."""
    done = await session.perform(actions)
    assert [one for one in done.observations if one.is_error] == []
    assert done.screenshot is not None
    assert (done.screenshot.width, done.screenshot.height) == session.size
    return [one.text for one in done.observations]


async def perform_until_error(session: BrowserSession, *actions: Action) -> Observation:
    done = await session.perform(actions)
    return next(one for one in done.observations if one.is_error)


async def side_observations(session: BrowserSession, action: Action) -> list[str]:
    """Wait until something happened besides an action that succeeded, and return what it was."""
    done = await session.perform([action])
    assert not done.has_failed
    kind = type(action).__struct_config__.tag
    seen = list(done.observations)
    while True:
        await asyncio.sleep(0.5)
        seen += (await session.perform([])).observations
        if texts := [one.text for one in seen if one.kind != kind]:
            return texts


PIXEL_SCRIPT = """async ([data, points]) => {
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


async def _read_pixels(session: BrowserSession, picture: ScreenImage, points: list[tuple[int, int]] | None) -> Any:
    browser = current_page(session).context.browser
    assert browser is not None
    beside = await browser.new_page()
    try:
        return await beside.evaluate(PIXEL_SCRIPT, [picture.data, points])
    finally:
        await beside.close()


async def colors_at(
    session: BrowserSession, picture: ScreenImage, *points: tuple[int, int]
) -> list[tuple[int, int, int]]:
    return [tuple(one) for one in await _read_pixels(session, picture, list(points))]


async def color_centers(session: BrowserSession, picture: ScreenImage) -> dict[int, tuple[int, int, int]]:
    """Return, for each color of an image, the number of its pixels and their center."""
    found = await _read_pixels(session, picture, None)
    return {colour: (count, round(x), round(y)) for colour, count, x, y in found}
