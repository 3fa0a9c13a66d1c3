"""Responses of the Responses API: stop reasons, echoed settings and errors."""

import json
from typing import Any

import pytest

from tests.support.bodies.minimal import (
    RESPONSES_USAGE,
    USER_MESSAGE,
    anthropic_call,
    anthropic_response,
    chat_call,
    chat_response,
    chat_stream,
    responses_call,
    responses_message,
    responses_request,
    responses_response,
    responses_tool,
)
from tests.support.bodies.readers import stream_frames
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.sdk.validation import accept_response
from tests.support.translation import has_loss_at, loss_paths, translate_stream_bytes, translated_body
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.openai_responses import CODEC

REFUSAL = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "refusal", "refusal": "No."}],
}
ASYNC_CALL = {**responses_call("call_1"), "async": True}
PROGRAM = {"type": "program", "id": "prog_1", "call_id": "call_0", "code": "x", "fingerprint": "f"}


def decode_response(*output: Any, **fields: Any) -> Response:
    return CODEC.decode_response(json.dumps(responses_response(*output, **fields)).encode(), ResponseContext())


@pytest.mark.parametrize(
    ("output", "fields", "reason"),
    [
        ([responses_message("Hi.")], {}, "end_turn"),
        ([responses_message("Hi."), responses_call("call_1")], {}, "tool_use"),
        ([responses_message("Hi."), ASYNC_CALL], {}, "end_turn"),
        ([ASYNC_CALL], {}, "tool_use"),
        ([REFUSAL], {}, "refusal"),
        ([PROGRAM], {}, "continuation"),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_tokens"),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "filtered"),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "other"),
        ([], {"status": "cancelled"}, "cancelled"),
    ],
)
def test_stop_reason_is_inferred_from_status_and_items(output: Any, fields: Any, reason: str) -> None:
    (candidate,) = decode_response(*output, **fields).candidates
    assert candidate.stop is not None
    assert candidate.stop.reason == reason


@pytest.mark.parametrize("status", ["in_progress", "queued"])
def test_response_in_progress_has_no_stop(status: str) -> None:
    assert all(candidate.stop is None for candidate in decode_response(status=status).candidates)


def test_failed_response_has_an_error() -> None:
    failed = decode_response(status="failed", error={"code": "rate_limit_exceeded", "message": "Slow down."})
    assert failed.error is not None
    assert (failed.error.kind, failed.error.message) == ("rate_limit", "Slow down.")


def test_body_without_output_raises_decode_error() -> None:
    with pytest.raises(DecodeError, match="/output"):
        CODEC.decode_response(b'{"choices": []}', ResponseContext())


def test_usage_counts_and_details() -> None:
    usage = {
        **RESPONSES_USAGE,
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 5},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    decoded = decode_response(responses_message("x"), usage=usage).usage
    assert decoded is not None
    assert (decoded.input_tokens, decoded.cache_read, decoded.cache_write, decoded.reasoning) == (100, 80, 5, 3)


def test_foreign_response_is_valid_for_the_sdk_and_echoes_its_request() -> None:
    request_body = responses_request(
        USER_MESSAGE, tools=[responses_tool()], tool_choice="required", temperature=0.5, instructions="Be brief."
    )
    body = anthropic_response({"type": "text", "text": "Hm."}, anthropic_call("toolu_1"))
    translated = translated_body(body, ANTHROPIC, RESPONSES, "response", request=request_body)
    assert accept_response(RESPONSES, translated) is None
    assert {name: translated[name] for name in ("tools", "tool_choice", "temperature", "instructions")} == {
        name: request_body[name] for name in ("tools", "tool_choice", "temperature", "instructions")
    }
    assert translated["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


def test_foreign_response_has_the_settings_that_openai_sends() -> None:
    """Open Responses requires them, and all recorded responses of OpenAI have them: requested values or defaults."""
    body = anthropic_response({"type": "text", "text": "Hm."})
    settings = {"temperature": 1.0, "top_p": 1.0, "top_logprobs": 0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    states = {"background": False, "service_tier": "default", "completed_at": None, "max_tool_calls": None}
    defaulted = translated_body(body, ANTHROPIC, RESPONSES, "response")
    assert {name: defaulted[name] for name in settings | states} == settings | states
    requested = {"reasoning": {"effort": "low", "summary": "auto"}, "prompt_cache_key": "k", "metadata": {"a": "b"}}
    echoed = translated_body(
        body, ANTHROPIC, RESPONSES, "response", request=responses_request(USER_MESSAGE, top_p=0.5, **requested)
    )
    assert {name: echoed[name] for name in (*requested, "top_p")} == requested | {"top_p": 0.5}


def test_direct_caller_is_omitted() -> None:
    """Anthropic always names the caller; compatible servers do not know this field."""
    call = {**anthropic_call("toolu_1"), "caller": {"type": "direct"}}
    translated = translated_body(anthropic_response(call), ANTHROPIC, RESPONSES, "response")
    assert "caller" not in translated["output"][0]


def test_foreign_items_get_stable_ids_with_the_prefix_of_their_kind() -> None:
    thinking = {"type": "thinking", "thinking": "Look.", "signature": "c2ln"}
    body = anthropic_response(thinking, {"type": "text", "text": "Hm."}, anthropic_call("toolu_1"))
    translated = translated_body(body, ANTHROPIC, RESPONSES, "response")
    ids = [item["id"] for item in translated["output"]]
    assert [id.partition("_")[0] for id in ids] == ["rs", "msg", "fc"]
    assert len(set(ids)) == 3
    assert translated_body(body, ANTHROPIC, RESPONSES, "response")["output"] == translated["output"]
    other = translated_body({**body, "id": "msg_2"}, ANTHROPIC, RESPONSES, "response")
    assert not {item["id"] for item in other["output"]} & set(ids)


def test_thinking_becomes_a_summary_and_its_signature_is_reported() -> None:
    body = anthropic_response({"type": "thinking", "thinking": "Look.", "signature": "c2ln"}, anthropic_call("toolu_1"))
    translated = translated_body(body, ANTHROPIC, RESPONSES, "response")
    assert translated["output"][0]["summary"] == [{"type": "summary_text", "text": "Look."}]
    assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES, "response"), "/content/0/signature")


@pytest.mark.parametrize(
    ("stop", "status", "details"),
    [
        ("end_turn", "completed", None),
        ("tool_use", "completed", None),
        ("max_tokens", "incomplete", {"reason": "max_output_tokens"}),
        ("model_context_window_exceeded", "incomplete", {"reason": "max_output_tokens"}),
    ],
)
def test_stop_reason_becomes_a_status(stop: str, status: str, details: Any) -> None:
    body = anthropic_response(anthropic_call("toolu_1"), stop_reason=stop)
    translated = translated_body(body, ANTHROPIC, RESPONSES, "response")
    assert (translated["status"], translated["incomplete_details"]) == (status, details)
    assert translated["output"][-1]["status"] == status


def test_refusal_without_text_becomes_content_filter() -> None:
    body = anthropic_response({"type": "text", "text": "I started to"}, stop_reason="refusal")
    translated = translated_body(body, ANTHROPIC, RESPONSES, "response")
    assert (translated["status"], translated["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES, "response"), "/stop_reason")


def test_refusal_with_text_completes_the_response() -> None:
    body = chat_response({"role": "assistant", "content": None, "refusal": "No."}, "stop")
    translated = translated_body(body, CHAT, RESPONSES, "response")
    assert (translated["status"], translated["incomplete_details"]) == ("completed", None)
    assert translated["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert not has_loss_at(loss_paths(body, CHAT, RESPONSES, "response"), "/choices/0/finish_reason")
    stream = chat_stream({"refusal": "No."}, finish_reason="stop")
    last = stream_frames(translate_stream_bytes(stream, CHAT, RESPONSES))[-1]
    assert (last["type"], last["response"]["output"][0]["status"]) == ("response.completed", "completed")


def test_error_within_a_choice_fails_the_response() -> None:
    error = {"code": 502, "message": "Provider disconnected"}
    body = chat_response({"role": "assistant", "content": "I star"}, "error")
    body["choices"][0]["error"] = error
    translated = translated_body(body, CHAT, RESPONSES, "response")
    assert (translated["status"], translated["error"]) == (
        "failed",
        {"code": "server_error", "message": "Provider disconnected"},
    )
    assert translated["output"][0]["status"] == "incomplete"
    assert loss_paths(body, CHAT, RESPONSES, "response") == {"/choices/0/error/code"}
    assert translated_body(body, CHAT, CHAT, "response") == body


def test_empty_text_beside_a_call_adds_no_message() -> None:
    body = chat_response({"role": "assistant", "content": "", "tool_calls": [chat_call("call_1")]})
    translated = translated_body(body, CHAT, RESPONSES, "response")
    assert [item["type"] for item in translated["output"]] == ["function_call"]


def test_url_citation_spans_its_text() -> None:
    citation = {
        "type": "web_search_result_location",
        "url": "https://x.test",
        "title": "X",
        "cited_text": "q",
        "encrypted_index": "e",
    }
    body = anthropic_response({"type": "text", "text": "Paris.", "citations": [citation]}, stop_reason="end_turn")
    (item,) = translated_body(body, ANTHROPIC, RESPONSES, "response")["output"]
    assert item["content"][0]["annotations"] == [
        {"type": "url_citation", "url": "https://x.test", "title": "X", "start_index": 0, "end_index": 6}
    ]


def test_call_answered_in_the_same_response_is_not_a_tool_use_stop() -> None:
    search = {
        "type": "tool_search_call",
        "id": "tsc_1",
        "call_id": "call_1",
        "execution": "client",
        "status": "completed",
        "arguments": {},
    }
    search_output = {
        "type": "tool_search_output",
        "id": "tso_1",
        "call_id": "call_1",
        "execution": "client",
        "tools": [],
    }
    (candidate,) = decode_response(search, search_output, responses_message("x")).candidates
    assert candidate.stop is not None
    assert candidate.stop.reason == "end_turn"


# ---- errors


@pytest.mark.parametrize(
    ("body", "status", "kind", "message"),
    [
        ({"error": {"message": "m", "type": "x", "code": "context_length_exceeded"}}, 400, "context_length", "m"),
        ({"error": {"message": "m", "type": "invalid_request_error", "code": None}}, 404, "not_found", "m"),
        ({"error": {"message": "m", "type": "invalid_request_error", "code": None}}, 400, "invalid_request", "m"),
        ({"error": {"message": "m", "type": "insufficient_quota", "code": "insufficient_quota"}}, 429, "billing", "m"),
        ({"error": {"message": "m", "type": "request_forbidden", "code": None}}, None, "permission", "m"),
        ({"error": {"message": "m", "type": "service_unavailable_error", "code": None}}, None, "overloaded", "m"),
        ({"error": "m"}, 503, "overloaded", "m"),
        ({"detail": "m"}, 401, "authentication", "m"),
        ({"detail": [{"loc": ["body"]}]}, 422, "invalid_request", '[{"loc": ["body"]}]'),
        ({"type": "error", "code": "server_error", "message": "m", "param": None}, None, "server", "m"),
        ({"type": "error", "status": 429, "error": {"message": "m", "type": "x"}}, None, "rate_limit", "m"),
    ],
)
def test_each_error_shape_is_decoded_and_encoded_unchanged(
    body: Any, status: int | None, kind: str, message: str
) -> None:
    error = CODEC.decode_error(json.dumps(body).encode(), status)
    assert (error.kind, error.message) == (kind, message)
    encoding = CODEC.encode_error(error)
    assert json.loads(encoding.to_bytes()) == body


def test_foreign_error_has_all_four_fields() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}}
    translated = translated_body(body, ANTHROPIC, RESPONSES, "error")
    assert translated["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("error_type", "code"),
    [
        ("tokens", "rate_limit_exceeded"),
        ("invalid_request_error", "invalid_api_key"),
        ("request_forbidden", "unsupported_country_region_territory"),
        ("server_error", None),
    ],
)
def test_chat_error_keeps_its_type(error_type: str, code: str | None) -> None:
    body = {"error": {"message": "No.", "type": error_type, "param": None, "code": code}}
    assert translated_body(body, CHAT, RESPONSES, "error") == body
    assert not loss_paths(body, CHAT, RESPONSES, "error")


def test_error_type_of_another_vendor_is_replaced_and_reported() -> None:
    body = {"type": "error", "error": {"type": "billing_error", "message": "Pay."}}
    assert translated_body(body, ANTHROPIC, RESPONSES, "error")["error"]["type"] == "insufficient_quota"
    assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES, "error"), "/error/type")


def test_a_status_that_is_no_number_is_no_status_of_the_error() -> None:
    error = {"status": False, "error": {"message": "no", "type": "server_error"}}
    assert CODEC.decode_error(json.dumps(error).encode(), None).status is None
    assert translated_body(error, RESPONSES, "openrouter", "error")["error"]["message"] == "no"


def test_an_mcp_call_without_an_id_gets_one_that_its_result_shares() -> None:
    item = {"type": "mcp_call", "id": "", "name": "f", "server_label": "s", "arguments": "{}", "output": "done"}
    body = translated_body(responses_response(item), RESPONSES, "gemini-interactions", "response")
    call, result = body["steps"]
    assert (call["type"], result["type"]) == ("mcp_server_tool_call", "mcp_server_tool_result")
    assert call["id"]
    assert result["call_id"] == call["id"]
