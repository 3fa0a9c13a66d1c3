"""What is particular to the answers of Responses: why they ended, what they repeat, and what their errors are."""

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

REFUSED = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "refusal", "refusal": "No."}],
}
LATE = {**responses_call("call_1"), "async": True}
PROGRAM = {"type": "program", "id": "prog_1", "call_id": "call_0", "code": "x", "fingerprint": "f"}


def read(*output: Any, **fields: Any) -> Response:
    return CODEC.decode_response(json.dumps(responses_response(*output, **fields)).encode(), ResponseContext())


@pytest.mark.parametrize(
    ("output", "fields", "reason"),
    [
        ([responses_message("Hi.")], {}, "end_turn"),
        ([responses_message("Hi."), responses_call("call_1")], {}, "tool_use"),
        ([responses_message("Hi."), LATE], {}, "end_turn"),
        ([LATE], {}, "tool_use"),
        ([REFUSED], {}, "refusal"),
        ([PROGRAM], {}, "continuation"),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_tokens"),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "filtered"),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "other"),
        ([], {"status": "cancelled"}, "cancelled"),
    ],
)
def test_why_an_answer_ended_is_read_from_what_it_leaves_to_do(output: Any, fields: Any, reason: str) -> None:
    (candidate,) = read(*output, **fields).candidates
    assert candidate.stop is not None
    assert candidate.stop.reason == reason


@pytest.mark.parametrize("status", ["in_progress", "queued"])
def test_an_answer_that_goes_on_has_no_stop(status: str) -> None:
    assert all(candidate.stop is None for candidate in read(status=status).candidates)


def test_a_failed_answer_has_an_error() -> None:
    failed = read(status="failed", error={"code": "rate_limit_exceeded", "message": "Slow down."})
    assert failed.error is not None
    assert (failed.error.kind, failed.error.message) == ("rate_limit", "Slow down.")


def test_a_body_that_is_no_answer_is_refused_by_name() -> None:
    with pytest.raises(DecodeError, match="/output"):
        CODEC.decode_response(b'{"choices": []}', ResponseContext())


def test_usage_counts_and_details() -> None:
    usage = {
        **RESPONSES_USAGE,
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 5},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    found = read(responses_message("x"), usage=usage).usage
    assert found is not None
    assert (found.input_tokens, found.cache_read, found.cache_write, found.reasoning) == (100, 80, 5, 3)


def test_an_answer_of_another_protocol_has_all_that_the_sdk_wants_and_repeats_its_request() -> None:
    asked = responses_request(
        USER_MESSAGE, tools=[responses_tool()], tool_choice="required", temperature=0.5, instructions="Be brief."
    )
    body = anthropic_response({"type": "text", "text": "Hm."}, anthropic_call("toolu_1"))
    made = translated_body(body, ANTHROPIC, RESPONSES, "response", request=asked)
    assert accept_response(RESPONSES, made) is None
    assert {name: made[name] for name in ("tools", "tool_choice", "temperature", "instructions")} == {
        name: asked[name] for name in ("tools", "tool_choice", "temperature", "instructions")
    }
    assert made["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


def test_an_answer_of_another_protocol_says_what_the_api_s_own_say_of_settings() -> None:
    """Open Responses requires them, and all of OpenAI's recorded answers have them: what was asked, or the default."""
    body = anthropic_response({"type": "text", "text": "Hm."})
    settings = {"temperature": 1.0, "top_p": 1.0, "top_logprobs": 0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    states = {"background": False, "service_tier": "default", "completed_at": None, "max_tool_calls": None}
    made = translated_body(body, ANTHROPIC, RESPONSES, "response")
    assert {name: made[name] for name in settings | states} == settings | states
    asked = {"reasoning": {"effort": "low", "summary": "auto"}, "prompt_cache_key": "k", "metadata": {"a": "b"}}
    again = translated_body(
        body, ANTHROPIC, RESPONSES, "response", request=responses_request(USER_MESSAGE, top_p=0.5, **asked)
    )
    assert {name: again[name] for name in (*asked, "top_p")} == asked | {"top_p": 0.5}


def test_a_direct_caller_is_nothing_to_say() -> None:
    """Anthropic names who calls, always; here that would be a field that compatible servers don't know."""
    call = {**anthropic_call("toolu_1"), "caller": {"type": "direct"}}
    made = translated_body(anthropic_response(call), ANTHROPIC, RESPONSES, "response")
    assert "caller" not in made["output"][0]


def test_items_of_another_protocol_get_ids_of_their_kind_that_are_always_the_same() -> None:
    thought = {"type": "thinking", "thinking": "Look.", "signature": "c2ln"}
    body = anthropic_response(thought, {"type": "text", "text": "Hm."}, anthropic_call("toolu_1"))
    made = translated_body(body, ANTHROPIC, RESPONSES, "response")
    ids = [item["id"] for item in made["output"]]
    assert [id.partition("_")[0] for id in ids] == ["rs", "msg", "fc"]
    assert len(set(ids)) == 3
    assert translated_body(body, ANTHROPIC, RESPONSES, "response")["output"] == made["output"]
    other = translated_body({**body, "id": "msg_2"}, ANTHROPIC, RESPONSES, "response")
    assert not {item["id"] for item in other["output"]} & set(ids)


def test_thinking_is_told_as_a_summary_and_its_seal_is_lost_by_name() -> None:
    body = anthropic_response({"type": "thinking", "thinking": "Look.", "signature": "c2ln"}, anthropic_call("toolu_1"))
    made = translated_body(body, ANTHROPIC, RESPONSES, "response")
    assert made["output"][0]["summary"] == [{"type": "summary_text", "text": "Look."}]
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
def test_a_stop_is_a_status(stop: str, status: str, details: Any) -> None:
    body = anthropic_response(anthropic_call("toolu_1"), stop_reason=stop)
    made = translated_body(body, ANTHROPIC, RESPONSES, "response")
    assert (made["status"], made["incomplete_details"]) == (status, details)
    assert made["output"][-1]["status"] == status


def test_a_refusal_without_words_is_the_filter_s() -> None:
    body = anthropic_response({"type": "text", "text": "I started to"}, stop_reason="refusal")
    made = translated_body(body, ANTHROPIC, RESPONSES, "response")
    assert (made["status"], made["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES, "response"), "/stop_reason")


def test_a_refusal_in_words_is_told_by_them() -> None:
    body = chat_response({"role": "assistant", "content": None, "refusal": "No."}, "stop")
    made = translated_body(body, CHAT, RESPONSES, "response")
    assert (made["status"], made["incomplete_details"]) == ("completed", None)
    assert made["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert not has_loss_at(loss_paths(body, CHAT, RESPONSES, "response"), "/choices/0/finish_reason")
    stream = chat_stream({"refusal": "No."}, finish_reason="stop")
    last = stream_frames(translate_stream_bytes(stream, CHAT, RESPONSES))[-1]
    assert (last["type"], last["response"]["output"][0]["status"]) == ("response.completed", "completed")


def test_an_error_within_a_choice_is_the_answer_s() -> None:
    wrong = {"code": 502, "message": "Provider disconnected"}
    body = chat_response({"role": "assistant", "content": "I star"}, "error")
    body["choices"][0]["error"] = wrong
    made = translated_body(body, CHAT, RESPONSES, "response")
    assert (made["status"], made["error"]) == ("failed", {"code": "server_error", "message": "Provider disconnected"})
    assert made["output"][0]["status"] == "incomplete"
    assert loss_paths(body, CHAT, RESPONSES, "response") == {"/choices/0/error/code"}
    assert translated_body(body, CHAT, CHAT, "response") == body


def test_nothing_said_beside_a_call_is_no_message() -> None:
    body = chat_response({"role": "assistant", "content": "", "tool_calls": [chat_call("call_1")]})
    made = translated_body(body, CHAT, RESPONSES, "response")
    assert [item["type"] for item in made["output"]] == ["function_call"]


def test_a_citation_by_url_spans_its_text() -> None:
    cited = {
        "type": "web_search_result_location",
        "url": "https://x.test",
        "title": "X",
        "cited_text": "q",
        "encrypted_index": "e",
    }
    body = anthropic_response({"type": "text", "text": "Paris.", "citations": [cited]}, stop_reason="end_turn")
    (item,) = translated_body(body, ANTHROPIC, RESPONSES, "response")["output"]
    assert item["content"][0]["annotations"] == [
        {"type": "url_citation", "url": "https://x.test", "title": "X", "start_index": 0, "end_index": 6}
    ]


def test_a_call_that_was_answered_in_the_same_answer_is_not_the_client_s() -> None:
    search = {
        "type": "tool_search_call",
        "id": "tsc_1",
        "call_id": "call_1",
        "execution": "client",
        "status": "completed",
        "arguments": {},
    }
    loaded = {"type": "tool_search_output", "id": "tso_1", "call_id": "call_1", "execution": "client", "tools": []}
    (candidate,) = read(search, loaded, responses_message("x")).candidates
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
def test_an_error_is_read_in_each_of_its_shapes_and_comes_home(
    body: Any, status: int | None, kind: str, message: str
) -> None:
    error = CODEC.decode_error(json.dumps(body).encode(), status)
    assert (error.kind, error.message) == (kind, message)
    encoding = CODEC.encode_error(error)
    assert json.loads(encoding.to_bytes()) == body


def test_an_error_of_another_protocol_has_all_four_fields() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}}
    made = translated_body(body, ANTHROPIC, RESPONSES, "error")
    assert made["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("tokens", "rate_limit_exceeded"),
        ("invalid_request_error", "invalid_api_key"),
        ("request_forbidden", "unsupported_country_region_territory"),
        ("server_error", None),
    ],
)
def test_an_error_of_chat_keeps_openai_s_own_words(word: str, code: str | None) -> None:
    body = {"error": {"message": "No.", "type": word, "param": None, "code": code}}
    assert translated_body(body, CHAT, RESPONSES, "error") == body
    assert not loss_paths(body, CHAT, RESPONSES, "error")


def test_the_word_of_another_vendor_is_replaced_and_reported() -> None:
    body = {"type": "error", "error": {"type": "billing_error", "message": "Pay."}}
    assert translated_body(body, ANTHROPIC, RESPONSES, "error")["error"]["type"] == "insufficient_quota"
    assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES, "error"), "/error/type")
