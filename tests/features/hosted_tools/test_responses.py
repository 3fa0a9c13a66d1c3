"""Hosted calls of one provider as clients of other vendors receive them, as a body and as a stream."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.hosted_calls import (
    GEMINI,
    HOSTED_ARGUMENTS,
    HOSTED_CALLS,
    HOSTED_CASES,
    INTERACTIONS,
    OLLAMA,
    ROUTER,
    response_with_blocks,
    translate_hosted_stream,
)
from tests.support.bodies.readers import stream_frames
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.sdk import validation


def check_anthropic(blocks: list[Any], kind: str, *, pages: bool) -> None:
    call, result = blocks
    assert (call["type"], call["name"], call["input"]) == ("server_tool_use", kind, HOSTED_ARGUMENTS[kind])
    assert call["id"].startswith("srvtoolu_")
    assert (result["type"], result["tool_use_id"]) == (f"{kind}_tool_result", call["id"])
    if kind == "code_execution":
        assert (result["content"]["stdout"], result["content"]["return_code"]) == ("1\n", 0)
    if kind == "web_search":
        assert [page["url"] for page in result["content"]] == (["https://a.test"] if pages else [])


@pytest.mark.parametrize(("source", "kind"), [case for case in HOSTED_CASES if case[0] != ANTHROPIC])
def test_a_client_of_anthropic_reads_a_call_and_its_result(source: str, kind: str) -> None:
    translated = tw.translate(
        response_with_blocks(source, HOSTED_CALLS[source][kind]), source, ANTHROPIC, "response"
    ).value
    check_anthropic(translated["content"], kind, pages=source == RESPONSES)
    counted = {"web_search_requests": int(kind == "web_search"), "web_fetch_requests": int(kind == "web_fetch")}
    assert translated["usage"]["server_tool_use"] == counted
    assert translated["stop_reason"] == "end_turn"


@pytest.mark.parametrize("kind", HOSTED_ARGUMENTS)
@pytest.mark.parametrize("source", [RESPONSES, GEMINI, INTERACTIONS])
def test_a_client_of_anthropic_reads_a_streamed_call_and_its_result(source: str, kind: str) -> None:
    wire = translate_hosted_stream(source, HOSTED_CALLS[source][kind], ANTHROPIC)
    events = stream_frames(wire)
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    check_anthropic(blocks, kind, pages=source == RESPONSES)
    (message_delta,) = [event for event in events if event["type"] == "message_delta"]
    assert message_delta["delta"]["stop_reason"] == "end_turn"
    assert message_delta["usage"]["server_tool_use"]["web_search_requests"] == int(kind == "web_search")


def check_responses(items: list[Any], kind: str, *, pages: bool) -> None:
    (item,) = items
    assert item["status"] == "completed"
    if kind == "code_execution":
        assert (item["type"], item["code"]) == ("code_interpreter_call", "print(1)")
        assert item["outputs"] == [{"type": "logs", "logs": "1\n"}]
        return
    assert item["type"] == "web_search_call"
    assert item["id"].startswith("ws_")
    if kind == "web_fetch":
        assert item["action"] == {"type": "open_page", "url": "https://a.test"}
    else:
        assert (item["action"]["query"], item["action"]["queries"]) == ("Oslo", ["Oslo"])
        assert [source["url"] for source in item["action"]["sources"]] == (["https://a.test"] if pages else [])


@pytest.mark.parametrize(("source", "kind"), [case for case in HOSTED_CASES if case[0] != RESPONSES])
def test_a_client_of_responses_reads_an_item(source: str, kind: str) -> None:
    translated = tw.translate(
        response_with_blocks(source, HOSTED_CALLS[source][kind]), source, RESPONSES, "response"
    ).value
    check_responses(translated["output"], kind, pages=source == ANTHROPIC)


@pytest.mark.parametrize("kind", HOSTED_ARGUMENTS)
@pytest.mark.parametrize("source", [ANTHROPIC, GEMINI, INTERACTIONS])
def test_a_client_of_responses_reads_a_streamed_item(source: str, kind: str) -> None:
    events = stream_frames(translate_hosted_stream(source, HOSTED_CALLS[source][kind], RESPONSES))
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    check_responses(items, kind, pages=source == ANTHROPIC)
    assert events[-1]["response"]["output"] == items


def test_the_text_of_a_page_is_quoted() -> None:
    citation = {"url": "https://a.test", "title": "A", "content": "Sunny all day.", "start_index": 0, "end_index": 6}
    message = {
        "role": "assistant",
        "content": "Sunny.",
        "annotations": [{"type": "url_citation", "url_citation": citation}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "gen-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    translated = tw.translate(body, ROUTER, ANTHROPIC, "response")
    (note,) = translated.value["content"][0]["citations"]
    assert note["cited_text"] == "Sunny all day."
    assert not [loss for loss in translated.losses if loss.path.endswith("/content")]
    assert tw.translate(body, ROUTER, ROUTER, "response").value == body


def test_failed_code_is_marked_as_failed_in_a_history() -> None:
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "0 / 0"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED"}},
    ]
    contents = [{"role": "user", "parts": [{"text": "0 / 0?"}]}, {"role": "model", "parts": parts}]
    translated = tw.translate({"contents": contents}, GEMINI, ANTHROPIC, model="gemini-3-pro").value
    assert translated["messages"][1]["content"][1]["text"] == "[codeExecutionResult failed: no readable content]"


def test_finding_text_in_a_page_is_no_search() -> None:
    action = {"type": "find_in_page", "url": "https://a.test", "pattern": "18"}
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [item]}
    translated = tw.translate(body, RESPONSES, ANTHROPIC, "response").value
    assert translated["content"][0] == {
        "type": "server_tool_use",
        "id": "srvtoolu_ws_1",
        "name": "web_fetch",
        "input": {"url": "https://a.test"},
    }
    assert translated["usage"]["server_tool_use"] == {"web_search_requests": 0, "web_fetch_requests": 1}


def test_failed_code_is_marked_as_failed() -> None:
    parts = [
        HOSTED_CALLS[GEMINI]["code_execution"][0],
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "oops"}},
    ]
    body = response_with_blocks(GEMINI, parts)
    (_, result) = tw.translate(body, GEMINI, ANTHROPIC, "response").value["content"]
    assert (result["content"]["return_code"], result["content"]["stderr"]) == (1, "oops")
    (item,) = tw.translate(body, GEMINI, RESPONSES, "response").value["output"]
    assert item["status"] == "failed"


@pytest.mark.parametrize("kind", ["web_search", "web_fetch"])
def test_a_failed_search_or_fetch_is_marked_as_failed(kind: str) -> None:
    call, result = HOSTED_CALLS[INTERACTIONS][kind]
    body = response_with_blocks(INTERACTIONS, [call, {**result, "is_error": True}])
    translated = tw.translate(body, INTERACTIONS, ANTHROPIC, "response").value
    assert translated["content"][1]["content"] == {"type": f"{kind}_tool_result_error", "error_code": "unavailable"}
    assert validation.accept_response(ANTHROPIC, translated) is None


def test_failed_code_of_openai_is_marked_as_failed() -> None:
    (item,) = HOSTED_CALLS[RESPONSES]["code_execution"]
    body = response_with_blocks(
        RESPONSES, [{**item, "status": "failed", "outputs": [{"type": "logs", "logs": "oops"}]}]
    )
    (_, result) = tw.translate(body, RESPONSES, ANTHROPIC, "response").value["content"]
    assert (result["content"]["return_code"], result["content"]["stderr"]) == (1, "oops")
    translated = tw.translate(body, RESPONSES, GEMINI, "response").value
    code_result = translated["candidates"][0]["content"]["parts"][1]["codeExecutionResult"]
    assert (code_result["outcome"], code_result["output"]) == ("OUTCOME_FAILED", "oops")
    (_, step) = tw.translate(body, RESPONSES, INTERACTIONS, "response").value["steps"]
    assert (step["is_error"], step["result"]) == (True, "oops")


@pytest.mark.parametrize("kind", ["web_search", "web_fetch", "code_execution"])
def test_failed_tools_of_anthropic_are_marked_as_failed(kind: str) -> None:
    error = {"type": f"{kind}_tool_result_error", "error_code": "unavailable"}
    result = {"type": f"{kind}_tool_result", "tool_use_id": "srvtoolu_1", "content": error}
    body = response_with_blocks(ANTHROPIC, [HOSTED_CALLS[ANTHROPIC][kind][0], result])
    (item,) = tw.translate(body, ANTHROPIC, RESPONSES, "response").value["output"]
    assert item["status"] == "failed"
    assert tw.translate(body, ANTHROPIC, ANTHROPIC, "response").value == body


def test_a_search_within_code_stays_paired_with_its_own_result() -> None:
    (code, code_result), (search, search_result) = (
        HOSTED_CALLS[ANTHROPIC]["code_execution"],
        HOSTED_CALLS[ANTHROPIC]["web_search"],
    )
    blocks = [code, {**search, "id": "srvtoolu_2"}, {**search_result, "tool_use_id": "srvtoolu_2"}, code_result]
    translated = tw.translate(response_with_blocks(ANTHROPIC, blocks), ANTHROPIC, RESPONSES, "response").value["output"]
    assert [(item["type"], item["status"]) for item in translated] == [
        ("web_search_call", "completed"),
        ("code_interpreter_call", "completed"),
    ]
    assert (translated[1]["code"], translated[1]["outputs"]) == ("print(1)", [{"type": "logs", "logs": "1\n"}])
    events = stream_frames(translate_hosted_stream(ANTHROPIC, blocks, RESPONSES))
    assert events[-1]["response"]["output"] == translated


def test_a_pending_hosted_call_precedes_the_call_it_waits_for() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    blocks = [HOSTED_CALLS[ANTHROPIC]["code_execution"][0], call]
    translated = tw.translate(response_with_blocks(ANTHROPIC, blocks), ANTHROPIC, RESPONSES, "response").value["output"]
    assert [(item["type"], item["status"]) for item in translated] == [
        ("code_interpreter_call", "incomplete"),
        ("function_call", "completed"),
    ]
    events = stream_frames(translate_hosted_stream(ANTHROPIC, blocks, RESPONSES))
    assert events[-1]["response"]["output"] == translated


RESULT_TEXTS = {
    "string": ("mcp_tool_result", "not found", "[mcp_tool_result: [tool error] not found]"),
    "page": (
        "web_fetch_tool_result",
        {
            "type": "web_fetch_result",
            "url": "https://a.test",
            "content": {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "18 degrees."},
            },
        },
        "[web_fetch_tool_result: https://a.test\n18 degrees.]",
    ),
    "pdf": (
        "web_fetch_tool_result",
        {
            "type": "web_fetch_result",
            "url": "https://a.test",
            "content": {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            },
        },
        "[web_fetch_tool_result: https://a.test]",
    ),
    "lines": (
        "text_editor_code_execution_tool_result",
        {"type": "text_editor_code_execution_str_replace_result", "lines": ["-x", "+y"]},
        "[text_editor_code_execution_tool_result: -x\n+y]",
    ),
    "error": (
        "text_editor_code_execution_tool_result",
        {"type": "text_editor_code_execution_tool_result_error", "error_code": "no_file", "error_message": "gone"},
        "[text_editor_code_execution_tool_result: [tool error] no_file\ngone]",
    ),
}


@pytest.mark.parametrize(("native", "content", "expected"), RESULT_TEXTS.values(), ids=RESULT_TEXTS)
def test_the_complete_result_is_sent_to_the_next_model(native: str, content: Any, expected: str) -> None:
    result = {"type": native, "tool_use_id": "srvtoolu_1", "content": content}
    if isinstance(content, str):
        result["is_error"] = True
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [result]},
        {"role": "user", "content": "?"},
    ]
    body = {"model": "m", "max_tokens": 99, "messages": messages}
    assert tw.translate(body, ANTHROPIC, RESPONSES).value["input"][1] == {"role": "assistant", "content": expected}
    assert tw.translate(body, ANTHROPIC, OLLAMA).value["messages"][1]["content"] == expected
    assert tw.translate(body, ANTHROPIC, ANTHROPIC).value == body


@pytest.mark.parametrize(
    ("source", "kind", "target"),
    [
        (*case, target)
        for case in HOSTED_CASES
        for target in (*HOSTED_CALLS, CHAT, OLLAMA, ROUTER)
        if target != case[0] and {case[0], target} != {GEMINI, INTERACTIONS}
    ],
)
def test_hosted_calls_in_a_history_are_sent_as_text(source: str, kind: str, target: str) -> None:
    blocks = HOSTED_CALLS[source][kind]
    histories: dict[str, dict[str, Any]] = {
        ANTHROPIC: {
            "model": "m",
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": "Go"},
                {"role": "assistant", "content": blocks},
                {"role": "user", "content": "And?"},
            ],
        },
        RESPONSES: {"model": "m", "input": [{"role": "user", "content": "Go"}, *blocks]},
        GEMINI: {"contents": [{"role": "user", "parts": [{"text": "Go"}]}, {"role": "model", "parts": blocks}]},
        INTERACTIONS: {"model": "m", "input": [{"type": "user_input", "content": "Go"}, *blocks]},
    }
    translated = tw.translate(histories[source], source, target, model="gemini-3-pro")
    text = translated.to_bytes().decode()
    assert next(iter(HOSTED_ARGUMENTS[kind].values())) in text
    assert "srvtoolu_" not in text
    assert '"web_search_call"' not in text
    assert any(loss.kind == "approximated" for loss in translated.losses)
