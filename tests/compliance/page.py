"""The documentation page with the results of the last run."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.compliance.contradictions import FACTS
from tests.compliance.execution import FORMATS, MODELS, VERSION, Outcome

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compliance.md"
_HEAD = f"""\
<!-- Made by `make test-comply`, do not edit. -->
# Third-party compliance tests

Results of [llm-comply](https://pypi.org/project/llm-comply/) {VERSION} for the gateway. This third-party
suite sends requests in one protocol and validates the responses by its published schema, if there is one, and by rules of its own. The
upstream is the strict [simulated model](../guides/simulate.md), in each protocol in turn. `make test-comply` runs the
suite and writes this page.

Passed tests of all tests; none is skipped:

"""
_WARNED = """
## Warnings

Warnings in tests that passed. The suite permits a server without `/v1/responses/compact`, such as the gateway, and one
that accepts requests that are invalid in the client's protocol but valid upstream:

"""
_NAMED = """
## Tests that cannot pass

Each contradicts documented behavior of the provider. `make test-comply` fails if one of these passes, or any other
fails.

"""


def page(outcomes: Sequence[Outcome]) -> str:
    return _HEAD + _table(outcomes) + _WARNED + _warnings(outcomes) + _NAMED + _facts()


def _table(outcomes: Sequence[Outcome]) -> str:
    lines = [_row("client protocol", *(f"on {name}" for name in MODELS)), _row(*["---"] * (len(MODELS) + 1))]
    for suite in FORMATS:
        cells = []
        for upstream in MODELS:
            passed = [
                outcome.status == "passed"
                for outcome in outcomes
                if (outcome.format, outcome.upstream) == (suite.name, upstream)
            ]
            cells.append(f"{sum(passed)}/{len(passed)}")
        lines.append(_row(suite.name, *cells))
    return "".join(lines)


def _warnings(outcomes: Sequence[Outcome]) -> str:
    """Return each warning once, with the upstreams it concerns and without quoted ids."""
    found: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for outcome in outcomes:
        for warning in outcome.warnings if outcome.status == "passed" else ():
            text = re.sub(r"'[^']*\.\.\.'", "", warning).replace("  ", " ")
            tests, upstreams = found.setdefault((outcome.format, text), ({}, {}))
            tests[f"`{outcome.test}`"] = upstreams[outcome.upstream] = None
    lines = [_row("test", "on", "warning"), _row(*["---"] * 3)]
    for (_, text), (tests, upstreams) in found.items():
        on = "all" if len(upstreams) == len(MODELS) else ", ".join(upstreams)
        lines.append(_row(", ".join(tests), on, text))
    return "".join(lines)


def _facts() -> str:
    lines = [_row("test", "on", "fact"), _row(*["---"] * 3)]
    lines += [_row(f"`{test}`", upstream, fact) for (_, upstream, test), fact in FACTS.items()]
    return "".join(lines)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"
