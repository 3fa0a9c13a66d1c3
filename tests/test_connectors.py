"""MCP connectors: servers whose tools the provider calls, between the vendors that have them."""

from typing import Any

import pytest

import toolwire as tw
from tests.wire import ANTHROPIC, CHAT, RESPONSES

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


def told(made: tw.Encoded) -> set[tuple[str, str]]:
    return {(loss.kind, loss.path) for loss in made.losses if loss.kind != "invented"}


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
def test_a_server_of_anthropic_is_an_mcp_tool_of_responses(toolset: Any, server: Any, expected: Any) -> None:
    made = tw.translate(of_anthropic(toolset, **server), ANTHROPIC, RESPONSES)
    assert made.value["tools"] == [
        {"type": "mcp", "server_label": "crm", "server_url": URL, **expected, "require_approval": "never"}
    ]
    assert told(made) == set()


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
def test_an_mcp_tool_of_responses_is_a_server_of_anthropic(tool: Any, server: Any, toolset: Any) -> None:
    made = tw.translate(of_responses(**tool, require_approval="never"), RESPONSES, ANTHROPIC)
    assert made.value["mcp_servers"] == [{"type": "url", "name": "crm", "url": URL, **server}]
    assert made.value["tools"] == [{"type": "mcp_toolset", "mcp_server_name": "crm", **toolset}]
    assert made.route.headers == (("anthropic-beta", "mcp-client-2025-11-20"),)
    assert told(made) == set()


@pytest.mark.parametrize(
    "tool",
    [
        {},  # left out, it means always
        {"require_approval": "never", "allowed_tools": {"read_only": True}},
        {"require_approval": "never", "allowed_callers": ["programmatic"]},
    ],
)
def test_a_server_that_can_t_be_bound_in_the_same_way_is_not_offered(tool: dict[str, Any]) -> None:
    made = tw.translate(of_responses(**tool), RESPONSES, ANTHROPIC)
    assert "tools" not in made.value
    assert "mcp_servers" not in made.value
    assert told(made) == {("dropped", "/tools/0")}


@pytest.mark.parametrize("asked", ["always", {"never": {"tool_names": ["find"]}}])
def test_one_that_asks_a_person_is_refused(asked: Any) -> None:
    with pytest.raises(tw.LossRefused, match="/tools/0/require_approval"):
        tw.translate(of_responses(require_approval=asked), RESPONSES, ANTHROPIC)


def test_a_tool_that_is_turned_off_stays_off() -> None:
    made = tw.translate(of_anthropic({"configs": {"delete": {"enabled": False}}}), ANTHROPIC, RESPONSES)
    assert "tools" not in made.value
    assert told(made) == {("dropped", "/tools/0"), ("dropped", "/mcp_servers/0")}


def test_what_only_one_vendor_says_of_a_server_is_reported_where_it_stands() -> None:
    toolset = {"default_config": {"defer_loading": True}, "cache_control": {"type": "ephemeral"}}
    made = tw.translate(of_anthropic(toolset), ANTHROPIC, RESPONSES)
    assert told(made) == {("dropped", "/tools/0/default_config/defer_loading"), ("dropped", "/tools/0/cache_control")}
    tool = {"require_approval": "never", "headers": {"X-Team": "a"}, "server_description": "d", "defer_loading": True}
    made = tw.translate(of_responses(**tool), RESPONSES, ANTHROPIC)
    places = ("headers/X-Team", "server_description", "defer_loading")
    assert told(made) == {("dropped", f"/tools/0/{place}") for place in places}


def test_a_target_without_connectors_says_so_of_both() -> None:
    made = tw.translate(of_anthropic({}), ANTHROPIC, CHAT)
    assert told(made) == {("dropped", "/tools/0"), ("dropped", "/mcp_servers/0")}


def test_servers_that_no_toolset_offers_are_only_anthropic_s() -> None:
    body = of_anthropic({}) | {"tools": []}
    made = tw.translate(body, ANTHROPIC, RESPONSES)
    assert "tools" not in made.value
    assert told(made) == {("dropped", "/mcp_servers/0")}
