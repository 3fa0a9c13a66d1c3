"""Plain BM25 to compare with: rank-bm25's formula, stop words, four suffixes, names twice and arguments once."""

import math
from collections import Counter, defaultdict

from toolwire.runtime.search.index import IndexedTool, argument_texts
from toolwire.runtime.search.words import STOP_WORDS, split_words

_K1, _B, _EPSILON = 1.5, 0.75, 0.25


def _words(text: str) -> list[str]:
    return [_stem(word) for word in split_words(text) if word not in STOP_WORDS]


def _stem(word: str) -> str:
    return next((word.removesuffix(end) for end in ("ing", "ed", "es", "s") if word[3:].endswith(end)), word)


class PlainBM25:
    """BM25Okapi of rank-bm25, with the scores of each word added up beforehand."""

    def __init__(self, tools: list[IndexedTool]) -> None:
        texts = [f"{t.name} {t.name} {t.description} {' '.join(argument_texts(t.parameters))}" for t in tools]
        self._names, documents = [tool.name for tool in tools], [_words(text) for text in texts]
        mean = sum(map(len, documents)) / len(documents)
        counts = Counter(word for document in documents for word in set(document))
        rarity = {
            word: math.log(len(documents) - count + 0.5) - math.log(count + 0.5) for word, count in counts.items()
        }
        least = _EPSILON * sum(rarity.values()) / len(rarity)
        self._scores: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, document in enumerate(documents):
            for word, count in Counter(document).items():
                factor = count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * len(document) / mean))
                self._scores[word].append((number, (rarity[word] if rarity[word] >= 0 else least) * factor))

    def search(self, query: str, limit: int) -> list[str]:
        """Return the names of the best tools."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in _words(query):
            for number, score in self._scores.get(word, ()):
                scores[number] += score
        return [self._names[number] for number in sorted(scores, key=lambda number: (-scores[number], number))[:limit]]
