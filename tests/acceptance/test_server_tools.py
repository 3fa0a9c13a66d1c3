"""Server tools, tool search, callers and namespaces (SV-1 to SV-13)."""

from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    USER_MESSAGE,
    anthropic_call,
    anthropic_request,
    anthropic_response,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_response,
    responses_call,
    responses_message,
    responses_output,
    responses_request,
    responses_response,
    responses_tool,
)
from tests.support.bodies.readers import declared_schemas, responses_items, tool_calls_in, tool_results_in
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.translation import has_loss_at, loss_paths, translated_body

SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
PLAIN: dict[str, Any] = anthropic_tool("plain")
CUSTOM: dict[str, Any] = {"type": "custom", "name": "patch", "description": "Applies a patch."}
CRM: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [responses_tool("list")],
}
SHOP: dict[str, Any] = {
    "type": "namespace",
    "name": "shop",
    "description": "Orders.",
    "tools": [responses_tool("list")],
}


def test_sv_1_a_search_tool_is_mapped_reported_emulated_or_refused() -> None:
    body = anthropic_request(tools=[SEARCH, PLAIN])
    mapped = translated_body(body, ANTHROPIC, RESPONSES)
    assert mapped["tools"][0] == {"type": "web_search"}
    assert not has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES), "/tools/0")
    assert translated_body(mapped, RESPONSES, ANTHROPIC)["tools"][0] == SEARCH
    action = {"type": "search", "query": "x", "sources": [{"type": "url", "url": "https://a.test"}]}
    search_call = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    response = translated_body(responses_response(search_call), RESPONSES, ANTHROPIC, "response", request=body)
    assert [block["type"] for block in response["content"]] == ["server_tool_use", "web_search_tool_result"]
    assert response["usage"]["server_tool_use"]["web_search_requests"] == 1
    assert list(declared_schemas(CHAT, translated_body(body, ANTHROPIC, CHAT))) == ["plain"]
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/tools/0")
    emulated = declared_schemas(CHAT, translated_body(body, ANTHROPIC, CHAT, hosted_tools="function"))
    assert list(emulated) == ["google_web_search", "plain"]
    assert "query" in emulated["google_web_search"]["properties"]
    with pytest.raises(toolwire.LossyTranslationError, match="/tools/0"):
        translated_body(body, ANTHROPIC, CHAT, hosted_tools="refuse")


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
@pytest.mark.parametrize("kind", ["memory_20250818", "tool_search_tool_bm25_20251119", "something_20270101"])
def test_sv_3_a_tool_without_equivalent_is_named(kind: str, target: str) -> None:
    body = anthropic_request(tools=[{"type": kind, "name": kind.rsplit("_", 1)[0]}, PLAIN])
    assert "plain" in declared_schemas(target, translated_body(body, ANTHROPIC, target))
    assert has_loss_at(loss_paths(body, ANTHROPIC, target), "/tools/0")
    if "tool_search" not in kind or target == CHAT:  # Responses has a tool search of its own
        with pytest.raises(toolwire.LossyTranslationError, match="/tools/0"):
            translated_body(body, ANTHROPIC, target, strict=True)


HOSTED = [
    {"type": "web_search"},
    {"type": "image_generation"},
    {"type": "tool_search", "execution": "server"},
]


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT])
def test_sv_4_every_built_in_tool_is_mapped_or_reported(target: str) -> None:
    body = responses_request(tools=[*HOSTED, CRM, CUSTOM, responses_tool()])
    translated = translated_body(body, RESPONSES, target)
    paths = loss_paths(body, RESPONSES, target)
    declared = declared_schemas(target, translated)
    assert {"patch", "get_weather"} <= declared.keys()
    assert len([name for name in declared if "list" in name]) == 1
    for at, tool in enumerate(HOSTED):
        assert has_loss_at(paths, f"/tools/{at}") or tool["type"] in str(translated), tool


TOOL_SEARCH = responses_request(
    USER_MESSAGE,
    {
        "type": "tool_search_call",
        "id": "tsc_1",
        "call_id": "call_1",
        "execution": "client",
        "arguments": {"query": "weather"},
        "status": "completed",
    },
    {
        "type": "tool_search_output",
        "id": "tso_1",
        "call_id": "call_1",
        "execution": "client",
        "tools": [responses_tool("found", defer_loading=True)],
        "status": "completed",
    },
    tools=[
        {
            "type": "tool_search",
            "execution": "client",
            "description": "Find tools.",
            "parameters": {"type": "object"},
        }
    ],
)


def test_sv_6_tool_search_keeps_its_exact_shape() -> None:
    translated = translated_body(TOOL_SEARCH, RESPONSES, RESPONSES)
    assert translated == TOOL_SEARCH
    assert translated["input"][1]["execution"] == "client"
    nested = anthropic_result("toolu_1", [{"type": "tool_reference", "tool_name": "plain"}])
    body = anthropic_turn([anthropic_call("toolu_1")], [nested], tools=[{**PLAIN, "defer_loading": True}])
    assert translated_body(body, ANTHROPIC, ANTHROPIC) == body


def test_sv_7_tool_search_items_keep_their_ids_in_the_next_request() -> None:
    search_items = TOOL_SEARCH["input"][1:]
    response = responses_response(*search_items, responses_call("call_2", "found", id="fc_2"))
    outputs = [{"id": "call_2", "output": "18C"}]
    next_request = toolwire.continue_request(responses_request(USER_MESSAGE), response, outputs, RESPONSES)
    assert next_request["input"][1:3] == search_items


def test_sv_8_a_tool_that_a_result_references_is_declared() -> None:
    nested = anthropic_result("toolu_1", [{"type": "tool_reference", "tool_name": "plain"}])
    deferred = [{**PLAIN, "defer_loading": True}, anthropic_tool("search")]
    body = anthropic_turn([anthropic_call("toolu_1", "search")], [nested], tools=deferred)
    translated = translated_body(body, ANTHROPIC, CHAT)
    assert declared_schemas(CHAT, translated)["plain"] == PLAIN["input_schema"]
    assert "plain" in tool_results_in(CHAT, translated)[0][1]


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_sv_9_a_tool_that_only_code_may_call_is_refused(target: str) -> None:
    body = anthropic_request(tools=[anthropic_tool(allowed_callers=["code_execution_20250825"])])
    with pytest.raises(toolwire.LossyTranslationError, match="allowed_callers"):
        translated_body(body, ANTHROPIC, target)
    assert translated_body(body, ANTHROPIC, ANTHROPIC) == body


def test_sv_10_callers_of_another_vendor_are_never_mapped_silently() -> None:
    callers = ["direct", "code_execution_20260120"]
    body = anthropic_request(tools=[anthropic_tool(allowed_callers=callers)])
    assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES), "/tools/0/allowed_callers")
    unknown = anthropic_request(tools=[anthropic_tool(allowed_callers=["direct", "robot_20280101"])])
    assert translated_body(unknown, ANTHROPIC, ANTHROPIC) == unknown
    both = responses_request(tools=[responses_tool(allowed_callers=["direct", "programmatic"])])
    assert has_loss_at(loss_paths(both, RESPONSES, ANTHROPIC), "/tools/0/allowed_callers")


def test_sv_11_results_of_provider_tools_stay_with_their_calls() -> None:
    search: dict[str, Any] = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    content = [search, result, anthropic_call("toolu_1")]
    outputs = [{"id": "toolu_1", "output": "18C"}]
    next_request = toolwire.continue_request(anthropic_request(), anthropic_response(*content), outputs, ANTHROPIC)
    assert next_request["messages"][1] == {"role": "assistant", "content": content}
    search_call = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    output = [search_call, responses_message("Found."), responses_call("call_1", id="fc_1")]
    responses_outputs = [{"id": "call_1", "output": "18C"}]
    next_request = toolwire.continue_request(
        responses_request(USER_MESSAGE), responses_response(*output), responses_outputs, RESPONSES
    )
    assert next_request["input"] == [USER_MESSAGE, *output, responses_output("call_1")]


def test_sv_13_gemini_search_works_beside_functions() -> None:
    body = anthropic_request(tools=[SEARCH, PLAIN])
    translated = translated_body(body, ANTHROPIC, "gemini", model="gemini-3-pro")
    assert translated["tools"][1:] == [{"googleSearch": {}}]
    assert translated["tools"][0]["functionDeclarations"][0]["name"] == "plain"
    assert translated["toolConfig"] == {"includeServerSideToolInvocations": True}
    older_model = toolwire.translate(body, ANTHROPIC, "gemini", model="gemini-2.5-pro")
    assert "googleSearch" not in str(older_model.value)
    assert ("dropped", "/tools/0") in [(loss.kind, loss.path) for loss in older_model.losses]


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT])
def test_sv_12_namespaces_are_flattened_and_restored(target: str) -> None:
    history = [USER_MESSAGE, responses_call("call_0", "list", namespace="crm"), responses_output("call_0")]
    body = responses_request(*history, tools=[CRM, SHOP])
    translated = translated_body(body, RESPONSES, target)
    crm, shop = declared_schemas(target, translated)
    assert crm != shop
    assert tool_calls_in(target, translated)[0]["name"] == crm
    responses = {
        ANTHROPIC: anthropic_response(anthropic_call("call_1", crm), anthropic_call("call_2", shop)),
        CHAT: chat_response(chat_assistant(chat_call("call_1", crm), chat_call("call_2", shop))),
    }
    items = responses_items(translated_body(responses[target], target, RESPONSES, "response", request=body))
    assert [(item["namespace"], item["name"]) for item in items] == [("crm", "list"), ("shop", "list")]
