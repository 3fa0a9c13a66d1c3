"""What is particular to Chat's answers and errors."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import anthropic_call, anthropic_response, chat_assistant, chat_call, chat_response
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.translation import loss_paths, translated_body
from toolwire.canonical.content import ToolCall
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.openai_chat import CODEC

TEXT = {"role": "assistant", "content": "Sunny."}
CALL = chat_assistant(chat_call("call_1"))
REFUSED = {"role": "assistant", "content": None, "refusal": "No."}


def decoded(body: Any) -> Response:
    return CODEC.decode_response(json.dumps(body).encode(), ResponseContext())


@pytest.mark.parametrize(
    ("message", "finish", "reason"),
    [
        (TEXT, "stop", "end_turn"),
        (TEXT, "length", "max_tokens"),
        (TEXT, "content_filter", "filtered"),
        (TEXT, "error", "error"),
        (TEXT, "something_new", "other"),
        (TEXT, "", "end_turn"),
        (CALL, "tool_calls", "tool_use"),
        (CALL, "function_call", "tool_use"),
        (CALL, "stop", "tool_use"),
        (CALL, "length", "max_tokens"),
        (REFUSED, "stop", "refusal"),
    ],
)
def test_what_a_finish_reason_means(message: Any, finish: str, reason: str) -> None:
    stop = decoded(chat_response(message, finish)).candidates[0].stop
    assert stop is not None
    assert (stop.reason, stop.raw) == (reason, finish)


@pytest.mark.parametrize(
    ("reason", "finish", "exact"),
    [
        ("end_turn", "stop", True),
        ("max_tokens", "length", True),
        ("refusal", "content_filter", False),
        ("pause_turn", "stop", False),
        ("model_context_window_exceeded", "length", False),
    ],
)
def test_how_other_reasons_are_told(reason: str, finish: str, exact: bool) -> None:
    body = anthropic_response({"type": "text", "text": "Sunny."}, stop_reason=reason)
    assert translated_body(body, ANTHROPIC, CHAT, "response")["choices"][0]["finish_reason"] == finish
    assert ("/stop_reason" not in loss_paths(body, ANTHROPIC, CHAT, "response")) is exact


def test_the_sequence_that_was_met_is_named_as_lost() -> None:
    body = anthropic_response({"type": "text", "text": "1"}, stop_reason="stop_sequence", stop_sequence="END")
    assert "/stop_sequence" in loss_paths(body, ANTHROPIC, CHAT, "response")


def test_an_answer_has_what_clients_read_without_asking() -> None:
    made = translated_body(anthropic_response(anthropic_call("toolu_1")), ANTHROPIC, CHAT, "response")
    assert list(made) == ["id", "object", "created", "model", "choices", "usage"]
    (choice,) = made["choices"]
    assert (choice["index"], choice["logprobs"], choice["finish_reason"]) == (0, None, "tool_calls")
    assert (choice["message"]["content"], choice["message"]["refusal"]) == (None, None)
    assert made["usage"] == {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}


def test_reasoning_is_shown_to_the_client() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    body = anthropic_response(thought, {"type": "text", "text": "Sunny."}, stop_reason="end_turn")
    message = translated_body(body, ANTHROPIC, CHAT, "response")["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Sunny.")
    assert loss_paths(body, ANTHROPIC, CHAT, "response") == {"/content/0/signature"}


def test_several_answers_are_several_candidates() -> None:
    body = chat_response(TEXT, "stop")
    body["choices"].append({"index": 1, "message": CALL, "logprobs": None, "finish_reason": "tool_calls"})
    assert [candidate.index for candidate in decoded(body).candidates] == [0, 1]
    assert translated_body(body, CHAT, CHAT, "response") == body
    assert "/choices/1" in loss_paths(body, CHAT, ANTHROPIC, "response")


def test_citations_count_characters_of_the_whole_text() -> None:
    cited = {"type": "web_search_result_location", "url": "https://a.example", "title": "A", "cited_text": "q"}
    blocks: list[Any] = [{"type": "text", "text": "It is "}, {"type": "text", "text": "sunny.", "citations": [cited]}]
    made = translated_body(anthropic_response(*blocks, stop_reason="end_turn"), ANTHROPIC, CHAT, "response")
    message = made["choices"][0]["message"]
    (note,) = message["annotations"]
    span = slice(note["url_citation"]["start_index"], note["url_citation"]["end_index"])
    assert message["content"][span] == "sunny."
    assert note["url_citation"]["url"] == "https://a.example"


@pytest.mark.parametrize(("arguments", "complete"), [("", True), ("{}", True), ("[1]", True), ('{"a":', False)])
def test_a_call_whose_arguments_are_cut_is_not_complete(arguments: str, complete: bool) -> None:
    (call,) = (
        decoded(chat_response(chat_assistant(chat_call("call_1", arguments=arguments)))).candidates[0].messages[0].parts
    )
    assert isinstance(call, ToolCall)
    assert call.complete is complete


def test_a_call_keeps_the_name_that_the_client_gave_it() -> None:
    long = "x" * 100
    body = anthropic_response(anthropic_call("toolu_1", long))
    (call,) = translated_body(body, ANTHROPIC, CHAT, "response")["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == long


def test_an_error_inside_a_200_is_an_error() -> None:
    body = {"error": {"message": "Gone", "code": 502}}
    response = decoded(body)
    assert response.error is not None
    assert (response.error.kind, response.error.message) == ("server", "Gone")
    assert translated_body(body, CHAT, CHAT, "response") == body


def test_an_answer_that_is_none_is_refused_at_its_choices() -> None:
    with pytest.raises(toolwire.DecodeError, match="/choices"):
        decoded({"id": "x", "output": []})


ERRORS: list[tuple[int | None, dict[str, Any], str]] = [
    (400, {"type": "invalid_request_error", "code": "context_length_exceeded"}, "context_length"),
    (400, {"type": "invalid_request_error", "code": None}, "invalid_request"),
    (401, {"type": "invalid_request_error", "code": "invalid_api_key"}, "authentication"),
    (403, {"type": "invalid_request_error"}, "permission"),
    (404, {"type": "invalid_request_error", "code": "model_not_found"}, "not_found"),
    (429, {"type": "insufficient_quota", "code": "insufficient_quota"}, "billing"),
    (429, {"type": "requests", "code": "rate_limit_exceeded"}, "rate_limit"),
    (429, {"type": "tokens"}, "rate_limit"),
    (500, {"type": "server_error"}, "server"),
    (503, {"type": "server_error"}, "overloaded"),
    (None, {"type": "request_forbidden", "code": "unsupported_country_region_territory"}, "permission"),
    (None, {"type": "service_unavailable_error"}, "overloaded"),
    (None, {"code": 429}, "rate_limit"),
    (None, {"code": 599}, "server"),
    (None, {}, "other"),
]


@pytest.mark.parametrize(("status", "error", "kind"), ERRORS)
def test_what_an_error_means(status: int | None, error: dict[str, Any], kind: str) -> None:
    body = {"error": {"message": "No.", **error}}
    found = CODEC.decode_error(json.dumps(body).encode(), status)
    assert found.kind == kind
    assert json.loads(CODEC.encode_error(found).to_bytes()) == body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"detail": "Not found"}, "Not found"),
        ({"detail": [{"loc": ["body"], "msg": "bad"}]}, '[{"loc": ["body"], "msg": "bad"}]'),
        ({"object": "error", "message": "Too long", "code": 400}, "Too long"),
        ({"error": "Model is loading"}, "Model is loading"),
        ({"error": {"message": "No."}, "request_id": "r"}, "No."),
    ],
)
def test_errors_of_other_shapes_are_read_and_come_home(body: Any, message: str) -> None:
    found = CODEC.decode_error(json.dumps(body).encode(), 404)
    assert found.message == message
    assert json.loads(CODEC.encode_error(found).to_bytes()) == body


def test_an_error_of_another_protocol_has_all_four_fields() -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}
    made = translated_body(body, ANTHROPIC, CHAT, "error")["error"]
    assert made == {"message": "Slow down", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}


def test_a_call_that_may_be_answered_later_is_a_call_to_be_answered() -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "later", "arguments": "{}", "async": True}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Started."}]}
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [call, said]}
    answer = toolwire.translate(body, RESPONSES, CHAT, "response").value
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


def test_an_interaction_that_waits_for_results_lost_nothing_by_saying_so() -> None:
    call = {"type": "function_call", "id": "c1", "name": "f", "arguments": {}}
    body = {"id": "v1", "object": "interaction", "status": "requires_action", "model": "m", "steps": [call]}
    found = toolwire.translate(body, "gemini-interactions", CHAT, "response")
    assert found.value["choices"][0]["finish_reason"] == "tool_calls"
    assert found.losses == []


@pytest.mark.parametrize("kind", ["invalid_request_error", "request_forbidden", "tokens"])
def test_the_type_of_an_error_is_the_same_word_in_both_openai_protocols(kind: str) -> None:
    error = {"message": "No.", "type": kind, "param": None, "code": "invalid_api_key"}
    found = toolwire.translate({"error": error}, RESPONSES, CHAT, "error")
    assert (found.value, found.losses) == ({"error": error}, [])
