"""Every body in every other protocol: accepted by the official SDK's types and by our own rules, with true losses."""

import json
from collections import Counter
from typing import Any

import pytest

import toolwire as tw
from tests import sdk
from tests.laws import material
from tests.laws.leaves import resolve

LIMIT_REFUSED = 0.01


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_requests_are_accepted(source: str, target: str) -> None:
    bodies = material.requests(source)
    wrong: dict[str, str] = {}
    for name, body in bodies.items():
        if (encoded := _translated(body, source, target, "request")) is not None:
            findings = [f for f in tw.check(encoded.value, target) if f.level == "error"]
            reason = sdk.accept_request(target, encoded.value) or (str(findings[0]) if findings else None)
            if reason is not None and not _excused(body, source):
                wrong[name] = reason
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_responses_are_accepted(source: str, target: str) -> None:
    wrong: dict[str, str] = {}
    for name, body in material.responses(source).items():
        encoded = _translated(body, source, target, "response")
        if encoded is not None and (reason := sdk.accept_response(target, encoded.value)) is not None:
            wrong[name] = reason
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_errors_are_accepted(source: str, target: str) -> None:
    for name, body in material.errors(source).items():
        encoded = tw.translate(body, source, target, "error")
        assert sdk.accept_error(target, encoded.value) is None, name


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_a_response_says_the_same(source: str, target: str) -> None:
    """Text, calls, arguments and what ended it are the same to the readers of both protocols."""
    wrong = {}
    for name, body in material.responses(source).items():
        encoded = _translated(body, source, target, "response")
        if encoded is not None:
            before, after = sdk.summary(source, body), sdk.summary(target, encoded.value)
            if (why := _unlike(before, after, encoded.losses)) is not None:
                wrong[name] = why
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_a_stream_folds_to_the_same_in_the_other_sdk(source: str, target: str) -> None:
    wrong = {}
    for name, wire in material.streams(source).items():
        stream = tw.translate_stream([wire], source, target)
        translated = b"".join(stream)
        try:
            before = sdk.fold_stream(source, wire, tolerant=True)
        except Exception:  # noqa: BLE001 - a recording that its own SDK refuses has nothing to compare with
            continue
        try:
            after = sdk.fold_stream(target, translated, tolerant=True)
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises is the finding
            if stream.error is None:
                wrong[name] = f"{type(error).__name__}: {error}"
            continue
        if (why := _unlike(before, after, stream.losses)) is not None:
            wrong[name] = why
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_few_bodies_are_refused(source: str, target: str) -> None:
    bodies = material.requests(source)
    refused = [name for name, body in bodies.items() if _translated(body, source, target, "request") is None]
    recorded = [name for name in refused if "#" in name]
    assert len(recorded) <= max(1, LIMIT_REFUSED * len(bodies)), recorded


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_loss_names_what_is_there_and_did_not_arrive(source: str, target: str, kind: Any) -> None:
    bodies = material.requests(source) if kind == "request" else material.responses(source)
    wrong = []
    for name, body in bodies.items():
        if (encoded := _translated(body, source, target, kind)) is None:
            continue
        text = encoded.to_bytes().decode()
        counts = Counter(value for value in _strings(body))
        for loss in encoded.losses:
            if loss.kind == "invented":
                continue
            try:
                value = resolve(body, loss.path)
            except KeyError:
                wrong.append(f"{name}: {loss.path} is not in the body")
                continue
            if not loss.path or isinstance(value, list):
                wrong.append(f"{name}: {loss.path or 'the root'} is not exact")
            if loss.kind == "dropped" and isinstance(value, str) and len(value) > 20 and counts[value] == 1:
                if json.dumps(value, ensure_ascii=False)[1:-1] in text:
                    wrong.append(f"{name}: {loss.path} did arrive")
    assert wrong == []


def _translated(body: Any, source: str, target: str, kind: Any) -> tw.Encoded | None:
    """None if the body is refused for something that may not be dropped."""
    try:
        return tw.translate(body, source, target, kind)
    except tw.LossRefused:
        return None


def _excused(body: Any, source: str) -> bool:
    """A body that its own provider would refuse has no legal translation."""
    return any(finding.level == "error" for finding in tw.check(body, source))


def _unlike(before: Any, after: Any, losses: list[tw.Loss]) -> str | None:
    for field in ("text", "calls", "refusal"):
        if before[field] != after[field] and not (field == "refusal" and losses):
            return f"{field}: {str(before[field])[:120]!r} became {str(after[field])[:120]!r}"
    return None


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _strings(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _strings(inner)]
    return [value] if isinstance(value, str) else []
