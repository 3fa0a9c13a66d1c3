"""An answer that drives a screen, for a client of another form: each call is told again as one or more of the client's.

What its form has no word for stays with the call as an extra, so that it is reported; a safety check that it can't say
stays a guarded one, so that the answer is refused.
"""

from collections.abc import Iterable, Iterator

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ScreenUse, ToolCall
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.node import Extras

from .computer import Form, OnScreen, Saying, Spoken, arguments_of, piece_id, told
from .losses import REWORDED, Names, pinned

_PLACE = ":name:arguments="
_SAID = Raw(b"true")


def act_message(message: Message, screen: OnScreen, form: Form, names: Names) -> Message:
    """A message with its calls in the client's form."""
    pointer = Saying(screen.size, screen.point)
    made = [retold(part, screen, form, pointer) for part in message.parts]
    if all(calls is None for calls in made):
        return message
    fixed = pinned(message, names).parts
    parts: list[Part] = []
    for part, calls in zip(fixed, made, strict=True):
        parts += [part] if calls is None else [replace(call, at=part.at) for call in calls]
    return replace(message, parts=tuple(parts))


def retold(part: Part, screen: OnScreen, form: Form, pointer: Saying) -> list[ToolCall] | None:
    """The calls that a client gets for one that drives a screen; None for any other part. `pointer` is where it is when
    the call begins, and goes along."""
    if not isinstance(part, ToolCall) or not _may_act(part, screen):
        return None
    if not part.complete or (use := screen.form.read(part, screen.size)) is None:
        return None
    point = pointer.point
    for action in use.actions:
        pointer.did(action)
    for computer in screen.computers:
        saying = Saying(screen.size, point)
        if (spoken := told(use.actions, computer, form, saying)) is None:
            continue
        extras = _kept(part, use, saying, screen, form)
        calls = [_made(part, said, number, len(spoken)) for number, said in enumerate(spoken)]
        own = [form.call(call, computer, () if number else use.checks) for number, call in enumerate(calls)]
        own[0] = replace(own[0], extras={**extras, **(own[0].extras or {})} or None, seal=part.seal)
        return own
    return None


def _may_act(call: ToolCall, screen: OnScreen) -> bool:
    return call.executor == "client" and call.name not in screen.functions


def _made(part: ToolCall, said: Spoken, number: int, count: int) -> ToolCall:
    id = None if part.id is None else piece_id(part.id, number + 1, count)
    return ToolCall(id=id, name=said.name, arguments=arguments_of(said), caller=part.caller)


def _kept(part: ToolCall, use: ScreenUse, saying: Saying, screen: OnScreen, form: Form) -> Extras:
    """What the client's form does not say, as extras of the one that did."""
    own = {family: _unchecked(kept) for family, kept in (part.extras or {}).items()}
    family = screen.form.family
    place = next((token.split(_PLACE, 1)[1] for token in part.form if _PLACE in token), screen.form.arguments)
    dropped = {f"{place}{pointer}": _SAID for pointer in use.others}
    reworded = {f"{place}{use.places[index]}": _SAID for index, _ in saying.lost}
    found = {**own, family: {**own.get(family, {}), **dropped}, family + REWORDED: reworded}
    if use.checks and not form.checks:
        found[f"{family}:guarded"] = dict.fromkeys(use.checked, _SAID)
    return {name: kept for name, kept in found.items() if kept}


def _unchecked(kept: dict[str, Raw]) -> dict[str, Raw]:
    return {key: value for key, value in kept.items() if not key.endswith("_safety_checks")}


class StreamActing:
    """The same for a stream: a call is held until it is whole, since only then it can be told again. Parts are counted
    anew, for one may become several."""

    def __init__(self, screen: OnScreen, form: Form, names: Names) -> None:
        self._screen = screen
        self._form = form
        self._place = names.get("Message.parts", "/parts")
        self._pointer = Saying(screen.size, screen.point)
        self._held: dict[tuple[int, int], list[PartStart | PartDelta]] = {}
        self._indexes: dict[tuple[int, int], int] = {}
        self._counts: dict[int, int] = {}
        self._parts: dict[tuple[int, int], int] = {}

    def act(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, PartStart):
                key = (event.candidate, event.message)
                place = self._parts.get(key, 0)
                self._parts[key] = place + 1
                if isinstance(event.part, ToolCall) and _may_act(event.part, self._screen):
                    at = event.part.at if event.part.at is not None else f"{self._place}/{place}"
                    self._held[event.candidate, event.index] = [replace(event, part=replace(event.part, at=at))]
                    continue
                yield self._counted(event)
            elif isinstance(event, PartDelta | PartEnd):
                yield from self._go_on(event)
            else:
                yield event

    def _go_on(self, event: PartDelta | PartEnd) -> Iterator[Event]:
        key = (event.candidate, event.index)
        if (held := self._held.get(key)) is None:
            yield replace(event, index=self._indexes.get(key, event.index))
        elif isinstance(event, PartDelta):
            held.append(event)
        else:
            del self._held[key]
            yield from self._whole(held, event)

    def _counted(self, event: PartStart) -> PartStart:
        index = self._next(event.candidate)
        self._indexes[event.candidate, event.index] = index
        return replace(event, index=index)

    def _next(self, candidate: int) -> int:
        number = self._counts.get(candidate, 0)
        self._counts[candidate] = number + 1
        return number

    def _whole(self, held: list[PartStart | PartDelta], end: PartEnd) -> Iterator[Event]:
        start = held[0]
        if not isinstance(start, PartStart) or not isinstance(start.part, ToolCall):
            raise TypeError("a call begins with its start")
        text = "".join(one.text for one in held[1:] if isinstance(one, PartDelta))
        call = replace(start.part, arguments=start.part.arguments + text)
        if isinstance(end.final, ToolCall):
            call = replace(end.final, at=start.part.at, id=call.id)
        calls = retold(call, self._screen, self._form, self._pointer)
        if calls is None:
            first = self._counted(start)
            yield first
            yield from (replace(one, index=first.index) for one in held[1:])
            yield replace(end, index=first.index)
            return
        for one in calls:
            index = self._next(end.candidate)
            placed = replace(one, at=call.at)
            yield replace(start, index=index, part=replace(placed, arguments=""))
            yield PartDelta(index=index, text=one.arguments, candidate=end.candidate)
            yield PartEnd(index=index, candidate=end.candidate, final=placed)
