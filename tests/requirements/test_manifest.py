"""Tests of the manifest: ids are consecutive, and every requirement names tests that pytest collects."""

from itertools import groupby

import pytest

from tests.requirements.manifest import REQUIREMENTS
from tests.support.assertions import non_empty
from tests.support.collection import is_collected

SECTIONS = {
    section: list(requirements)
    for section, requirements in groupby(REQUIREMENTS, key=lambda requirement: requirement.section)
}


def test_requirements_are_numbered_within_their_section() -> None:
    expected = [
        f"{section}-{number}"
        for section, requirements in SECTIONS.items()
        for number in range(1, len(requirements) + 1)
    ]
    assert [requirement.id for requirement in REQUIREMENTS] == expected
    assert len({requirement.text for requirement in REQUIREMENTS}) == len(REQUIREMENTS)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_requirement_has_tests_that_pytest_collects(section: str) -> None:
    for requirement in non_empty(SECTIONS[section]):
        assert requirement.text
        assert requirement.tests, f"{requirement.id} has no test"
        for node_id in requirement.tests:
            assert is_collected(node_id), f"{requirement.id}: pytest does not collect {node_id}"


def test_only_collected_functions_count_as_tests() -> None:
    assert is_collected("tests/requirements/test_manifest.py::test_only_collected_functions_count_as_tests")
    assert is_collected("tests/runtime/tools/browser/chromium/test_actions.py::test_wait_is_limited")
    assert is_collected("tests/gateway/console/chromium/test_attacks.py::test_browser_enforces_the_policy")
    assert not is_collected("tests/requirements/test_manifest.py::SECTIONS")
    assert not is_collected("tests/requirements/test_manifest.py::test_that_does_not_exist")
    assert not is_collected("tests/support/collection.py::is_collected")
    assert not is_collected("tests/no_such_file.py::test_a")
