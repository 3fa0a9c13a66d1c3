"""The stage that recovers calls and reasoning from text: text deltas in; text, reasoning and tool call parts out.

Most responses hold no sign of a mark. Their events pass at once, and are only remembered. The parser reads them once a
sign arrives, or once there are many.
"""

from collections.abc import Mapping
from itertools import groupby
from operator import is_
from typing import Literal

from msgspec import Raw

from toolwire.canonical.content import Text, ToolCall
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    PartDelta,
    PartDeltas,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    separate_deltas,
)
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext, TextRecovery
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.translation.stages.tool_call_parsers.candidate_text import LATE_REASONING, TEXT_FORM, CandidateText
from toolwire.translation.stages.tool_call_parsers.parser import find_open_reasoning, may_change
from toolwire.translation.stages.tool_call_parsers.reasoning import OPEN_REASONING
from toolwire.translation.stages.tool_call_parsers.signs import (
    SEPARATOR,
    WORD_MIDDLES,
    find_escape,
    may_begin_with_mark,
    may_hold_mark,
    remember_text,
    unmarked_initials,
)
from toolwire.translation.stages.tool_call_parsers.tools import DeclaredTools, recovers_bare_calls

_NO_TOOLS: Mapping[str, Raw | None] = {}
LIMIT_UNREAD = 512
_LIMIT_SIZE = 2**14
_TEXT_SIZE = 16
_LIMIT_SHORT, _LIMIT_LONG = 20, 1024  # bytes of JSON
_DELTAS = (PartDelta, PartDeltas)


class TextRecoveryStage:
    """Recovers calls and reasoning from the text of one response."""

    # Defaults as class attributes: most streams change none of them, so creating a stage sets none.
    _unread_size = 0  # characters in the unread events, and some for each text
    _last_delta: PartDelta | PartDeltas | None = None  # the last that passed; None if no further delta may pass
    # Texts of deltas of one part that passed after the unread events; None if no further delta may pass.
    passed_texts: list[str] | None = None
    _open_parts = 0
    _has_changed = False  # in an earlier round
    _has_cut = False  # `_process_deltas` has split a list of deltas
    _tools: DeclaredTools | None = None
    _open_reasoning: dict[int, str] | None = None  # by candidate, the mark that is known to end it
    _structured: set[int] | None = None  # candidates that are known to have calls of their own

    def __init__(self, context: ResponseContext, settings: TextRecovery) -> None:
        self._context = context
        self._settings = settings
        self._held_start: list[Event] = []  # the start of a text whose first delta has not arrived
        self._unread: list[Event] = []  # events that passed before the parser read them
        self._is_quiet = settings.reasoning not in OPEN_REASONING  # nothing is held or recovered
        self._candidates: dict[int, CandidateText] = {}
        self._open: set[tuple[int, int]] = set()  # candidate and index of the upstream's open parts

    def applies(self, response: Response) -> bool:
        """Return whether a text may hold a call or reasoning."""
        applies = False
        self._structured, self._open_reasoning = set(), {}
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
        return bool(self._held_start) or any(candidate.is_holding for candidate in self._candidates.values())

    def pass_unmarked(self, events: list[Event]) -> bool:
        """Pass events that hold no mark or beginning of one; return False if `process` has to read them.

        Callers may pass a delta with a known text themselves: they append the text to `passed_texts`, unless that is
        None or holds `LIMIT_UNREAD` texts.
        """
        if not self._is_quiet:
            return False
        texts: list[str] = []
        open_parts = self._open_parts
        start: PartStart | None = None  # of a text whose first delta is still to come
        for event in events:
            kind = type(event)
            if kind is PartDeltas or kind is PartDelta:
                if event.kind is None:  # type: ignore[union-attr]  # not reasoning
                    added = event.texts if kind is PartDeltas else [event.text]  # type: ignore[union-attr]
                    if start is not None and not _starts_unmarked(start, event, added[0]):  # type: ignore[arg-type]
                        return False
                    start = None
                    texts += added
            elif kind is PartStart:
                open_parts += 1
                if start is not None:
                    return False
                if type(event.part) is Text:  # type: ignore[union-attr]
                    start = event  # type: ignore[assignment]
            elif kind is PartEnd:
                open_parts -= 1
        if start is not None:
            return False
        size = 0
        if texts:
            joined = SEPARATOR.join(texts)
            if may_hold_mark(joined):
                return False
            size = len(joined) + _TEXT_SIZE * len(texts)
        self._open_parts = open_parts
        if events:
            self._remember(events, size, events[-1])
        return True

    def pass_deltas(self, deltas: PartDeltas) -> bool:
        """Pass deltas that arrive alone, the most frequent case; return False if `process` has to read them."""
        passed, wire = self.passed_texts, deltas.wire
        if (
            passed is None
            or not _LIMIT_SHORT < len(wire) < _LIMIT_LONG
            # `<`, `[`, `]`, a byte of \u25c1, and `\`, as numbers: bytes are searched faster for a number.
            or 0x3C in wire
            or 0x5B in wire
            or 0x5D in wire
            or 0x97 in wire
            or (0x5C in wire and find_escape(wire) is not None)
            or "f" in (last := deltas.texts[-1])
            or last in WORD_MIDDLES
        ):
            return self._pass_other_deltas(deltas)
        passed += deltas.texts
        if len(passed) > LIMIT_UNREAD:
            self._compact(passed)
        return True

    def _pass_other_deltas(self, deltas: PartDeltas) -> bool:
        """Pass the rarer deltas, such as short or long ones; return False if `process` has to read them."""
        passed, texts, wire = self.passed_texts, deltas.texts, deltas.wire
        if passed is None:
            return self.pass_unmarked([deltas])
        if not deltas.known:
            joined = SEPARATOR.join(texts)
            if may_hold_mark(joined):
                return False
            if not 0 < len(wire) < _LIMIT_LONG:
                self._remember([deltas], len(joined) + _TEXT_SIZE * len(texts), deltas)
                return True
            if len(texts) == 1:
                remember_text(wire, joined)
        passed += texts
        if len(passed) > LIMIT_UNREAD:
            self._compact(passed)
        return True

    def _remember(self, events: list[Event], size: int, last: Event) -> None:
        """Remember events that passed, with texts of this size; the parser reads them if they are many."""
        if self.passed_texts is not None:
            self._close_passed_texts()
        if type(last) is ResponseEnd:  # whose text can't change any more
            self._unread.clear()
            self._unread_size = self._open_parts = 0
            return
        self._unread += events
        self._unread_size += size
        if self._unread_size > _LIMIT_SIZE or len(self._unread) > LIMIT_UNREAD:
            self._read_passed()
        if size and self._open_parts == 1 and isinstance(last, _DELTAS) and last.kind is None and self._is_quiet:
            self._last_delta, self.passed_texts = last, []

    def _count_parts(self, events: list[Event]) -> None:
        """Count the parts that are open after these events."""
        for event in events:
            if type(event) is PartStart:
                self._open_parts += 1
            elif type(event) is PartEnd:
                self._open_parts -= 1

    def _compact(self, passed: list[str]) -> None:
        """Join the texts that passed; let the parser read them if they are long."""
        text = "".join(passed)
        passed[:] = [text]
        if len(text) + self._unread_size > _LIMIT_SIZE:
            self._read_passed()
        elif (last := self._last_delta) is not None:
            self._unread.append(PartDelta(index=last.index, text=text, candidate=last.candidate))
            self._unread_size += len(text)
            passed.clear()

    def _close_passed_texts(self) -> None:
        """Remember the texts that passed as one event, and let no more pass until another delta is remembered."""
        if self.passed_texts and (last := self._last_delta) is not None:
            self._unread.append(PartDeltas(index=last.index, texts=self.passed_texts, candidate=last.candidate))
            self._unread_size += _TEXT_SIZE * len(self.passed_texts)
        self._last_delta = self.passed_texts = None

    def process(self, events: list[Event]) -> list[Event]:
        """Return the events with calls and reasoning recovered from text; the same list if nothing changes.

        The text of consecutive deltas is searched as one string. The start of an empty text is held, since most texts
        need not be parsed once their first delta is known.
        """
        if self._held_start:
            if not events:
                return events
            held, self._held_start, self._is_quiet = self._held_start, [], True
            events = [*held, *events]
            if self.pass_unmarked(events):
                return events
        elif self._is_quiet and _ends_with_text_start(events) and self.pass_unmarked(events[:-1]):
            self._held_start, self._is_quiet = events[-1:], False
            self._close_passed_texts()
            return events[:-1]
        self._read_passed()
        self._count_parts(events)
        return self._read(events)

    def _read_passed(self) -> None:
        """Let the parser read the events that passed."""
        self._close_passed_texts()
        if self._unread:
            self._read(_join_deltas(self._unread))
            self._unread.clear()
            self._unread_size = 0

    def _read(self, events: list[Event]) -> list[Event]:
        """Return the events as the parser changes them; the same list if it does not."""
        arrived, events = events, separate_deltas(events)
        places = [place for place, event in enumerate(events) if type(event) is not PartDelta]
        processed: list[Event] = []
        start = 0
        for place in places:
            if place > start:
                self._process_deltas(events[start:place], processed)
            self._process_event(events[place], processed)
            start = place + 1
        if start < len(events):
            self._process_deltas(events[start:] if start else events, processed)
        self._is_quiet = all(candidate.is_quiet for candidate in self._candidates.values())
        return processed if self._is_changed(events, processed, places) else arrived

    def _is_changed(self, events: list[Event], processed: list[Event], places: list[int]) -> bool:
        """Return whether processed events differ from those that arrived; deltas can differ only after a split."""
        if len(processed) != len(events):
            return True
        if not self._has_cut and not self.has_changed:
            return any(processed[place] is not events[place] for place in places)
        return not all(map(is_, processed, events))

    def _process_deltas(self, deltas: list[Event], processed: list[Event]) -> None:
        """Process deltas: all at once if they can't hold a mark, else the first one and halves of the rest."""
        if self._pass_deltas(deltas, processed):
            return
        self._has_cut = True
        self._process_event(deltas[0], processed)
        rest = deltas[1:]
        for half in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
            if half:
                self._process_deltas(half, processed)

    def _pass_deltas(self, deltas: list[Event], processed: list[Event]) -> bool:
        """Add deltas as they are, unless they may hold a mark; return whether they were added."""
        if len(self._open) == 1:
            for candidate, index in self._open:
                return self._candidates[candidate].passes(index, deltas, processed)
        if any(not candidate.is_quiet or candidate.has_open_text for candidate in self._candidates.values()):
            return False
        processed += deltas
        return True

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
                self._open.clear()
            elif type(event) is ResponseEnd or type(event) is ResponseFailed:
                for candidate in self._candidates.values():
                    candidate.finish(processed, is_finished=type(event) is ResponseEnd)
            processed.append(event)

    def _candidate(self, index: int) -> CandidateText:
        """Return the text of a candidate."""
        if (candidate := self._candidates.get(index)) is None:
            if self._tools is None:
                self._tools = DeclaredTools(self._context)
            candidate = self._candidates[index] = CandidateText(
                index,
                _NO_TOOLS if self._structured and index in self._structured else self._tools,
                self._settings,
                bare=recovers_bare_calls(self._context),
                reasoning_closer=self._open_reasoning.get(index, "") if self._open_reasoning else "",
            )
        return candidate


def _join_deltas(events: list[Event]) -> list[Event]:
    """Return the events with consecutive deltas of the same text as one delta."""
    joined: list[Event] = []
    for key, group in groupby(events, _delta_key):
        if key is None:
            joined += group
        else:
            index, candidate, kind = key
            text = "".join([event.text for event in group if isinstance(event, _DELTAS)])
            joined.append(PartDelta(index=index, text=text, candidate=candidate, kind=kind))
    return joined


def _delta_key(event: Event) -> tuple[int, int, Literal["full", "summary"] | None] | None:
    """Return part, candidate and kind that a delta belongs to; None for other events."""
    return (event.index, event.candidate, event.kind) if isinstance(event, _DELTAS) else None


def _ends_with_text_start(events: list[Event]) -> bool:
    """Return whether the last event starts an empty text."""
    return type(start := events[-1]) is PartStart and type(start.part) is Text and not start.part.text


def _starts_unmarked(start: PartStart, delta: PartDelta | PartDeltas, text: str) -> bool:
    """Return whether a delta is of the starting part, and the beginning of its text can't begin a mark."""
    if delta.index != start.index or delta.candidate != start.candidate:
        return False
    text = start.part.text + text  # type: ignore[union-attr]  # a text
    return text[:1] in unmarked_initials() or not may_begin_with_mark(text)


def recover_text(response: Response, context: ResponseContext) -> Response:
    """Return a complete response with calls and reasoning recovered from text; the same object if there are none."""
    if context.text_recovery is None:
        return response
    stage = TextRecoveryStage(context, context.text_recovery)
    if not stage.applies(response):
        return response
    events = list(unfold(response, deltas=False))
    recovered = stage.process(events)
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
