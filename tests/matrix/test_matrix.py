"""The stored support matrix matches the golden files, and every loss in them belongs to a feature."""

import json
from itertools import permutations
from typing import Any

import pytest

from tests.matrix.derivation import Body, Instance, Loss, cells, judge, matrix, verdicts
from tests.matrix.features import GROUPS
from tests.matrix.files import DATA, PAGE, as_data, as_page
from toolwire.protocols import PROTOCOLS


def test_the_stored_matrix_matches_the_golden_files() -> None:
    derived = matrix()
    assert as_data(derived) == DATA.read_text(encoding="utf-8"), "run `make matrix`"
    assert as_page(derived) == PAGE.read_text(encoding="utf-8"), "run `make matrix`"
    assert json.loads(as_data(derived)) == derived


@pytest.mark.parametrize(("source", "target"), list(permutations(PROTOCOLS, 2)))
def test_every_loss_belongs_to_a_feature(source: str, target: str) -> None:
    assert [f"{body.name}: {loss}" for body, _, unassigned in verdicts(source, target) for loss in unassigned] == []


def test_every_feature_occurs_in_a_fixture() -> None:
    occurring = {feature for source, target in permutations(PROTOCOLS, 2) for feature in cells(source, target)}
    assert occurring == {feature.name for _, group in GROUPS.values() for feature in group}


TEXT, MARK, FIELD = "/messages/0/content/0", "/messages/0/content/0/cache_control", "/messages/0/x"
BODY = Body(
    "requests",
    "example",
    (
        Instance("text", frozenset({TEXT, TEXT + "/text"})),
        Instance("cache-marks", frozenset({MARK})),
        Instance("own-fields", frozenset({FIELD})),
    ),
)


@pytest.mark.parametrize(
    ("losses", "refused", "expected"),
    [
        ([], False, {"text": "mapped", "cache-marks": "mapped", "own-fields": "mapped"}),
        ([("dropped", MARK)], False, {"text": "mapped", "cache-marks": "reported", "own-fields": "mapped"}),
        (
            [("approximated", MARK + "/ttl")],
            False,
            {"text": "mapped", "cache-marks": "approximated", "own-fields": "mapped"},
        ),
        (
            [("dropped", MARK + "/ttl")],
            False,
            {"text": "mapped", "cache-marks": "approximated", "own-fields": "mapped"},
        ),
        (
            [("dropped", TEXT)],
            False,
            {"text": "reported", "cache-marks": "reported, around it", "own-fields": "mapped"},
        ),
        ([("dropped", TEXT + "/text")], False, {"text": "reported", "cache-marks": "mapped", "own-fields": "mapped"}),
        ([("dropped", FIELD)], False, {"text": "mapped", "cache-marks": "mapped", "own-fields": "reported"}),
        ([("dropped", MARK)], True, {"cache-marks": "refused"}),
    ],
)
def test_a_loss_counts_for_the_most_specific_feature(losses: Any, refused: bool, expected: Any) -> None:
    judged, unassigned = judge(BODY, [Loss(kind, path, "reason") for kind, path in losses], refused=refused)
    outcomes = {name: verdict.outcome + ("" if verdict.direct else ", around it") for name, verdict in judged}
    assert outcomes == expected
    assert unassigned == []


def test_a_loss_without_a_feature_is_detected() -> None:
    loss = Loss("dropped", "/elsewhere", "reason")
    assert judge(BODY, [loss], refused=False)[1] == [loss]
