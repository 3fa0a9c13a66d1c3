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
    begun = time.process_time()
    index = ToolIndex(entries)
    index.build()
    built = (time.process_time() - begun) * 1000
    places, times = list[int | None](), list[float]()
    for question in questions:
        begun = time.process_time()
        found = index.search_words(question.text, FIRST)
        times.append((time.process_time() - begun) * 1000)
        places.append(found.index(question.tool) if question.tool in found else None)
    index.search_pattern("once", FIRST)  # which loads the library
    patterns = [_taken(index, pattern) for pattern in _IN_NO_TOOL]
    share = sum(place is not None for place in places) / len(places)
    slowest = statistics.quantiles(times, n=100)[98]
    first = sum(place == 0 for place in places) / len(places)
    print(
        f"{len(entries):,} tools, indexed in {built:.0f} ms; {len(questions):,} questions, one for each; processor time"
    )
    print(f"right tool among the first {FIRST}: {share:.1%} (limit {RIGHT:.0%}), first of all: {first:.1%}")
    print(
        f"a search: median {statistics.median(times):.2f} ms, 99 of 100 within {slowest:.2f} ms (limit {MILLISECONDS})"
    )
    print(f"a pattern that no tool matches: {max(patterns):.2f} ms, the slowest of {len(patterns)}")
    everything = sum(len(msgspec.json.encode(entry)) for entry in entries)
    five = everything * FIRST // len(entries)
    whole, part = everything // _CHARACTERS_OF_A_TOKEN, five // _CHARACTERS_OF_A_TOKEN
    print(f"declared at once, all tools take about {whole:,} tokens of every turn (4 characters each);")
    print(f"after a search the {FIRST} that it found take {part:,}: {1 - five / everything:.1%} less")
    return 0 if share >= RIGHT and max(slowest, *patterns) < MILLISECONDS else 1


def _taken(index: ToolIndex, pattern: str) -> float:
    begun = time.process_time()
    if index.search_pattern(pattern, FIRST):
        raise SystemExit(f"{pattern} is in a tool")
    return (time.process_time() - begun) * 1000


if __name__ == "__main__":
    sys.exit(main())
