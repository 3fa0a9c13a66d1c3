"""A browser that a model drives: batches of actions in, observations and a fresh picture out."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from playwright.async_api import Error, Page

from toolwire.canonical.computer import Action, Click, ComputerAction, Navigate, Screenshot
from toolwire.runtime.tools.browser.actions import ActionOutcome, BrowserActions, RequireApproval
from toolwire.runtime.tools.browser.chromium import find_chromium, launch_chromium
from toolwire.runtime.tools.browser.display import (
    ActionResult,
    Display,
    Observation,
    OutsideDisplayError,
    ScreenImage,
    Size,
)
from toolwire.runtime.tools.browser.guard import Guard
from toolwire.runtime.tools.browser.network_policy import ActionRefused, NetworkPolicy
from toolwire.runtime.tools.browser.page_view import ImageSizeError, PageView, ScreenCapture
from toolwire.runtime.tools.browser.proxy import run_proxy
from toolwire.runtime.tools.browser.settings import BrowserSettings
from toolwire.runtime.tools.browser.tabs import PageCrashed, Tabs

ApproveAction = Callable[[Action, str], Awaitable[bool]]
"""Asks a person whether an action may be done, with the reason why it is asked."""

ACTION_ERRORS = (Error, ActionRefused, OutsideDisplayError, PageCrashed, ImageSizeError, TimeoutError)


class ApprovalDenied(Exception):
    pass


class BrowserSession:
    def __init__(self, settings: BrowserSettings, tabs: Tabs, capture: ScreenCapture, guard: Guard) -> None:
        self.settings = settings
        self._tabs = tabs
        self._capture = capture
        self._guard = guard
        self._actions = BrowserActions(settings, tabs, capture, guard)
        self._action_count = 0
        self._batch_lock = asyncio.Lock()
        self._deadline = time.monotonic() + settings.limits.session_seconds

    @property
    def size(self) -> Size:
        """The declared display, which every picture has."""
        return self._capture.display.size

    async def approval_reason(self, action: Action) -> str | None:
        """Why a person must agree to an action, as the page is now."""
        async with asyncio.timeout(self.settings.limits.action_seconds):
            return await self._actions.approval_reason(action)

    async def perform(self, actions: Sequence[Action], approve: ApproveAction | None = None) -> ActionResult:
        """In order; what fails or is refused ends the batch. What needs a person's consent is not done without it."""
        async with self._batch_lock:
            return await self._perform_batch(actions, approve)

    async def _perform_batch(self, actions: Sequence[Action], approve: ApproveAction | None) -> ActionResult:
        self._tabs.forget_requests()
        observations: list[Observation] = []
        for index, action in enumerate(actions):
            if index == len(actions) - 1 and isinstance(action, Screenshot) and self._refusal(index, action) is None:
                self._action_count += 1
                observations.append(Observation(kind="screenshot", text="The display is in the picture below."))
                break
            observation = await self._perform_action(index, action, approve)
            meanwhile = self._tabs.take_notes()
            # The tab that a click opens may be there before the click is over.
            tabs = [note for note in meanwhile if note.kind == "tab"]
            observations += [*[note for note in meanwhile if note.kind != "tab"], observation, *tabs]
            if observation.is_error:
                if left := len(actions) - index - 1:
                    text = f"{left} more of the actions were not done, because this one failed."
                    observations.append(Observation(kind="refused", text=text, is_error=True))
                break
        picture = await self._final_screenshot(observations)
        observations += self._tabs.take_notes()
        url = self._guard.redact_secrets(self._tabs.url)
        return ActionResult(observations=tuple(observations), screenshot=picture, url=url)

    def _refusal(self, index: int, action: object) -> str | None:
        bounds, allowed = self.settings.limits, self.settings.actions
        if not isinstance(action, ComputerAction):
            return f"there is no action like {type(action).__name__}"
        if allowed is not None and (missing := _required_kinds(action) - allowed):
            return f"the action {missing.pop()} is not allowed here"
        if index >= bounds.batch_actions:
            return f"at most {bounds.batch_actions} actions are done at once"
        if self._action_count >= bounds.actions:
            return f"all {bounds.actions} actions of this session are used up"
        if time.monotonic() >= self._deadline:
            return f"the {bounds.session_seconds:g} seconds of this session are over"
        return None

    async def _perform_action(self, index: int, action: Action, approve: ApproveAction | None) -> Observation:
        about = _action_kind(action)
        if why := self._refusal(index, action):
            return Observation(kind=about, text=f"Refused: {why}.", is_error=True)
        self._action_count += 1
        try:
            done = await self._perform_with_timeout(action, approve)
        except ApprovalDenied as refused:
            return Observation(kind=about, text=f"Not done: {refused}.", is_error=True)
        except ACTION_ERRORS as failure:
            return Observation(kind=about, text=self._failure_text(failure), is_error=True)
        text, picture = (done, None) if isinstance(done, str) else done
        return Observation(kind=about, text=self._guard.redact_secrets(text), image=picture)

    async def _perform_with_timeout(self, action: Action, approve: ApproveAction | None) -> ActionOutcome:
        seconds = max(0.0, min(self.settings.limits.action_seconds, self._deadline - time.monotonic()))
        async with asyncio.timeout(seconds) as timer:

            async def ask(reason: str | None) -> None:
                if reason is None:
                    return
                if approve is None:
                    raise ApprovalDenied(f"{reason}, and there is nobody to ask")
                asked, due = time.monotonic(), timer.when()
                timer.reschedule(None)
                agreed = await approve(action, reason)
                waited = time.monotonic() - asked
                self._deadline += waited
                timer.reschedule(None if due is None else due + waited)
                if not agreed:
                    raise ApprovalDenied(f"{reason}, and it was not agreed to")

            return await self._perform_on_page(action, ask)

    async def _perform_on_page(self, action: Action, require_approval: RequireApproval) -> ActionOutcome:
        view = await self._tabs.view() if not isinstance(action, Navigate) else None
        try:
            return await self._actions.perform(action, require_approval)
        except Error:
            # A click can close the tab it is in before it is told that it was done.
            if view is None or not await _has_closed(view):
                raise
            return "Done."

    async def _final_screenshot(self, observations: list[Observation]) -> ScreenImage | None:
        bounds = self.settings.limits
        try:
            async with asyncio.timeout(bounds.action_seconds):
                picture = await self._settled_screenshot()
                return await self._settled_screenshot() if self._tabs.is_busy or picture is None else picture
        except TimeoutError:
            await self._tabs.abandon_page()
            text = "There is no picture: the page does not answer any more, and was closed."
        except ACTION_ERRORS as failure:
            text = f"There is no picture. {self._failure_text(failure)}"
        observations.append(Observation(kind="screenshot", text=text, is_error=True))
        return None

    async def _settled_screenshot(self) -> ScreenImage | None:
        """Nothing, if the tab was closed meanwhile."""
        await self._tabs.wait_until_settled(self.settings.limits.settle_seconds)
        view = await self._tabs.view()
        try:
            return await self._capture.capture(view)
        except Error:
            if not await _has_closed(view):
                raise
            return None

    def _failure_text(self, failure: BaseException) -> str:
        if isinstance(failure, TimeoutError):
            return f"This took longer than the {self.settings.limits.action_seconds:g} seconds that an action has."
        # What Playwright adds below its first line is a log of what it tried.
        text = (str(failure).strip() or type(failure).__name__).splitlines()[0][:500]
        return self._guard.redact_secrets(f"{'Refused' if isinstance(failure, ActionRefused) else 'Failed'}: {text}.")


async def _has_closed(view: PageView) -> bool:
    """The word of it may come a moment after what it made fail."""
    await asyncio.sleep(0.05)
    return view.page.is_closed()


def _action_kind(action: object) -> str:
    return str(action.__struct_config__.tag) if isinstance(action, ComputerAction) else "unknown"


def _required_kinds(action: object) -> set[str]:
    """What must be allowed: some buttons of a mouse do what other actions do."""
    moves = {action.button} & {"back", "forward"} if isinstance(action, Click) else set()
    return {_action_kind(action), *moves}


@asynccontextmanager
async def open_session(settings: BrowserSettings) -> AsyncIterator[BrowserSession]:
    """With a Chromium, a profile and a way to the network of its own, which end with it."""
    program = find_chromium(settings.chromium)
    guard = Guard(secrets=settings.secrets, sensitive=settings.sensitive)
    display = Display.fit(settings.page_size, settings.largest_image)
    notes: list[Tabs] = []

    def report(text: str) -> None:
        for tabs in notes:
            tabs.add_note("refused", text)

    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(run_proxy(settings.network_policy, report))
        # What Chromium itself would tell its maker is none of the pages' and gets nowhere.
        nowhere = await stack.enter_async_context(run_proxy(NetworkPolicy(hosts=()), lambda _: None))
        chromium = launch_chromium(program, headless=settings.headless, proxy_port=nowhere)
        browser = await stack.enter_async_context(chromium)
        darkroom: Page | None = None
        if settings.redaction.areas or settings.redaction.selectors:
            darkroom = await (await browser.new_context(offline=True)).new_page()
        context = await browser.new_context(
            viewport={"width": settings.page_size.width, "height": settings.page_size.height},
            device_scale_factor=settings.device_scale,
            accept_downloads=False,
            service_workers="block",
            permissions=[],
            # Loopback would go past the proxy if it were not taken out of the exceptions.
            proxy={"server": f"http://127.0.0.1:{port}", "bypass": "<-loopback>"},
        )
        tabs = Tabs(context, settings, guard.redact_secrets)
        notes.append(tabs)
        telling = await browser.new_browser_cdp_session()
        await tabs.guard_navigation(telling)
        stack.push_async_callback(tabs.close)
        await context.new_page()
        await tabs.watch_targets(telling)
        yield BrowserSession(settings, tabs, ScreenCapture(display, settings, darkroom), guard)
