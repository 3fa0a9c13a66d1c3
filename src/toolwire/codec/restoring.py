"""What the carries of a request hold, put back where it stood.

A carry that can't be opened is never sent on. It takes all earlier seals with it: an issuer proves its reasoning as one
chain, and refuses one with a gap. At home, where the client's own provider reads the request, no carry is for it.
"""

from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Reasoning, ReasoningText, Seal, Text, ToolCall
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request

from .carries import Carried, Carrier, is_carry
from .history import prefixes
from .interface import Codec
from .losses import Names, Report, Trail, pinned

_Place = tuple[int, int]
_SEALED = frozenset({Reasoning, Text, ToolCall, Media})
_LOST = "what proved it was not sealed here, or for something else"
_GAP = "a later proof is missing, without which this one is refused"


def holds_carries(request: Request) -> bool:
    """Whether there is anything to restore: mostly not, and it is asked of every request."""
    for message in request.messages:
        if message.role == "assistant":
            for part in message.parts:
                if type(part) in _SEALED and (seal := part.seal) is not None and is_carry(seal.data):  # type: ignore[union-attr]
                    return True
    return False


def restore_carries(
    request: Request, reader: Codec, carrier: Carrier | None, *, home: bool = False
) -> tuple[Request, Report]:
    """The request with what its carries hold, and what of it was lost, as trails into the request as it was."""
    report = Report()
    sealed = {
        (number, position): part.seal
        for number, message in enumerate(request.messages)
        for position, part in enumerate(message.parts)
        if isinstance(part, Reasoning | Text | ToolCall | Media) and part.seal is not None
    }
    if not any(is_carry(seal.data) for seal in sealed.values()):
        return request, report
    restoring = _Restoring(request, reader, report, home=home)
    restoring.open(sealed, None if home else carrier)
    return restoring.restored(reader.names), report


class _Restoring:
    def __init__(self, request: Request, reader: Codec, report: Report, *, home: bool) -> None:
        self._request = request
        self._report = report
        self._home = home
        self._carriage = reader.carriage
        self._opened: dict[_Place, Carried | None] = {}
        self._lost: set[_Place] = set()
        self._proofs: dict[_Place, Seal] = {}
        self._forgotten: set[_Place] = set()

    def open(self, sealed: dict[_Place, Seal], carrier: Carrier | None) -> None:
        messages = self._request.messages
        before = prefixes(messages)
        gap: _Place | None = None
        receivers: dict[_Place, _Place] = {}
        for place, seal in sealed.items():
            if not is_carry(seal.data):
                continue
            carried = None if carrier is None else carrier.open(seal.data, before[place[0]])
            if carried is not None and carried.proof is not None:
                if (receiver := self._receiver(place, carried)) is None:
                    carried = None
                else:
                    receivers[place] = receiver
            self._opened[place] = carried
            if carried is None:
                gap = place
        if gap is not None:
            self._lost = {place for place in sealed if place <= gap}
            for place in sealed:
                if place <= gap:
                    why = _LOST if place in self._opened and self._opened[place] is None else _GAP
                    self._report.dropped((*_trail(place), "seal"), "", why)
        for place, receiver in receivers.items():
            proven = self._opened[place]
            if place not in self._lost and proven is not None and proven.proof is not None:
                self._proofs[receiver] = proven.proof

    def _receiver(self, place: _Place, carried: Carried) -> _Place | None:
        """The part whose proof a carry holds: the one that it stands on, or the next of its kind in the turn."""
        messages = self._request.messages
        if not isinstance(messages[place[0]].parts[place[1]], Reasoning):
            return place
        first = place[1] + 1
        for number in range(place[0], len(messages)):
            if messages[number].role == "user":
                return None
            for position in range(first, len(messages[number].parts)):
                part = messages[number].parts[position]
                if isinstance(part, ToolCall) and part.executor == "client":
                    return (number, position) if part.name == carried.call else None
                if isinstance(part, Text) and part.text and carried.call is None:
                    return (number, position)
            first = 0
        return None

    def restored(self, names: Names) -> Request:
        request = self._request
        for place, carried in self._opened.items():
            if carried is not None:
                self._forget(place, carried)
        touched = {number for number, _ in (*self._opened, *self._lost, *self._proofs, *self._forgotten)}
        changed: list[Message | None] = []
        for number, message in enumerate(request.messages):
            changed.append(self._message(number, message, names) if number in touched else message)
        if None in changed:
            pins = pinned(request, names, "messages").messages
            changed = [None if one is None else replace(one, at=pin.at) for one, pin in zip(changed, pins, strict=True)]
        messages = [message for message in changed if message is not None]
        parts = [part for number in touched if (one := changed[number]) is not None for part in one.parts]
        plain = request.plain and not any(part.extras for part in parts)
        return replace(request, messages=tuple(messages), plain=plain)

    def _forget(self, place: _Place, carried: Carried) -> None:
        """Take away the reasoning that a client's protocol showed beside the carry which holds it."""
        texts = [_text(part) for part in carried.parts if isinstance(part, Reasoning)]
        number, position = place
        messages = self._request.messages
        while number >= 0 and messages[number].role == "assistant":
            for index in range(position - 1, -1, -1):
                part = messages[number].parts[index]
                if isinstance(part, Text):
                    continue
                if not isinstance(part, Reasoning) or part.seal is not None or part.extras:
                    return
                if (text := _text(part)) and any(text in one for one in texts):
                    self._forgotten.add((number, index))
            number -= 1
            position = len(messages[number].parts)

    def _message(self, number: int, message: Message, names: Names) -> Message | None:
        """None for one that was nothing but a carry."""
        parts: list[Part] = []
        moved: list[tuple[Part, tuple[int, int]]] = []
        for position, part in enumerate(pinned(message, names).parts):
            place = (number, position)
            made = self._part(place, part)
            carried = self._opened.get(place)
            if carried is not None and carried.after:
                moved += zip(made, carried.after, strict=False)
                made = made[len(carried.after) :]
            parts += made
        for one, after in moved:
            parts.insert(_index(parts, *after), one)
        if len(parts) == len(message.parts):
            # Nothing moved.
            parts = [replace(one, at=was.at) for one, was in zip(parts, message.parts, strict=True)]
        return replace(message, parts=tuple(parts)) if parts or not message.parts else None

    def _part(self, place: _Place, part: Part) -> list[Part]:
        if place in self._forgotten:
            return []
        carried, lost = self._opened.get(place), place in self._lost
        if place in self._opened and isinstance(part, Reasoning):
            if carried is None:
                return [] if self._home else [replace(part, seal=None)]
            held = [self._back(one, part, lost=lost) for one in carried.parts]
            return _with_extras(held, part, _trail(place), self._report)
        if place in self._opened and isinstance(part, Text | ToolCall):
            before = [] if carried is None else [self._back(one, part, lost=lost) for one in carried.parts]
            own = replace(part, seal=self._proofs.get(place) or self._blank(part, place))
            return [*before, own] if isinstance(part, ToolCall) or part.text or own.seal is not None else before
        if place in self._proofs and isinstance(part, Text | ToolCall):
            return [replace(part, seal=self._proofs[place])]
        if lost and isinstance(part, Reasoning | Text | ToolCall | Media):
            if self._home and isinstance(part, Reasoning):
                return []
            return [replace(part, seal=self._blank(part, place))]
        return [part]

    def _back(self, part: Part, carrying: Part, *, lost: bool) -> Part:
        """A part that was carried, in the place of what carried it."""
        if lost and isinstance(part, Reasoning | Text):
            return replace(part, seal=None, at=carrying.at)
        return replace(part, at=carrying.at)

    def _blank(self, part: Part, place: _Place) -> Seal | None:
        """In place of a proof that a call has lost, for its own provider, what it takes for none."""
        carriage = self._carriage
        if not self._home or carriage is None or carriage.blank is None or not isinstance(part, ToolCall):
            return None
        self._report.invented((*_trail(place), "seal"), "", "", "the call must have a proof: the check is skipped")
        return Seal(issuer=carriage.issuer, data=carriage.blank, kind=carriage.kind)


def _trail(place: _Place) -> Trail:
    return ("messages", place[0], "parts", place[1])


def _index(parts: list[Part], calls: int, characters: int) -> int:
    """The place after so many calls, so many characters since, and what was put there before."""
    called = said = 0
    for index, part in enumerate(parts):
        if isinstance(part, ToolCall) and part.executor == "client":
            if called == calls:
                return index
            called, said = called + 1, 0
        elif isinstance(part, Text) and part.text:
            if called == calls and said >= characters:
                return index
            said += len(part.text)
    return len(parts)


def _text(part: Reasoning) -> str:
    return "".join("".join(one.text.split()) for one in part.content if isinstance(one, ReasoningText))


def _with_extras(held: list[Part], carrying: Part, trail: Trail, report: Report) -> list[Part]:
    """What a client added to the carrying block is still to be reported."""
    if not carrying.extras:
        return held
    if not held:
        for kept in carrying.extras.values():
            for key in kept:
                report.dropped(trail, "//" + key, "a field that only its own protocol has")
        return held
    extras: Extras = {family: dict(kept) for family, kept in (held[0].extras or {}).items()}
    for family, kept in carrying.extras.items():
        extras.setdefault(family, {}).update(kept)
    return [replace(held[0], extras=extras), *held[1:]]
