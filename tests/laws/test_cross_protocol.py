"""Every body in every other protocol: accepted by the official SDK's types and by our own rules, with true losses."""

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

# Streams that their own SDK can't read, so that there is nothing to compare with: in the others they are still read.
NO_INDEX = "it numbers no calls, which the SDK's accumulator needs"
NO_REASON = "chunks without finish_reason, which the SDK's accumulator needs"
JOINED = "the SDK's accumulator joins a name that is sent twice"
UNREADABLE = {
    "openai-chat/compatible_no_index": NO_INDEX,
    "openai-chat/compatible_repeated_call_id": JOINED,
    "openai-chat/pai/models/test_snowflake/test_snowflake_model_streaming#0": NO_REASON,
    "openai-chat/pai/models/test_snowflake/test_snowflake_thinking_streaming#0": NO_REASON,
    "openrouter/null_index": NO_INDEX,
}
# Shell, patches and the like.
OWN_CALLS = ("openai-responses",)


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_requests_are_accepted(source: str, target: str) -> None:
    bodies = recorded_bodies.sample_for_target(recorded_bodies.requests(source), target)
    wrong: dict[str, str] = {}
    for name, body in bodies.items():
        if (encoded := _translated(body, source, target, "request")) is not None:
            findings = [f for f in tw.check(encoded.value, target) if f.level == "error"]
            reason = validation.accept_request(target, _official(encoded.value)) or (
                str(findings[0]) if findings else None
            )
            if reason is not None and not _excused(body, source):
                wrong[name] = reason
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_responses_are_accepted(source: str, target: str) -> None:
    wrong: dict[str, str] = {}
    for name, body in recorded_bodies.sample_for_target(recorded_bodies.responses(source), target).items():
        encoded = _translated(body, source, target, "response")
        if encoded is not None and (reason := validation.accept_response(target, encoded.value)) is not None:
            wrong[name] = reason
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_errors_are_accepted(source: str, target: str) -> None:
    for name, body in non_empty(recorded_bodies.errors(source).items()):
        encoded = tw.translate(body, source, target, "error")
        assert validation.accept_error(target, encoded.value) is None, name


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_a_response_says_the_same(source: str, target: str) -> None:
    """Text, calls, arguments and what ended it are the same to the readers of both protocols."""
    wrong = {}
    for name, body in recorded_bodies.sample_for_target(recorded_bodies.responses(source), target).items():
        encoded = _translated(body, source, target, "response")
        if encoded is not None and not body.get("error") and validation.accept_response(source, body) is None:
            before, after = validation.summary(source, body), validation.summary(target, encoded.value)
            if (why := _unlike(before, after, encoded.losses, own_calls=source in OWN_CALLS)) is not None:
                wrong[name] = why
    assert wrong == {}


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_a_stream_folds_to_the_same_in_the_other_sdk(source: str, target: str) -> None:
    wrong = {}
    for name, wire in recorded_bodies.sample_for_target(recorded_bodies.streams(source), target).items():
        stream = tw.translate_stream([wire], source, target)
        after = _folded(target, b"".join(stream))
        before = _folded_once(source, wire)
        if stream.error is not None:
            ended = isinstance(after, str) or after["stop"] == "error"
            why = None if ended else f"ends as if nothing had failed: {stream.error.message}"
        elif isinstance(after, str):
            why = after
        elif f"{source}/{name}" in UNREADABLE:
            continue
        else:
            why = (
                before
                if isinstance(before, str)
                else _unlike(before, after, stream.losses, own_calls=source in OWN_CALLS)
            )
        if why is not None:
            wrong[name] = why
    assert wrong == {}


@pytest.mark.parametrize("protocol", recorded_bodies.PROTOCOL_NAMES)
def test_no_stream_is_passed_over_that_its_own_sdk_reads(protocol: str) -> None:
    passed = {name.removeprefix(protocol + "/"): why for name, why in UNREADABLE.items() if name.startswith(protocol)}
    for name, wire in non_empty(recorded_bodies.streams(protocol).items()):
        if name in passed:
            assert isinstance(_folded(protocol, wire), str) or passed[name] is JOINED, name


@cache
def _folded_once(protocol: str, wire: bytes) -> validation.Summary | str:
    """The same stream is compared with what becomes of it in every other protocol."""
    return _folded(protocol, wire)


def _folded(protocol: str, wire: bytes) -> validation.Summary | str:
    """What the SDK's accumulator makes of a stream, or what it says against it."""
    try:
        return validation.fold_stream(protocol, wire, tolerant=True)
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is its refusal
        return f"{type(error).__name__}: {error}"


@corpus.needs_recordings
def test_few_recorded_bodies_are_refused() -> None:
    """Those that offer nothing but a tool that the target lacks are counted apart: nothing else could be done."""
    counted = figures.refusals()
    refused, translations = (sum(row[name] for row in counted.values()) for name in ("refused", "translations"))
    assert translations
    assert refused <= LIMIT_REFUSED * translations
    assert figures.published_table("refusals") == figures.markdown_table(counted), (
        "python -m tests.documentation.figures writes them anew"
    )


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
@pytest.mark.parametrize("kind", ["request", "response"])
def test_a_loss_names_what_is_there_and_did_not_arrive(source: str, target: str, kind: Any) -> None:
    bodies = recorded_bodies.requests(source) if kind == "request" else recorded_bodies.responses(source)
    wrong = []
    for name, body in bodies.items():
        if (encoded := _translated(body, source, target, kind)) is None:
            continue
        text = encoded.to_bytes().decode()
        said = json.dumps(body, ensure_ascii=False)
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
            unique = isinstance(value, str) and len(value) > 20 and said.count(literal) == 1
            if loss.kind == "dropped" and unique and literal in text:
                wrong.append(f"{name}: {loss.path} did arrive")
    assert wrong == []


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_what_is_invented_is_where_the_loss_says(source: str, target: str) -> None:
    wrong = []
    for name, body in recorded_bodies.requests(source).items():
        if (encoded := _translated(body, source, target, "request")) is not None:
            invented = [loss for loss in encoded.losses if loss.kind == "added"]
            wrong += [f"{name}: {loss}" for loss in invented if not _is_there(encoded.value, loss.target)]
    assert wrong == []


def _is_there(body: Any, path: str | None) -> bool:
    try:
        return bool(path) and resolve(body, str(path)) is not None
    except KeyError:
        return False


def _translated(body: Any, source: str, target: str, kind: Any) -> tw.Translation | None:
    """None if the body is refused for something that may not be dropped."""
    try:
        return tw.translate(body, source, target, kind, **recorded_bodies.address_options(source, kind))
    except tw.LossyTranslationError:
        return None


def _official(body: Any) -> Any:
    """Without the one field that models of other vendors demand and the official types lack."""
    for message in body.get("messages", []):
        message.pop("reasoning_content", None)
    return body


def _excused(body: Any, source: str) -> bool:
    """A body that its own provider would refuse has no legal translation."""
    return any(finding.level == "error" for finding in tw.check(body, source))


def _unlike(
    before: validation.Summary, after: validation.Summary, losses: list[tw.Loss], *, own_calls: bool = False
) -> str | None:
    """What differs to a reader, other than a refusal that became text, and that is reported.

    `own_calls`: the source has calls of its own kinds, which become functions that the summary of it does not list.
    """
    said = before["text"] + (before["refusal"] or "") if losses else before["text"]
    heard = after["text"] + (after["refusal"] or "") if losses else after["text"]
    if said != heard:
        return f"text: {said[:120]!r} became {heard[:120]!r}"
    asked = [call for call in before["calls"] if call["name"]]
    heard_of = [call for call in after["calls"] if any(_same(one, call) for one in asked) or not own_calls]
    if len(asked) != len(heard_of) or not all(map(_same, asked, heard_of)):
        return f"calls: {asked} became {after['calls']}"
    return None


def _same(call: validation.Call, other: validation.Call) -> bool:
    """A namespace may stand before a name. Arguments that are no JSON object can only be told in other words; cut
    ones are nothing to Anthropic's accumulator."""
    if not other["name"].endswith(call["name"]):
        return False
    told, heard = call["arguments"], other["arguments"]
    if isinstance(told, dict) and told:
        return bool(told == heard)
    raw = heard.get("input", heard.get("_raw")) if isinstance(heard, dict) else heard
    return not told or not heard or told == raw
