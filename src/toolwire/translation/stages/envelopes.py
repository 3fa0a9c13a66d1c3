"""Put envelopes into a response for a client of another protocol.

Each signature becomes an envelope in a part that the client's protocol has and echoes, so encoders see only signatures
of their own protocol. Where clients echo reasoning, an envelope stands in the reasoning that it belongs to, or in an
empty one before the text or call. Where clients drop reasoning, it stands on the next call, or on an empty text at the
end. Unsigned reasoning is sealed as well: some models need it back with a call, and clients drop or shorten it.

Inserted parts shift those after them, which therefore get their source position (`at`), so that losses still point
there.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from toolwire.canonical.content import Media, Part, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartDeltas,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
)
from toolwire.canonical.fold import PartAccumulator
from toolwire.canonical.response import Response
from toolwire.codec.envelope import EnvelopeField, EnvelopeKey, EnvelopePayload
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.codec.losses import SourcePath, WireNames
from toolwire.translation.history import digest_before

_SIGNABLE_TYPES = frozenset({Text, ToolCall, Media})
_PartKey = tuple[int, int]
_SealedPart = tuple[Part, tuple[int, int]]
"""A sealed part and its position: the number of calls before it, and of characters since the last call."""


class ResponseEnvelopes:
    """Creates the envelopes of one response."""

    def __init__(self, field: EnvelopeField, envelope_key: EnvelopeKey, context: ResponseContext) -> None:
        self.field = field
        self.records_positions = field.on_calls or field.reasoning_first
        self._envelope_key = envelope_key
        self._context = context
        self._history_digest: str | None = None

    def seal(
        self, sealed_parts: Sequence[_SealedPart] = (), signature: Signature | None = None, call_name: str | None = None
    ) -> Signature:
        """Sign parts and a signature into an envelope, in the form of a signature that the client echoes.

        `call_name` is the tool of the call that the sealed signature belongs to.
        """
        parts = tuple([part for part, _ in sealed_parts])
        positions = tuple([position for _, position in sealed_parts]) if self.records_positions else ()
        if self._history_digest is None:
            request, digest = self._context.request, self._context.digest_before or digest_before
            self._history_digest = digest(() if request is None else request.messages)
        envelope = self._envelope_key.seal(
            EnvelopePayload(parts=parts, positions=positions, signature=signature, call_name=call_name),
            self._history_digest,
        )
        return self.field.encode(envelope)


def has_signatures(response: Response) -> bool:
    """Return whether a response contains signatures or reasoning that an envelope must carry."""
    for candidate in response.candidates:
        for message in candidate.messages:
            for part in message.parts:
                if type(part) is Reasoning or (type(part) in _SIGNABLE_TYPES and part.signature is not None):  # type: ignore[union-attr]
                    return True
    return False


class _OpenReasoning:
    """Reasoning that may still get a signature, and the id of its message, withheld until then."""

    def __init__(self, start: PartStart, message_id: str | None, position: tuple[int, int]) -> None:
        self.start = start
        self.message_id = message_id
        self.position = position
        self.accumulator = PartAccumulator()

    def complete_part(self, end: PartEnd) -> Reasoning | None:
        """Return the reasoning with all its deltas, at its end event; None if it is no reasoning."""
        part = end.final if end.final is not None else self.accumulator.apply(self.start.part)
        return part if isinstance(part, Reasoning) else None


class _CandidateState:
    """The state of a candidate while its events pass."""

    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0
        self.text_indexes: set[int] = set()
        self.unsigned: list[_SealedPart] = []  # unsigned reasoning directly before the next part
        self.pending: list[_SealedPart] = []  # parts to seal on the next call
        self.inserted = 0
        self.last_start: PartStart | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Return the number of calls so far, and the number of text characters since the last call."""
        return self.calls, self.characters


class EnvelopeStage:
    """Puts envelopes into a stream; the signature of reasoning is only known at its end."""

    def __init__(self, writer: Codec, wire_names: WireNames, context: ResponseContext) -> None:
        self.messages_without_id: list[SourcePath] = []  # whose id was withheld for an envelope that was not needed
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

    def applies(self, response: Response) -> bool:
        """Return whether the response is of another protocol, and has signatures or reasoning to put in envelopes."""
        return response.origin != self._writer.name and has_signatures(response)

    def process(self, events: list[Event]) -> list[Event]:
        """Return the events with vendor signatures sealed in envelopes."""
        processed: list[Event] = []
        for event in events:
            if type(event) is ResponseStart:
                self._envelopes = self._new_envelopes(event)
            if self._envelopes is None:
                processed.append(event)
            else:
                processed += self._process_event(event, self._envelopes)
        return processed

    def _new_envelopes(self, start: ResponseStart) -> ResponseEnvelopes | None:
        """Return the envelopes of a response that starts; None if it is of the client's own protocol."""
        field, envelope_key = self._writer.envelope_field, self._context.envelope_key
        if start.origin == self._writer.name or field is None or envelope_key is None:
            return None
        return ResponseEnvelopes(field, envelope_key, self._context)

    def _process_event(self, event: Event, envelopes: ResponseEnvelopes) -> Iterator[Event]:
        """Yield the events that replace one event."""
        withheld_id: str | None = None
        if (message_start := self._message_start) is not None:
            self._message_start = None
            if isinstance(event, PartStart) and isinstance(event.part, Reasoning):
                withheld_id, message_start = message_start.id, replace(message_start, id=None)
                self._messages_without_start_id.add((message_start.candidate, message_start.message))
            yield message_start
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
                yield from self._start_part(event, envelopes, withheld_id)
            case PartDelta() | PartDeltas():
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

    # ---- starts of parts

    def _start_part(self, event: PartStart, envelopes: ResponseEnvelopes, message_id: str | None) -> Iterator[Event]:
        """Yield the start of a part, possibly with an envelope before it."""
        key, message, part = (event.candidate, event.index), (event.candidate, event.message), event.part
        self._part_counts[message] = self._part_counts.get(message, -1) + 1
        if message in self._shifted_messages:
            self._source_positions[key] = self._source_position(event)
        state = self._candidates.setdefault(event.candidate, _CandidateState())
        state.last_start = event
        if isinstance(part, Reasoning):
            self._open_reasoning[key] = _OpenReasoning(event, message_id, state.position)
            yield self._renumber_start(replace(event, part=replace(part, signature=None, id=None)))
            return
        state.unsigned = []
        if isinstance(part, Text):
            state.text_indexes.add(event.index)
            state.characters += len(part.text)
        elif isinstance(part, ToolCall) and part.executor == "client":
            state.calls, state.characters = state.calls + 1, 0
            yield from self._start_call(event, part, state, envelopes)
            return
        if isinstance(part, Text) and part.signature is not None and not envelopes.field.on_calls:
            self._signed_text = event  # the next event shows whether it has any text
        else:
            yield self._renumber_start(event)

    def _start_call(
        self, event: PartStart, part: ToolCall, state: _CandidateState, envelopes: ResponseEnvelopes
    ) -> Iterator[Event]:
        """Yield the start of a call, with an envelope on it or before it."""
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
        """Return the start with its index shifted by the inserted parts."""
        key = (event.candidate, event.index)
        if inserted := self._candidates[event.candidate].inserted:
            self._new_indexes[key] = event.index + inserted
            event = replace(event, index=event.index + inserted)
        return (
            event
            if key not in self._source_positions
            else replace(event, part=replace(event.part, at=self._source_positions[key]))
        )

    def _insert_envelope_before(self, event: PartStart, signature: Signature) -> Iterator[Event]:
        """Yield an envelope, then the start of the part whose signature it holds."""
        key = (event.candidate, event.index)
        self._source_positions[key] = self._source_position(event)
        self._stripped.add(key)
        self._shifted_messages.add((event.candidate, event.message))
        yield from self._envelope_part(event, signature)
        self._candidates[event.candidate].inserted += 1
        yield self._renumber_start(replace(event, part=replace(event.part, signature=None)))

    def _envelope_part(self, event: PartStart, signature: Signature) -> Iterator[Event]:
        """Yield an empty reasoning that holds an envelope."""
        index, candidate = event.index + self._candidates[event.candidate].inserted, event.candidate
        part = Reasoning(hidden="omitted", at=self._source_positions.get((candidate, event.index), event.part.at))
        yield PartStart(index=index, part=part, message=event.message, candidate=candidate)
        yield PartDelta(index=index, candidate=candidate, signature=signature)
        yield PartEnd(index=index, candidate=candidate, final=replace(part, signature=signature))

    def _start_signed_text(self, start: PartStart, event: Event, envelopes: ResponseEnvelopes) -> Iterator[Event]:
        """Yield the start of a signed text; an empty text is replaced by its envelope."""
        key, text = (start.candidate, start.index), start.part
        if isinstance(event, PartEnd) and (event.candidate, event.index) == key and event.final is not None:
            text = event.final
        if not isinstance(text, Text) or text.signature is None:
            yield self._renumber_start(start)
        elif text.text or isinstance(event, PartDelta | PartDeltas):
            yield from self._insert_envelope_before(start, envelopes.seal((), text.signature))
        else:
            position = self._candidates[start.candidate].position
            yield from self._envelope_part(start, envelopes.seal([(replace(text, at=None), position)]))
            self._new_indexes[key] = -1

    def _source_position(self, event: PartStart) -> str:
        """Return the position of a part in the source, before others were inserted."""
        position = self._part_counts[event.candidate, event.message]
        return (
            event.part.at
            if event.part.at is not None
            else f"{self._wire_names.get('Message.parts', '/parts')}/{position}"
        )

    # ---- deltas and ends of parts

    def _process_delta(self, event: PartDelta | PartDeltas) -> PartDelta | PartDeltas:
        """Return the delta without its signature, under its new index."""
        key = (event.candidate, event.index)
        if (reasoning := self._open_reasoning.get(key)) is not None:
            reasoning.accumulator.add(event)
            if type(event) is PartDelta and event.signature is not None:
                event = replace(event, signature=None)
        elif event.index in (state := self._candidates[event.candidate]).text_indexes:
            state.characters += len(event.text)
        return replace(event, index=self._new_indexes[key]) if key in self._new_indexes else event

    def _end_part(self, event: PartEnd, envelopes: ResponseEnvelopes) -> Iterator[Event]:
        """Yield the end of a part, with the envelope of a reasoning."""
        key = (event.candidate, event.index)
        if (index := self._new_indexes.get(key, event.index)) < 0:
            return
        final = event.final
        if (open_reasoning := self._open_reasoning.pop(key, None)) is not None:
            reasoning = open_reasoning.complete_part(event)
            if reasoning is not None and reasoning.signature is None:
                self._restore_message_id(open_reasoning)
            if reasoning is not None and (reasoning.signature is not None or _is_full_reasoning(reasoning)):
                final = _client_reasoning(reasoning, self._seal_reasoning(reasoning, open_reasoning, envelopes))
                if final.signature is not None:
                    yield PartDelta(index=index, candidate=event.candidate, signature=final.signature)
            elif reasoning is not None:
                sealed_part = (replace(reasoning, at=None), open_reasoning.position)
                self._candidates[event.candidate].unsigned.append(sealed_part)
        elif key in self._stripped and isinstance(final, Text | ToolCall):
            final = replace(final, signature=None) if not envelopes.field.on_calls else None
        if final is not None and key in self._source_positions:
            final = replace(final, at=self._source_positions[key])
        yield replace(event, index=index, final=final)

    def _seal_reasoning(
        self, reasoning: Reasoning, open_reasoning: _OpenReasoning, envelopes: ResponseEnvelopes
    ) -> Signature | None:
        """Return the envelope of a reasoning part; None if it is added to the envelope of the next call."""
        state = self._candidates[open_reasoning.start.candidate]
        # Some vendors identify reasoning by the id of its message.
        part: Part = replace(reasoning, id=reasoning.id or open_reasoning.message_id, at=None)
        sealed_parts = [*state.unsigned, (part, open_reasoning.position)]
        state.unsigned = []
        if not envelopes.field.on_calls:
            return envelopes.seal(sealed_parts)
        state.pending += sealed_parts
        return None

    def _restore_message_id(self, open_reasoning: _OpenReasoning) -> None:
        """Give a withheld id back to its message."""
        start = open_reasoning.start
        if open_reasoning.message_id is not None:
            self._restored_ids[start.candidate, start.message] = open_reasoning.message_id
            self.messages_without_id.append(("candidates", start.candidate, "messages", start.message))
            open_reasoning.message_id = None

    def _flush_pending(self, candidate: int, envelopes: ResponseEnvelopes) -> Iterator[Event]:
        """Yield an empty text with an envelope for sealed parts that waited for a call in vain, as Google does."""
        state = self._candidates.get(candidate)
        if state is None or state.last_start is None or not any(map(_is_signed, state.pending)):
            return
        index = state.last_start.index + 1 + state.inserted
        text = Text(text="", signature=envelopes.seal(state.pending))
        state.pending = []
        yield PartStart(index=index, part=text, message=state.last_start.message, candidate=candidate)
        yield PartEnd(index=index, candidate=candidate, final=text)


def _is_full_reasoning(reasoning: Reasoning) -> bool:
    """Return whether a model may need the reasoning back, as opposed to a summary."""
    blocks = reasoning.content
    return bool(blocks) and all(isinstance(block, ReasoningText) and block.kind == "full" for block in blocks)


def _is_signed(sealed_part: _SealedPart) -> bool:
    """Return whether a sealed part has a signature."""
    return getattr(sealed_part[0], "signature", None) is not None


def _client_reasoning(part: Reasoning, signature: Signature | None) -> Reasoning:
    """Return the reasoning as the client sees it: its text, with the envelope, if any, as signature."""
    return Reasoning(content=part.content, hidden=part.hidden, signature=signature, at=part.at)
