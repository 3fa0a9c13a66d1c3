"""Quick checks whether text may hold a mark, whatever dialects are looked for.

Marks begin with few characters, the signs. Text without a sign holds no mark, and no beginning of one at its end.
"""

import re
from collections.abc import Iterable

from toolwire.translation.stages.tool_call_parsers.registry import vocabulary

_ALL_MARKS = vocabulary("auto", "auto", None, interleaved=False)
_SIGNS = "<[]\N{WHITE LEFT-POINTING TRIANGLE}"
# The only letter that begins a mark in text, `functools[`; not inside a word. Texts are joined with null characters.
_find_word = re.compile(r"f(?<!\wf)(?:u|\0|\Z)").search
_LIMIT_LENGTH, _LIMIT_TEXTS = 16, 8192
UNMARKED_TEXTS: set[str] = set()
"""Short texts that hold no mark: models write few thousand different tokens over and over."""


def may_hold_mark(text: str) -> bool:
    """Return whether text holds a mark or the beginning of one; short text without either is remembered."""
    if _holds_sign(text) and _ALL_MARKS.finder.search(text) is not None:
        return True
    if len(text) <= _LIMIT_LENGTH:
        if len(UNMARKED_TEXTS) >= _LIMIT_TEXTS:
            UNMARKED_TEXTS.clear()
        UNMARKED_TEXTS.add(text)
    return False


def may_hold_marks(texts: Iterable[str]) -> bool:
    """Return whether one of several texts holds a mark or the beginning of one."""
    joined = "\0".join(texts)
    return _holds_sign(joined) and any(map(may_hold_mark, {*joined.split("\0")} - UNMARKED_TEXTS))


def may_begin_with_mark(text: str) -> bool:
    """Return whether text at the beginning of an answer may begin with a mark, or with a call without marks."""
    first = text.lstrip()[:1]
    return not first or first in _ALL_MARKS.first_characters


def _holds_sign(text: str) -> bool:
    """Return whether text holds the first character of a mark."""
    for sign in _SIGNS:
        if sign in text:
            return True
    return _find_word(text) is not None
