"""Which page is in view, what happens in the pages meanwhile, and where they may not go."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from playwright.async_api import (
    BrowserContext,
    CDPSession,
    Dialog,
    Download,
    Error,
    FileChooser,
    Page,
    Request,
)

from .observation import Observation
from .settings import BrowserSettings
from .view import View

MOST_NOTES = 20
# What a page shows depends on these; pictures and sounds may come later.
AWAITED = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})


class NoPage(Exception):
    pass


class Tabs:
    """A new tab comes into view; when it is closed, the one before it does."""

    def __init__(self, context: BrowserContext, settings: BrowserSettings, conceal: Callable[[str], str]) -> None:
        self.context = context
        self.settings = settings
        self._conceal = conceal
        self._pages: list[Page] = []
        self._crashed: set[Page] = set()
        self._views: dict[Page, View] = {}
        self._shown: set[str] = set()
        self._notes: list[Observation] = []
        self._pending: set[Request | str] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._tasks: set[asyncio.Task[Any]] = set()
        context.on("page", self._opened)
        context.on("dialog", lambda dialog: self._soon(partial(self._answer, dialog)))
        context.on("request", self._asked)
        context.on("requestfinished", self._arrived)
        context.on("requestfailed", self._arrived)

    async def guard_navigation(self, browser: CDPSession) -> None:
        """Every document is asked for here first, also in new tabs and after each redirect."""
        browser.on("Fetch.requestPaused", lambda paused: self._soon(partial(self._consider, browser, paused)))
        pattern = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Request"}
        await browser.send("Fetch.enable", {"patterns": [pattern]})

    async def expect_tabs(self, browser: CDPSession) -> None:
        """Playwright tells of a new tab when it has something to show; the browser tells at once."""
        mine = {"targetId": await (await self.view()).root_frame()}
        context = (await browser.send("Target.getTargetInfo", mine))["targetInfo"]["browserContextId"]
        browser.on("Target.targetCreated", lambda told: self._expect(told["targetInfo"], context))
        browser.on("Target.targetDestroyed", lambda told: self._arrived(told["targetId"]))
        await browser.send("Target.setDiscoverTargets", {"discover": True})

    def _expect(self, target: dict[str, Any], context: str) -> None:
        known = target["targetId"] in self._shown or target.get("browserContextId") != context
        if target["type"] == "page" and not known:
            self._pending.add(target["targetId"])
            self._quiet.clear()

    def _arrived(self, what: Request | str) -> None:
        self._pending.discard(what)
        if not self._pending:
            self._quiet.set()

    async def view(self) -> View:
        if not self._pages:
            await self.context.new_page()
        page = self._pages[-1]
        if page in self._crashed:
            raise NoPage("the page has crashed; open another address")
        if page not in self._views:
            await self._appear(page)
        return self._views[page]

    async def fresh_if_crashed(self) -> None:
        for page in [page for page in self._pages if page in self._crashed]:
            await page.close()

    async def abandon(self) -> None:
        """Gives up a page that no longer answers; its process would stay busy."""
        for page in self._pages[-1:]:
            self._forget(page)
            self._soon(page.close)

    @property
    def url(self) -> str:
        return self._pages[-1].url if self._pages else "about:blank"

    def note(self, about: str, text: str, *, error: bool = False) -> None:
        told = Observation(about=about, text=self._conceal(text), error=error)
        if len(self._notes) < MOST_NOTES and told not in self._notes:
            self._notes.append(told)

    def take_notes(self) -> list[Observation]:
        taken, self._notes = self._notes, []
        return taken

    @property
    def busy(self) -> bool:
        return bool(self._pending)

    def forget_requests(self) -> None:
        self._pending.clear()
        self._quiet.set()

    async def settled(self, seconds: float) -> None:
        """Until what was asked of servers since the batch began is there, or long enough."""
        with suppress(TimeoutError, Error):
            async with asyncio.timeout(seconds):
                await self._quiet.wait()
                for page in self._pages[-1:]:
                    await page.wait_for_load_state("domcontentloaded")
                await self._quiet.wait()
        for page in self._pages[1:]:
            if page.url.startswith("chrome-error:"):
                self.note("tab", "A new tab was closed, because its page could not be opened.")
                await page.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _soon(self, work: Callable[[], Awaitable[None]]) -> None:
        async def quietly() -> None:
            with suppress(Error):  # the page, or the whole browser, is gone
                await work()

        task = asyncio.ensure_future(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _opened(self, page: Page) -> None:
        if len(self._pages) >= self.settings.bounds.tabs:
            self.note("tab", "A new tab was closed, because too many are open.")
            self._soon(page.close)
            return
        if self._pages:
            self.note("tab", "A new tab was opened and is in view now.")
        self._pages.append(page)
        self._soon(partial(self._appear, page))
        page.on("close", self._closed)
        page.on("crash", self._has_crashed)
        page.on("download", self._refuse_download)
        # With a listener, no picker is ever shown; nobody chooses, so none gets a file.
        page.on("filechooser", self._refuse_files)

    async def _appear(self, page: Page) -> None:
        view = self._views[page] = await View.of(page, self.settings)
        target = await view.root_frame()
        self._shown.add(target)
        self._arrived(target)

    def _closed(self, page: Page) -> None:
        if page in self._pages:
            if len(self._pages) > 1:
                self.note("tab", "A tab was closed; the one before it is in view now.")
            self._forget(page)

    def _forget(self, page: Page) -> None:
        self._pages.remove(page)
        self._crashed.discard(page)
        self._views.pop(page, None)

    def _has_crashed(self, page: Page) -> None:
        self._crashed.add(page)
        self.note("crash", "The page has crashed.", error=True)

    def _refuse_download(self, download: Download) -> None:
        self.note("download", f"The page offered the file {download.suggested_filename[:100]!r}; downloads are off.")

    def _refuse_files(self, chooser: FileChooser) -> None:
        self.note("files", "The page asked for a file; choosing files is off.")

    async def _answer(self, dialog: Dialog) -> None:
        # To dismiss a warning about leaving would be to stay for ever.
        accepted = self.settings.accept_dialogs or dialog.type == "beforeunload"
        answer = "accepted" if accepted else "dismissed"
        self.note("dialog", f"The page showed a dialog ({dialog.type}), which was {answer}: {dialog.message[:500]!r}")
        await (dialog.accept() if accepted else dialog.dismiss())

    def _asked(self, request: Request) -> None:
        if request.resource_type in AWAITED:
            self._pending.add(request)
            self._quiet.clear()

    async def _consider(self, browser: CDPSession, paused: dict[str, Any]) -> None:
        url, request = paused["request"]["url"], {"requestId": paused["requestId"]}
        why = self.settings.reach.opens(url)
        if why is None or not await _is_page(browser, paused["frameId"]):
            await browser.send("Fetch.continueRequest", request)
            return
        self.note("refused", f"A page was not opened: {why}.", error=True)
        await browser.send("Fetch.failRequest", {**request, "errorReason": "BlockedByClient"})


async def _is_page(browser: CDPSession, frame: str) -> bool:
    """A page's own frame has the id of its tab; any other id belongs to a frame inside a page."""
    try:
        found = await browser.send("Target.getTargetInfo", {"targetId": frame})
    except Error:
        return False
    return bool(found["targetInfo"]["type"] != "iframe")
