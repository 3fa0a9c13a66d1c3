"""`make bench-search`: quality of tool search on public data, beside plain BM25, and its time among 5,000 tools.

Exits 1 if plain BM25 finds more in the queries that the weights were not fitted on, or a search takes too long.
`python -m benchmarks.search --fit` shows the figures of other weights on the other half of the queries.
"""

import itertools
import os
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from benchmarks.search.bm25 import PlainBM25
from benchmarks.search.catalog import catalog
from benchmarks.search.datasets import Dataset, Query, load_datasets
from toolwire.runtime.search.index import IndexedTool, ToolIndex
from toolwire.runtime.search.ranking import Weights

FIRST, MILLISECONDS, SIZE = 5, 5.0, 5_000
_CHARACTERS_OF_A_TOKEN = 4
_GRID = ((2.0, 3.0), (1.0, 2.0), (0.5, 1.0), (1.2, 2.0), (0.5, 0.75))
_IN_NO_TOOL = (
    "(?i)^nothing.*payments",
    "zebra$",
    "(?i)(get|list|find).*(zebra|giraffe)",
    r"\w+\s\w+\s\w+q{3}",
    r"\Azebra",
    "(?s)invoice.*zebra",
)


def main() -> int:
    datasets = load_datasets()
    if "--fit" in sys.argv:
        _show_grid(datasets)
        return 0
    behind = _compare(datasets)
    slowest = _measure_time(datasets)
    return 1 if behind or slowest >= MILLISECONDS else 0


def half(queries: Sequence[Query], *, held_out: bool) -> list[Query]:
    """Return the half of the queries that weights are fitted on, or the other, drawn by a checksum."""
    return [query for query in queries if (zlib.crc32(query.text.encode()) & 1) == held_out]


def recall(queries: Sequence[Query], search: Callable[[str, int], list[str]]) -> tuple[float, float]:
    """Return the mean share of a query's tools among the first five, and how often the first is one of them."""
    shares, first = list[float](), 0
    for query in queries:
        found = search(query.text, FIRST)
        shares.append(len(query.tools & set(found)) / len(query.tools))
        first += bool(found) and found[0] in query.tools
    return statistics.fmean(shares), first / len(queries)


def _compare(datasets: Sequence[Dataset]) -> bool:
    """Print the figures of each set; return True if plain BM25 is ahead on a half that is not fitted on."""
    print(f"recall@{FIRST} (in brackets: share of queries whose first result is right)")
    print(f"{'':16}{'tools':>6} {'queries':>8}  {'plain BM25':>15} {'toolwire':>15}")
    behind = False
    for dataset in datasets:
        plain, index = PlainBM25(dataset.tools), ToolIndex(dataset.tools)
        for held_out in (False, True):
            queries = half(dataset.queries, held_out=held_out)
            theirs, ours = recall(queries, plain.search), recall(queries, index.search_words)
            behind |= held_out and ours[0] < theirs[0]
            title = "  held out" if held_out else dataset.name
            size = "" if held_out else f"{len(dataset.tools):,}"
            figures = " ".join(f"{found:8.3f} ({first:.2f})" for found, first in (theirs, ours))
            print(f"{title:16}{size:>6} {len(queries):>8,}  {figures}")
    return behind


def _show_grid(datasets: Sequence[Dataset]) -> None:
    """Print the mean recall of each combination of weights on the half that weights are fitted on, best first."""
    figures = []
    for name, description, arguments, saturation, length in itertools.product(*_GRID):
        weights = Weights(name=name, description=description, arguments=arguments, saturation=saturation, length=length)
        found = [
            recall(half(data.queries, held_out=False), ToolIndex(data.tools, weights).search_words)[0]
            for data in datasets
        ]
        figures.append((statistics.fmean(found), found, weights))
    for mean, found, weights in sorted(figures, key=lambda row: -row[0]):
        print(f"{mean:.4f}", *(f"{one:.4f}" for one in found), weights)


def _measure_time(datasets: Sequence[Dataset]) -> float:
    """Print the CPU time of searches in 5,000 tools, and what a search saves; return the slowest of 100 queries."""
    generated, questions = catalog()
    entries = [tool for data in datasets for tool in data.tools]
    entries = (entries + generated)[:SIZE]
    texts = [query.text for data in datasets for query in data.queries] or [question.text for question in questions]
    started = time.thread_time()
    index = ToolIndex(entries)
    index.build()
    built = (time.thread_time() - started) * 1000
    times = [_elapsed(partial(index.search_words, text, FIRST)) for text in texts]
    slowest = statistics.quantiles(times, n=100)[98]
    index.search_pattern("once", FIRST)  # which loads the library
    patterns = [_elapsed(partial(_search_nothing, index, pattern)) for pattern in _IN_NO_TOOL]
    print(
        f"\n{len(entries):,} tools, indexed in {built:.0f} ms; CPU time, load of the machine {os.getloadavg()[0]:.0f}"
    )
    print(
        f"{len(times):,} searches: median {statistics.median(times):.2f} ms, 99 of 100 within {slowest:.2f} ms", end=" "
    )
    print(f"(limit {MILLISECONDS:g})")
    print(f"a pattern that no tool matches: {max(patterns):.2f} ms, the slowest of {len(patterns)}")
    _print_tokens(entries)
    return max(slowest, *patterns)


def _print_tokens(entries: Sequence[IndexedTool]) -> None:
    everything = sum(len(msgspec.json.encode(entry)) for entry in entries) // _CHARACTERS_OF_A_TOKEN
    print(f"all tools declared take about {everything:,} tokens per turn ({_CHARACTERS_OF_A_TOKEN} characters each);")
    print(f"the {FIRST} that a search finds take {everything * FIRST // len(entries):,}")


def _search_nothing(index: ToolIndex, pattern: str) -> None:
    if index.search_pattern(pattern, FIRST):
        raise SystemExit(f"pattern {pattern} matches a tool")


def _elapsed(search: Callable[[], object]) -> float:
    started = time.thread_time()
    search()
    return (time.thread_time() - started) * 1000


if __name__ == "__main__":
    sys.exit(main())
