"""`make bench-search`: rank of the right tool, search time and tokens saved.

Exits 1 if a figure misses its limit.
"""

import statistics
import sys
import time

import msgspec

from benchmarks.search.catalog import catalog
from toolwire.runtime.search.index import ToolIndex

FIRST, RIGHT, MILLISECONDS = 5, 0.95, 5.0
_CHARACTERS_OF_A_TOKEN = 4
_IN_NO_TOOL = (
    "(?i)^nothing.*payments",
    "zebra$",
    "(?i)(get|list|find).*(zebra|giraffe)",
    r"\w+\s\w+\s\w+q{3}",
    r"\Azebra",
    "(?s)invoice.*zebra",
)


def main() -> int:
    entries, questions = catalog()
    started = time.process_time()
    index = ToolIndex(entries)
    index.build()
    built = (time.process_time() - started) * 1000
    ranks, times = list[int | None](), list[float]()
    for question in questions:
        started = time.process_time()
        results = index.search_words(question.text, FIRST)
        times.append((time.process_time() - started) * 1000)
        ranks.append(results.index(question.tool) if question.tool in results else None)
    index.search_pattern("once", FIRST)  # which loads the library
    patterns = [_elapsed(index, pattern) for pattern in _IN_NO_TOOL]
    share = sum(rank is not None for rank in ranks) / len(ranks)
    slowest = statistics.quantiles(times, n=100)[98]
    first = sum(rank == 0 for rank in ranks) / len(ranks)
    print(f"{len(entries):,} tools, indexed in {built:.0f} ms; {len(questions):,} questions, one per tool; CPU time")
    print(f"right tool among the first {FIRST}: {share:.1%} (limit {RIGHT:.0%}), ranked first: {first:.1%}")
    print(f"search: median {statistics.median(times):.2f} ms, 99 of 100 within {slowest:.2f} ms (limit {MILLISECONDS})")
    print(f"a pattern that no tool matches: {max(patterns):.2f} ms, the slowest of {len(patterns)}")
    everything = sum(len(msgspec.json.encode(entry)) for entry in entries)
    five = everything * FIRST // len(entries)
    all_tokens, found_tokens = everything // _CHARACTERS_OF_A_TOKEN, five // _CHARACTERS_OF_A_TOKEN
    print(f"all tools declared take about {all_tokens:,} tokens per turn (4 characters each);")
    print(f"the {FIRST} tools found by a search take {found_tokens:,}: {1 - five / everything:.1%} less")
    return 0 if share >= RIGHT and max(slowest, *patterns) < MILLISECONDS else 1


def _elapsed(index: ToolIndex, pattern: str) -> float:
    started = time.process_time()
    if index.search_pattern(pattern, FIRST):
        raise SystemExit(f"pattern {pattern} matches a tool")
    return (time.process_time() - started) * 1000


if __name__ == "__main__":
    sys.exit(main())
