"""Computer use in requests for a target with another format: the tool, the calls in the history and their results."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.computer import SafetyCheck
from toolwire.canonical.content import (
    ComputerUse,
    Data,
    FileId,
    Inline,
    Media,
    Nested,
    OpaquePart,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Computer, NativeTool, Tool
from toolwire.codec.encoding.computer import (
    ActionEncodingState,
    ComputerUseAdapter,
    EncodedAction,
    ScreenContext,
    ScreenTracker,
    computers_of,
    encode_actions,
    encode_arguments,
    function_names,
    group_split_calls,
    original_call_id,
    split_call_id,
)
from toolwire.codec.encoding.fallbacks import opaque_as_text
from toolwire.codec.encoding.hosted_tools import chosen_native_tool
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart, Turn
from toolwire.codec.losses import SourcePath, element_pointers

_BLANK_SCREENSHOT = Media(
    kind="image",
    media_type="image/png",
    source=Inline(
        data="iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    ),
)
"""A one-pixel image, for results that need a screenshot when there never was one."""

_TEXT_CALL_NAME = "computer_said"
_MOVED_BESIDE = "results must be screenshots: sent as the result of an additional call"
SIZE_FROM_SCREENSHOTS = "the target takes the screen size from screenshots"


# ---- the tool


def use_target_tool(request: Request, plan: EncodingPlan, adapter: ComputerUseAdapter) -> Request:
    """Replace the client's computer tool by the target's, and prepare the plan to convert earlier computer calls."""
    if (
        plan.same_protocol
        or request.origin in adapter.compatible_families
        or not (computers := computers_of(request.tools))
    ):
        return request
    target_tool, target_computer = adapter.declare_tool(
        _combined_computer(computers), plan.target.model or request.model or ""
    )
    tools: list[Tool] = []
    for index, tool in enumerate(request.tools or ()):
        if not isinstance(tool, NativeTool) or tool.computer is None or plan.computer_use is not None:
            tools.append(tool)
            continue
        _report_declaration(tool, target_computer, ("tools", index), plan, native=isinstance(target_tool, NativeTool))
        tools.append(replace(target_tool, at=tool.at))
        plan.computer_use = ComputerUsePlan(adapter, target_computer, computers, plan)
    tracker = ScreenTracker(computers)
    for message in request.messages:
        for part in message.parts:
            tracker.observe(part)
    point = tracker.state.point
    plan.tools.mapping.computer_use = ScreenContext(adapter, computers, function_names(request), tracker.size, point)
    return _adapt_choice(replace(request, tools=tuple(tools)), request, plan)


def _combined_computer(computers: Sequence[Computer]) -> Computer:
    """Return one computer with the actions of all the client's computer tools."""
    kinds = tuple(dict.fromkeys(kind for computer in computers for kind in computer.kinds))
    has_browser = any(computer.environment == "browser" for computer in computers)
    return replace(computers[0], kinds=kinds, environment="browser" if has_browser else computers[0].environment)


def _report_declaration(
    tool: NativeTool, target_computer: Computer, path: SourcePath, plan: EncodingPlan, *, native: bool
) -> None:
    """Report settings of the client's declaration that the target's tool lacks."""
    computer = tool.computer
    if computer is None:
        return
    if not native:
        plan.report.approximated(path, "", "declared as a function that the client runs")
    for field, reason in (
        ("width", SIZE_FROM_SCREENSHOTS),
        ("height", SIZE_FROM_SCREENSHOTS),
        ("environment", "the target's tool has no environment"),
    ):
        value = getattr(computer, field)
        if value is not None and getattr(target_computer, field) != value and field not in computer.wire_form:
            plan.report.dropped((*path, "computer"), field, reason)
    for pointer in computer.others:
        plan.report.dropped(path, "//" + pointer, "the target's computer tool has no such setting")


def _adapt_choice(adapted: Request, request: Request, plan: EncodingPlan) -> Request:
    """Replace a tool choice that names the client's computer tool by one that requires any call."""
    chosen = chosen_native_tool(request)
    if chosen is None or chosen.computer is None or request.tool_choice is None:
        return adapted
    plan.report.approximated(
        ("tool_choice",), "names", "the target cannot force its computer tool: any tool may be called"
    )
    return replace(adapted, tool_choice=replace(request.tool_choice, mode="required", names=(), required=False))


# ---- calls and results


def adapt_turns(turns: list[Turn], plan: EncodingPlan) -> list[Turn]:
    """Convert the computer calls and results of all turns to the target's format, if there are any."""
    return turns if plan.computer_use is None else plan.computer_use.adapt_turns(turns)


class _AdaptedCall(Struct):
    """A call, or a group of split calls, as encoded for the target."""

    calls: list[ToolCall]  # as the client sent them
    ids: tuple[str, ...]  # of the calls that the target gets
    checks: tuple[SafetyCheck, ...]  # safety checks that the target supports
    unsupported_checks: tuple[SafetyCheck, ...]  # safety checks that the target does not support
    paths: list[SourcePath]  # of the calls in the source


class ComputerUsePlan:
    """Converts the turns of a conversation in order, tracking the pointer and the last screenshot."""

    def __init__(
        self, adapter: ComputerUseAdapter, target_computer: Computer, computers: Sequence[Computer], plan: EncodingPlan
    ) -> None:
        self._adapter = adapter
        self._target_computer = target_computer
        self._plan = plan
        self._report = plan.report
        self._tracker = ScreenTracker(computers)

    def adapt_turns(self, turns: list[Turn]) -> list[Turn]:
        """Return the turns with their computer calls and results in the target's format."""
        pending_calls: dict[str, _AdaptedCall] = {}
        adapted = []
        for turn in turns:
            parts = turn.parts
            if turn.role == "assistant":
                self._report_unanswered_checks(pending_calls)
                pending_calls = {}
                parts = self._adapt_calls(parts, pending_calls)
            elif pending_calls and turn.role == "user":
                parts = self._adapt_results(parts, pending_calls)
            else:
                for located_part in parts:
                    self._tracker.observe(located_part.part)
            adapted.append(turn if parts is turn.parts else Turn(turn.role, parts, turn.message, turn.path))
        self._report_unanswered_checks(pending_calls)
        return adapted

    # -- calls

    def _adapt_calls(
        self, located_parts: list[LocatedPart], pending_calls: dict[str, _AdaptedCall]
    ) -> list[LocatedPart]:
        """Return the parts of an assistant turn with its computer calls in the target's format.

        Converted calls are added to `pending_calls`, which their results are matched with.
        """
        calls = [
            located_part
            for located_part in located_parts
            if isinstance(located_part.part, ToolCall) and located_part.part.screen is not None
        ]
        if not calls:
            return located_parts
        paths = {id(located_part.part): located_part.path for located_part in calls}
        groups = {
            id(group[0]): group
            for group in group_split_calls(
                [located_part.part for located_part in calls if isinstance(located_part.part, ToolCall)]
            )
        }
        out: list[LocatedPart] = []
        for located_part in located_parts:
            if id(located_part.part) not in paths:
                out.append(located_part)
            elif (group := groups.get(id(located_part.part))) is not None:
                out += self._adapt_group(group, [paths[id(call)] for call in group], pending_calls)
        return out

    def _adapt_group(
        self, group: list[ToolCall], paths: list[SourcePath], pending_calls: dict[str, _AdaptedCall]
    ) -> list[LocatedPart]:
        """Return the target's calls for one client call, or for a group split from one call.

        The group is added to `pending_calls` until its results arrive.
        """
        uses = [call.screen for call in group if call.screen is not None]
        state = ActionEncodingState(self._tracker.size, self._tracker.state.point)
        actions = tuple(action for use in uses for action in use.actions)
        encoded = encode_actions(actions, self._target_computer, self._adapter, state)
        for call in group:
            self._tracker.observe(call)
        checks = tuple(check for use in uses for check in use.checks)
        if encoded is None:
            adapted = _AdaptedCall(group, (), (), checks, paths)
            pending_calls.update({call.id or "": adapted for call in group if checks})
            return self._as_functions(group, paths)
        self._report_encoding(uses, paths, state)
        id = original_call_id(group)
        ids = tuple(split_call_id(id, number, len(encoded)) for number in range(1, len(encoded) + 1))
        supported, unsupported = (checks, ()) if self._adapter.has_safety_checks else ((), checks)
        adapted = _AdaptedCall(group, ids, supported, unsupported, paths)
        pending_calls.update(dict.fromkeys([call.id or "" for call in group], adapted))
        return self._build_calls(adapted, encoded)

    def _build_calls(self, adapted: _AdaptedCall, encoded: list[EncodedAction]) -> list[LocatedPart]:
        """Return one target call per encoded action; the first one carries signature, cache mark and safety checks."""
        source = adapted.calls[0]
        out = []
        for number, (action, id) in enumerate(zip(encoded, adapted.ids, strict=True)):
            call = ToolCall(id=id, name=action.name, arguments=encode_arguments(action), caller=source.caller)
            if number == 0:
                call = replace(call, signature=source.signature, cache=source.cache)
            call = self._adapter.finish_call(call, self._target_computer, () if number else adapted.checks)
            out.append(LocatedPart(call, adapted.paths[0]))
        return out

    def _as_functions(self, group: list[ToolCall], paths: list[SourcePath]) -> list[LocatedPart]:
        """Return calls that the target's computer format can't express as plain function calls."""
        out = []
        for call, path in zip(group, paths, strict=True):
            self._report.approximated(path, "", "the target's computer tool cannot express it: sent as a function call")
            if call.toolset is not None:
                self._report.dropped(path, "toolset")
            out.append(LocatedPart(replace(call, native=None, toolset=None), path))
        return out

    def _report_encoding(self, uses: list[ComputerUse], paths: list[SourcePath], state: ActionEncodingState) -> None:
        """Report the losses of encoded actions, each at the arguments of its source call."""
        pointers = [(path, pointer) for use, path in zip(uses, paths, strict=True) for pointer in use.places]
        for index, reason in state.losses:
            path, pointer = pointers[index]
            self._report.rewritten(path, "arguments", [("approximated", pointer, reason)])
        for use, path in zip(uses, paths, strict=True):
            reason = "the target's computer action has no such setting"
            self._report.rewritten(path, "arguments", [("dropped", pointer, reason) for pointer in use.others])

    def _report_unanswered_checks(self, pending_calls: dict[str, _AdaptedCall]) -> None:
        """Report safety checks that nobody acknowledged and the target does not support."""
        for adapted in {id(adapted): adapted for adapted in pending_calls.values()}.values():
            if adapted.unsupported_checks:
                self._report_checks(adapted, acknowledged=False)

    def _report_checks(self, adapted: _AdaptedCall, *, acknowledged: bool) -> None:
        """Report the safety checks of a call that the target has no field for, as constraints unless `acknowledged`."""
        for call, path in zip(adapted.calls, adapted.paths, strict=True):
            if call.screen is not None and call.screen.checks:
                reason = "the target has no safety checks" if acknowledged else "requires a person's approval first"
                for pointer in call.screen.checked:
                    self._report.dropped(path, f"//{pointer}", reason, constraint=not acknowledged)

    # -- results

    def _adapt_results(
        self, located_parts: list[LocatedPart], pending_calls: dict[str, _AdaptedCall]
    ) -> list[LocatedPart]:
        """Convert the results of computer calls, each group at the position of its first result."""
        results: dict[int, list[LocatedPart]] = {}
        for located_part in located_parts:
            if (
                isinstance(located_part.part, ToolResult)
                and (adapted := pending_calls.get(located_part.part.call_id or "")) is not None
            ):
                results.setdefault(id(adapted), []).append(located_part)
        out: list[LocatedPart] = []
        trailing_parts: list[LocatedPart] = []
        for located_part in located_parts:
            part = located_part.part
            adapted = pending_calls.get(part.call_id or "") if isinstance(part, ToolResult) else None
            if adapted is None:
                self._tracker.observe(part)
                (out if isinstance(part, ToolResult) else trailing_parts).append(located_part)
            elif located_part is results[id(adapted)][0]:
                out += self._encode_results(adapted, results[id(adapted)], trailing_parts)
        for identity in results:
            answered = [key for key, adapted in pending_calls.items() if id(adapted) == identity]
            for key in answered:
                del pending_calls[key]
        return out + trailing_parts

    def _encode_results(
        self, adapted: _AdaptedCall, located_parts: list[LocatedPart], trailing_parts: list[LocatedPart]
    ) -> list[LocatedPart]:
        """Return one result for each target call that the client's call, or group of calls, became.

        Texts that a target with screenshots only can't hold are appended to `trailing_parts`.
        """
        results = [located_part.part for located_part in located_parts if isinstance(located_part.part, ToolResult)]
        checks = adapted.checks or adapted.unsupported_checks
        acknowledged = all(_acknowledges(result, checks) for result in results if result.screen is not None)
        if adapted.unsupported_checks:
            self._report_checks(adapted, acknowledged=acknowledged)
        for located_part, result in zip(located_parts, results, strict=True):
            self._report_result(result, located_part.path, adapted)
        if not adapted.ids:
            for result in results:
                self._tracker.observe(result)
            return located_parts
        out = []
        for number, (result, path) in enumerate(self._results_by_call(adapted, located_parts, results)):
            encoded = self._encode_result(result, path, trailing_parts)
            if encoded.screen is not None:
                screen = replace(encoded.screen, acknowledged=encoded.screen.acknowledged and acknowledged)
                encoded = replace(encoded, screen=screen)
            encoded = self._adapter.finish_result(encoded, self._target_computer, () if number else adapted.checks)
            out.append(LocatedPart(encoded, path))
        return out

    def _results_by_call(
        self, adapted: _AdaptedCall, located_parts: list[LocatedPart], results: list[ToolResult]
    ) -> Iterator[tuple[ToolResult, SourcePath]]:
        """Yield one result, with its source path, for each target call that the client's call became.

        If the client sent another number of results, the last call gets their combined content and the others none.
        """
        paired = len(adapted.ids) == len(results)
        for number, id in enumerate(adapted.ids):
            source = results[number if paired else -1]
            is_last = number == len(adapted.ids) - 1
            content: tuple[Part, ...] | None = ()
            if paired:
                content = source.content
            elif is_last:
                content = self._combine_content(located_parts, results)
            result = replace(
                source,
                call_id=id,
                content=content,
                name=None,
                toolset=None,
                native=None,
                wire_form=(),
                extras=None,
                status=source.status if paired or is_last else "ok",
            )
            yield result, located_parts[number if paired else -1].path

    def _encode_result(self, result: ToolResult, path: SourcePath, trailing_parts: list[LocatedPart]) -> ToolResult:
        """Reduce the content of a result to what the target's format allows.

        If only a screenshot is allowed, texts move to a call and result appended to `trailing_parts`.
        """
        self._tracker.observe(result)
        if self._adapter.screenshots_only:
            return self._reduce_to_screenshot(result, path, trailing_parts)
        content = None if result.content is None else self._opaque_parts_as_text(result.content, path)
        return replace(result, content=content)

    def _report_result(self, result: ToolResult, path: SourcePath, adapted: _AdaptedCall) -> None:
        """Report fields of a result that the target's format lacks."""
        if result.name is not None and result.name not in [call.name for call in adapted.calls]:
            self._report.dropped(path, "name", "the name differs from that of its call")
        if result.toolset is not None and result.toolset not in [call.toolset for call in adapted.calls]:
            self._report.dropped(path, "toolset")
        for extras in (result.extras or {}).values():
            for key in [key for key in extras if key.endswith("_safety_checks")]:
                for pointer in element_pointers(extras[key], key):
                    if adapted.checks:
                        self._report.approximated(
                            path, "//" + pointer, "the target acknowledges all safety checks at once"
                        )
                    else:
                        self._report.dropped(path, "//" + pointer, "the target has no safety checks")

    def _combine_content(self, located_parts: list[LocatedPart], results: list[ToolResult]) -> tuple[Part, ...]:
        """Return the content of the last result, then the texts of earlier ones; their other parts are reported."""
        texts: list[Part] = []
        for located_part, result in zip(located_parts[:-1], results[:-1], strict=True):
            for index, part in enumerate(result.content or ()):
                if isinstance(part, Text):
                    texts.append(part)
                else:
                    self._report.dropped((*located_part.path, "content", index), "", "superseded by a later screenshot")
        return (*(results[-1].content or ()), *texts)

    def _opaque_parts_as_text(self, content: tuple[Part, ...], path: SourcePath) -> tuple[Part, ...]:
        """Return the content with parts that only the client's protocol has replaced by their text."""
        parts: list[Part] = []
        for index, part in enumerate(content):
            text = None
            if isinstance(part, OpaquePart) and part.gist:
                text = opaque_as_text(part, (*path, "content", index), self._plan)
            parts.append(part if text is None else Text(text=text))
        return tuple(parts)

    def _reduce_to_screenshot(
        self, result: ToolResult, path: SourcePath, trailing_parts: list[LocatedPart]
    ) -> ToolResult:
        """Return the result with one screenshot as its only content.

        Its texts become the result of an additional call in `trailing_parts`, since text from a screen must not look
        like a user's message.
        """
        screenshot, texts = self._split_content(result, path)
        reports = result.screen is not None  # a placeholder has no screen, and nothing of it can be lost
        if result.status != "ok" and reports:
            self._report.approximated(path, "status", _MOVED_BESIDE)
        if texts or result.status != "ok":
            id = f"{result.call_id}_said"
            trailing_parts.append(LocatedPart(ToolCall(id=id, name=_TEXT_CALL_NAME, arguments="{}"), path))
            content = (Text(text="\n".join(texts)),) if texts else ()
            trailing_parts.append(LocatedPart(ToolResult(call_id=id, content=content, status=result.status), path))
        if screenshot is None and reports:
            self._report.approximated(path, "content", "results must be screenshots: the last one is sent again")
        if screenshot is None:
            screenshot = self._tracker.screenshot or _BLANK_SCREENSHOT
        return replace(result, content=(screenshot,))

    def _split_content(self, result: ToolResult, path: SourcePath) -> tuple[Media | None, list[str]]:
        """Return the screenshot and the texts of a result, and report everything that is not a screenshot."""
        screenshot: Media | None = None
        texts: list[str] = []
        observation = result.screen
        for index, part in enumerate(result.content or ()):
            part_path = (*path, "content", index)
            if isinstance(part, Media) and part.kind == "image" and not isinstance(part.source, FileId | Nested):
                screenshot = part
            elif (text := _part_text(part)) is not None and (observation is None or index not in observation.parts):
                texts.append(text)
                if observation is not None:
                    self._report.approximated(part_path, "", _MOVED_BESIDE)
            elif observation is not None:
                self._report.dropped(part_path, "", "results must be screenshots")
        return screenshot, texts


def _part_text(part: Part) -> str | None:
    """Return the text of a part, or a text that stands for it; None if it has neither."""
    match part:
        case Text(text=text) | OpaquePart(gist=str(text)):
            return text
        case Data(json=raw):
            return str(raw, "utf-8")
        case _:
            return None


def _acknowledges(result: ToolResult, checks: tuple[SafetyCheck, ...]) -> bool:
    """Return whether a person acknowledged all of these checks."""
    observation = result.screen
    if observation is None or not observation.acknowledged:
        return not checks
    return not observation.checks or {check.id for check in checks} <= set(observation.checks)
