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

from toolwire.canonical.content import Foreign, Part, Reasoning
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
from toolwire.codec.interface import Context, StreamDecoder
from toolwire.protocols.openai_chat.parts.reasoning import DETAILS, REASONING
from toolwire.protocols.openai_chat.stream.decoder import stream_decoder as chat_decoder
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.parts.details import ENTRY, FIELD, PLACE, decode_entry, read_entries, repeats, told
from toolwire.protocols.openrouter.parts.images import IMAGES, decode_images
from toolwire.protocols.openrouter.request.body import PROTOCOL
from toolwire.protocols.openrouter.response.errors import known_kind

_NEWS = f"delta/{FIELD}"
_DRAWN = f"delta/{IMAGES}"
_SPOKEN = ("text", "summary", "data")
_decode_list = msgspec.json.Decoder(list[dict[str, Any]]).decode
_GROWS: dict[str, Any] = {"text": "full", "summary": "summary"}


class _Entry:
    """One entry as it grows."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.whole: dict[str, Any] = {}
        self.part: Reasoning | None = None
        self.final: Reasoning | Foreign | None = None
        self.index = -1

    def grow(self, fragment: dict[str, Any]) -> None:
        for name, value in fragment.items():
            before = self.whole.get(name)
            if name in _SPOKEN and isinstance(before, str) and isinstance(value, str):
                self.whole[name] = before + value
            elif value is not None or name not in self.whole:
                self.whole[name] = value


class _Choice:
    """The parts of one answer, numbered anew."""

    def __init__(self, candidate: int) -> None:
        self._candidate = candidate
        self.moved = False
        self._next = 0
        self._indices: dict[int, int] = {}
        self._held: dict[int, PartStart] = {}
        self._entries: list[_Entry] = []
        self._repeated: dict[str, str] = {}

    def start(self, event: PartStart) -> list[Event]:
        if isinstance(event.part, Reasoning) and _field(event.part) is not None:
            self._held[event.index] = event
            return []
        ended = self._end_entries()
        return [*ended, replace(event, index=self._number(event.index))]

    def _number(self, index: int) -> int:
        self._indices[index] = number = self._next
        self._next += 1
        self.moved = self.moved or number != index
        return number

    def delta(self, event: PartDelta) -> list[Event]:
        news = (event.extras or {}).get(FAMILY, {})
        held = self._held.get(event.index)
        name = None if held is None else _field(held.part)
        if _NEWS in news and (fragments := _fragments(news[_NEWS])):
            if name is not None:
                return self._take(fragments, dict(news), name, event.text)
            left = {name: value for name, value in news.items() if name != _NEWS}
            kept = replace(event, index=self._indices[event.index], extras={FAMILY: left} if left else None)
            return [*self._take(fragments, {_NEWS: news[_NEWS]}), kept]
        if _DRAWN in news:
            apart = Notice(kind=f"choice:{self._candidate}", extras={FAMILY: {_DRAWN: news[_DRAWN]}})
            left = {name: value for name, value in news.items() if name != _DRAWN}
            return [apart, *self.delta(replace(event, extras={FAMILY: left} if left else None))]
        if held is not None and event.index not in self._indices:
            if name == "details" and self._entries:
                return []
            number = self._number(event.index)
            return [*self._end_entries(), replace(held, index=number), replace(event, index=number)]
        index = self._indices[event.index]
        return [event if index == event.index else replace(event, index=index)]

    def notice(self, event: Notice) -> list[Event]:
        news = (event.extras or {}).get(FAMILY, {})
        fragments = _fragments(news[_NEWS]) if _NEWS in news else []
        return self._take(fragments, dict(news)) if fragments else [event]

    def end(self, event: PartEnd) -> list[Event]:
        index = self._indices.get(event.index)
        return [] if index is None else [replace(event, index=index)]

    def _take(
        self, fragments: list[dict[str, Any]], news: dict[str, Raw], name: str | None = None, text: str = ""
    ) -> list[Event]:
        """The fragments of one chunk, and the plain text that stood beside them."""
        events: list[Event] = []
        for fragment in fragments:
            events += self._grow(fragment)
        if name is not None and name != "details":
            news[f"delta/{name}"] = Raw(msgspec.json.encode(text))
            self._repeated[name] = self._repeated.get(name, "") + text
        events.append(Notice(kind=f"choice:{self._candidate}", extras={FAMILY: news}))
        return events

    def _grow(self, fragment: dict[str, Any]) -> list[Event]:
        events: list[Event] = []
        entry = self._entry(fragment)
        entry.grow(fragment)
        kind = str(fragment.get("type")).removeprefix("reasoning.")
        said = fragment.get(kind) if kind in _GROWS else None
        if not isinstance(said, str) or not said:
            return events
        if entry.part is None:
            entry.part = Reasoning(form=(DETAILS, ENTRY), at=f"{PLACE}{entry.position}")
            entry.index = self._next
            self._next += 1
            events.append(PartStart(index=entry.index, part=entry.part, candidate=self._candidate))
        grown = PartDelta(index=entry.index, text=said, candidate=self._candidate, kind=_GROWS[kind])
        return [*events, grown]

    def _entry(self, fragment: dict[str, Any]) -> _Entry:
        key = (fragment.get("type"), fragment.get("index"))
        for entry in reversed(self._entries):
            if entry.final is None and (entry.whole.get("type"), entry.whole.get("index")) == key:
                return entry
        made = _Entry(len(self._entries))
        self._entries.append(made)
        return made

    def _end_entries(self) -> list[Event]:
        events: list[Event] = []
        for entry in self._entries:
            if entry.final is not None:
                continue
            (shape,) = read_entries(Raw(msgspec.json.encode([entry.whole])))
            final = entry.final = decode_entry(shape, entry.position)
            if entry.part is None:
                entry.index = self._next
                self._next += 1
                events.append(PartStart(index=entry.index, part=final, candidate=self._candidate))
            elif isinstance(final, Reasoning) and final.seal is not None:
                events.append(PartDelta(index=entry.index, candidate=self._candidate, seal=final.seal))
            events.append(PartEnd(index=entry.index, candidate=self._candidate, final=final))
        return events

    def _draw(self, images: Raw) -> list[Event]:
        """A part for each picture, once all of them are there."""
        events: list[Event] = []
        for image in decode_images(images):
            events.append(PartStart(index=self._next, part=image, candidate=self._candidate))
            events.append(PartEnd(index=self._next, candidate=self._candidate))
            self._next += 1
        return events

    def finish(self, event: MessageEnd) -> list[Event]:
        ended = self._end_entries()
        said = dict((event.extras or {}).get(FAMILY, {}))
        if IMAGES in said and (drawn := self._draw(said[IMAGES])):
            ended += drawn
            event = replace(event, form=event.form + told(IMAGES))
        if not self._entries:
            return [*ended, event]
        said[FIELD] = Raw(msgspec.json.encode([entry.whole for entry in self._entries]))
        form = told(FIELD)
        finals = [entry.final for entry in self._entries if entry.final is not None]
        for name, text in self._repeated.items():
            said[name] = Raw(msgspec.json.encode(text))
            form += told(name) if repeats(text, finals) else ()
        return [*ended, replace(event, extras={FAMILY: said}, form=event.form + form)]


def _field(part: Part) -> str | None:
    """The field of the message that a reasoning stands in, if it is one that entries may stand beside."""
    names = (token.removeprefix(REASONING) for token in part.form if token.startswith(REASONING))
    return next((name for name in names if name in ("reasoning", "reasoning_content", "details")), None)


def _fragments(raw: Raw) -> list[dict[str, Any]]:
    """The fragments, if they are of entries that can be read."""
    return _decode_list(raw) if read_entries(raw) else []


class Decoder:
    def __init__(self, context: Context) -> None:
        self._chat = chat_decoder(context)
        self._choices: dict[int, _Choice] = {}
        self._broken = False

    def feed(self, data: bytes) -> list[Event]:
        return self._read(lambda: self._chat.feed(data))

    def close(self) -> list[Event]:
        return self._read(self._chat.close)

    def _read(self, read: Callable[[], list[Event]]) -> list[Event]:
        """What can't be read may stand deep in a frame that is one of JSON; nothing after it is read."""
        if self._broken:
            return []
        try:
            return self._lift(read())
        except (DecodeError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._broken = True
            return [ResponseFailed(error=ApiError(kind="server", message=str(error)), broken=True)]

    def _lift(self, events: list[Event]) -> list[Event]:
        lifted: list[Event] = []
        for event in events:
            match event:
                case PartDelta(plain=True) if not self._choices[event.candidate].moved:
                    lifted.append(event)
                case PartDelta():
                    lifted += self._choice(event.candidate).delta(event)
                case PartStart():
                    lifted += self._choice(event.candidate).start(event)
                case PartEnd():
                    lifted += self._choice(event.candidate).end(event)
                case MessageEnd():
                    lifted += self._choice(event.candidate).finish(event)
                case Notice() if event.kind.startswith("choice:"):
                    lifted += self._choice(int(event.kind.removeprefix("choice:"))).notice(event)
                case ResponseStart():
                    lifted.append(replace(event, origin=PROTOCOL))
                case ResponseFailed():
                    lifted.append(replace(event, error=known_kind(event.error)))
                case _:
                    lifted.append(event)
        return lifted

    def _choice(self, candidate: int) -> _Choice:
        if (choice := self._choices.get(candidate)) is None:
            choice = self._choices[candidate] = _Choice(candidate)
        return choice


def stream_decoder(context: Context) -> StreamDecoder:
    return Decoder(context)
