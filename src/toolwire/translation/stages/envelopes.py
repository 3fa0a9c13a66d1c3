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

from toolwire.canonical.content import Media, Part, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
)
from toolwire.canonical.fold import PartAccumulator, fold, unfold
from toolwire.canonical.response import Response
from toolwire.codec.envelope import EnvelopeField, EnvelopeKey, EnvelopePayload
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.codec.losses import SourcePath, WireNames
from toolwire.translation.history import digest_before

_SIGNABLE_TYPES = frozenset({Text, ToolCall, Media})
_PartKey = tuple[int, int]
_SealedPart = tuple[Part, tuple[int, int]]
"""A part that is carried, and where it stood: after how many calls, and characters since."""


class ResponseEnvelopes:
    """Makes the carries of one answer."""

    def __init__(self, field: EnvelopeField, envelope_key: EnvelopeKey, context: ResponseContext) -> None:
        self.field = field
        self.records_positions = field.on_calls or field.reasoning_first
        self._envelope_key = envelope_key
        self._context = context
        self._history_digest: str | None = None

    def seal(
        self, sealed_parts: Sequence[_SealedPart] = (), signature: Signature | None = None, call_name: str | None = None
    ) -> Signature:
        parts = tuple([part for part, _ in sealed_parts])
        after = tuple([place for _, place in sealed_parts]) if self.records_positions else ()
        if self._history_digest is None:
            asked = self._context.request
            self._history_digest = digest_before(() if asked is None else asked.messages)
        carry = self._envelope_key.seal(
            EnvelopePayload(parts=parts, positions=after, signature=signature, call_name=call_name),
            self._history_digest,
        )
        return self.field.encode(carry)


def embed_envelopes(response: Response, writer: Codec, wire_names: WireNames, context: ResponseContext) -> Response:
    """The answer as the client is to have it; `names` are those of the protocol that it came in."""
    if context.withheld is not None:
        return context.withheld.process_response(response)
    if context.envelope_key is None or writer.envelope_field is None or response.origin == writer.name:
        return response
    if not _has_signatures(response):
        return response
    told = fold(EnvelopeStage(writer, wire_names, context).process(unfold(response)))
    messages = {candidate.index: candidate.messages for candidate in told.candidates}
    candidates = [replace(one, messages=messages.get(one.index, one.messages)) for one in response.candidates]
    return replace(response, candidates=tuple(candidates))


def _has_signatures(response: Response) -> bool:
    """Whether there is anything to carry in it: mostly not, and it is asked of every answer."""
    for candidate in response.candidates:
        for message in candidate.messages:
            for part in message.parts:
                if type(part) is Reasoning or (type(part) in _SIGNABLE_TYPES and part.signature is not None):  # type: ignore[union-attr]
                    return True
    return False


class _OpenReasoning:
    """A reasoning whose proof may still come, and the id of its message, which is held back until then."""

    def __init__(self, start: PartStart, message_id: str | None, position: tuple[int, int]) -> None:
        self.start = start
        self.message_id = message_id
        self.position = position
        self.accumulator = PartAccumulator()

    def complete_part(self, end: PartEnd) -> Reasoning | None:
        part = end.final if end.final is not None else self.accumulator.apply(self.start.part)
        return part if isinstance(part, Reasoning) else None


class _CandidateState:
    """What is known of a candidate while it speaks."""

    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0
        self.text_indexes: set[int] = set()
        self.unsigned: list[_SealedPart] = []  # reasoning right before the one that comes next
        self.pending: list[_SealedPart] = []  # what waits for a call
        self.inserted = 0
        self.last_start: PartStart | None = None

    @property
    def position(self) -> tuple[int, int]:
        return self.calls, self.characters


class EnvelopeStage:
    """The events of an answer with its carries. What a reasoning has to prove is known at its end, and so is its carry.

    `unnamed` are the messages whose id was held back for a carry that there was no need of.
    """

    def __init__(self, writer: Codec, wire_names: WireNames, context: ResponseContext) -> None:
        self.messages_without_id: list[SourcePath] = []
        self._writer = writer
        self._wire_names = wire_names
        self._context = context
        self._envelopes: ResponseEnvelopes | None = None
        self._message_start: MessageStart | None = None
        self._signed_text: PartStart | None = None
        self._candidates: dict[int, _CandidateState] = {}
        self._open_reasoning: dict[_PartKey, _OpenReasoning] = {}
        self._stripped: set[_PartKey] = set()
        self._part_counts: dict[_PartKey, int] = {}
        self._shifted_messages: set[_PartKey] = set()
        self._source_positions: dict[_PartKey, str] = {}
        self._new_indexes: dict[_PartKey, int] = {}
        self._restored_ids: dict[_PartKey, str] = {}
        self._messages_without_start_id: set[_PartKey] = set()

    def process(self, events: Iterable[Event]) -> Iterable[Event]:
        if self._context.withheld is not None:
            return self._context.withheld.process(events)
        carrier = self._context.envelope_key
        return events if carrier is None or self._writer.envelope_field is None else self._process_all(events, carrier)

    def _process_all(self, events: Iterable[Event], envelope_key: EnvelopeKey) -> list[Event]:
        carried: list[Event] = []
        for event in events:
            if (
                type(event) is ResponseStart
                and event.origin != self._writer.name
                and self._writer.envelope_field is not None
            ):
                self._envelopes = ResponseEnvelopes(self._writer.envelope_field, envelope_key, self._context)
            if self._envelopes is None:
                carried.append(event)
            elif type(event) is not PartDelta or self._message_start is not None or self._signed_text is not None:
                carried += self._process_event(event, self._envelopes)
            elif self._open_reasoning or self._new_indexes:
                carried.append(self._process_delta(event))
            else:  # most do nothing but make a text grow
                if event.index in (speaker := self._candidates[event.candidate]).text_indexes:
                    speaker.characters += len(event.text)
                carried.append(event)
        return carried

    def _process_event(self, event: Event, envelopes: ResponseEnvelopes) -> Iterator[Event]:
        id: str | None = None
        if (opening := self._message_start) is not None:
            self._message_start = None
            if isinstance(event, PartStart) and isinstance(event.part, Reasoning):
                id, opening = opening.id, replace(opening, id=None)
                self._messages_without_start_id.add((opening.candidate, opening.message))
            yield opening
        if (text := self._signed_text) is not None:
            self._signed_text = None
            yield from self._start_signed_text(text, event, envelopes)
        match event:
            case MessageStart():
                self._message_start = event
            case MessageEnd():
                message = (event.candidate, event.message)
                yield replace(
                    event,
                    id=self._restored_ids.pop(
                        message, None if message in self._messages_without_start_id else event.id
                    ),
                )
            case PartStart():
                yield from self._start_part(event, envelopes, id)
            case PartDelta():
                yield self._process_delta(event)
            case PartEnd():
                yield from self._end_part(event, envelopes)
            case CandidateEnd():
                yield from self._flush_pending(event.candidate, envelopes)
                yield event
            case ResponseEnd() | ResponseFailed():
                for candidate in self._candidates:
                    yield from self._flush_pending(candidate, envelopes)
                yield event
            case _:
                yield event

    # ---- a part starts

    def _start_part(self, event: PartStart, envelopes: ResponseEnvelopes, message_id: str | None) -> Iterator[Event]:
        key, message, part = (event.candidate, event.index), (event.candidate, event.message), event.part
        self._part_counts[message] = self._part_counts.get(message, -1) + 1
        if message in self._shifted_messages:
            self._source_positions[key] = self._source_position(event)
        speaker = self._candidates.setdefault(event.candidate, _CandidateState())
        speaker.last_start = event
        if isinstance(part, Reasoning):
            self._open_reasoning[key] = _OpenReasoning(event, message_id, speaker.position)
            yield self._renumber_start(replace(event, part=replace(part, signature=None, id=None)))
            return
        speaker.unsigned = []
        if isinstance(part, Text):
            speaker.text_indexes.add(event.index)
            speaker.characters += len(part.text)
        elif isinstance(part, ToolCall) and part.executor == "client":
            speaker.calls, speaker.characters = speaker.calls + 1, 0
            yield from self._start_call(event, part, speaker, envelopes)
            return
        if isinstance(part, Text) and part.signature is not None and not envelopes.field.on_calls:
            self._signed_text = event  # the next event tells whether there is anything in it
        else:
            yield self._renumber_start(event)

    def _start_call(
        self, event: PartStart, part: ToolCall, state: _CandidateState, envelopes: ResponseEnvelopes
    ) -> Iterator[Event]:
        if envelopes.field.on_calls:
            if state.pending:
                part = replace(part, signature=envelopes.seal(state.pending, part.signature))
                state.pending = []
                self._stripped.add((event.candidate, event.index))
            yield self._renumber_start(replace(event, part=part))
        elif part.signature is not None:
            yield from self._insert_envelope_before(event, envelopes.seal((), part.signature, part.name))
        else:
            yield self._renumber_start(event)

    def _renumber_start(self, event: PartStart) -> PartStart:
        key = (event.candidate, event.index)
        if put_in := self._candidates[event.candidate].inserted:
            self._new_indexes[key] = event.index + put_in
            event = replace(event, index=event.index + put_in)
        return (
            event
            if key not in self._source_positions
            else replace(event, part=replace(event.part, at=self._source_positions[key]))
        )

    def _insert_envelope_before(self, event: PartStart, signature: Signature) -> Iterator[Event]:
        """A carry before the part whose proof it holds."""
        key = (event.candidate, event.index)
        self._source_positions[key] = self._source_position(event)
        self._stripped.add(key)
        self._shifted_messages.add((event.candidate, event.message))
        yield from self._envelope_part(event, signature)
        self._candidates[event.candidate].inserted += 1
        yield self._renumber_start(replace(event, part=replace(event.part, signature=None)))

    def _envelope_part(self, event: PartStart, signature: Signature) -> Iterator[Event]:
        index, candidate = event.index + self._candidates[event.candidate].inserted, event.candidate
        part = Reasoning(hidden="omitted", at=self._source_positions.get((candidate, event.index), event.part.at))
        yield PartStart(index=index, part=part, message=event.message, candidate=candidate)
        yield PartDelta(index=index, candidate=candidate, signature=signature)
        yield PartEnd(index=index, candidate=candidate, final=replace(part, signature=signature))

    def _start_signed_text(self, start: PartStart, event: Event, envelopes: ResponseEnvelopes) -> Iterator[Event]:
        """A text with a proof. If it says nothing, the carry stands in its place."""
        key, text = (start.candidate, start.index), start.part
        if isinstance(event, PartEnd) and (event.candidate, event.index) == key and event.final is not None:
            text = event.final
        if not isinstance(text, Text) or text.signature is None:
            yield self._renumber_start(start)
        elif text.text or isinstance(event, PartDelta):
            yield from self._insert_envelope_before(start, envelopes.seal((), text.signature))
        else:
            place = self._candidates[start.candidate].position
            yield from self._envelope_part(start, envelopes.seal([(replace(text, at=None), place)]))
            self._new_indexes[key] = -1

    def _source_position(self, event: PartStart) -> str:
        """Where the part stood before others were put in."""
        position = self._part_counts[event.candidate, event.message]
        return (
            event.part.at
            if event.part.at is not None
            else f"{self._wire_names.get('Message.parts', '/parts')}/{position}"
        )

    # ---- it grows and ends

    def _process_delta(self, event: PartDelta) -> PartDelta:
        key = (event.candidate, event.index)
        if (thought := self._open_reasoning.get(key)) is not None:
            thought.accumulator.add(event)
            event = event if event.signature is None else replace(event, signature=None)
        elif event.index in (speaker := self._candidates[event.candidate]).text_indexes:
            speaker.characters += len(event.text)
        return replace(event, index=self._new_indexes[key]) if key in self._new_indexes else event

    def _end_part(self, event: PartEnd, envelopes: ResponseEnvelopes) -> Iterator[Event]:
        key = (event.candidate, event.index)
        if (index := self._new_indexes.get(key, event.index)) < 0:
            return
        final = event.final
        if (thought := self._open_reasoning.pop(key, None)) is not None:
            whole = thought.complete_part(event)
            if whole is not None and whole.signature is None:
                self._restore_message_id(thought)
            if whole is not None and (whole.signature is not None or _is_full_reasoning(whole)):
                final = _client_reasoning(whole, self._seal_reasoning(whole, thought, envelopes))
                if final.signature is not None:
                    yield PartDelta(index=index, candidate=event.candidate, signature=final.signature)
            elif whole is not None:
                held = (replace(whole, at=None), thought.position)
                self._candidates[event.candidate].unsigned.append(held)
        elif key in self._stripped and isinstance(final, Text | ToolCall):
            final = replace(final, signature=None) if not envelopes.field.on_calls else None
        if final is not None and key in self._source_positions:
            final = replace(final, at=self._source_positions[key])
        yield replace(event, index=index, final=final)

    def _seal_reasoning(
        self, reasoning: Reasoning, open_reasoning: _OpenReasoning, envelopes: ResponseEnvelopes
    ) -> Signature | None:
        """The carry of a reasoning, and of what it has to do with; none where that waits for a call."""
        speaker = self._candidates[open_reasoning.start.candidate]
        # Its vendor's name for it may be that of its message.
        part: Part = replace(reasoning, id=reasoning.id or open_reasoning.message_id, at=None)
        held = [*speaker.unsigned, (part, open_reasoning.position)]
        speaker.unsigned = []
        if not envelopes.field.on_calls:
            return envelopes.seal(held)
        speaker.pending += held
        return None

    def _restore_message_id(self, open_reasoning: _OpenReasoning) -> None:
        """The name that was held back is its message's after all."""
        start = open_reasoning.start
        if open_reasoning.message_id is not None:
            self._restored_ids[start.candidate, start.message] = open_reasoning.message_id
            self.messages_without_id.append(("candidates", start.candidate, "messages", start.message))
            open_reasoning.message_id = None

    def _flush_pending(self, candidate: int, envelopes: ResponseEnvelopes) -> Iterator[Event]:
        """What no call came for stands on a text that says nothing, as Google's own proofs do."""
        speaker = self._candidates.get(candidate)
        if speaker is None or speaker.last_start is None or not any(map(_is_signed, speaker.pending)):
            return
        index = speaker.last_start.index + 1 + speaker.inserted
        text = Text(text="", signature=envelopes.seal(speaker.pending))
        speaker.pending = []
        yield PartStart(index=index, part=text, message=speaker.last_start.message, candidate=candidate)
        yield PartEnd(index=index, candidate=candidate, final=text)


def _is_full_reasoning(reasoning: Reasoning) -> bool:
    """Whether a model may want it back: not a summary, which is for people."""
    blocks = reasoning.content
    return bool(blocks) and all(isinstance(block, ReasoningText) and block.kind == "full" for block in blocks)


def _is_signed(sealed_part: _SealedPart) -> bool:
    return getattr(sealed_part[0], "signature", None) is not None


def _client_reasoning(part: Reasoning, signature: Signature | None) -> Reasoning:
    """What the client sees of a reasoning that is carried. All that it had besides comes back with the carry."""
    return Reasoning(content=part.content, hidden=part.hidden, signature=signature, at=part.at)
