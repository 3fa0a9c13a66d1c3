"""The figures in the documentation: counted here, never typed. `python -m tests.figures` writes them anew."""

from pathlib import Path

import toolwire as tw
from tests import corpus
from tests.fixture_coverage import COVERS
from tests.fixture_files import KINDS, PROTOCOLS, fixtures
from tests.laws import material

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "evidence.md"
MARKS = ("<!-- {name}: written by python -m tests.figures -->\n", "<!-- end of {name} -->\n")


def fixture_counts() -> dict[str, dict[str, int]]:
    """How many fixtures each protocol has of each kind, and how many rows of the wire facts they show."""
    return {
        protocol: {kind: len(fixtures(protocol, kind)) for kind in KINDS} | {"rows shown": len(COVERS[protocol])}
        for protocol in PROTOCOLS
    }


def table(rows: dict[str, dict[str, int]]) -> str:
    heads = list(next(iter(rows.values())))
    lines = [["", *(head.replace("_", " ") for head in heads)], ["---"] * (len(heads) + 1)]
    lines += [[name, *(str(row[head]) for head in heads)] for name, row in rows.items()]
    lines.append(["**all**", *(str(sum(row[head] for row in rows.values())) for head in heads)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


LONE = "refused: a hosted tool and no other"


def refusals() -> dict[str, dict[str, int]]:
    """Of the recorded requests of each protocol: how many crossings to others were tried, and how many refused."""
    rows = {protocol: {"recorded requests": 0, "crossings": 0, "refused": 0, LONE: 0} for protocol in PROTOCOLS}
    for source, target in material.PAIRS:
        recorded = [body for name, body in material.requests(source).items() if "#" in name]
        row = rows[source]
        row["recorded requests"] = len(recorded)
        row["crossings"] += len(recorded)
        for body in recorded:
            try:
                tw.translate(body, source, target, **material.addressed(source, "request"))
            except tw.LossRefused as refused:
                row[LONE if _is_lone(refused) else "refused"] += 1
    return rows


def _is_lone(refused: tw.LossRefused) -> bool:
    """Nothing but a hosted tool was offered, and the target has none."""
    return "is the only tool" in refused.losses[0].why


FIGURES = {"fixtures": fixture_counts}
RECORDED = {"refusals": refusals}
"""Of the corpus, where it is present."""


def shown(name: str) -> str:
    """The table of this name as the page has it."""
    before, after = (mark.format(name=name) for mark in MARKS)
    return PAGE.read_text().split(before)[1].split(after)[0]


def main() -> None:
    for name, count in (FIGURES | (RECORDED if corpus.present() else {})).items():
        text = PAGE.read_text()
        PAGE.write_text(text.replace(shown(name), table(count())))


if __name__ == "__main__":
    main()
