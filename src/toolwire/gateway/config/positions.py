"""Positions of keys and values in the text of a TOML document, which `tomllib` does not report."""

import bisect
import re
import tomllib
from typing import NamedTuple

KeyPath = tuple[str | int, ...]
"""A key in a document: names of tables and keys, and indexes in arrays."""

MAX_DEPTH = 50
"""Levels of tables and arrays in a document."""

_BLANKS = re.compile(r"[ \t]*")
_SEPARATORS = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_STRINGS = {
    '"""': re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"'''(?:[^']|'(?!''))*'{3,5}"),
    '"': re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    "'": re.compile(r"'[^'\n]*'"),
}


class Position(NamedTuple):
    """A line and a column, both counted from 1."""

    line: int
    column: int


class Offsets(NamedTuple):
    """The offsets at which a key and its value start; both are the header's for a table."""

    key: int
    value: int


class KeyPositions:
    """The positions of all keys of a valid TOML document with at most `MAX_DEPTH` levels."""

    def __init__(self, text: str) -> None:
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._offsets = _Scanner(text).scan()

    @property
    def paths(self) -> set[KeyPath]:
        """Return every key path of the document."""
        return set(self._offsets)

    def locate(self, path: KeyPath, *, value: bool = False) -> Position:
        """Return the position of a key or its value, or of the nearest enclosing table if the key is missing."""
        for length in range(len(path), 0, -1):
            if (offsets := self._offsets.get(path[:length])) is not None:
                return self._position(offsets.value if value else offsets.key)
        return Position(1, 1)

    def _position(self, offset: int) -> Position:
        """Return the line and the column of an offset."""
        line = bisect.bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)


class _Scanner:
    """Finds the keys of a valid document in one pass."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._offset = 0
        self._found: dict[KeyPath, Offsets] = {}
        self._lengths: dict[KeyPath, int] = {}  # of arrays of tables

    def scan(self) -> dict[KeyPath, Offsets]:
        """Return the offsets of every key path."""
        table: KeyPath = ()
        while True:
            self._skip(_SEPARATORS)
            if self._offset >= len(self._text):
                return self._found
            table = self._scan_header() if self._peek() == "[" else self._scan_pair(table)

    def _scan_header(self) -> KeyPath:
        """Scan `[table]` or `[[table]]`; return the path of the table."""
        is_element = self._text.startswith("[[", self._offset)
        self._offset += 2 if is_element else 1
        path: KeyPath = ()
        keys = self._scan_key()
        for number, (name, offset) in enumerate(keys):
            path = (*path, name)
            self._add(path, offset, offset)
            if is_element and number == len(keys) - 1:
                index = self._lengths[path] = self._lengths.get(path, -1) + 1
                path = (*path, index)
                self._add(path, offset, offset)
            elif path in self._lengths:
                path = (*path, self._lengths[path])
        self._offset += 2 if is_element else 1
        return path

    def _scan_pair(self, table: KeyPath) -> KeyPath:
        """Scan `key = value` in a table; return the path of the table."""
        path = table
        keys = self._scan_key()
        self._offset += 1  # the equals sign
        self._skip(_BLANKS)
        for name, offset in keys:
            path = (*path, name)
            self._add(path, offset, self._offset)
        self._scan_value(path)
        return table

    def _scan_key(self) -> list[tuple[str, int]]:
        """Scan a dotted key and the blanks after it; return its names with their offsets."""
        keys: list[tuple[str, int]] = []
        while True:
            self._skip(_BLANKS)
            start = self._offset
            if self._peek() in "\"'":
                self._skip(_STRINGS[self._peek()])
                name = next(iter(tomllib.loads(f"{self._text[start : self._offset]}=0")))
            else:
                self._skip(_BARE_KEY)
                name = self._text[start : self._offset]
            keys.append((name, start))
            self._skip(_BLANKS)
            if self._peek() != ".":
                return keys
            self._offset += 1

    def _scan_value(self, path: KeyPath) -> None:
        """Scan a value, and the keys and elements in it."""
        if self._peek() == "[":
            self._scan_array(path)
        elif self._peek() == "{":
            self._scan_inline_table(path)
        else:
            start = self._text[self._offset : self._offset + 3]
            self._skip(next((pattern for quotes, pattern in _STRINGS.items() if start.startswith(quotes)), _BARE_VALUE))

    def _scan_array(self, path: KeyPath) -> None:
        """Scan an array."""
        self._offset += 1
        index = 0
        while True:
            self._skip(_SEPARATORS)
            if self._peek() == "]":
                self._offset += 1
                return
            element = (*path, index)
            self._add(element, self._offset, self._offset)
            self._scan_value(element)
            index += 1
            self._skip(_SEPARATORS)
            if self._peek() == ",":
                self._offset += 1

    def _scan_inline_table(self, path: KeyPath) -> None:
        """Scan an inline table."""
        self._offset += 1
        while True:
            self._skip(_SEPARATORS)
            if self._peek() == "}":
                self._offset += 1
                return
            self._scan_pair(path)
            self._skip(_SEPARATORS)
            if self._peek() == ",":
                self._offset += 1

    def _peek(self) -> str:
        """Return the next character."""
        return self._text[self._offset]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        """Move behind a match of the pattern."""
        match = pattern.match(self._text, self._offset)
        if match is None:
            raise ValueError(f"not valid TOML at offset {self._offset}")
        self._offset = match.end()

    def _add(self, path: KeyPath, key: int, value: int) -> None:
        """Record the offsets of a path, unless a header or a dotted key named it before."""
        self._found.setdefault(path, Offsets(key, value))
