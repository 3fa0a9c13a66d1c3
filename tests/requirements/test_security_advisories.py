"""The security table is complete, and what it names exists."""

import re

from tests.requirements.security_advisories import ADVISORIES, FURTHER_RISKS, PENDING
from tests.support.collection import is_collected
from tests.support.paths import SHARED, skip_without

TABLE = SHARED / "acceptance" / "security.md"


@skip_without("acceptance/security.md")
def test_every_row_of_the_table_is_listed() -> None:
    assert len(ADVISORIES) == 27
    text = TABLE.read_text()
    rows = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)[1:]
    assert len(rows) == len(ADVISORIES)
    for row, begins in zip(rows, ADVISORIES, strict=True):
        assert row.startswith(begins)
    below = " ".join(text.rpartition("|\n")[2].split())
    assert [phrase for phrase in FURTHER_RISKS if phrase not in below] == []


def test_every_row_has_tests_or_the_part_that_brings_them() -> None:
    for row, places in (ADVISORIES | FURTHER_RISKS).items():
        assert places, row
        for place in places:
            assert place in PENDING or is_collected(place), f"{row}: {place} is no test"
