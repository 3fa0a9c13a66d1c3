"""`make test-comply`: run llm-comply on every upstream, print failures, and write the page."""

import sys
from pathlib import Path

from tests.compliance.contradictions import FACTS
from tests.compliance.execution import run_suites
from tests.compliance.page import PAGE, page


def main(command: Path) -> int:
    seen = list(run_suites(command))
    missing = FACTS.keys() - {(one.format, one.upstream, one.test) for one in seen}
    wrong = [f"{test} on {upstream}: there is no such test" for _, upstream, test in missing]
    for one in seen:
        named = (one.format, one.upstream, one.test) in FACTS
        if one.status == "passed" and named:
            wrong.append(f"{one.test} on {one.upstream}: passes, and is named as one that can't")
        elif one.status != "passed" and not named:
            wrong.append(f"{one.test} on {one.upstream}: {one.status}: {'; '.join(one.errors)}")
    made = page(seen)
    PAGE.write_text(made, encoding="utf-8")
    sys.stdout.write("\n".join([made, *wrong, ""]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
