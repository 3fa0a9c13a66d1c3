"""The browser as a tool of an agent. Calls arrive as canonical actions, whatever vendor's format they came in.

1. The policy decides on each action: rules see `kind` and the other fields of an action, such as `url`. Read-only
   actions need no rule; all others need approval.
2. A safety check of the provider is shown to the user with its call, and acknowledged in the result of that call only
   if the user approves. The guard may ask again when the action is performed.
3. Each run has its own browser, opened by its first call and closed with the run.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from toolwire.canonical.computer import ACTION_FIELDS, ACTION_KINDS, Action, Keys, Navigate, SafetyCheck, Type
from toolwire.canonical.content import Inline, Media, Part, ScreenObservation, Text
from toolwire.canonical.errors import ToolwireError
from toolwire.codec.encoding.computer import COMPUTER_FUNCTION_NAME, computer_tool
from toolwire.installation import require_extra
from toolwire.runtime.calls.approval import ApprovalRequest
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput
from toolwire.runtime.tools.browser.display import ActionResult, BrowserSettings, Display, Observation, ScreenImage

if TYPE_CHECKING:
    from toolwire.runtime.tools.browser.session import BrowserSession

READ_ONLY_ACTIONS = frozenset({"screenshot", "zoom", "read_text", "cursor_position", "scroll", "move", "wait"})
"""Actions that change nothing but the view."""

_DAY_SECONDS = 86_400.0
_ADDRESS_BAR_KEYS = (Keys(keys=("Control", "l")), Keys(keys=("Meta", "l")))
_ENTER_KEY = Keys(keys=("Enter",))


class Browser:
    """A toolset with one browser per run. `start` is its first page; `hosts` override those of the settings."""

    name = "browser"

    def __init__(
        self, start: str | None = None, *, hosts: Sequence[str] = (), settings: BrowserSettings | None = None
    ) -> None:
        base = settings or BrowserSettings()
        self.settings = (
            replace(base, network_policy=replace(base.network_policy, hosts=tuple(hosts))) if hosts else base
        )
        self.start = start
        self._sessions: dict[str, _SessionTask] = {}
        self._display_size = Display.fit(self.settings.page_size, self.settings.largest_image).size
        if start is not None and (reason := self.settings.network_policy.navigation_refusal(start)):
            raise ToolwireError(f"the browser can't open {start}: {reason}")

    async def open(self) -> None:
        """Check that Playwright and Chromium are installed. A browser is started on its first use."""
        with require_extra("browser", "the browser"):
            from toolwire.runtime.tools.browser.session import find_chromium  # noqa: PLC0415 - Playwright is optional
        find_chromium(self.settings.chromium)

    def static_tools(self) -> Sequence[Tool]:
        """Return the computer tool."""
        return [self._tool]

    async def tools(self) -> Sequence[Tool]:
        """Return the computer tool."""
        return self.static_tools()

    async def end_run(self, run: str) -> None:
        """Close the browser of a run."""
        if (session_task := self._sessions.pop(run, None)) is not None:
            await session_task.close()

    async def close(self) -> None:
        """Close the browsers of all runs."""
        for run in list(self._sessions):
            await self.end_run(run)

    @property
    def _tool(self) -> Tool:
        """Return the computer tool, with the allowed kinds of actions."""
        kinds = tuple(kind for kind in ACTION_KINDS if self.settings.actions is None or kind in self.settings.actions)
        return Tool(
            name=COMPUTER_FUNCTION_NAME,
            description="Drives a browser: actions in order, then a screenshot.",
            parameters=_parameters(kinds),
            run=self._run,
            annotations=Annotations(open_world=True),
            source=self.name,
            timeout=_DAY_SECONDS,  # includes waiting for approval; each action has its own timeout
            retries=0,
            allowed_callers=("direct",),
            resources=lambda _: frozenset({self.name}),
            subcalls=_subcalls,
            subcall_arguments=ACTION_FIELDS,
            is_read_only=lambda action: isinstance(action, Mapping) and action.get("kind") in READ_ONLY_ACTIONS,
            approval_reason=_safety_check_reason,
            requires_human=lambda arguments: _safety_check_reason(arguments) is not None,
            preview=_preview,
            native=computer_tool(self._display_size.width, self._display_size.height, kinds),
        )

    async def _run(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        """Perform the actions of a call in the browser of its run."""
        actions = _decode_actions(arguments)
        session_task = self._sessions.get(context.run)
        is_new = session_task is None
        if session_task is None:
            session_task = self._sessions[context.run] = _SessionTask(self.settings)
        try:
            session = await session_task.session()
        except ToolError:
            del self._sessions[context.run]
            raise
        notes: list[str] = []
        if is_new:
            notes += await self._open_start_page(session)

        async def approve(action: Action, reason: str) -> bool:
            """Ask the run's approver about one action; return True if it is approved."""
            text = msgspec.json.encode(action).decode()
            request = ApprovalRequest(
                run=context.run, call_id=context.id, tool=COMPUTER_FUNCTION_NAME, arguments=text, reason=reason
            )
            return await context.approver.approve(request) in ("yes", "always")

        result = await session.perform(actions, approve)
        return _make_output(result, notes, acknowledged=_safety_check_reason(arguments) is not None)

    async def _open_start_page(self, session: "BrowserSession") -> list[str]:
        """Open the start page, and return notes about it for the model."""
        if self.start is None:
            return ["The browser has just been opened and shows no page yet."]
        result = await session.perform([Navigate(url=self.start)])
        observations = [item for item in result.observations if item.is_error or item.kind != "navigate"]
        return [f"The browser has just been opened at {self.start}", *map(_format_observation, observations)]


class _SessionTask:
    """A session in its own task, so that the timeout or cancellation of a call does not close the browser."""

    def __init__(self, settings: BrowserSettings) -> None:
        self._settings = settings
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[BrowserSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run_session())

    async def session(self) -> "BrowserSession":
        """Wait until the session is open, and return it."""
        return await asyncio.shield(self._ready)

    async def close(self) -> None:
        """Close the session, and wait until that is done."""
        self._closing.set()
        await asyncio.wait([self._task])

    async def _run_session(self) -> None:
        """Keep the session open until `close`, as the body of the task."""
        from toolwire.runtime.tools.browser.session import open_session  # noqa: PLC0415 - Playwright is optional

        try:
            async with open_session(self._settings) as session:
                self._ready.set_result(session)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - raised in the call that waits for the session
            if not self._ready.done():
                self._ready.set_exception(ToolError(f"the browser could not be opened: {error}", "transient"))


# ---- arguments


def _parameters(kinds: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of the tool's arguments, with these kinds of actions."""
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
    """Decode the actions.

    Some formats have no navigate action and type a URL into the address bar; that becomes `Navigate`.
    """
    try:
        remaining = msgspec.convert(arguments["actions"], list[Action])
    except msgspec.ValidationError as error:
        raise ToolError(f"invalid actions, none was performed: {error}", "schema") from None
    actions: list[Action] = []
    while remaining:
        match remaining:
            case [first, Type(text=url), last, *_] if first in _ADDRESS_BAR_KEYS and last == _ENTER_KEY:
                actions.append(Navigate(url=url))
                remaining = remaining[3:]
            case _:
                actions.append(remaining.pop(0))
    return actions


def _subcalls(arguments: Arguments) -> list[Arguments] | None:
    """Return each action as a call of its own, for the policy; None if the arguments are invalid."""
    try:
        return [msgspec.to_builtins(action) for action in _decode_actions(arguments)]
    except ToolError:
        return None


def _safety_check_reason(arguments: Arguments) -> str | None:
    """Return the provider's safety checks as a reason for approval; None if there are none."""
    try:
        checks = msgspec.convert(arguments.get("checks", []), list[SafetyCheck])
    except msgspec.ValidationError:
        return "the provider requires a person's approval, for a reason that can't be decoded"
    messages = [check.message or check.code or "no reason given" for check in checks]
    return f"the provider requires a person's approval: {'; '.join(messages)}" if messages else None


def _preview(arguments: Arguments) -> str | None:
    """Format the actions for the approval prompt, one per line; None if the arguments are invalid."""
    actions = _subcalls(arguments)
    return None if actions is None else "\n".join(map(_format_action, actions))


def _format_action(action: dict[str, Any]) -> str:
    """Format an action as its kind followed by `name=value` pairs."""
    return " ".join([action.pop("kind"), *(f"{name}={value}" for name, value in action.items())])


# ---- results


def _make_output(result: ActionResult, notes: list[str], *, acknowledged: bool) -> ToolOutput:
    """Return the observations and screenshots as a tool result.

    `acknowledged` says that the user approved the provider's safety checks.
    """
    lines = [*notes, *map(_format_observation, result.observations)]
    content: list[Part] = [Text(text="\n".join([*lines, f"The page is at {result.url}"]))]
    content += [_image_part(item.image) for item in result.observations if item.image is not None]
    if result.screenshot is not None:
        content.append(_image_part(result.screenshot))
    screen = ScreenObservation(url=result.url, acknowledged=acknowledged)
    has_failed = result.has_failed
    return ToolOutput(
        content=tuple(content), is_error=has_failed, error_kind="tool" if has_failed else "", screen=screen
    )


def _format_observation(observation: Observation) -> str:
    """Format an observation as a line of the tool result."""
    return f"{observation.kind}: {observation.text}"


def _image_part(image: ScreenImage) -> Media:
    """Convert a screenshot to a content part."""
    return Media(kind="image", media_type=image.media_type, source=Inline(data=image.data))
