"""A cursor over text that is still arriving: parsers are generators that pause where they need more of it.

A parser's outcome depends on the text alone, never on how it was cut: each step decides only what every continuation
would decide as well, and pauses otherwise. Work is linear, because a paused parser continues where it stopped.
"""

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Parse = Generator[None, None, T]
"""A parser that pauses (yields) until more text is there, and returns a T."""


class Mismatch(Exception):
    """The text is not what the grammar asks for."""


class Incomplete(Mismatch):
    """The text ended where the grammar asks for more."""


_OUTSIDE_STRING = re.compile(r'[{}\[\]"]|[^\s\w,:.+\-]')
_INSIDE_STRING = re.compile(r'["\\]')
_SPACE = re.compile(r"\s*")
NAME = re.compile(r"[^\s<>(){}\[\]\"'`|｜,;=]*")
"""The characters of a tool or parameter name."""
MAX_NAME = 256


@lru_cache(maxsize=256)
def _search_marks(marks: tuple[str, ...]) -> Callable[[str, int], re.Match[str] | None]:
    """Return a search for the first of several marks, which stops there: of marks at the same place, the longest."""
    return re.compile("|".join([re.escape(mark) for mark in sorted(marks, key=len, reverse=True)])).search


class Cursor:
    """A position in text that may still grow.

    Attributes:
        text: Everything that has arrived; replaced by a longer text when more does.
        position: The next character to read.
        closed: No more text will arrive.
        finished: The model ended its turn here; false if it was cut off.
        work: Characters that were read in vain, by parsers that did not fit.

    """

    __slots__ = ("closed", "finished", "position", "text", "work")

    def __init__(self) -> None:
        self.text = ""
        self.position = self.work = 0
        self.closed = self.finished = False

    def peek(self) -> Parse[str]:
        """Return the next character without reading it; empty at the end."""
        while self.position >= len(self.text):
            if self.closed:
                return ""
            yield
        return self.text[self.position]

    def skip_space(self) -> Parse[str]:
        """Skip white space, and return the character after it; empty at the end."""
        while True:
            match = _SPACE.match(self.text, self.position)
            if match is not None:
                self.position = match.end()
            if self.position < len(self.text):
                return self.text[self.position]
            if self.closed:
                return ""
            yield

    def accept(self, *marks: str) -> Parse[str]:
        """Read one of these marks, and return it; empty if none is here."""
        longest = max(map(len, marks))
        while True:
            rest = self.text[self.position : self.position + longest]
            for mark in marks:
                if rest.startswith(mark):
                    self.position += len(mark)
                    return mark
            if self.closed or not any(mark.startswith(rest) for mark in marks):
                return ""
            yield

    def expect(self, *marks: str) -> Parse[str]:
        """Read one of these marks, and return it."""
        mark = yield from self.accept(*marks)
        if not mark:
            raise Incomplete if self.position >= len(self.text) else Mismatch
        return mark

    def upcoming(self, *marks: str) -> Parse[str]:
        """Return the mark that comes next, without reading it; empty if none does."""
        position = self.position
        mark = yield from self.accept(*marks)
        self.position = position
        return mark

    def read_until(self, *marks: str) -> Parse[tuple[str, str]]:
        """Read up to and including the first of these marks; return the text before it, and the mark."""
        start = searched = self.position
        longest = max(map(len, marks))
        search = _search_marks(marks)
        while True:
            if (match := search(self.text, searched)) is not None:
                self.position = match.end()
                return self.text[start : match.start()], match[0]
            if self.closed:
                self.position = len(self.text)
                raise Incomplete
            searched = max(start, len(self.text) - longest + 1)
            yield

    def skip_to(self, mark: str, limit: int) -> Parse[None]:
        """Read up to and including a mark, or this many characters if it does not begin among them."""
        start, end = self.position, self.position + limit + len(mark)
        while (place := self.text.find(mark, start, end)) < 0:
            if self.closed or len(self.text) >= end:
                self.position = min(start + limit, len(self.text))
                return
            yield
        self.position = place + len(mark)

    def read_name(self, pattern: re.Pattern[str] = NAME) -> Parse[str]:
        """Read the longest text that a pattern of single characters matches; it must not be empty."""
        while True:
            match = pattern.match(self.text, self.position)
            end = self.position if match is None else match.end()
            if end - self.position > MAX_NAME:
                raise Mismatch
            if end < len(self.text) or self.closed:
                name = self.text[self.position : end]
                self.position = end
                if not name:
                    raise Mismatch
                return name
            yield

    def read_json(self) -> Parse[str]:
        """Read a JSON object or list, and return its source; its brackets and strings say where it ends."""
        start = index = self.position
        if (yield from self.peek()) not in ("{", "["):
            raise Mismatch
        closers: list[str] = []
        in_string = False
        while True:
            match = (_INSIDE_STRING if in_string else _OUTSIDE_STRING).search(self.text, index)
            if match is None or (match[0] == "\\" and match.end() >= len(self.text)):
                if self.closed:
                    self.position = len(self.text)
                    raise Incomplete
                index = len(self.text) if match is None else match.start()
                yield
                continue
            index = match.end()
            character = match[0]
            if character == '"':
                in_string = not in_string
            elif character == "\\" and in_string:
                index += 1
            elif character in "{[":
                closers.append("}" if character == "{" else "]")
            elif not closers or closers.pop() != character:
                self.position = index
                raise Mismatch
            if not closers:
                self.position = index
                return self.text[start:index]
