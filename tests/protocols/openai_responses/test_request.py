"""What is particular to the requests of Responses: items, native calls, and what other protocols' words become."""

import json
from typing import Any

import pytest

import toolwire
from tests.bodies import (
    GO,
    PNG,
    anthropic_call,
    anthropic_request,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
    chat_request,
    responses_call,
    responses_output,
    responses_request,
    responses_response,
    responses_tool,
)
from tests.sdk import accept_request
from tests.wire import ANTHROPIC, CHAT, RESPONSES, calls, lost, named, translated
from toolwire.canonical.content import (
    Foreign,
    ItemRef,
    Media,
    Message,
    Reasoning,
    SettingChange,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
)
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool, ToolGroup
from toolwire.codec.interface import Route, Target
from toolwire.codec.losses import Report
from toolwire.protocols.openai_responses import CODEC

SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "call_1",
    "status": "completed",
    "action": {"commands": ["ls", "rm x"], "timeout_ms": 1000},
    "environment": {"type": "local"},
}
SHELL_OUTPUT = {
    "type": "shell_call_output",
    "call_id": "call_1",
    "output": [
        {"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "no such file", "outcome": {"type": "exit", "exit_code": 1}},
    ],
}
COMPUTER = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "call_1",
    "status": "completed",
    "pending_safety_checks": [],
    "actions": [{"type": "click", "x": 1, "y": 2, "button": "left"}],
}
SCREENSHOT = {
    "type": "computer_call_output",
    "call_id": "call_1",
    "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"},
}
PATCH = {
    "type": "apply_patch_call",
    "id": "apc_1",
    "call_id": "call_1",
    "status": "completed",
    "operation": {"type": "delete_file", "path": "a.txt"},
}
APPROVAL = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "ask",
    "arguments": '{"q": 1}',
    "server_label": "wiki",
}
SEARCH = {"type": "tool_search_call", "call_id": "call_1", "execution": "client", "arguments": {"query": "rates"}}
SEARCH_OUTPUT = {
    "type": "tool_search_output",
    "call_id": "call_1",
    "execution": "client",
    "tools": [responses_tool("rates", defer_loading=True)],
}


def read(*items: Any, **fields: Any) -> Request:
    return CODEC.decode_request(json.dumps(responses_request(*items, **fields)).encode(), Route())


def last(*items: Any) -> Message:
    return read(*items).messages[-1]


def only(*items: Any) -> Any:
    (part,) = last(*items).parts
    return part


# ---- items


def test_an_item_is_a_message_and_its_id_status_and_phase_are_the_message_s() -> None:
    said = {"type": "output_text", "text": "Hm.", "annotations": []}
    message = last(
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [said],
        }
    )
    assert (message.role, message.id, message.status, message.phase) == (
        "assistant",
        "msg_1",
        "completed",
        "commentary",
    )
    assert message.parts == (Text(text="Hm.", annotations=()),)


def test_a_call_has_two_ids_that_are_never_one() -> None:
    message = last(responses_call("call_1", id="fc_1", status="completed", namespace="crm"))
    (call,) = message.parts
    assert isinstance(call, ToolCall)
    assert (message.id, call.id, call.namespace, call.at) == ("fc_1", "call_1", "crm", "")


def test_a_call_of_a_tool_as_its_own_namespace_has_none() -> None:
    call = responses_call("call_1", "rates", namespace="rates")
    assert only(call).namespace is None
    assert calls(ANTHROPIC, translated(responses_request(GO, call), RESPONSES, ANTHROPIC))[0]["name"] == "rates"
    group = {"type": "namespace", "name": "rates", "description": "", "tools": [responses_tool("rates")]}
    assert read(call, tools=[group]).messages[0].parts[0].namespace == "rates"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("item", "hidden", "kinds", "sealed"),
    [
        ({"summary": [], "encrypted_content": "gA"}, "omitted", [], "gA"),
        ({"summary": [{"type": "summary_text", "text": "S"}]}, None, ["summary"], None),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "T"}]}, None, ["full"], None),
    ],
)
def test_reasoning_keeps_summary_content_and_seal_apart(
    item: Any, hidden: str | None, kinds: list[str], sealed: str | None
) -> None:
    part = only({"type": "reasoning", "id": "rs_1", **item})
    assert isinstance(part, Reasoning)
    assert part.hidden == hidden
    assert [getattr(text, "kind", None) for text in part.content] == kinds
    assert (part.seal and part.seal.data) == sealed
    assert part.seal is None or part.seal.issuer == "openai"


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"type": "item_reference", "id": "rs_9"}, ItemRef),
        ({"id": "rs_9"}, ItemRef),
        ({"type": "additional_tools", "role": "developer", "tools": [responses_tool()]}, ToolChange),
        ({"type": "configuration_update", "reasoning": {"effort": "low"}}, SettingChange),
        ({"type": "compaction", "id": "cmp_1", "encrypted_content": "gA"}, Foreign),
        ({"type": "something_new", "x": 1}, Foreign),
        ({**SHELL, "environment": {"type": "container_reference", "container_id": "cntr_1"}}, Foreign),
        ({**SEARCH, "execution": "server"}, Foreign),
    ],
)
def test_other_items_become_what_they_mean(item: Any, kind: type) -> None:
    assert isinstance(only(item), kind)


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (SHELL, "shell", SHELL["action"]),
        (COMPUTER, "computer", COMPUTER["actions"]),
        (PATCH, "apply_patch", PATCH["operation"]),
        (APPROVAL, "ask", {"q": 1}),
        (SEARCH, "tool_search", SEARCH["arguments"]),
    ],
)
def test_a_native_call_that_the_client_answers_is_a_call(call: Any, name: str, arguments: Any) -> None:
    part = only(call)
    assert isinstance(part, ToolCall)
    assert (part.native, part.name, part.executor) == (call["type"], name, "client")
    assert json.loads(part.arguments) == arguments


def test_what_a_shell_said_is_readable_for_others_and_exact_at_home() -> None:
    body = responses_request(GO, SHELL, SHELL_OUTPUT)
    assert translated(body, RESPONSES, RESPONSES) == body
    result = translated(body, RESPONSES, ANTHROPIC)["messages"][2]["content"][0]
    text = json.dumps(result["content"])
    assert all(word in text for word in ("a.txt", "no such file", "exit code 1"))


def test_a_screenshot_is_an_image() -> None:
    (media,) = only(COMPUTER, SCREENSHOT).content
    assert isinstance(media, Media)
    assert (media.kind, media.media_type) == ("image", "image/png")


@pytest.mark.parametrize(("state", "status"), [("failed", "error"), ("completed", "ok")])
def test_a_failed_patch_is_an_error(state: str, status: str) -> None:
    answer = {"type": "apply_patch_call_output", "call_id": "call_1", "status": state, "output": "said"}
    assert only(PATCH, answer).status == status


@pytest.mark.parametrize(("approve", "status"), [(True, "ok"), (False, "denied")])
def test_an_approval_answers_its_request(approve: bool, status: str) -> None:
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve}
    result = only(APPROVAL, answer)
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.status) == ("mcpr_1", status)


def test_an_old_shell_output_names_the_item_and_answers_its_call() -> None:
    asked = {
        "type": "local_shell_call",
        "id": "lsh_1",
        "call_id": "call_1",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    }
    body = responses_request(GO, asked, {"type": "local_shell_call_output", "id": "lsh_1", "output": "a.txt"})
    assert translated(body, RESPONSES, RESPONSES) == body
    result = translated(body, RESPONSES, ANTHROPIC)["messages"][2]["content"][0]
    assert result["tool_use_id"] == "call_1"


def test_pending_safety_checks_are_refused_and_none_are_no_loss() -> None:
    waiting = {**COMPUTER, "pending_safety_checks": [{"id": "sc_1", "code": "x", "message": "y"}]}
    with pytest.raises(toolwire.LossRefused, match="pending_safety_checks"):
        translated(responses_request(GO, waiting, SCREENSHOT), RESPONSES, ANTHROPIC)
    body = responses_request(GO, COMPUTER, SCREENSHOT)
    assert not named(lost(body, RESPONSES, ANTHROPIC), "/input/1/pending_safety_checks")


def test_tools_that_a_search_loads_are_declared_to_others_once() -> None:
    body = responses_request(GO, SEARCH, SEARCH_OUTPUT)
    assert [tool["name"] for tool in translated(body, RESPONSES, ANTHROPIC)["tools"]] == ["rates"]
    declared = {**body, "tools": [responses_tool("rates", defer_loading=True), responses_tool()]}
    assert [tool["name"] for tool in translated(declared, RESPONSES, ANTHROPIC)["tools"]] == ["rates", "get_weather"]


# ---- fields


def test_only_parallel_is_said_where_only_parallel_was() -> None:
    choice = read(parallel_tool_calls=False).tool_choice
    assert choice is not None
    assert (choice.mode, choice.parallel) == (None, False)


def test_the_parallel_switch_is_lost_by_its_own_name() -> None:
    request = read(GO, parallel_tool_calls=False, tool_choice="auto")
    report = Report()
    report.dropped(("tool_choice",), "parallel")
    assert [loss.path for loss in report.resolve(request, CODEC.names)] == ["/parallel_tool_calls"]


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
    body = responses_request(GO, prompt_cache_key="k", prompt_cache_options={"mode": "explicit", "prewarm": True})
    made = translated(body, RESPONSES, CHAT)
    assert (made["prompt_cache_key"], made["prompt_cache_options"]) == ("k", {"mode": "explicit"})
    assert named(lost(body, RESPONSES, CHAT), "/prompt_cache_options/prewarm")


# ---- what others say


def test_strict_and_parameters_are_always_said() -> None:
    (tool,) = translated(anthropic_request(GO, tools=[anthropic_tool()]), ANTHROPIC, RESPONSES)["tools"]
    assert tool["strict"] is False
    bare = Request(origin="", tools=(FunctionTool(name="now"),))
    (made,) = json.loads(CODEC.encode_request(bare, Target()).to_bytes())["tools"]
    assert (made["strict"], made["parameters"]) == (False, {"type": "object", "properties": {}})


def test_strict_is_kept_where_the_schema_can_bear_it() -> None:
    closed = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    opened = {**closed, "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}
    for schema, kept in (({**closed, "required": ["a"]}, True), (closed, True), (opened, False)):
        body = anthropic_request(GO, tools=[anthropic_tool(schema=schema, strict=True)])
        (tool,) = translated(body, ANTHROPIC, RESPONSES)["tools"]
        assert tool["strict"] is kept
        assert named(lost(body, ANTHROPIC, RESPONSES), "/tools/0/strict") is not kept


def test_system_blocks_are_one_text_and_a_later_system_message_is_a_developer_s() -> None:
    body = anthropic_request(GO, {"role": "system", "content": "Be brief."}, GO)
    body["system"] = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    made = translated(body, ANTHROPIC, RESPONSES)
    assert made["instructions"] == "One.\n\nTwo."
    assert [item["role"] for item in made["input"]] == ["user", "developer", "user"]
    assert named(lost(body, ANTHROPIC, RESPONSES), "/system/1")


def test_text_results_are_one_string_and_media_stay_a_list() -> None:
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    for content, output in (
        (texts, "a\nb"),
        (
            [texts[0], image],
            [
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
            ],
        ),
    ):
        body = anthropic_turn([anthropic_call("toolu_1")], [anthropic_result("toolu_1", content)])
        assert translated(body, ANTHROPIC, RESPONSES)["input"][-1]["output"] == output


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
    made = translated(body, ANTHROPIC, RESPONSES)
    assert made["input"][0]["content"][0] == part
    assert accept_request(RESPONSES, made) is None


def _texts(*texts: str) -> list[Any]:
    return [{"type": "text", "text": text} for text in texts]


def test_a_cache_mark_stands_on_text_and_is_reported_elsewhere() -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    said = {"role": "user", "content": [{"type": "text", "text": "x", **mark}]}
    body = anthropic_request(said, tools=[{**anthropic_tool(), **mark}])
    (part,) = translated(body, ANTHROPIC, RESPONSES)["input"][0]["content"]
    assert part["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "30m"}
    losses = lost(body, ANTHROPIC, RESPONSES)
    assert named(losses, "/messages/0/content/0/cache_control/ttl")
    assert named(losses, "/tools/0/cache_control")


def test_what_the_model_said_before_has_no_made_up_id() -> None:
    said = {"role": "assistant", "content": [*_texts("One", "Two"), anthropic_call("toolu_1")]}
    body = anthropic_request(GO, said, {"role": "user", "content": [anthropic_result("toolu_1")]})
    made = translated(body, ANTHROPIC, RESPONSES)
    assert made["input"][1:3] == [{"role": "assistant", "content": "One"}, {"role": "assistant", "content": "Two"}]
    assert not any("id" in item for item in made["input"])


def test_a_web_search_becomes_this_vendor_s_unless_something_bounds_it_that_can_t_be_said() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.test"]}
    made = translated(anthropic_request(GO, tools=[search]), ANTHROPIC, RESPONSES)
    assert made["tools"] == [{"type": "web_search", "filters": {"allowed_domains": ["a.test"]}}]
    blocked = {**search, "blocked_domains": ["b.test"]}
    body = anthropic_request(GO, tools=[blocked, anthropic_tool()])
    with pytest.raises(toolwire.LossRefused, match="/tools/0/blocked_domains/0"):
        translated(body, ANTHROPIC, RESPONSES)


# ---- the cycle


@pytest.mark.parametrize(
    ("call", "output", "answer"),
    [
        (
            SHELL,
            {"output": "ok"},
            {
                "type": "shell_call_output",
                "call_id": "call_1",
                "output": [{"stdout": "ok", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            },
        ),
        (
            PATCH,
            {"output": "no", "is_error": True},
            {"type": "apply_patch_call_output", "call_id": "call_1", "status": "failed", "output": "no"},
        ),
        (
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "patch", "input": "*** x"},
            {"output": "done"},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"},
        ),
        (responses_call("call_1", id="fc_1"), {"output": {"a": 1}}, responses_output("call_1", '{"a": 1}')),
    ],
)
def test_each_kind_of_call_is_answered_by_its_own_kind_of_item(call: Any, output: Any, answer: Any) -> None:
    response = responses_response(call)
    following = toolwire.continue_request(responses_request(GO), response, [{"id": "call_1", **output}], RESPONSES)
    assert following["input"] == [GO, call, answer]


def test_a_caller_is_copied_onto_the_result() -> None:
    call = responses_call("call_1", id="fc_1", caller={"type": "program", "caller_id": "call_0"})
    outputs = [{"id": "call_1", "output": "42"}]
    following = toolwire.continue_request(responses_request(GO), responses_response(call), outputs, RESPONSES)
    assert following["input"][-1] == {**responses_output("call_1", "42"), "caller": call["caller"]}


def test_a_strict_format_is_completed_or_not_strict() -> None:
    optional = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    opened = {"type": "object", "properties": {"a": {"type": "object"}}, "additionalProperties": False}
    for schema, strict in ((optional, True), (opened, False)):
        described = {"name": "answer", "schema": schema, "strict": True}
        body = chat_request(response_format={"type": "json_schema", "json_schema": described})
        made = translated(body, CHAT, RESPONSES)["text"]["format"]
        assert made["strict"] is strict
        assert made["schema"].get("required") == (["a"] if strict else None)
        below = "schema/properties/a" if strict else "strict"
        assert lost(body, CHAT, RESPONSES) == {f"/response_format/json_schema/{below}"}
