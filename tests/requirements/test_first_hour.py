"""Tests of the list of stumbles: they are numbered, and each has tests that pytest collects."""

from tests.requirements.first_hour import STUMBLES
from tests.support.collection import is_collected


def test_stumbles_are_numbered() -> None:
    assert [stumble.id for stumble in STUMBLES] == [f"FH-{number}" for number in range(1, len(STUMBLES) + 1)]
    assert all(stumble.text.endswith(".") for stumble in STUMBLES)


def test_every_stumble_has_collected_tests() -> None:
    for stumble in STUMBLES:
        assert stumble.tests, stumble.id
        assert [node_id for node_id in stumble.tests if not is_collected(node_id)] == [], stumble.id
