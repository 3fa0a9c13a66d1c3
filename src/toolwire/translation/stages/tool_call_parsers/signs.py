"""Quick checks whether text may hold a mark, whatever dialects are looked for.

Marks begin with one of a few characters, here called signs. Text without a sign holds no mark, not even a partial one.
"""

import re
from functools import cache
from string import ascii_letters, digits

from toolwire.codec.fast_path import KNOWN_TEXTS
from toolwire.translation.stages.tool_call_parsers.marks import MarkFinder
from toolwire.translation.stages.tool_call_parsers.registry import Vocabulary, vocabulary

SEPARATOR = "\x1f"  # white space, after which every mark may begin, and part of no mark
# The only letter that begins a mark in text, `functools[`; not inside a word.
_find_word = re.compile(rf"f(?<!\wf)(?:u|{SEPARATOR}|\Z)").search
find_escape = re.compile(rb'\\[^nrt"\\]').search
_LAST_LETTER = "f" + SEPARATOR
_LIMIT_LENGTH, _LIMIT_TEXTS = 20, 8192
_WORD = "functools"
# Texts that may continue and not complete the only mark that begins with a letter.
WORD_MIDDLES = frozenset(_WORD[start:end] for start in range(1, len(_WORD)) for end in range(start + 1, len(_WORD) + 1))


def may_hold_mark(text: str) -> bool:
    """Return whether text holds a mark or the beginning of one; several texts may be joined with `SEPARATOR`."""
    has_bracket = "<" in text or "[" in text or "]" in text or "\u25c1" in text
    has_letter = not has_bracket and ("fu" in text or _LAST_LETTER in text or text[-1:] == "f")
    return (has_bracket or (has_letter and _find_word(text) is not None)) and _mark_finder().search(text) is not None


def remember_text(string: bytes, text: str) -> None:
    """Add a short text that holds no mark to `KNOWN_TEXTS`; `string` is its JSON."""
    if len(string) <= _LIMIT_LENGTH:
        if len(KNOWN_TEXTS) >= _LIMIT_TEXTS:
            KNOWN_TEXTS.clear()
        KNOWN_TEXTS[string] = text


def may_begin_with_mark(text: str) -> bool:
    """Return whether text at the beginning of an answer may begin with a mark, or with a call without marks."""
    return _all_marks().may_open(text)


def compile_marks() -> None:
    """Compile the patterns of all marks, which takes some 60 ms: a server does it before the first stream."""
    for finder in (_mark_finder(), _all_marks().finder, _all_marks().opening_finder):
        finder.search("")


@cache
def unmarked_initials() -> frozenset[str]:
    """Return the letters and digits that begin no mark: a text that begins with one holds no call at its start."""
    return frozenset(ascii_letters + digits).difference(mark[0] for mark in _all_marks().opening_finder.marks)


@cache
def _all_marks() -> Vocabulary:
    """Return the marks of all dialects."""
    return vocabulary("auto", "auto", None, interleaved=False)


@cache
def _mark_finder() -> MarkFinder:
    """Return the finder of all marks in texts that are joined."""
    return MarkFinder(_all_marks().finder.marks, whole_words=True, separator=SEPARATOR)
