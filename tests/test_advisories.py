"""The security table is complete, and what it names exists."""

import re

from tests.advisories import ADVISORIES, OWED, PARTS
from tests.manifest import SHARED, exists, needs

TABLE = SHARED / "acceptance" / "security.md"


@needs("acceptance/security.md")
def test_every_row_of_the_table_is_listed() -> None:
    assert len(ADVISORIES) == 27
    text = TABLE.read_text()
    rows = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)[1:]
    assert len(rows) == len(ADVISORIES)
    for row, begins in zip(rows, ADVISORIES, strict=True):
        assert row.startswith(begins)
    below = " ".join(text.rpartition("|\n")[2].split())
    assert [phrase for phrase in OWED if phrase not in below] == []


def test_every_row_has_tests_or_the_part_that_brings_them() -> None:
    for row, places in (ADVISORIES | OWED).items():
        assert places, row
        for place in places:
            assert place in PARTS or exists(place), f"{row}: {place} is no test"
