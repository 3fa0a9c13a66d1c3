"""MCP connectors: servers whose tools the provider calls, translated between the vendors that support them."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES

URL = "https://crm.example.com/mcp"


def anthropic_request(toolset: dict[str, Any], **server: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Go"}],
        "mcp_servers": [{"type": "url", "name": "crm", "url": URL, **server}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": "crm", **toolset}],
    }


def responses_request(**tool: Any) -> dict[str, Any]:
    return {"model": "m", "input": "Go", "tools": [{"type": "mcp", "server_label": "crm", "server_url": URL, **tool}]}


def losses_of(translation: tw.Translation) -> set[tuple[str, str]]:
    return {(loss.kind, loss.path) for loss in translation.losses if loss.kind != "added"}


FIND_ONLY = {"default_config": {"enabled": False}, "configs": {"find": {"enabled": True}}}


@pytest.mark.parametrize(
    ("toolset", "server", "expected"),
    [
        ({}, {}, {}),
        ({}, {"authorization_token": "secret"}, {"authorization": "secret"}),
        (FIND_ONLY, {}, {"allowed_tools": ["find"]}),
        ({"configs": {"find": {"enabled": True}}}, {}, {}),
        ({}, {"tool_configuration": {"enabled": True, "allowed_tools": ["find"]}}, {"allowed_tools": ["find"]}),
        (FIND_ONLY, {"tool_configuration": {"allowed_tools": ["other"]}}, {"allowed_tools": []}),
    ],
)
def test_an_anthropic_mcp_server_becomes_a_responses_mcp_tool(toolset: Any, server: Any, expected: Any) -> None:
    translated = tw.translate(anthropic_request(toolset, **server), ANTHROPIC, RESPONSES)
    assert translated.value["tools"] == [
        {"type": "mcp", "server_label": "crm", "server_url": URL, **expected, "require_approval": "never"}
    ]
    assert losses_of(translated) == set()


@pytest.mark.parametrize(
    ("tool", "server", "toolset"),
    [
        ({}, {}, {}),
        ({"authorization": "secret"}, {"authorization_token": "secret"}, {}),
        ({"headers": {"Authorization": "Bearer secret"}}, {"authorization_token": "secret"}, {}),
        ({"allowed_tools": ["find"]}, {}, FIND_ONLY),
        ({"allowed_tools": {"tool_names": ["find"]}}, {}, FIND_ONLY),
    ],
)
def test_a_responses_mcp_tool_becomes_an_anthropic_mcp_server(tool: Any, server: Any, toolset: Any) -> None:
    translated = tw.translate(responses_request(**tool, require_approval="never"), RESPONSES, ANTHROPIC)
    assert translated.value["mcp_servers"] == [{"type": "url", "name": "crm", "url": URL, **server}]
    assert translated.value["tools"] == [{"type": "mcp_toolset", "mcp_server_name": "crm", **toolset}]
    assert translated.route.headers == (("anthropic-beta", "mcp-client-2025-11-20"),)
    assert losses_of(translated) == set()


@pytest.mark.parametrize(
    "tool",
    [
        {},  # absent means always
        {"require_approval": "never", "allowed_tools": {"read_only": True}},
        {"require_approval": "never", "allowed_callers": ["programmatic"]},
    ],
)
def test_a_server_whose_restrictions_cannot_be_kept_is_not_offered(tool: dict[str, Any]) -> None:
    translated = tw.translate(responses_request(**tool), RESPONSES, ANTHROPIC)
    assert "tools" not in translated.value
    assert "mcp_servers" not in translated.value
    assert losses_of(translated) == {("dropped", "/tools/0")}


@pytest.mark.parametrize("approval", ["always", {"never": {"tool_names": ["find"]}}])
def test_a_server_that_requires_approval_is_refused(approval: Any) -> None:
    with pytest.raises(tw.LossyTranslationError, match="/tools/0/require_approval"):
        tw.translate(responses_request(require_approval=approval), RESPONSES, ANTHROPIC)


def test_a_disabled_tool_stays_disabled() -> None:
    translated = tw.translate(anthropic_request({"configs": {"delete": {"enabled": False}}}), ANTHROPIC, RESPONSES)
    assert "tools" not in translated.value
    assert losses_of(translated) == {("dropped", "/tools/0"), ("dropped", "/mcp_servers/0")}


def test_vendor_specific_server_fields_are_reported_at_their_position() -> None:
    toolset = {"default_config": {"defer_loading": True}, "cache_control": {"type": "ephemeral"}}
    translated = tw.translate(anthropic_request(toolset), ANTHROPIC, RESPONSES)
    assert losses_of(translated) == {
        ("dropped", "/tools/0/default_config/defer_loading"),
        ("dropped", "/tools/0/cache_control"),
    }
    tool = {"require_approval": "never", "headers": {"X-Team": "a"}, "server_description": "d", "defer_loading": True}
    translated = tw.translate(responses_request(**tool), RESPONSES, ANTHROPIC)
    places = ("headers/X-Team", "server_description", "defer_loading")
    assert losses_of(translated) == {("dropped", f"/tools/0/{place}") for place in places}


def test_a_forced_server_requires_some_call() -> None:
    request = {**responses_request(require_approval="never"), "tool_choice": {"type": "mcp", "server_label": "crm"}}
    translated = tw.translate(request, RESPONSES, ANTHROPIC)
    assert translated.value["tool_choice"] == {"type": "any"}
    assert losses_of(translated) == {("approximated", "/tool_choice")}


def test_a_target_without_connectors_reports_server_and_toolset() -> None:
    translated = tw.translate(anthropic_request({}), ANTHROPIC, CHAT)
    assert losses_of(translated) == {("dropped", "/tools/0"), ("dropped", "/mcp_servers/0")}


def test_servers_without_a_toolset_are_not_translated() -> None:
    body = anthropic_request({}) | {"tools": []}
    translated = tw.translate(body, ANTHROPIC, RESPONSES)
    assert "tools" not in translated.value
    assert losses_of(translated) == {("dropped", "/mcp_servers/0")}


GEMINI, INTERACTIONS = "gemini", "gemini-interactions"


def interactions_request(**tool: Any) -> dict[str, Any]:
    return {"model": "m", "input": "Go", "tools": [{"type": "mcp_server", "name": "crm", "url": URL, **tool}]}


def test_google_mcp_servers_translate_to_anthropic_and_openai() -> None:
    key = {"Authorization": "Bearer secret"}
    body = interactions_request(headers=key, allowed_tools=[{"tools": ["find"]}])
    translated = tw.translate(body, INTERACTIONS, ANTHROPIC)
    assert translated.value["mcp_servers"] == [
        {"type": "url", "name": "crm", "url": URL, "authorization_token": "secret"}
    ]
    assert translated.value["tools"] == [{"type": "mcp_toolset", "mcp_server_name": "crm", **FIND_ONLY}]
    (tool,) = tw.translate(body, INTERACTIONS, RESPONSES).value["tools"]
    assert (tool["server_url"], tool["headers"], tool["allowed_tools"]) == (URL, key, ["find"])
    older = {
        "contents": [{"role": "user", "parts": [{"text": "Go"}]}],
        "tools": [{"mcpServers": [{"name": "crm", "streamableHttpTransport": {"url": URL, "timeout": "3s"}}]}],
    }
    translated = tw.translate(older, GEMINI, RESPONSES, model="gemini-3-pro")
    assert translated.value["tools"][0]["server_url"] == URL
    assert losses_of(translated) == {("dropped", "/tools/0/mcpServers/0/streamableHttpTransport/timeout")}


def test_anthropic_and_openai_mcp_servers_translate_to_google() -> None:
    body = responses_request(require_approval="never", authorization="secret", allowed_tools=["find"])
    assert tw.translate(body, RESPONSES, INTERACTIONS).value["tools"] == [
        {
            "type": "mcp_server",
            "name": "crm",
            "url": URL,
            "headers": {"Authorization": "Bearer secret"},
            "allowed_tools": [{"tools": ["find"]}],
        }
    ]
    translated = tw.translate(anthropic_request({}), ANTHROPIC, GEMINI, model="gemini-3-pro")
    assert translated.value["tools"] == [{"mcpServers": [{"name": "crm", "streamableHttpTransport": {"url": URL}}]}]
    bound = tw.translate(body, RESPONSES, GEMINI, model="gemini-3-pro")
    assert "tools" not in bound.value  # Gemini has no list of allowed tools
    assert losses_of(bound) == {("dropped", "/tools/0")}


@pytest.mark.parametrize("restriction", [[{"mode": "none", "tools": ["find"]}], [{"tools": ["a"]}, {"tools": ["b"]}]])
def test_a_google_restriction_without_equivalent_drops_the_server(restriction: Any) -> None:
    translated = tw.translate(interactions_request(allowed_tools=restriction), INTERACTIONS, ANTHROPIC)
    assert "mcp_servers" not in translated.value
    assert losses_of(translated) == {("dropped", "/tools/0")}


# ---- calls

CALL = {"type": "mcp_call", "id": "mcp_1", "name": "find", "arguments": '{"name":"Ada"}', "server_label": "crm"}


def build_response(items: list[Any]) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": items}


@pytest.mark.parametrize(
    ("more", "failed", "text"),
    [
        ({"output": "customer 42", "error": None, "status": "completed"}, False, "customer 42"),
        ({"error": {"type": "http_error", "code": 502, "message": "gone"}, "status": "failed"}, True, "gone"),
    ],
)
def test_mcp_calls_and_results_reach_clients_of_other_protocols(more: Any, failed: bool, text: str) -> None:
    body = build_response([CALL | more])
    use, result = tw.translate(body, RESPONSES, ANTHROPIC, "response").value["content"]
    assert (use["type"], use["server_name"], use["name"], use["input"]) == (
        "mcp_tool_use",
        "crm",
        "find",
        {"name": "Ada"},
    )
    assert use["id"].startswith("mcptoolu_")
    assert result["tool_use_id"] == use["id"]
    assert (result["is_error"], result["content"]) == (failed, [{"type": "text", "text": text}])
    call, translated = tw.translate(body, RESPONSES, INTERACTIONS, "response").value["steps"]
    assert (call["type"], call["server_name"], call["arguments"]) == ("mcp_server_tool_call", "crm", {"name": "Ada"})
    assert (translated["call_id"], translated["result"]) == (call["id"], text)
    assert [loss.path for loss in tw.translate(body, RESPONSES, CHAT, "response").losses if loss.path == "/output/0"]


@pytest.mark.parametrize("failed", [False, True])
def test_a_client_of_responses_reads_one_mcp_item(failed: bool) -> None:
    use = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "find", "server_name": "crm", "input": {"name": "Ada"}}
    content = [{"type": "text", "text": "customer 42"}]
    result = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": failed, "content": content}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    (item,) = tw.translate({**message, "content": [use, result]}, ANTHROPIC, RESPONSES, "response").value["output"]
    assert (item["type"], item["server_label"], item["name"]) == ("mcp_call", "crm", "find")
    assert json.loads(item["arguments"]) == {"name": "Ada"}
    assert item["status"] == ("failed" if failed else "completed")
    assert item["output"] == (None if failed else "customer 42")
    assert (item["error"] or {}).get("content") == (content if failed else None)
    (item_without_result,) = tw.translate({**message, "content": [use]}, ANTHROPIC, RESPONSES, "response").value[
        "output"
    ]
    assert item_without_result["status"] == "incomplete"


def test_mcp_calls_are_not_sent_to_another_provider_as_calls() -> None:
    body = {"model": "m", "input": [{"role": "user", "content": "Go"}, CALL | {"output": "customer 42"}]}
    text = json.dumps(tw.translate(body, RESPONSES, ANTHROPIC).value["messages"])
    assert "mcp_tool_use" not in text
    assert "customer 42" in text
