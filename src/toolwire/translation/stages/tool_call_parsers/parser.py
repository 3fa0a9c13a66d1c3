"""The incremental parser of a model's text: splits it into text, reasoning and calls as it arrives.

The outcome depends on the text alone, not on how it was cut. Text is released at once, except for what may be the
beginning of a mark; a block that may be a call is held until it is whole, up to a limit, and released as text if it
turns out to be none.
"""

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Raw, Struct

from toolwire.translation.stages.tool_call_parsers.arguments import ArgumentEncoder
from toolwire.translation.stages.tool_call_parsers.attempts import (
    Attempt,
    any_dialect,
    complete_answer,
    end_of_reasoning,
    turn_end,
)
from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Mismatch
from toolwire.translation.stages.tool_call_parsers.markdown import MarkdownPosition
from toolwire.translation.stages.tool_call_parsers.reasoning import ReasoningMarks
from toolwire.translation.stages.tool_call_parsers.registry import model_vocabulary, vocabulary


class Segment(Struct, frozen=True):
    """A piece of the answer; consecutive pieces of text or of reasoning belong together."""

    kind: Literal["text", "reasoning", "call"]
    text: str  # of a call: its arguments as JSON
    name: str = ""  # of a call: the tool
    dialect: str = ""  # of a call: how it was written


MAX_FAILED_WORK, MAX_FAILED_SHARE = 2**14, 4
"""Characters that may be read in vain for blocks that are no calls: this many, and for each character before them.

Beyond that, a mark is text. The work for a text is therefore linear, and a call after much other text is found.
"""


_PIECE = 4096


class TextCallParser:
    """Parses one answer.

    Args:
        tools: The declared tools with their parameter schemas; only calls to these are recovered.
        calls: `auto`, `off` or the name of a dialect.
        reasoning: `auto`, `off` or the name of a reasoning parser.
        model: The name of the model, which hints at its dialect.
        bare: Recover calls without marks, too; not if the client asked for JSON.
        reasoning_closer: The mark that is known to end reasoning which was open from the beginning.

    """

    def __init__(
        self,
        tools: Mapping[str, Raw | None],
        *,
        calls: str = "auto",
        reasoning: str = "auto",
        model: str | None = None,
        bare: bool = True,
        reasoning_closer: str = "",
    ) -> None:
        self._vocabulary = model_vocabulary(calls if tools else "off", reasoning, model)
        self._holds_mark = self._vocabulary.finder.is_in
        self._tools = tools
        self._encoders: dict[str, ArgumentEncoder] = {}
        self._bare = bare
        self._buffer = ""
        self._arrived: list[str] = []
        self._arrived_size = 0
        self._segments: list[Segment] = []
        self._attempt: Attempt | None = None
        self._position = MarkdownPosition()
        self._pass = self._position.add
        self._reasoning: ReasoningMarks | None = None  # that is open
        self._boundary: str = "start"  # what came before the text at hand: start, reasoning, call, answer
        self._fresh = True  # nothing but white space since then
        self._answer_closers: tuple[str, ...] = ()
        self._bare_tried = False  # at this place
        self._reasoned = self._called = self._said = False  # in this answer
        self._closed = self._finished = False
        self._failed_work = 0  # characters that were read in vain
        self._passed_size = 0  # characters that were read otherwise
        self._ignores_calls = False
        self.late_reasoning = False  # the end of reasoning was seen after it had been released as text
        self.dropped_marks: list[str] = []  # other marks that were left out
        opened = self._vocabulary.open_marks
        if opened is None and reasoning_closer:
            opened = next(marks for marks in self._vocabulary.reasoning.values() if marks.closer == reasoning_closer)
        if opened is not None:
            self._open_reasoning(opened)

    # ---- input

    def passes(self, text: str) -> bool:
        """Return whether text goes out unchanged, and move past it if so."""
        if self._buffer or self._reasoning is not None or self._holds_mark(text):
            return False
        if self._fresh:
            if self._boundary != "start" or self._vocabulary.may_open(text):
                return False
            self._fresh, self._said = False, True
        self._passed_size += len(text)
        self._pass(text)
        return True

    def feed(self, text: str) -> list[Segment]:
        """Return the segments that the next piece of text completes."""
        self._arrived.append(text)
        self._arrived_size += len(text)
        if self._attempt is not None and not self._attempt.may_settle(text, self._arrived_size):
            return []
        self._join()
        return self._run()

    def finish(self, *, finished: bool = True) -> list[Segment]:
        """Return the last segments.

        Args:
            finished: The model ended its turn; false if it was cut off, so that unclosed blocks are no calls.

        """
        self._closed, self._finished = True, finished
        if not self._buffer and not self._arrived:
            return []
        self._join()
        segments = self._run()
        if self._buffer and (self._reasoning is None and (not self._fresh or not self._has_recovered)):
            segments.append(Segment("text", self._buffer))
        self._buffer = ""
        return segments

    def abandon(self) -> list[Segment]:
        """Return everything held as it is, because something else than text follows."""
        self._join()
        if self._attempt is not None:
            self._buffer, self._attempt = self._attempt.lead + self._buffer, None
        self._release(len(self._buffer))
        segments, self._segments = self._segments, []
        return segments

    def ignore_calls(self) -> None:
        """Look for no more calls, because the upstream sends structured ones."""
        self._ignores_calls = True

    @property
    def is_holding(self) -> bool:
        """Return whether text is held back."""
        return bool(self._buffer or self._arrived)

    @property
    def in_reasoning(self) -> bool:
        """Return whether reasoning is open."""
        return self._reasoning is not None

    @property
    def has_changed(self) -> bool:
        """Return whether the segments differ from the text as it was written."""
        return self._called or self._reasoned or bool(self.dropped_marks)

    def _join(self) -> None:
        """Add what arrived to the buffer."""
        self._buffer += "".join(self._arrived)
        self._arrived.clear()
        self._arrived_size = 0

    def _run(self) -> list[Segment]:
        """Parse the buffer as far as possible, a piece at a time: releasing text copies what is left of the buffer."""
        closed = self._closed
        waiting: list[tuple[str, int]] = []  # texts after the buffer, the next one last, and where to go on in each
        while True:
            if self._attempt is None and len(self._buffer) > 2 * _PIECE:
                waiting.append((self._buffer, _PIECE))
                self._buffer = self._buffer[:_PIECE]
            self._closed = closed and not waiting
            if self._step():
                continue
            if not waiting:
                break
            text, place = waiting.pop()
            self._buffer += text[place : place + _PIECE]
            if place + _PIECE < len(text):
                waiting.append((text, place + _PIECE))
        segments, self._segments = self._segments, []
        return segments

    @property
    def _has_recovered(self) -> bool:
        """Return whether anything but text was found."""
        return self._called or self._reasoned

    # ---- steps; each returns whether another one may follow

    def _step(self) -> bool:
        """Take the next step."""
        if self._attempt is not None:
            return self._continue_attempt(self._attempt)
        if not self._buffer:
            return False
        if self._reasoning is not None:
            return self._step_in_reasoning(self._reasoning)
        return self._step_in_text()

    def _step_in_text(self) -> bool:
        """Release text up to the next mark, and act on that."""
        start = 0
        if self._fresh:
            start = len(self._buffer) - len(self._buffer.lstrip())
            if self._boundary == "reasoning":  # white space next to its marks is no content
                self._buffer, start = self._buffer[start:], 0
            if start == len(self._buffer):
                return False
            if self._start_bare(start):
                return True
        words = self._vocabulary
        found = words.start_finder.find_at(self._buffer, start, closed=self._closed) if self._fresh else None
        if found is None:
            found = words.finder.find(self._buffer, self._skip_word(), closed=self._closed)
        if found is None:
            self._release(len(self._buffer))
            return False
        place, mark = found
        if place > start or (place and not self._fresh):
            self._release(place)
            place = 0
        return bool(mark) and self._act_on_mark(place, mark)

    def _act_on_mark(self, place: int, mark: str) -> bool:
        """Act on a mark; the text before it is only white space, or already released."""
        words = self._vocabulary
        if mark in self._answer_closers:
            self._answer_closers = ()
            self._drop(place, mark, "answer")
        elif self._fresh and mark in words.closers_after_call and self._boundary == "call":
            self._buffer = self._buffer[place + len(mark) :]
        elif (marks := words.reasoning.get(mark)) is not None and self._may_reason(marks):
            self._buffer = self._buffer[place + len(mark) :]
            self._open_reasoning(marks)
        elif (answer := words.answers.get(mark)) is not None and self._may_answer(
            after_reasoning=answer.after_reasoning
        ):
            self._answer_closers = answer.closers
            self._drop(place, mark, self._boundary)
        elif mark in words.stray and not self._reasoned and not self._position.shows_code:
            self._reasoned = True
            self.late_reasoning = self.late_reasoning or not self._fresh
            self._drop(place, mark, "reasoning")
        elif mark in words.calls and self._looks_for_calls and not self._position.shows_code:
            self._attempt = Attempt(any_dialect(words.calls[mark]))
            self._hold(place)
        elif mark in words.turn_ends:
            self._attempt = Attempt(turn_end(words.turn_ends))
            self._hold(place)
        else:
            self._release(place + 1)
        return True

    def _start_bare(self, start: int) -> bool:
        """Start to read a call without marks, if the answer may be one."""
        if self._bare_tried or self._said or self._called or not self._bare or not self._looks_for_calls:
            return False
        self._bare_tried = True
        first = self._buffer[start]
        candidates = [dialect for dialect in self._vocabulary.bare if any(mark[0] == first for mark in dialect.openers)]
        if not candidates:
            return False
        self._attempt = Attempt(complete_answer(candidates, self._vocabulary.turn_ends), bare=True)
        self._hold(start)
        return True

    def _step_in_reasoning(self, marks: ReasoningMarks) -> bool:
        """Release reasoning up to the next mark, and act on that."""
        if self._fresh:
            self._buffer = self._buffer.lstrip()
            if not self._buffer:
                return False
        found = self._vocabulary.reasoning_finder(marks).find(self._buffer, 0, closed=self._closed)
        place, mark = (len(self._buffer), "") if found is None else found
        end = len(self._buffer[:place].rstrip())
        self._release(end)
        if not mark:
            if self._closed and found is None:
                self._buffer = ""
            return False
        place -= end
        if mark == marks.closer:
            self._buffer = self._buffer[place + len(mark) :]
            self._reasoning = None
            self._begin("reasoning")
        elif mark in self._vocabulary.calls and self._looks_for_calls:
            self._attempt = Attempt(end_of_reasoning(self._vocabulary))
            self._hold(place)
        elif mark in self._vocabulary.turn_ends:
            self._attempt = Attempt(turn_end(self._vocabulary.turn_ends))
            self._hold(place)
        else:
            self._release(place + 1)
        return True

    def _skip_word(self) -> int:
        """Return where in the buffer a mark may begin: not with a character that continues a word."""
        return int(not self._fresh and self._position.continues_word(self._buffer[0]))

    # ---- blocks that may be calls

    def _hold(self, place: int) -> None:
        """Hold the buffer from this place on; the white space before it belongs to the attempt."""
        if self._attempt is None:
            raise AssertionError("only an attempt holds text")
        self._attempt.lead = self._buffer[:place]
        self._buffer = self._buffer[place:]

    def _continue_attempt(self, attempt: Attempt) -> bool:
        """Continue to read a block, and act on the outcome if there is one."""
        if not attempt.resume(self._buffer, closed=self._closed, finished=self._finished):
            return False
        self._attempt = None
        if attempt.calls is not None and self._recover(attempt):
            return True
        self._failed_work += attempt.work
        self._buffer = attempt.lead + self._buffer
        length = len(attempt.lead)
        if attempt.calls is None:
            if not attempt.bare:  # the text may still begin with a mark
                self._release(length + 1)
        else:
            self._release(length + attempt.end)  # a whole block that is no call to a declared tool
        return True

    def _recover(self, attempt: Attempt) -> bool:
        """Add the calls of a block, if the tools are declared."""
        block = self._buffer[: attempt.end]
        if not attempt.calls:  # the end of the turn
            self._buffer = self._buffer[attempt.end :]
            self.dropped_marks.append(block.strip())
            return True
        resolved = [self._resolve(call) for _, call in attempt.calls]
        if not any(resolved):
            return False
        self._reasoning = None
        for (dialect, call), segment in zip(attempt.calls, resolved, strict=True):
            if segment is not None:
                self._segments.append(Segment("call", segment.text, segment.name, dialect))
            else:
                self._segments.append(Segment("text", call.source))
        self._called = True
        self._passed_size += attempt.end
        self._buffer = self._buffer[attempt.end :]
        self._begin("call")
        return True

    def _resolve(self, call: ParsedCall) -> Segment | None:
        """Return a call to a declared tool, with its arguments as JSON; None if it is none."""
        head, _, tail = call.name.partition(".")
        names = (call.name, call.name.removeprefix("functions."), head if head == tail else call.name)
        name = next((name for name in names if name in self._tools), None)
        if name is None:
            return None
        if (encoder := self._encoders.get(name)) is None:
            encoder = self._encoders[name] = ArgumentEncoder(self._tools[name])
        try:
            return Segment("call", encoder.encode(call), name)
        except Mismatch:
            return None

    # ---- output

    def _release(self, length: int) -> None:
        """Release this much of the buffer as text or reasoning."""
        if not length:
            return
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        self._passed_size += length
        kind: Literal["text", "reasoning"] = "text"
        if self._reasoning is None:
            self._position.add(text)
            self._said = True
        else:
            kind = "reasoning"
            self._reasoned = True
        if self._segments and self._segments[-1].kind == kind:
            text = self._segments.pop().text + text
        self._segments.append(Segment(kind, text))
        self._fresh = False

    def _drop(self, place: int, mark: str, boundary: str) -> None:
        """Leave out a mark and the white space before it."""
        self._buffer = self._buffer[place + len(mark) :]
        self.dropped_marks.append(mark)
        self._begin(boundary)

    def _begin(self, boundary: str) -> None:
        """Begin a new piece of the answer."""
        self._boundary, self._fresh, self._bare_tried = boundary, True, False

    def _open_reasoning(self, marks: ReasoningMarks) -> None:
        """Begin reasoning."""
        self._reasoning, self._reasoned = marks, True
        self._begin("reasoning")

    # ---- conditions

    @property
    def _looks_for_calls(self) -> bool:
        """Return whether calls are still looked for."""
        limit = MAX_FAILED_WORK + MAX_FAILED_SHARE * self._passed_size
        return self._failed_work < limit and not self._ignores_calls

    def _may_reason(self, marks: ReasoningMarks) -> bool:
        """Return whether reasoning may begin here."""
        if self._fresh:
            return self._boundary != "answer" or self._vocabulary.interleaved or not self._answer_closers
        return self._vocabulary.interleaved and self._position.begins_line and not self._position.shows_code

    def _may_answer(self, *, after_reasoning: bool) -> bool:
        """Return whether marks around the answer may begin here."""
        return self._fresh and (self._boundary == "reasoning" or not after_reasoning)


def find_open_reasoning(text: str, reasoning: str) -> str:
    """Return the mark that ends reasoning which the prompt opened; empty if there is none."""
    words = vocabulary("off", reasoning, None, interleaved=False)
    if words.open_marks is not None:
        return ""
    start = text.lstrip()
    if any(start.startswith(mark) for mark in words.reasoning):
        return ""
    position = MarkdownPosition()
    done = 0
    for place, mark in sorted((text.find(mark), mark) for mark in words.stray):
        if place < 0:
            continue
        opened = any(
            text.find(opener, 0, place) >= 0 for opener, marks in words.reasoning.items() if marks.closer == mark
        )
        position.add(text[done:place])
        done = place
        if not opened and not position.shows_code:
            return mark
    return ""


def may_change(text: str, calls: str, reasoning: str) -> bool:
    """Return whether a complete text may hold a call or reasoning."""
    words = vocabulary(calls, reasoning, None, interleaved=False)
    if words.finder.search(text) is not None:
        return True
    start = text.lstrip()
    if words.start_finder.match(start) is not None:
        return True
    return any(start.startswith(mark) for dialect in words.bare for mark in dialect.openers)


_BODY_SIGNS = (b"<", b"\\u003", b"[T", "◁".encode(), b"\\u25c1", b"functools", b"thought process", b"to=")
_BARE_CONTENT = re.compile(rb'"content"\s*:\s*"(?:\s|\\[nrt])*[\[{`A]')


def body_may_change(body: bytes) -> bool:
    """Return whether the JSON body of a response may hold a call or reasoning in its text: a quick check."""
    for sign in _BODY_SIGNS:
        if body.find(sign) >= 0:  # `in` would raise and catch an error first: bytes are no integer
            return True
    place = body.find(b'"content"')
    while place >= 0:
        if _BARE_CONTENT.match(body, place):
            return True
        place = body.find(b'"content"', place + 1)
    return False
