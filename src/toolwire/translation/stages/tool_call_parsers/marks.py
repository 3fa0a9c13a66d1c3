"""One search for all marks: finds the first complete mark in a text, or a beginning of one at its end."""

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

_RARE = "<[◁"


class MarkFinder:
    """Finds the first of several marks; of marks at the same place, the longest.

    With `whole_words`, a mark that begins with a letter is none inside a word ("of" is no beginning of `functools[`),
    and one that begins with a closing bracket stands after white space. With a `separator`, the text may consist of
    several that are joined with it. The pattern is compiled when it is first needed: it is large, and most texts hold
    no character that could begin a mark.
    """

    def __init__(self, marks: Iterable[str], *, whole_words: bool = False, separator: str = "") -> None:
        self.marks = frozenset(marks)
        self._extensible = frozenset(
            mark for mark in self.marks if any(other != mark and other.startswith(mark) for other in self.marks)
        )
        self._whole_words = whole_words
        self._end = rf"(?:{re.escape(separator)}|\Z)" if separator else r"\Z"
        self._brackets = tuple({mark[_bracket(mark)] for mark in self.marks})
        self._beginnings = tuple({mark[:end] for mark in self.marks for end in range(1, _bracket(mark) + 1)})

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        """The compiled pattern of all marks."""
        source = _pattern(_trie(self.marks), self._end, whole_words=self._whole_words) if self.marks else r"(?!)"
        return re.compile(source, re.DOTALL)

    @cached_property
    def search(self) -> "Callable[..., re.Match[str] | None]":
        """The function that searches a text for a mark."""
        return self._regex.search

    @cached_property
    def match(self) -> "Callable[..., re.Match[str] | None]":
        """The function that matches a mark at a position in a text."""
        return self._regex.match

    def is_in(self, text: str) -> bool:
        """Return whether text holds a mark or ends with a beginning of one."""
        for bracket in self._brackets:
            if bracket in text:
                return self.search(text) is not None
        return text.endswith(self._beginnings) and self.search(text) is not None

    def find_at(self, text: str, place: int, *, closed: bool) -> tuple[int, str] | None:
        """Return what `find` does, but only for a mark at this place."""
        found = None if self.match(text, place) is None else self.find(text, place, closed=closed)
        return found if found is not None and found[0] == place else None

    def find(self, text: str, start: int, *, closed: bool) -> tuple[int, str] | None:
        """Return the place of the first mark and the mark; an empty one if its end may still arrive.

        Args:
            text: The text to search.
            start: Where to begin.
            closed: No more text follows, so that a beginning of a mark is none.

        """
        while (match := self.search(text, start)) is not None:
            mark = match[0]
            at_end = match.end() == len(text) and not closed
            if mark in self.marks and not (at_end and mark in self._extensible):
                return match.start(), mark
            if at_end:
                return match.start(), ""
            shorter = [known for known in self._extensible if mark.startswith(known)]
            if shorter:
                return match.start(), max(shorter, key=len)
            start = match.start() + 1
        return None


def _bracket(mark: str) -> int:
    """Return the place of the first character of a mark that is rare in text; its end if it has none."""
    return next((place for place, character in enumerate(mark) if character in _RARE), len(mark) - 1)


def _trie(marks: Iterable[str]) -> dict[str, Any]:
    """Return the marks as nested dicts by character; an empty key says that a mark ends there."""
    root: dict[str, Any] = {}
    for mark in marks:
        node = root
        for character in mark:
            node = node.setdefault(character, {})
        node[""] = {}
    return root


def _word_boundary(character: str) -> str:
    """Return a regular expression that matches after the first character of a mark if that may begin one there."""
    if character == "]":
        return r"(?<!\S\])"
    return rf"(?<!\w{character})" if character.isalpha() else ""


def _pattern(node: dict[str, Any], end: str, *, root: bool = True, whole_words: bool = False) -> str:
    """Return a regular expression for a trie, which also matches a beginning at the end of the text."""
    branches = [
        re.escape(character) + (_word_boundary(character) if whole_words else "") + _pattern(child, end, root=False)
        for character, child in sorted(node.items())
        if character
    ]
    if not branches:
        return ""
    if root:
        return "|".join(branches)
    return "(?:" + "|".join([*branches, *([end] if "" not in node else [])]) + ")" + ("?" if "" in node else "")
