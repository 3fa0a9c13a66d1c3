"""Convert computer calls of a response to the client's format.

Settings that the client's format lacks stay with the call as extras, so that they are reported. A safety check that it
lacks stays as a constraint, so that the response is refused.
"""

from collections.abc import Iterable, Iterator

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import ComputerUse, Message, Part, ToolCall
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.node import Extras
from toolwire.codec.encoding.computer import (
    ActionEncodingState,
    ComputerUseAdapter,
    EncodedAction,
    ScreenContext,
    encode_actions,
    encode_arguments,
    split_call_id,
)
from toolwire.codec.losses import REWORDED, WireNames, with_source_positions

_ARGUMENTS_NAME = ":name:arguments="
_PRESENT = Raw(b"true")


def adapt_message(
    message: Message, screen: ScreenContext, adapter: ComputerUseAdapter, wire_names: WireNames
) -> Message:
    """Return a message with its computer calls in the client's format."""
    state = ActionEncodingState(screen.size, screen.point)
    adapted = [adapt_call(part, screen, adapter, state) for part in message.parts]
    if all(calls is None for calls in adapted):
        return message
    positioned = with_source_positions(message, wire_names).parts
    parts: list[Part] = []
    for part, calls in zip(positioned, adapted, strict=True):
        parts += [part] if calls is None else [replace(call, at=part.at) for call in calls]
    return replace(message, parts=tuple(parts))


def adapt_call(
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
    """Converts computer calls in a stream.

    A call is buffered until it is complete. Parts are renumbered, since one call may become several.
    """

    def __init__(self, screen: ScreenContext, adapter: ComputerUseAdapter, wire_names: WireNames) -> None:
        self._screen = screen
        self._adapter = adapter
        self._parts_pointer = wire_names.get("Message.parts", "/parts")
        self._state = ActionEncodingState(screen.size, screen.point)
        self._buffered: dict[tuple[int, int], list[PartStart | PartDelta]] = {}
        self._indexes: dict[tuple[int, int], int] = {}
        self._counts: dict[int, int] = {}
        self._part_counts: dict[tuple[int, int], int] = {}

    def process(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events with converted computer calls."""
        for event in events:
            if isinstance(event, PartStart):
                key = (event.candidate, event.message)
                position = self._part_counts.get(key, 0)
                self._part_counts[key] = position + 1
                if isinstance(event.part, ToolCall) and _may_be_computer_call(event.part, self._screen):
                    at = event.part.at if event.part.at is not None else f"{self._parts_pointer}/{position}"
                    self._buffered[event.candidate, event.index] = [replace(event, part=replace(event.part, at=at))]
                    continue
                yield self._renumber(event)
            elif isinstance(event, PartDelta | PartEnd):
                yield from self._process_part_event(event)
            else:
                yield event

    def _process_part_event(self, event: PartDelta | PartEnd) -> Iterator[Event]:
        """Buffer an event of a computer call, or pass it on with its new index."""
        key = (event.candidate, event.index)
        if (buffered := self._buffered.get(key)) is None:
            yield replace(event, index=self._indexes.get(key, event.index))
        elif isinstance(event, PartDelta):
            buffered.append(event)
        else:
            del self._buffered[key]
            yield from self._adapt_complete_call(buffered, event)

    def _renumber(self, event: PartStart) -> PartStart:
        """Return the start of a part with the next free index."""
        index = self._next_index(event.candidate)
        self._indexes[event.candidate, event.index] = index
        return replace(event, index=index)

    def _next_index(self, candidate: int) -> int:
        """Return the next free part index of a candidate."""
        number = self._counts.get(candidate, 0)
        self._counts[candidate] = number + 1
        return number

    def _adapt_complete_call(self, buffered: list[PartStart | PartDelta], end: PartEnd) -> Iterator[Event]:
        """Yield the events of a complete call in the client's format."""
        start = buffered[0]
        if not isinstance(start, PartStart) or not isinstance(start.part, ToolCall):
            raise TypeError("the first buffered event of a call must be its start")
        text = "".join(item.text for item in buffered[1:] if isinstance(item, PartDelta))
        call = replace(start.part, arguments=start.part.arguments + text)
        if isinstance(end.final, ToolCall):
            call = replace(end.final, at=start.part.at, id=call.id)
        calls = adapt_call(call, self._screen, self._adapter, self._state)
        if calls is None:
            first = self._renumber(start)
            yield first
            yield from (replace(item, index=first.index) for item in buffered[1:])
            yield replace(end, index=first.index)
            return
        for item in calls:
            index = self._next_index(end.candidate)
            positioned = replace(item, at=call.at)
            yield replace(start, index=index, part=replace(positioned, arguments=""))
            yield PartDelta(index=index, text=item.arguments, candidate=end.candidate)
            yield PartEnd(index=index, candidate=end.candidate, final=positioned)
