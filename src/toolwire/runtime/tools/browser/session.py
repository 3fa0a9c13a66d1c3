"""A browser session for a model: batches of actions in, observations and a fresh screenshot out.

An installed Chromium: found, and started so that it reaches the network only through a proxy.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, Error, Page, async_playwright

from toolwire.canonical.computer import Action, Click, ComputerAction, Navigate, Screenshot
from toolwire.canonical.errors import ToolwireError
from toolwire.runtime.tools.browser.actions import ActionOutcome, BrowserActions, RequireApproval
from toolwire.runtime.tools.browser.display import (
    ActionResult,
    BrowserSettings,
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
from toolwire.runtime.tools.browser.tabs import PageCrashed, Tabs

PROGRAM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# In addition to Playwright's own flags.
PRIVACY_FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--dns-prefetch-disable",
)
# Disable what bypasses a TCP proxy, and what asks the user for files or devices.
ISOLATION_FLAGS = (
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-blink-features=FileSystemAccess,FileSystemAccessLocal,WebUSB,Serial,WebHID,WebBluetooth,Prerender2",
    "--deny-permission-prompts",
    "--disable-print-preview",
)
RENDERING_FLAGS = ("--disable-gpu", "--disable-smooth-scrolling")


class ChromiumNotFound(ToolwireError):
    """No usable Chromium is installed."""


def find_chromium(configured: str | None) -> str:
    """Return the path of Chromium, as configured or else from the PATH."""
    if configured is not None:
        path = shutil.which(configured)
        if path is None:
            raise ChromiumNotFound(f"the configured browser {configured!r} is not an executable program")
        return path
    for name in PROGRAM_NAMES:
        if path := shutil.which(name):
            return path
    raise ChromiumNotFound(
        "Chromium not found on the PATH. Install it (Debian and Ubuntu: `apt install chromium`; macOS: `brew install "
        "--cask chromium`), or set `chromium` to its path in the settings."
    )


@asynccontextmanager
async def launch_chromium(program: str, *, headless: bool, proxy_port: int) -> AsyncIterator[Browser]:
    """Start Chromium with a temporary profile, which is removed at the end."""
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=Path(program),
            headless=headless,
            # Chromium's own sandbox does not work for root; otherwise it is always on.
            chromium_sandbox=not as_root,
            proxy={"server": f"http://127.0.0.1:{proxy_port}", "bypass": "<-loopback>"},
            args=[*PRIVACY_FLAGS, *ISOLATION_FLAGS, *RENDERING_FLAGS],
        )
        try:
            yield browser
        finally:
            await browser.close()


ApproveAction = Callable[[Action, str], Awaitable[bool]]
"""Asks the user whether an action may be performed, with the reason for asking."""

ACTION_ERRORS = (Error, ActionRefused, OutsideDisplayError, PageCrashed, ImageSizeError, TimeoutError)


class ApprovalDenied(Exception):
    """The action was not approved."""


class BrowserSession:
    """A session with one browser, limited in actions and time."""

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
        """Return the size of the declared display, which every screenshot has."""
        return self._capture.display.size

    async def approval_reason(self, action: Action) -> str | None:
        """Return why an action needs approval on the page as it is now; None if it needs none."""
        async with asyncio.timeout(self.settings.limits.action_seconds):
            return await self._actions.approval_reason(action)

    async def perform(self, actions: Sequence[Action], approve: ApproveAction | None = None) -> ActionResult:
        """Perform actions in order, until one fails, is refused or is not approved."""
        async with self._batch_lock:
            return await self._perform_batch(actions, approve)

    async def _perform_batch(self, actions: Sequence[Action], approve: ApproveAction | None) -> ActionResult:
        """Perform the actions, and collect observations and the final screenshot."""
        self._tabs.forget_requests()
        observations: list[Observation] = []
        for index, action in enumerate(actions):
            if index == len(actions) - 1 and isinstance(action, Screenshot) and self._refusal(index, action) is None:
                self._action_count += 1
                observations.append(Observation(kind="screenshot", text="The display is in the screenshot below."))
                break
            observation = await self._perform_action(index, action, approve)
            notes = self._tabs.take_notes()
            # A tab that a click opens may appear before the click is finished.
            tabs = [note for note in notes if note.kind == "tab"]
            observations += [*[note for note in notes if note.kind != "tab"], observation, *tabs]
            if observation.is_error:
                if remaining := len(actions) - index - 1:
                    text = f"{remaining} more actions were not performed, because this one failed."
                    observations.append(Observation(kind="refused", text=text, is_error=True))
                break
        screenshot = await self._final_screenshot(observations)
        observations += self._tabs.take_notes()
        url = self._guard.redact_secrets(self._tabs.url)
        return ActionResult(observations=tuple(observations), screenshot=screenshot, url=url)

    def _refusal(self, index: int, action: object) -> str | None:
        """Return why an action may not be performed at all; None if it may."""
        limits, allowed = self.settings.limits, self.settings.actions
        if not isinstance(action, ComputerAction):
            return f"unknown action {type(action).__name__}"
        if allowed is not None and (missing := _required_kinds(action) - allowed):
            return f"the action {missing.pop()} is not allowed here"
        if index >= limits.batch_actions:
            return f"at most {limits.batch_actions} actions can be performed at once"
        if self._action_count >= limits.actions:
            return f"all {limits.actions} actions of this session are used up"
        if time.monotonic() >= self._deadline:
            return f"the session has exceeded its {limits.session_seconds:g} seconds"
        return None

    async def _perform_action(self, index: int, action: Action, approve: ApproveAction | None) -> Observation:
        """Perform one action, and return its observation: what the model is told, and an image if there is one."""
        kind = _action_kind(action)
        if reason := self._refusal(index, action):
            return Observation(kind=kind, text=f"Refused: {reason}.", is_error=True)
        self._action_count += 1
        try:
            outcome = await self._perform_with_timeout(action, approve)
        except ApprovalDenied as denial:
            return Observation(kind=kind, text=f"Not performed: {denial}.", is_error=True)
        except ACTION_ERRORS as failure:
            return Observation(kind=kind, text=self._failure_text(failure), is_error=True)
        text, image = (outcome, None) if isinstance(outcome, str) else outcome
        return Observation(kind=kind, text=self._guard.redact_secrets(text), image=image)

    async def _perform_with_timeout(self, action: Action, approve: ApproveAction | None) -> ActionOutcome:
        """Perform an action within its time. Waiting for approval does not count."""
        seconds = max(0.0, min(self.settings.limits.action_seconds, self._deadline - time.monotonic()))
        async with asyncio.timeout(seconds) as timer:

            async def require_approval(reason: str | None) -> None:
                """Ask for approval unless `reason` is None; raise `ApprovalDenied` if it is refused."""
                if reason is None:
                    return
                if approve is None:
                    raise ApprovalDenied(f"{reason}, and no approver is available")
                asked_at, deadline = time.monotonic(), timer.when()
                timer.reschedule(None)
                approved = await approve(action, reason)
                waiting_time = time.monotonic() - asked_at
                self._deadline += waiting_time
                timer.reschedule(None if deadline is None else deadline + waiting_time)
                if not approved:
                    raise ApprovalDenied(f"{reason}, and it was not approved")

            return await self._perform_on_page(action, require_approval)

    async def _perform_on_page(self, action: Action, require_approval: RequireApproval) -> ActionOutcome:
        """Perform an action on the page in view, which the action may close."""
        view = await self._tabs.view() if not isinstance(action, Navigate) else None
        try:
            return await self._actions.perform(action, require_approval)
        except Error:
            # A click may close its tab before Playwright reports that it is done.
            if view is None or not await _has_closed(view):
                raise
            return "Done."

    async def _final_screenshot(self, observations: list[Observation]) -> ScreenImage | None:
        """Take the screenshot after a batch; on failure, add an observation that says why."""
        limits = self.settings.limits
        try:
            async with asyncio.timeout(limits.action_seconds):
                screenshot = await self._settled_screenshot()
                return await self._settled_screenshot() if self._tabs.is_busy or screenshot is None else screenshot
        except TimeoutError:
            await self._tabs.abandon_page()
            text = "No screenshot: the page does not respond and was closed."
        except ACTION_ERRORS as failure:
            text = f"No screenshot. {self._failure_text(failure)}"
        observations.append(Observation(kind="screenshot", text=text, is_error=True))
        return None

    async def _settled_screenshot(self) -> ScreenImage | None:
        """Take a screenshot when the page has settled; None if the tab was closed meanwhile."""
        await self._tabs.wait_until_settled(self.settings.limits.settle_seconds)
        view = await self._tabs.view()
        try:
            return await self._capture.capture(view)
        except Error:
            if not await _has_closed(view):
                raise
            return None

    def _failure_text(self, failure: BaseException) -> str:
        """Describe a failed action in one sentence."""
        if isinstance(failure, TimeoutError):
            return f"The action timed out after {self.settings.limits.action_seconds:g} seconds."
        # After its first line, Playwright's message is a log.
        text = (str(failure).strip() or type(failure).__name__).splitlines()[0][:500]
        return self._guard.redact_secrets(f"{'Refused' if isinstance(failure, ActionRefused) else 'Failed'}: {text}.")


async def _has_closed(view: PageView) -> bool:
    """Return whether the page has closed. The event may arrive shortly after the failure it caused."""
    await asyncio.sleep(0.05)
    return view.page.is_closed()


def _action_kind(action: object) -> str:
    """Return the kind of an action, such as `click`."""
    return str(action.__struct_config__.tag) if isinstance(action, ComputerAction) else "unknown"


def _required_kinds(action: object) -> set[str]:
    """Return the kinds that must be allowed for an action. Some mouse buttons act as other kinds."""
    history_kinds = {action.button} & {"back", "forward"} if isinstance(action, Click) else set()
    return {_action_kind(action), *history_kinds}


@asynccontextmanager
async def open_session(settings: BrowserSettings) -> AsyncIterator[BrowserSession]:
    """Open a session with its own Chromium, profile and proxy, which are closed at the end."""
    program = find_chromium(settings.chromium)
    guard = Guard(secrets=settings.secrets, sensitive=settings.sensitive)
    display = Display.fit(settings.page_size, settings.largest_image)
    reporting_tabs: list[Tabs] = []

    def report(text: str) -> None:
        """Tell the model which request the proxy refused."""
        for tabs in reporting_tabs:
            tabs.add_note("refused", text)

    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(run_proxy(settings.network_policy, report))
        # Chromium's own background traffic goes to a proxy that refuses everything.
        blocking_port = await stack.enter_async_context(run_proxy(NetworkPolicy(hosts=()), lambda _: None))
        chromium = launch_chromium(program, headless=settings.headless, proxy_port=blocking_port)
        browser = await stack.enter_async_context(chromium)
        redaction_page: Page | None = None
        if settings.redaction.areas or settings.redaction.selectors:
            redaction_page = await (await browser.new_context(offline=True)).new_page()
        context = await browser.new_context(
            viewport={"width": settings.page_size.width, "height": settings.page_size.height},
            device_scale_factor=settings.device_scale,
            accept_downloads=False,
            service_workers="block",
            permissions=[],
            # By default, loopback addresses bypass the proxy.
            proxy={"server": f"http://127.0.0.1:{port}", "bypass": "<-loopback>"},
        )
        tabs = Tabs(context, settings, guard.redact_secrets)
        reporting_tabs.append(tabs)
        browser_session = await browser.new_browser_cdp_session()
        await tabs.guard_navigation(browser_session)
        stack.push_async_callback(tabs.close)
        await context.new_page()
        await tabs.watch_targets(browser_session)
        yield BrowserSession(settings, tabs, ScreenCapture(display, settings, redaction_page), guard)
