"""A browser that a model drives: batches of actions in, observations and a fresh picture out."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from playwright.async_api import Error, Page

from toolwire.canonical.computer import Action, Click, Doing, Navigate, Screenshot

from .chromium import find_chromium, running_chromium
from .display import Display, OutsideTheDisplay, Size
from .guard import Guard
from .hands import Ask, Done, Hands
from .observation import Observation, Performed, Picture
from .proxy import filtering_proxy
from .reach import Reach, Refused
from .screen import Screen, WrongSize
from .settings import BrowserSettings
from .tabs import NoPage, Tabs
from .view import View

Approve = Callable[[Action, str], Awaitable[bool]]
"""Asks a person whether an action may be done, with the reason why it is asked."""

FAILURES = (Error, Refused, OutsideTheDisplay, NoPage, WrongSize, TimeoutError)


class NotApproved(Exception):
    pass


class Session:
    def __init__(self, settings: BrowserSettings, tabs: Tabs, screen: Screen, guard: Guard) -> None:
        self.settings = settings
        self._tabs = tabs
        self._screen = screen
        self._guard = guard
        self._hands = Hands(settings, tabs, screen, guard)
        self._done = 0
        self._one_batch = asyncio.Lock()
        self._deadline = time.monotonic() + settings.bounds.session_seconds

    @property
    def size(self) -> Size:
        """The declared display, which every picture has."""
        return self._screen.display.size

    async def needs_approval(self, action: Action) -> str | None:
        """Why a person must agree to an action, as the page is now."""
        async with asyncio.timeout(self.settings.bounds.action_seconds):
            return await self._hands.needs_approval(action)

    async def perform(self, actions: Sequence[Action], approve: Approve | None = None) -> Performed:
        """In order; what fails or is refused ends the batch. What needs a person's consent is not done without it."""
        async with self._one_batch:
            return await self._perform(actions, approve)

    async def _perform(self, actions: Sequence[Action], approve: Approve | None) -> Performed:
        self._tabs.forget_requests()
        observations: list[Observation] = []
        for index, action in enumerate(actions):
            if index == len(actions) - 1 and isinstance(action, Screenshot) and self._refusal(index, action) is None:
                self._done += 1
                observations.append(Observation(about="screenshot", text="The display is in the picture below."))
                break
            observation = await self._one(index, action, approve)
            meanwhile = self._tabs.take_notes()
            # The tab that a click opens may be there before the click is over.
            tabs = [note for note in meanwhile if note.about == "tab"]
            observations += [*[note for note in meanwhile if note.about != "tab"], observation, *tabs]
            if observation.error:
                if left := len(actions) - index - 1:
                    text = f"{left} more of the actions were not done, because this one failed."
                    observations.append(Observation(about="refused", text=text, error=True))
                break
        picture = await self._picture(observations)
        observations += self._tabs.take_notes()
        url = self._guard.concealed(self._tabs.url)
        return Performed(observations=tuple(observations), screenshot=picture, url=url)

    def _refusal(self, index: int, action: object) -> str | None:
        bounds, allowed = self.settings.bounds, self.settings.actions
        if not isinstance(action, Doing):
            return f"there is no action like {type(action).__name__}"
        if allowed is not None and (missing := _kinds(action) - allowed):
            return f"the action {missing.pop()} is not allowed here"
        if index >= bounds.batch:
            return f"at most {bounds.batch} actions are done at once"
        if self._done >= bounds.actions:
            return f"all {bounds.actions} actions of this session are used up"
        if time.monotonic() >= self._deadline:
            return f"the {bounds.session_seconds:g} seconds of this session are over"
        return None

    async def _one(self, index: int, action: Action, approve: Approve | None) -> Observation:
        about = _kind(action)
        if why := self._refusal(index, action):
            return Observation(about=about, text=f"Refused: {why}.", error=True)
        self._done += 1
        try:
            done = await self._timed(action, approve)
        except NotApproved as refused:
            return Observation(about=about, text=f"Not done: {refused}.", error=True)
        except FAILURES as failure:
            return Observation(about=about, text=self._told(failure), error=True)
        text, picture = (done, None) if isinstance(done, str) else done
        return Observation(about=about, text=self._guard.concealed(text), picture=picture)

    async def _timed(self, action: Action, approve: Approve | None) -> Done:
        seconds = max(0.0, min(self.settings.bounds.action_seconds, self._deadline - time.monotonic()))
        async with asyncio.timeout(seconds) as timer:

            async def ask(reason: str | None) -> None:
                if reason is None:
                    return
                if approve is None:
                    raise NotApproved(f"{reason}, and there is nobody to ask")
                asked, due = time.monotonic(), timer.when()
                timer.reschedule(None)
                agreed = await approve(action, reason)
                waited = time.monotonic() - asked
                self._deadline += waited
                timer.reschedule(None if due is None else due + waited)
                if not agreed:
                    raise NotApproved(f"{reason}, and it was not agreed to")

            return await self._do(action, ask)

    async def _do(self, action: Action, ask: Ask) -> Done:
        view = await self._tabs.view() if not isinstance(action, Navigate) else None
        try:
            return await self._hands.do(action, ask)
        except Error:
            # A click can close the tab it is in before it is told that it was done.
            if view is None or not await _has_closed(view):
                raise
            return "Done."

    async def _picture(self, observations: list[Observation]) -> Picture | None:
        bounds = self.settings.bounds
        try:
            async with asyncio.timeout(bounds.action_seconds):
                picture = await self._settled_picture()
                return await self._settled_picture() if self._tabs.busy or picture is None else picture
        except TimeoutError:
            await self._tabs.abandon()
            text = "There is no picture: the page does not answer any more, and was closed."
        except FAILURES as failure:
            text = f"There is no picture. {self._told(failure)}"
        observations.append(Observation(about="screenshot", text=text, error=True))
        return None

    async def _settled_picture(self) -> Picture | None:
        """Nothing, if the tab was closed meanwhile."""
        await self._tabs.settled(self.settings.bounds.settle_seconds)
        view = await self._tabs.view()
        try:
            return await self._screen.picture(view)
        except Error:
            if not await _has_closed(view):
                raise
            return None

    def _told(self, failure: BaseException) -> str:
        if isinstance(failure, TimeoutError):
            return f"This took longer than the {self.settings.bounds.action_seconds:g} seconds that an action has."
        # What Playwright adds below its first line is a log of what it tried.
        text = (str(failure).strip() or type(failure).__name__).splitlines()[0][:500]
        return self._guard.concealed(f"{'Refused' if isinstance(failure, Refused) else 'Failed'}: {text}.")


async def _has_closed(view: View) -> bool:
    """The word of it may come a moment after what it made fail."""
    await asyncio.sleep(0.05)
    return view.page.is_closed()


def _kind(action: object) -> str:
    return str(action.__struct_config__.tag) if isinstance(action, Doing) else "unknown"


def _kinds(action: object) -> set[str]:
    """What must be allowed: some buttons of a mouse do what other actions do."""
    moves = {action.button} & {"back", "forward"} if isinstance(action, Click) else set()
    return {_kind(action), *moves}


@asynccontextmanager
async def open_session(settings: BrowserSettings) -> AsyncIterator[Session]:
    """With a Chromium, a profile and a way to the network of its own, which end with it."""
    program = find_chromium(settings.chromium)
    guard = Guard(secrets=settings.secrets, sensitive=settings.sensitive)
    display = Display.fitting(settings.page, settings.largest_picture)
    notes: list[Tabs] = []

    def report(text: str) -> None:
        for tabs in notes:
            tabs.note("refused", text)

    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(filtering_proxy(settings.reach, report))
        # What Chromium itself would tell its maker is none of the pages' and gets nowhere.
        nowhere = await stack.enter_async_context(filtering_proxy(Reach(hosts=()), lambda _: None))
        chromium = running_chromium(program, headless=settings.headless, proxy_port=nowhere)
        browser = await stack.enter_async_context(chromium)
        darkroom: Page | None = None
        if settings.redaction.areas or settings.redaction.selectors:
            darkroom = await (await browser.new_context(offline=True)).new_page()
        context = await browser.new_context(
            viewport={"width": settings.page.width, "height": settings.page.height},
            device_scale_factor=settings.device_scale,
            accept_downloads=False,
            service_workers="block",
            permissions=[],
            # Loopback would go past the proxy if it were not taken out of the exceptions.
            proxy={"server": f"http://127.0.0.1:{port}", "bypass": "<-loopback>"},
        )
        tabs = Tabs(context, settings, guard.concealed)
        notes.append(tabs)
        telling = await browser.new_browser_cdp_session()
        await tabs.guard_navigation(telling)
        stack.push_async_callback(tabs.close)
        await context.new_page()
        await tabs.expect_tabs(telling)
        yield Session(settings, tabs, Screen(display, settings, darkroom), guard)
