"""Requests of the Responses API: decoding of fields, and encoding from other protocols."""

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


def decode_request(*items: Any, **fields: Any) -> Request:
    return CODEC.decode_request(json.dumps(responses_request(*items, **fields)).encode(), Route())


# ---- fields


def test_parallel_tool_calls_alone_leave_the_choice_mode_unset() -> None:
    choice = decode_request(parallel_tool_calls=False).tool_choice
    assert choice is not None
    assert (choice.mode, choice.parallel) == (None, False)


def test_lost_parallel_tool_calls_are_reported_by_their_wire_name() -> None:
    request = decode_request(USER_MESSAGE, parallel_tool_calls=False, tool_choice="auto")
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
def test_tool_choice_decodes_the_kind_and_name_of_its_tool(choice: Any, kind: str, name: str) -> None:
    decoded = decode_request(tool_choice=choice, tools=[responses_tool("f")]).tool_choice
    assert decoded is not None
    assert (decoded.mode, decoded.names[0].kind, decoded.names[0].name) == ("named", kind, name)


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
def test_native_tool_decodes_its_executor(tool: Any, kind: str, executor: str) -> None:
    (decoded,) = decode_request(tools=[tool]).tools or ()
    assert isinstance(decoded, NativeTool)
    assert (decoded.kind, decoded.executor) == (kind, executor)


def test_namespace_is_a_group_unless_it_has_an_unknown_member() -> None:
    group = {"type": "namespace", "name": "crm", "description": "d", "tools": [responses_tool("list")]}
    mixed = {**group, "tools": [{"type": "something_new"}]}
    first, second = decode_request(tools=[group, mixed]).tools or ()
    assert isinstance(first, ToolGroup)
    assert isinstance(second, NativeTool)


def test_fields_shared_by_openai_protocols_are_translated() -> None:
    body = responses_request(
        USER_MESSAGE, prompt_cache_key="k", prompt_cache_options={"mode": "explicit", "prewarm": True}
    )
    translated = translated_body(body, RESPONSES, CHAT)
    assert (translated["prompt_cache_key"], translated["prompt_cache_options"]) == ("k", {"mode": "explicit"})
    assert has_loss_at(loss_paths(body, RESPONSES, CHAT), "/prompt_cache_options/prewarm")


# ---- from other protocols


def test_strict_and_parameters_are_always_sent() -> None:
    (tool,) = translated_body(anthropic_request(USER_MESSAGE, tools=[anthropic_tool()]), ANTHROPIC, RESPONSES)["tools"]
    assert tool["strict"] is False
    request = Request(origin="", tools=(FunctionTool(name="now"),))
    (encoded,) = json.loads(CODEC.encode_request(request, Target()).to_bytes())["tools"]
    assert (encoded["strict"], encoded["parameters"]) == (False, {"type": "object", "properties": {}})


def test_strict_is_kept_if_the_schema_can_be_strict() -> None:
    closed_schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    open_schema = {**closed_schema, "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}
    for schema, is_strict in (
        ({**closed_schema, "required": ["a"]}, True),
        (closed_schema, True),
        (open_schema, False),
    ):
        body = anthropic_request(USER_MESSAGE, tools=[anthropic_tool(schema=schema, strict=True)])
        (tool,) = translated_body(body, ANTHROPIC, RESPONSES)["tools"]
        assert tool["strict"] is is_strict
        assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES), "/tools/0/strict") is not is_strict


def test_system_blocks_are_joined_and_later_ones_become_developer_messages() -> None:
    body = anthropic_request(USER_MESSAGE, {"role": "system", "content": "Be brief."}, USER_MESSAGE)
    body["system"] = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    translated = translated_body(body, ANTHROPIC, RESPONSES)
    assert translated["instructions"] == "One.\n\nTwo."
    assert [item["role"] for item in translated["input"]] == ["user", "developer", "user"]
    assert has_loss_at(loss_paths(body, ANTHROPIC, RESPONSES), "/system/1")


def test_text_results_become_a_string_and_media_results_a_list() -> None:
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
def test_documents_become_files_or_text(source: Any, part: Any) -> None:
    body = anthropic_request({"role": "user", "content": [{"type": "document", "source": source}, *_text_blocks("x")]})
    translated = translated_body(body, ANTHROPIC, RESPONSES)
    assert translated["input"][0]["content"][0] == part
    assert accept_request(RESPONSES, translated) is None


def _text_blocks(*texts: str) -> list[Any]:
    return [{"type": "text", "text": text} for text in texts]


def test_cache_marks_are_sent_on_text_and_reported_on_tools() -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    message = {"role": "user", "content": [{"type": "text", "text": "x", **mark}, {"type": "text", "text": "y"}]}
    body = anthropic_request(message, tools=[{**anthropic_tool(), **mark}], model="gpt-6")
    part, _ = translated_body(body, ANTHROPIC, RESPONSES)["input"][0]["content"]
    assert part["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "30m"}
    losses = loss_paths(body, ANTHROPIC, RESPONSES)
    assert has_loss_at(losses, "/messages/0/content/0/cache_control/ttl")
    assert has_loss_at(losses, "/tools/0/cache_control")


def test_earlier_assistant_text_gets_no_invented_id() -> None:
    message = {"role": "assistant", "content": [*_text_blocks("One", "Two"), anthropic_call("toolu_1")]}
    body = anthropic_request(USER_MESSAGE, message, {"role": "user", "content": [anthropic_result("toolu_1")]})
    translated = translated_body(body, ANTHROPIC, RESPONSES)
    assert translated["input"][1:3] == [
        {"role": "assistant", "content": "One"},
        {"role": "assistant", "content": "Two"},
    ]
    assert not any("id" in item for item in translated["input"])


DEFERRED_TOOL = {**anthropic_tool("later"), "defer_loading": True}


def test_tool_search_tools_become_this_api_s_tool_search() -> None:
    kinds = ("tool_search_tool_regex", "tool_search_tool_bm25")
    tools = [*({"type": f"{kind}_20251119", "name": kind} for kind in kinds), DEFERRED_TOOL]
    body = anthropic_request(tools=tools)
    search, later = translated_body(body, ANTHROPIC, RESPONSES)["tools"]
    assert (search, later["defer_loading"]) == ({"type": "tool_search"}, True)
    assert loss_paths(body, ANTHROPIC, RESPONSES) == {"/tools/0", "/tools/1"}


def test_deferred_tool_without_tool_search_is_declared_from_the_start() -> None:
    body = anthropic_request(tools=[DEFERRED_TOOL])
    assert "defer_loading" not in translated_body(body, ANTHROPIC, RESPONSES)["tools"][0]
    assert loss_paths(body, ANTHROPIC, RESPONSES) == {"/tools/0/defer_loading"}


def test_added_mcp_server_reference_is_dropped() -> None:
    tool = {"type": "mcp_toolset_reference", "server_name": "crm"}
    later = {"role": "system", "content": [{"type": "tool_addition", "tool": tool}]}
    body = anthropic_request({"role": "user", "content": "Hi"}, later)
    losses = toolwire.translate(body, ANTHROPIC, RESPONSES).losses
    assert [(loss.kind, loss.path) for loss in losses] == [("dropped", "/messages/1/content/0/tool")]


def test_callers_of_another_vendor_are_dropped_and_direct_calls_stay() -> None:
    callers = ["direct", "code_execution_20260120"]
    body = anthropic_request(tools=[{**anthropic_tool(), "allowed_callers": callers}])
    assert translated_body(body, ANTHROPIC, RESPONSES)["tools"][0]["allowed_callers"] == ["direct"]
    assert loss_paths(body, ANTHROPIC, RESPONSES) == {"/tools/0/allowed_callers/1"}


def test_web_search_is_mapped_unless_a_limit_has_no_equivalent() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.test"]}
    translated = translated_body(anthropic_request(USER_MESSAGE, tools=[search]), ANTHROPIC, RESPONSES)
    assert translated["tools"] == [{"type": "web_search", "filters": {"allowed_domains": ["a.test"]}}]
    blocked = {**search, "blocked_domains": ["b.test"]}
    body = anthropic_request(USER_MESSAGE, tools=[blocked, anthropic_tool()])
    with pytest.raises(toolwire.LossyTranslationError, match="/tools/0/blocked_domains/0"):
        translated_body(body, ANTHROPIC, RESPONSES)


def test_strict_format_is_completed_or_sent_without_strict() -> None:
    optional_schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    open_schema = {"type": "object", "properties": {"a": {"type": "object"}}, "additionalProperties": False}
    for schema, strict in ((optional_schema, True), (open_schema, False)):
        json_schema = {"name": "answer", "schema": schema, "strict": True}
        body = chat_request(response_format={"type": "json_schema", "json_schema": json_schema})
        translated = translated_body(body, CHAT, RESPONSES)["text"]["format"]
        assert translated["strict"] is strict
        assert translated["schema"].get("required") == (["a"] if strict else None)
        lost_path = "schema/properties/a" if strict else "strict"
        assert loss_paths(body, CHAT, RESPONSES) == {f"/response_format/json_schema/{lost_path}"}


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT, "gemini", "gemini-interactions", "ollama", "openrouter"])
def test_a_computer_call_without_actions_becomes_a_function_call(target: str) -> None:
    call = {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed", "actions": []}
    request = responses_request(USER_MESSAGE, call, tools=[{"type": "computer"}], model="m")
    translation = toolwire.translate(request, RESPONSES, target)
    assert ("approximated", "/input/1") in [(loss.kind, loss.path) for loss in translation.losses]
    assert "function call" in " ".join(loss.reason for loss in translation.losses)
