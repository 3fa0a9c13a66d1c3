"""Every body in every other protocol: valid for the types of the official SDK and for our checks, with true losses."""

import json
from functools import cache
from typing import Any

import pytest

import toolwire as tw
from tests.documentation import figures
from tests.support.assertions import non_empty
from tests.support.samples import corpus, recorded_bodies
from tests.support.samples.json_leaves import resolve
from tests.support.sdk import validation

LIMIT_REFUSED = 0.01

# Streams that their own SDK cannot fold, so that there is no reference to compare with.
NO_INDEX = "it numbers no calls, which the SDK's accumulator needs"
NO_REASON = "chunks without finish_reason, which the SDK's accumulator needs"
JOINED = "the SDK's accumulator joins a name that is sent twice"
UNFOLDABLE = {
    "openai-chat/compatible_no_index": NO_INDEX,
    "openai-chat/compatible_repeated_call_id": JOINED,
    "openai-chat/pai/models/test_snowflake/test_snowflake_model_streaming#0": NO_REASON,
    "openai-chat/pai/models/test_snowflake/test_snowflake_thinking_streaming#0": NO_REASON,
    "openrouter/null_index": NO_INDEX,
}
# Protocols with vendor-specific calls, such as shell commands and patches.
VENDOR_CALLS = ("openai-responses",)


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_translated_requests_are_valid(source: str, target: str) -> None:
    bodies = recorded_bodies.sample_for_target(recorded_bodies.requests(source), target)
    wrong: dict[str, str] = {}
    for name, body in bodies.items():
        if (encoded := _translate(body, source, target, "request")) is not None:
            findings = [f for f in tw.check(encoded.value, target) if f.level == "error"]
            reason = validation.accept_request(target, _official_fields(encoded.value)) or (
                str(findings[0]) if findings else None
            )
            if reason is not None and not _is_invalid_source(body, source):
                wrong[name] = reason
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_translated_responses_are_valid(source: str, target: str) -> None:
    wrong: dict[str, str] = {}
    for name, body in recorded_bodies.sample_for_target(recorded_bodies.responses(source), target).items():
        encoded = _translate(body, source, target, "response")
        if encoded is not None and (reason := validation.accept_response(target, encoded.value)) is not None:
            wrong[name] = reason
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_translated_errors_are_valid(source: str, target: str) -> None:
    for name, body in non_empty(recorded_bodies.errors(source).items()):
        encoded = tw.translate(body, source, target, "error")
        assert validation.accept_error(target, encoded.value) is None, name


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_a_translated_response_is_equivalent(source: str, target: str) -> None:
    """Text, calls, arguments and stop reason are the same in both protocols."""
    wrong = {}
    for name, body in recorded_bodies.sample_for_target(recorded_bodies.responses(source), target).items():
        encoded = _translate(body, source, target, "response")
        if encoded is not None and not body.get("error") and validation.accept_response(source, body) is None:
            before, after = validation.summary(source, body), validation.summary(target, encoded.value)
            if (reason := _difference(before, after, encoded.losses, vendor_calls=source in VENDOR_CALLS)) is not None:
                wrong[name] = reason
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_a_translated_stream_folds_to_the_same_response(source: str, target: str) -> None:
    wrong = {}
    for name, wire in recorded_bodies.sample_for_target(recorded_bodies.streams(source), target).items():
        stream = tw.translate_stream([wire], source, target)
        after = _fold(target, b"".join(stream))
        before = _fold_cached(source, wire)
        if stream.error is not None:
            ended = isinstance(after, str) or after["stop"] == "error"
            reason = None if ended else f"no error in the translated stream: {stream.error.message}"
        elif isinstance(after, str):
            reason = after
        elif f"{source}/{name}" in UNFOLDABLE:
            continue
        else:
            reason = (
                before
                if isinstance(before, str)
                else _difference(before, after, stream.losses, vendor_calls=source in VENDOR_CALLS)
            )
        if reason is not None:
            wrong[name] = reason
    assert wrong == {}


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
def test_only_streams_that_their_sdk_cannot_fold_are_skipped(protocol: str) -> None:
    skipped = {
        name.removeprefix(protocol + "/"): reason for name, reason in UNFOLDABLE.items() if name.startswith(protocol)
    }
    for name, wire in non_empty(recorded_bodies.streams(protocol).items()):
        if name in skipped:
            assert isinstance(_fold(protocol, wire), str) or skipped[name] is JOINED, name


@cache
def _fold_cached(protocol: str, wire: bytes) -> validation.Summary | str:
    """Fold a source stream once for all targets."""
    return _fold(protocol, wire)


def _fold(protocol: str, wire: bytes) -> validation.Summary | str:
    """Fold a stream with the SDK's accumulator, or return its error."""
    try:
        return validation.fold_stream(protocol, wire, tolerant=True)
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is its refusal
        return f"{type(error).__name__}: {error}"


@corpus.needs_recordings
def test_few_recorded_requests_are_refused() -> None:
    """Requests whose only tool does not exist in the target are counted separately."""
    counted = figures.refusals()
    refused, translations = (sum(row[name] for row in counted.values()) for name in ("refused", "translations"))
    assert translations
    assert refused <= LIMIT_REFUSED * translations
    assert figures.published_table("refusals") == figures.markdown_table(counted), (
        "python -m tests.documentation.figures writes them anew"
    )


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_loss_names_a_value_that_exists_and_did_not_arrive(source: str, target: str, kind: Any) -> None:
    bodies = recorded_bodies.requests(source) if kind == "request" else recorded_bodies.responses(source)
    wrong = []
    for name, body in recorded_bodies.sample_for_target(bodies, target).items():
        if (encoded := _translate(body, source, target, kind)) is None:
            continue
        text = encoded.to_bytes().decode()
        source_text = json.dumps(body, ensure_ascii=False)
        for loss in encoded.losses:
            if loss.kind == "added":
                continue
            try:
                value = resolve(body, loss.path)
            except KeyError:
                wrong.append(f"{name}: {loss.path} is not in the body")
                continue
            if not loss.path or (isinstance(value, list) and value):
                wrong.append(f"{name}: {loss.path or 'the root'} is not exact")
            literal = json.dumps(value, ensure_ascii=False)[1:-1]
            unique = isinstance(value, str) and len(value) > 20 and source_text.count(literal) == 1
            if loss.kind == "dropped" and unique and literal in text:
                wrong.append(f"{name}: {loss.path} did arrive")
    assert wrong == []


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_invented_values_stand_where_the_loss_reports_them(source: str, target: str) -> None:
    wrong = []
    for name, body in recorded_bodies.sample_for_target(recorded_bodies.requests(source), target).items():
        if (encoded := _translate(body, source, target, "request")) is not None:
            invented = [loss for loss in encoded.losses if loss.kind == "added"]
            wrong += [f"{name}: {loss}" for loss in invented if not _is_present(encoded.value, loss.target)]
    assert wrong == []


def _is_present(body: Any, path: str | None) -> bool:
    try:
        return bool(path) and resolve(body, str(path)) is not None
    except KeyError:
        return False


def _translate(body: Any, source: str, target: str, kind: Any) -> tw.Translation | None:
    """Translate a body, or return None if a constraint would be lost."""
    try:
        return tw.translate(body, source, target, kind, **recorded_bodies.address_options(source, kind))
    except tw.LossyTranslationError:
        return None


def _official_fields(body: Any) -> Any:
    """Remove `reasoning_content`, which other vendors require and the official types lack."""
    for message in body.get("messages", []):
        message.pop("reasoning_content", None)
    return body


def _is_invalid_source(body: Any, source: str) -> bool:
    """Whether the source provider would reject the body, so that no valid translation exists."""
    return any(finding.level == "error" for finding in tw.check(body, source))


def _difference(
    before: validation.Summary, after: validation.Summary, losses: list[tw.Loss], *, vendor_calls: bool = False
) -> str | None:
    """Describe the first difference in text or calls, other than a reported refusal that became text.

    With `vendor_calls`, calls of the vendor's own kinds may become functions that the source summary does not list.
    """
    source_text = before["text"] + (before["refusal"] or "") if losses else before["text"]
    target_text = after["text"] + (after["refusal"] or "") if losses else after["text"]
    if source_text != target_text:
        return f"text: {source_text[:120]!r} became {target_text[:120]!r}"
    source_calls = [call for call in before["calls"] if call["name"]]
    target_calls = [
        call
        for call in after["calls"]
        if any(_is_same_call(source_call, call) for source_call in source_calls) or not vendor_calls
    ]
    if len(source_calls) != len(target_calls) or not all(map(_is_same_call, source_calls, target_calls)):
        return f"calls: {source_calls} became {after['calls']}"
    return None


def _is_same_call(call: validation.Call, other: validation.Call) -> bool:
    """Whether two calls are the same, apart from a namespace before the name.

    Arguments that are not a JSON object may be reworded; Anthropic's accumulator drops truncated ones.
    """
    if not other["name"].endswith(call["name"]):
        return False
    expected, actual = call["arguments"], other["arguments"]
    if isinstance(expected, dict) and expected:
        return bool(expected == actual)
    raw = actual.get("input", actual.get("_raw")) if isinstance(actual, dict) else actual
    return not expected or not actual or expected == raw
