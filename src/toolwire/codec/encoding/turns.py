"""Turns: a conversation as targets want it, who alternate roles and answer every call at once.

Decoders keep one Message per wire message. For its own protocol an encoder writes those back one by one (`as_written`).
For another it asks for turns (`assemble`):

1. Messages of one role in a row make one turn. System text keeps its place; only the leading run is lifted.
2. Results stand first in the turn after their calls, in call order, one for each call. Pairing is within the turn: ids
   may repeat later.
3. A call that the next turn leaves unanswered gets a placeholder. At the end of the conversation it does not: its
   result is still to come, and what was sent must stay a prefix of what will be.
4. A result whose call is not in the turn before (late, or an orphan) stays where it is, as marked text: still data.
5. Of two results for one call the last one counts, at the place of the first.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Role, Text, ToolCall, ToolChange, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.encoding.ids import derive_call_id
from toolwire.codec.losses import UNLOCATED, LossReport, SourcePath

_LEADING_TYPES = (Text, ToolChange)
UNANSWERED_TEXT = "[no result was recorded for this call]"


class LocatedPart(Struct, frozen=True, gc=False):
    """A part and the trail that leads to it."""

    part: Part
    path: SourcePath


class Turn(Struct, gc=False):
    """What one side says. `message` is there when the turn is exactly one message of the source, else `messages` are
    those that it was made of, with their numbers; `placed` is not while nobody asked where its parts stand."""

    role: Role
    located_parts: list[LocatedPart] | None
    message: Message | None
    path: SourcePath
    messages: list[tuple[int, Message]] | None = None

    @property
    def parts(self) -> list[LocatedPart]:
        if self.located_parts is None:
            self.located_parts = []
            if self.message is not None:
                self._locate(self.message, self.path)
            for index, message in self.messages or ():
                self._locate(message, ("messages", index))
        return self.located_parts

    def _locate(self, message: Message, path: SourcePath) -> None:
        self.parts.extend([LocatedPart(part, (*path, "parts", index)) for index, part in enumerate(message.parts)])


def one_turn_per_message(messages: tuple[Message, ...]) -> list[Turn]:
    return [Turn(message.role, None, message, ("messages", index)) for index, message in enumerate(messages)]


def leading_system_count(messages: tuple[Message, ...]) -> int:
    """How many messages at the start are system text, or say which tools there are."""
    count = 0
    for message in messages:
        if message.role not in ("system", "developer"):
            break
        if not all(isinstance(part, _LEADING_TYPES) for part in message.parts):
            break
        count += 1
    return count


def ends_with_assistant_text(messages: tuple[Message, ...]) -> bool:
    """Whether a conversation ends with a text of the model's, which some providers go on with."""
    last = messages[-1] if messages else None
    return last is not None and last.role == "assistant" and bool(last.parts) and isinstance(last.parts[-1], Text)


def assemble(request: Request, report: LossReport, *, skip: int = 0, supports_prefill: bool = False) -> list[Turn]:
    """The turns of a conversation, for a target that wants results right after their calls. `continues`: it goes on
    with a last text of the model's."""
    if request.continued and not supports_prefill and ends_with_assistant_text(request.messages):
        place = len(request.messages) - 1
        trail = ("messages", place, "parts", len(request.messages[place].parts) - 1)
        report.approximated(trail, "", "the target begins an answer of its own after it, and does not continue it")
    turns: list[Turn] = []
    held: list[Turn] = []
    last, start = None, skip
    nameless = False
    ids = set[str]()
    orderly = True  # as most are: each call answered in the next turn, in order
    asked: list[Part] = []
    for index in range(skip, len(request.messages)):
        message = request.messages[index]
        role = message.role
        if last is not None and last.role == role and role in ("user", "assistant"):
            if last.messages is None and last.message is not None:
                last.messages = [(start, last.message)]
                last.message = None
            if last.messages is not None:
                last.messages.append((index, message))
            orderly = orderly and role == "assistant"
        else:
            turn = Turn(role, None, message, ("messages", index))
            if (
                last is not None
                and last.role == "assistant"
                and role in ("system", "developer")
                and _has_client_calls(parts_of(last))
            ):
                held.append(turn)
                orderly = False
                continue
            turns.append(turn)
            if held and role == "user":
                _move_after_results(held, turns, report)
            last, start = turn, index
        if role == "assistant":
            asked += message.parts
            for part in message.parts:
                if type(part) is ToolCall:
                    if not part.id or part.id in ids:
                        nameless = True
                    else:
                        ids.add(part.id)
        elif role == "user":
            ids.clear()
            orderly = orderly and _starts_with_results(message.parts, asked)
            asked = []
    turns += held
    if nameless or not orderly:
        _assign_missing_ids(turns, report)
    return turns if orderly and not nameless else _pair_results(turns, report)


def _move_after_results(system_turns: list[Turn], turns: list[Turn], report: LossReport) -> None:
    """System text that stood between calls and their results, or what is put in their place, comes after them."""
    for turn in system_turns:
        report.approximated(turn.path, "", "moved behind the results that it stood before")
    turns += system_turns
    system_turns.clear()


def _assign_missing_ids(turns: list[Turn], report: LossReport) -> None:
    """Give an id to each call that has none or another call's, and to the results that can only be matched by name and
    order. Google's SDK leaves out the ids of results where the calls have some; small servers repeat the ids of calls,
    which Anthropic refuses."""
    for number, turn in enumerate(turns):
        if turn.role == "assistant" and ToolCall in map(type, parts_of(turn)):
            following = next((t for t in turns[number + 1 :] if t.role in ("user", "assistant")), None)
            if _has_missing_ids(parts_of(turn)) or (following is not None and _has_missing_ids(parts_of(following))):
                _assign_turn_ids(turn, following, report)


def _has_missing_ids(parts: Sequence[Part]) -> bool:
    """Whether a call has no id, or that of another, or a result does not say whose it is."""
    ids = [part.id for part in parts if isinstance(part, ToolCall)]
    return not all(ids) or len(set(ids)) < len(ids) or any(isinstance(p, ToolResult) and not p.call_id for p in parts)


def _assign_turn_ids(turn: Turn, next_turn: Turn | None, report: LossReport) -> None:
    ids, repeated = set[str](), set[str]()
    for position, placed in enumerate(turn.parts):
        part = placed.part
        if isinstance(part, ToolCall) and (not part.id or part.id in ids):
            if part.id:
                repeated.add(part.id)
                report.approximated(placed.path, "id", "another call of the turn has the same id")
            id = derive_call_id(part.name, part.arguments, *(step for step in placed.path if isinstance(step, int)))
            turn.parts[position] = LocatedPart(replace(part, id=id), placed.path)
        elif isinstance(part, ToolCall) and part.id:
            ids.add(part.id)
    if next_turn is None or next_turn.role != "user":
        return
    answered = {part.call_id for part in parts_of(next_turn) if isinstance(part, ToolResult)}
    waiting = [call for call, _ in _client_calls(turn) if call.id not in answered]
    ids.clear()
    for position, placed in enumerate(next_turn.parts):
        part = placed.part
        if isinstance(part, ToolResult) and part.call_id and (part.call_id not in repeated or part.call_id not in ids):
            ids.add(part.call_id)
        elif isinstance(part, ToolResult) and waiting:
            match = next((call for call in waiting if call.name == part.name), waiting[0])
            waiting.remove(match)
            next_turn.parts[position] = LocatedPart(replace(part, call_id=match.id), placed.path)


_LocatedCall = tuple[ToolCall, SourcePath]


def _pair_results(turns: list[Turn], report: LossReport) -> list[Turn]:
    out: list[Turn] = []
    asking: Turn | None = None
    asked: Sequence[Part] = ()
    for turn in turns:
        parts = parts_of(turn)
        if turn.role == "assistant":
            if asking is not None:
                out.append(_placeholders(_client_calls(asking), report))
            asking, asked = (turn, parts) if _has_client_calls(parts) else (None, ())
        elif turn.role == "user":
            if not _starts_with_results(parts, asked):
                turn = _pair_turn(turn, [] if asking is None else _client_calls(asking), report)  # noqa: PLW2901
            asking, asked = None, ()
        out.append(turn)
    return out


def parts_of(turn: Turn) -> Sequence[Part]:
    """The parts of a turn, wherever they stand."""
    if turn.located_parts is not None:
        return [placed.part for placed in turn.located_parts]
    if turn.message is not None:
        return turn.message.parts
    return [part for _, message in turn.messages or () for part in message.parts]


def _has_client_calls(parts: Sequence[Part]) -> bool:
    """Whether there is a call among the parts that the client is to answer."""
    return any(part.executor == "client" for part in parts if type(part) is ToolCall)


def _client_calls(turn: Turn) -> list[_LocatedCall]:
    """The calls that the client is to answer."""
    found: list[_LocatedCall] = []
    for placed in turn.parts:
        part = placed.part
        if isinstance(part, ToolCall) and part.executor == "client":
            found.append((part, placed.path))
    return found


def _starts_with_results(parts: Sequence[Part], previous_parts: Sequence[Part]) -> bool:
    """Whether what is said starts with exactly one result for each call, in order, as it mostly does."""
    place = 0
    for call in previous_parts:
        if type(call) is ToolCall and call.executor == "client":
            if place == len(parts):
                return False
            result = parts[place]
            if type(result) is not ToolResult or result.call_id != call.id:
                return False
            place += 1
    return place == len(parts) or ToolResult not in map(type, parts[place:])


def _pair_turn(turn: Turn, calls: list[_LocatedCall], report: LossReport) -> Turn:
    answers: dict[str | None, LocatedPart] = {}
    others: list[LocatedPart] = []
    wanted = {call.id for call, _ in calls}
    for placed in turn.parts:
        part = placed.part
        if isinstance(part, ToolResult) and part.executor == "client" and part.call_id in wanted:
            if part.call_id in answers:
                report.dropped(answers[part.call_id].path, "", "a later result answers the same call")
            answers[part.call_id] = placed
        elif isinstance(part, ToolResult) and part.executor == "client":
            report.approximated(placed.path, "call_id", "no call of the turn before has this id: sent as text")
            if part.status != "ok":
                report.approximated(placed.path, "status", "told in words before the text")
            others.extend(_orphan_as_text(placed, part))
        else:
            others.append(placed)
    results = [answers.get(call.id) or _placeholder(call, trail, report) for call, trail in calls]
    return Turn(turn.role, results + others, turn.message, turn.path)


def _orphan_as_text(located_part: LocatedPart, result: ToolResult) -> Iterable[LocatedPart]:
    label = result.name or "a tool"
    outcome = "" if result.status == "ok" else f": {result.status}"
    yield LocatedPart(Text(text=f"[result of {label}, call {result.call_id}{outcome}]"), located_part.path)
    for index, part in enumerate(result.content or ()):
        yield LocatedPart(part, (*located_part.path, "content", index))


def _placeholders(calls: list[_LocatedCall], report: LossReport) -> Turn:
    return Turn("user", [_placeholder(call, trail, report) for call, trail in calls], None, calls[0][1][:2])


def _placeholder(call: ToolCall, path: SourcePath, report: LossReport) -> LocatedPart:
    report.added(
        path, "", UNLOCATED + UNANSWERED_TEXT, "the target wants every call answered: a placeholder result was added"
    )
    result = ToolResult(call_id=call.id, content=(Text(text=UNANSWERED_TEXT),))
    return LocatedPart(result, path)
