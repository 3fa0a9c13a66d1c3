"""The fields of a Responses request, and what other protocols say in them."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    PNG_BASE64,
    USER_MESSAGE,
    anthropic_call,
    anthropic_request,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
    chat_request,
    responses_request,
    responses_tool,
)
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.sdk.validation import accept_request
from tests.support.translation import has_loss_at, loss_paths, translated_body
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool, ToolGroup
from toolwire.codec.interface import Route, Target
from toolwire.codec.losses import LossReport
from toolwire.protocols.openai_responses import CODEC


def read(*items: Any, **fields: Any) -> Request:
    return CODEC.decode_request(json.dumps(responses_request(*items, **fields)).encode(), Route())


# ---- fields


def test_only_parallel_is_said_where_only_parallel_was() -> None:
    choice = read(parallel_tool_calls=False).tool_choice
    assert choice is not None
    assert (choice.mode, choice.parallel) == (None, False)


def test_the_parallel_switch_is_lost_by_its_own_name() -> None:
    request = read(USER_MESSAGE, parallel_tool_calls=False, tool_choice="auto")
    report = LossReport()
    report.dropped(("tool_choice",), "parallel")
    assert [loss.path for loss in report.resolve(request, CODEC.wire_names)] == ["/parallel_tool_calls"]


@pytest.mark.parametrize(
    ("choice", "kind", "name"),
    [
        ({"type": "function", "name": "f"}, "function", "f"),
        ({"type": "custom", "name": "f"}, "freeform", "f"),
        ({"type": "mcp", "server_label": "wiki"}, "server", ""),
        ({"type": "shell"}, "native", "shell"),
    ],
)
def test_a_choice_says_how_its_tool_is_addressed(choice: Any, kind: str, name: str) -> None:
    found = read(tool_choice=choice, tools=[responses_tool("f")]).tool_choice
    assert found is not None
    assert (found.mode, found.names[0].kind, found.names[0].name) == ("named", kind, name)


@pytest.mark.parametrize(
    ("tool", "kind", "executor"),
    [
        ({"type": "web_search_2025_08_26"}, "web_search", "server"),
        ({"type": "shell", "environment": {"type": "local"}}, "shell", "client"),
        ({"type": "shell", "environment": {"type": "container_auto"}}, "shell", "server"),
        ({"type": "tool_search", "execution": "client"}, "tool_search", "client"),
        ({"type": "tool_search"}, "tool_search", "server"),
        ({"type": "computer"}, "computer", "client"),
    ],
)
def test_a_native_tool_says_who_runs_it(tool: Any, kind: str, executor: str) -> None:
    (found,) = read(tools=[tool]).tools or ()
    assert isinstance(found, NativeTool)
    assert (found.kind, found.executor) == (kind, executor)


def test_a_namespace_is_a_group_and_one_with_a_strange_member_is_kept_whole() -> None:
    group = {"type": "namespace", "name": "crm", "description": "d", "tools": [responses_tool("list")]}
    strange = {**group, "tools": [{"type": "something_new"}]}
    first, second = read(tools=[group, strange]).tools or ()
    assert isinstance(first, ToolGroup)
    assert isinstance(second, NativeTool)


def test_what_both_of_openai_s_protocols_know_goes_to_both() -> None:
    body = responses_request(
        USER_MESSAGE, prompt_cache_key="k", prompt_cache_options={"mode": "explicit", "prewarm": True}
    )
    made = translated_body(body, RESPONSES, CHAT)
    assert (made["prompt_cache_key"], made["prompt_cache_options"]) == ("k", {"mode": "explicit"})
    assert has_loss_at(loss_paths(body, RESPONSES, CHAT), "/prompt_cache_options/prewarm")


# ---- what others say


def test_strict_and_parameters_are_always_said() -> None:
    (tool,) = translated_body(anthropic_request(USER_MESSAGE, tools=[anthropic_tool()]), ANTHROPIC, RESPONSES)["tools"]
    assert tool["strict"] is False
    bare = Request(origin="", tools=(FunctionTool(name="now"),))
    (made,) = json.loads(CODEC.encode_request(bare, Target()).to_bytes())["tools"]
    assert (made["strict"], made["parameters"]) == (False, {"type": "object", "properties": {}})


def test_strict_is_kept_where_the_schema_can_bear_it() -> None:
    closed = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    opened = {**closed, "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}
    for schema, kept in (({**closed, "required": ["a"]}, True), (closed, True), (opened, False)):
        body = anthropic_request(USER_MESSAGE, tools=[anthropic_tool(schema=schema, strict=True)])
        (tool,) = translated_body(body, ANTHROPIC, RESPONSES)["tools"]
        assert tool["strict"] is kept
        assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES), "/tools/0/strict") is not kept


def test_system_blocks_are_one_text_and_a_later_system_message_is_a_developer_s() -> None:
    body = anthropic_request(USER_MESSAGE, {"role": "system", "content": "Be brief."}, USER_MESSAGE)
    body["system"] = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    made = translated_body(body, ANTHROPIC, RESPONSES)
    assert made["instructions"] == "One.\n\nTwo."
    assert [item["role"] for item in made["input"]] == ["user", "developer", "user"]
    assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES), "/system/1")


def test_text_results_are_one_string_and_media_stay_a_list() -> None:
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}
    for content, output in (
        (texts, "a\nb"),
        (
            [texts[0], image],
            [
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG_BASE64}", "detail": "auto"},
            ],
        ),
    ):
        body = anthropic_turn([anthropic_call("toolu_1")], [anthropic_result("toolu_1", content)])
        assert translated_body(body, ANTHROPIC, RESPONSES)["input"][-1]["output"] == output


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            {
                "type": "input_file",
                "file_data": "data:application/pdf;base64,JVBERi0=",
                "filename": "document.pdf",
            },
        ),
        ({"type": "text", "media_type": "text/plain", "data": "plain"}, {"type": "input_text", "text": "plain"}),
        ({"type": "url", "url": "https://x.test/a.pdf"}, {"type": "input_file", "file_url": "https://x.test/a.pdf"}),
    ],
)
def test_documents_are_files_or_text(source: Any, part: Any) -> None:
    body = anthropic_request({"role": "user", "content": [{"type": "document", "source": source}, *_texts("x")]})
    made = translated_body(body, ANTHROPIC, RESPONSES)
    assert made["input"][0]["content"][0] == part
    assert accept_request(RESPONSES, made) is None


def _texts(*texts: str) -> list[Any]:
    return [{"type": "text", "text": text} for text in texts]


def test_a_cache_mark_stands_on_text_and_is_reported_elsewhere() -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    said = {"role": "user", "content": [{"type": "text", "text": "x", **mark}]}
    body = anthropic_request(said, tools=[{**anthropic_tool(), **mark}])
    (part,) = translated_body(body, ANTHROPIC, RESPONSES)["input"][0]["content"]
    assert part["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "30m"}
    losses = loss_paths(body, ANTHROPIC, RESPONSES)
    assert has_loss_at(losses, "/messages/0/content/0/cache_control/ttl")
    assert has_loss_at(losses, "/tools/0/cache_control")


def test_what_the_model_said_before_has_no_made_up_id() -> None:
    said = {"role": "assistant", "content": [*_texts("One", "Two"), anthropic_call("toolu_1")]}
    body = anthropic_request(USER_MESSAGE, said, {"role": "user", "content": [anthropic_result("toolu_1")]})
    made = translated_body(body, ANTHROPIC, RESPONSES)
    assert made["input"][1:3] == [{"role": "assistant", "content": "One"}, {"role": "assistant", "content": "Two"}]
    assert not any("id" in item for item in made["input"])


LATER = {**anthropic_tool("later"), "defer_loading": True}


def test_tools_that_are_loaded_later_are_searched_for_in_this_vendor_s_way() -> None:
    kinds = ("tool_search_tool_regex", "tool_search_tool_bm25")
    tools = [*({"type": f"{kind}_20251119", "name": kind} for kind in kinds), LATER]
    body = anthropic_request(tools=tools)
    search, later = translated_body(body, ANTHROPIC, RESPONSES)["tools"]
    assert (search, later["defer_loading"]) == ({"type": "tool_search"}, True)
    assert loss_paths(body, ANTHROPIC, RESPONSES) == {"/tools/0", "/tools/1"}


def test_a_tool_that_nothing_would_load_later_is_there_from_the_start() -> None:
    body = anthropic_request(tools=[LATER])
    assert "defer_loading" not in translated_body(body, ANTHROPIC, RESPONSES)["tools"][0]
    assert loss_paths(body, ANTHROPIC, RESPONSES) == {"/tools/0/defer_loading"}


def test_a_tool_of_a_server_that_comes_later_is_not_there_at_all() -> None:
    tool = {"type": "mcp_toolset_reference", "server_name": "crm"}
    later = {"role": "system", "content": [{"type": "tool_addition", "tool": tool}]}
    body = anthropic_request({"role": "user", "content": "Hi"}, later)
    losses = toolwire.translate(body, ANTHROPIC, RESPONSES).losses
    assert [(loss.kind, loss.path) for loss in losses] == [("dropped", "/messages/1/content/0/tool")]


def test_the_model_may_still_call_what_another_vendor_s_programs_may() -> None:
    callers = ["direct", "code_execution_20260120"]
    body = anthropic_request(tools=[{**anthropic_tool(), "allowed_callers": callers}])
    assert translated_body(body, ANTHROPIC, RESPONSES)["tools"][0]["allowed_callers"] == ["direct"]
    assert loss_paths(body, ANTHROPIC, RESPONSES) == {"/tools/0/allowed_callers/1"}


def test_a_web_search_becomes_this_vendor_s_unless_something_bounds_it_that_can_t_be_said() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.test"]}
    made = translated_body(anthropic_request(USER_MESSAGE, tools=[search]), ANTHROPIC, RESPONSES)
    assert made["tools"] == [{"type": "web_search", "filters": {"allowed_domains": ["a.test"]}}]
    blocked = {**search, "blocked_domains": ["b.test"]}
    body = anthropic_request(USER_MESSAGE, tools=[blocked, anthropic_tool()])
    with pytest.raises(toolwire.LossyTranslationError, match="/tools/0/blocked_domains/0"):
        translated_body(body, ANTHROPIC, RESPONSES)


def test_a_strict_format_is_completed_or_not_strict() -> None:
    optional = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    opened = {"type": "object", "properties": {"a": {"type": "object"}}, "additionalProperties": False}
    for schema, strict in ((optional, True), (opened, False)):
        described = {"name": "answer", "schema": schema, "strict": True}
        body = chat_request(response_format={"type": "json_schema", "json_schema": described})
        made = translated_body(body, CHAT, RESPONSES)["text"]["format"]
        assert made["strict"] is strict
        assert made["schema"].get("required") == (["a"] if strict else None)
        below = "schema/properties/a" if strict else "strict"
        assert loss_paths(body, CHAT, RESPONSES) == {f"/response_format/json_schema/{below}"}
