"""Attempts to read held text as a block: a call in one of several dialects, or the end of the turn."""

from collections.abc import Callable, Iterable

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Incomplete, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.registry import Vocabulary

MAX_BLOCK = 2**19
"""Characters of a block that are held at most."""
_SMALL_BLOCK = 2048
_MAX_WAITING = 4096
_BLOCK_ENDS = ">}])`"

NamedCalls = list[tuple[str, ParsedCall]]
"""Calls with the names of their dialects."""
BlockParser = Callable[[Cursor], Parse[NamedCalls]]


class Attempt:
    """An attempt to read a block at the beginning of the buffer.

    Attributes:
        lead: The white space before the block.
        bare: The block has no marks, and is the complete answer.
        calls: The outcome: None if the text is no such block.
        end: Where the block ends.
        work: Characters that were read in vain.

    """

    def __init__(self, parse: BlockParser, *, bare: bool = False) -> None:
        self.lead = ""
        self.bare = bare
        self.calls: NamedCalls | None = None
        self.end = self.work = 0
        self._cursor = Cursor()
        self._parse = parse(self._cursor)
        self._size = 0

    def may_settle(self, text: str, waiting: int) -> bool:
        """Return whether new text may settle the attempt; a large block is read again only at a possible end."""
        return self._size < _SMALL_BLOCK or waiting > _MAX_WAITING or any(end in text for end in _BLOCK_ENDS)

    def resume(self, text: str, *, closed: bool, finished: bool) -> bool:
        """Read on, and return whether the outcome is known.

        Args:
            text: The block and all text after it that has arrived.
            closed: No more text will arrive.
            finished: The model ended its turn there.

        """
        cursor = self._cursor
        complete = len(text) < MAX_BLOCK
        cursor.text = text if complete else text[:MAX_BLOCK]
        cursor.closed, cursor.finished = closed and complete, finished and complete
        self._size = len(cursor.text)
        try:
            next(self._parse)
        except StopIteration as stop:
            self.calls, self.end = stop.value, cursor.position
            return True
        except Mismatch:
            self.work = cursor.work + cursor.position  # blocks before the mismatch were read in vain, too
            return True
        self.work = self._size
        return closed or not complete


def any_dialect(dialects: Iterable[Dialect]) -> BlockParser:
    """Return a parser of a block in the first of these dialects that fits."""

    def parse(cursor: Cursor) -> Parse[NamedCalls]:
        """Parse one block."""
        start = cursor.position
        for dialect in dialects:
            try:
                calls = yield from dialect.parse(cursor)
            except Mismatch:
                cursor.work += cursor.position - start
                cursor.position = start
            else:
                return [(dialect.name, call) for call in calls]
        raise Mismatch

    return parse


def complete_answer(dialects: Iterable[Dialect], ends: frozenset[str]) -> BlockParser:
    """Return a parser of an answer that is nothing but a block in one of these dialects."""
    block = any_dialect(dialects)

    def parse(cursor: Cursor) -> Parse[NamedCalls]:
        """Parse the block, and wait for the end of the answer."""
        calls = yield from block(cursor)
        yield from _expect_turn_end(cursor, ends)
        return calls

    return parse


def end_of_reasoning(vocabulary: Vocabulary) -> BlockParser:
    """Return a parser of calls that end a turn within reasoning; before anything else they are drafts."""

    def parse(cursor: Cursor) -> Parse[NamedCalls]:
        """Parse blocks up to the end of the turn."""
        calls: NamedCalls = []
        while True:
            opener = yield from cursor.upcoming(*vocabulary.sorted_openers)
            if not opener:
                break
            calls += yield from any_dialect(vocabulary.calls[opener])(cursor)
            yield from cursor.skip_space()
            while (yield from cursor.accept(*vocabulary.sorted_closers)):
                yield from cursor.skip_space()
        yield from _expect_turn_end(cursor, vocabulary.turn_ends)
        return calls

    return parse


def turn_end(ends: frozenset[str]) -> BlockParser:
    """Return a parser of the marks that end a turn."""

    def parse(cursor: Cursor) -> Parse[NamedCalls]:
        """Parse marks up to the end of the answer."""
        yield from _expect_turn_end(cursor, ends)
        return []

    return parse


def _expect_turn_end(cursor: Cursor, ends: frozenset[str]) -> Parse[None]:
    """Read white space and marks of the turn's end up to the end of the answer."""
    while (yield from cursor.skip_space()):
        yield from cursor.expect(*ends)
    if not cursor.closed:
        raise Incomplete
