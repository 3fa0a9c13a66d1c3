"""The stage that recovers calls and reasoning from text: text deltas in; text, reasoning and tool call parts out.

A text part of the upstream becomes several parts, in the order of the text. Until something is recovered, events pass
unchanged, except for text that may be the beginning of a mark.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter, is_

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning, Text, ToolCall
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
)
from toolwire.canonical.fold import PartAccumulator, fold, unfold
from toolwire.canonical.node import Extras
from toolwire.canonical.response import INCOMPLETE_STOPS, Response, Stop
from toolwire.codec.interface import ResponseContext, TextRecovery
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.translation.stages.tool_call_parsers.marks import MarkFinder
from toolwire.translation.stages.tool_call_parsers.parser import (
    Segment,
    TextCallParser,
    find_open_reasoning,
    may_change,
)
from toolwire.translation.stages.tool_call_parsers.prose import LIMIT_PIECES
from toolwire.translation.stages.tool_call_parsers.tools import DeclaredTools, recovers_bare_calls

TEXT_FORM = "text:"
"""Prefix of the `wire_form` of parts that were recovered from text; the name of the dialect follows."""
LATE_REASONING = TEXT_FORM + "late_reasoning"
"""The `wire_form` of a candidate whose reasoning was released as text, since its end was seen too late."""
_text_of = attrgetter("text")
_TOOL_STOP = Stop(reason="tool_use")
_LIMIT_UNMARKED_TEXT, _LIMIT_UNMARKED_TEXTS = 16, 8192
_unmarked_texts: set[str] = set()
"""Short texts without any sign of a mark: models write few thousand different tokens over and over."""
_NO_TOOLS: Mapping[str, Raw | None] = {}


class TextRecoveryStage:
    """Recovers calls and reasoning from the text of one response."""

    def __init__(self, context: ResponseContext, settings: TextRecovery) -> None:
        self._context = context
        self._settings = settings
        self._tools = DeclaredTools(context)
        self._candidates: dict[int, _CandidateText] = {}
        self._open_reasoning: dict[int, str] = {}  # by candidate, the mark that is known to end it
        self._structured: set[int] = set()  # candidates that are known to have calls of their own
        self._open: set[tuple[int, int]] = set()  # candidate and index of the upstream's open parts
        self._has_changed = False  # in an earlier round
        self._has_cut = False  # a delta was looked at on its own
        self._passed: list[str] | None = None  # the text that passed, while the only open part is text as it arrives
        self._find_mark: Callable[[str], object] = str  # in that text
        self._holds_mark: Callable[[str], bool] = bool  # the same for long text

    def applies(self, response: Response) -> bool:
        """Return whether a text may hold a call or reasoning."""
        applies = False
        for candidate in response.candidates:
            parts = [part for message in candidate.messages for part in message.parts]
            texts = [part.text for part in parts if type(part) is Text]
            if any(type(part) is ToolCall for part in parts):
                self._structured.add(candidate.index)
            if texts and (closer := find_open_reasoning(texts[0], self._settings.reasoning)):
                self._open_reasoning[candidate.index] = closer
            applies = applies or any(
                may_change(text, self._settings.tool_calls, self._settings.reasoning) for text in texts
            )
        return applies

    @property
    def has_changed(self) -> bool:
        """Return whether anything was recovered."""
        return self._has_changed or any(candidate.has_changed for candidate in self._candidates.values())

    @property
    def is_holding(self) -> bool:
        """Return whether events are held back."""
        return any(candidate.is_holding for candidate in self._candidates.values())

    def skips(self, events: list[Event]) -> bool:
        """Return whether the only event is text that may not be part of a mark, and move past it if so.

        Most reads of a stream bring one such delta, so that this is all they cost.
        """
        if (passed := self._passed) is None or len(events) != 1 or type(delta := events[0]) is not PartDelta:
            return False
        text = delta.text
        if not delta.plain or (text not in _unmarked_texts and self._may_hold_mark(text)):
            return False
        passed.append(text)
        if len(passed) > LIMIT_PIECES:
            self._passed = None
        return True

    def _may_hold_mark(self, text: str) -> bool:
        """Return whether text holds a mark or the beginning of one; short text without signs is remembered."""
        is_word = "f" in text and ("fu" in text or text[-1] == "f")
        if is_word or "<" in text or "[" in text or "]" in text or "◁" in text:  # FIRST_SIGNS
            return self._find_mark(text) is not None
        if len(text) <= _LIMIT_UNMARKED_TEXT:
            if len(_unmarked_texts) >= _LIMIT_UNMARKED_TEXTS:
                _unmarked_texts.clear()
            _unmarked_texts.add(text)
        return False

    def process(self, events: list[Event]) -> tuple[list[Event], list[Event] | None]:
        """Return the events with calls and reasoning recovered from text; the same list if nothing changes.

        Of the many plain deltas between other events, the text is looked at as one. In an unchanged list, the others
        are returned as well.
        """
        others = [event for event in events if type(event) is not PartDelta or not event.plain]
        if not others and (passed := self._passed) is not None:
            text = "".join(map(_text_of, events))
            if not self._holds_mark(text):
                passed.append(text)
                if len(passed) > LIMIT_PIECES:
                    self._passed = None
                return events, others
        if len(events) == 1 and not others:
            return self._process_delta(events[0], events)  # type: ignore[arg-type]  # a delta
        places = _find_places(events, others)
        processed: list[Event] = []
        start = 0
        for place, event in zip(places, others, strict=True):
            if place > start:
                self._process_deltas(events[start:place], processed)
            self._process_event(event, processed)
            start = place + 1
        if start < len(events):
            self._process_deltas(events[start:] if start else events, processed)
        self._let_pass()
        if self._is_changed(events, processed, places, others):
            return processed, None
        return events, others

    def _process_delta(self, delta: PartDelta, events: list[Event]) -> tuple[list[Event], list[Event] | None]:
        """Return what the only event becomes, a plain delta."""
        processed: list[Event] = []
        self._has_cut = True
        self._candidate(delta.candidate).process_delta(delta, processed)
        self._let_pass()
        if len(processed) == 1 and processed[0] is delta:
            return events, []
        return processed, None

    def _let_pass(self) -> None:
        """Let more text pass if the only open part is text that goes out as it arrives."""
        self._passed = None
        if len(self._open) == 1:
            for candidate, index in self._open:
                self._passed, finder = self._candidates[candidate].passing(index)
                self._find_mark, self._holds_mark = finder.search, finder.is_in

    def _is_changed(self, events: list[Event], processed: list[Event], places: list[int], others: list[Event]) -> bool:
        """Return whether processed events differ from those that arrived; plain deltas only change with the others."""
        if len(processed) != len(events):
            return True
        if not self._has_cut and not self.has_changed:
            return not all(map(is_, map(processed.__getitem__, places), others))
        return not all(map(is_, processed, events))

    def _process_deltas(self, deltas: list[Event], processed: list[Event]) -> None:
        """Process plain deltas: all at once if they may not hold a mark, else the first one and halves of the rest."""
        if len(self._open) == 1:
            for candidate, index in self._open:
                if self._candidates[candidate].passes(index, deltas, processed):
                    return
        self._has_cut = True
        self._process_event(deltas[0], processed)
        rest = deltas[1:]
        for half in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
            if half:
                self._process_deltas(half, processed)

    def _process_event(self, event: Event, processed: list[Event]) -> None:
        """Process one event."""
        if type(event) is PartStart:
            self._open.add((event.candidate, event.index))
            self._candidate(event.candidate).process_start(event, processed)
        elif type(event) is PartDelta:
            self._candidate(event.candidate).process_delta(event, processed)
        elif type(event) is PartEnd:
            self._open.discard((event.candidate, event.index))
            self._candidate(event.candidate).process_end(event, processed)
        elif type(event) is CandidateEnd:
            self._candidate(event.candidate).process_stop(event, processed)
        elif type(event) is MessageEnd:
            self._candidate(event.candidate).process_message_end(event, processed)
        else:
            if type(event) is ResponseStart and self._candidates:  # of the next round
                self._has_changed = self.has_changed
                self._candidates.clear()
            elif type(event) is ResponseEnd or type(event) is ResponseFailed:
                for candidate in self._candidates.values():
                    candidate.finish(processed, is_finished=type(event) is ResponseEnd)
            processed.append(event)

    def _candidate(self, index: int) -> "_CandidateText":
        """Return the text of a candidate."""
        if (candidate := self._candidates.get(index)) is None:
            candidate = self._candidates[index] = _CandidateText(
                index,
                _NO_TOOLS if index in self._structured else self._tools,
                self._settings,
                bare=recovers_bare_calls(self._context),
                reasoning_closer=self._open_reasoning.get(index, ""),
            )
        return candidate


class _CandidateText:
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

    # ---- events of the upstream

    def passing(self, index: int) -> tuple[list[str] | None, MarkFinder]:
        """Return the list of text that passed, and the finder of marks in more; no list if more text may not pass."""
        parser, text = self._parser, self._text
        if self.has_changed or self._copies or self._open is None or text is None or text.index != index:
            return None, parser.finder
        return parser.passed, parser.finder

    def passes(self, index: int, deltas: list[Event], out: list[Event]) -> bool:
        """Add plain deltas of one part as they are, unless they may hold a mark; return whether they were added."""
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
                    plain=segment.kind == "text" and extras is None,
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
        out.append(PartDelta(index=index, text=segment.text, candidate=self._candidate, plain=True))
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


def _find_places(events: list[Event], others: list[Event]) -> list[int]:
    """Return the places of the events that are not plain deltas; mostly, these are the first and the last ones."""
    first, last, count = 0, len(events), len(others)
    while first < count and events[first] is others[first]:
        first += 1
    rest = count - first
    if all(map(is_, events[last - rest :], others[first:])):
        return [*range(first), *range(last - rest, last)]
    return [place for place, event in enumerate(events) if type(event) is not PartDelta or not event.plain]


def _is_copy(call: ToolCall, recovered: ToolCall) -> bool:
    """Return whether two calls are the same but for their ids and the spelling of their arguments."""
    if call.name != recovered.name:
        return False
    try:
        return bool(msgspec.json.decode(call.arguments) == msgspec.json.decode(recovered.arguments))
    except (ValueError, RecursionError):
        return False


def recover_text(response: Response, context: ResponseContext) -> Response:
    """Return a complete response with calls and reasoning recovered from text; the same object if there are none."""
    if context.text_recovery is None:
        return response
    stage = TextRecoveryStage(context, context.text_recovery)
    if not stage.applies(response):
        return response
    events = list(unfold(response, deltas=False))
    recovered, _ = stage.process(events)
    return fold(recovered) if stage.has_changed else response


def report_recovered(response: Response, report: LossReport) -> None:
    """Report the calls and reasoning of a response that were recovered from text, once for each message."""
    for number, candidate in enumerate(response.candidates):
        path: SourcePath = ("candidates", number)
        if LATE_REASONING in candidate.wire_form:
            report.approximated(path, "", "reasoning went out as text, since only its end is marked")
        for position, message in enumerate(candidate.messages):
            recovered = [
                (index, form.removeprefix(TEXT_FORM))
                for index, part in enumerate(message.parts)
                for form in part.wire_form
                if form.startswith(TEXT_FORM)
            ]
            if recovered:
                first = (*path, "messages", position, "parts", recovered[0][0])
                forms = ", ".join([form for _, form in recovered])
                report.approximated(first, "", f"recovered from text that the model wrote: {forms}", severity="info")
