"""Turns of a request, ordered for encoding, and ids of calls and responses.

Derived ids are stable (the same history gives the same ids) and recognizable, so that they are never sent to a protocol
without call ids.

Turns: a conversation arranged for targets that alternate roles and require an immediate result for each call.

Decoders keep one Message per wire message. For its own protocol, an encoder writes them back one by one
(`one_turn_per_message`). For another protocol it uses `assemble`:

1. Consecutive messages of one role form one turn. System text keeps its position; only the leading run is lifted.
2. Results come first in the turn after their calls, in call order, one per call. Pairing stays within these two turns,
   since ids may repeat later.
3. A call without a result in the next turn gets a placeholder, except at the end of the conversation, where its result
   is still to come. So the history that was sent stays a prefix of what follows.
4. A result without a call in the previous turn stays in its position, as marked text.
5. Of two results for one call the last one counts, at the position of the first.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Role, Text, ToolCall, ToolChange, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.losses import UNLOCATED, LossReport, SourcePath

EMPTY_TEXT = "(nothing)"
"""Text of the user turn that is added where a target requires one."""

DERIVED_PREFIX = "call_tw"
ESCAPED_PREFIX = "twx_"
_DIGEST_PREFIX = "twh_"
_DERIVED_ID = re.compile(DERIVED_PREFIX + "[0-9a-f]{24}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9-]")
_ESCAPED_CHARACTER = re.compile(r"_([0-9a-f]{1,6})_")


def derive_call_id(name: str, arguments: str, *indexes: int) -> str:
    """Derive an id for a call without one: a digest of the call and its position in the conversation."""
    text = "\0".join((name, arguments, *map(str, indexes)))
    return DERIVED_PREFIX + hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def derive_response_id(request: Request | None) -> str:
    """Derive an id for a response without one: a digest of the conversation that it continues.

    Clients treat responses with the same id as pieces of one.
    """
    if request is None:
        return "tw"
    return hashlib.blake2s(msgspec.json.encode(request.messages), digest_size=12).hexdigest()


def is_derived_id(id: str) -> bool:
    """Return whether `derive_call_id` made an id; OpenAI's own ids may begin with `call_tw` as well."""
    return id.startswith(DERIVED_PREFIX) and _DERIVED_ID.fullmatch(id) is not None


def legal_id(id: str, pattern: re.Pattern[str], limit: int) -> str:
    """Return the id if the target accepts it, else an escaped form, or a digest if that is too long.

    An id that was escaped for another protocol is unescaped first.
    """
    id = original_id(id) or id
    if len(id) <= limit and pattern.fullmatch(id):
        return id
    # Escaping only lengthens an id.
    if len(ESCAPED_PREFIX) + len(id) <= limit:
        escaped = _escape_id(id)
        if len(escaped) <= limit and pattern.fullmatch(escaped):
            return escaped
    digest = hashlib.blake2s(id.encode(errors="surrogatepass"), digest_size=12).hexdigest()
    marked = _DIGEST_PREFIX + digest
    return marked if len(marked) <= limit and pattern.fullmatch(marked) else digest[:limit]


def _escape_id(id: str) -> str:
    """Return the id with every character that some target rejects escaped."""
    return ESCAPED_PREFIX + _ILLEGAL.sub(lambda match: f"_{ord(match[0]):x}_", id)


def original_id(id: str) -> str | None:
    """Return the id before escaping; None if it was not escaped or only a digest is left."""
    if not id.startswith(ESCAPED_PREFIX):
        return None
    try:
        original = _ESCAPED_CHARACTER.sub(lambda match: chr(int(match[1], 16)), id[len(ESCAPED_PREFIX) :])
        original.encode()
    except ValueError:
        return None
    return original if _escape_id(original) == id else None


_LEADING_TYPES = (Text, ToolChange)
UNANSWERED_TEXT = "[no result was recorded for this call]"


class LocatedPart(Struct, frozen=True, gc=False):
    """A part and its source path."""

    part: Part
    path: SourcePath


class Turn(Struct, gc=False):
    """Consecutive messages of one role."""

    role: Role
    located_parts: list[LocatedPart] | None  # None until requested
    message: Message | None  # set if the turn is exactly one message of the source
    path: SourcePath
    messages: list[tuple[int, Message]] | None = None  # otherwise its messages, with their indexes

    @property
    def parts(self) -> list[LocatedPart]:
        """Return the parts with their source paths, located on first use."""
        if self.located_parts is None:
            self.located_parts = []
            if self.message is not None:
                self._locate(self.message, self.path)
            for index, message in self.messages or ():
                self._locate(message, ("messages", index))
        return self.located_parts

    def _locate(self, message: Message, path: SourcePath) -> None:
        """Append the parts of a message, with their source paths, to the parts of the turn."""
        self.parts.extend([LocatedPart(part, (*path, "parts", index)) for index, part in enumerate(message.parts)])


def one_turn_per_message(messages: tuple[Message, ...]) -> list[Turn]:
    """Return each message as a turn of its own."""
    return [Turn(message.role, None, message, ("messages", index)) for index, message in enumerate(messages)]


def system_turns(request: Request) -> list[Turn]:
    """Return a turn with the system text that other protocols keep outside the messages; none without any."""
    if not request.system:
        return []
    located_parts = [LocatedPart(part, ("system", index)) for index, part in enumerate(request.system)]
    return [Turn("system", located_parts, None, ("system",))]


def leading_system_count(messages: tuple[Message, ...]) -> int:
    """Count the leading messages that contain only system text or tool changes."""
    count = 0
    for message in messages:
        if message.role not in ("system", "developer"):
            break
        if not all(isinstance(part, _LEADING_TYPES) for part in message.parts):
            break
        count += 1
    return count


def ends_with_assistant_text(messages: tuple[Message, ...]) -> bool:
    """Return whether a conversation ends with assistant text (prefill), which some providers continue."""
    last = messages[-1] if messages else None
    return last is not None and last.role == "assistant" and bool(last.parts) and isinstance(last.parts[-1], Text)


def assemble(request: Request, report: LossReport, *, skip: int = 0, supports_prefill: bool = False) -> list[Turn]:
    """Arrange a conversation in turns, with results right after their calls.

    `skip` omits leading messages. Unless the target continues a trailing assistant text (`supports_prefill`), that text
    is reported.
    """
    if request.continued and not supports_prefill:
        _report_prefill(request.messages, report)
    turns: list[Turn] = []
    system_turns: list[Turn] = []  # between calls and their results
    last, start = None, skip
    ids: set[str] = set()
    ambiguous = False  # a call lacks a unique id
    ordered = True  # each call is answered in the next turn, in order, as usual
    call_parts: list[Part] = []
    for index in range(skip, len(request.messages)):
        message = request.messages[index]
        role = message.role
        if last is not None and last.role == role and role in ("user", "assistant"):
            _extend_turn(last, start, index, message)
            ordered = ordered and role == "assistant"
        else:
            turn = Turn(role, None, message, ("messages", index))
            if last is not None and role in ("system", "developer") and _awaits_results(last):
                system_turns.append(turn)
                ordered = False
                continue
            turns.append(turn)
            if system_turns and role == "user":
                _move_after_results(system_turns, turns, report)
            last, start = turn, index
        if role == "assistant":
            call_parts += message.parts
            ambiguous = _has_ambiguous_ids(message.parts, ids) or ambiguous
        elif role == "user":
            ids.clear()
            ordered = ordered and _starts_with_results(message.parts, call_parts)
            call_parts = []
    turns += system_turns
    if ordered and not ambiguous:
        return turns
    _assign_missing_ids(turns, report)
    return _pair_results(turns, report)


def _report_prefill(messages: tuple[Message, ...], report: LossReport) -> None:
    """Report a trailing assistant text that the target does not continue."""
    if ends_with_assistant_text(messages):
        path = ("messages", len(messages) - 1, "parts", len(messages[-1].parts) - 1)
        report.approximated(path, "", "the target does not continue this text, but starts a new response")


def _extend_turn(turn: Turn, start: int, index: int, message: Message) -> None:
    """Add a message to a turn, whose first message has the index `start`."""
    if turn.messages is None and turn.message is not None:
        turn.messages = [(start, turn.message)]
        turn.message = None
    if turn.messages is not None:
        turn.messages.append((index, message))


def _awaits_results(turn: Turn) -> bool:
    """Return whether a turn has calls whose results must follow directly."""
    return turn.role == "assistant" and _has_client_calls(parts_of(turn))


def _has_ambiguous_ids(parts: tuple[Part, ...], ids: set[str]) -> bool:
    """Add the ids of calls to `ids`, and return whether a call has no id or one that was already there."""
    ambiguous = False
    for part in parts:
        if type(part) is ToolCall:
            if not part.id or part.id in ids:
                ambiguous = True
            else:
                ids.add(part.id)
    return ambiguous


def _move_after_results(system_turns: list[Turn], turns: list[Turn], report: LossReport) -> None:
    """Move system text from between calls and their results to after the results."""
    for turn in system_turns:
        report.approximated(turn.path, "", "moved after the tool results")
    turns += system_turns
    system_turns.clear()


def _assign_missing_ids(turns: list[Turn], report: LossReport) -> None:
    """Assign ids to calls without a unique one, and to results that match a call only by name and order.

    Google's SDK omits the ids of results even if the calls have some. Small servers repeat call ids, which Anthropic
    rejects.
    """
    for number, turn in enumerate(turns):
        if turn.role == "assistant" and ToolCall in map(type, parts_of(turn)):
            following = next(
                (candidate for candidate in turns[number + 1 :] if candidate.role in ("user", "assistant")), None
            )
            if _has_missing_ids(parts_of(turn)) or (following is not None and _has_missing_ids(parts_of(following))):
                _assign_turn_ids(turn, following, report)


def _has_missing_ids(parts: Sequence[Part]) -> bool:
    """Return whether a call lacks a unique id, or a result lacks the id of its call."""
    ids = [part.id for part in parts if type(part) is ToolCall]
    return (
        not all(ids) or len(set(ids)) < len(ids) or any(type(part) is ToolResult and not part.call_id for part in parts)
    )


def _assign_turn_ids(turn: Turn, next_turn: Turn | None, report: LossReport) -> None:
    """Make the call ids of a turn unique, and match results without a usable id to its calls."""
    repeated = _make_ids_unique(turn, report)
    if next_turn is not None and next_turn.role == "user":
        _match_results(turn, next_turn, repeated)


def _make_ids_unique(turn: Turn, report: LossReport) -> set[str]:
    """Assign derived ids to calls of a turn without a unique one, and return the ids that were repeated."""
    ids, repeated = set[str](), set[str]()
    for position, located in enumerate(turn.parts):
        part = located.part
        if not isinstance(part, ToolCall):
            continue
        if part.id and part.id not in ids:
            ids.add(part.id)
            continue
        if part.id:
            repeated.add(part.id)
            report.approximated(located.path, "id", "another call of the turn has the same id")
        id = derive_call_id(part.name, part.arguments, *(step for step in located.path if isinstance(step, int)))
        turn.parts[position] = LocatedPart(replace(part, id=id), located.path)
    return repeated


def _match_results(turn: Turn, next_turn: Turn, repeated_ids: set[str]) -> None:
    """Give each result without a usable id the id of an unanswered call, by name if possible, else by order."""
    answered = {part.call_id for part in parts_of(next_turn) if isinstance(part, ToolResult)}
    unanswered = [call for call, _ in _client_calls(turn) if call.id not in answered]
    ids = set[str]()
    for position, located in enumerate(next_turn.parts):
        part = located.part
        if not isinstance(part, ToolResult):
            continue
        if part.call_id and (part.call_id not in repeated_ids or part.call_id not in ids):
            ids.add(part.call_id)
        elif unanswered:
            match = next((call for call in unanswered if call.name == part.name), unanswered[0])
            unanswered.remove(match)
            next_turn.parts[position] = LocatedPart(replace(part, call_id=match.id), located.path)


_LocatedCall = tuple[ToolCall, SourcePath]


def _pair_results(turns: list[Turn], report: LossReport) -> list[Turn]:
    """Arrange the results of each turn after its calls, with placeholders for missing ones."""
    out: list[Turn] = []
    call_turn: Turn | None = None
    call_parts: Sequence[Part] = ()
    for turn in turns:
        parts = parts_of(turn)
        if turn.role == "assistant":
            if call_turn is not None:
                out.append(_placeholders(_client_calls(call_turn), report))
            call_turn, call_parts = (turn, parts) if _has_client_calls(parts) else (None, ())
        elif turn.role == "user":
            if not _starts_with_results(parts, call_parts):
                turn = _pair_turn(turn, [] if call_turn is None else _client_calls(call_turn), report)  # noqa: PLW2901
            call_turn, call_parts = None, ()
        out.append(turn)
    return out


def parts_of(turn: Turn) -> Sequence[Part]:
    """Return the parts of a turn, without source paths."""
    if turn.located_parts is not None:
        return [located.part for located in turn.located_parts]
    if turn.message is not None:
        return turn.message.parts
    return [part for _, message in turn.messages or () for part in message.parts]


def _has_client_calls(parts: Sequence[Part]) -> bool:
    """Return whether one of the parts is a call that the client must answer."""
    return any(part.executor == "client" for part in parts if type(part) is ToolCall)


def _client_calls(turn: Turn) -> list[_LocatedCall]:
    """Return the calls that the client must answer, with their source paths."""
    calls: list[_LocatedCall] = []
    for located in turn.parts:
        part = located.part
        if isinstance(part, ToolCall) and part.executor == "client":
            calls.append((part, located.path))
    return calls


def _starts_with_results(parts: Sequence[Part], previous_parts: Sequence[Part]) -> bool:
    """Return whether the parts start with exactly one result per previous call, in order."""
    position = 0
    for call in previous_parts:
        if type(call) is ToolCall and call.executor == "client":
            if position == len(parts):
                return False
            result = parts[position]
            if type(result) is not ToolResult or result.call_id != call.id:
                return False
            position += 1
    return position == len(parts) or ToolResult not in map(type, parts[position:])


def _pair_turn(turn: Turn, calls: list[_LocatedCall], report: LossReport) -> Turn:
    """Arrange the results of a turn in call order; results without a call become text."""
    results_by_id: dict[str | None, LocatedPart] = {}
    others: list[LocatedPart] = []
    call_ids = {call.id for call, _ in calls}
    for located in turn.parts:
        part = located.part
        if isinstance(part, ToolResult) and part.executor == "client" and part.call_id in call_ids:
            if part.call_id in results_by_id:
                report.dropped(results_by_id[part.call_id].path, "", "superseded by a later result for the same call")
            results_by_id[part.call_id] = located
        elif isinstance(part, ToolResult) and part.executor == "client":
            field, problem = ("call_id", "has this id") if part.call_id else ("", "awaits this result")
            report.approximated(located.path, field, f"no call of the previous turn {problem}: sent as text")
            if part.status != "ok":
                report.approximated(located.path, "status", "stated before the text")
            others.extend(_orphan_as_text(located, part))
        else:
            others.append(located)
    results = [results_by_id.get(call.id) or _placeholder(call, path, report) for call, path in calls]
    return Turn(turn.role, results + others, turn.message, turn.path)


def _orphan_as_text(located_part: LocatedPart, result: ToolResult) -> Iterable[LocatedPart]:
    """Yield a result whose call is missing as text, marked as such."""
    label = (result.name or "a tool") + (f", call {result.call_id}" if result.call_id else "")
    outcome = "" if result.status == "ok" else f": {result.status}"
    yield LocatedPart(Text(text=f"[result of {label}{outcome}]"), located_part.path)
    for index, part in enumerate(result.content or ()):
        yield LocatedPart(part, (*located_part.path, "content", index))


def _placeholders(calls: list[_LocatedCall], report: LossReport) -> Turn:
    """Return a user turn with a placeholder result for each call that the client never answered."""
    return Turn("user", [_placeholder(call, path, report) for call, path in calls], None, calls[0][1][:2])


def _placeholder(call: ToolCall, path: SourcePath, report: LossReport) -> LocatedPart:
    """Return a placeholder result for a call without one, with its source path, and report it as added."""
    report.added(
        path, "", UNLOCATED + UNANSWERED_TEXT, "the target requires a result for every call: added a placeholder"
    )
    result = ToolResult(call_id=call.id, content=(Text(text=UNANSWERED_TEXT),))
    return LocatedPart(result, path)
