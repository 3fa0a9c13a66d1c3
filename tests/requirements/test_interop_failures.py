"""The acceptance list is complete, and what it names exists."""

import re
from collections import Counter
from pathlib import Path

from tests.requirements.interop_failures import COUNT, FAILURES, PENDING
from tests.support.collection import collected_tests_in, is_collected
from tests.support.paths import ROOT, SHARED, skip_without

LIST = SHARED / "acceptance" / "interop_failures.md"
FAMILIES = {
    "ID": 18,
    "OR": 16,
    "PA": 11,
    "ST": 32,
    "EM": 9,
    "AR": 13,
    "SC": 20,
    "TH": 20,
    "SR": 10,
    "US": 11,
    "IM": 7,
    "ER": 4,
    "TC": 10,
    "SY": 7,
    "SV": 16,
    "NA": 6,
    "CU": 5,
    "CT": 5,
    "EX": 12,
    "CA": 6,
    "WS": 9,
}


def test_every_failure_is_listed() -> None:
    assert len(FAILURES) == COUNT == sum(FAMILIES.values())
    assert Counter(failure.split("-")[0] for failure in FAILURES) == FAMILIES
    numbered = {f"{family}-{number}" for family, count in FAMILIES.items() for number in range(1, count + 1)}
    assert FAILURES.keys() == numbered


@skip_without("acceptance/interop_failures.md")
def test_the_failures_are_those_of_the_list() -> None:
    assert list(FAILURES) == re.findall(r"^- \*\*([A-Z]+-\d+)\*\*", LIST.read_text(), re.MULTILINE)


def test_every_failure_has_a_test_that_names_it_or_the_part_that_brings_it() -> None:
    for failure, place in FAILURES.items():
        if place in PENDING:
            continue
        assert is_collected(place), f"{failure}: {place} is no test"
        assert place.split("::")[1].startswith(f"test_{failure.lower().replace('-', '_')}_"), (
            f"{place} is not {failure}"
        )


def test_no_test_names_a_failure_that_the_list_gives_to_a_later_part() -> None:
    files = [str(path.relative_to(ROOT)) for path in sorted(Path(__file__).parents[1].glob("acceptance/test_*.py"))]
    found = {
        f"{match[1].upper()}-{match[2]}": f"{file}::{name}"
        for file in files
        for name in collected_tests_in(file)
        if (match := re.match(r"test_([a-z]{2})_(\d+)_", name))
    }
    assert found == {failure: place for failure, place in FAILURES.items() if place not in PENDING}
