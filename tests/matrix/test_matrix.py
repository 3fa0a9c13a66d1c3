"""The support matrix says what the golden files show, and nothing in them escapes it."""

import json
from itertools import permutations
from typing import Any

import pytest

from tests.matrix.derivation import Body, Instance, Loss, cells, judge, matrix, verdicts
from tests.matrix.features import GROUPS
from tests.matrix.files import DATA, PAGE, as_data, as_page
from toolwire.protocols import PROTOCOLS


def test_the_stored_matrix_matches_the_golden_files() -> None:
    matrices = matrix()
    assert as_data(matrices) == DATA.read_text(encoding="utf-8"), "run `make matrix`"
    assert as_page(matrices) == PAGE.read_text(encoding="utf-8"), "run `make matrix`"
    assert json.loads(as_data(matrices)) == matrices


@pytest.mark.parametrize(("source", "target"), list(permutations(PROTOCOLS, 2)))
def test_every_loss_belongs_to_a_feature(source: str, target: str) -> None:
    assert [f"{body.name}: {loss}" for body, _, stray in verdicts(source, target) for loss in stray] == []


def test_every_feature_occurs_in_a_fixture() -> None:
    seen = {feature for source, target in permutations(PROTOCOLS, 2) for feature in cells(source, target)}
    assert seen == {feature.name for _, group in GROUPS.values() for feature in group}


TEXT, MARK, FIELD = "/messages/0/content/0", "/messages/0/content/0/cache_control", "/messages/0/x"
BODY = Body(
    "requests",
    "made up",
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
    judged, stray = judge(BODY, [Loss(kind, path, "why") for kind, path in losses], refused=refused)
    told = {name: verdict.outcome + ("" if verdict.direct else ", around it") for name, verdict in judged}
    assert told == expected
    assert stray == []


def test_a_loss_without_a_feature_is_detected() -> None:
    loss = Loss("dropped", "/elsewhere", "why")
    assert judge(BODY, [loss], refused=False)[1] == [loss]
