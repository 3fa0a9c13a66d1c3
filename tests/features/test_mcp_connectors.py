"""MCP connectors: servers whose tools the provider calls, between the vendors that have them."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES

URL = "https://crm.example.com/mcp"


def of_anthropic(toolset: dict[str, Any], **server: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Go"}],
        "mcp_servers": [{"type": "url", "name": "crm", "url": URL, **server}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": "crm", **toolset}],
    }


def of_responses(**tool: Any) -> dict[str, Any]:
    return {"model": "m", "input": "Go", "tools": [{"type": "mcp", "server_label": "crm", "server_url": URL, **tool}]}


def told(made: tw.Translation) -> set[tuple[str, str]]:
    return {(loss.kind, loss.path) for loss in made.losses if loss.kind != "added"}


ONLY_FIND = {"default_config": {"enabled": False}, "configs": {"find": {"enabled": True}}}


@pytest.mark.parametrize(
    ("toolset", "server", "expected"),
    [
        ({}, {}, {}),
        ({}, {"authorization_token": "secret"}, {"authorization": "secret"}),
        (ONLY_FIND, {}, {"allowed_tools": ["find"]}),
        ({"configs": {"find": {"enabled": True}}}, {}, {}),
        ({}, {"tool_configuration": {"enabled": True, "allowed_tools": ["find"]}}, {"allowed_tools": ["find"]}),
        (ONLY_FIND, {"tool_configuration": {"allowed_tools": ["other"]}}, {"allowed_tools": []}),
    ],
)
def test_an_anthropic_mcp_server_becomes_a_responses_mcp_tool(toolset: Any, server: Any, expected: Any) -> None:
    translated = tw.translate(of_anthropic(toolset, **server), ANTHROPIC, RESPONSES)
    assert translated.value["tools"] == [
        {"type": "mcp", "server_label": "crm", "server_url": URL, **expected, "require_approval": "never"}
    ]
    assert told(translated) == set()


@pytest.mark.parametrize(
    ("tool", "server", "toolset"),
    [
        ({}, {}, {}),
        ({"authorization": "secret"}, {"authorization_token": "secret"}, {}),
        ({"headers": {"Authorization": "Bearer secret"}}, {"authorization_token": "secret"}, {}),
        ({"allowed_tools": ["find"]}, {}, ONLY_FIND),
        ({"allowed_tools": {"tool_names": ["find"]}}, {}, ONLY_FIND),
    ],
)
def test_a_responses_mcp_tool_becomes_an_anthropic_mcp_server(tool: Any, server: Any, toolset: Any) -> None:
    translated = tw.translate(of_responses(**tool, require_approval="never"), RESPONSES, ANTHROPIC)
    assert translated.value["mcp_servers"] == [{"type": "url", "name": "crm", "url": URL, **server}]
    assert translated.value["tools"] == [{"type": "mcp_toolset", "mcp_server_name": "crm", **toolset}]
    assert translated.route.headers == (("anthropic-beta", "mcp-client-2025-11-20"),)
    assert told(translated) == set()


@pytest.mark.parametrize(
    "tool",
    [
        {},  # left out, it means always
        {"require_approval": "never", "allowed_tools": {"read_only": True}},
        {"require_approval": "never", "allowed_callers": ["programmatic"]},
    ],
)
def test_a_server_whose_restrictions_cannot_be_kept_is_not_offered(tool: dict[str, Any]) -> None:
    translated = tw.translate(of_responses(**tool), RESPONSES, ANTHROPIC)
    assert "tools" not in translated.value
    assert "mcp_servers" not in translated.value
    assert told(translated) == {("dropped", "/tools/0")}


@pytest.mark.parametrize("asked", ["always", {"never": {"tool_names": ["find"]}}])
def test_a_server_that_requires_approval_is_refused(asked: Any) -> None:
    with pytest.raises(tw.LossyTranslationError, match="/tools/0/require_approval"):
        tw.translate(of_responses(require_approval=asked), RESPONSES, ANTHROPIC)


def test_a_disabled_tool_stays_disabled() -> None:
    translated = tw.translate(of_anthropic({"configs": {"delete": {"enabled": False}}}), ANTHROPIC, RESPONSES)
    assert "tools" not in translated.value
    assert told(translated) == {("dropped", "/tools/0"), ("dropped", "/mcp_servers/0")}


def test_vendor_specific_server_fields_are_reported_at_their_position() -> None:
    toolset = {"default_config": {"defer_loading": True}, "cache_control": {"type": "ephemeral"}}
    translated = tw.translate(of_anthropic(toolset), ANTHROPIC, RESPONSES)
    assert told(translated) == {
        ("dropped", "/tools/0/default_config/defer_loading"),
        ("dropped", "/tools/0/cache_control"),
    }
    tool = {"require_approval": "never", "headers": {"X-Team": "a"}, "server_description": "d", "defer_loading": True}
    translated = tw.translate(of_responses(**tool), RESPONSES, ANTHROPIC)
    places = ("headers/X-Team", "server_description", "defer_loading")
    assert told(translated) == {("dropped", f"/tools/0/{place}") for place in places}


def test_a_forced_server_requires_some_call() -> None:
    asked = {**of_responses(require_approval="never"), "tool_choice": {"type": "mcp", "server_label": "crm"}}
    translated = tw.translate(asked, RESPONSES, ANTHROPIC)
    assert translated.value["tool_choice"] == {"type": "any"}
    assert told(translated) == {("approximated", "/tool_choice")}


def test_a_target_without_connectors_reports_server_and_toolset() -> None:
    translated = tw.translate(of_anthropic({}), ANTHROPIC, CHAT)
    assert told(translated) == {("dropped", "/tools/0"), ("dropped", "/mcp_servers/0")}


def test_servers_without_a_toolset_are_not_translated() -> None:
    body = of_anthropic({}) | {"tools": []}
    translated = tw.translate(body, ANTHROPIC, RESPONSES)
    assert "tools" not in translated.value
    assert told(translated) == {("dropped", "/mcp_servers/0")}


GEMINI, INTERACTIONS = "gemini", "gemini-interactions"


def of_interactions(**tool: Any) -> dict[str, Any]:
    return {"model": "m", "input": "Go", "tools": [{"type": "mcp_server", "name": "crm", "url": URL, **tool}]}


def test_google_mcp_servers_translate_to_anthropic_and_openai() -> None:
    key = {"Authorization": "Bearer secret"}
    body = of_interactions(headers=key, allowed_tools=[{"tools": ["find"]}])
    translated = tw.translate(body, INTERACTIONS, ANTHROPIC)
    assert translated.value["mcp_servers"] == [
        {"type": "url", "name": "crm", "url": URL, "authorization_token": "secret"}
    ]
    assert translated.value["tools"] == [{"type": "mcp_toolset", "mcp_server_name": "crm", **ONLY_FIND}]
    (tool,) = tw.translate(body, INTERACTIONS, RESPONSES).value["tools"]
    assert (tool["server_url"], tool["headers"], tool["allowed_tools"]) == (URL, key, ["find"])
    older = {
        "contents": [{"role": "user", "parts": [{"text": "Go"}]}],
        "tools": [{"mcpServers": [{"name": "crm", "streamableHttpTransport": {"url": URL, "timeout": "3s"}}]}],
    }
    translated = tw.translate(older, GEMINI, RESPONSES, model="gemini-3-pro")
    assert translated.value["tools"][0]["server_url"] == URL
    assert told(translated) == {("dropped", "/tools/0/mcpServers/0/streamableHttpTransport/timeout")}


def test_anthropic_and_openai_mcp_servers_translate_to_google() -> None:
    body = of_responses(require_approval="never", authorization="secret", allowed_tools=["find"])
    assert tw.translate(body, RESPONSES, INTERACTIONS).value["tools"] == [
        {
            "type": "mcp_server",
            "name": "crm",
            "url": URL,
            "headers": {"Authorization": "Bearer secret"},
            "allowed_tools": [{"tools": ["find"]}],
        }
    ]
    translated = tw.translate(of_anthropic({}), ANTHROPIC, GEMINI, model="gemini-3-pro")
    assert translated.value["tools"] == [{"mcpServers": [{"name": "crm", "streamableHttpTransport": {"url": URL}}]}]
    bound = tw.translate(body, RESPONSES, GEMINI, model="gemini-3-pro")
    assert "tools" not in bound.value  # Gemini can't say which tools are allowed
    assert told(bound) == {("dropped", "/tools/0")}


@pytest.mark.parametrize("wanted", [[{"mode": "none", "tools": ["find"]}], [{"tools": ["a"]}, {"tools": ["b"]}]])
def test_a_google_restriction_without_equivalent_drops_the_server(wanted: Any) -> None:
    translated = tw.translate(of_interactions(allowed_tools=wanted), INTERACTIONS, ANTHROPIC)
    assert "mcp_servers" not in translated.value
    assert told(translated) == {("dropped", "/tools/0")}


# ---- what was called

CALL = {"type": "mcp_call", "id": "mcp_1", "name": "find", "arguments": '{"name":"Ada"}', "server_label": "crm"}


def answer_of(items: list[Any]) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": items}


@pytest.mark.parametrize(
    ("more", "failed", "text"),
    [
        ({"output": "customer 42", "error": None, "status": "completed"}, False, "customer 42"),
        ({"error": {"type": "http_error", "code": 502, "message": "gone"}, "status": "failed"}, True, "gone"),
    ],
)
def test_mcp_calls_and_results_reach_clients_of_other_protocols(more: Any, failed: bool, text: str) -> None:
    body = answer_of([CALL | more])
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
    said = [{"type": "text", "text": "customer 42"}]
    result = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": failed, "content": said}
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    (item,) = tw.translate({**told, "content": [use, result]}, ANTHROPIC, RESPONSES, "response").value["output"]
    assert (item["type"], item["server_label"], item["name"]) == ("mcp_call", "crm", "find")
    assert json.loads(item["arguments"]) == {"name": "Ada"}
    assert item["status"] == ("failed" if failed else "completed")
    assert item["output"] == (None if failed else "customer 42")
    assert (item["error"] or {}).get("content") == (said if failed else None)
    (cut,) = tw.translate({**told, "content": [use]}, ANTHROPIC, RESPONSES, "response").value["output"]
    assert cut["status"] == "incomplete"


def test_mcp_calls_are_not_sent_to_another_provider_as_calls() -> None:
    body = {"model": "m", "input": [{"role": "user", "content": "Go"}, CALL | {"output": "customer 42"}]}
    text = json.dumps(tw.translate(body, RESPONSES, ANTHROPIC).value["messages"])
    assert "mcp_tool_use" not in text
    assert "customer 42" in text
