"""Chat responses and errors, decoded and encoded."""

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
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.openai_chat import CODEC
from toolwire.protocols.openai_chat.wire import FAMILY, ResponseShape

TEXT = {"role": "assistant", "content": "Sunny."}
CALL = chat_assistant(chat_call("call_1"))
REFUSAL = {"role": "assistant", "content": None, "refusal": "No."}


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
        (REFUSAL, "stop", "refusal"),
    ],
)
def test_finish_reason_is_decoded(message: Any, finish: str, reason: str) -> None:
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
def test_other_stop_reasons_are_encoded(reason: str, finish: str, exact: bool) -> None:
    body = anthropic_response({"type": "text", "text": "Sunny."}, stop_reason=reason)
    assert translated_body(body, ANTHROPIC, CHAT, "response")["choices"][0]["finish_reason"] == finish
    assert ("/stop_reason" not in loss_paths(body, ANTHROPIC, CHAT, "response")) is exact


def test_stop_sequence_is_reported_as_lost() -> None:
    body = anthropic_response({"type": "text", "text": "1"}, stop_reason="stop_sequence", stop_sequence="END")
    assert "/stop_sequence" in loss_paths(body, ANTHROPIC, CHAT, "response")


def test_response_has_the_fields_that_clients_rely_on() -> None:
    translated = translated_body(anthropic_response(anthropic_call("toolu_1")), ANTHROPIC, CHAT, "response")
    assert list(translated) == ["id", "object", "created", "model", "choices", "usage"]
    (choice,) = translated["choices"]
    assert (choice["index"], choice["logprobs"], choice["finish_reason"]) == (0, None, "tool_calls")
    assert (choice["message"]["content"], choice["message"]["refusal"]) == (None, None)
    assert translated["usage"] == {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}


def test_reasoning_is_sent_to_the_client() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    body = anthropic_response(thinking, {"type": "text", "text": "Sunny."}, stop_reason="end_turn")
    message = translated_body(body, ANTHROPIC, CHAT, "response")["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Sunny.")
    assert loss_paths(body, ANTHROPIC, CHAT, "response") == {"/content/0/signature"}


def test_choices_are_candidates() -> None:
    body = chat_response(TEXT, "stop")
    body["choices"].append({"index": 1, "message": CALL, "logprobs": None, "finish_reason": "tool_calls"})
    assert [candidate.index for candidate in decoded(body).candidates] == [0, 1]
    assert translated_body(body, CHAT, CHAT, "response") == body
    assert "/choices/1" in loss_paths(body, CHAT, ANTHROPIC, "response")


def test_citation_offsets_refer_to_the_joined_text() -> None:
    cited = {"type": "web_search_result_location", "url": "https://a.example", "title": "A", "cited_text": "q"}
    blocks: list[Any] = [{"type": "text", "text": "It is "}, {"type": "text", "text": "sunny.", "citations": [cited]}]
    translated = translated_body(anthropic_response(*blocks, stop_reason="end_turn"), ANTHROPIC, CHAT, "response")
    message = translated["choices"][0]["message"]
    (annotation,) = message["annotations"]
    span = slice(annotation["url_citation"]["start_index"], annotation["url_citation"]["end_index"])
    assert message["content"][span] == "sunny."
    assert annotation["url_citation"]["url"] == "https://a.example"


@pytest.mark.parametrize(("arguments", "is_complete"), [("", True), ("{}", True), ("[1]", True), ('{"a":', False)])
def test_call_with_truncated_arguments_is_incomplete(arguments: str, is_complete: bool) -> None:
    (call,) = (
        decoded(chat_response(chat_assistant(chat_call("call_1", arguments=arguments)))).candidates[0].messages[0].parts
    )
    assert isinstance(call, ToolCall)
    assert call.complete is is_complete


def test_long_tool_name_is_kept_for_the_client() -> None:
    name = "x" * 100
    body = anthropic_response(anthropic_call("toolu_1", name))
    (call,) = translated_body(body, ANTHROPIC, CHAT, "response")["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == name


def test_error_in_a_successful_response_is_an_error() -> None:
    body = {"error": {"message": "Gone", "code": 502}}
    response = decoded(body)
    assert response.error is not None
    assert (response.error.kind, response.error.message) == ("server", "Gone")
    assert translated_body(body, CHAT, CHAT, "response") == body


def test_body_without_choices_is_rejected() -> None:
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
def test_error_kind_is_decoded(status: int | None, error: dict[str, Any], kind: str) -> None:
    body = {"error": {"message": "No.", **error}}
    decoded_error = CODEC.decode_error(json.dumps(body).encode(), status)
    assert decoded_error.kind == kind
    assert json.loads(CODEC.encode_error(decoded_error).to_bytes()) == body


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
def test_errors_of_other_shapes_are_decoded_and_restored(body: Any, message: str) -> None:
    decoded_error = CODEC.decode_error(json.dumps(body).encode(), 404)
    assert decoded_error.message == message
    assert json.loads(CODEC.encode_error(decoded_error).to_bytes()) == body


def test_foreign_error_has_all_four_fields() -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}
    translated = translated_body(body, ANTHROPIC, CHAT, "error")["error"]
    assert translated == {
        "message": "Slow down",
        "type": "rate_limit_error",
        "param": None,
        "code": "rate_limit_exceeded",
    }


def test_asynchronous_call_finishes_with_tool_calls() -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "later", "arguments": "{}", "async": True}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Started."}]}
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [call, message]}
    response = toolwire.translate(body, RESPONSES, CHAT, "response").value
    assert response["choices"][0]["finish_reason"] == "tool_calls"


def test_requires_action_status_is_not_a_loss() -> None:
    call = {"type": "function_call", "id": "c1", "name": "f", "arguments": {}}
    body = {"id": "v1", "object": "interaction", "status": "requires_action", "model": "m", "steps": [call]}
    translation = toolwire.translate(body, "gemini-interactions", CHAT, "response")
    assert translation.value["choices"][0]["finish_reason"] == "tool_calls"
    assert translation.losses == []


@pytest.mark.parametrize("kind", ["invalid_request_error", "request_forbidden", "tokens"])
def test_error_type_is_shared_with_responses(kind: str) -> None:
    error = {"message": "No.", "type": kind, "param": None, "code": "invalid_api_key"}
    translation = toolwire.translate({"error": error}, RESPONSES, CHAT, "error")
    assert (translation.value, translation.losses) == ({"error": error}, [])


_CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_COUNTS = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
SERVERS: dict[str, Any] = {
    "vLLM": {
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [_CALL],
                    "refusal": None,
                    "annotations": None,
                    "audio": None,
                    "function_call": None,
                    "reasoning": "Hm.",
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
                "stop_reason": None,
                "token_ids": None,
            }
        ],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": {**_COUNTS, "prompt_tokens_details": None},
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "kv_transfer_params": None,
    },
    "DeepSeek": {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "", "tool_calls": [{"index": 0, **_CALL}]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {**_COUNTS, "prompt_cache_hit_tokens": 2, "prompt_cache_miss_tokens": 1},
    },
    "llama.cpp": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": _COUNTS,
        "timings": {"prompt_n": 1, "prompt_ms": 2.5},
    },
}


@pytest.mark.parametrize("server", SERVERS)
def test_members_of_common_servers_are_declared(server: str) -> None:
    """A response with an undeclared member is read field by field, which takes five times as long."""
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", **SERVERS[server]}
    _, is_exact = Reader[ResponseShape](ResponseShape, FAMILY).read_with_exactness(json.dumps(body).encode())
    assert is_exact
