"""Google's own tools between its two protocols: declared, called, answered and proved in the words of either."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.readers import stream_frames
from tests.support.sdk import gemini, gemini_interactions
from toolwire.canonical.fold import unfold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

GEMINI, INTERACTIONS = "gemini", "gemini-interactions"

# The same declaration in both.
DECLARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "search": ({"googleSearch": {}}, {"type": "google_search"}),
    "search of pictures": (
        {"googleSearch": {"searchTypes": {"webSearch": {}, "imageSearch": {}}}},
        {"type": "google_search", "search_types": ["web_search", "image_search"]},
    ),
    "fetch": ({"urlContext": {}}, {"type": "url_context"}),
    "code": ({"codeExecution": {}}, {"type": "code_execution"}),
    "files": (
        {"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/a"], "topK": 3, "metadataFilter": "year>2020"}},
        {
            "type": "file_search",
            "file_search_store_names": ["fileSearchStores/a"],
            "top_k": 3,
            "metadata_filter": "year>2020",
        },
    ),
    "maps": ({"googleMaps": {"enableWidget": True}}, {"type": "google_maps", "enable_widget": True}),
    "computer": (
        {
            "computerUse": {
                "environment": "ENVIRONMENT_BROWSER",
                "excludedPredefinedFunctions": ["drag_and_drop"],
                "enablePromptInjectionDetection": True,
                "disabledSafetyPolicies": ["ACCOUNT_CREATION"],
            }
        },
        {
            "type": "computer_use",
            "environment": "browser",
            "excluded_predefined_functions": ["drag_and_drop"],
            "enable_prompt_injection_detection": True,
            "disabled_safety_policies": ["account_creation"],
        },
    ),
    "mcp": (
        {"mcpServers": [{"name": "docs", "streamableHttpTransport": {"url": "https://a.test", "headers": {"k": "v"}}}]},
        {"type": "mcp_server", "name": "docs", "url": "https://a.test", "headers": {"k": "v"}},
    ),
}

# The same call and result in both. What was signed stays signed.
RAN: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "search": (
        [
            {
                "toolCall": {"id": "a", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["Oslo"]}},
                "thoughtSignature": "c2ln",
            },
            {
                "toolResponse": {
                    "id": "a",
                    "toolType": "GOOGLE_SEARCH_WEB",
                    "response": {"search_suggestions": "<p>Oslo</p>"},
                },
                "thoughtSignature": "cmVz",
            },
        ],
        [
            {"type": "google_search_call", "id": "a", "arguments": {"queries": ["Oslo"]}, "signature": "c2ln"},
            {
                "type": "google_search_result",
                "call_id": "a",
                "result": [{"search_suggestions": "<p>Oslo</p>"}],
                "signature": "cmVz",
            },
        ],
    ),
    "search of pictures": (
        [
            {"toolCall": {"id": "a", "toolType": "GOOGLE_SEARCH_IMAGE", "args": {"queries": ["Oslo"]}}},
            {"toolResponse": {"id": "a", "toolType": "GOOGLE_SEARCH_IMAGE", "response": {"search_suggestions": "x"}}},
        ],
        [
            {
                "type": "google_search_call",
                "id": "a",
                "arguments": {"queries": ["Oslo"]},
                "search_type": "image_search",
            },
            {"type": "google_search_result", "call_id": "a", "result": [{"search_suggestions": "x"}]},
        ],
    ),
    "fetch": (
        [
            {"toolCall": {"id": "a", "toolType": "URL_CONTEXT", "args": {"urls": ["https://a.test"]}}},
            {
                "toolResponse": {
                    "id": "a",
                    "toolType": "URL_CONTEXT",
                    "response": {"result": [{"url": "https://a.test", "status": "success"}]},
                }
            },
        ],
        [
            {"type": "url_context_call", "id": "a", "arguments": {"urls": ["https://a.test"]}},
            {"type": "url_context_result", "call_id": "a", "result": [{"url": "https://a.test", "status": "success"}]},
        ],
    ),
    "maps": (
        [
            {"toolCall": {"id": "a", "toolType": "GOOGLE_MAPS", "args": {"queries": ["museums"]}}},
            {"toolResponse": {"id": "a", "toolType": "GOOGLE_MAPS", "response": {"places": [{"name": "Louvre"}]}}},
        ],
        [
            {"type": "google_maps_call", "id": "a", "arguments": {"queries": ["museums"]}},
            {"type": "google_maps_result", "call_id": "a", "result": [{"places": [{"name": "Louvre"}]}]},
        ],
    ),
    "files": (
        [
            {"toolCall": {"id": "a", "toolType": "FILE_SEARCH"}, "thoughtSignature": "c2ln"},
            {"toolResponse": {"id": "a", "toolType": "FILE_SEARCH"}, "thoughtSignature": "cmVz"},
        ],
        [
            {"type": "file_search_call", "id": "a", "signature": "c2ln"},
            {"type": "file_search_result", "call_id": "a", "signature": "cmVz"},
        ],
    ),
    "processing": (
        [
            {"toolCall": {"id": "a", "toolType": "MEDIA_PROCESSING"}},
            {"toolResponse": {"id": "a", "toolType": "MEDIA_PROCESSING"}},
        ],
        [{"type": "processing_call", "id": "a"}, {"type": "processing_result", "call_id": "a"}],
    ),
    "code": (
        [
            {
                "executableCode": {"language": "PYTHON", "code": "print(1)", "id": "a"},
                "thoughtSignature": "c2ln",
            },
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n", "id": "a"}},
        ],
        [
            {
                "type": "code_execution_call",
                "id": "a",
                "arguments": {"language": "python", "code": "print(1)"},
                "signature": "c2ln",
            },
            {"type": "code_execution_result", "call_id": "a", "result": "1\n"},
        ],
    ),
    "code that failed": (
        [
            {"executableCode": {"language": "PYTHON", "code": "0 / 0", "id": "a"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "oops", "id": "a"}},
        ],
        [
            {"type": "code_execution_call", "id": "a", "arguments": {"language": "python", "code": "0 / 0"}},
            {"type": "code_execution_result", "call_id": "a", "result": "oops", "is_error": True},
        ],
    ),
}


def asking(protocol: str, tools: list[Any]) -> dict[str, Any]:
    if protocol == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": "Go"}]}], "tools": tools}
    return {"model": "gemini-3-pro", "input": "Go", "tools": tools}


@pytest.mark.parametrize(("older", "newer"), DECLARED.values(), ids=DECLARED)
def test_a_declaration_says_the_same(older: dict[str, Any], newer: dict[str, Any]) -> None:
    made = tw.translate(asking(GEMINI, [older]), GEMINI, INTERACTIONS, model="gemini-3-pro")
    assert (made.value["tools"], list(made.losses)) == ([newer], [])
    assert gemini_interactions.accept_request(made.value) is None
    back = tw.translate(asking(INTERACTIONS, [newer]), INTERACTIONS, GEMINI)
    assert (back.value["tools"], list(back.losses)) == ([older], [])


def test_either_spelling_is_read() -> None:
    tool = {"file_search": {"file_search_store_names": ["a"], "topK": 1}}
    made = tw.translate(asking(GEMINI, [tool]), GEMINI, INTERACTIONS, model="gemini-3-pro").value
    assert made["tools"] == [{"type": "file_search", "file_search_store_names": ["a"], "top_k": 1}]


def test_where_the_user_is_stands_in_the_config_of_tools() -> None:
    tool = {"type": "google_maps", "latitude": 59.9, "longitude": 10.7}
    made = tw.translate(asking(INTERACTIONS, [tool]), INTERACTIONS, GEMINI)
    assert made.value["tools"] == [{"googleMaps": {}}]
    assert made.value["toolConfig"] == {"retrievalConfig": {"latLng": {"latitude": 59.9, "longitude": 10.7}}}
    assert list(made.losses) == []


def test_several_servers_share_a_member() -> None:
    tools = [{"type": "mcp_server", "name": name, "url": "https://a.test"} for name in ("one", "two")]
    made = tw.translate(asking(INTERACTIONS, tools), INTERACTIONS, GEMINI).value
    assert [[one["name"] for one in bag["mcpServers"]] for bag in made["tools"]] == [["one", "two"]]


def test_a_setting_that_only_one_has_is_reported() -> None:
    tool = {"googleSearch": {"timeRangeFilter": {"startTime": "2026-01-01T00:00:00Z"}}}
    made = tw.translate(asking(GEMINI, [tool]), GEMINI, INTERACTIONS, model="gemini-3-pro")
    assert [(loss.kind, loss.path) for loss in made.losses] == [("dropped", "/tools/0/googleSearch/timeRangeFilter")]


def test_a_search_that_only_one_has_is_reported_by_its_place() -> None:
    tool = {"type": "google_search", "search_types": ["web_search", "enterprise_web_search"]}
    made = tw.translate(asking(INTERACTIONS, [tool]), INTERACTIONS, GEMINI)
    assert [loss.path for loss in made.losses] == ["/tools/0/search_types/0", "/tools/0/search_types/1"]


def test_a_server_of_which_only_some_tools_may_be_called_is_left_out() -> None:
    tool = {"type": "mcp_server", "name": "docs", "url": "https://a.test", "allowed_tools": [{"tools": ["look"]}]}
    made = tw.translate(asking(INTERACTIONS, [tool]), INTERACTIONS, GEMINI)
    assert "tools" not in made.value
    assert [(loss.kind, loss.path) for loss in made.losses] == [("dropped", "/tools/0")]


@pytest.mark.parametrize("name", ["excludeDomains", "exclude_domains"])
def test_a_search_that_must_leave_out_domains_is_refused(name: str) -> None:
    with pytest.raises(tw.LossyTranslationError):
        tw.translate(asking(GEMINI, [{"googleSearch": {name: ["a.test"]}}]), GEMINI, INTERACTIONS, model="gemini-3-pro")


# ---- calls and results


def history(protocol: str, blocks: list[Any]) -> dict[str, Any]:
    if protocol == GEMINI:
        ask, on = {"role": "user", "parts": [{"text": "Go"}]}, {"role": "user", "parts": [{"text": "On"}]}
        return {"contents": [ask, {"role": "model", "parts": blocks}, on]}
    said = [{"type": "user_input", "content": [{"type": "text", "text": text}]} for text in ("Go", "On")]
    return {"model": "gemini-3-pro", "input": [said[0], *blocks, said[1]]}


def answer(protocol: str, blocks: list[Any]) -> dict[str, Any]:
    if protocol == GEMINI:
        return {"candidates": [{"content": {"role": "model", "parts": blocks}, "finishReason": "STOP", "index": 0}]}
    return {"id": "i", "status": "completed", "model": "m", "steps": blocks}


def streamed(source: str, target: str, blocks: list[Any]) -> list[Any]:
    codec = PROTOCOLS[source]
    told = codec.stream_encoder(ResponseContext())
    whole = codec.decode_response(json.dumps(answer(source, blocks)).encode(), ResponseContext())
    return stream_frames(
        b"".join(tw.translate_stream([told.encode(list(unfold(whole))) + told.close()], source, target))
    )


@pytest.mark.parametrize(("older", "newer"), RAN.values(), ids=RAN)
def test_a_history_keeps_calls_results_ids_and_proofs(older: list[Any], newer: list[Any]) -> None:
    made = tw.translate(history(GEMINI, older), GEMINI, INTERACTIONS, model="gemini-3-pro")
    assert (made.value["input"][1:-1], list(made.losses)) == (newer, [])
    assert gemini_interactions.accept_request(made.value) is None
    back = tw.translate(history(INTERACTIONS, newer), INTERACTIONS, GEMINI)
    assert (back.value["contents"][1]["parts"], list(back.losses)) == (older, [])
    assert gemini.accept_request(back.value) is None


@pytest.mark.parametrize(("older", "newer"), RAN.values(), ids=RAN)
def test_so_does_an_answer(older: list[Any], newer: list[Any]) -> None:
    made = tw.translate(answer(GEMINI, older), GEMINI, INTERACTIONS, "response").value
    assert made["steps"] == newer
    assert gemini_interactions.accept_response(made) is None
    back = tw.translate(answer(INTERACTIONS, newer), INTERACTIONS, GEMINI, "response").value
    assert back["candidates"][0]["content"]["parts"] == older
    assert gemini.accept_response(back) is None


@pytest.mark.parametrize(("older", "newer"), RAN.values(), ids=RAN)
def test_so_does_a_stream(older: list[Any], newer: list[Any]) -> None:
    chunks = streamed(INTERACTIONS, GEMINI, newer)
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert parts == [*older, {"text": ""}]
    events = streamed(GEMINI, INTERACTIONS, older)
    steps: list[Any] = []
    for event in events:
        if event["event_type"] == "step.start":
            steps.append(event["step"])
        elif event["event_type"] == "step.delta":
            assert event["delta"]["type"] == steps[event["index"]]["type"]
            steps[event["index"]] |= event["delta"]
    assert steps == newer


def test_code_without_an_id_gets_one_for_both_steps() -> None:
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
    ]
    made = tw.translate(history(GEMINI, parts), GEMINI, INTERACTIONS, model="gemini-3-pro").value["input"]
    assert made[1]["id"] == made[2]["call_id"] != ""


def test_what_a_silent_tool_found_is_reported() -> None:
    found = {"result": [{"text": "Paris."}]}
    parts = [
        {"toolCall": {"id": "a", "toolType": "FILE_SEARCH", "args": {}}},
        {"toolResponse": {"id": "a", "toolType": "FILE_SEARCH", "response": found}},
    ]
    made = tw.translate(history(GEMINI, parts), GEMINI, INTERACTIONS, model="gemini-3-pro")
    assert [(loss.kind, loss.path) for loss in made.losses] == [
        ("dropped", "/contents/1/parts/1/toolResponse/response")
    ]
    assert made.value["input"][2] == {"type": "file_search_result", "call_id": "a"}


def test_a_model_that_knows_no_such_parts_reads_them_as_text() -> None:
    steps = [*RAN["search"][1], *RAN["code"][1]]
    made = tw.translate(history(INTERACTIONS, steps), INTERACTIONS, GEMINI, model="gemini-2.5-flash").value
    kinds = [next(iter(part)) for part in made["contents"][1]["parts"]]
    assert kinds == ["text", "text", "executableCode", "codeExecutionResult"]


@pytest.mark.parametrize("word", ["retrieval", "mcp_server_tool"])
def test_what_only_the_newer_one_has_is_told_as_text(word: str) -> None:
    steps = [
        {"type": f"{word}_call", "id": "a", "name": "look", "arguments": {"q": 1}},
        {"type": f"{word}_result", "call_id": "a", "result": "Thirty days."},
    ]
    made = tw.translate(history(INTERACTIONS, steps), INTERACTIONS, GEMINI)
    assert "Thirty days." in made.value["contents"][1]["parts"][1]["text"]
    assert {loss.kind for loss in made.losses} == {"approximated"}


def test_that_a_tool_failed_is_reported_where_there_is_no_word_for_it() -> None:
    call, result = RAN["fetch"][1]
    made = tw.translate(history(INTERACTIONS, [call, {**result, "is_error": True}]), INTERACTIONS, GEMINI)
    assert [(loss.kind, loss.path) for loss in made.losses] == [("dropped", "/input/2/is_error")]
