"""A request that drives a screen, for a target of another form: the tool, the calls of the history, their results."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.computer import SafetyCheck
from toolwire.canonical.content import (
    Data,
    FileId,
    Foreign,
    Inline,
    Media,
    Nested,
    Part,
    ScreenUse,
    Text,
    ToolCall,
    ToolResult,
)
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Computer, NativeTool, Tool

from .computer import (
    Form,
    OnScreen,
    Saying,
    Watching,
    arguments_of,
    computers_of,
    functions_of,
    piece_id,
    pieces,
    told,
    whole_id,
)
from .hosted import chosen
from .losses import Trail, elements
from .plan import Plan
from .telling import gist_of
from .turns import Placed, Turn

_NOTHING_SEEN = Media(
    kind="image",
    media_type="image/png",
    source=Inline(
        data="iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    ),
)
"""The smallest picture, where one is wanted and none was ever taken."""

_SAID = "computer_said"
_ASIDE = "the target's result is a picture: told as the result of a call beside it"
SEEN = "the target goes by its screenshots"


# ---- the tool


def on_screen(request: Request, plan: Plan, form: Form) -> Request:
    """The request with the target's tool in place of the client's; its plan knows how to tell the rest."""
    if plan.home or request.origin in form.kin or not (computers := computers_of(request.tools)):
        return request
    made, own = form.declare(_wanted(computers), plan.target.model or request.model or "")
    tools: list[Tool] = []
    for index, tool in enumerate(request.tools or ()):
        if not isinstance(tool, NativeTool) or tool.computer is None or plan.screen is not None:
            tools.append(tool)
            continue
        _report_declared(tool, own, ("tools", index), plan, native=isinstance(made, NativeTool))
        tools.append(replace(made, at=tool.at))
        plan.screen = ScreenPlan(form, own, computers, plan)
    watching = Watching(computers)
    for message in request.messages:
        for part in message.parts:
            watching.see(part)
    point = watching.saying.point
    plan.tools.undo.screen = OnScreen(form, computers, functions_of(request), watching.size, point)
    return _choosing(replace(request, tools=tuple(tools)), request, plan)


def _wanted(computers: Sequence[Computer]) -> Computer:
    """What all the client's tools can do together."""
    kinds = tuple(dict.fromkeys(kind for one in computers for kind in one.kinds))
    browsing = any(one.environment == "browser" for one in computers)
    return replace(computers[0], kinds=kinds, environment="browser" if browsing else computers[0].environment)


def _report_declared(tool: NativeTool, own: Computer, trail: Trail, plan: Plan, *, native: bool) -> None:
    computer = tool.computer
    if computer is None:
        return
    if not native:
        plan.report.approximated(trail, "", "declared as a function, which the client runs")
    for field, why in (("width", SEEN), ("height", SEEN), ("environment", "the target's tool is the same everywhere")):
        said = getattr(computer, field)
        if said is not None and getattr(own, field) != said and field not in computer.form:
            plan.report.dropped((*trail, "computer"), field, why)
    for pointer in computer.others:
        plan.report.dropped(trail, "//" + pointer, "the target's tool has no such setting")


def _choosing(made: Request, request: Request, plan: Plan) -> Request:
    """A choice of the client's tool: no other form of it can be forced by its name."""
    named = chosen(request)
    if named is None or named.computer is None or request.tool_choice is None:
        return made
    plan.report.approximated(("tool_choice",), "names", "the target's tool can't be named: some tool is to be called")
    return replace(made, tool_choice=replace(request.tool_choice, mode="required", names=(), required=False))


# ---- the calls and their results


def screened(turns: list[Turn], plan: Plan) -> list[Turn]:
    return turns if plan.screen is None else plan.screen.tell(turns)


class _Told(Struct):
    """A call, or all pieces of one, as the target has it: the ids of what was, and of what there is now. `checks` are
    told to the target; it can't be told of `guarded` ones."""

    calls: list[ToolCall]
    ids: tuple[str, ...]
    checks: tuple[SafetyCheck, ...]
    guarded: tuple[SafetyCheck, ...]
    trails: list[Trail]


class ScreenPlan:
    """Tells the turns of a conversation in order: where the pointer is, and what was seen last, goes on with them."""

    def __init__(self, form: Form, own: Computer, computers: Sequence[Computer], plan: Plan) -> None:
        self._form = form
        self._own = own
        self._plan = plan
        self._report = plan.report
        self._watching = Watching(computers)

    def tell(self, turns: list[Turn]) -> list[Turn]:
        waiting: dict[str, _Told] = {}
        made = []
        for turn in turns:
            parts = turn.parts
            if turn.role == "assistant":
                self._unanswered(waiting)
                waiting = {}
                parts = self._calls(parts, waiting)
            elif waiting and turn.role == "user":
                parts = self._results(parts, waiting)
            else:
                for placed in parts:
                    self._watching.see(placed.part)
            made.append(turn if parts is turn.parts else Turn(turn.role, parts, turn.message, turn.trail))
        self._unanswered(waiting)
        return made

    # -- calls

    def _calls(self, places: list[Placed], waiting: dict[str, _Told]) -> list[Placed]:
        calls = [place for place in places if isinstance(place.part, ToolCall) and place.part.screen is not None]
        if not calls:
            return places
        trails = {id(place.part): place.trail for place in calls}
        groups = {
            id(group[0]): group for group in pieces([place.part for place in calls if isinstance(place.part, ToolCall)])
        }
        out: list[Placed] = []
        for place in places:
            if id(place.part) not in trails:
                out.append(place)
            elif (group := groups.get(id(place.part))) is not None:
                out += self._retold(group, [trails[id(one)] for one in group], waiting)
        return out

    def _retold(self, group: list[ToolCall], trails: list[Trail], waiting: dict[str, _Told]) -> list[Placed]:
        uses = [call.screen for call in group if call.screen is not None]
        saying = Saying(self._watching.size, self._watching.saying.point)
        spoken = told(tuple(action for use in uses for action in use.actions), self._own, self._form, saying)
        for call in group:
            self._watching.see(call)
        checks = tuple(check for use in uses for check in use.checks)
        if spoken is None:
            one = _Told(group, (), (), checks, trails)
            waiting.update({call.id or "": one for call in group if checks})
            return self._as_functions(group, trails)
        self._report_telling(uses, trails, saying)
        whole = whole_id(group)
        ids = tuple(piece_id(whole, number, len(spoken)) for number in range(1, len(spoken) + 1))
        sayable, guarded = (checks, ()) if self._form.checks else ((), checks)
        one = _Told(group, ids, sayable, guarded, trails)
        waiting.update(dict.fromkeys([call.id or "" for call in group], one))
        out = []
        for number, (said, own_id) in enumerate(zip(spoken, ids, strict=True)):
            first = group[0] if number == 0 else None
            call = ToolCall(
                id=own_id,
                name=said.name,
                arguments=arguments_of(said),
                caller=group[0].caller,
                seal=None if first is None else first.seal,
                cache=None if first is None else first.cache,
            )
            out.append(Placed(self._form.call(call, self._own, () if number else sayable), trails[0]))
        return out

    def _as_functions(self, group: list[ToolCall], trails: list[Trail]) -> list[Placed]:
        out = []
        for call, trail in zip(group, trails, strict=True):
            self._report.approximated(trail, "", "it can't be told in the target's form: a call of a function")
            if call.toolset is not None:
                self._report.dropped(trail, "toolset")
            out.append(Placed(replace(call, native=None, toolset=None), trail))
        return out

    def _report_telling(self, uses: list[ScreenUse], trails: list[Trail], saying: Saying) -> None:
        places = [(trail, place) for use, trail in zip(uses, trails, strict=True) for place in use.places]
        for index, why in saying.lost:
            trail, place = places[index]
            self._report.rewritten(trail, "arguments", [("approximated", place, why)])
        for use, trail in zip(uses, trails, strict=True):
            why = "the target's action has no such setting"
            self._report.rewritten(trail, "arguments", [("dropped", pointer, why) for pointer in use.others])

    def _unanswered(self, waiting: dict[str, _Told]) -> None:
        """Checks that nobody agreed to, where the target can't be told of them."""
        for one in {id(one): one for one in waiting.values()}.values():
            if one.guarded:
                self._guard(one, agreed=False)

    def _guard(self, one: _Told, *, agreed: bool) -> None:
        for call, trail in zip(one.calls, one.trails, strict=True):
            if call.screen is not None and call.screen.checks:
                why = "the target has no safety checks" if agreed else "a person must agree to it first"
                for pointer in call.screen.checked:
                    self._report.dropped(trail, f"//{pointer}", why, guarded=not agreed)

    # -- results

    def _results(self, places: list[Placed], waiting: dict[str, _Told]) -> list[Placed]:
        found: dict[int, list[Placed]] = {}
        for place in places:
            if isinstance(place.part, ToolResult) and (one := waiting.get(place.part.call_id or "")) is not None:
                found.setdefault(id(one), []).append(place)
        out: list[Placed] = []
        beside: list[Placed] = []
        for place in places:
            part = place.part
            one = waiting.get(part.call_id or "") if isinstance(part, ToolResult) else None
            if one is None:
                self._watching.see(part)
                (out if isinstance(part, ToolResult) else beside).append(place)
            elif place is found[id(one)][0]:
                out += self._answers(one, found[id(one)], beside)
        for number in found:
            waiting_for = [key for key, one in waiting.items() if id(one) == number]
            for key in waiting_for:
                del waiting[key]
        return out + beside

    def _answers(self, one: _Told, places: list[Placed], beside: list[Placed]) -> list[Placed]:
        results = [place.part for place in places if isinstance(place.part, ToolResult)]
        agreed = all(_agrees(result, one.checks or one.guarded) for result in results if result.screen is not None)
        if one.guarded:
            self._guard(one, agreed=agreed)
        for place, result in zip(places, results, strict=True):
            self._report_result(result, place.trail, one)
        if not one.ids:
            for result in results:
                self._watching.see(result)
            return places
        paired = len(one.ids) == len(results)
        out = []
        for number, own_id in enumerate(one.ids):
            place = places[number if paired else -1]
            source = results[number if paired else -1]
            last = number == len(one.ids) - 1
            content = source.content if paired else self._combined(places, results) if last else ()
            made = replace(
                source,
                call_id=own_id,
                content=content,
                name=None,
                toolset=None,
                native=None,
                form=(),
                extras=None,
                status=source.status if paired or last else "ok",
            )
            self._watching.see(made)
            if self._form.pictures_only:
                made = self._pictured(made, place.trail, beside)
            else:
                made = replace(
                    made, content=None if made.content is None else self._in_words(made.content, place.trail)
                )
            screen = (
                None if made.screen is None else replace(made.screen, acknowledged=made.screen.acknowledged and agreed)
            )
            made = self._form.result(replace(made, screen=screen), self._own, one.checks if number == 0 else ())
            out.append(Placed(made, place.trail))
        return out

    def _report_result(self, result: ToolResult, trail: Trail, one: _Told) -> None:
        if result.name is not None and result.name not in [call.name for call in one.calls]:
            self._report.dropped(trail, "name", "the call that it answers has another name")
        if result.toolset is not None and result.toolset not in [call.toolset for call in one.calls]:
            self._report.dropped(trail, "toolset")
        for kept in (result.extras or {}).values():
            for key in [key for key in kept if key.endswith("_safety_checks")]:
                for pointer in elements(kept[key], key):
                    if one.checks:
                        self._report.approximated(trail, "//" + pointer, "one word agrees to all of them")
                    else:
                        self._report.dropped(trail, "//" + pointer, "the target has no safety checks")

    def _combined(self, places: list[Placed], results: list[ToolResult]) -> tuple[Part, ...]:
        """What the pieces of a call brought: what the last one did, and what the others said."""
        texts: list[Part] = []
        for place, result in zip(places[:-1], results[:-1], strict=True):
            for index, part in enumerate(result.content or ()):
                if isinstance(part, Text):
                    texts.append(part)
                else:
                    self._report.dropped((*place.trail, "content", index), "", "a later picture shows what came of it")
        return (*(results[-1].content or ()), *texts)

    def _in_words(self, content: tuple[Part, ...], trail: Trail) -> tuple[Part, ...]:
        """With what only the client's protocol has told as text, beside the other words that there are."""
        parts: list[Part] = []
        for index, part in enumerate(content):
            text = None
            if isinstance(part, Foreign) and part.gist:
                text = gist_of(part, (*trail, "content", index), self._plan)
            parts.append(part if text is None else Text(text=text))
        return tuple(parts)

    def _pictured(self, result: ToolResult, trail: Trail, beside: list[Placed]) -> ToolResult:
        """A result that is one picture. What else was said in it is told as the result of a call beside it: text from a
        screen is nothing that a user says."""
        picture: Media | None = None
        said: list[str] = []
        seen = result.screen  # without it the result only stands for one, and nothing of it can be lost
        for index, part in enumerate(result.content or ()):
            place = (*trail, "content", index)
            if isinstance(part, Media) and part.kind == "image" and not isinstance(part.source, FileId | Nested):
                picture = part
            elif (text := _text(part)) is not None and (seen is None or index not in seen.parts):
                said.append(text)
                if seen is not None:
                    self._report.approximated(place, "", _ASIDE)
            elif seen is not None:
                self._report.dropped(place, "", "the target's result is a picture")
        if result.status != "ok" and seen is not None:
            self._report.approximated(trail, "status", _ASIDE)
        if said or result.status != "ok":
            id = f"{result.call_id}_said"
            beside.append(Placed(ToolCall(id=id, name=_SAID, arguments="{}"), trail))
            words = (Text(text="\n".join(said)),) if said else ()
            beside.append(Placed(ToolResult(call_id=id, content=words, status=result.status), trail))
        if picture is None and seen is not None:
            self._report.approximated(trail, "content", "a picture is wanted: the one seen last is told again")
        if picture is None:
            picture = self._watching.picture or _NOTHING_SEEN
        return replace(result, content=(picture,))


def _text(part: Part) -> str | None:
    match part:
        case Text(text=text) | Foreign(gist=str(text)):
            return text
        case Data(json=raw):
            return str(raw, "utf-8")
        case _:
            return None


def _agrees(result: ToolResult, checks: tuple[SafetyCheck, ...]) -> bool:
    """Whether a person agreed to all of these."""
    seen = result.screen
    if seen is None or not seen.acknowledged:
        return not checks
    return not seen.checks or {check.id for check in checks} <= set(seen.checks)
