"""Streams of OpenRouter: Chat's chunks, with the entries of `reasoning_details` as parts.

1. Fragments of an entry have its type and index. Their texts are concatenated; of signatures the last one counts.
2. `reasoning` repeats the texts of the entries in its chunk, so it is skipped if there are entries.
3. An entry ends when something else starts. Later fragments for it start a new entry.
4. The wire fields are also emitted as a `Notice`, for clients of this protocol, and joined at the end of the message.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import OpaquePart, Part, Reasoning
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import (
    Event,
    MessageEnd,
    Notice,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseFailed,
    ResponseStart,
)
from toolwire.codec.interface import ResponseContext, StreamDecoder
from toolwire.protocols.openai_chat.parts.reasoning import DETAILS_FORM, REASONING_FORM
from toolwire.protocols.openai_chat.stream_decoder import stream_decoder as chat_decoder
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.errors import with_error_kind
from toolwire.protocols.openrouter.parts.content import (
    DETAILS_FIELD,
    DETAILS_POINTER,
    ENTRY_FORM,
    IMAGES,
    decode_entry,
    decode_images,
    is_repeated_text,
    read_entries,
    represented_tokens,
)
from toolwire.protocols.openrouter.request import PROTOCOL

_DETAILS_DELTA = f"delta/{DETAILS_FIELD}"
_IMAGES_DELTA = f"delta/{IMAGES}"
_MERGED_FIELDS = ("text", "summary", "data")
_decode_list = msgspec.json.Decoder(list[dict[str, Any]]).decode
_TEXT_KINDS: dict[str, Any] = {"text": "full", "summary": "summary"}


class _OpenEntry:
    """An entry of `reasoning_details` and its fragments so far."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.members: dict[str, Any] = {}
        self.part: Reasoning | None = None
        self.final: Reasoning | OpaquePart | None = None
        self.index = -1

    def merge(self, fragment: dict[str, Any]) -> None:
        """Add a fragment of this `reasoning_details` entry: texts are concatenated, other fields replaced."""
        for name, value in fragment.items():
            current = self.members.get(name)
            if name in _MERGED_FIELDS and isinstance(current, str) and isinstance(value, str):
                self.members[name] = current + value
            elif value is not None or name not in self.members:
                self.members[name] = value


class _ChoiceState:
    """The parts of one choice, renumbered to make room for entries."""

    def __init__(self, candidate: int) -> None:
        self._candidate = candidate
        self.is_renumbered = False
        self._next_index = 0
        self._indices: dict[int, int] = {}  # by Chat's part index
        self._pending_starts: dict[int, PartStart] = {}  # plain reasoning, emitted unless entries repeat it
        self._entries: list[_OpenEntry] = []
        self._plain_texts: dict[str, str] = {}  # skipped plain reasoning by field

    def part_start(self, event: PartStart) -> list[Event]:
        """Return the start of a part.

        Reasoning text is held back until it is known whether `reasoning_details` repeat it.
        """
        if isinstance(event.part, Reasoning) and _reasoning_field(event.part) is not None:
            self._pending_starts[event.index] = event
            return []
        ended = self._end_entries()
        return [*ended, replace(event, index=self._assign_index(event.index))]

    def _assign_index(self, index: int) -> int:
        """Assign the next part index to the part that has `index` in Chat's decoder; return it."""
        self._indices[index] = number = self._next_index
        self._next_index += 1
        self.is_renumbered = self.is_renumbered or number != index
        return number

    def part_delta(self, event: PartDelta) -> list[Event]:
        """Return the events of a delta, including `reasoning_details` and images of its chunk."""
        start = self._pending_starts.get(event.index)
        field = None if start is None else _reasoning_field(start.part)
        if event.extras and (events := self._decode_extras(event, event.extras.get(FAMILY, {}), field)):
            return events
        if start is not None and event.index not in self._indices:
            if field == "details" and self._entries:
                return []
            number = self._assign_index(event.index)
            return [*self._end_entries(), replace(start, index=number), replace(event, index=number)]
        index = self._indices[event.index]
        return [event if index == event.index else replace(event, index=index)]

    def _decode_extras(self, event: PartDelta, extras: dict[str, Raw], field: str | None) -> list[Event]:
        """Decode a delta whose chunk has `reasoning_details` or images; empty if it has neither.

        `field` is the field of the reasoning text that the delta holds, if any.
        """
        if _DETAILS_DELTA in extras and (fragments := _read_fragments(extras[_DETAILS_DELTA])):
            if field is not None:
                return self._decode_fragments(fragments, dict(extras), field, event.text)
            details = self._decode_fragments(fragments, {_DETAILS_DELTA: extras[_DETAILS_DELTA]})
            event = replace(event, index=self._indices[event.index])
            return [*details, _without_extra(event, extras, _DETAILS_DELTA)]
        if _IMAGES_DELTA in extras:
            images = Notice(kind=f"choice:{self._candidate}", extras={FAMILY: {_IMAGES_DELTA: extras[_IMAGES_DELTA]}})
            return [images, *self.part_delta(_without_extra(event, extras, _IMAGES_DELTA))]
        return []

    def notice(self, event: Notice) -> list[Event]:
        """Return the events of a chunk that has `reasoning_details` but no other content."""
        extras = (event.extras or {}).get(FAMILY, {})
        fragments = _read_fragments(extras[_DETAILS_DELTA]) if _DETAILS_DELTA in extras else []
        return self._decode_fragments(fragments, dict(extras)) if fragments else [event]

    def part_end(self, event: PartEnd) -> list[Event]:
        """Return the end of a part; no events for a part that never started."""
        index = self._indices.get(event.index)
        return [] if index is None else [replace(event, index=index)]

    def _decode_fragments(
        self, fragments: list[dict[str, Any]], extras: dict[str, Raw], field: str | None = None, text: str = ""
    ) -> list[Event]:
        """Decode the `reasoning_details` fragments of one chunk, and record the reasoning text in `field`.

        The last event is a notice that keeps these fields of the chunk for OpenRouter clients.
        """
        events: list[Event] = []
        for fragment in fragments:
            events += self._decode_fragment(fragment)
        if field is not None and field != "details":
            extras[f"delta/{field}"] = Raw(msgspec.json.encode(text))
            self._plain_texts[field] = self._plain_texts.get(field, "") + text
        events.append(Notice(kind=f"choice:{self._candidate}", extras={FAMILY: extras}))
        return events

    def _decode_fragment(self, fragment: dict[str, Any]) -> list[Event]:
        """Merge a fragment into its `reasoning_details` entry and return its events."""
        events: list[Event] = []
        entry = self._entry_for(fragment)
        entry.merge(fragment)
        kind = str(fragment.get("type")).removeprefix("reasoning.")
        text = fragment.get(kind) if kind in _TEXT_KINDS else None
        if not isinstance(text, str) or not text:
            return events
        if entry.part is None:
            entry.part = Reasoning(wire_form=(DETAILS_FORM, ENTRY_FORM), at=f"{DETAILS_POINTER}{entry.position}")
            entry.index = self._next_index
            self._next_index += 1
            events.append(PartStart(index=entry.index, part=entry.part, candidate=self._candidate))
        delta = PartDelta(index=entry.index, text=text, candidate=self._candidate, kind=_TEXT_KINDS[kind])
        return [*events, delta]

    def _entry_for(self, fragment: dict[str, Any]) -> _OpenEntry:
        """Return the open `reasoning_details` entry that a fragment belongs to, or a new one."""
        key = (fragment.get("type"), fragment.get("index"))
        for entry in reversed(self._entries):
            if entry.final is None and (entry.members.get("type"), entry.members.get("index")) == key:
                return entry
        new_entry = _OpenEntry(len(self._entries))
        self._entries.append(new_entry)
        return new_entry

    def _end_entries(self) -> list[Event]:
        """Return the end events of all open `reasoning_details` entries."""
        events: list[Event] = []
        for entry in self._entries:
            if entry.final is not None:
                continue
            (shape,) = read_entries(Raw(msgspec.json.encode([entry.members])))
            final = entry.final = decode_entry(shape, entry.position)
            if entry.part is None:
                entry.index = self._next_index
                self._next_index += 1
                events.append(PartStart(index=entry.index, part=final, candidate=self._candidate))
            elif isinstance(final, Reasoning) and final.signature is not None:
                events.append(PartDelta(index=entry.index, candidate=self._candidate, signature=final.signature))
            events.append(PartEnd(index=entry.index, candidate=self._candidate, final=final))
        return events

    def _decode_images(self, images: Raw) -> list[Event]:
        """Return the events of a part for each element of `images`."""
        events: list[Event] = []
        for image in decode_images(images):
            events.append(PartStart(index=self._next_index, part=image, candidate=self._candidate))
            events.append(PartEnd(index=self._next_index, candidate=self._candidate))
            self._next_index += 1
        return events

    def message_end(self, event: MessageEnd) -> list[Event]:
        """Return the end of the message, with the merged `reasoning_details` and images in its extras."""
        ended = self._end_entries()
        extras = dict((event.extras or {}).get(FAMILY, {}))
        if IMAGES in extras and (image_events := self._decode_images(extras[IMAGES])):
            ended += image_events
            event = replace(event, wire_form=event.wire_form + represented_tokens(IMAGES))
        if not self._entries:
            return [*ended, event]
        extras[DETAILS_FIELD] = Raw(msgspec.json.encode([entry.members for entry in self._entries]))
        form = represented_tokens(DETAILS_FIELD)
        finals = [entry.final for entry in self._entries if entry.final is not None]
        for name, text in self._plain_texts.items():
            extras[name] = Raw(msgspec.json.encode(text))
            form += represented_tokens(name) if is_repeated_text(text, finals) else ()
        return [*ended, replace(event, extras={FAMILY: extras}, wire_form=event.wire_form + form)]


def _without_extra(event: PartDelta, extras: dict[str, Raw], name: str) -> PartDelta:
    """Return the delta without one of its extras."""
    others = {key: value for key, value in extras.items() if key != name}
    return replace(event, extras={FAMILY: others} if others else None)


def _reasoning_field(part: Part) -> str | None:
    """Return the wire field of reasoning text; None if `reasoning_details` never repeat that field's text."""
    names = (token.removeprefix(REASONING_FORM) for token in part.wire_form if token.startswith(REASONING_FORM))
    return next((name for name in names if name in ("reasoning", "reasoning_content", "details")), None)


def _read_fragments(raw: Raw) -> list[dict[str, Any]]:
    """Return the `reasoning_details` elements of a chunk; an empty list if they are not valid."""
    return _decode_list(raw) if read_entries(raw) else []


class Decoder:
    """The stream decoder of OpenRouter, on top of Chat's."""

    def __init__(self, context: ResponseContext) -> None:
        self._chat = chat_decoder(context)
        self._choices: dict[int, _ChoiceState] = {}
        self._has_failed = False

    def feed(self, data: bytes) -> list[Event]:
        """Decode the next bytes into events."""
        return self._read(lambda: self._chat.feed(data))

    def close(self) -> list[Event]:
        """Decode the buffered bytes into events; the end of the response or a failure is the last."""
        return self._read(self._chat.close)

    def _read(self, read_events: Callable[[], list[Event]]) -> list[Event]:
        """Decode the events that `read_events` returns from Chat's decoder.

        Invalid `reasoning_details` fail the response; nothing after that is decoded.
        """
        if self._has_failed:
            return []
        try:
            return self._decode_events(read_events())
        except (DecodeError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._has_failed = True
            return [ResponseFailed(error=ApiError(kind="server", message=str(error)), broken=True)]

    def _decode_events(self, events: list[Event]) -> list[Event]:
        """Return the events of Chat's decoder with the fields that OpenRouter adds decoded."""
        decoded: list[Event] = []
        for event in events:
            match event:
                case PartDelta(plain=True) if not self._choices[event.candidate].is_renumbered:
                    decoded.append(event)
                case PartDelta():
                    decoded += self._choice(event.candidate).part_delta(event)
                case PartStart():
                    decoded += self._choice(event.candidate).part_start(event)
                case PartEnd():
                    decoded += self._choice(event.candidate).part_end(event)
                case MessageEnd():
                    decoded += self._choice(event.candidate).message_end(event)
                case Notice() if event.kind.startswith("choice:"):
                    decoded += self._choice(int(event.kind.removeprefix("choice:"))).notice(event)
                case ResponseStart():
                    decoded.append(replace(event, origin=PROTOCOL))
                case ResponseFailed():
                    decoded.append(replace(event, error=with_error_kind(event.error)))
                case _:
                    decoded.append(event)
        return decoded

    def _choice(self, candidate: int) -> _ChoiceState:
        """Return the decoding state of a choice, a new one on first use."""
        if (choice := self._choices.get(candidate)) is None:
            choice = self._choices[candidate] = _ChoiceState(candidate)
        return choice


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    """Return a decoder for one response stream."""
    return Decoder(context)
