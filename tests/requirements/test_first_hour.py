"""Tests of the list of stumbles: they are numbered, and each has tests that pytest collects."""

from tests.requirements.first_hour import STUMBLES
from tests.support.collection import is_collected


def test_stumbles_are_numbered() -> None:
    numbers = [int(stumble.id.removeprefix("FH-")) for stumble in STUMBLES]
    assert numbers == sorted(set(numbers))
    assert all(stumble.text.endswith(".") for stumble in STUMBLES)


def test_every_stumble_has_collected_tests() -> None:
    for stumble in STUMBLES:
        assert stumble.tests, stumble.id
        assert [node_id for node_id in stumble.tests if not is_collected(node_id)] == [], stumble.id
