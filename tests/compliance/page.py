"""The documentation page with the results of the last run."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.compliance.contradictions import FACTS
from tests.compliance.execution import FORMATS, MODELS, VERSION, Outcome

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compliance.md"
_HEAD = f"""\
<!-- Made by `make test-comply`, never by hand. -->
# Outside compliance

What [llm-comply](https://pypi.org/project/llm-comply/) {VERSION} says of the gateway. It is a suite by others, which
asks in a protocol and judges the answers by its published schema, where there is one, and by rules of its own.
Behind the gateway is the strict [simulated model](../guides/simulate.md), in each protocol in turn.
`make test-comply` runs it and writes this page.

Tests that passed, of all that there are; none is skipped:

"""
_WARNED = """
## Warnings

What the suite advises, in tests that passed. It lets a server do without `/v1/responses/compact`, as the gateway does,
and without the refusal of a request that its protocol does not allow but the upstream's does:

"""
_NAMED = """
## Tests that can't pass

Each contradicts a fact of the wire. `make test-comply` fails if one of these passes after all, or any other does not.

"""


def page(outcomes: Sequence[Outcome]) -> str:
    return _HEAD + _table(outcomes) + _WARNED + _warnings(outcomes) + _NAMED + _facts()


def _table(outcomes: Sequence[Outcome]) -> str:
    lines = [_row("asked in", *(f"on {name}" for name in MODELS)), _row(*["---"] * (len(MODELS) + 1))]
    for asked in FORMATS:
        cells = []
        for upstream in MODELS:
            here = [one.status == "passed" for one in outcomes if (one.format, one.upstream) == (asked.name, upstream)]
            cells.append(f"{sum(here)}/{len(here)}")
        lines.append(_row(asked.name, *cells))
    return "".join(lines)


def _warnings(outcomes: Sequence[Outcome]) -> str:
    """Return each warning once, with the upstreams it concerns and without quoted ids."""
    found: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for one in outcomes:
        for warning in one.warnings if one.status == "passed" else ():
            words = re.sub(r"'[^']*\.\.\.'", "", warning).replace("  ", " ")
            tests, upstreams = found.setdefault((one.format, words), ({}, {}))
            tests[f"`{one.test}`"] = upstreams[one.upstream] = None
    lines = [_row("test", "on", "warning"), _row(*["---"] * 3)]
    for (_, words), (tests, upstreams) in found.items():
        on = "all" if len(upstreams) == len(MODELS) else ", ".join(upstreams)
        lines.append(_row(", ".join(tests), on, words))
    return "".join(lines)


def _facts() -> str:
    lines = [_row("test", "on", "fact"), _row(*["---"] * 3)]
    lines += [_row(f"`{test}`", upstream, fact) for (_, upstream, test), fact in FACTS.items()]
    return "".join(lines)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"
