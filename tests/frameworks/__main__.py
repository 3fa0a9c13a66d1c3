"""`make test-frameworks`: run every framework through the gateway, print failures, and write the page."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.frameworks.execution import FRAMEWORKS, Outcome, run_frameworks
from tests.support.sdk.clients import SDK_CLIENTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "frameworks.md"
HEAD = """\
<!-- Made by `make test-frameworks`, never by hand. -->
# Agent frameworks

Each framework does a task of three steps through the gateway: two calls at once, one with awkward arguments, and an
answer that only tool results contain. Behind the gateway is the strict [simulated model](../guides/simulate.md).
✓ says that the framework made exactly these calls and told the answer, whole and streamed, and that the upstream
refused nothing and got back each of its calls with its result. `make test-frameworks` runs it and writes this page.
The SDKs' own helpers are tested likewise, as part of `make test`.

The Vercel AI SDK's Google provider takes a model's name with a slash for a path: write `models/anthropic/NAME`.

"""


def page(seen: Sequence[Outcome]) -> str:
    lines = [
        _row("framework", "speaks", *(f"on {name}" for name in SDK_CLIENTS)),
        _row(*["---"] * (len(SDK_CLIENTS) + 2)),
    ]
    for framework in FRAMEWORKS:
        for protocol in framework.protocols:
            mine = [one for one in seen if (one.framework, one.protocol) == (framework.name, protocol)]
            lines.append(_row(framework.name, protocol, *(_cell(mine, upstream) for upstream in SDK_CLIENTS)))
    return HEAD + "".join(lines)


def _cell(seen: Sequence[Outcome], upstream: str) -> str:
    here = [one.wrong == "" for one in seen if one.upstream == upstream]
    return "" if not here else "✓" if all(here) else "✗"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def main(environment: Path) -> int:
    seen = list(run_frameworks(environment))
    wrong = [
        f"{one.framework}, {one.protocol}{', streamed' if one.stream else ''}, on {one.upstream}: {one.wrong}"
        for one in seen
        if one.wrong
    ]
    made = page(seen)
    PAGE.write_text(made, encoding="utf-8")
    sys.stdout.write("\n".join([made, *wrong, ""]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
