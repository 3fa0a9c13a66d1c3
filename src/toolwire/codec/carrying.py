"""Putting carries into an answer.

An answer of another protocol is changed before it is encoded: each proof becomes a carry, in a part that the client's
protocol has and echoes. So encoders know nothing of carries: they see a proof of their own. Where reasoning is echoed,
a carry stands in the reasoning that it proves, or in an empty one before the text or call that has no place for its
proof. Where clients drop reasoning it stands on the next call, or on a text that says nothing, behind all others.
Reasoning that nobody proves is carried as well: some models want it back with a call, and clients drop or shorten what
has no proof.

Parts that are put in move those behind them: these are told where they stood (`at`), so that losses still point there.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from toolwire.canonical.content import Media, Part, Reasoning, ReasoningText, Seal, Text, ToolCall
from toolwire.canonical.events import (
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    Stopped,
)
from toolwire.canonical.fold import PartGrowth, fold, unfold
from toolwire.canonical.response import Response

from .carries import Carriage, Carried, Carrier
from .history import prefix
from .interface import Codec, Context
from .losses import Names, Trail

_PROVABLE = frozenset({Text, ToolCall, Media})
_Key = tuple[int, int]
_Held = tuple[Part, tuple[int, int]]
"""A part that is carried, and where it stood: after how many calls, and characters since."""


class Sealer:
    """Makes the carries of one answer."""

    def __init__(self, carriage: Carriage, carrier: Carrier, context: Context) -> None:
        self.carriage = carriage
        self.moves = carriage.on_calls or carriage.first
        self._carrier = carrier
        self._context = context
        self._prefix: str | None = None

    def seal(self, held: Sequence[_Held] = (), proof: Seal | None = None, call: str | None = None) -> Seal:
        parts = tuple([part for part, _ in held])
        after = tuple([place for _, place in held]) if self.moves else ()
        if self._prefix is None:
            asked = self._context.request
            self._prefix = prefix(() if asked is None else asked.messages)
        carry = self._carrier.seal(Carried(parts=parts, after=after, proof=proof, call=call), self._prefix)
        return self.carriage.spell(carry)


def carry_response(response: Response, writer: Codec, names: Names, context: Context) -> Response:
    """The answer as the client is to have it; `names` are those of the protocol that it came in."""
    if context.withholding is not None:
        return context.withholding.pass_response(response)
    if context.carrier is None or writer.carriage is None or response.origin == writer.name:
        return response
    if not _holds_proofs(response):
        return response
    told = fold(StreamCarrying(writer, names, context).carry_events(unfold(response)))
    messages = {candidate.index: candidate.messages for candidate in told.candidates}
    candidates = [replace(one, messages=messages.get(one.index, one.messages)) for one in response.candidates]
    return replace(response, candidates=tuple(candidates))


def _holds_proofs(response: Response) -> bool:
    """Whether there is anything to carry in it: mostly not, and it is asked of every answer."""
    for candidate in response.candidates:
        for message in candidate.messages:
            for part in message.parts:
                if type(part) is Reasoning or (type(part) in _PROVABLE and part.seal is not None):  # type: ignore[union-attr]
                    return True
    return False


class _Thought:
    """A reasoning whose proof may still come, and the id of its message, which is held back until then."""

    def __init__(self, start: PartStart, id: str | None, place: tuple[int, int]) -> None:
        self.start = start
        self.id = id
        self.place = place
        self.growth = PartGrowth()

    def whole(self, end: PartEnd) -> Reasoning | None:
        part = end.final if end.final is not None else self.growth.apply(self.start.part)
        return part if isinstance(part, Reasoning) else None


class _Speaker:
    """What is known of a candidate while it speaks."""

    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0
        self.texts: set[int] = set()
        self.unproved: list[_Held] = []  # reasoning right before the one that comes next
        self.pending: list[_Held] = []  # what waits for a call
        self.put_in = 0
        self.last: PartStart | None = None

    @property
    def place(self) -> tuple[int, int]:
        return self.calls, self.characters


class StreamCarrying:
    """The events of an answer with its carries. What a reasoning has to prove is known at its end, and so is its carry.

    `unnamed` are the messages whose id was held back for a carry that there was no need of.
    """

    def __init__(self, writer: Codec, names: Names, context: Context) -> None:
        self.unnamed: list[Trail] = []
        self._writer = writer
        self._names = names
        self._context = context
        self._sealing: Sealer | None = None
        self._opening: MessageStart | None = None
        self._sealed_text: PartStart | None = None
        self._speakers: dict[int, _Speaker] = {}
        self._thoughts: dict[_Key, _Thought] = {}
        self._stripped: set[_Key] = set()
        self._positions: dict[_Key, int] = {}
        self._roomy: set[_Key] = set()
        self._moved: dict[_Key, str] = {}
        self._indices: dict[_Key, int] = {}
        self._ids: dict[_Key, str] = {}
        self._withheld: set[_Key] = set()

    def carry_events(self, events: Iterable[Event]) -> Iterable[Event]:
        if self._context.withholding is not None:
            return self._context.withholding.pass_events(events)
        carrier = self._context.carrier
        return events if carrier is None or self._writer.carriage is None else self._carry_all(events, carrier)

    def _carry_all(self, events: Iterable[Event], carrier: Carrier) -> list[Event]:
        carried: list[Event] = []
        for event in events:
            if type(event) is ResponseStart and event.origin != self._writer.name and self._writer.carriage is not None:
                self._sealing = Sealer(self._writer.carriage, carrier, self._context)
            if self._sealing is None:
                carried.append(event)
            elif type(event) is not PartDelta or self._opening is not None or self._sealed_text is not None:
                carried += self._carry(event, self._sealing)
            elif self._thoughts or self._indices:
                carried.append(self._delta(event))
            else:  # most do nothing but make a text grow
                if event.index in (speaker := self._speakers[event.candidate]).texts:
                    speaker.characters += len(event.text)
                carried.append(event)
        return carried

    def _carry(self, event: Event, sealing: Sealer) -> Iterator[Event]:
        id: str | None = None
        if (opening := self._opening) is not None:
            self._opening = None
            if isinstance(event, PartStart) and isinstance(event.part, Reasoning):
                id, opening = opening.id, replace(opening, id=None)
                self._withheld.add((opening.candidate, opening.message))
            yield opening
        if (text := self._sealed_text) is not None:
            self._sealed_text = None
            yield from self._proved_text(text, event, sealing)
        match event:
            case MessageStart():
                self._opening = event
            case MessageEnd():
                message = (event.candidate, event.message)
                yield replace(event, id=self._ids.pop(message, None if message in self._withheld else event.id))
            case PartStart():
                yield from self._part_start(event, sealing, id)
            case PartDelta():
                yield self._delta(event)
            case PartEnd():
                yield from self._part_end(event, sealing)
            case Stopped():
                yield from self._rest(event.candidate, sealing)
                yield event
            case ResponseEnd() | ResponseFailed():
                for candidate in self._speakers:
                    yield from self._rest(candidate, sealing)
                yield event
            case _:
                yield event

    # ---- a part starts

    def _part_start(self, event: PartStart, sealing: Sealer, id: str | None) -> Iterator[Event]:
        key, message, part = (event.candidate, event.index), (event.candidate, event.message), event.part
        self._positions[message] = self._positions.get(message, -1) + 1
        if message in self._roomy:
            self._moved[key] = self._place(event)
        speaker = self._speakers.setdefault(event.candidate, _Speaker())
        speaker.last = event
        if isinstance(part, Reasoning):
            self._thoughts[key] = _Thought(event, id, speaker.place)
            yield self._started(replace(event, part=replace(part, seal=None, id=None)))
            return
        speaker.unproved = []
        if isinstance(part, Text):
            speaker.texts.add(event.index)
            speaker.characters += len(part.text)
        elif isinstance(part, ToolCall) and part.executor == "client":
            speaker.calls, speaker.characters = speaker.calls + 1, 0
            yield from self._call(event, part, speaker, sealing)
            return
        if isinstance(part, Text) and part.seal is not None and not sealing.carriage.on_calls:
            self._sealed_text = event  # the next event tells whether there is anything in it
        else:
            yield self._started(event)

    def _call(self, event: PartStart, part: ToolCall, speaker: _Speaker, sealing: Sealer) -> Iterator[Event]:
        if sealing.carriage.on_calls:
            if speaker.pending:
                part = replace(part, seal=sealing.seal(speaker.pending, part.seal))
                speaker.pending = []
                self._stripped.add((event.candidate, event.index))
            yield self._started(replace(event, part=part))
        elif part.seal is not None:
            yield from self._make_room(event, sealing.seal((), part.seal, part.name))
        else:
            yield self._started(event)

    def _started(self, event: PartStart) -> PartStart:
        key = (event.candidate, event.index)
        if put_in := self._speakers[event.candidate].put_in:
            self._indices[key] = event.index + put_in
            event = replace(event, index=event.index + put_in)
        return event if key not in self._moved else replace(event, part=replace(event.part, at=self._moved[key]))

    def _make_room(self, event: PartStart, seal: Seal) -> Iterator[Event]:
        """A carry before the part whose proof it holds."""
        key = (event.candidate, event.index)
        self._moved[key] = self._place(event)
        self._stripped.add(key)
        self._roomy.add((event.candidate, event.message))
        yield from self._carrier(event, seal)
        self._speakers[event.candidate].put_in += 1
        yield self._started(replace(event, part=replace(event.part, seal=None)))

    def _carrier(self, event: PartStart, seal: Seal) -> Iterator[Event]:
        index, candidate = event.index + self._speakers[event.candidate].put_in, event.candidate
        part = Reasoning(hidden="omitted", at=self._moved.get((candidate, event.index), event.part.at))
        yield PartStart(index=index, part=part, message=event.message, candidate=candidate)
        yield PartDelta(index=index, candidate=candidate, seal=seal)
        yield PartEnd(index=index, candidate=candidate, final=replace(part, seal=seal))

    def _proved_text(self, start: PartStart, event: Event, sealing: Sealer) -> Iterator[Event]:
        """A text with a proof. If it says nothing, the carry stands in its place."""
        key, text = (start.candidate, start.index), start.part
        if isinstance(event, PartEnd) and (event.candidate, event.index) == key and event.final is not None:
            text = event.final
        if not isinstance(text, Text) or text.seal is None:
            yield self._started(start)
        elif text.text or isinstance(event, PartDelta):
            yield from self._make_room(start, sealing.seal((), text.seal))
        else:
            place = self._speakers[start.candidate].place
            yield from self._carrier(start, sealing.seal([(replace(text, at=None), place)]))
            self._indices[key] = -1

    def _place(self, event: PartStart) -> str:
        """Where the part stood before others were put in."""
        position = self._positions[event.candidate, event.message]
        return (
            event.part.at if event.part.at is not None else f"{self._names.get('Message.parts', '/parts')}/{position}"
        )

    # ---- it grows and ends

    def _delta(self, event: PartDelta) -> PartDelta:
        key = (event.candidate, event.index)
        if (thought := self._thoughts.get(key)) is not None:
            thought.growth.add(event)
            event = event if event.seal is None else replace(event, seal=None)
        elif event.index in (speaker := self._speakers[event.candidate]).texts:
            speaker.characters += len(event.text)
        return replace(event, index=self._indices[key]) if key in self._indices else event

    def _part_end(self, event: PartEnd, sealing: Sealer) -> Iterator[Event]:
        key = (event.candidate, event.index)
        if (index := self._indices.get(key, event.index)) < 0:
            return
        final = event.final
        if (thought := self._thoughts.pop(key, None)) is not None:
            whole = thought.whole(event)
            if whole is not None and whole.seal is None:
                self._name_again(thought)
            if whole is not None and (whole.seal is not None or _is_wanted(whole)):
                final = _shown(whole, self._carry_thought(whole, thought, sealing))
                if final.seal is not None:
                    yield PartDelta(index=index, candidate=event.candidate, seal=final.seal)
            elif whole is not None:
                held = (replace(whole, at=None), thought.place)
                self._speakers[event.candidate].unproved.append(held)
        elif key in self._stripped and isinstance(final, Text | ToolCall):
            final = replace(final, seal=None) if not sealing.carriage.on_calls else None
        if final is not None and key in self._moved:
            final = replace(final, at=self._moved[key])
        yield replace(event, index=index, final=final)

    def _carry_thought(self, whole: Reasoning, thought: _Thought, sealing: Sealer) -> Seal | None:
        """The carry of a reasoning, and of what it has to do with; none where that waits for a call."""
        speaker = self._speakers[thought.start.candidate]
        # Its vendor's name for it may be that of its message.
        part: Part = replace(whole, id=whole.id or thought.id, at=None)
        held = [*speaker.unproved, (part, thought.place)]
        speaker.unproved = []
        if not sealing.carriage.on_calls:
            return sealing.seal(held)
        speaker.pending += held
        return None

    def _name_again(self, thought: _Thought) -> None:
        """The name that was held back is its message's after all."""
        start = thought.start
        if thought.id is not None:
            self._ids[start.candidate, start.message] = thought.id
            self.unnamed.append(("candidates", start.candidate, "messages", start.message))
            thought.id = None

    def _rest(self, candidate: int, sealing: Sealer) -> Iterator[Event]:
        """What no call came for stands on a text that says nothing, as Google's own proofs do."""
        speaker = self._speakers.get(candidate)
        if speaker is None or speaker.last is None or not any(map(_is_proved, speaker.pending)):
            return
        index = speaker.last.index + 1 + speaker.put_in
        text = Text(text="", seal=sealing.seal(speaker.pending))
        speaker.pending = []
        yield PartStart(index=index, part=text, message=speaker.last.message, candidate=candidate)
        yield PartEnd(index=index, candidate=candidate, final=text)


def _is_wanted(unproved: Reasoning) -> bool:
    """Whether a model may want it back: not a summary, which is for people."""
    blocks = unproved.content
    return bool(blocks) and all(isinstance(block, ReasoningText) and block.kind == "full" for block in blocks)


def _is_proved(held: _Held) -> bool:
    return getattr(held[0], "seal", None) is not None


def _shown(part: Reasoning, seal: Seal | None) -> Reasoning:
    """What the client sees of a reasoning that is carried. All that it had besides comes back with the carry."""
    return Reasoning(content=part.content, hidden=part.hidden, seal=seal, at=part.at)
