"""One answer of a stream as it grows: which part a delta is of, and when that ends."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Part, Reasoning, Refusal, Text
from toolwire.canonical.events import (
    Event,
    MessageEnd,
    MessageStart,
    Notice,
    PartDelta,
    PartEnd,
    PartStart,
    Stopped,
)
from toolwire.canonical.response import Stop, StopReason
from toolwire.codec.fields import Wire, escape
from toolwire.codec.kept import known
from toolwire.protocols.openai_chat.parts.citations import decode_citation
from toolwire.protocols.openai_chat.parts.content import STRING, THINKING, decode_parts
from toolwire.protocols.openai_chat.parts.reasoning import DETAILS, REASONING, details_text
from toolwire.protocols.openai_chat.response.body import STOPS
from toolwire.protocols.openai_chat.wire import (
    FAMILY,
    DeltaShape,
    FunctionCallShape,
    StreamedShape,
    TextPart,
    ThinkingPart,
)

from .fragments import Calls
from .repeats import has_extras, says_more

_decode = msgspec.json.Decoder().decode
# A whole answer has these even where there is nothing to say of them.
_SPELLING = (STRING, f"{FAMILY}:null:content", f"{FAMILY}:null:refusal")
_SAID_ONCE = frozenset({"type", "id", "index", "format", "role", "object"})
_NULL = Raw(b"null")


class Choice:
    """One of the answers as it grows."""

    def __init__(self, candidate: int, answer: str) -> None:
        self.candidate = candidate
        self.finished = False
        self._started = False
        self._ended = False
        self._kind: str | None = None
        self._index = self._text = self._notes = -1
        self._refused = False
        self._calls = Calls(candidate, answer, self._open_call)
        self._delta_extras: dict[str, Any] = {}
        self._choice_extras: dict[str, Any] = {}

    def take(self, shape: StreamedShape, events: list[Event]) -> None:
        delta = shape.delta
        if isinstance(delta, DeltaShape):
            if not self._started:
                self._start(delta, events)
            before = len(events)
            self.grow(delta, events)
            if shape.unknown is not UNSET or delta.unknown is not UNSET or has_extras(shape):
                self._keep(shape, delta, events, before)
        elif shape.unknown is not UNSET or has_extras(shape):
            self._keep(shape, None, events, len(events))
        if isinstance(shape.finish_reason, str):
            self.finished = True
            self.finish(shape.finish_reason, events)

    def go_on(self, call: int | None, text: str, events: list[Event]) -> bool:
        """Whether more of a text, or of the arguments of a call that is known, could be told."""
        if call is not None:
            return self._calls.go_on(call, text, events)
        if self._kind != "text":
            return False
        events.append(PartDelta(index=self._index, text=text, candidate=self.candidate, plain=True))
        return True

    def grow(self, delta: DeltaShape, events: list[Event]) -> None:
        content, calls = delta.content, delta.tool_calls
        if (content and calls) or isinstance(content, list) or says_more(delta):
            self._take_all(delta, events)
        elif content:
            self._say("text", content, events)
        elif calls:
            for fragment in calls:
                self._calls.take(fragment, events)

    def _start(self, delta: DeltaShape, events: list[Event]) -> None:
        self._started = True
        start = MessageStart(candidate=self.candidate, name=known(delta.name), form=_SPELLING, at="/message")
        events.append(start)

    def _take_all(self, delta: DeltaShape, events: list[Event]) -> None:
        self._take_reasoning(delta, events)
        if isinstance(delta.content, str):
            if delta.content:
                self._say("text", delta.content, events)
        elif isinstance(delta.content, list):
            self._take_list(delta.content, events)
        if isinstance(delta.refusal, str) and delta.refusal:
            self._refused = True
            self._say("refusal", delta.refusal, events)
        if isinstance(delta.function_call, FunctionCallShape):
            self._calls.take_legacy(delta.function_call, events)
        if isinstance(delta.tool_calls, list):
            for fragment in delta.tool_calls:
                self._calls.take(fragment, events)
        if isinstance(delta.annotations, list) and self._text >= 0:
            for raw in delta.annotations:
                self._notes += 1
                note = decode_citation(raw, f"//choices/{self.candidate}/message/annotations/{self._notes}")
                events.append(PartDelta(index=self._text, candidate=self.candidate, annotation=note))

    def _take_reasoning(self, delta: DeltaShape, events: list[Event]) -> None:
        for name in ("reasoning_content", "reasoning"):
            text = getattr(delta, name)
            if isinstance(text, str) and text:
                self._say(name, text, events)
                return
        details = None if delta.unknown is UNSET else delta.unknown.get("reasoning_details")
        if details is not None and self._kind in (None, "details"):
            for text in details_text(details):
                self._say("details", text, events)

    def _take_list(self, content: list[Any], events: list[Event]) -> None:
        for part in content:
            if isinstance(part, TextPart):
                if part.text:
                    self._say("text", part.text, events)
            elif isinstance(part, ThinkingPart):
                inner = [part.thinking] if isinstance(part.thinking, str) else _texts(part.thinking)
                for text in inner:
                    self._say("thinking", text, events)
            else:
                (whole,) = decode_parts([part])
                index = self._open(None, whole, events)
                events.append(PartEnd(index=index, candidate=self.candidate))

    def _say(self, kind: str, text: str, events: list[Event]) -> None:
        if self._kind != kind:
            index = self._open(kind, _OPENED[kind], events)
            if kind == "text":
                self._text = index
        if (grows := _GROWS.get(kind)) is None:
            events.append(PartDelta(index=self._index, text=text, candidate=self.candidate, plain=True))
        else:
            events.append(PartDelta(index=self._index, text=text, candidate=self.candidate, kind=grows))

    def _open(self, kind: str | None, part: Part, events: list[Event]) -> int:
        index = self._open_call(events)
        self._kind = kind
        events.append(PartStart(index=index, part=part, candidate=self.candidate))
        return index

    def _open_call(self, events: list[Event]) -> int:
        self._end_part(events)
        self._index += 1
        return self._index

    def _end_part(self, events: list[Event]) -> None:
        if self._kind is not None:
            events.append(PartEnd(index=self._index, candidate=self.candidate))
            self._kind = None

    def _keep(self, shape: StreamedShape, delta: DeltaShape | None, events: list[Event], before: int) -> None:
        """What only this protocol has: beside the first delta of the chunk, or alone."""
        news = _news(shape, "", ("logprobs", "native_finish_reason"), self._choice_extras)
        if delta is not None:
            news |= _news(delta, "delta/", (), self._delta_extras)
        if not news:
            return
        for place in range(before, len(events)):
            event = events[place]
            if type(event) is PartDelta:
                events[place] = msgspec.structs.replace(event, extras={FAMILY: news}, plain=False)
                return
        events.append(Notice(kind=f"choice:{self.candidate}", extras={FAMILY: news}))

    def finish(self, reason: str | None, events: list[Event]) -> None:
        """End all parts, then the answer. Without a reason the stream just ended."""
        self._end_part(events)
        self._calls.finish(events, cut=reason == "length")
        if self._ended:
            return
        self._ended = True
        extras = {escape(name): Raw(msgspec.json.encode(value)) for name, value in self._delta_extras.items()}
        events.append(MessageEnd(candidate=self.candidate, extras={FAMILY: extras} if extras else None))
        if reason is not None:
            stop = Stop(reason=self._meant(reason), raw=reason)
            about = {escape(name): Raw(msgspec.json.encode(value)) for name, value in self._choice_extras.items()}
            extras_about = {FAMILY: about} if about else None
            form = (f"{FAMILY}:null:logprobs",)
            events.append(Stopped(stop=stop, candidate=self.candidate, extras=extras_about, form=form))

    def _meant(self, reason: str) -> StopReason:
        meant = STOPS.get(reason, "other")
        if meant == "end_turn":
            return "tool_use" if self._calls else "refusal" if self._refused else meant
        return meant

    def is_broken(self) -> bool:
        return not self._ended and self._calls.is_broken()


_OPENED: dict[str, Part] = {
    "text": Text(text="", at="/content"),
    "refusal": Refusal(text="", at="/refusal"),
    "reasoning_content": Reasoning(at="/reasoning_content", form=(REASONING + "reasoning_content",)),
    "reasoning": Reasoning(at="/reasoning", form=(REASONING + "reasoning",)),
    "details": Reasoning(at="/reasoning_details/0", form=(DETAILS,)),
    "thinking": Reasoning(at="/content", form=(THINKING,)),
}
_GROWS: dict[str, Any] = dict.fromkeys(("reasoning_content", "reasoning", "details", "thinking"), "full")


def _texts(parts: list[Any]) -> list[str]:
    return [part.text for part in parts if isinstance(part, TextPart) and part.text]


def _news(wire: Wire, under: str, names: tuple[str, ...], said: dict[str, Any]) -> dict[str, Raw]:
    """The fields that only this protocol has and that say something new, also added to all that was said."""
    found = {name: value for name in names if (value := getattr(wire, name)) is not UNSET}
    if wire.unknown is not UNSET:
        found.update(wire.unknown)
    news: dict[str, Raw] = {}
    for name, raw in found.items():
        if raw == _NULL:
            continue
        value = _decode(raw)
        if isinstance(value, dict | list):
            said[name] = _grown(said[name], value) if name in said else value
        elif said.get(name) == value:
            continue
        else:
            said[name] = value
        news[under + escape(name)] = raw
    return news


def _grown(before: Any, more: Any) -> Any:
    """Two pieces of a value as one, as clients join them."""
    if isinstance(before, dict) and isinstance(more, dict):
        for name, value in more.items():
            once = name in _SAID_ONCE or before.get(name) is None
            before[name] = value if once else _grown(before[name], value)
        return before
    if isinstance(before, list) and isinstance(more, list):
        for item in more:
            index = item.get("index") if isinstance(item, dict) else None
            known = [one for one in before if isinstance(one, dict)] if index is not None else []
            same = next((one for one in known if one.get("index") == index), None)
            if same is None:
                before.append(item)
            else:
                _grown(same, item)
        return before
    if isinstance(before, str) and isinstance(more, str):
        return before + more
    return before if more is None else more
