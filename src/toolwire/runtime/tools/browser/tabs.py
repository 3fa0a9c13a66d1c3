"""The tabs of a session: the page in view, events in pages, and checks of navigation."""

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

from toolwire.runtime.tools.browser.display import BrowserSettings, Observation
from toolwire.runtime.tools.browser.page_view import PageView

MAX_NOTES = 20
# The content of a page depends on these; images and media may load later.
AWAITED_RESOURCES = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})


class PageCrashed(Exception):
    """The page in view has crashed."""


class Tabs:
    """The open tabs. A new tab comes into view; when it is closed, the previous one does."""

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
        """Check every document request against the network policy, also in new tabs and after redirects."""
        browser.on(
            "Fetch.requestPaused",
            lambda paused: self._run_in_background(partial(self._check_navigation, browser, paused)),
        )
        pattern = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Request"}
        await browser.send("Fetch.enable", {"patterns": [pattern]})

    async def watch_targets(self, browser: CDPSession) -> None:
        """Track new tabs as soon as the browser creates them, which is before Playwright reports them."""
        params = {"targetId": await (await self.view()).root_frame_id()}
        context = (await browser.send("Target.getTargetInfo", params))["targetInfo"]["browserContextId"]
        browser.on("Target.targetCreated", lambda event: self._on_target_created(event["targetInfo"], context))
        browser.on("Target.targetDestroyed", lambda event: self._discard_pending(event["targetId"]))
        await browser.send("Target.setDiscoverTargets", {"discover": True})

    def _on_target_created(self, target: dict[str, Any], context: str) -> None:
        """Wait for a new tab of this browser to open, before the page counts as settled."""
        is_irrelevant = target["targetId"] in self._known_targets or target.get("browserContextId") != context
        if target["type"] == "page" and not is_irrelevant:
            self._pending.add(target["targetId"])
            self._idle.clear()

    def _discard_pending(self, pending: Request | str) -> None:
        """Remove a finished request or opened tab from the pending ones."""
        self._pending.discard(pending)
        if not self._pending:
            self._idle.set()

    async def view(self) -> PageView:
        """Return the page in view; a new one if none is open."""
        if not self._pages:
            await self.context.new_page()
        page = self._pages[-1]
        if page in self._crashed:
            raise PageCrashed("the page has crashed; open another address")
        if page not in self._views:
            await self._attach_view(page)
        return self._views[page]

    async def close_crashed(self) -> None:
        """Close the tabs whose pages have crashed."""
        for page in [page for page in self._pages if page in self._crashed]:
            await page.close()

    async def abandon_page(self) -> None:
        """Close a page that no longer responds, without waiting for it."""
        for page in self._pages[-1:]:
            self._remove_page(page)
            self._run_in_background(page.close)

    @property
    def url(self) -> str:
        """Return the URL of the page in view."""
        return self._pages[-1].url if self._pages else "about:blank"

    def add_note(self, kind: str, text: str, *, is_error: bool = False) -> None:
        """Record an event for the next result. Duplicates and events over the limit are dropped."""
        note = Observation(kind=kind, text=self._redact(text), is_error=is_error)
        if len(self._notes) < MAX_NOTES and note not in self._notes:
            self._notes.append(note)

    def take_notes(self) -> list[Observation]:
        """Return the recorded events, and clear them."""
        notes, self._notes = self._notes, []
        return notes

    @property
    def is_busy(self) -> bool:
        """Return whether requests or new tabs are pending."""
        return bool(self._pending)

    def forget_requests(self) -> None:
        """Stop waiting for pending requests, at the start of a batch."""
        self._pending.clear()
        self._idle.set()

    async def wait_until_settled(self, seconds: float) -> None:
        """Wait until the requests of this batch have finished, at most `seconds`."""
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
        """Cancel the background tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run_in_background(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a coroutine in a task, ignoring errors of closed pages."""

        async def run_quietly() -> None:
            """Await the work, ignoring errors of closed pages."""
            with suppress(Error):  # the page or the browser has closed
                await work()

        task = asyncio.ensure_future(run_quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_page(self, page: Page) -> None:
        """Bring a new tab into view, or close it if too many are open."""
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
        # With a listener, Chromium shows no file picker, and no file is ever chosen.
        page.on("filechooser", self._refuse_files)

    async def _attach_view(self, page: Page) -> None:
        """Open the DevTools view of a new page."""
        view = self._views[page] = await PageView.open(page, self.settings)
        target = await view.root_frame_id()
        self._known_targets.add(target)
        self._discard_pending(target)

    def _on_close(self, page: Page) -> None:
        """Note that a tab was closed, and forget it."""
        if page in self._pages:
            if len(self._pages) > 1:
                self.add_note("tab", "A tab was closed; the one before it is in view now.")
            self._remove_page(page)

    def _remove_page(self, page: Page) -> None:
        """Forget a page and its view."""
        self._pages.remove(page)
        self._crashed.discard(page)
        self._views.pop(page, None)

    def _on_crash(self, page: Page) -> None:
        """Note that a page has crashed."""
        self._crashed.add(page)
        self.add_note("crash", "The page has crashed.", is_error=True)

    def _refuse_download(self, download: Download) -> None:
        """Report a download, which is never accepted."""
        self.add_note(
            "download", f"The page offered the file {download.suggested_filename[:100]!r}; downloads are disabled."
        )

    def _refuse_files(self, chooser: FileChooser) -> None:
        """Report a request for a file, which is never granted."""
        self.add_note("files", "The page asked for a file; file uploads are disabled.")

    async def _answer_dialog(self, dialog: Dialog) -> None:
        """Accept or dismiss a dialog, and report it."""
        # Dismissing a `beforeunload` dialog would block navigation for good.
        accepted = self.settings.accept_dialogs or dialog.type == "beforeunload"
        answer = "accepted" if accepted else "dismissed"
        self.add_note(
            "dialog", f"The page showed a dialog ({dialog.type}), which was {answer}: {dialog.message[:500]!r}"
        )
        await (dialog.accept() if accepted else dialog.dismiss())

    def _on_request(self, request: Request) -> None:
        """Wait for a new request that changes what the page shows, before the page counts as settled."""
        if request.resource_type in AWAITED_RESOURCES:
            self._pending.add(request)
            self._idle.clear()

    async def _check_navigation(self, browser: CDPSession, paused: dict[str, Any]) -> None:
        """Continue or block a paused document request. Documents in frames are checked by the proxy only."""
        url, request = paused["request"]["url"], {"requestId": paused["requestId"]}
        reason = self.settings.network_policy.navigation_refusal(url)
        if reason is None or not await _is_top_frame(browser, paused["frameId"]):
            await browser.send("Fetch.continueRequest", request)
            return
        self.add_note("refused", f"A page was not opened: {reason}.", is_error=True)
        await browser.send("Fetch.failRequest", {**request, "errorReason": "BlockedByClient"})


async def _is_top_frame(browser: CDPSession, frame: str) -> bool:
    """Return whether a frame id is that of a tab, and not of a frame inside a page."""
    try:
        response = await browser.send("Target.getTargetInfo", {"targetId": frame})
    except Error:
        return False
    return bool(response["targetInfo"]["type"] != "iframe")
