"""The text of one candidate, and the parts that come out of it.

A text part of the upstream becomes several parts, in the order of the text. Until something is recovered, events pass
unchanged, except for text that may be the beginning of a mark.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning, Text, ToolCall
from toolwire.canonical.events import CandidateEnd, Event, MessageEnd, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import PartAccumulator
from toolwire.canonical.node import Extras
from toolwire.canonical.response import INCOMPLETE_STOPS, Stop
from toolwire.codec.interface import TextRecovery
from toolwire.translation.stages.tool_call_parsers.parser import Segment, TextCallParser

TEXT_FORM = "text:"
"""Prefix of the `wire_form` of parts recovered from text; `reasoning` or `call (DIALECT)` follows."""
LATE_REASONING = TEXT_FORM + "late_reasoning"
"""The `wire_form` of a candidate whose reasoning was released as text, since its end was seen too late."""
_TOOL_STOP = Stop(reason="tool_use")


class CandidateText:
    """The text of one candidate, and the parts that come out of it."""

    def __init__(
        self,
        candidate: int,
        tools: Mapping[str, Raw | None],
        settings: TextRecovery,
        *,
        bare: bool,
        reasoning_closer: str,
    ) -> None:
        self._candidate = candidate
        self._parser = TextCallParser(
            tools,
            calls=settings.tool_calls,
            reasoning=settings.reasoning,
            model=settings.model,
            bare=bare,
            reasoning_closer=reasoning_closer,
        )
        self.has_changed = False
        self._indexes: dict[int, int] = {}  # of parts as they go out, by the upstream's
        self._next_index = 0
        self._text: PartStart | None = None  # the upstream's text part that is open
        self._text_end: PartEnd | None = None  # of that part, held until the stop reason is known
        self._held: list[Event] = []  # that came after it
        self._open: tuple[str, int] | None = None  # kind and index of the part that is open at the client
        self._is_started = False  # the text part has gone out
        self._calls: list[ToolCall] = []  # recovered
        self._copies: dict[
            int, tuple[PartStart, list[PartDelta]]
        ] = {}  # structured calls that may be copies of recovered ones
        self._is_done = False
        self._extras: Extras | None = None  # of a delta that is held or changed

    @property
    def is_holding(self) -> bool:
        """Return whether events are held back."""
        return self._parser.is_holding or (self._text is not None and not self._is_started)

    @property
    def is_quiet(self) -> bool:
        """Return whether nothing was recovered or is held, so that events without any sign of a mark pass unchanged."""
        return not (self.has_changed or self._copies or self.is_holding or self._parser.in_reasoning)

    @property
    def has_open_text(self) -> bool:
        """Return whether a text part of the upstream is open."""
        return self._text is not None

    # ---- events of the upstream

    def passes(self, index: int, deltas: list[Event], out: list[Event]) -> bool:
        """Add deltas of one part as they are, unless they may hold a mark; return whether they were added."""
        if self.has_changed or self._copies:
            return False
        if self._text is not None and index == self._text.index:
            if self._is_started != (self._open is not None):
                return False
            text = deltas[0].text if len(deltas) == 1 else "".join([delta.text for delta in deltas])  # type: ignore[union-attr]  # deltas
            if not self._parser.passes(text):
                return False
            if not self._is_started:
                self._open_part("text", out)
        out += deltas
        return True

    def process_message_end(self, event: MessageEnd, out: list[Event]) -> None:
        """Hold the end of a message while that of its text is held."""
        (out if self._text_end is None else self._held).append(event)

    def process_delta(self, event: PartDelta, out: list[Event]) -> None:
        """Parse the text of a delta; deltas of other parts pass."""
        text, opened = self._text, self._open
        if text is None or event.index != text.index:
            if self._copies and event.index in self._copies:
                self._copies[event.index][1].append(event)
            else:
                out.append(self._renumber(event))
        elif opened is not None and opened[0] == "text" and self._parser.passes(event.text):
            out.append(event if event.index == opened[1] else replace(event, index=opened[1]))
        else:
            self._emit(self._parser.feed(event.text), out, event)

    def process_start(self, event: PartStart, out: list[Event]) -> None:
        """Hold the start of a text part until its text comes; another part releases the text before it."""
        if type(event.part) is Text:
            self._release_text(out)
            self._text, self._is_started = event, False
            if event.part.text:
                self._emit(self._parser.feed(event.part.text), out)
            return
        if type(event.part) is ToolCall:
            self._release_text(out)
            if self._calls:
                self._copies[event.index] = (event, [])
                return
            self._parser.ignore_calls()
        elif self._parser.is_holding:
            self._release_text(out)
        self._start_part(event, out)

    def process_end(self, event: PartEnd, out: list[Event]) -> None:
        """End a text part, unless text is held until the stop reason is known; ends of other parts pass."""
        if self._text is None or event.index != self._text.index:
            if event.index in self._copies:
                self._settle_copy(*self._copies.pop(event.index), event, out)
            else:
                out.append(self._renumber(event))
        elif self._parser.is_holding or not self._is_started:
            self._text_end = event
        else:
            self._end_text(event, out)

    def process_stop(self, event: CandidateEnd, out: list[Event]) -> None:
        """Decide what is still held, and change the stop reason if calls were recovered."""
        stop = event.stop
        self.finish(out, is_finished=stop is None or stop.reason not in INCOMPLETE_STOPS)
        if self._calls and stop is not None and stop.reason in ("end_turn", "stop_sequence", "other"):
            event = replace(event, stop=_TOOL_STOP)
        if self._parser.late_reasoning:
            event = replace(event, wire_form=(*event.wire_form, LATE_REASONING))
        out.append(event)

    def finish(self, out: list[Event], *, is_finished: bool) -> None:
        """Release everything that is held; `is_finished` says that the model ended its turn."""
        if self._is_done:
            return
        self._is_done = True
        self._emit(self._parser.finish(finished=is_finished), out)
        self.has_changed = self.has_changed or self._parser.has_changed
        for start, deltas in self._copies.values():
            self._start_part(start, out)
            out.extend(map(self._renumber, deltas))
        self._end_held_text(out)

    def _release_text(self, out: list[Event]) -> None:
        """Release held text as it is, and end its part if the upstream did."""
        if self._text is not None:
            self._emit(self._parser.abandon(), out)
            self._end_held_text(out)

    def _end_held_text(self, out: list[Event]) -> None:
        """End the text part whose end was held, and release the events after it."""
        if self._text_end is not None:
            end, self._text_end = self._text_end, None
            self._end_text(end, out)
            out += self._held
            self._held = []

    def _settle_copy(self, start: PartStart, deltas: list[PartDelta], end: PartEnd, out: list[Event]) -> None:
        """Drop a structured call that copies a recovered one, or let it go out."""
        accumulator = PartAccumulator()
        for delta in deltas:
            accumulator.add(delta)
        call = end.final or accumulator.apply(start.part)
        if isinstance(call, ToolCall) and any(_is_copy(call, recovered) for recovered in self._calls):
            return
        self._start_part(start, out)
        out.extend(map(self._renumber, deltas))
        out.append(self._renumber(end))

    # ---- events for the client

    def _emit(self, segments: list[Segment], out: list[Event], delta: PartDelta | None = None) -> None:
        """Add the events of parsed segments; a delta that is unchanged goes out itself."""
        self.has_changed = self.has_changed or self._parser.has_changed
        if delta is not None and delta.extras and not (len(segments) == 1 and segments[0].text == delta.text):
            self._extras = {**(self._extras or {}), **delta.extras}
        for segment in segments:
            if segment.kind == "call":
                self._close_open(out)
                self._emit_call(segment, out)
                continue
            if self._open is None or self._open[0] != segment.kind:
                self._close_open(out)
                self._open_part(segment.kind, out)
            index = self._next_index - 1 if self._open is None else self._open[1]
            if segment.kind == "text" and delta is not None and delta.index == index and delta.text == segment.text:
                out.append(delta)
                continue
            extras, self._extras = self._extras, None
            out.append(
                PartDelta(
                    index=index,
                    text=segment.text,
                    candidate=self._candidate,
                    kind="full" if segment.kind == "reasoning" else None,
                    extras=extras,
                )
            )

    def _open_part(self, kind: str, out: list[Event]) -> None:
        """Start a text or reasoning part at the client."""
        if self._text is None:
            raise AssertionError("segments come from a text part")
        text = self._text
        if kind == "text" and not self._is_started:
            self._is_started = True
            part: Part = text.part
            if isinstance(part, Text) and part.text:
                part = replace(part, text="")
            self._open = (kind, self._start_part(text if part is text.part else replace(text, part=part), out))
            return
        self.has_changed = True
        part = Text(text="", at=text.part.at)
        if kind == "reasoning":
            part = Reasoning(at=text.part.at, wire_form=(TEXT_FORM + "reasoning",))
        self._open = (kind, self._add_part(part, out))

    def _emit_call(self, segment: Segment, out: list[Event]) -> None:
        """Add a recovered call."""
        if self._text is None:
            raise AssertionError("segments come from a text part")
        start = ToolCall(
            id=None,
            name=segment.name,
            arguments="",
            at=self._text.part.at,
            wire_form=(f"{TEXT_FORM}call ({segment.dialect})",),
        )
        index = self._add_part(start, out)
        out.append(PartDelta(index=index, text=segment.text, candidate=self._candidate))
        out.append(PartEnd(index=index, candidate=self._candidate))
        self._calls.append(replace(start, arguments=segment.text))

    def _close_open(self, out: list[Event]) -> None:
        """End the part that is open at the client."""
        if self._open is not None:
            out.append(PartEnd(index=self._open[1], candidate=self._candidate))
            self._open = None

    def _end_text(self, event: PartEnd, out: list[Event]) -> None:
        """End the upstream's text part."""
        if self._text is not None and not self._is_started and not self.has_changed:
            self._open_part("text", out)  # empty, as it was
        if self._open is not None:
            if self.has_changed:
                event = replace(event, index=self._open[1], final=None)
            out.append(event)
        self._text = self._open = None

    def _add_part(self, part: Part, out: list[Event]) -> int:
        """Start a part that the upstream does not have, and return its index."""
        self.has_changed = True
        index, self._next_index = self._next_index, self._next_index + 1
        message = 0 if self._text is None else self._text.message
        out.append(PartStart(index=index, part=part, message=message, candidate=self._candidate))
        return index

    def _start_part(self, event: PartStart, out: list[Event]) -> int:
        """Start a part of the upstream, and return its index at the client."""
        index = self._next_index if self.has_changed else event.index
        self._next_index = index + 1
        self._indexes[event.index] = index
        out.append(event if index == event.index else replace(event, index=index))
        return index

    def _renumber(self, event: Event) -> Event:
        """Return a delta or end with the index of its part at the client."""
        if not self.has_changed or not isinstance(event, PartDelta | PartEnd):
            return event
        index = self._indexes.get(event.index, event.index)
        return event if index == event.index else replace(event, index=index)


def _is_copy(call: ToolCall, recovered: ToolCall) -> bool:
    """Return whether two calls are the same but for their ids and the spelling of their arguments."""
    if call.name != recovered.name:
        return False
    try:
        return bool(msgspec.json.decode(call.arguments) == msgspec.json.decode(recovered.arguments))
    except (ValueError, RecursionError):
        return False
