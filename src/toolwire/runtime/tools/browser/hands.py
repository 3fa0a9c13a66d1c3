"""Mouse and keyboard: each canonical action, done to the page in view."""

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

from .guard import Facts, Guard
from .keys import MODIFIERS, canonical_chord, physical, types_text, uses_clipboard
from .observation import Picture
from .reach import Refused
from .screen import Screen
from .settings import BrowserSettings
from .tabs import Tabs
from .view import View

Ask = Callable[[str | None], Awaitable[None]]
"""Is told why a person must agree, if so; raises if nobody does."""

Side = Literal["left", "middle", "right"]
Done = str | tuple[str, Picture]
DRAG_STEPS = 8
CHOOSE = "This is a list; choose with the arrow keys, or type how a choice begins:"
OPENING = frozenset({" ", "Enter", "F4", "Alt"})
NOWHERE = (-10, -10)
RELEASE_SECONDS = 1
MOST_REPEATS = 100
TO_ADDRESS = frozenset({("Control", "l"), ("Meta", "l"), ("Alt", "d"), ("F6",)})
"""What leads to the address bar of a browser that shows one; this one does not, but models expect it."""


class Hands:
    def __init__(self, settings: BrowserSettings, tabs: Tabs, screen: Screen, guard: Guard) -> None:
        self.settings = settings
        self.tabs = tabs
        self.screen = screen
        self.guard = guard
        self.pointer = (0, 0)
        self.held: set[str] = set()
        self.address: str | None = None

    async def do(self, action: Action, ask: Ask) -> Done:
        match action:
            case Screenshot():
                return "The display.", await self.screen.picture(await self.tabs.view())
            case Zoom(x0=x0, y0=y0, x1=x1, y1=y1):
                box = self.screen.display.to_page_box(x0, y0, x1, y1)
                return "A part of the display.", await self.screen.part(await self.tabs.view(), box)
            case Wait(seconds=seconds):
                return await self._wait(seconds)
            case CursorPosition():
                return f"The pointer is at ({self.pointer[0]}, {self.pointer[1]})."
            case ReadText():
                return await self._read()
            case Navigate(url=url):
                return await self._navigate(url)
            case Back():
                return await self._leave("go_back")
            case Forward():
                return await self._leave("go_forward")
            case Reload():
                return await self._leave("reload")
            case Type(text=text):
                return await self._type(text, ask)
            case Keys() | KeyDown() | KeyUp():
                return await self._keys(action, ask)
            case Click() | Move() | Drag() | Scroll() | MouseDown() | MouseUp():
                return await self._mouse(action, ask)
            case _:
                assert_never(action)

    async def needs_approval(self, action: Action) -> str | None:
        """As the page is now."""
        match action:
            case Click(x=x, y=y) | MouseDown(x=x, y=y) | MouseUp(x=x, y=y):
                return await self._point_reason(await self.tabs.view(), x, y)
            case Drag(path=((x, y), *_)):
                return await self._point_reason(await self.tabs.view(), x, y)
            case Type(text=text):
                return await self._type_reason(await self.tabs.view(), text)
            case Keys(keys=names) | KeyDown(key=names):
                keys = canonical_chord(names if isinstance(names, tuple) else (names,))
                return self._keys_reason(keys, await (await self.tabs.view()).look_at_focus())
            case _:
                return None

    # Pages

    async def _wait(self, seconds: float | None) -> str:
        asked = 1.0 if seconds is None else max(0.0, seconds)
        given = min(asked, self.settings.bounds.wait_seconds)
        await asyncio.sleep(given)
        return f"Waited {given:g} seconds{', the longest that is allowed' if given < asked else ''}."

    async def _read(self) -> str:
        longest = self.settings.bounds.read_characters
        view = await self.tabs.view()
        text = await view.text(longest)
        return f"{text}\n[cut at {longest} characters]" if len(text) >= longest else text

    def _opens(self, url: str) -> str:
        """The whole address, if a page may be opened there."""
        url = url.strip()
        if ":" not in url.partition("/")[0] and url:
            url = f"https://{url}"
        if why := self.settings.reach.opens(url):
            raise Refused(why)
        return url

    async def _navigate(self, url: str) -> str:
        url = self._opens(url)
        await self.tabs.fresh_if_crashed()
        view = await self.tabs.view()
        await view.page.goto(url, wait_until="load", timeout=0)
        return "Opened the page."

    async def _leave(self, how: Literal["go_back", "go_forward", "reload"]) -> str:
        page = (await self.tabs.view()).page
        before = page.url
        match how:
            case "go_back":
                answer = await page.go_back(timeout=0)
            case "go_forward":
                answer = await page.go_forward(timeout=0)
            case "reload":
                answer = await page.reload(timeout=0)
        if answer is None and page.url == before and how != "reload":
            raise Refused("there is no page to go to")
        return "Opened the page."

    # The address bar

    async def _typed_address(self, typed: str, ask: Ask) -> str:
        """Nothing of it reaches the page. A person must agree: no rule about addresses has seen this one."""
        typed, entered, _ = typed.partition("\n")
        self.address = (self.address or "") + typed
        if not entered:
            return "Typed into the address bar: press Enter to go there."
        typed, self.address = self.address, None
        url = self._opens(typed)
        await ask(f"it opens {self.guard.concealed(url)}")
        return await self._navigate(url)

    async def _keyed_address(self, keys: tuple[str, ...], ask: Ask) -> str:
        match keys:
            case ("Enter",):
                return await self._typed_address("\n", ask)
            case ("Backspace",):
                self.address = (self.address or "")[:-1]
            case ("Control" | "Meta", "a"):
                self.address = ""
            case (one,) if types_text(one):
                return await self._typed_address(one, ask)
            case _:
                self.address = None
                return "Left the address bar."
        return "Pressed."

    # Keyboard

    async def _type(self, text: str, ask: Ask) -> str:
        if len(text) > self.settings.bounds.typed_characters:
            raise Refused(f"at most {self.settings.bounds.typed_characters} characters are typed at once")
        if self.held:
            raise Refused("text is not typed while keys are held")
        if self.address is not None:
            return await self._typed_address(text, ask)
        view = await self.tabs.view()
        reason = self.guard.typing(text, None)
        await ask(reason)
        # A tab or a new line in a text is a key that changes what the rest goes to.
        for piece in _pieces(text):
            if reason is None or piece == "\n":
                await ask(await self._type_reason(view, piece))
            if piece == "\t":
                await view.page.keyboard.press("Tab")
            elif piece == "\n":
                await view.page.keyboard.press("Enter")
            else:
                await view.page.keyboard.type(piece)
            self.guard.typed(piece)
        return f"Typed {len(text)} characters."

    async def _type_reason(self, view: View, text: str) -> str | None:
        facts = await view.look_at_focus()
        if text.startswith("\t"):
            return None
        if text.startswith("\n"):
            return self.guard.pressing(("Enter",), facts)
        return self.guard.typing(text, facts)

    async def _keys(self, action: Keys | KeyDown | KeyUp, ask: Ask) -> str:
        keyboard = (await self.tabs.view()).page.keyboard
        keys = canonical_chord(action.keys if isinstance(action, Keys) else (action.key,))
        if isinstance(action, KeyUp):
            for key in reversed(keys):
                await keyboard.up(key)
                self.held.discard(key)
            return "Released."
        if not self.settings.clipboard and uses_clipboard(keys, frozenset(self.held)):
            raise Refused("the clipboard is off; use the action that types text")
        navigates = self.settings.actions is None or "navigate" in self.settings.actions
        if isinstance(action, Keys) and keys in TO_ADDRESS and navigates:
            self.address = ""
            return "The address bar has the keyboard: type an address, then press Enter."
        if self.address is not None:
            return await self._keyed_address(keys, ask)
        facts = await (await self.tabs.view()).look_at_focus()
        await ask(self._keys_reason(keys, facts))
        if facts is not None and facts.choices and not OPENING.isdisjoint(keys):
            return f"The list stays closed. {CHOOSE} {facts.told_choices}"
        if isinstance(action, KeyDown):
            for key in keys:
                await keyboard.down(key)
                self.held.add(key)
            return "Held down."
        for _ in range(max(1, min(action.repeat, MOST_REPEATS))):
            async with self._holding(keys):
                if action.hold:
                    await asyncio.sleep(min(action.hold, self.settings.bounds.wait_seconds))
            self.guard.typed("".join(key for key in keys if types_text(key)))
        return "Pressed."

    def _keys_reason(self, keys: tuple[str, ...], facts: Facts | None) -> str | None:
        shortcut = bool({"Control", "Alt", "Meta"} & ({*keys} | self.held))
        text = "".join(key for key in keys if types_text(key))
        if text and not shortcut and (why := self.guard.typing(text, facts)):
            return why
        return self.guard.pressing(keys, facts)

    @asynccontextmanager
    async def _holding(self, names: tuple[str, ...]) -> AsyncIterator[None]:
        keyboard = (await self.tabs.view()).page.keyboard
        down: list[str] = []
        try:
            keys = canonical_chord(names) if names else ()
            modified = not MODIFIERS.isdisjoint({*keys, *self.held})
            for key in keys:
                try:
                    await keyboard.down(physical(key, modified=modified))
                    down.append(physical(key, modified=modified))
                except Error:
                    # A character that is on no key of the keyboard that Playwright has.
                    if not types_text(key):
                        raise
                    await keyboard.insert_text(key)
            yield
        finally:
            for key in reversed(down):
                await _soon_enough(keyboard.up(key))

    # Mouse

    async def _mouse(self, action: Click | Move | Drag | Scroll | MouseDown | MouseUp, ask: Ask) -> str:
        self.address = None
        match action:
            case Click(x=x, y=y, button=button, count=count, keys=keys):
                if button in ("back", "forward"):
                    return await self._leave("go_back" if button == "back" else "go_forward")
                async with self._holding(keys):
                    return await self._click(x, y, _button(button), count, ask)
            case Move(x=x, y=y, keys=keys):
                async with self._holding(keys):
                    await self._point(x, y)
                return "Moved."
            case Scroll(x=x, y=y, dx=dx, dy=dy, keys=keys):
                view, _ = await self._point(x, y)
                async with self._holding(keys):
                    await view.page.mouse.wheel(*self.screen.display.to_page_distance(dx, dy))
                    await view.painted()
                return "Scrolled."
            case Drag(path=path, keys=keys):
                return await self._drag(path, keys, ask)
            case MouseDown(x=x, y=y, button=button):
                view, at = await self._point(x, y)
                await ask(self.guard.clicking(await view.look_at(*at)))
                await view.page.mouse.down(button=_button(button))
                return "Pressed the button."
            case MouseUp(x=x, y=y, button=button):
                view, at = await self._point(x, y)
                await ask(self.guard.clicking(await view.look_at(*at)))
                await view.page.mouse.up(button=_button(button))
                return "Released the button."

    async def _click(self, x: int | None, y: int | None, button: Side, count: int, ask: Ask) -> str:
        """Judged as the page is, and once more when it knows of the pointer and the button but not of the click."""
        at = self._where(x, y)
        view = await self.tabs.view()
        mouse = view.page.mouse
        # Chromium would answer to this with its next frame; the button does not wait for that.
        moving = asyncio.ensure_future(mouse.move(*at))
        try:
            facts = await view.look_at(*at)
            expected = self.guard.clicking(facts)
            await ask(expected)
            choices = facts.told_choices if facts is not None and facts.choices else None
            if choices and button == "left":
                await view.keep_closed(*at)
            await mouse.down(button=button)
            found = self.guard.clicking(await view.look_at(*at))
            if found not in (None, expected):
                await mouse.move(*NOWHERE)
                await mouse.up(button=button)
                await ask(found)
                await mouse.move(*at)
                await mouse.down(button=button)
            await mouse.up(button=button)
            for number in range(2, count + 1):
                await mouse.down(button=button, click_count=number)
                await mouse.up(button=button, click_count=number)
            await moving
            return f"Clicked. {CHOOSE} {choices}" if choices else "Clicked."
        finally:
            moving.cancel()

    async def _drag(self, path: tuple[tuple[int, int], ...], keys: tuple[str, ...], ask: Ask) -> str:
        if len(path) < 2:
            raise Refused("a drag has at least two points")
        points = [self.screen.display.to_page(*point) for point in path]
        view, at = await self._point(*path[0])
        async with self._holding(keys):
            await ask(self.guard.clicking(await view.look_at(*at)))
            await view.page.mouse.down()
            try:
                for point in points[1:]:
                    await view.page.mouse.move(*point, steps=DRAG_STEPS)
                await view.painted()
            finally:
                await _soon_enough(view.page.mouse.up())
        self.pointer = path[-1]
        return "Dragged."

    async def _point(self, x: int | None, y: int | None) -> tuple[View, tuple[float, float]]:
        """The pointer is there before anything is judged, so that what the page does under it has been done."""
        at = self._where(x, y)
        view = await self.tabs.view()
        await view.page.mouse.move(*at)
        return view, at

    def _where(self, x: int | None, y: int | None) -> tuple[float, float]:
        where = (self.pointer[0] if x is None else x, self.pointer[1] if y is None else y)
        at = self.screen.display.to_page(*where)
        self.pointer = where
        return at

    async def _point_reason(self, view: View, x: int | None, y: int | None) -> str | None:
        where = (self.pointer[0] if x is None else x, self.pointer[1] if y is None else y)
        return self.guard.clicking(await view.look_at(*self.screen.display.to_page(*where)))


def _button(name: str) -> Side:
    match name:
        case "left" | "middle" | "right":
            return name
        case _:
            raise Refused(f"the button {name!r} can't be held")


async def _soon_enough(release: Coroutine[None, None, None]) -> None:
    """What ends an action that ran out of time must not wait for the same page without end."""
    with suppress(TimeoutError, Error):
        async with asyncio.timeout(RELEASE_SECONDS):
            await release


def _pieces(text: str) -> list[str]:
    pieces = [""]
    for one in text.replace("\r\n", "\n").replace("\r", "\n"):
        if one in "\t\n":
            pieces += [one, ""]
        else:
            pieces[-1] += one
    return [piece for piece in pieces if piece]
