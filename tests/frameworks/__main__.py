"""`make test-frameworks`: run every framework through the gateway, print failures, and write the page."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.frameworks.execution import FRAMEWORKS, Outcome, run_frameworks
from tests.support.sdk.clients import SDK_CLIENTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "frameworks.md"
HEAD = """\
<!-- Made by `make test-frameworks`, do not edit. -->
# Agent frameworks

Each framework performs a task of three steps through the gateway: two parallel calls, one call with difficult
arguments, and an answer that only tool results contain. The upstream is the strict
[simulated model](../guides/simulate.md). ✓ means that the framework made exactly these calls and returned the answer,
streamed and not streamed, and that the upstream rejected nothing and got each of its calls back with its result.
`make test-frameworks` runs the test and writes this page. `make test` tests the tool loops of the SDKs in the same way.

The Google provider of the Vercel AI SDK treats a model name with a slash as a path: write `models/anthropic/NAME`.

"""


def page(outcomes: Sequence[Outcome]) -> str:
    lines = [
        _row("framework", "protocol", *(f"on {name}" for name in SDK_CLIENTS)),
        _row(*["---"] * (len(SDK_CLIENTS) + 2)),
    ]
    for framework in FRAMEWORKS:
        for protocol in framework.protocols:
            row = [
                outcome for outcome in outcomes if (outcome.framework, outcome.protocol) == (framework.name, protocol)
            ]
            lines.append(_row(framework.name, protocol, *(_cell(row, upstream) for upstream in SDK_CLIENTS)))
    return HEAD + "".join(lines)


def _cell(outcomes: Sequence[Outcome], upstream: str) -> str:
    passed = [outcome.wrong == "" for outcome in outcomes if outcome.upstream == upstream]
    return "" if not passed else "✓" if all(passed) else "✗"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def main(environment: Path) -> int:
    outcomes = list(run_frameworks(environment))
    failures = [
        f"{outcome.framework}, {outcome.protocol}{', streamed' if outcome.stream else ''}, on {outcome.upstream}: "
        f"{outcome.wrong}"
        for outcome in outcomes
        if outcome.wrong
    ]
    text = page(outcomes)
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write("\n".join([text, *failures, ""]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
