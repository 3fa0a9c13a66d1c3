"""The index: tools by their words, ranked, or by a pattern.

1. A row has a tool's name, description and arguments, cut into words and stemmed, and what these words mean.
2. A question is the words that it is about, any of them, ranked by bm25. A word that no tool has is read as the start
   of one.
3. A pattern is looked for in many tools at once, then in each of those where it may be: most have nothing of it.
4. What the caller may not use is passed over, so that it can't be learned from what is left.
"""

import itertools
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from .words import asked, meanings, words_of

QUERY_LIMIT = 500
PATTERN_LIMIT = 200
_WORDS = 24
_DEPTH = 6
_TOLD = 4_000
_ARGUMENTS = 400
_TOGETHER = 64
_SECONDS = 0.05
"""Of a processor, for one pattern: others wait meanwhile."""

# Among other tools, the beginning and the end of a tool's text are those of a line.
_ENDS = {b"\\A": b"^", b"\\z": b"$"}
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
# Where a line has no beginning, or an escape means itself, each tool is looked at alone.
_APART = re.compile(rb"\(\?[a-zA-Z]*-[a-zA-Z]*m|\\Q")

_SCHEMA = (
    "CREATE VIRTUAL TABLE tools USING fts5("
    "name, description, arguments, meaning, tokenize='porter unicode61 remove_diacritics 2', prefix='3 4')"
)
# Of name, description, arguments and meaning.
_WEIGHTS = "INSERT INTO tools(tools, rank) VALUES ('rank', 'bm25(6.0, 3.0, 1.0, 4.0)')"
_RANKED = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY rank"
_KNOWN = "SELECT 1 FROM tools WHERE tools MATCH ? LIMIT 1"


class SearchFault(Exception):
    """The question can't be asked. `kind` is the word for it that Anthropic has."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Entry(Struct, frozen=True):
    """What is known of a tool to whoever looks for it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None


class Index:
    """Made when it is first asked, or by `make`: for thousands of tools that takes a while. Any thread may ask."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)
        self._lock = threading.Lock()
        self._rows: sqlite3.Connection | None = None
        self._texts: list[list[bytes]] = []
        self._together: list[bytes] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_made(self) -> bool:
        return self._rows is not None

    def make(self) -> sqlite3.Connection:
        with self._lock:
            if self._rows is not None:
                return self._rows
            rows = sqlite3.connect(":memory:", check_same_thread=False)
            rows.execute(_SCHEMA)
            rows.execute(_WEIGHTS)
            told = (_row(number, entry) for number, entry in enumerate(self._entries))
            rows.executemany("INSERT INTO tools(rowid, name, description, arguments, meaning) VALUES (?,?,?,?,?)", told)
            texts = [_text(entry) for entry in self._entries]
            self._texts = [texts[start : start + _TOGETHER] for start in range(0, len(texts), _TOGETHER)]
            self._together = [b"\n".join(some) for some in self._texts]
            self._rows = rows
            return rows

    def ranked(self, query: str, limit: int, usable: Callable[[str], bool] = lambda _: True) -> list[str]:
        """The names of the tools that fit best, best first."""
        if len(query) > QUERY_LIMIT:
            raise SearchFault(f"a query has at most {QUERY_LIMIT} characters", "invalid_tool_input")
        wanted, meant = asked(query, _WORDS)
        rows = self.make()
        with self._lock:
            phrases = [phrase for word in wanted if (phrase := _phrase(rows, word)) is not None]
            phrases += [f'meaning : "{word}"' for word in meant]
            if not phrases:
                return []
            found = (self._entries[row].name for (row,) in rows.execute(_RANKED, (" OR ".join(phrases),)))
            return _first(found, limit, usable)

    def matching(self, pattern: str, limit: int, usable: Callable[[str], bool] = lambda _: True) -> list[str]:
        """The names of the tools in whose name, description or arguments the pattern is found, in their own order.
        Each of these is a line of its own, for `^` and `$`."""
        if len(pattern) > PATTERN_LIMIT:
            raise SearchFault(f"a pattern has at most {PATTERN_LIMIT} characters", "invalid_tool_input")
        self.make()
        return _first(self._found(pattern.encode(errors="replace")), limit, usable)

    def _found(self, pattern: bytes) -> Iterator[str]:
        expression, somewhere = _compiled(pattern), None
        if _APART.search(pattern) is None:
            somewhere = _compiled(_ESCAPED.sub(lambda found: _ENDS.get(found[0], found[0]), pattern))
        begun = time.thread_time()
        for number, together in enumerate(self._together):
            if time.thread_time() - begun > _SECONDS:
                raise SearchFault("the pattern takes too long: use a simpler one", "execution_time_exceeded")
            if somewhere is not None and somewhere.search(together) is None:
                continue
            for place, text in enumerate(self._texts[number]):
                if expression.search(text) is not None:
                    yield self._entries[number * _TOGETHER + place].name


def _phrase(rows: sqlite3.Connection, word: str) -> str | None:
    for phrase in (f'"{word}"', f'"{word}"*'):
        if rows.execute(_KNOWN, (phrase,)).fetchone() is not None:
            return phrase
    return None


def _compiled(pattern: bytes) -> Any:
    try:
        import re2  # noqa: PLC0415 - ranking does without it
    except ImportError:
        raise SearchFault("patterns can't be searched here: install toolwire[runtime]", "unavailable") from None
    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    options.never_capture = True
    try:
        re2.compile(pattern, options)  # as it was written, so that what is said of it is, too
        return re2.compile(b"(?m)" + pattern, options)
    except re2.error as error:
        raise SearchFault(f"the pattern can't be read: {_said(error)}", "invalid_tool_input") from None


def _first(names: Iterator[str], limit: int, usable: Callable[[str], bool]) -> list[str]:
    return list(itertools.islice(filter(usable, names), limit))


def _said(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _row(number: int, entry: Entry) -> tuple[int, str, str, str, str]:
    name, about = words_of(entry.name), words_of(entry.description[:_TOLD])
    arguments = [word for text in _arguments(entry.parameters) for word in words_of(text)]
    meant = meanings(name) + meanings(about)
    return number, " ".join(name), " ".join(about), " ".join(arguments), " ".join(dict.fromkeys(meant))


def _text(entry: Entry) -> bytes:
    text = "\n".join([entry.name, entry.description[:_TOLD], *_arguments(entry.parameters)])
    return text.encode(errors="replace")


def _arguments(parameters: Mapping[str, Any] | None) -> list[str]:
    """The names and descriptions of the arguments, as deep and as many as anybody would look for. No reference is
    followed."""
    found: list[str] = []
    waiting: list[tuple[Any, int]] = [(parameters, 0)]
    while waiting and len(found) < _ARGUMENTS:
        schema, depth = waiting.pop(0)
        if not isinstance(schema, Mapping) or depth > _DEPTH:
            continue
        properties = schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, Mapping) else ():
            found.append(str(name))
            if isinstance(inner, Mapping):
                if isinstance(about := inner.get("description"), str):
                    found.append(about[:_TOLD])
                waiting.append((inner, depth + 1))
        if isinstance(items := schema.get("items"), Mapping):
            waiting.append((items, depth + 1))
    return [text[:_TOLD] for text in found[:_ARGUMENTS]]
