"""One search for all marks: finds the first complete mark in a text, or a beginning of one at its end."""

import re
from collections.abc import Iterable
from typing import Any


class MarkFinder:
    """Finds the first of several marks; of marks at the same place, the longest."""

    def __init__(self, marks: Iterable[str]) -> None:
        self._marks = frozenset(marks)
        self._extensible = frozenset(
            mark for mark in self._marks if any(other != mark and other.startswith(mark) for other in self._marks)
        )
        self.search = re.compile(_pattern(_trie(self._marks)) if self._marks else r"(?!)", re.DOTALL).search

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
            if mark in self._marks and not (at_end and mark in self._extensible):
                return match.start(), mark
            if at_end:
                return match.start(), ""
            shorter = [known for known in self._extensible if mark.startswith(known)]
            if shorter:
                return match.start(), max(shorter, key=len)
            start = match.start() + 1
        return None


def _trie(marks: Iterable[str]) -> dict[str, Any]:
    """Return the marks as nested dicts by character; an empty key says that a mark ends there."""
    root: dict[str, Any] = {}
    for mark in marks:
        node = root
        for character in mark:
            node = node.setdefault(character, {})
        node[""] = {}
    return root


def _pattern(node: dict[str, Any], *, root: bool = True) -> str:
    """Return a regular expression for a trie, which also matches a beginning at the end of the text."""
    branches = [
        re.escape(character) + _pattern(child, root=False) for character, child in sorted(node.items()) if character
    ]
    if not branches:
        return ""
    if root:
        return "|".join(branches)
    return "(?:" + "|".join([*branches, *([r"\Z"] if "" not in node else [])]) + ")" + ("?" if "" in node else "")
