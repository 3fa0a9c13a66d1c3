"""A request that drives a screen, for a target of another form: the tool, the calls of the history, their results."""

from collections.abc import Sequence

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
"""The smallest picture, where one is wanted and none was ever taken."""

_TEXT_CALL_NAME = "computer_said"
_MOVED_BESIDE = "the target's result is a picture: told as the result of a call beside it"
SIZE_FROM_SCREENSHOTS = "the target goes by its screenshots"


# ---- the tool


def use_target_tool(request: Request, plan: EncodingPlan, adapter: ComputerUseAdapter) -> Request:
    """The request with the target's tool in place of the client's; its plan knows how to tell the rest."""
    if (
        plan.same_protocol
        or request.origin in adapter.compatible_families
        or not (computers := computers_of(request.tools))
    ):
        return request
    made, own = adapter.declare_tool(_combined_computer(computers), plan.target.model or request.model or "")
    tools: list[Tool] = []
    for index, tool in enumerate(request.tools or ()):
        if not isinstance(tool, NativeTool) or tool.computer is None or plan.computer_use is not None:
            tools.append(tool)
            continue
        _report_declaration(tool, own, ("tools", index), plan, native=isinstance(made, NativeTool))
        tools.append(replace(made, at=tool.at))
        plan.computer_use = ComputerUsePlan(adapter, own, computers, plan)
    watching = ScreenTracker(computers)
    for message in request.messages:
        for part in message.parts:
            watching.observe(part)
    point = watching.state.point
    plan.tools.mapping.computer_use = ScreenContext(adapter, computers, function_names(request), watching.size, point)
    return _adapt_choice(replace(request, tools=tuple(tools)), request, plan)


def _combined_computer(computers: Sequence[Computer]) -> Computer:
    """What all the client's tools can do together."""
    kinds = tuple(dict.fromkeys(kind for one in computers for kind in one.kinds))
    browsing = any(one.environment == "browser" for one in computers)
    return replace(computers[0], kinds=kinds, environment="browser" if browsing else computers[0].environment)


def _report_declaration(
    tool: NativeTool, target_computer: Computer, path: SourcePath, plan: EncodingPlan, *, native: bool
) -> None:
    computer = tool.computer
    if computer is None:
        return
    if not native:
        plan.report.approximated(path, "", "declared as a function, which the client runs")
    for field, why in (
        ("width", SIZE_FROM_SCREENSHOTS),
        ("height", SIZE_FROM_SCREENSHOTS),
        ("environment", "the target's tool is the same everywhere"),
    ):
        said = getattr(computer, field)
        if said is not None and getattr(target_computer, field) != said and field not in computer.wire_form:
            plan.report.dropped((*path, "computer"), field, why)
    for pointer in computer.others:
        plan.report.dropped(path, "//" + pointer, "the target's tool has no such setting")


def _adapt_choice(adapted: Request, request: Request, plan: EncodingPlan) -> Request:
    """A choice of the client's tool: no other form of it can be forced by its name."""
    named = chosen_native_tool(request)
    if named is None or named.computer is None or request.tool_choice is None:
        return adapted
    plan.report.approximated(("tool_choice",), "names", "the target's tool can't be named: some tool is to be called")
    return replace(adapted, tool_choice=replace(request.tool_choice, mode="required", names=(), required=False))


# ---- the calls and their results


def adapt_turns(turns: list[Turn], plan: EncodingPlan) -> list[Turn]:
    return turns if plan.computer_use is None else plan.computer_use.adapt_turns(turns)


class _AdaptedCall(Struct):
    """A call, or all pieces of one, as the target has it: the ids of what was, and of what there is now. `checks` are
    told to the target; it can't be told of `guarded` ones."""

    calls: list[ToolCall]
    ids: tuple[str, ...]
    checks: tuple[SafetyCheck, ...]
    unsupported_checks: tuple[SafetyCheck, ...]
    paths: list[SourcePath]


class ComputerUsePlan:
    """Tells the turns of a conversation in order: where the pointer is, and what was seen last, goes on with them."""

    def __init__(
        self, adapter: ComputerUseAdapter, target_computer: Computer, computers: Sequence[Computer], plan: EncodingPlan
    ) -> None:
        self._adapter = adapter
        self._target_computer = target_computer
        self._plan = plan
        self._report = plan.report
        self._tracker = ScreenTracker(computers)

    def adapt_turns(self, turns: list[Turn]) -> list[Turn]:
        waiting: dict[str, _AdaptedCall] = {}
        made = []
        for turn in turns:
            parts = turn.parts
            if turn.role == "assistant":
                self._report_unanswered_checks(waiting)
                waiting = {}
                parts = self._adapt_calls(parts, waiting)
            elif waiting and turn.role == "user":
                parts = self._adapt_results(parts, waiting)
            else:
                for placed in parts:
                    self._tracker.observe(placed.part)
            made.append(turn if parts is turn.parts else Turn(turn.role, parts, turn.message, turn.path))
        self._report_unanswered_checks(waiting)
        return made

    # -- calls

    def _adapt_calls(
        self, located_parts: list[LocatedPart], pending_calls: dict[str, _AdaptedCall]
    ) -> list[LocatedPart]:
        calls = [place for place in located_parts if isinstance(place.part, ToolCall) and place.part.screen is not None]
        if not calls:
            return located_parts
        trails = {id(place.part): place.path for place in calls}
        groups = {
            id(group[0]): group
            for group in group_split_calls([place.part for place in calls if isinstance(place.part, ToolCall)])
        }
        out: list[LocatedPart] = []
        for place in located_parts:
            if id(place.part) not in trails:
                out.append(place)
            elif (group := groups.get(id(place.part))) is not None:
                out += self._adapt_group(group, [trails[id(one)] for one in group], pending_calls)
        return out

    def _adapt_group(
        self, group: list[ToolCall], paths: list[SourcePath], pending_calls: dict[str, _AdaptedCall]
    ) -> list[LocatedPart]:
        uses = [call.screen for call in group if call.screen is not None]
        saying = ActionEncodingState(self._tracker.size, self._tracker.state.point)
        spoken = encode_actions(
            tuple(action for use in uses for action in use.actions), self._target_computer, self._adapter, saying
        )
        for call in group:
            self._tracker.observe(call)
        checks = tuple(check for use in uses for check in use.checks)
        if spoken is None:
            one = _AdaptedCall(group, (), (), checks, paths)
            pending_calls.update({call.id or "": one for call in group if checks})
            return self._as_functions(group, paths)
        self._report_encoding(uses, paths, saying)
        whole = original_call_id(group)
        ids = tuple(split_call_id(whole, number, len(spoken)) for number in range(1, len(spoken) + 1))
        sayable, guarded = (checks, ()) if self._adapter.has_safety_checks else ((), checks)
        one = _AdaptedCall(group, ids, sayable, guarded, paths)
        pending_calls.update(dict.fromkeys([call.id or "" for call in group], one))
        out = []
        for number, (said, own_id) in enumerate(zip(spoken, ids, strict=True)):
            first = group[0] if number == 0 else None
            call = ToolCall(
                id=own_id,
                name=said.name,
                arguments=encode_arguments(said),
                caller=group[0].caller,
                signature=None if first is None else first.signature,
                cache=None if first is None else first.cache,
            )
            out.append(
                LocatedPart(self._adapter.finish_call(call, self._target_computer, () if number else sayable), paths[0])
            )
        return out

    def _as_functions(self, group: list[ToolCall], paths: list[SourcePath]) -> list[LocatedPart]:
        out = []
        for call, trail in zip(group, paths, strict=True):
            self._report.approximated(trail, "", "it can't be told in the target's form: a call of a function")
            if call.toolset is not None:
                self._report.dropped(trail, "toolset")
            out.append(LocatedPart(replace(call, native=None, toolset=None), trail))
        return out

    def _report_encoding(self, uses: list[ComputerUse], paths: list[SourcePath], state: ActionEncodingState) -> None:
        places = [(trail, place) for use, trail in zip(uses, paths, strict=True) for place in use.places]
        for index, why in state.losses:
            trail, place = places[index]
            self._report.rewritten(trail, "arguments", [("approximated", place, why)])
        for use, trail in zip(uses, paths, strict=True):
            why = "the target's action has no such setting"
            self._report.rewritten(trail, "arguments", [("dropped", pointer, why) for pointer in use.others])

    def _report_unanswered_checks(self, pending_calls: dict[str, _AdaptedCall]) -> None:
        """Checks that nobody agreed to, where the target can't be told of them."""
        for one in {id(one): one for one in pending_calls.values()}.values():
            if one.unsupported_checks:
                self._report_checks(one, acknowledged=False)

    def _report_checks(self, adapted: _AdaptedCall, *, acknowledged: bool) -> None:
        for call, trail in zip(adapted.calls, adapted.paths, strict=True):
            if call.screen is not None and call.screen.checks:
                why = "the target has no safety checks" if acknowledged else "a person must agree to it first"
                for pointer in call.screen.checked:
                    self._report.dropped(trail, f"//{pointer}", why, constraint=not acknowledged)

    # -- results

    def _adapt_results(
        self, located_parts: list[LocatedPart], pending_calls: dict[str, _AdaptedCall]
    ) -> list[LocatedPart]:
        found: dict[int, list[LocatedPart]] = {}
        for place in located_parts:
            if isinstance(place.part, ToolResult) and (one := pending_calls.get(place.part.call_id or "")) is not None:
                found.setdefault(id(one), []).append(place)
        out: list[LocatedPart] = []
        beside: list[LocatedPart] = []
        for place in located_parts:
            part = place.part
            one = pending_calls.get(part.call_id or "") if isinstance(part, ToolResult) else None
            if one is None:
                self._tracker.observe(part)
                (out if isinstance(part, ToolResult) else beside).append(place)
            elif place is found[id(one)][0]:
                out += self._encode_results(one, found[id(one)], beside)
        for number in found:
            waiting_for = [key for key, one in pending_calls.items() if id(one) == number]
            for key in waiting_for:
                del pending_calls[key]
        return out + beside

    def _encode_results(
        self, adapted: _AdaptedCall, located_parts: list[LocatedPart], beside: list[LocatedPart]
    ) -> list[LocatedPart]:
        results = [place.part for place in located_parts if isinstance(place.part, ToolResult)]
        agreed = all(
            _acknowledges(result, adapted.checks or adapted.unsupported_checks)
            for result in results
            if result.screen is not None
        )
        if adapted.unsupported_checks:
            self._report_checks(adapted, acknowledged=agreed)
        for place, result in zip(located_parts, results, strict=True):
            self._report_result(result, place.path, adapted)
        if not adapted.ids:
            for result in results:
                self._tracker.observe(result)
            return located_parts
        paired = len(adapted.ids) == len(results)
        out = []
        for number, own_id in enumerate(adapted.ids):
            place = located_parts[number if paired else -1]
            source = results[number if paired else -1]
            last = number == len(adapted.ids) - 1
            content = source.content if paired else self._combine_content(located_parts, results) if last else ()
            made = replace(
                source,
                call_id=own_id,
                content=content,
                name=None,
                toolset=None,
                native=None,
                wire_form=(),
                extras=None,
                status=source.status if paired or last else "ok",
            )
            self._tracker.observe(made)
            if self._adapter.screenshots_only:
                made = self._reduce_to_screenshot(made, place.path, beside)
            else:
                made = replace(
                    made, content=None if made.content is None else self._opaque_parts_as_text(made.content, place.path)
                )
            screen = (
                None if made.screen is None else replace(made.screen, acknowledged=made.screen.acknowledged and agreed)
            )
            made = self._adapter.finish_result(
                replace(made, screen=screen), self._target_computer, adapted.checks if number == 0 else ()
            )
            out.append(LocatedPart(made, place.path))
        return out

    def _report_result(self, result: ToolResult, path: SourcePath, adapted: _AdaptedCall) -> None:
        if result.name is not None and result.name not in [call.name for call in adapted.calls]:
            self._report.dropped(path, "name", "the call that it answers has another name")
        if result.toolset is not None and result.toolset not in [call.toolset for call in adapted.calls]:
            self._report.dropped(path, "toolset")
        for kept in (result.extras or {}).values():
            for key in [key for key in kept if key.endswith("_safety_checks")]:
                for pointer in element_pointers(kept[key], key):
                    if adapted.checks:
                        self._report.approximated(path, "//" + pointer, "one word agrees to all of them")
                    else:
                        self._report.dropped(path, "//" + pointer, "the target has no safety checks")

    def _combine_content(self, located_parts: list[LocatedPart], results: list[ToolResult]) -> tuple[Part, ...]:
        """What the pieces of a call brought: what the last one did, and what the others said."""
        texts: list[Part] = []
        for place, result in zip(located_parts[:-1], results[:-1], strict=True):
            for index, part in enumerate(result.content or ()):
                if isinstance(part, Text):
                    texts.append(part)
                else:
                    self._report.dropped((*place.path, "content", index), "", "a later picture shows what came of it")
        return (*(results[-1].content or ()), *texts)

    def _opaque_parts_as_text(self, content: tuple[Part, ...], path: SourcePath) -> tuple[Part, ...]:
        """With what only the client's protocol has told as text, beside the other words that there are."""
        parts: list[Part] = []
        for index, part in enumerate(content):
            text = None
            if isinstance(part, OpaquePart) and part.gist:
                text = opaque_as_text(part, (*path, "content", index), self._plan)
            parts.append(part if text is None else Text(text=text))
        return tuple(parts)

    def _reduce_to_screenshot(self, result: ToolResult, path: SourcePath, beside: list[LocatedPart]) -> ToolResult:
        """A result that is one picture. What else was said in it is told as the result of a call beside it: text from a
        screen is nothing that a user says."""
        picture: Media | None = None
        said: list[str] = []
        seen = result.screen  # without it the result only stands for one, and nothing of it can be lost
        for index, part in enumerate(result.content or ()):
            place = (*path, "content", index)
            if isinstance(part, Media) and part.kind == "image" and not isinstance(part.source, FileId | Nested):
                picture = part
            elif (text := _part_text(part)) is not None and (seen is None or index not in seen.parts):
                said.append(text)
                if seen is not None:
                    self._report.approximated(place, "", _MOVED_BESIDE)
            elif seen is not None:
                self._report.dropped(place, "", "the target's result is a picture")
        if result.status != "ok" and seen is not None:
            self._report.approximated(path, "status", _MOVED_BESIDE)
        if said or result.status != "ok":
            id = f"{result.call_id}_said"
            beside.append(LocatedPart(ToolCall(id=id, name=_TEXT_CALL_NAME, arguments="{}"), path))
            words = (Text(text="\n".join(said)),) if said else ()
            beside.append(LocatedPart(ToolResult(call_id=id, content=words, status=result.status), path))
        if picture is None and seen is not None:
            self._report.approximated(path, "content", "a picture is wanted: the one seen last is told again")
        if picture is None:
            picture = self._tracker.screenshot or _BLANK_SCREENSHOT
        return replace(result, content=(picture,))


def _part_text(part: Part) -> str | None:
    match part:
        case Text(text=text) | OpaquePart(gist=str(text)):
            return text
        case Data(json=raw):
            return str(raw, "utf-8")
        case _:
            return None


def _acknowledges(result: ToolResult, checks: tuple[SafetyCheck, ...]) -> bool:
    """Whether a person agreed to all of these."""
    seen = result.screen
    if seen is None or not seen.acknowledged:
        return not checks
    return not seen.checks or {check.id for check in checks} <= set(seen.checks)
