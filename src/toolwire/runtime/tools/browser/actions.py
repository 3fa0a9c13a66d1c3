"""Mouse and keyboard: performs each canonical action on the page in view."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Literal, assert_never

from playwright.async_api import Error

from toolwire.canonical.computer import (
    Action,
    Back,
    Click,
    CursorPosition,
    Drag,
    Forward,
    KeyDown,
    Keys,
    KeyUp,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    ReadText,
    Reload,
    Screenshot,
    Scroll,
    Type,
    Wait,
    Zoom,
)
from toolwire.runtime.tools.browser.display import BrowserSettings, ScreenImage
from toolwire.runtime.tools.browser.guard import ElementFacts, Guard
from toolwire.runtime.tools.browser.keys import MODIFIERS, canonical_chord, physical_key, types_text, uses_clipboard
from toolwire.runtime.tools.browser.network_policy import ActionRefused
from toolwire.runtime.tools.browser.page_view import PageView, ScreenCapture
from toolwire.runtime.tools.browser.tabs import Tabs

RequireApproval = Callable[[str | None], Awaitable[None]]
"""Asks for approval if a reason is given, and raises if it is denied."""

MouseButton = Literal["left", "middle", "right"]
ActionOutcome = str | tuple[str, ScreenImage]
DRAG_STEPS = 8
LIST_HINT = "This is a list; choose with the arrow keys, or type the beginning of a choice:"
LIST_OPENING_KEYS = frozenset({" ", "Enter", "F4", "Alt"})
OFF_PAGE = (-10, -10)
RELEASE_SECONDS = 1
MAX_KEY_REPEATS = 100
ADDRESS_BAR_CHORDS = frozenset({("Control", "l"), ("Meta", "l"), ("Alt", "d"), ("F6",)})
"""Keys that focus the address bar. This browser shows none, but models expect one, so it is emulated."""


class BrowserActions:
    """Performs actions, and keeps the pointer, held keys and the emulated address bar."""

    def __init__(self, settings: BrowserSettings, tabs: Tabs, capture: ScreenCapture, guard: Guard) -> None:
        self.settings = settings
        self.tabs = tabs
        self.capture = capture
        self.guard = guard
        # In pixels of the display.
        self.pointer = (0, 0)
        self.held_keys: set[str] = set()
        # The text in the address bar while it has the focus.
        self.address_bar: str | None = None

    async def perform(self, action: Action, require_approval: RequireApproval) -> ActionOutcome:
        """Perform one action, and return a sentence for the model and possibly an image."""
        match action:
            case Screenshot():
                return "The display.", await self.capture.capture(await self.tabs.view())
            case Zoom(x0=x0, y0=y0, x1=x1, y1=y1):
                box = self.capture.display.to_page_box(x0, y0, x1, y1)
                return "A part of the display.", await self.capture.capture_box(await self.tabs.view(), box)
            case Wait(seconds=seconds):
                return await self._wait(seconds)
            case CursorPosition():
                return f"The pointer is at ({self.pointer[0]}, {self.pointer[1]})."
            case ReadText():
                return await self._read_text()
            case Navigate(url=url):
                return await self._navigate(url)
            case Back():
                return await self._go_in_history("go_back")
            case Forward():
                return await self._go_in_history("go_forward")
            case Reload():
                return await self._go_in_history("reload")
            case Type(text=text):
                return await self._type(text, require_approval)
            case Keys() | KeyDown() | KeyUp():
                return await self._press_keys(action, require_approval)
            case Click() | Move() | Drag() | Scroll() | MouseDown() | MouseUp():
                return await self._use_mouse(action, require_approval)
            case _:
                assert_never(action)

    async def approval_reason(self, action: Action) -> str | None:
        """Return why an action needs approval on the page as it is now; None if it needs none."""
        match action:
            case Click(x=x, y=y) | MouseDown(x=x, y=y) | MouseUp(x=x, y=y):
                return await self._point_reason(await self.tabs.view(), x, y)
            case Drag(path=((x, y), *_)):
                return await self._point_reason(await self.tabs.view(), x, y)
            case Type(text=text):
                return await self._type_reason(await self.tabs.view(), text)
            case Keys(keys=names) | KeyDown(key=names):
                keys = canonical_chord(names if isinstance(names, tuple) else (names,))
                return self._keys_reason(keys, await (await self.tabs.view()).inspect_focus())
            case _:
                return None

    # ---- pages

    async def _wait(self, seconds: float | None) -> str:
        """Wait, at most as long as the limits allow, and return a report for the model."""
        requested = 1.0 if seconds is None else max(0.0, seconds)
        waited = min(requested, self.settings.limits.wait_seconds)
        await asyncio.sleep(waited)
        return f"Waited {waited:g} seconds{', the maximum' if waited < requested else ''}."

    async def _read_text(self) -> str:
        """Return the visible text of the page for the model, up to the limit."""
        max_characters = self.settings.limits.read_characters
        view = await self.tabs.view()
        text = await view.read_text(max_characters)
        return f"{text}\n[cut at {max_characters} characters]" if len(text) >= max_characters else text

    def _require_allowed_url(self, url: str) -> str:
        """Return the URL with its scheme completed; raise `ActionRefused` if it may not be opened."""
        url = url.strip()
        if ":" not in url.partition("/")[0] and url:
            url = f"https://{url}"
        if reason := self.settings.network_policy.navigation_refusal(url):
            raise ActionRefused(reason)
        return url

    async def _navigate(self, url: str) -> str:
        """Open a URL, and return a report for the model."""
        url = self._require_allowed_url(url)
        await self.tabs.close_crashed()
        view = await self.tabs.view()
        await view.page.goto(url, wait_until="load", timeout=0)
        return "Opened the page."

    async def _go_in_history(self, direction: Literal["go_back", "go_forward", "reload"]) -> str:
        """Go back, go forward or reload, and return a report for the model."""
        page = (await self.tabs.view()).page
        previous_url = page.url
        match direction:
            case "go_back":
                response = await page.go_back(timeout=0)
            case "go_forward":
                response = await page.go_forward(timeout=0)
            case "reload":
                response = await page.reload(timeout=0)
        if response is None and page.url == previous_url and direction != "reload":
            raise ActionRefused("there is no page to go to")
        return "Opened the page."

    # ---- the address bar

    async def _type_address(self, text: str, require_approval: RequireApproval) -> str:
        """Type into the emulated address bar, and return a report for the model.

        Nothing of it reaches the page. Opening the address needs approval, because no policy rule has seen it.
        """
        text, newline, _ = text.partition("\n")
        self.address_bar = (self.address_bar or "") + text
        if not newline:
            return "Typed into the address bar: press Enter to go there."
        text, self.address_bar = self.address_bar, None
        url = self._require_allowed_url(text)
        await require_approval(f"it opens {self.guard.redact_secrets(url)}")
        return await self._navigate(url)

    async def _press_in_address_bar(self, keys: tuple[str, ...], require_approval: RequireApproval) -> str:
        """Press keys in the emulated address bar, and return a report for the model."""
        match keys:
            case ("Enter",):
                return await self._type_address("\n", require_approval)
            case ("Backspace",):
                self.address_bar = (self.address_bar or "")[:-1]
            case ("Control" | "Meta", "a"):
                self.address_bar = ""
            case (key,) if types_text(key):
                return await self._type_address(key, require_approval)
            case _:
                self.address_bar = None
                return "Left the address bar."
        return "Pressed."

    # ---- keyboard

    async def _type(self, text: str, require_approval: RequireApproval) -> str:
        """Type a text into the focused element, with approval where needed, and return a report for the model."""
        if len(text) > self.settings.limits.typed_characters:
            raise ActionRefused(f"at most {self.settings.limits.typed_characters} characters can be typed at once")
        if self.held_keys:
            raise ActionRefused("text can't be typed while keys are held")
        if self.address_bar is not None:
            return await self._type_address(text, require_approval)
        view = await self.tabs.view()
        reason = self.guard.typing_reason(text, None)
        await require_approval(reason)
        # A tab or newline may move the focus, so what follows is checked again.
        for piece in _split_at_control_keys(text):
            if reason is None or piece == "\n":
                await require_approval(await self._type_reason(view, piece))
            if piece == "\t":
                await view.page.keyboard.press("Tab")
            elif piece == "\n":
                await view.page.keyboard.press("Enter")
            else:
                await view.page.keyboard.type(piece)
            self.guard.record_typing(piece)
        return f"Typed {len(text)} characters."

    async def _type_reason(self, view: PageView, text: str) -> str | None:
        """Return why typing a text into the focused element needs approval; None if it needs none."""
        facts = await view.inspect_focus()
        if text.startswith("\t"):
            return None
        if text.startswith("\n"):
            return self.guard.key_press_reason(("Enter",), facts)
        return self.guard.typing_reason(text, facts)

    async def _press_keys(self, action: Keys | KeyDown | KeyUp, require_approval: RequireApproval) -> str:
        """Press, hold or release keys, with approval where needed, and return a report for the model."""
        keyboard = (await self.tabs.view()).page.keyboard
        keys = canonical_chord(action.keys if isinstance(action, Keys) else (action.key,))
        if isinstance(action, KeyUp):
            for key in reversed(keys):
                await keyboard.up(key)
                self.held_keys.discard(key)
            return "Released."
        if not self.settings.clipboard and uses_clipboard(keys, frozenset(self.held_keys)):
            raise ActionRefused("the clipboard is disabled; use the action that types text")
        navigates = self.settings.actions is None or "navigate" in self.settings.actions
        if isinstance(action, Keys) and keys in ADDRESS_BAR_CHORDS and navigates:
            self.address_bar = ""
            return "The address bar has the focus: type an address, then press Enter."
        if self.address_bar is not None:
            return await self._press_in_address_bar(keys, require_approval)
        facts = await (await self.tabs.view()).inspect_focus()
        await require_approval(self._keys_reason(keys, facts))
        if facts is not None and facts.choices and not LIST_OPENING_KEYS.isdisjoint(keys):
            return f"The list stays closed. {LIST_HINT} {facts.choices_text}"
        if isinstance(action, KeyDown):
            for key in keys:
                await keyboard.down(key)
                self.held_keys.add(key)
            return "Held down."
        return await self._press_chord(keys, action.repeat, action.hold)

    async def _press_chord(self, keys: tuple[str, ...], repeat: int, hold: float | None) -> str:
        """Press keys together and return a report for the model.

        They are pressed as often and as long as requested, within the limits.
        """
        for _ in range(max(1, min(repeat, MAX_KEY_REPEATS))):
            async with self._hold_keys(keys):
                if hold:
                    await asyncio.sleep(min(hold, self.settings.limits.wait_seconds))
            self.guard.record_typing("".join(key for key in keys if types_text(key)))
        return "Pressed."

    def _keys_reason(self, keys: tuple[str, ...], facts: ElementFacts | None) -> str | None:
        """Return why pressing keys in the focused element needs approval; None if it needs none."""
        is_shortcut = bool({"Control", "Alt", "Meta"} & ({*keys} | self.held_keys))
        text = "".join(key for key in keys if types_text(key))
        if text and not is_shortcut and (reason := self.guard.typing_reason(text, facts)):
            return reason
        return self.guard.key_press_reason(keys, facts)

    @asynccontextmanager
    async def _hold_keys(self, names: tuple[str, ...]) -> AsyncIterator[None]:
        """Hold keys down for the duration of the context."""
        keyboard = (await self.tabs.view()).page.keyboard
        pressed: list[str] = []
        try:
            keys = canonical_chord(names) if names else ()
            with_modifier = not MODIFIERS.isdisjoint({*keys, *self.held_keys})
            for key in keys:
                try:
                    await keyboard.down(physical_key(key, with_modifier=with_modifier))
                    pressed.append(physical_key(key, with_modifier=with_modifier))
                except Error:
                    # The character is on no key of Playwright's keyboard layout.
                    if not types_text(key):
                        raise
                    await keyboard.insert_text(key)
            yield
        finally:
            for key in reversed(pressed):
                await _release_with_timeout(keyboard.up(key))

    # ---- mouse

    async def _use_mouse(
        self, action: Click | Move | Drag | Scroll | MouseDown | MouseUp, require_approval: RequireApproval
    ) -> str:
        """Perform a mouse action, with approval where needed, and return a report for the model."""
        self.address_bar = None
        match action:
            case Click(x=x, y=y, button=button, count=count, keys=keys):
                if button in ("back", "forward"):
                    return await self._go_in_history("go_back" if button == "back" else "go_forward")
                async with self._hold_keys(keys):
                    return await self._click(x, y, _mouse_button(button), count, require_approval)
            case Move(x=x, y=y, keys=keys):
                async with self._hold_keys(keys):
                    await self._move_pointer(x, y)
                return "Moved."
            case Scroll(x=x, y=y, dx=dx, dy=dy, keys=keys):
                view, _ = await self._move_pointer(x, y)
                async with self._hold_keys(keys):
                    await view.page.mouse.wheel(*self.capture.display.to_page_distance(dx, dy))
                    await view.wait_for_paint()
                return "Scrolled."
            case Drag(path=path, keys=keys):
                return await self._drag(path, keys, require_approval)
            case MouseDown(x=x, y=y, button=button):
                view, point = await self._move_pointer(x, y)
                await require_approval(self.guard.click_reason(await view.inspect_point(*point)))
                await view.page.mouse.down(button=_mouse_button(button))
                return "Pressed the button."
            case MouseUp(x=x, y=y, button=button):
                view, point = await self._move_pointer(x, y)
                await require_approval(self.guard.click_reason(await view.inspect_point(*point)))
                await view.page.mouse.up(button=_mouse_button(button))
                return "Released the button."

    async def _click(
        self, x: int | None, y: int | None, button: MouseButton, count: int, require_approval: RequireApproval
    ) -> str:
        """Click, and return a report for the model, with the options if a drop-down list was clicked.

        The element under the pointer may need approval. It is inspected before the button is pressed, and again while
        it is down, because the page may change meanwhile.
        """
        point = self._page_point(x, y)
        view = await self.tabs.view()
        mouse = view.page.mouse
        # Chromium acknowledges the move with its next frame; the click does not wait for that.
        move = asyncio.ensure_future(mouse.move(*point))
        try:
            facts = await view.inspect_point(*point)
            reason = self.guard.click_reason(facts)
            await require_approval(reason)
            choices = facts.choices_text if facts is not None and facts.choices else None
            if choices and button == "left":
                await view.suppress_dropdown(*point)
            await mouse.down(button=button)
            new_reason = self.guard.click_reason(await view.inspect_point(*point))
            if new_reason not in (None, reason):
                await mouse.move(*OFF_PAGE)
                await mouse.up(button=button)
                await require_approval(new_reason)
                await mouse.move(*point)
                await mouse.down(button=button)
            await mouse.up(button=button)
            for number in range(2, count + 1):
                await mouse.down(button=button, click_count=number)
                await mouse.up(button=button, click_count=number)
            await move
            return f"Clicked. {LIST_HINT} {choices}" if choices else "Clicked."
        finally:
            move.cancel()

    async def _drag(
        self, path: tuple[tuple[int, int], ...], keys: tuple[str, ...], require_approval: RequireApproval
    ) -> str:
        """Drag along a path, with approval if the element at its start needs it, and return a report."""
        if len(path) < 2:
            raise ActionRefused("a drag needs at least two points")
        points = [self.capture.display.to_page(*point) for point in path]
        view, start = await self._move_pointer(*path[0])
        async with self._hold_keys(keys):
            await require_approval(self.guard.click_reason(await view.inspect_point(*start)))
            await view.page.mouse.down()
            try:
                for point in points[1:]:
                    await view.page.mouse.move(*point, steps=DRAG_STEPS)
                await view.wait_for_paint()
            finally:
                await _release_with_timeout(view.page.mouse.up())
        self.pointer = path[-1]
        return "Dragged."

    async def _move_pointer(self, x: int | None, y: int | None) -> tuple[PageView, tuple[float, float]]:
        """Move the pointer, and return the page in view and the point on it in CSS pixels.

        The pointer moves before the element is inspected, so that the page has reacted to it.
        """
        point = self._page_point(x, y)
        view = await self.tabs.view()
        await view.page.mouse.move(*point)
        return view, point

    def _page_point(self, x: int | None, y: int | None) -> tuple[float, float]:
        """Convert a point of the display to CSS pixels of the page, and remember it as the pointer's position."""
        position = (self.pointer[0] if x is None else x, self.pointer[1] if y is None else y)
        point = self.capture.display.to_page(*position)
        self.pointer = position
        return point

    async def _point_reason(self, view: PageView, x: int | None, y: int | None) -> str | None:
        """Return why clicking at a point of the display needs approval; None if it needs none."""
        position = (self.pointer[0] if x is None else x, self.pointer[1] if y is None else y)
        return self.guard.click_reason(await view.inspect_point(*self.capture.display.to_page(*position)))


def _mouse_button(name: str) -> MouseButton:
    """Return Playwright's name of a mouse button; raise `ActionRefused` for other buttons."""
    match name:
        case "left" | "middle" | "right":
            return name
        case _:
            raise ActionRefused(f"the button {name!r} is not supported here")


async def _release_with_timeout(release: Coroutine[None, None, None]) -> None:
    """Release a key or button, but do not wait forever for a page that hangs."""
    with suppress(TimeoutError, Error):
        async with asyncio.timeout(RELEASE_SECONDS):
            await release


def _split_at_control_keys(text: str) -> list[str]:
    """Split a text at tabs and newlines, each of which becomes an item of its own."""
    pieces = [""]
    for character in text.replace("\r\n", "\n").replace("\r", "\n"):
        if character in "\t\n":
            pieces += [character, ""]
        else:
            pieces[-1] += character
    return [piece for piece in pieces if piece]
