"""An answer that drives a screen, for a client of another form: each call is told again as one or more of the client's.

What its form has no word for stays with the call as an extra, so that it is reported; a safety check that it can't say
stays a guarded one, so that the answer is refused.
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
    """A message with its calls in the client's form."""
    pointer = ActionEncodingState(screen.size, screen.point)
    made = [adapt_call(part, screen, adapter, pointer) for part in message.parts]
    if all(calls is None for calls in made):
        return message
    fixed = with_source_positions(message, wire_names).parts
    parts: list[Part] = []
    for part, calls in zip(fixed, made, strict=True):
        parts += [part] if calls is None else [replace(call, at=part.at) for call in calls]
    return replace(message, parts=tuple(parts))


def adapt_call(
    part: Part, screen: ScreenContext, adapter: ComputerUseAdapter, state: ActionEncodingState
) -> list[ToolCall] | None:
    """The calls that a client gets for one that drives a screen; None for any other part. `pointer` is where it is when
    the call begins, and goes along."""
    if not isinstance(part, ToolCall) or not _may_be_computer_call(part, screen):
        return None
    if not part.complete or (use := screen.adapter.decode_call(part, screen.size)) is None:
        return None
    point = state.point
    for action in use.actions:
        state.advance(action)
    for computer in screen.computers:
        saying = ActionEncodingState(screen.size, point)
        if (spoken := encode_actions(use.actions, computer, adapter, saying)) is None:
            continue
        extras = _lost_extras(part, use, saying, screen, adapter)
        calls = [_build_call(part, said, number, len(spoken)) for number, said in enumerate(spoken)]
        own = [adapter.finish_call(call, computer, () if number else use.checks) for number, call in enumerate(calls)]
        own[0] = replace(own[0], extras={**extras, **(own[0].extras or {})} or None, signature=part.signature)
        return own
    return None


def _may_be_computer_call(call: ToolCall, screen: ScreenContext) -> bool:
    return call.executor == "client" and call.name not in screen.function_names


def _build_call(part: ToolCall, action: EncodedAction, number: int, count: int) -> ToolCall:
    id = None if part.id is None else split_call_id(part.id, number + 1, count)
    return ToolCall(id=id, name=action.name, arguments=encode_arguments(action), caller=part.caller)


def _lost_extras(
    part: ToolCall, use: ComputerUse, state: ActionEncodingState, screen: ScreenContext, adapter: ComputerUseAdapter
) -> Extras:
    """What the client's form does not say, as extras of the one that did."""
    own = {family: _without_safety_checks(kept) for family, kept in (part.extras or {}).items()}
    family = screen.adapter.family
    place = next(
        (token.split(_ARGUMENTS_NAME, 1)[1] for token in part.wire_form if _ARGUMENTS_NAME in token),
        screen.adapter.arguments_pointer,
    )
    dropped = {f"{place}{pointer}": _PRESENT for pointer in use.others}
    reworded = {f"{place}{use.places[index]}": _PRESENT for index, _ in state.losses}
    found = {**own, family: {**own.get(family, {}), **dropped}, family + REWORDED: reworded}
    if use.checks and not adapter.has_safety_checks:
        found[f"{family}:constraint"] = dict.fromkeys(use.checked, _PRESENT)
    return {name: kept for name, kept in found.items() if kept}


def _without_safety_checks(extras: dict[str, Raw]) -> dict[str, Raw]:
    return {key: value for key, value in extras.items() if not key.endswith("_safety_checks")}


class ComputerStage:
    """The same for a stream: a call is held until it is whole, since only then it can be told again. Parts are counted
    anew, for one may become several."""

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
        for event in events:
            if isinstance(event, PartStart):
                key = (event.candidate, event.message)
                place = self._part_counts.get(key, 0)
                self._part_counts[key] = place + 1
                if isinstance(event.part, ToolCall) and _may_be_computer_call(event.part, self._screen):
                    at = event.part.at if event.part.at is not None else f"{self._parts_pointer}/{place}"
                    self._buffered[event.candidate, event.index] = [replace(event, part=replace(event.part, at=at))]
                    continue
                yield self._renumber(event)
            elif isinstance(event, PartDelta | PartEnd):
                yield from self._process_part_event(event)
            else:
                yield event

    def _process_part_event(self, event: PartDelta | PartEnd) -> Iterator[Event]:
        key = (event.candidate, event.index)
        if (held := self._buffered.get(key)) is None:
            yield replace(event, index=self._indexes.get(key, event.index))
        elif isinstance(event, PartDelta):
            held.append(event)
        else:
            del self._buffered[key]
            yield from self._adapt_complete_call(held, event)

    def _renumber(self, event: PartStart) -> PartStart:
        index = self._next_index(event.candidate)
        self._indexes[event.candidate, event.index] = index
        return replace(event, index=index)

    def _next_index(self, candidate: int) -> int:
        number = self._counts.get(candidate, 0)
        self._counts[candidate] = number + 1
        return number

    def _adapt_complete_call(self, buffered: list[PartStart | PartDelta], end: PartEnd) -> Iterator[Event]:
        start = buffered[0]
        if not isinstance(start, PartStart) or not isinstance(start.part, ToolCall):
            raise TypeError("a call begins with its start")
        text = "".join(one.text for one in buffered[1:] if isinstance(one, PartDelta))
        call = replace(start.part, arguments=start.part.arguments + text)
        if isinstance(end.final, ToolCall):
            call = replace(end.final, at=start.part.at, id=call.id)
        calls = adapt_call(call, self._screen, self._adapter, self._state)
        if calls is None:
            first = self._renumber(start)
            yield first
            yield from (replace(one, index=first.index) for one in buffered[1:])
            yield replace(end, index=first.index)
            return
        for one in calls:
            index = self._next_index(end.candidate)
            placed = replace(one, at=call.at)
            yield replace(start, index=index, part=replace(placed, arguments=""))
            yield PartDelta(index=index, text=one.arguments, candidate=end.candidate)
            yield PartEnd(index=index, candidate=end.candidate, final=placed)
