"""Words: how names, descriptions and questions are cut, and which of them mean the same.

The index: tools by their words, ranked, or by a pattern.

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
"""What tools and people call by several names; the first stands for all. After a bar: what takes several words."""

_PARSED_GROUPS = [group.split("|") for group in _SYNONYM_GROUPS]
SYNONYMS = {word: words.split()[0] for words, *_ in _PARSED_GROUPS for word in words.split()}
_PHRASE_SYNONYMS = {tuple(said.split()): words.split()[0] for words, *phrases in _PARSED_GROUPS for said in phrases}
_MAX_PHRASE_WORDS = max(map(len, _PHRASE_SYNONYMS))

_STOP_WORD_LIST = (
    "a an and any are as at be by can could do for from have how i in into is it its like me my need of on one or our "
    "out please some so that the their them then there these they this those to up us use using want was we what "
    "when where which who will with would you your"
)
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())


def split_words(text: str) -> list[str]:
    """The words of a name or a text, small: `getUserHTTPStatus`, `get-user.http_status` and the same in prose alike."""
    return [word.lower() for word in _WORD.findall(_CAMEL_BOUNDARY.sub(" ", text))]


def query_terms(query: str, limit: int) -> tuple[list[str], list[str]]:
    """The words that a question is about, each once, and what they mean. What several words say together is only
    meant: apart they say something else."""
    left, meant = list[str](), list[str]()
    words, place = split_words(query), 0
    while place < len(words):
        length = next(
            (n for n in range(_MAX_PHRASE_WORDS, 1, -1) if tuple(words[place : place + n]) in _PHRASE_SYNONYMS), 1
        )
        if length > 1:
            meant.append(_PHRASE_SYNONYMS[tuple(words[place : place + length])])
        else:
            left.append(words[place])
        place += length
    telling = [word for word in left if word not in _STOP_WORDS]
    if not telling and not meant:
        telling = left
    return list(dict.fromkeys(telling))[:limit], list(dict.fromkeys(meant + synonym_terms(telling)))[:limit]


def synonym_terms(words: list[str]) -> list[str]:
    """What the words stand for, where several do. A plural or a third person is read without its ending."""
    found = (
        SYNONYMS.get(word) or SYNONYMS.get(word.removesuffix("s")) or _synonym_without_suffix(word) for word in words
    )
    return list(dict.fromkeys(one for one in found if one is not None))


def _synonym_without_suffix(word: str) -> str | None:
    """`copies` and `publishes`."""
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
"""Of a processor, for one pattern: others wait meanwhile."""

# Among other tools, the beginning and the end of a tool's text are those of a line.
_LINE_ANCHORS = {b"\\A": b"^", b"\\z": b"$"}
_ESCAPE_SEQUENCE = re.compile(rb"\\.", re.DOTALL)
# Where a line has no beginning, or an escape means itself, each tool is looked at alone.
_UNJOINABLE_PATTERN = re.compile(rb"\(\?[a-zA-Z]*-[a-zA-Z]*m|\\Q")

_CREATE_TABLE = (
    "CREATE VIRTUAL TABLE tools USING fts5("
    "name, description, arguments, meaning, tokenize='porter unicode61 remove_diacritics 2', prefix='3 4')"
)
# Of name, description, arguments and meaning.
_SET_WEIGHTS = "INSERT INTO tools(tools, rank) VALUES ('rank', 'bm25(6.0, 3.0, 1.0, 4.0)')"
_SELECT_RANKED = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY rank"
_SELECT_MATCH = "SELECT 1 FROM tools WHERE tools MATCH ? LIMIT 1"


class SearchError(Exception):
    """The question can't be asked. `kind` is the word for it that Anthropic has."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class IndexedTool(Struct, frozen=True):
    """What is known of a tool to whoever looks for it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None


class ToolIndex:
    """Made when it is first asked, or by `make`: for thousands of tools that takes a while. Any thread may ask."""

    def __init__(self, entries: Iterable[IndexedTool]) -> None:
        self._entries = tuple(entries)
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._blocks: list[list[bytes]] = []
        self._joined_blocks: list[bytes] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_built(self) -> bool:
        return self._database is not None

    def build(self) -> sqlite3.Connection:
        with self._lock:
            if self._database is not None:
                return self._database
            rows = sqlite3.connect(":memory:", check_same_thread=False)
            rows.execute(_CREATE_TABLE)
            rows.execute(_SET_WEIGHTS)
            told = (_index_row(number, entry) for number, entry in enumerate(self._entries))
            rows.executemany("INSERT INTO tools(rowid, name, description, arguments, meaning) VALUES (?,?,?,?,?)", told)
            texts = [_searchable_text(entry) for entry in self._entries]
            self._blocks = [texts[start : start + _BLOCK_SIZE] for start in range(0, len(texts), _BLOCK_SIZE)]
            self._joined_blocks = [b"\n".join(some) for some in self._blocks]
            self._database = rows
            return rows

    def search_words(self, query: str, limit: int, is_usable: Callable[[str], bool] = lambda _: True) -> list[str]:
        """The names of the tools that fit best, best first."""
        if len(query) > QUERY_LIMIT:
            raise SearchError(f"a query has at most {QUERY_LIMIT} characters", "invalid_tool_input")
        wanted, meant = query_terms(query, _MAX_QUERY_TERMS)
        rows = self.build()
        with self._lock:
            phrases = [phrase for word in wanted if (phrase := _match_phrase(rows, word)) is not None]
            phrases += [f'meaning : "{word}"' for word in meant]
            if not phrases:
                return []
            found = (self._entries[row].name for (row,) in rows.execute(_SELECT_RANKED, (" OR ".join(phrases),)))
            return _take_usable(found, limit, is_usable)

    def search_pattern(self, pattern: str, limit: int, is_usable: Callable[[str], bool] = lambda _: True) -> list[str]:
        """The names of the tools in whose name, description or arguments the pattern is found, in their own order.
        Each of these is a line of its own, for `^` and `$`."""
        if len(pattern) > PATTERN_LIMIT:
            raise SearchError(f"a pattern has at most {PATTERN_LIMIT} characters", "invalid_tool_input")
        self.build()
        return _take_usable(self._pattern_matches(pattern.encode(errors="replace")), limit, is_usable)

    def _pattern_matches(self, pattern: bytes) -> Iterator[str]:
        expression, somewhere = _compile_pattern(pattern), None
        if _UNJOINABLE_PATTERN.search(pattern) is None:
            somewhere = _compile_pattern(
                _ESCAPE_SEQUENCE.sub(lambda found: _LINE_ANCHORS.get(found[0], found[0]), pattern)
            )
        begun = time.thread_time()
        for number, together in enumerate(self._joined_blocks):
            if time.thread_time() - begun > _MAX_PATTERN_SECONDS:
                raise SearchError("the pattern takes too long: use a simpler one", "execution_time_exceeded")
            if somewhere is not None and somewhere.search(together) is None:
                continue
            for place, text in enumerate(self._blocks[number]):
                if expression.search(text) is not None:
                    yield self._entries[number * _BLOCK_SIZE + place].name


def _match_phrase(database: sqlite3.Connection, word: str) -> str | None:
    for phrase in (f'"{word}"', f'"{word}"*'):
        if database.execute(_SELECT_MATCH, (phrase,)).fetchone() is not None:
            return phrase
    return None


def _compile_pattern(pattern: bytes) -> Any:
    try:
        import re2  # noqa: PLC0415 - ranking does without it
    except ImportError:
        raise SearchError("patterns can't be searched here: install toolwire[runtime]", "unavailable") from None
    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    options.never_capture = True
    try:
        re2.compile(pattern, options)  # as it was written, so that what is said of it is, too
        return re2.compile(b"(?m)" + pattern, options)
    except re2.error as error:
        raise SearchError(f"the pattern can't be read: {_error_text(error)}", "invalid_tool_input") from None


def _take_usable(names: Iterator[str], limit: int, is_usable: Callable[[str], bool]) -> list[str]:
    return list(itertools.islice(filter(is_usable, names), limit))


def _error_text(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _index_row(number: int, entry: IndexedTool) -> tuple[int, str, str, str, str]:
    name, about = split_words(entry.name), split_words(entry.description[:_MAX_TEXT_LENGTH])
    arguments = [word for text in _argument_texts(entry.parameters) for word in split_words(text)]
    meant = synonym_terms(name) + synonym_terms(about)
    return number, " ".join(name), " ".join(about), " ".join(arguments), " ".join(dict.fromkeys(meant))


def _searchable_text(entry: IndexedTool) -> bytes:
    text = "\n".join([entry.name, entry.description[:_MAX_TEXT_LENGTH], *_argument_texts(entry.parameters)])
    return text.encode(errors="replace")


def _argument_texts(parameters: Mapping[str, Any] | None) -> list[str]:
    """The names and descriptions of the arguments, as deep and as many as anybody would look for. No reference is
    followed."""
    found: list[str] = []
    waiting: list[tuple[Any, int]] = [(parameters, 0)]
    while waiting and len(found) < _MAX_ARGUMENT_TEXTS:
        schema, depth = waiting.pop(0)
        if not isinstance(schema, Mapping) or depth > _MAX_SCHEMA_DEPTH:
            continue
        properties = schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, Mapping) else ():
            found.append(str(name))
            if isinstance(inner, Mapping):
                if isinstance(about := inner.get("description"), str):
                    found.append(about[:_MAX_TEXT_LENGTH])
                waiting.append((inner, depth + 1))
        if isinstance(items := schema.get("items"), Mapping):
            waiting.append((items, depth + 1))
    return [text[:_MAX_TEXT_LENGTH] for text in found[:_MAX_ARGUMENT_TEXTS]]
