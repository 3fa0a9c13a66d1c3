"""Overhead of the browser harness over bare Playwright: `python -m benchmarks.browser [ROUNDS]`.

Both perform the same actions on the same page in separate Chromium processes, in turns, so that other load affects
both.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from playwright.async_api import Page, async_playwright

from tests.support.servers.sites import Site, serve_site
from toolwire.canonical.computer import Action, Click, Keys, Move, Navigate
from toolwire.runtime.tools.browser import (
    BrowserSession,
    BrowserSettings,
    NetworkPolicy,
    SessionLimits,
    find_chromium,
    open_session,
)

SIZE = {"width": 1280, "height": 800}
ACTIONS = 20
WARM_UP = 3
PAGE = (
    "<!doctype html><title>bench</title><style>body { columns: 4; font: 13px sans-serif }</style>"
    "<form><input style='position:fixed;left:10px;top:10px'>"
    "<button type=button style='position:fixed;left:300px;top:10px'>Next</button></form>"
    + "".join(f"<p>{index} <a href='#{index}'>Lorem ipsum</a> dolor sit amet, consectetur.</p>" for index in range(400))
)

Work = Callable[[], Awaitable[object]]


async def run_actions(session: BrowserSession, actions: Sequence[Action]) -> None:
    performed = await session.perform(actions)
    if performed.has_failed:
        raise RuntimeError(str(performed.observations))


async def timed(work: Work) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


async def measure(name: str, rounds: int, playwright: Work, ours: Work, *, empty: Work | None = None) -> None:
    """Return milliseconds, measured in turns; `empty` is a batch without actions, to isolate their cost."""
    each = 1 if empty is None else ACTIONS
    plain, harnessed = [], []
    for index in range(rounds + WARM_UP):
        without = await timed(playwright), await timed(ours), 0.0 if empty is None else await timed(empty)
        if index >= WARM_UP:
            plain.append(without[0] / each)
            harnessed.append((without[1] - without[2]) / each)
    before, after = statistics.median(plain), statistics.median(harnessed)
    print(f"{name:<12} {before:8.2f} {after:10.2f} {after - before:+8.2f}")


async def compare(page: Page, session: BrowserSession, site: Site, rounds: int) -> None:
    async def clicks() -> None:
        for _ in range(ACTIONS):
            await page.mouse.click(310, 20)

    async def moves() -> None:
        for _ in range(ACTIONS):
            await page.mouse.move(310, 20)

    async def keys() -> None:
        for _ in range(ACTIONS):
            await page.keyboard.press("a")

    await page.goto(f"{site.root}/")
    await run_actions(session, [Navigate(url=f"{site.root}/")])
    batches: dict[str, list[Action]] = {
        "click": [Click(x=310, y=20)] * ACTIONS,
        "move": [Move(x=310, y=20)] * ACTIONS,
        "key": [Keys(keys=("a",))] * ACTIONS,
    }
    print(f"{'ms':<12} {'baseline':>8} {'toolwire':>10} {'added':>8}")
    await measure("screenshot", rounds, lambda: page.screenshot(scale="css"), lambda: run_actions(session, []))
    for (name, batch), playwright in zip(batches.items(), (clicks, moves, keys), strict=True):
        await measure(
            name, rounds, playwright, partial(run_actions, session, batch), empty=lambda: run_actions(session, [])
        )


async def main(rounds: int) -> None:
    program = find_chromium(None)
    with serve_site({"/": PAGE}) as site:
        async with AsyncExitStack() as stack:
            playwright = await stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(executable_path=program)
            stack.push_async_callback(browser.close)
            page = await browser.new_page(viewport={"width": SIZE["width"], "height": SIZE["height"]})
            settings = BrowserSettings(
                network_policy=NetworkPolicy(hosts=(site.name,)), limits=SessionLimits(actions=1_000_000)
            )
            began = time.perf_counter()
            session = await stack.enter_async_context(open_session(settings))
            print(
                f"session opened in {(time.perf_counter() - began) * 1000:.0f} ms; {browser.version}; {rounds} rounds"
            )
            await compare(page, session, site, rounds)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
