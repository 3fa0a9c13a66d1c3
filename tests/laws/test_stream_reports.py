"""A stream reports the same losses as the body of the same response."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.codecs import body_as_stream
from tests.support.samples import recorded_bodies

_ERROR = "a stream ends with the error as the target reports it, and without a final chunk"
_WHY = "every stream ends with a stop reason"
_EMPTY = "a stream has no delta for a text that is empty"

# The known differences: the reason, losses of the body only, and losses of the stream only.
DIFFERENCES: dict[tuple[str, str], tuple[str, set[str], set[str]]] = {
    ("gemini-interactions", "failed"): (_ERROR, {"/errors/0", "/errors/0/code", "/status"}, {"/errors/0/code"}),
    ("gemini-interactions", "failed_without_errors"): (_ERROR, {"/status"}, set()),
    ("gemini-interactions", "model_output_error"): (_ERROR, {"/status"}, set()),
    ("gemini-interactions", "in_progress"): (_WHY, {"/status"}, {"/status"}),
    ("gemini-interactions", "queued"): (_WHY, {"/status"}, {"/status"}),
    **{
        ("gemini", f"stop_{name}"): (_ERROR, {"/candidates/0/finishReason"}, set[str]())
        for name in ("malformed_function_call", "malformed_response", "too_many_tool_calls", "unexpected_tool_call")
    },
    ("gemini-interactions", "thought_with_image"): (
        "a step starts with its images, so that this one precedes the text",
        {"/steps/0/summary/1"},
        {"/steps/0/summary/0"},
    ),
    ("openai-chat", "error_in_200"): (_ERROR, {"/error", "/error/code", "/error/type"}, {"/error/code"}),
    ("openai-responses", "failed"): (_ERROR, {"/error", "/status"}, {"/error/code", "/service_tier"}),
    ("openai-responses", "failed_policy"): (
        _ERROR,
        {"/error", "/error/type", "/status"},
        {"/error/code", "/error/misalignment", "/service_tier"},
    ),
    ("openrouter", "error_in_200"): (
        _ERROR,
        {"/error", "/error/code", "/error/metadata", "/created", "/id", "/provider"},
        {"/error/code"},
    ),
    ("openai-chat", "error_in_choice"): (
        "a stream has the error at its root, a body in the choice",
        {"/choices/0/error/code", "/choices/0/finish_reason"},
        {"/choices/0/error", "/error/code"},
    ),
    ("openrouter", "error_alone_in_200"): (
        _ERROR,
        {"/error", "/error/code", "/error/metadata", "/user_id"},
        {"/error/code"},
    ),
    ("openrouter", "finish_error"): (_ERROR, {"/choices/0/finish_reason"}, set()),
    ("openrouter", "null_arguments"): (
        "in a stream the index of a call is the protocol's own",
        {"/choices/0/message/tool_calls/0/index"},
        set(),
    ),
    ("openrouter", "null_id"): (
        "in a stream the index of a call is the protocol's own",
        {"/choices/0/message/tool_calls/0/index"},
        set(),
    ),
}
EMPTY = {
    ("openai-chat", "/choices/0/message/content"): _EMPTY,
    ("openrouter", "/choices/0/message/content"): _EMPTY,
}


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_a_stream_reports_the_losses_of_its_body(source: str, target: str) -> None:
    wrong: dict[str, Any] = {}
    for name, body in recorded_bodies.fixture_responses(source).items():
        try:
            of_body = {(loss.kind, loss.path) for loss in tw.translate(body, source, target, "response").losses}
        except tw.LossyTranslationError:
            stream = tw.translate_stream([body_as_stream(body, source)], source, target)
            assert b"".join(stream)
            assert stream.error is not None, name
            continue
        stream = tw.translate_stream([body_as_stream(body, source)], source, target)
        assert b"".join(stream)
        of_stream = {(loss.kind, loss.path) for loss in stream.losses}
        _, only_body, only_stream = DIFFERENCES.get((source, name), ("", set(), set()))
        missing = {loss for loss in of_body - of_stream if loss[1] not in only_body and (source, loss[1]) not in EMPTY}
        more = {loss for loss in of_stream - of_body if loss[1] not in only_stream}
        if missing or more:
            wrong[name] = (missing, more)
    assert wrong == {}


@pytest.mark.parametrize(("source", "name"), DIFFERENCES)
def test_each_listed_difference_exists(source: str, name: str) -> None:
    _, only_body, only_stream = DIFFERENCES[source, name]
    body = recorded_bodies.fixture_responses(source)[name]
    missing, more = set(), set()
    for target in [target for first, target in recorded_bodies.PAIRS if first == source]:
        of_body = {(loss.kind, loss.path) for loss in tw.translate(body, source, target, "response").losses}
        stream = tw.translate_stream([body_as_stream(body, source)], source, target)
        assert b"".join(stream)
        of_stream = {(loss.kind, loss.path) for loss in stream.losses}
        missing |= {path for _, path in of_body - of_stream}
        more |= {path for _, path in of_stream - of_body}
    assert (missing, more) == (only_body, only_stream)
