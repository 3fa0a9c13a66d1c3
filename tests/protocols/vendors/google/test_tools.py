"""Hosted tools translated between Google's two protocols: declarations, calls, results and signatures."""

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

# The same declaration in `generateContent` and Interactions.
DECLARATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "search": ({"googleSearch": {}}, {"type": "google_search"}),
    "image search": (
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

# The same call and result in both protocols, with the same signatures.
CALLS_AND_RESULTS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
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
    "image search": (
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


def request_body(protocol: str, tools: list[Any]) -> dict[str, Any]:
    if protocol == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": "Go"}]}], "tools": tools}
    return {"model": "gemini-3-pro", "input": "Go", "tools": tools}


@pytest.mark.parametrize(("gemini_form", "interactions_form"), DECLARATIONS.values(), ids=DECLARATIONS)
def test_declarations_are_equivalent_in_both_protocols(
    gemini_form: dict[str, Any], interactions_form: dict[str, Any]
) -> None:
    translation = tw.translate(request_body(GEMINI, [gemini_form]), GEMINI, INTERACTIONS, model="gemini-3-pro")
    assert (translation.value["tools"], list(translation.losses)) == ([interactions_form], [])
    assert gemini_interactions.accept_request(translation.value) is None
    round_trip = tw.translate(request_body(INTERACTIONS, [interactions_form]), INTERACTIONS, GEMINI)
    assert (round_trip.value["tools"], list(round_trip.losses)) == ([gemini_form], [])


def test_declarations_are_read_in_both_spellings() -> None:
    tool = {"file_search": {"file_search_store_names": ["a"], "topK": 1}}
    encoded = tw.translate(request_body(GEMINI, [tool]), GEMINI, INTERACTIONS, model="gemini-3-pro").value
    assert encoded["tools"] == [{"type": "file_search", "file_search_store_names": ["a"], "top_k": 1}]


def test_map_location_moves_to_tool_config() -> None:
    tool = {"type": "google_maps", "latitude": 59.9, "longitude": 10.7}
    translation = tw.translate(request_body(INTERACTIONS, [tool]), INTERACTIONS, GEMINI)
    assert translation.value["tools"] == [{"googleMaps": {}}]
    assert translation.value["toolConfig"] == {"retrievalConfig": {"latLng": {"latitude": 59.9, "longitude": 10.7}}}
    assert list(translation.losses) == []


def test_several_mcp_servers_share_one_bag() -> None:
    tools = [{"type": "mcp_server", "name": name, "url": "https://a.test"} for name in ("one", "two")]
    encoded = tw.translate(request_body(INTERACTIONS, tools), INTERACTIONS, GEMINI).value
    assert [[server["name"] for server in bag["mcpServers"]] for bag in encoded["tools"]] == [["one", "two"]]


def test_unshared_settings_are_reported() -> None:
    tool = {"googleSearch": {"timeRangeFilter": {"startTime": "2026-01-01T00:00:00Z"}}}
    translation = tw.translate(request_body(GEMINI, [tool]), GEMINI, INTERACTIONS, model="gemini-3-pro")
    assert [(loss.kind, loss.path) for loss in translation.losses] == [
        ("dropped", "/tools/0/googleSearch/timeRangeFilter")
    ]


def test_unshared_search_types_are_reported() -> None:
    tool = {"type": "google_search", "search_types": ["web_search", "enterprise_web_search"]}
    translation = tw.translate(request_body(INTERACTIONS, [tool]), INTERACTIONS, GEMINI)
    assert [loss.path for loss in translation.losses] == ["/tools/0/search_types/0", "/tools/0/search_types/1"]


def test_a_server_with_allowed_tools_is_dropped() -> None:
    tool = {"type": "mcp_server", "name": "docs", "url": "https://a.test", "allowed_tools": [{"tools": ["look"]}]}
    translation = tw.translate(request_body(INTERACTIONS, [tool]), INTERACTIONS, GEMINI)
    assert "tools" not in translation.value
    assert [(loss.kind, loss.path) for loss in translation.losses] == [("dropped", "/tools/0")]


@pytest.mark.parametrize("name", ["excludeDomains", "exclude_domains"])
def test_a_search_with_excluded_domains_is_refused(name: str) -> None:
    with pytest.raises(tw.LossyTranslationError):
        tw.translate(
            request_body(GEMINI, [{"googleSearch": {name: ["a.test"]}}]), GEMINI, INTERACTIONS, model="gemini-3-pro"
        )


# ---- calls and results


def history_body(protocol: str, blocks: list[Any]) -> dict[str, Any]:
    if protocol == GEMINI:
        question, follow_up = {"role": "user", "parts": [{"text": "Go"}]}, {"role": "user", "parts": [{"text": "On"}]}
        return {"contents": [question, {"role": "model", "parts": blocks}, follow_up]}
    turns = [{"type": "user_input", "content": [{"type": "text", "text": text}]} for text in ("Go", "On")]
    return {"model": "gemini-3-pro", "input": [turns[0], *blocks, turns[1]]}


def response_body(protocol: str, blocks: list[Any]) -> dict[str, Any]:
    if protocol == GEMINI:
        return {"candidates": [{"content": {"role": "model", "parts": blocks}, "finishReason": "STOP", "index": 0}]}
    return {"id": "i", "status": "completed", "model": "m", "steps": blocks}


def streamed(source: str, target: str, blocks: list[Any]) -> list[Any]:
    codec = PROTOCOLS[source]
    encoder = codec.stream_encoder(ResponseContext())
    response = codec.decode_response(json.dumps(response_body(source, blocks)).encode(), ResponseContext())
    return stream_frames(
        b"".join(tw.translate_stream([encoder.encode(list(unfold(response))) + encoder.close()], source, target))
    )


@pytest.mark.parametrize(("gemini_form", "interactions_form"), CALLS_AND_RESULTS.values(), ids=CALLS_AND_RESULTS)
def test_histories_keep_calls_results_ids_and_signatures(gemini_form: list[Any], interactions_form: list[Any]) -> None:
    translation = tw.translate(history_body(GEMINI, gemini_form), GEMINI, INTERACTIONS, model="gemini-3-pro")
    assert (translation.value["input"][1:-1], list(translation.losses)) == (interactions_form, [])
    assert gemini_interactions.accept_request(translation.value) is None
    round_trip = tw.translate(history_body(INTERACTIONS, interactions_form), INTERACTIONS, GEMINI)
    assert (round_trip.value["contents"][1]["parts"], list(round_trip.losses)) == (gemini_form, [])
    assert gemini.accept_request(round_trip.value) is None


@pytest.mark.parametrize(("gemini_form", "interactions_form"), CALLS_AND_RESULTS.values(), ids=CALLS_AND_RESULTS)
def test_responses_keep_calls_results_ids_and_signatures(gemini_form: list[Any], interactions_form: list[Any]) -> None:
    encoded = tw.translate(response_body(GEMINI, gemini_form), GEMINI, INTERACTIONS, "response").value
    assert encoded["steps"] == interactions_form
    assert gemini_interactions.accept_response(encoded) is None
    round_trip_body = tw.translate(
        response_body(INTERACTIONS, interactions_form), INTERACTIONS, GEMINI, "response"
    ).value
    assert round_trip_body["candidates"][0]["content"]["parts"] == gemini_form
    assert gemini.accept_response(round_trip_body) is None


@pytest.mark.parametrize(("gemini_form", "interactions_form"), CALLS_AND_RESULTS.values(), ids=CALLS_AND_RESULTS)
def test_streams_keep_calls_results_ids_and_signatures(gemini_form: list[Any], interactions_form: list[Any]) -> None:
    chunks = streamed(INTERACTIONS, GEMINI, interactions_form)
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert parts == [*gemini_form, {"text": ""}]
    events = streamed(GEMINI, INTERACTIONS, gemini_form)
    steps: list[Any] = []
    for event in events:
        if event["event_type"] == "step.start":
            steps.append(event["step"])
        elif event["event_type"] == "step.delta":
            assert event["delta"]["type"] == steps[event["index"]]["type"]
            steps[event["index"]] |= event["delta"]
    assert steps == interactions_form


def test_code_without_an_id_gets_one_for_call_and_result() -> None:
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
    ]
    encoded = tw.translate(history_body(GEMINI, parts), GEMINI, INTERACTIONS, model="gemini-3-pro").value["input"]
    assert encoded[1]["id"] == encoded[2]["call_id"] != ""


def test_results_of_tools_without_content_are_reported() -> None:
    response = {"result": [{"text": "Paris."}]}
    parts = [
        {"toolCall": {"id": "a", "toolType": "FILE_SEARCH", "args": {}}},
        {"toolResponse": {"id": "a", "toolType": "FILE_SEARCH", "response": response}},
    ]
    translation = tw.translate(history_body(GEMINI, parts), GEMINI, INTERACTIONS, model="gemini-3-pro")
    assert [(loss.kind, loss.path) for loss in translation.losses] == [
        ("dropped", "/contents/1/parts/1/toolResponse/response")
    ]
    assert translation.value["input"][2] == {"type": "file_search_result", "call_id": "a"}


def test_older_models_get_hosted_calls_as_text() -> None:
    steps = [*CALLS_AND_RESULTS["search"][1], *CALLS_AND_RESULTS["code"][1]]
    encoded = tw.translate(history_body(INTERACTIONS, steps), INTERACTIONS, GEMINI, model="gemini-2.5-flash").value
    kinds = [next(iter(part)) for part in encoded["contents"][1]["parts"]]
    assert kinds == ["text", "text", "executableCode", "codeExecutionResult"]


@pytest.mark.parametrize("tool", ["retrieval", "mcp_server_tool"])
def test_unshared_hosted_calls_are_sent_as_text(tool: str) -> None:
    steps = [
        {"type": f"{tool}_call", "id": "a", "name": "look", "arguments": {"q": 1}},
        {"type": f"{tool}_result", "call_id": "a", "result": "Thirty days."},
    ]
    translation = tw.translate(history_body(INTERACTIONS, steps), INTERACTIONS, GEMINI)
    assert "Thirty days." in translation.value["contents"][1]["parts"][1]["text"]
    assert {loss.kind for loss in translation.losses} == {"approximated"}


def test_failed_hosted_tools_are_reported() -> None:
    call, result = CALLS_AND_RESULTS["fetch"][1]
    translation = tw.translate(history_body(INTERACTIONS, [call, {**result, "is_error": True}]), INTERACTIONS, GEMINI)
    assert [(loss.kind, loss.path) for loss in translation.losses] == [("dropped", "/input/2/is_error")]
