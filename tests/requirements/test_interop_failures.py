"""Tests of the list of interop failures: it names every acceptance test, and every failure has one."""

import re
from itertools import groupby

from tests.requirements.interop_failures import FAILURES
from tests.support.collection import collected_tests_in, is_collected
from tests.support.paths import ROOT


def test_failures_are_numbered_within_their_family() -> None:
    for family, failures in groupby(FAILURES, key=lambda failure: failure.section):
        ids = [failure.id for failure in failures]
        assert ids == [f"{family}-{number}" for number in range(1, len(ids) + 1)]
    assert len({failure.id for failure in FAILURES}) == len(FAILURES)
    assert all(failure.text.endswith(".") for failure in FAILURES)


def test_every_failure_has_a_collected_test_with_its_id() -> None:
    for failure in FAILURES:
        (node_id,) = failure.tests
        assert is_collected(node_id), f"{failure.id}: pytest does not collect {node_id}"
        prefix = f"test_{failure.id.lower().replace('-', '_')}_"
        assert node_id.split("::")[1].startswith(prefix), f"{node_id} does not begin with {prefix}"


def test_every_acceptance_test_is_listed() -> None:
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / "acceptance").glob("test_*.py"))]
    acceptance_tests = {
        f"{match[1].upper()}-{match[2]}": f"{file}::{name}"
        for file in files
        for name in collected_tests_in(file)
        if (match := re.match(r"test_([a-z]{2})_(\d+)_", name))
    }
    assert acceptance_tests == {failure.id: failure.tests[0] for failure in FAILURES}
