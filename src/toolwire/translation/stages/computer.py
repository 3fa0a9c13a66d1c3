"""Convert computer calls of a response to the client's format.

Settings that the client's format lacks stay with the call as extras, so that they are reported. A safety check that it
lacks stays as a constraint, so that the response is refused.
"""

from collections.abc import Iterator

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import ComputerUse, Part, ToolCall
from toolwire.canonical.events import (
    Event,
    MessageEnd,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    separate_deltas,
)
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Response
from toolwire.codec.encoding.computer import (
    ActionEncodingState,
    ComputerUseAdapter,
    EncodedAction,
    ScreenContext,
    encode_actions,
    encode_arguments,
    split_call_id,
)
from toolwire.codec.losses import REWORDED, WireNames

_ARGUMENTS_NAME = ":name:arguments="
_PRESENT = Raw(b"true")
_PartKey = tuple[int, int]


def _adapt_call(
    part: Part, screen: ScreenContext, adapter: ComputerUseAdapter, state: ActionEncodingState
) -> list[ToolCall] | None:
    """Return the client's calls for a computer call, or None for any other part.

    `state` holds the pointer position before the call, and is advanced.
    """
    if not isinstance(part, ToolCall) or not _may_be_computer_call(part, screen):
        return None
    if not part.complete or (use := screen.adapter.decode_call(part, screen.size)) is None:
        return None
    point = state.point
    for action in use.actions:
        state.advance(action)
    for computer in screen.computers:
        encoding_state = ActionEncodingState(screen.size, point)
        if (encoded := encode_actions(use.actions, computer, adapter, encoding_state)) is None:
            continue
        extras = _lost_extras(part, use, encoding_state, screen, adapter)
        calls = [_build_call(part, action, number, len(encoded)) for number, action in enumerate(encoded)]
        finished = [
            adapter.finish_call(call, computer, () if number else use.checks) for number, call in enumerate(calls)
        ]
        finished[0] = replace(
            finished[0], extras={**extras, **(finished[0].extras or {})} or None, signature=part.signature
        )
        return finished
    return None


def _may_be_computer_call(call: ToolCall, screen: ScreenContext) -> bool:
    """Return whether a call may be a computer call rather than one of the client's functions."""
    return call.executor == "client" and call.name not in screen.function_names


def _build_call(part: ToolCall, action: EncodedAction, number: int, count: int) -> ToolCall:
    """Build call `number` of the `count` client calls that one upstream call becomes."""
    id = None if part.id is None else split_call_id(part.id, number + 1, count)
    return ToolCall(id=id, name=action.name, arguments=encode_arguments(action), caller=part.caller)


def _lost_extras(
    part: ToolCall, use: ComputerUse, state: ActionEncodingState, screen: ScreenContext, adapter: ComputerUseAdapter
) -> Extras:
    """Return what the client's format can't express as extras (non-canonical fields), so that it is reported."""
    extras = {family: _without_safety_checks(fields) for family, fields in (part.extras or {}).items()}
    family = screen.adapter.family
    arguments_pointer = next(
        (token.split(_ARGUMENTS_NAME, 1)[1] for token in part.wire_form if _ARGUMENTS_NAME in token),
        screen.adapter.arguments_pointer,
    )
    dropped = {f"{arguments_pointer}{pointer}": _PRESENT for pointer in use.others}
    reworded = {f"{arguments_pointer}{use.places[index]}": _PRESENT for index, _ in state.losses}
    lost = {**extras, family: {**extras.get(family, {}), **dropped}, family + REWORDED: reworded}
    if use.checks and not adapter.has_safety_checks:
        lost[f"{family}:constraint"] = dict.fromkeys(use.checked, _PRESENT)
    return {name: fields for name, fields in lost.items() if fields}


def _without_safety_checks(extras: dict[str, Raw]) -> dict[str, Raw]:
    """Return the extras without safety checks, which are encoded separately."""
    return {key: value for key, value in extras.items() if not key.endswith("_safety_checks")}


class ComputerStage:
    """Converts computer calls.

    A call is buffered until it is complete. Parts are renumbered, since one call may become several; those after it
    get their source position (`at`), so that losses still point there.
    """

    def __init__(self, screen: ScreenContext, adapter: ComputerUseAdapter, wire_names: WireNames) -> None:
        self._screen = screen
        self._adapter = adapter
        self._parts_pointer = wire_names.get("Message.parts", "/parts")
        self._state = ActionEncodingState(screen.size, screen.point)
        self._buffered: dict[_PartKey, tuple[PartStart, list[PartDelta]]] = {}
        self._indexes: dict[_PartKey, int] = {}
        self._counts: dict[int, int] = {}
        self._part_counts: dict[_PartKey, int] = {}
        self._positions: dict[_PartKey, str] = {}

    def applies(self, response: Response) -> bool:
        """Return whether a call may be a computer call."""
        return any(
            type(part) is ToolCall and _may_be_computer_call(part, self._screen)
            for candidate in response.candidates
            for message in candidate.messages
            for part in message.parts
        )

    def process(self, events: list[Event]) -> list[Event]:
        """Return the events with converted computer calls."""
        processed: list[Event] = []
        for event in separate_deltas(events):
            if isinstance(event, PartStart):
                processed += self._start_part(event)
            elif isinstance(event, PartDelta | PartEnd):
                processed += self._process_part_event(event)
            else:
                if self._buffered and isinstance(event, MessageEnd | ResponseEnd | ResponseFailed):
                    processed += self._flush_incomplete_calls(event)
                processed.append(event)
        return processed

    def _start_part(self, event: PartStart) -> Iterator[Event]:
        """Yield the start of a part with its new index; a call that may be a computer call is buffered."""
        key, message = (event.candidate, event.index), (event.candidate, event.message)
        position = self._part_counts.get(message, 0)
        self._part_counts[message] = position + 1
        is_computer_call = isinstance(event.part, ToolCall) and _may_be_computer_call(event.part, self._screen)
        if is_computer_call or event.index != self._counts.get(event.candidate, 0):
            at = event.part.at if event.part.at is not None else f"{self._parts_pointer}/{position}"
            self._positions[key] = at
            event = replace(event, part=replace(event.part, at=at))
        if is_computer_call:
            self._buffered[key] = event, []
        else:
            yield self._renumber(event)

    def _process_part_event(self, event: PartDelta | PartEnd) -> Iterator[Event]:
        """Buffer an event of a computer call, or pass it on with its new index."""
        key = (event.candidate, event.index)
        if (buffered := self._buffered.get(key)) is None:
            index = self._indexes.get(key, event.index)
            if isinstance(event, PartEnd) and event.final is not None and (at := self._positions.get(key)) is not None:
                event = replace(event, final=replace(event.final, at=at))
            yield event if index == event.index else replace(event, index=index)
        elif isinstance(event, PartDelta):
            buffered[1].append(event)
        else:
            del self._buffered[key]
            yield from self._adapt_complete_call(*buffered, event)

    def _flush_incomplete_calls(self, event: MessageEnd | ResponseEnd | ResponseFailed) -> Iterator[Event]:
        """Yield the events of calls that did not end within their message or response, unconverted."""
        for key, (start, deltas) in list(self._buffered.items()):
            message = (start.candidate, start.message)
            if not isinstance(event, MessageEnd) or message == (event.candidate, event.message):
                del self._buffered[key]
                yield from self._pass_on(start, deltas)

    def _pass_on(self, start: PartStart, deltas: list[PartDelta]) -> Iterator[Event]:
        """Yield the buffered events of a call that is not converted, with its new index."""
        yield (first := self._renumber(start))
        yield from (replace(delta, index=first.index) for delta in deltas)

    def _renumber(self, event: PartStart) -> PartStart:
        """Return the start of a part with the next free index."""
        index = self._next_index(event.candidate)
        self._indexes[event.candidate, event.index] = index
        return event if index == event.index else replace(event, index=index)

    def _next_index(self, candidate: int) -> int:
        """Return the next free part index of a candidate."""
        number = self._counts.get(candidate, 0)
        self._counts[candidate] = number + 1
        return number

    def _adapt_complete_call(self, start: PartStart, deltas: list[PartDelta], end: PartEnd) -> Iterator[Event]:
        """Yield the events of a complete call in the client's format."""
        call = end.final if end.final is not None else start.part
        if end.final is None and isinstance(call, ToolCall):
            call = replace(call, arguments=call.arguments + "".join(delta.text for delta in deltas))
        calls = _adapt_call(replace(call, at=start.part.at), self._screen, self._adapter, self._state)
        if calls is None:
            yield from self._pass_on(start, deltas)
            yield from self._process_part_event(end)
            return
        for item in calls:
            index = self._next_index(end.candidate)
            positioned = replace(item, at=start.part.at)
            yield replace(start, index=index, part=replace(positioned, arguments=""))
            yield PartDelta(index=index, text=item.arguments, candidate=end.candidate)
            yield PartEnd(index=index, candidate=end.candidate, final=positioned)
