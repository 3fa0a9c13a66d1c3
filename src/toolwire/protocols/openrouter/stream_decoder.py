"""OpenRouter's chunks: Chat's, with the entries of `reasoning_details` as parts of their own.

1. Fragments of an entry have its type and index; their text grows, of a signature the last one counts.
2. `reasoning` says again what the entries of its chunk say: then only they are told.
3. An entry ends when something else starts. What comes later for it is another one.
4. What the wire said is told beside it, in a notice, for home; and all of it together at the end of the message.
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
from toolwire.protocols.openai_chat.parts.content import DETAILS_FORM, REASONING_FORM
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
    """One entry as it grows."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.members: dict[str, Any] = {}
        self.part: Reasoning | None = None
        self.final: Reasoning | OpaquePart | None = None
        self.index = -1

    def merge(self, fragment: dict[str, Any]) -> None:
        for name, value in fragment.items():
            before = self.members.get(name)
            if name in _MERGED_FIELDS and isinstance(before, str) and isinstance(value, str):
                self.members[name] = before + value
            elif value is not None or name not in self.members:
                self.members[name] = value


class _ChoiceState:
    """The parts of one answer, numbered anew."""

    def __init__(self, candidate: int) -> None:
        self._candidate = candidate
        self.is_renumbered = False
        self._next_index = 0
        self._indices: dict[int, int] = {}
        self._pending_starts: dict[int, PartStart] = {}
        self._entries: list[_OpenEntry] = []
        self._plain_texts: dict[str, str] = {}

    def part_start(self, event: PartStart) -> list[Event]:
        if isinstance(event.part, Reasoning) and _reasoning_field(event.part) is not None:
            self._pending_starts[event.index] = event
            return []
        ended = self._end_entries()
        return [*ended, replace(event, index=self._assign_index(event.index))]

    def _assign_index(self, index: int) -> int:
        self._indices[index] = number = self._next_index
        self._next_index += 1
        self.is_renumbered = self.is_renumbered or number != index
        return number

    def part_delta(self, event: PartDelta) -> list[Event]:
        news = (event.extras or {}).get(FAMILY, {})
        held = self._pending_starts.get(event.index)
        name = None if held is None else _reasoning_field(held.part)
        if _DETAILS_DELTA in news and (fragments := _read_fragments(news[_DETAILS_DELTA])):
            if name is not None:
                return self._decode_fragments(fragments, dict(news), name, event.text)
            left = {name: value for name, value in news.items() if name != _DETAILS_DELTA}
            kept = replace(event, index=self._indices[event.index], extras={FAMILY: left} if left else None)
            return [*self._decode_fragments(fragments, {_DETAILS_DELTA: news[_DETAILS_DELTA]}), kept]
        if _IMAGES_DELTA in news:
            apart = Notice(kind=f"choice:{self._candidate}", extras={FAMILY: {_IMAGES_DELTA: news[_IMAGES_DELTA]}})
            left = {name: value for name, value in news.items() if name != _IMAGES_DELTA}
            return [apart, *self.part_delta(replace(event, extras={FAMILY: left} if left else None))]
        if held is not None and event.index not in self._indices:
            if name == "details" and self._entries:
                return []
            number = self._assign_index(event.index)
            return [*self._end_entries(), replace(held, index=number), replace(event, index=number)]
        index = self._indices[event.index]
        return [event if index == event.index else replace(event, index=index)]

    def notice(self, event: Notice) -> list[Event]:
        news = (event.extras or {}).get(FAMILY, {})
        fragments = _read_fragments(news[_DETAILS_DELTA]) if _DETAILS_DELTA in news else []
        return self._decode_fragments(fragments, dict(news)) if fragments else [event]

    def part_end(self, event: PartEnd) -> list[Event]:
        index = self._indices.get(event.index)
        return [] if index is None else [replace(event, index=index)]

    def _decode_fragments(
        self, fragments: list[dict[str, Any]], extras: dict[str, Raw], name: str | None = None, text: str = ""
    ) -> list[Event]:
        """The fragments of one chunk, and the plain text that stood beside them."""
        events: list[Event] = []
        for fragment in fragments:
            events += self._decode_fragment(fragment)
        if name is not None and name != "details":
            extras[f"delta/{name}"] = Raw(msgspec.json.encode(text))
            self._plain_texts[name] = self._plain_texts.get(name, "") + text
        events.append(Notice(kind=f"choice:{self._candidate}", extras={FAMILY: extras}))
        return events

    def _decode_fragment(self, fragment: dict[str, Any]) -> list[Event]:
        events: list[Event] = []
        entry = self._entry_for(fragment)
        entry.merge(fragment)
        kind = str(fragment.get("type")).removeprefix("reasoning.")
        said = fragment.get(kind) if kind in _TEXT_KINDS else None
        if not isinstance(said, str) or not said:
            return events
        if entry.part is None:
            entry.part = Reasoning(wire_form=(DETAILS_FORM, ENTRY_FORM), at=f"{DETAILS_POINTER}{entry.position}")
            entry.index = self._next_index
            self._next_index += 1
            events.append(PartStart(index=entry.index, part=entry.part, candidate=self._candidate))
        grown = PartDelta(index=entry.index, text=said, candidate=self._candidate, kind=_TEXT_KINDS[kind])
        return [*events, grown]

    def _entry_for(self, fragment: dict[str, Any]) -> _OpenEntry:
        key = (fragment.get("type"), fragment.get("index"))
        for entry in reversed(self._entries):
            if entry.final is None and (entry.members.get("type"), entry.members.get("index")) == key:
                return entry
        made = _OpenEntry(len(self._entries))
        self._entries.append(made)
        return made

    def _end_entries(self) -> list[Event]:
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
        """A part for each picture, once all of them are there."""
        events: list[Event] = []
        for image in decode_images(images):
            events.append(PartStart(index=self._next_index, part=image, candidate=self._candidate))
            events.append(PartEnd(index=self._next_index, candidate=self._candidate))
            self._next_index += 1
        return events

    def message_end(self, event: MessageEnd) -> list[Event]:
        ended = self._end_entries()
        said = dict((event.extras or {}).get(FAMILY, {}))
        if IMAGES in said and (drawn := self._decode_images(said[IMAGES])):
            ended += drawn
            event = replace(event, wire_form=event.wire_form + represented_tokens(IMAGES))
        if not self._entries:
            return [*ended, event]
        said[DETAILS_FIELD] = Raw(msgspec.json.encode([entry.members for entry in self._entries]))
        form = represented_tokens(DETAILS_FIELD)
        finals = [entry.final for entry in self._entries if entry.final is not None]
        for name, text in self._plain_texts.items():
            said[name] = Raw(msgspec.json.encode(text))
            form += represented_tokens(name) if is_repeated_text(text, finals) else ()
        return [*ended, replace(event, extras={FAMILY: said}, wire_form=event.wire_form + form)]


def _reasoning_field(part: Part) -> str | None:
    """The field of the message that a reasoning stands in, if it is one that entries may stand beside."""
    names = (token.removeprefix(REASONING_FORM) for token in part.wire_form if token.startswith(REASONING_FORM))
    return next((name for name in names if name in ("reasoning", "reasoning_content", "details")), None)


def _read_fragments(raw: Raw) -> list[dict[str, Any]]:
    """The fragments, if they are of entries that can be read."""
    return _decode_list(raw) if read_entries(raw) else []


class Decoder:
    def __init__(self, context: ResponseContext) -> None:
        self._chat = chat_decoder(context)
        self._choices: dict[int, _ChoiceState] = {}
        self._has_failed = False

    def feed(self, data: bytes) -> list[Event]:
        return self._read(lambda: self._chat.feed(data))

    def close(self) -> list[Event]:
        return self._read(self._chat.close)

    def _read(self, read_events: Callable[[], list[Event]]) -> list[Event]:
        """What can't be read may stand deep in a frame that is one of JSON; nothing after it is read."""
        if self._has_failed:
            return []
        try:
            return self._decode_events(read_events())
        except (DecodeError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._has_failed = True
            return [ResponseFailed(error=ApiError(kind="server", message=str(error)), broken=True)]

    def _decode_events(self, events: list[Event]) -> list[Event]:
        lifted: list[Event] = []
        for event in events:
            match event:
                case PartDelta(plain=True) if not self._choices[event.candidate].is_renumbered:
                    lifted.append(event)
                case PartDelta():
                    lifted += self._choice(event.candidate).part_delta(event)
                case PartStart():
                    lifted += self._choice(event.candidate).part_start(event)
                case PartEnd():
                    lifted += self._choice(event.candidate).part_end(event)
                case MessageEnd():
                    lifted += self._choice(event.candidate).message_end(event)
                case Notice() if event.kind.startswith("choice:"):
                    lifted += self._choice(int(event.kind.removeprefix("choice:"))).notice(event)
                case ResponseStart():
                    lifted.append(replace(event, origin=PROTOCOL))
                case ResponseFailed():
                    lifted.append(replace(event, error=with_error_kind(event.error)))
                case _:
                    lifted.append(event)
        return lifted

    def _choice(self, candidate: int) -> _ChoiceState:
        if (choice := self._choices.get(candidate)) is None:
            choice = self._choices[candidate] = _ChoiceState(candidate)
        return choice


def stream_decoder(context: ResponseContext) -> StreamDecoder:
    return Decoder(context)
