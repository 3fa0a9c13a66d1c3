"""Tests of the fixtures: the vendors' SDKs accept them, streams fold to their bodies, and every wire element occurs."""

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import pytest

from tests.support.assertions import non_empty
from tests.support.samples.fixture_coverage import COVERAGE, Row, is_shown
from tests.support.samples.fixture_files import (
    PROTOCOLS,
    body_and_stream_pairs,
    error_status,
    fixtures,
    tool_cycle_fixture,
)
from tests.support.sdk.validation import accept_error, accept_request, accept_response, fold_stream, summary

# Fixtures that are valid on the wire but not for the types of the SDK, each with the reason.
REFUSED_REQUESTS = {
    "anthropic/sampling_2023": "temperature, top_p and top_k left the types with version 2026-10-21",
    "openai-chat/compatible_deepseek": "reasoning_content and thinking are not the vendor's",
    "openai-chat/compatible_mistral": "thinking parts are not the vendor's",
    "openai-chat/compatible_openrouter": "reasoning_details and cache_control are not the vendor's",
    "openai-chat/compatible_vllm": "reasoning is not the vendor's",
    "openai-responses/input_audio": "documented, but not in the type of input messages",
    "openai-responses/multi_agent": "typed in the beta namespace only",
    "gemini/declarations": "a type by its number, which the API takes and the SDK's enumeration does not",
    "gemini/one_content": "one content in place of the list, as the API takes it",
    "gemini/tools_object": "one tool in place of the list, as the API takes it",
    "gemini-interactions/call_signature": "recorded from the wire, but no field of the type",
    "gemini-interactions/content_beside_steps": "the types want one or the other; the server takes both",
    "gemini-interactions/result_in_user_input": "recorded from the wire, but no content of the type",
    "gemini-interactions/unknown_step": "a step of the future",
    "openrouter/server_tool_in_reasoning": "an entry that is newer than the SDK",
}
REFUSED_RESPONSES = {
    "anthropic/unknown_block": "a block of the future",
    "openai-chat/compatible_mistral": "content is a list",
    "openai-chat/compatible_missing_id": "a call without id",
    "openai-chat/compatible_object_arguments": "arguments that are not text",
    "openai-chat/error_in_200": "no completion at all",
    "openai-chat/error_in_choice": "finish_reason error is not the vendor's",
    "openai-responses/multi_agent": "typed in the beta namespace only",
    "openai-responses/unknown_item": "an item of the future",
    "gemini-interactions/unknown_step": "a step of the future",
    "ollama/arguments_null": "a call without arguments, as older servers write it",
    "openrouter/error_alone_in_200": "no completion at all",
    "openrouter/error_in_200": "no completion at all",
    "openrouter/null_arguments": "some of its providers send none",
    "openrouter/null_id": "some of its providers send none",
}
REFUSED_STREAMS = {
    "anthropic/unknown_block": "a block of the future",
    "openai-chat/compatible_azure_filter": "the chunk with the prompt's filter results has no object type",
    "openai-chat/compatible_missing_id": "a call without id",
    "openai-chat/compatible_mistral": "content is a list",
    "openai-chat/compatible_no_index": "a call without index",
    "openai-chat/compatible_object_arguments": "arguments that are not text",
    "openai-chat/compatible_repeated_call_id": "the accumulator joins what is repeated",
    "openai-chat/compatible_repeated_role": "the accumulator joins what is repeated",
    "openai-responses/apply_patch_diff_events": "recorded from the vendor, but its types don't have these events",
    "openai-responses/output_null": "the accumulator rebuilds it, the type wants a list",
    "gemini-interactions/not_stored": "what is not stored has no id, which the type of the event requires",
    "openrouter/null_index": "some of its providers number no calls",
}
REFUSED_ERRORS = {
    "openai-chat/400_code_is_a_number": "code is a number only at imitators",
    "gemini-interactions/400_canonical": "Google's older form of an error, which this SDK does not know",
}
# Rejected requests that also violate the types of the SDK.
REJECTED_BY_TYPE = {
    "openai-responses/stop_sequence": "stop is no parameter of this protocol",
    "gemini/unknown_field": "max_tokens is no field of this protocol",
    "ollama/arguments_text": "arguments are an object here",
    "ollama/content_parts": "content is text here",
    "ollama/image_not_base64": "images are base64 text",
    "ollama/no_model": "the model is required",
}
HISTORY = {"openai-responses": "input", "gemini": "contents", "gemini-interactions": "input"}


def _every(kind: str) -> list[Any]:
    return [
        pytest.param(protocol, name, body, id=f"{protocol}/{name}")
        for protocol in PROTOCOLS
        for name, body in fixtures(protocol, kind)
    ]


Accept: TypeAlias = Callable[[str, Any], str | None]
"""A check that returns why the SDK of a protocol refuses a body."""


def unexpected_verdicts(protocol: str, kind: str, accept: Accept, refused: Collection[str]) -> dict[str, str]:
    """Return the fixtures that the SDK refuses or, if they are listed as refused, accepts."""
    verdicts = {f"{protocol}/{name}": accept(protocol, body) for name, body in non_empty(fixtures(protocol, kind))}
    return {
        name: refusal or "accepted" for name, refusal in verdicts.items() if (refusal is not None) != (name in refused)
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_match_the_types_of_the_sdk(protocol: str) -> None:
    assert unexpected_verdicts(protocol, "requests", accept_request, REFUSED_REQUESTS) == {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_responses_match_the_types_of_the_sdk(protocol: str) -> None:
    assert unexpected_verdicts(protocol, "responses", accept_response, REFUSED_RESPONSES) == {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_errors_match_the_types_of_the_sdk(protocol: str) -> None:
    assert unexpected_verdicts(protocol, "errors", accept_error, REFUSED_ERRORS) == {}
    assert [name for name, _ in fixtures(protocol, "errors") if not 400 <= error_status(name) < 600] == []


@pytest.mark.parametrize(("protocol", "name", "wire"), _every("streams"))
def test_streams_fold_in_the_sdk(protocol: str, name: str, wire: bytes) -> None:
    if f"{protocol}/{name}" in REFUSED_STREAMS:
        with pytest.raises(Exception, match=r".+"):
            fold_stream(protocol, wire)
    else:
        fold_stream(protocol, wire)


@pytest.mark.parametrize(
    ("protocol", "name", "body", "wire"),
    [
        pytest.param(protocol, *pair, id=f"{protocol}/{pair[0]}")
        for protocol in PROTOCOLS
        for pair in body_and_stream_pairs(protocol)
        if f"{protocol}/{pair[0]}" not in REFUSED_STREAMS
    ],
)
def test_a_response_and_its_stream_are_equivalent(protocol: str, name: str, body: Any, wire: bytes) -> None:
    assert fold_stream(protocol, wire) == summary(protocol, body)


@pytest.mark.parametrize(("protocol", "name", "wire"), _every("broken_streams"))
def test_broken_streams_are_rejected(protocol: str, name: str, wire: bytes) -> None:
    with pytest.raises(Exception, match=r".+"):
        fold_stream(protocol, wire)


@pytest.mark.parametrize(("protocol", "name", "body"), _every("rejected"))
def test_rejected_requests_violate_a_rule_and_not_a_type(protocol: str, name: str, body: Any) -> None:
    refusal = accept_request(protocol, body["request"])
    assert (refusal is not None) == (f"{protocol}/{name}" in REJECTED_BY_TYPE), refusal
    assert body["said"] is None or body["said"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_conversation_is_one_complete_cycle(protocol: str) -> None:
    cycle = tool_cycle_fixture(protocol)
    assert accept_request(protocol, cycle["request"]) is None
    assert accept_response(protocol, cycle["response"]) is None
    assert accept_request(protocol, cycle["next_request"]) is None
    assert [call["id"] for call in summary(protocol, cycle["response"])["calls"]] == [
        output["id"] for output in cycle["outputs"]
    ]
    history = HISTORY.get(protocol, "messages")
    before = cycle["request"][history]
    assert cycle["next_request"][history][: len(before)] == before
    assert {**cycle["next_request"], history: before} == cycle["request"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_wire_element_occurs_in_its_fixture(protocol: str) -> None:
    rows = non_empty(COVERAGE[protocol].items())
    assert [name for name, row in rows if not is_shown(protocol, row)] == []


def test_missing_evidence_is_detected() -> None:
    assert not is_shown("anthropic", Row("requests/minimal", "system"))
    assert not is_shown("anthropic", Row("requests/minimal", "max_tokens=65"))
    assert not is_shown("anthropic", Row("streams/text", "~\\r\\n"))
