"""Ranking by words: BM25 over the names, descriptions and arguments of tools.

1. The scores of each word are computed when the index is built; a query adds up those of its words.
2. A word that no tool has counts as a prefix of others.
3. Rare words come first. If a query is long, the most common words of the catalog are left out, which bounds its time.
"""

import math
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from toolwire.runtime.search.words import STOP_WORDS, split_words, stem

_MAX_QUERY_WORDS = 64
_MAX_SCORES_ADDED = 50_000
_SHORTEST_PREFIX = 3
_MAX_WORDS_OF_A_PREFIX = 8


class Weights(Struct, frozen=True):
    """The weights of the fields of a tool, and BM25's two parameters; fitted by `python -m benchmarks.search --fit`."""

    name: float = 3.0
    description: float = 1.0
    arguments: float = 0.5
    saturation: float = 1.2
    length: float = 0.75


class _Postings(Struct):
    """The tools that have a word, and what the word adds to the score of each."""

    tools: "array[int]"
    scores: "array[float]"


class WordRanking:
    """Scores tools by the words of a query."""

    def __init__(self, texts: Iterable[tuple[str, str, Sequence[str]]], weights: Weights) -> None:
        """Index the tools, each with its name, description and texts of arguments."""
        field_weights = (weights.name, weights.description, weights.arguments)
        frequencies = [
            _weigh_words(
                (split_words(name), _useful_words(description), _useful_words(" ".join(arguments))), field_weights
            )
            for name, description, arguments in texts
        ]
        self.size = len(frequencies)
        lengths = [sum(words.values()) for words in frequencies]
        mean_length = sum(lengths) / self.size if any(lengths) else 1.0
        counts = Counter(word for words in frequencies for word in words)
        rarity = {word: math.log(1 + (self.size - count + 0.5) / (count + 0.5)) for word, count in counts.items()}
        postings: defaultdict[str, _Postings] = defaultdict(lambda: _Postings(array("I"), array("f")))
        for tool, (words, length) in enumerate(zip(frequencies, lengths, strict=True)):
            damping = weights.saturation * (1 - weights.length + weights.length * length / mean_length)
            for word, frequency in words.items():
                found = postings[word]
                found.tools.append(tool)
                found.scores.append(rarity[word] * frequency * (weights.saturation + 1) / (frequency + damping))
        self._postings = dict(postings)
        self._vocabulary = sorted(self._postings)

    def scores(self, query: str) -> list[float]:
        """Return the score of each tool; 0 if it has none of the words."""
        scores, added = [0.0] * self.size, 0
        for postings in self._find_postings(query):
            added += len(postings.tools)
            if added > _MAX_SCORES_ADDED and added > len(postings.tools):
                break
            for tool, score in zip(postings.tools, postings.scores, strict=True):
                scores[tool] += score
        return scores

    def _find_postings(self, query: str) -> list[_Postings]:
        """Return the postings of the words of a query, those of rare words first."""
        found: dict[str, _Postings] = {}
        for word in dict.fromkeys(_useful_words(query) or split_words(query)):
            for term in self._terms(word):
                found[term] = self._postings[term]
        return sorted(found.values(), key=lambda postings: len(postings.tools))[:_MAX_QUERY_WORDS]

    def _terms(self, word: str) -> list[str]:
        """Return the indexed stem of a word, or some that begin with the word if no tool has it."""
        if (term := stem(word)) in self._postings:
            return [term]
        if len(word) < _SHORTEST_PREFIX or word in STOP_WORDS:
            return []
        start = bisect_left(self._vocabulary, word)
        return [term for term in self._vocabulary[start : start + _MAX_WORDS_OF_A_PREFIX] if term.startswith(word)]


def _useful_words(text: str) -> list[str]:
    """Return the words of a text that are not stop words."""
    return [word for word in split_words(text) if word not in STOP_WORDS]


def _weigh_words(fields: Iterable[list[str]], weights: Iterable[float]) -> dict[str, float]:
    """Return how often the fields have each stem, weighted."""
    frequencies: defaultdict[str, float] = defaultdict(float)
    for words, weight in zip(fields, weights, strict=True):
        for word in words:
            frequencies[stem(word)] += weight
    return frequencies
