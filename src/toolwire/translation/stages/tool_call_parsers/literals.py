"""Python literals and calls, as models write them in pythonic dialects, with JSON's `true`, `false` and `null`."""

import json
import re
from contextlib import suppress
from typing import Any

from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Incomplete, Mismatch, Parse

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][\w.\-/]*")
_KEYWORD = re.compile(r"([A-Za-z_][\w\-]*)\s*=(?!=)")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_LOOSE_STRING_END = re.compile(r"""\s*(?:[)\]}]|,\s*(?:[A-Za-z_]\w*\s*=|['"{\[\d]))""")
_DELIMITER = re.compile(r"[\[\](){}\"'\\]")
_QUOTE_AHEAD = re.compile(r"(?=['\"])")
_MAX_DEPTH = 64
_MAX_DIGITS = 4000

Call = tuple[str, dict[str, Any]]


def parse_balanced(cursor: Cursor) -> Parse[str]:
    """Read text from an opening bracket to its closing one, past quoted strings."""
    start = index = cursor.position
    closers: list[str] = []
    quote = ""
    while True:
        match = _DELIMITER.search(cursor.text, index)
        if match is None or (match[0] == "\\" and match.end() >= len(cursor.text)):
            if cursor.closed:
                cursor.position = len(cursor.text)
                raise Incomplete
            index = len(cursor.text) if match is None else match.start()
            yield
            continue
        index = match.end()
        character = match[0]
        if character == "\\":
            index += 1
        elif character in "\"'":
            quote = "" if quote == character else quote or character
        elif not quote:
            if character in "([{":
                closers.append({"(": ")", "[": "]", "{": "}"}[character])
            elif not closers or closers.pop() != character:
                cursor.position = index
                raise Mismatch
            if not closers:
                cursor.position = index
                return cursor.text[start:index]


def read_literal(text: str) -> Any:
    """Return the value of a literal."""
    reader = _Reader(text, loose=False)
    value = reader.read_value(0)
    reader.expect_end()
    return value


def read_call_list(text: str, *, loose: bool = False) -> list[Call]:
    """Return the calls of `[f(a=1), g()]`.

    If the text can't be read, `loose` allows quotes inside of strings that are not escaped.
    """
    try:
        return _read_call_list(text, loose=False)
    except Mismatch:
        if not loose:
            raise
        return _read_call_list(text, loose=True)


def _read_call_list(text: str, *, loose: bool) -> list[Call]:
    """Return the calls of `[f(a=1), g()]`."""
    reader = _Reader(text, loose=loose)
    reader.expect("[")
    calls = [reader.read_call()]
    while reader.accept(","):
        calls.append(reader.read_call())
    reader.expect("]")
    reader.expect_end()
    return calls


def read_call_lines(text: str) -> list[Call]:
    """Return the calls of text with one call after another, as `f(a=1)` and `g()` on lines of their own."""
    reader = _Reader(text, loose=False)
    calls = [reader.read_call()]
    while not reader.at_end():
        reader.accept(",")
        calls.append(reader.read_call())
    return calls


def render_literal(value: Any) -> str:
    """Return a JSON value as a Python literal."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            return f"{{{', '.join([f'{render_literal(key)}: {render_literal(item)}' for key, item in value.items()])}}}"
        case list():
            return f"[{', '.join(map(render_literal, value))}]"
        case _:
            return repr(value)


class _Reader:
    """Reads literals from complete text."""

    def __init__(self, text: str, *, loose: bool) -> None:
        self._text = text
        self._position = 0
        self._loose = loose

    def _skip_space(self) -> None:
        """Skip white space."""
        if (match := _SPACE.match(self._text, self._position)) is not None:
            self._position = match.end()

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what a pattern matches after white space."""
        self._skip_space()
        if (match := pattern.match(self._text, self._position)) is not None:
            self._position = match.end()
        return match

    def at_end(self) -> bool:
        """Return whether only white space is left."""
        self._skip_space()
        return self._position >= len(self._text)

    def accept(self, character: str) -> bool:
        """Read a character after white space, if it is here."""
        self._skip_space()
        if not self._text.startswith(character, self._position):
            return False
        self._position += len(character)
        return True

    def expect(self, character: str) -> None:
        """Skip white space and consume `character`; raise `Mismatch` if another one follows."""
        if not self.accept(character):
            raise Mismatch

    def expect_end(self) -> None:
        """Check that only white space is left."""
        if not self.at_end():
            raise Mismatch

    def read_call(self) -> Call:
        """Read one call with keyword arguments."""
        if (name := self._match(_NAME)) is None:
            raise Mismatch
        self.expect("(")
        arguments: dict[str, Any] = {}
        while not self.accept(")"):
            if (keyword := self._match(_KEYWORD)) is None:
                raise Mismatch
            arguments[keyword[1]] = self.read_value(0)
            if not self.accept(","):
                self.expect(")")
                break
        return name[0], arguments

    def read_value(self, depth: int) -> Any:
        """Read one value."""
        if depth > _MAX_DEPTH:
            raise Mismatch
        self._skip_space()
        character = self._text[self._position : self._position + 1]
        if character in ("'", '"'):
            text = self._read_string(character)
            while self._match(_QUOTE_AHEAD) is not None:  # adjacent strings are one
                text += self._read_string(self._text[self._position])
            return text
        if character == "[":
            return self._read_items("[", "]", depth)
        if character == "(":
            return self._read_items("(", ")", depth)
        if character == "{":
            return self._read_braces(depth)
        if (number := self._match(_NUMBER)) is not None:
            return _number(number[0])
        if (word := self._match(_NAME)) is not None and word[0] in _WORDS:
            return _WORDS[word[0]]
        raise Mismatch

    def _read_items(self, opening: str, closing: str, depth: int) -> list[Any]:
        """Read values between brackets."""
        self.expect(opening)
        items: list[Any] = []
        while not self.accept(closing):
            items.append(self.read_value(depth + 1))
            if not self.accept(","):
                self.expect(closing)
                break
        return items

    def _read_braces(self, depth: int) -> dict[str, Any] | list[Any]:
        """Read a dict, or a set as a list."""
        self.expect("{")
        members: dict[str, Any] = {}
        items: list[Any] = []
        while not self.accept("}"):
            key = self.read_value(depth + 1)
            if self.accept(":"):
                members[key if isinstance(key, str) else str(key)] = self.read_value(depth + 1)
            else:
                items.append(key)
            if not self.accept(","):
                self.expect("}")
                break
        if members and items:
            raise Mismatch
        return items or members

    def _read_string(self, quote: str) -> str:
        """Read a quoted string; in a loose one, a quote ends it only before a delimiter."""
        text = self._text
        if text.startswith(quote * 3, self._position):
            quote *= 3
        self._position += len(quote)
        pieces: list[str] = []
        while self._position < len(text):
            if text.startswith(quote, self._position):
                self._position += len(quote)
                if not self._loose or _LOOSE_STRING_END.match(text, self._position):
                    return "".join(pieces)
                pieces.append(quote)
            elif text[self._position] == "\\":
                pieces.append(self._read_escape())
            else:
                pieces.append(text[self._position])
                self._position += 1
        raise Mismatch

    def _read_escape(self) -> str:
        """Read one escape of a string; an unknown one stays as it is, as in Python."""
        code = self._text[self._position + 1 : self._position + 2]
        if code in _HEX_ESCAPES:
            digits = self._text[self._position + 2 : self._position + 2 + _HEX_ESCAPES[code]]
            try:
                character = chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise Mismatch from None
            self._position += 2 + len(digits)
            return character
        self._position += 2
        return _ESCAPES.get(code, "\\" + code)


def _number(text: str) -> int | float:
    """Return the number that a literal spells; raise `Mismatch` if it spells none."""
    if len(text) > _MAX_DIGITS:
        raise Mismatch
    try:
        value = float(text)
    except ValueError:
        raise Mismatch from None
    if value in (float("inf"), float("-inf")):
        raise Mismatch
    with suppress(ValueError):
        return int(text)
    return value
