"""The full-text index behind tool search: ranked by words, or filtered by a pattern.

1. A row holds a tool's name, description and arguments as stemmed words, and the synonym groups of these words.
2. A query matches tools with any of its words, ranked by BM25 (SQLite FTS5). A word that no tool has matches as a
   prefix.
3. A pattern is first searched in blocks of joined tools, then in each tool of a matching block.
4. Tools that the caller may not use are skipped before the limit applies, so that results reveal nothing about them.
"""

import itertools
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")

_SYNONYM_GROUPS = (
    "create add new make insert register open start compose generate setup|set up|sign up|put in|write a",
    "delete remove erase drop purge discard destroy wipe|get rid of|throw away|clean up|take out|take away",
    "update edit change modify alter amend revise adjust patch set",
    "get fetch read retrieve show view load lookup describe obtain display|look at|look up|show me|pull up|tell me",
    "list enumerate browse overview all",
    "search find query locate seek|look for",
    "send deliver dispatch transmit forward post|hand over",
    "cancel abort revoke withdraw|call off",
    "archive shelve stash|put away|put aside",
    "assign allocate delegate",
    "approve accept authorize confirm|sign off",
    "reject decline deny refuse|turn down",
    "export download dump extract|write out",
    "import upload ingest|read in|bring in",
    "copy duplicate clone replicate",
    "move transfer relocate migrate",
    "rename retitle",
    "merge combine join unify|put together",
    "close end finish complete resolve",
    "enable activate|turn on|switch on",
    "disable deactivate|turn off|switch off",
    "share publish",
    "plan book arrange reserve",
    "run execute trigger launch invoke",
    "count total tally|how many",
    "restore recover undelete|bring back",
    "subscribe follow watch",
    "connect link attach",
    "pause suspend freeze",
    "pay purchase buy",
    "repo repository",
    "doc docs document documentation",
    "msg message",
    "config configuration settings preferences",
    "db database",
    "dir directory folder",
    "image picture photo",
    "email mail",
    "org organization organisation company",
    "env environment",
    "user person people member account",
    "customer client buyer",
    "employee staff worker colleague",
    "bug issue defect ticket",
    "task todo chore",
    "calendar appointment meeting",
    "schedule timetable",
    "invoice bill",
    "price cost fee",
    "contact|address book|phone book",
    "tag label",
    "comment remark",
    "vehicle car",
    "job vacancy",
    "site website page",
    "secret password credential",
    "weather forecast temperature",
)
"""Synonyms, with the first word as the name of the group. Phrases follow, each after a bar."""

_PARSED_GROUPS = [group.split("|") for group in _SYNONYM_GROUPS]
SYNONYMS = {word: words.split()[0] for words, *_ in _PARSED_GROUPS for word in words.split()}
_PHRASE_SYNONYMS = {tuple(phrase.split()): words.split()[0] for words, *phrases in _PARSED_GROUPS for phrase in phrases}
_MAX_PHRASE_WORDS = max(map(len, _PHRASE_SYNONYMS))

_STOP_WORD_LIST = (
    "a an and any are as at be by can could do for from have how i in into is it its like me my need of on one or our "
    "out please some so that the their them then there these they this those to up us use using want was we what "
    "when where which who will with would you your"
)
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())


def split_words(text: str) -> list[str]:
    """Split a name or text into lowercase words, at `camelCase` boundaries and punctuation."""
    return [word.lower() for word in _WORD.findall(_CAMEL_BOUNDARY.sub(" ", text))]


def query_terms(query: str, limit: int) -> tuple[list[str], list[str]]:
    """Return the distinct words of a query without stop words, and the names of its synonym groups.

    A phrase such as "look up" only adds its group, because its single words mean something else.
    """
    single_words, groups = list[str](), list[str]()
    words, start = split_words(query), 0
    while start < len(words):
        length = next(
            (n for n in range(_MAX_PHRASE_WORDS, 1, -1) if tuple(words[start : start + n]) in _PHRASE_SYNONYMS), 1
        )
        if length > 1:
            groups.append(_PHRASE_SYNONYMS[tuple(words[start : start + length])])
        else:
            single_words.append(words[start])
        start += length
    terms = [word for word in single_words if word not in _STOP_WORDS]
    if not terms and not groups:
        terms = single_words
    return list(dict.fromkeys(terms))[:limit], list(dict.fromkeys(groups + synonym_terms(terms)))[:limit]


def synonym_terms(words: list[str]) -> list[str]:
    """Return the names of the synonym groups that the words belong to, with or without a plural ending."""
    groups = (
        SYNONYMS.get(word) or SYNONYMS.get(word.removesuffix("s")) or _synonym_without_suffix(word) for word in words
    )
    return list(dict.fromkeys(group for group in groups if group is not None))


def _synonym_without_suffix(word: str) -> str | None:
    """Return the synonym group of an inflected word such as `copies` or `publishes`; None if it has none."""
    if word.endswith("ies"):
        return SYNONYMS.get(word[:-3] + "y")
    return SYNONYMS.get(word.removesuffix("es"))


QUERY_LIMIT = 500
PATTERN_LIMIT = 200
_MAX_QUERY_TERMS = 24
_MAX_SCHEMA_DEPTH = 6
_MAX_TEXT_LENGTH = 4_000
_MAX_ARGUMENT_TEXTS = 400
_BLOCK_SIZE = 64
_MAX_PATTERN_SECONDS = 0.05
"""CPU time limit for one pattern search."""

# In a block of joined tools, the start and end of a tool's text are those of a line.
_LINE_ANCHORS = {b"\\A": b"^", b"\\z": b"$"}
_ESCAPE_SEQUENCE = re.compile(rb"\\.", re.DOTALL)
# Patterns that turn off multi-line mode or quote escapes (`\Q`) are matched against each tool alone.
_UNJOINABLE_PATTERN = re.compile(rb"\(\?[a-zA-Z]*-[a-zA-Z]*m|\\Q")

_CREATE_TABLE = (
    "CREATE VIRTUAL TABLE tools USING fts5("
    "name, description, arguments, meaning, tokenize='porter unicode61 remove_diacritics 2', prefix='3 4')"
)
# Weights of name, description, arguments and meaning.
_SET_WEIGHTS = "INSERT INTO tools(tools, rank) VALUES ('rank', 'bm25(6.0, 3.0, 1.0, 4.0)')"
_INSERT_ROW = "INSERT INTO tools(rowid, name, description, arguments, meaning) VALUES (?,?,?,?,?)"
_SELECT_RANKED = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY rank"
_SELECT_MATCH = "SELECT 1 FROM tools WHERE tools MATCH ? LIMIT 1"


class SearchError(Exception):
    """A query or pattern is invalid or too expensive. `kind` is the error code of Anthropic's tool search."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class IndexedTool(Struct, frozen=True):
    """The fields of a tool that a search covers."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None


class ToolIndex:
    """A search index over tools, thread-safe and built on first use or by `build`."""

    def __init__(self, entries: Iterable[IndexedTool]) -> None:
        self._entries = tuple(entries)
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._blocks: list[list[bytes]] = []
        self._joined_blocks: list[bytes] = []

    def __len__(self) -> int:
        """Return the number of tools in the index."""
        return len(self._entries)

    @property
    def is_built(self) -> bool:
        """True once the index is built."""
        return self._database is not None

    def build(self) -> sqlite3.Connection:
        """Build the index unless it exists, which takes a while for thousands of tools; return its database."""
        with self._lock:
            if self._database is not None:
                return self._database
            database = sqlite3.connect(":memory:", check_same_thread=False)
            database.execute(_CREATE_TABLE)
            database.execute(_SET_WEIGHTS)
            rows = (_index_row(number, entry) for number, entry in enumerate(self._entries))
            database.executemany(_INSERT_ROW, rows)
            texts = [_searchable_text(entry) for entry in self._entries]
            self._blocks = [texts[start : start + _BLOCK_SIZE] for start in range(0, len(texts), _BLOCK_SIZE)]
            self._joined_blocks = [b"\n".join(block) for block in self._blocks]
            weakref.finalize(self, database.close)
            self._database = database
            return database

    def search_words(self, query: str, limit: int, is_usable: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return the names of at most `limit` tools that match the query and that `is_usable` accepts, best first."""
        if len(query) > QUERY_LIMIT:
            raise SearchError(f"the query is longer than {QUERY_LIMIT} characters", "invalid_tool_input")
        terms, groups = query_terms(query, _MAX_QUERY_TERMS)
        database = self.build()
        with self._lock:
            phrases = [phrase for term in terms if (phrase := _match_phrase(database, term)) is not None]
            phrases += [f'meaning : "{group}"' for group in groups]
            if not phrases:
                return []
            rows = database.execute(_SELECT_RANKED, (" OR ".join(phrases),))
            return _take_usable((self._entries[row].name for (row,) in rows), limit, is_usable)

    def search_pattern(self, pattern: str, limit: int, is_usable: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return the names of the tools in whose name, description or arguments the pattern matches, in index order.

        For `^` and `$`, each of these texts is a separate line.
        """
        if len(pattern) > PATTERN_LIMIT:
            raise SearchError(f"the pattern is longer than {PATTERN_LIMIT} characters", "invalid_tool_input")
        self.build()
        return _take_usable(self._pattern_matches(pattern.encode(errors="replace")), limit, is_usable)

    def _pattern_matches(self, pattern: bytes) -> Iterator[str]:
        """Yield the names of the tools whose text matches the pattern."""
        tool_pattern, block_pattern = _compile_pattern(pattern), None
        if _UNJOINABLE_PATTERN.search(pattern) is None:
            block_pattern = _compile_pattern(
                _ESCAPE_SEQUENCE.sub(lambda escape: _LINE_ANCHORS.get(escape[0], escape[0]), pattern)
            )
        started_at = time.thread_time()
        for block_index, joined_block in enumerate(self._joined_blocks):
            if time.thread_time() - started_at > _MAX_PATTERN_SECONDS:
                raise SearchError("the pattern takes too long: use a simpler one", "execution_time_exceeded")
            if block_pattern is not None and block_pattern.search(joined_block) is None:
                continue
            for index, text in enumerate(self._blocks[block_index]):
                if tool_pattern.search(text) is not None:
                    yield self._entries[block_index * _BLOCK_SIZE + index].name


def _match_phrase(database: sqlite3.Connection, word: str) -> str | None:
    """Return the FTS5 phrase for a word, as a prefix if no tool has the word itself; None if nothing matches."""
    for phrase in (f'"{word}"', f'"{word}"*'):
        if database.execute(_SELECT_MATCH, (phrase,)).fetchone() is not None:
            return phrase
    return None


def _compile_pattern(pattern: bytes) -> Any:
    """Compile a regular expression with RE2, in multi-line mode."""
    import re2  # noqa: PLC0415 - only pattern searches need it

    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    options.never_capture = True
    try:
        re2.compile(pattern, options)  # first without the prefix, so that errors quote the pattern as written
        return re2.compile(b"(?m)" + pattern, options)
    except re2.error as error:
        raise SearchError(f"invalid pattern: {_error_text(error)}", "invalid_tool_input") from None


def _take_usable(names: Iterator[str], limit: int, is_usable: Callable[[str], bool]) -> list[str]:
    """Return the first `limit` names that `is_usable` accepts."""
    return list(itertools.islice(filter(is_usable, names), limit))


def _error_text(error: Exception) -> str:
    """Return the message of an RE2 error, which may be bytes."""
    message = error.args[0] if error.args else ""
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)


def _index_row(number: int, entry: IndexedTool) -> tuple[int, str, str, str, str]:
    """Build a row: number, name, description, arguments and synonym groups, each as words."""
    name, description = split_words(entry.name), split_words(entry.description[:_MAX_TEXT_LENGTH])
    arguments = [word for text in _argument_texts(entry.parameters) for word in split_words(text)]
    groups = synonym_terms(name) + synonym_terms(description)
    return number, " ".join(name), " ".join(description), " ".join(arguments), " ".join(dict.fromkeys(groups))


def _searchable_text(entry: IndexedTool) -> bytes:
    """Return the text that patterns match: name, description and argument texts, one per line."""
    text = "\n".join([entry.name, entry.description[:_MAX_TEXT_LENGTH], *_argument_texts(entry.parameters)])
    return text.encode(errors="replace")


def _argument_texts(parameters: Mapping[str, Any] | None) -> list[str]:
    """Return the names and descriptions of arguments, up to a depth and a count, without following references."""
    texts: list[str] = []
    queue: list[tuple[Any, int]] = [(parameters, 0)]
    while queue and len(texts) < _MAX_ARGUMENT_TEXTS:
        schema, depth = queue.pop(0)
        if not isinstance(schema, Mapping) or depth > _MAX_SCHEMA_DEPTH:
            continue
        properties = schema.get("properties")
        for name, property_schema in properties.items() if isinstance(properties, Mapping) else ():
            texts.append(str(name))
            if isinstance(property_schema, Mapping):
                if isinstance(description := property_schema.get("description"), str):
                    texts.append(description[:_MAX_TEXT_LENGTH])
                queue.append((property_schema, depth + 1))
        if isinstance(items := schema.get("items"), Mapping):
            queue.append((items, depth + 1))
    return [text[:_MAX_TEXT_LENGTH] for text in texts[:_MAX_ARGUMENT_TEXTS]]
