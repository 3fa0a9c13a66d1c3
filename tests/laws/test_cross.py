"""Every body in every other protocol: accepted by the official SDK's types and by our own rules, with true losses."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests import sdk
from tests.laws import material
from tests.laws.leaves import resolve

LIMIT_REFUSED = 0.01

# Streams of imitating servers that the official SDK itself folds wrongly, so that there is nothing to compare with.
# It joins a name that is sent twice.
MISREAD_BY_SDK = {"compatible_repeated_call_id", "llm/test_tools_streaming/test_tools_streaming_variant_a#0"}


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_requests_are_accepted(source: str, target: str) -> None:
    bodies = material.requests(source)
    wrong: dict[str, str] = {}
    for name, body in bodies.items():
        if (encoded := _translated(body, source, target, "request")) is not None:
            findings = [f for f in tw.check(encoded.value, target) if f.level == "error"]
            reason = sdk.accept_request(target, _official(encoded.value)) or (str(findings[0]) if findings else None)
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
        if encoded is not None and not body.get("error") and sdk.accept_response(source, body) is None:
            before, after = sdk.summary(source, body), sdk.summary(target, encoded.value)
            if (why := _unlike(before, after, encoded.losses)) is not None:
                wrong[name] = why
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_a_stream_folds_to_the_same_in_the_other_sdk(source: str, target: str) -> None:
    wrong = {}
    for name, wire in material.streams(source).items():
        if name in MISREAD_BY_SDK:
            continue
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


def test_few_recorded_bodies_are_refused() -> None:
    refused = []
    crossed = 0
    for source, target in material.PAIRS:
        recorded = {name: body for name, body in material.requests(source).items() if "#" in name}
        crossed += len(recorded)
        refused += [name for name, body in recorded.items() if _translated(body, source, target, "request") is None]
    assert len(refused) <= LIMIT_REFUSED * crossed, refused


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_loss_names_what_is_there_and_did_not_arrive(source: str, target: str, kind: Any) -> None:
    bodies = material.requests(source) if kind == "request" else material.responses(source)
    wrong = []
    for name, body in bodies.items():
        if (encoded := _translated(body, source, target, kind)) is None:
            continue
        text = encoded.to_bytes().decode()
        said = json.dumps(body, ensure_ascii=False)
        for loss in encoded.losses:
            if loss.kind == "invented":
                continue
            try:
                value = resolve(body, loss.path)
            except KeyError:
                wrong.append(f"{name}: {loss.path} is not in the body")
                continue
            if not loss.path or (isinstance(value, list) and value):
                wrong.append(f"{name}: {loss.path or 'the root'} is not exact")
            literal = json.dumps(value, ensure_ascii=False)[1:-1]
            unique = isinstance(value, str) and len(value) > 20 and said.count(literal) == 1
            if loss.kind == "dropped" and unique and literal in text:
                wrong.append(f"{name}: {loss.path} did arrive")
    assert wrong == []


@pytest.mark.parametrize(("source", "target"), material.PAIRS)
def test_what_is_invented_is_where_the_loss_says(source: str, target: str) -> None:
    wrong = []
    for name, body in material.requests(source).items():
        if (encoded := _translated(body, source, target, "request")) is not None:
            invented = [loss for loss in encoded.losses if loss.kind == "invented"]
            wrong += [f"{name}: {loss}" for loss in invented if not _is_there(encoded.value, loss.target)]
    assert wrong == []


def _is_there(body: Any, path: str | None) -> bool:
    try:
        return bool(path) and resolve(body, str(path)) is not None
    except KeyError:
        return False


def _translated(body: Any, source: str, target: str, kind: Any) -> tw.Encoded | None:
    """None if the body is refused for something that may not be dropped."""
    try:
        return tw.translate(body, source, target, kind, **material.addressed(source, kind))
    except tw.LossRefused:
        return None


def _official(body: Any) -> Any:
    """Without the one field that models of other vendors demand and the official types lack."""
    for message in body.get("messages", []):
        message.pop("reasoning_content", None)
    return body


def _excused(body: Any, source: str) -> bool:
    """A body that its own provider would refuse has no legal translation."""
    return any(finding.level == "error" for finding in tw.check(body, source))


def _unlike(before: sdk.Summary, after: sdk.Summary, losses: list[tw.Loss]) -> str | None:
    """What differs to a reader, other than a refusal that became text, and that is reported."""
    said = before["text"] + (before["refusal"] or "") if losses else before["text"]
    heard = after["text"] + (after["refusal"] or "") if losses else after["text"]
    if said != heard:
        return f"text: {said[:120]!r} became {heard[:120]!r}"
    for call in before["calls"]:
        if call["name"] and not any(_same(call, other) for other in after["calls"]):
            return f"call: {call} is not among {after['calls']}"
    return None


def _same(call: sdk.Call, other: sdk.Call) -> bool:
    """Arguments that are no JSON object can only be told in other words; a namespace may stand before a name."""
    if not other["name"].endswith(call["name"]):
        return False
    return call["arguments"] == other["arguments"] or not isinstance(call["arguments"], dict) or not call["arguments"]
