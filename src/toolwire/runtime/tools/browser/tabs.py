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

from toolwire.runtime.tools.browser.display import Observation
from toolwire.runtime.tools.browser.page_view import PageView
from toolwire.runtime.tools.browser.settings import BrowserSettings

MAX_NOTES = 20
# What a page shows depends on these; pictures and sounds may come later.
AWAITED_RESOURCES = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})


class PageCrashed(Exception):
    pass


class Tabs:
    """A new tab comes into view; when it is closed, the one before it does."""

    def __init__(self, context: BrowserContext, settings: BrowserSettings, redact: Callable[[str], str]) -> None:
        self.context = context
        self.settings = settings
        self._redact = redact
        self._pages: list[Page] = []
        self._crashed: set[Page] = set()
        self._views: dict[Page, PageView] = {}
        self._known_targets: set[str] = set()
        self._notes: list[Observation] = []
        self._pending: set[Request | str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: set[asyncio.Task[Any]] = set()
        context.on("page", self._on_page)
        context.on("dialog", lambda dialog: self._run_in_background(partial(self._answer_dialog, dialog)))
        context.on("request", self._on_request)
        context.on("requestfinished", self._discard_pending)
        context.on("requestfailed", self._discard_pending)

    async def guard_navigation(self, browser: CDPSession) -> None:
        """Every document is asked for here first, also in new tabs and after each redirect."""
        browser.on(
            "Fetch.requestPaused",
            lambda paused: self._run_in_background(partial(self._check_navigation, browser, paused)),
        )
        pattern = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Request"}
        await browser.send("Fetch.enable", {"patterns": [pattern]})

    async def watch_targets(self, browser: CDPSession) -> None:
        """Playwright tells of a new tab when it has something to show; the browser tells at once."""
        mine = {"targetId": await (await self.view()).root_frame()}
        context = (await browser.send("Target.getTargetInfo", mine))["targetInfo"]["browserContextId"]
        browser.on("Target.targetCreated", lambda told: self._on_target_created(told["targetInfo"], context))
        browser.on("Target.targetDestroyed", lambda told: self._discard_pending(told["targetId"]))
        await browser.send("Target.setDiscoverTargets", {"discover": True})

    def _on_target_created(self, target: dict[str, Any], context: str) -> None:
        known = target["targetId"] in self._known_targets or target.get("browserContextId") != context
        if target["type"] == "page" and not known:
            self._pending.add(target["targetId"])
            self._idle.clear()

    def _discard_pending(self, pending: Request | str) -> None:
        self._pending.discard(pending)
        if not self._pending:
            self._idle.set()

    async def view(self) -> PageView:
        if not self._pages:
            await self.context.new_page()
        page = self._pages[-1]
        if page in self._crashed:
            raise PageCrashed("the page has crashed; open another address")
        if page not in self._views:
            await self._attach_view(page)
        return self._views[page]

    async def close_crashed(self) -> None:
        for page in [page for page in self._pages if page in self._crashed]:
            await page.close()

    async def abandon_page(self) -> None:
        """Gives up a page that no longer answers; its process would stay busy."""
        for page in self._pages[-1:]:
            self._remove_page(page)
            self._run_in_background(page.close)

    @property
    def url(self) -> str:
        return self._pages[-1].url if self._pages else "about:blank"

    def add_note(self, kind: str, text: str, *, is_error: bool = False) -> None:
        told = Observation(kind=kind, text=self._redact(text), is_error=is_error)
        if len(self._notes) < MAX_NOTES and told not in self._notes:
            self._notes.append(told)

    def take_notes(self) -> list[Observation]:
        taken, self._notes = self._notes, []
        return taken

    @property
    def is_busy(self) -> bool:
        return bool(self._pending)

    def forget_requests(self) -> None:
        self._pending.clear()
        self._idle.set()

    async def wait_until_settled(self, seconds: float) -> None:
        """Until what was asked of servers since the batch began is there, or long enough."""
        with suppress(TimeoutError, Error):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
                for page in self._pages[-1:]:
                    await page.wait_for_load_state("domcontentloaded")
                await self._idle.wait()
        for page in self._pages[1:]:
            if page.url.startswith("chrome-error:"):
                self.add_note("tab", "A new tab was closed, because its page could not be opened.")
                await page.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run_in_background(self, work: Callable[[], Awaitable[None]]) -> None:
        async def quietly() -> None:
            with suppress(Error):  # the page, or the whole browser, is gone
                await work()

        task = asyncio.ensure_future(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_page(self, page: Page) -> None:
        if len(self._pages) >= self.settings.limits.tabs:
            self.add_note("tab", "A new tab was closed, because too many are open.")
            self._run_in_background(page.close)
            return
        if self._pages:
            self.add_note("tab", "A new tab was opened and is in view now.")
        self._pages.append(page)
        self._run_in_background(partial(self._attach_view, page))
        page.on("close", self._on_close)
        page.on("crash", self._on_crash)
        page.on("download", self._refuse_download)
        # With a listener, no picker is ever shown; nobody chooses, so none gets a file.
        page.on("filechooser", self._refuse_files)

    async def _attach_view(self, page: Page) -> None:
        view = self._views[page] = await PageView.open(page, self.settings)
        target = await view.root_frame()
        self._known_targets.add(target)
        self._discard_pending(target)

    def _on_close(self, page: Page) -> None:
        if page in self._pages:
            if len(self._pages) > 1:
                self.add_note("tab", "A tab was closed; the one before it is in view now.")
            self._remove_page(page)

    def _remove_page(self, page: Page) -> None:
        self._pages.remove(page)
        self._crashed.discard(page)
        self._views.pop(page, None)

    def _on_crash(self, page: Page) -> None:
        self._crashed.add(page)
        self.add_note("crash", "The page has crashed.", is_error=True)

    def _refuse_download(self, download: Download) -> None:
        self.add_note(
            "download", f"The page offered the file {download.suggested_filename[:100]!r}; downloads are off."
        )

    def _refuse_files(self, chooser: FileChooser) -> None:
        self.add_note("files", "The page asked for a file; choosing files is off.")

    async def _answer_dialog(self, dialog: Dialog) -> None:
        # To dismiss a warning about leaving would be to stay for ever.
        accepted = self.settings.accept_dialogs or dialog.type == "beforeunload"
        answer = "accepted" if accepted else "dismissed"
        self.add_note(
            "dialog", f"The page showed a dialog ({dialog.type}), which was {answer}: {dialog.message[:500]!r}"
        )
        await (dialog.accept() if accepted else dialog.dismiss())

    def _on_request(self, request: Request) -> None:
        if request.resource_type in AWAITED_RESOURCES:
            self._pending.add(request)
            self._idle.clear()

    async def _check_navigation(self, browser: CDPSession, paused: dict[str, Any]) -> None:
        url, request = paused["request"]["url"], {"requestId": paused["requestId"]}
        why = self.settings.network_policy.navigation_refusal(url)
        if why is None or not await _is_top_frame(browser, paused["frameId"]):
            await browser.send("Fetch.continueRequest", request)
            return
        self.add_note("refused", f"A page was not opened: {why}.", is_error=True)
        await browser.send("Fetch.failRequest", {**request, "errorReason": "BlockedByClient"})


async def _is_top_frame(browser: CDPSession, frame: str) -> bool:
    """A page's own frame has the id of its tab; any other id belongs to a frame inside a page."""
    try:
        found = await browser.send("Target.getTargetInfo", {"targetId": frame})
    except Error:
        return False
    return bool(found["targetInfo"]["type"] != "iframe")
