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

from toolwire.canonical.computer import ACTION_KINDS, Action, Keys, Navigate, SafetyCheck, Type
from toolwire.canonical.content import Inline, Media, Part, ScreenObservation, Text
from toolwire.canonical.errors import ToolwireError
from toolwire.codec.encoding.computer import COMPUTER_FUNCTION_NAME, computer_tool
from toolwire.runtime.calls.approval import ApprovalRequest
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput
from toolwire.runtime.tools.browser.display import ActionResult, Display, Observation, ScreenImage
from toolwire.runtime.tools.browser.settings import BrowserSettings

if TYPE_CHECKING:
    from toolwire.runtime.tools.browser.session import BrowserSession

READ_ONLY_ACTIONS = frozenset({"screenshot", "zoom", "read_text", "cursor_position", "scroll", "move", "wait"})
"""They change nothing but what is in view."""

_DAY_SECONDS = 86_400.0
_ADDRESS_BAR_KEYS = (Keys(keys=("Control", "l")), Keys(keys=("Meta", "l")))
_ENTER_KEY = Keys(keys=("Enter",))


class PlaywrightNotInstalled(ToolwireError):
    """The browser needs what is not installed."""


class Browser:
    """`start` is the page that it opens first; `hosts` are where it may go, in place of those of the settings."""

    name = "browser"

    def __init__(
        self, start: str | None = None, *, hosts: Sequence[str] = (), settings: BrowserSettings | None = None
    ) -> None:
        given = settings or BrowserSettings()
        self.settings = (
            replace(given, network_policy=replace(given.network_policy, hosts=tuple(hosts))) if hosts else given
        )
        self.start = start
        self._sessions: dict[str, _SessionTask] = {}
        self._display_size = Display.fit(self.settings.page_size, self.settings.largest_image).size
        if start is not None and (why := self.settings.network_policy.navigation_refusal(start)):
            raise ToolwireError(f"the browser can't start at {start}: {why}")

    async def open(self) -> None:
        """Only looks for what it takes: a browser is started when it is first needed."""
        try:
            from toolwire.runtime.tools.browser.chromium import find_chromium  # noqa: PLC0415 - Playwright is optional
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] != "playwright":
                raise
            raise PlaywrightNotInstalled("it needs Playwright: pip install 'toolwire[browser]'") from None
        find_chromium(self.settings.chromium)

    def static_tools(self) -> Sequence[Tool]:
        return [self._tool]

    async def tools(self) -> Sequence[Tool]:
        return self.static_tools()

    async def end_run(self, run: str) -> None:
        if (opened := self._sessions.pop(run, None)) is not None:
            await opened.close()

    async def close(self) -> None:
        for run in list(self._sessions):
            await self.end_run(run)

    @property
    def _tool(self) -> Tool:
        kinds = tuple(kind for kind in ACTION_KINDS if self.settings.actions is None or kind in self.settings.actions)
        return Tool(
            name=COMPUTER_FUNCTION_NAME,
            description="Drives a browser: actions in order, then a screenshot.",
            parameters=_parameters(kinds),
            run=self._run,
            annotations=Annotations(open_world=True),
            source=self.name,
            timeout=_DAY_SECONDS,  # a person may be asked meanwhile: each action has a time of its own
            retries=0,
            allowed_callers=("direct",),
            resources=lambda _: frozenset({self.name}),
            subcalls=_subcalls,
            is_read_only=lambda one: isinstance(one, Mapping) and one.get("kind") in READ_ONLY_ACTIONS,
            approval_reason=_safety_check_reason,
            requires_human=lambda arguments: _safety_check_reason(arguments) is not None,
            preview=_preview,
            native=computer_tool(self._display_size.width, self._display_size.height, kinds),
        )

    async def _run(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        actions = _decode_actions(arguments)
        opened = self._sessions.get(context.run)
        fresh = opened is None
        if opened is None:
            opened = self._sessions[context.run] = _SessionTask(self.settings)
        try:
            session = await opened.session()
        except ToolError:
            del self._sessions[context.run]
            raise
        said: list[str] = []
        if fresh:
            said += await self._open_start_page(session)

        async def approve(action: Action, reason: str) -> bool:
            text = msgspec.json.encode(action).decode()
            ask = ApprovalRequest(
                run=context.run, call_id=context.id, tool=COMPUTER_FUNCTION_NAME, arguments=text, reason=reason
            )
            return await context.approver.approve(ask) in ("yes", "always")

        done = await session.perform(actions, approve)
        return _make_output(done, said, acknowledged=_safety_check_reason(arguments) is not None)

    async def _open_start_page(self, session: "BrowserSession") -> list[str]:
        if self.start is None:
            return ["The browser has just been opened, and shows no page yet."]
        done = await session.perform([Navigate(url=self.start)])
        told = [one for one in done.observations if one.is_error or one.kind != "navigate"]
        return [f"The browser has just been opened at {self.start}", *map(_format_observation, told)]


class _SessionTask:
    """A session in a task of its own: neither the time of a call nor its end is that of the browser."""

    def __init__(self, settings: BrowserSettings) -> None:
        self._settings = settings
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[BrowserSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run_session())

    async def session(self) -> "BrowserSession":
        return await asyncio.shield(self._ready)

    async def close(self) -> None:
        self._closing.set()
        await asyncio.wait([self._task])

    async def _run_session(self) -> None:
        from toolwire.runtime.tools.browser.session import open_session  # noqa: PLC0415 - Playwright is optional

        try:
            async with open_session(self._settings) as session:
                self._ready.set_result(session)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - it is the call's that waits for it
            if not self._ready.done():
                self._ready.set_exception(ToolError(f"the browser could not be opened: {error}", "transient"))


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


def _decode_actions(arguments: Arguments) -> list[Action]:
    """The actions, where a form without a word for it wrote out how one goes to an address."""
    try:
        said = msgspec.convert(arguments["actions"], list[Action])
    except msgspec.ValidationError as error:
        raise ToolError(f"the actions can't be read, and none was done: {error}", "schema") from None
    meant: list[Action] = []
    while said:
        match said:
            case [first, Type(text=url), last, *_] if first in _ADDRESS_BAR_KEYS and last == _ENTER_KEY:
                meant.append(Navigate(url=url))
                said = said[3:]
            case _:
                meant.append(said.pop(0))
    return meant


def _subcalls(arguments: Arguments) -> list[Arguments] | None:
    try:
        return [msgspec.to_builtins(one) for one in _decode_actions(arguments)]
    except ToolError:
        return None


def _safety_check_reason(arguments: Arguments) -> str | None:
    try:
        checks = msgspec.convert(arguments.get("checks", []), list[SafetyCheck])
    except msgspec.ValidationError:
        return "the provider wants a person to agree, and it can't be read why"
    told = [one.message or one.code or "it does not say why" for one in checks]
    return f"the provider wants a person to agree: {'; '.join(told)}" if told else None


def _preview(arguments: Arguments) -> str | None:
    amounts = _subcalls(arguments)
    return None if amounts is None else "\n".join(map(_format_action, amounts))


def _format_action(action: dict[str, Any]) -> str:
    return " ".join([action.pop("kind"), *(f"{name}={value}" for name, value in action.items())])


# ---- what comes of it


def _make_output(result: ActionResult, notes: list[str], *, acknowledged: bool) -> ToolOutput:
    told = [*notes, *map(_format_observation, result.observations)]
    content: list[Part] = [Text(text="\n".join([*told, f"The page is at {result.url}"]))]
    content += [_image_part(one.image) for one in result.observations if one.image is not None]
    if result.screenshot is not None:
        content.append(_image_part(result.screenshot))
    screen = ScreenObservation(url=result.url, acknowledged=acknowledged)
    failed = result.has_failed
    return ToolOutput(content=tuple(content), is_error=failed, error_kind="tool" if failed else "", screen=screen)


def _format_observation(observation: Observation) -> str:
    return f"{observation.kind}: {observation.text}"


def _image_part(image: ScreenImage) -> Media:
    return Media(kind="image", media_type=image.media_type, source=Inline(data=image.data))
