"""`make test-comply`: run llm-comply on every upstream, print failures, and write the page."""

import sys
from pathlib import Path

from tests.compliance.contradictions import FACTS
from tests.compliance.execution import run_suites
from tests.compliance.page import PAGE, page


def main(command: Path) -> int:
    outcomes = list(run_suites(command))
    missing = FACTS.keys() - {(outcome.format, outcome.upstream, outcome.test) for outcome in outcomes}
    failures = [f"{test} on {upstream}: unknown test" for _, upstream, test in missing]
    for outcome in outcomes:
        contradicted = (outcome.format, outcome.upstream, outcome.test) in FACTS
        if outcome.status == "passed" and contradicted:
            failures.append(f"{outcome.test} on {outcome.upstream}: passes, but is listed as one that cannot")
        elif outcome.status != "passed" and not contradicted:
            failures.append(f"{outcome.test} on {outcome.upstream}: {outcome.status}: {'; '.join(outcome.errors)}")
    text = page(outcomes)
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write("\n".join([text, *failures, ""]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
