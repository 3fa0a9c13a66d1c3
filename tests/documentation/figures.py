"""Figures in the documentation, computed here.

`python -m tests.documentation.figures` rewrites them.
"""

from pathlib import Path

import toolwire as tw
from tests.support.samples import corpus, recorded_bodies
from tests.support.samples.fixture_coverage import COVERAGE
from tests.support.samples.fixture_files import KINDS, PROTOCOLS, fixtures

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "evidence.md"
MARKERS = ("<!-- {name}: written by python -m tests.documentation.figures -->\n", "<!-- end of {name} -->\n")


def fixture_counts() -> dict[str, dict[str, int]]:
    """Count the fixtures of each protocol and kind, and the rows of the wire facts that they cover."""
    return {
        protocol: {kind: len(fixtures(protocol, kind)) for kind in KINDS} | {"rows covered": len(COVERAGE[protocol])}
        for protocol in PROTOCOLS
    }


def markdown_table(rows: dict[str, dict[str, int]]) -> str:
    heads = list(next(iter(rows.values())))
    lines = [["", *(head.replace("_", " ") for head in heads)], ["---"] * (len(heads) + 1)]
    lines += [[name, *(str(row[head]) for head in heads)] for name, row in rows.items()]
    lines.append(["**all**", *(str(sum(row[head] for row in rows.values())) for head in heads)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


LONE_HOSTED_TOOL = "refused: only a hosted tool"


def refusals() -> dict[str, dict[str, int]]:
    """Count tried and rejected translations of recorded requests, by protocol."""
    rows = {
        protocol: {"recorded requests": 0, "translations": 0, "refused": 0, LONE_HOSTED_TOOL: 0}
        for protocol in PROTOCOLS
    }
    for source, target in recorded_bodies.PAIRS:
        recorded = [body for name, body in recorded_bodies.requests(source).items() if "#" in name]
        row = rows[source]
        row["recorded requests"] = len(recorded)
        row["translations"] += len(recorded)
        for body in recorded:
            try:
                tw.translate(body, source, target, **recorded_bodies.address_options(source, "request"))
            except tw.LossyTranslationError as refused:
                row[LONE_HOSTED_TOOL if _is_lone(refused) else "refused"] += 1
    return rows


def _is_lone(refused: tw.LossyTranslationError) -> bool:
    """Return whether the request declares only hosted tools, none of which the target has."""
    return "is the only tool" in refused.losses[0].reason


FIGURES = {"fixtures": fixture_counts}
RECORDED = {"refusals": refusals}
"""Figures that need the corpus."""


def published_table(name: str) -> str:
    """Return the table of this name from the page."""
    before, after = (mark.format(name=name) for mark in MARKERS)
    return PAGE.read_text().split(before)[1].split(after)[0]


def main() -> None:
    for name, count in (FIGURES | (RECORDED if corpus.is_present() else {})).items():
        text = PAGE.read_text()
        PAGE.write_text(text.replace(published_table(name), markdown_table(count())))


if __name__ == "__main__":
    main()
