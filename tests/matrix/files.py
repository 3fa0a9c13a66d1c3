"""The support matrix as it is kept: data with a line for each cell, and a page with a table for each source."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = ROOT / "src" / "toolwire" / "cli" / "support_matrix.json"
PAGE = ROOT / "docs" / "reference" / "support-matrix.md"

MARKS = {"mapped": "✓", "approximated": "≈", "varies": "◐", "reported": "·", "refused": "✗"}
HEAD = """\
<!-- Made by `make matrix` from the golden files, never by hand. -->
# The support matrix

What becomes of each feature of each protocol in each other one. It is made from the golden files of the tests, so it
says what happens, not what is meant to happen. `toolwire protocols --from P --to P` tells the same of two protocols,
with the reasons.

| | |
|---|---|
| ✓ | mapped: translated exactly |
| ≈ | approximated: translated to the closest equivalent, and reported |
| ◐ | varies: some forms are translated, others are reported or refused |
| · | reported: left out, and reported |
| ✗ | refused: may not be left out, so the request is refused |
| | not supported by the protocol |

## How much arrives

Of the features that the protocol on the left has words for: how many arrive, mapped or approximated. To itself,
everything does.
"""


def as_data(matrix: dict[str, Any]) -> str:
    """JSON, with a line for each cell, so that a change can be read."""
    return _dump(matrix, 0) + "\n"


def _dump(value: Any, depth: int) -> str:
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    pad = " " * depth
    inner = ",\n".join(f"{pad} {json.dumps(key)}: {_dump(one, depth + 1)}" for key, one in value.items())
    return f"{{\n{inner}\n{pad}}}"


def outcome(cell: Any) -> str:
    return str(cell if isinstance(cell, str) else cell[0])


def as_page(matrix: dict[str, Any]) -> str:
    protocols, pairs = matrix["protocols"], matrix["pairs"]
    lines = [
        HEAD,
        _line("from / to", *(f"`{name}`" for name in protocols)),
        _line("---", *["---:"] * len(protocols)),
    ]
    for source in protocols:
        counts = [_arriving(pairs[source].get(target)) for target in protocols]
        lines.append(_line(f"`{source}`", *counts))
    for source, title in protocols.items():
        others = [target for target in protocols if target != source]
        lines += ["", f"## From {title}: `{source}`"]
        for heading, features in matrix["features"].items():
            known = {name: said for name, said in features.items() if any(name in pairs[source][to] for to in others)}
            if known:
                lines += ["", _line(f"**{heading}**", *(f"`{target}`" for target in others))]
                lines.append(_line("---", *[":-:"] * len(others)))
            for name, said in known.items():
                marks = (MARKS.get(outcome(pairs[source][target].get(name, "")), " ") for target in others)
                lines.append(_line(f"{said} `{name}`", *marks))
    return "\n".join(lines) + "\n"


def _arriving(cells: dict[str, Any] | None) -> str:
    if cells is None:
        return "="
    counts = Counter(outcome(cell) for cell in cells.values())
    return f"{counts['mapped'] + counts['approximated']} of {len(cells)}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
