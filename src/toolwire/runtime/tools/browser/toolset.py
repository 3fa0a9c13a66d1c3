"""The browser as a tool of an agent: whatever vendor's form a call came in, it is common actions here.

1. A call is decided on action by action: rules see `kind` and what else an action says, such as `url`. What only looks
   needs no rule; everything else asks.
2. A safety check of the provider's is put to a person, with the call it came with; only then is it acknowledged, in
   that call's result. What the page says about an element may ask once more, at the moment itself.
3. Each run has a browser of its own, opened by its first call and closed with it. What pages say stays in results.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from toolwire.canonical.computer import KINDS, Action, Keys, Navigate, SafetyCheck, Type
from toolwire.canonical.content import Inline, Media, Part, ScreenSeen, Text
from toolwire.canonical.errors import ToolwireError
from toolwire.codec.screen_function import NAME, computer_tool
from toolwire.runtime.approval import Ask
from toolwire.runtime.toolset import Annotations, Arguments, Calling, Output, Tool, ToolFault

from .display import Display
from .observation import Observation, Performed, Picture
from .settings import BrowserSettings

if TYPE_CHECKING:
    from .session import Session

LOOKS = frozenset({"screenshot", "zoom", "read_text", "cursor_position", "scroll", "move", "wait"})
"""They change nothing but what is in view."""

_DAY = 86_400.0
_TO_ADDRESS = (Keys(keys=("Control", "l")), Keys(keys=("Meta", "l")))
_ENTER = Keys(keys=("Enter",))


class NoPlaywright(ToolwireError):
    """The browser needs what is not installed."""


class Browser:
    """`start` is the page that it opens first; `hosts` are where it may go, in place of those of the settings."""

    name = "browser"

    def __init__(
        self, start: str | None = None, *, hosts: Sequence[str] = (), settings: BrowserSettings | None = None
    ) -> None:
        given = settings or BrowserSettings()
        self.settings = replace(given, reach=replace(given.reach, hosts=tuple(hosts))) if hosts else given
        self.start = start
        self._opened: dict[str, _Opened] = {}
        self._size = Display.fitting(self.settings.page, self.settings.largest_picture).size
        if start is not None and (why := self.settings.reach.opens(start)):
            raise ToolwireError(f"the browser can't start at {start}: {why}")

    async def open(self) -> None:
        """Only looks for what it takes: a browser is started when it is first needed."""
        try:
            from .chromium import find_chromium  # noqa: PLC0415 - Playwright is optional
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] != "playwright":
                raise
            raise NoPlaywright("it needs Playwright: pip install 'toolwire[browser]'") from None
        find_chromium(self.settings.chromium)

    def known(self) -> Sequence[Tool]:
        return [self._tool]

    async def tools(self) -> Sequence[Tool]:
        return self.known()

    async def end_run(self, run: str) -> None:
        if (opened := self._opened.pop(run, None)) is not None:
            await opened.close()

    async def close(self) -> None:
        for run in list(self._opened):
            await self.end_run(run)

    @property
    def _tool(self) -> Tool:
        kinds = tuple(kind for kind in KINDS if self.settings.actions is None or kind in self.settings.actions)
        return Tool(
            name=NAME,
            description="Drives a browser: actions in order, then a screenshot.",
            parameters=_parameters(kinds),
            run=self._run,
            annotations=Annotations(open_world=True),
            source=self.name,
            timeout=_DAY,  # a person may be asked meanwhile: each action has a time of its own
            retries=0,
            allowed_callers=("direct",),
            touches=lambda _: frozenset({self.name}),
            amounts_to=_amounts_to,
            looks=lambda one: isinstance(one, Mapping) and one.get("kind") in LOOKS,
            always_ask=_checks_told,
            in_person=lambda arguments: _checks_told(arguments) is not None,
            preview=_preview,
            native=computer_tool(self._size.width, self._size.height, kinds),
        )

    async def _run(self, arguments: Arguments, calling: Calling) -> Output:
        actions = _meant(arguments)
        opened = self._opened.get(calling.run)
        fresh = opened is None
        if opened is None:
            opened = self._opened[calling.run] = _Opened(self.settings)
        try:
            session = await opened.session()
        except ToolFault:
            del self._opened[calling.run]
            raise
        said: list[str] = []
        if fresh:
            said += await self._begin(session)

        async def approve(action: Action, reason: str) -> bool:
            text = msgspec.json.encode(action).decode()
            ask = Ask(run=calling.run, call_id=calling.id, tool=NAME, arguments=text, why=reason)
            return await calling.person.approve(ask) in ("yes", "always")

        done = await session.perform(actions, approve)
        return _output(done, said, acknowledged=_checks_told(arguments) is not None)

    async def _begin(self, session: "Session") -> list[str]:
        if self.start is None:
            return ["The browser has just been opened, and shows no page yet."]
        done = await session.perform([Navigate(url=self.start)])
        told = [one for one in done.observations if one.error or one.about != "navigate"]
        return [f"The browser has just been opened at {self.start}", *map(_told, told)]


class _Opened:
    """A session in a task of its own: neither the time of a call nor its end is that of the browser."""

    def __init__(self, settings: BrowserSettings) -> None:
        self._settings = settings
        self._over = asyncio.Event()
        self._ready: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold())

    async def session(self) -> "Session":
        return await asyncio.shield(self._ready)

    async def close(self) -> None:
        self._over.set()
        await asyncio.wait([self._task])

    async def _hold(self) -> None:
        from .session import open_session  # noqa: PLC0415 - Playwright is optional

        try:
            async with open_session(self._settings) as session:
                self._ready.set_result(session)
                await self._over.wait()
        except Exception as error:  # noqa: BLE001 - it is the call's that waits for it
            if not self._ready.done():
                self._ready.set_exception(ToolFault(f"the browser could not be opened: {error}", "transient"))


# ---- what a call says


def _parameters(kinds: Sequence[str]) -> dict[str, Any]:
    action = {"type": "object", "properties": {"kind": {"enum": list(kinds)}}, "required": ["kind"]}
    return {
        "type": "object",
        "properties": {
            "actions": {"type": "array", "items": action},
            "checks": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["actions"],
        "additionalProperties": False,
    }


def _meant(arguments: Arguments) -> list[Action]:
    """The actions, where a form without a word for it wrote out how one goes to an address."""
    try:
        said = msgspec.convert(arguments["actions"], list[Action])
    except msgspec.ValidationError as error:
        raise ToolFault(f"the actions can't be read, and none was done: {error}", "schema") from None
    meant: list[Action] = []
    while said:
        match said:
            case [first, Type(text=url), last, *_] if first in _TO_ADDRESS and last == _ENTER:
                meant.append(Navigate(url=url))
                said = said[3:]
            case _:
                meant.append(said.pop(0))
    return meant


def _amounts_to(arguments: Arguments) -> list[Arguments] | None:
    try:
        return [msgspec.to_builtins(one) for one in _meant(arguments)]
    except ToolFault:
        return None


def _checks_told(arguments: Arguments) -> str | None:
    try:
        checks = msgspec.convert(arguments.get("checks", []), list[SafetyCheck])
    except msgspec.ValidationError:
        return "the provider wants a person to agree, and it can't be read why"
    told = [one.message or one.code or "it does not say why" for one in checks]
    return f"the provider wants a person to agree: {'; '.join(told)}" if told else None


def _preview(arguments: Arguments) -> str | None:
    amounts = _amounts_to(arguments)
    return None if amounts is None else "\n".join(map(_line, amounts))


def _line(action: dict[str, Any]) -> str:
    return " ".join([action.pop("kind"), *(f"{name}={value}" for name, value in action.items())])


# ---- what comes of it


def _output(done: Performed, said: list[str], *, acknowledged: bool) -> Output:
    told = [*said, *map(_told, done.observations)]
    content: list[Part] = [Text(text="\n".join([*told, f"The page is at {done.url}"]))]
    content += [_media(one.picture) for one in done.observations if one.picture is not None]
    if done.screenshot is not None:
        content.append(_media(done.screenshot))
    screen = ScreenSeen(url=done.url, acknowledged=acknowledged)
    failed = done.failed
    return Output(content=tuple(content), is_error=failed, kind="tool" if failed else "", screen=screen)


def _told(one: Observation) -> str:
    return f"{one.about}: {one.text}"


def _media(picture: Picture) -> Media:
    return Media(kind="image", media_type=picture.media_type, source=Inline(data=picture.data))
