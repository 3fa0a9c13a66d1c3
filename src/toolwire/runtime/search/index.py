"""The full-text index behind tool search: ranked by words, or filtered by a pattern.

1. A query matches tools with any of its words, ranked by BM25, or by meaning too if the caller has vectors.
2. A pattern is first searched in blocks of joined tools, then in each tool of a matching block.
3. Tools that the caller may not use are skipped before the limit applies, so that results reveal nothing about them.
"""

import heapq
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from toolwire.runtime.search.ranking import Weights, WordRanking

QUERY_LIMIT = 10_000
PATTERN_LIMIT = 200
_MAX_SCHEMA_DEPTH = 6
_MAX_TEXT_LENGTH = 4_000
_MAX_ARGUMENT_TEXTS = 400
_BLOCK_SIZE = 64
_MAX_PATTERN_SECONDS = 0.05
"""CPU time limit for one pattern search."""
_WEIGHTS = Weights()

# In a block of joined tools, the start and end of a tool's text are those of a line.
_LINE_ANCHORS = {b"\\A": b"^", b"\\z": b"$"}
_ESCAPE_SEQUENCE = re.compile(rb"\\.", re.DOTALL)
# Patterns that turn off multi-line mode or quote escapes (`\Q`) are matched against each tool alone.
_UNJOINABLE_PATTERN = re.compile(rb"\(\?[a-zA-Z]*-[a-zA-Z]*m|\\Q")


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

    def __init__(self, entries: Iterable[IndexedTool], weights: Weights = _WEIGHTS) -> None:
        self.entries = tuple(entries)
        self._weights = weights
        self._lock = threading.Lock()
        self._ranking: WordRanking | None = None
        self._blocks: list[list[bytes]] = []
        self._joined_blocks: list[bytes] = []

    def __len__(self) -> int:
        """Return the number of tools in the index."""
        return len(self.entries)

    @property
    def is_built(self) -> bool:
        """True once the index is built."""
        return self._ranking is not None

    def build(self) -> WordRanking:
        """Build the index unless it exists, which takes a while for thousands of tools; return its ranking."""
        with self._lock:
            if self._ranking is None:
                texts = [_texts(entry) for entry in self.entries]
                lines = ["\n".join([name, about, *more]).encode(errors="replace") for name, about, more in texts]
                self._blocks = [lines[start : start + _BLOCK_SIZE] for start in range(0, len(lines), _BLOCK_SIZE)]
                self._joined_blocks = [b"\n".join(block) for block in self._blocks]
                self._ranking = WordRanking(texts, self._weights)
            return self._ranking

    def search_words(
        self,
        query: str,
        limit: int,
        is_usable: Callable[[str], bool] = lambda _: True,
        similarities: Sequence[float] | None = None,
    ) -> list[str]:
        """Return the names of at most `limit` tools that match the query and that `is_usable` accepts, best first.

        `similarities` says how similar in meaning each tool is to the query, from -1 to 1; it counts as much as words.
        """
        if len(query) > QUERY_LIMIT:
            raise SearchError(f"the query is longer than {QUERY_LIMIT} characters", "invalid_tool_input")
        scores = self.build().scores(query)
        if similarities is not None:
            best = max(scores, default=0.0) or 1.0
            scores = [score / best + similar for score, similar in zip(scores, similarities, strict=True)]
        ranked = [(-score, number) for number, score in enumerate(scores) if score > 0]
        heapq.heapify(ranked)
        names = (self.entries[heapq.heappop(ranked)[1]].name for _ in range(len(ranked)))
        return _take_usable(names, limit, is_usable)

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
                    yield self.entries[block_index * _BLOCK_SIZE + index].name


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


def _texts(entry: IndexedTool) -> tuple[str, str, list[str]]:
    """Return the texts that a search covers: name, description, and names and descriptions of arguments."""
    return entry.name, entry.description[:_MAX_TEXT_LENGTH], argument_texts(entry.parameters)


def argument_texts(parameters: Mapping[str, Any] | None) -> list[str]:
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
