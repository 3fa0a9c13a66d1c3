"""Quick checks whether text may hold a mark, whatever dialects are looked for.

Marks begin with one of a few characters, here called signs. Text without a sign holds no mark, not even a partial one.
"""

import re
from functools import cache

from toolwire.translation.stages.tool_call_parsers.marks import MarkFinder
from toolwire.translation.stages.tool_call_parsers.registry import Vocabulary, vocabulary

SEPARATOR = "\x1f"  # white space, after which every mark may begin, and part of no mark
# The only letter that begins a mark in text, `functools[`; not inside a word.
_find_word = re.compile(rf"f(?<!\wf)(?:u|{SEPARATOR}|\Z)").search
_LAST_LETTER = "f" + SEPARATOR
_LIMIT_LENGTH, _LIMIT_TEXTS, _LIMIT_JSON = 16, 8192, 8192
_TRIANGLE = "\u25c1".encode()
_WORD = "functools"
# Texts that may continue and not complete the only mark that begins with a letter.
_MIDDLES = frozenset(_WORD[start:end] for start in range(len(_WORD)) for end in range(start + 1, len(_WORD) + 1))
UNMARKED_TEXTS: set[str] = set()
"""Short texts that hold no mark: models repeat a few thousand different tokens."""


def may_hold_mark(text: str) -> bool:
    """Return whether text holds a mark or the beginning of one; several texts may be joined with `SEPARATOR`.

    A short text without either is remembered.
    """
    has_bracket = "<" in text or "[" in text or "]" in text or "\u25c1" in text
    has_letter = not has_bracket and ("fu" in text or _LAST_LETTER in text or text[-1:] == "f")
    if (has_bracket or (has_letter and _find_word(text) is not None)) and _mark_finder().search(text) is not None:
        return True
    if len(text) <= _LIMIT_LENGTH and SEPARATOR not in text:
        if len(UNMARKED_TEXTS) >= _LIMIT_TEXTS:
            UNMARKED_TEXTS.clear()
        UNMARKED_TEXTS.add(text)
    return False


def json_may_hold_mark(data: bytes, last_text: str) -> bool:
    """Return whether texts that follow each other may hold a mark, or end with the beginning of one.

    `data` is JSON that holds these texts, of which `last_text` is the last. It may hold more, which only makes a mark
    more likely. If it is empty or long, nothing is known.
    """
    # The numbers are `<`, `[`, a byte of \u25c1, and `\`. Bytes are searched much faster for a number than for bytes.
    if 0x3C in data or 0x5B in data or (0x97 in data and data.find(_TRIANGLE) >= 0) or not 0 < len(data) < _LIMIT_JSON:
        return True
    if 0x5C in data:
        place = data.find(0x5C)
        while place >= 0:
            if data[place + 1] == 0x75:  # \u
                return True
            place = data.find(0x5C, place + 2)
    # Without these characters, there is at most the beginning of a mark, at the end.
    return last_text in _MIDDLES or (last_text not in UNMARKED_TEXTS and may_hold_mark(last_text))


def may_begin_with_mark(text: str) -> bool:
    """Return whether text at the beginning of an answer may begin with a mark, or with a call without marks."""
    return _all_marks().may_open(text)


def compile_marks() -> None:
    """Compile the patterns of all marks, which takes some 60 ms: a server does it before the first stream."""
    for finder in (_mark_finder(), _all_marks().finder, _all_marks().opening_finder):
        finder.search("")


@cache
def _all_marks() -> Vocabulary:
    """Return the marks of all dialects."""
    return vocabulary("auto", "auto", None, interleaved=False)


@cache
def _mark_finder() -> MarkFinder:
    """Return the finder of all marks in texts that are joined."""
    return MarkFinder(_all_marks().finder.marks, whole_words=True, separator=SEPARATOR)
