"""Tests of the list of security advisories: each entry names tests that pytest collects."""

from tests.requirements.security_advisories import ADVISORIES, FURTHER_RISKS
from tests.support.collection import is_collected


def test_every_advisory_has_tests_that_pytest_collects() -> None:
    advisories = [*ADVISORIES, *FURTHER_RISKS]
    assert len({advisory.id for advisory in advisories}) == len(advisories) > 30
    for advisory in advisories:
        assert advisory.text.endswith(".")
        assert advisory.tests, f"{advisory.id} has no test"
        for node_id in advisory.tests:
            assert is_collected(node_id), f"{advisory.id}: pytest does not collect {node_id}"
