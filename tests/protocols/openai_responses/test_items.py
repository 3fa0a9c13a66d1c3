"""Items of the Responses API: decoding, and translation to other protocols."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    PNG_BASE64,
    USER_MESSAGE,
    responses_call,
    responses_item_events,
    responses_message,
    responses_output,
    responses_request,
    responses_response,
    responses_stream,
    responses_tool,
)
from tests.support.bodies.readers import stream_frames, tool_calls_in
from tests.support.protocols import ALL_PROTOCOLS, ANTHROPIC, RESPONSES
from tests.support.translation import has_loss_at, loss_paths, translate_stream_bytes, translated_body
from toolwire.canonical.content import (
    ItemRef,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    SettingChange,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
)
from toolwire.canonical.request import Request
from toolwire.codec.interface import Route
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
    "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG_BASE64}"},
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


def decode_request(*items: Any, **fields: Any) -> Request:
    return CODEC.decode_request(json.dumps(responses_request(*items, **fields)).encode(), Route())


def last_message(*items: Any) -> Message:
    return decode_request(*items).messages[-1]


def only_part(*items: Any) -> Any:
    (part,) = last_message(*items).parts
    return part


# ---- items


def test_item_is_a_message_with_its_id_status_and_phase() -> None:
    text = {"type": "output_text", "text": "Hm.", "annotations": []}
    message = last_message(
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [text],
        }
    )
    assert (message.role, message.id, message.status, message.phase) == (
        "assistant",
        "msg_1",
        "completed",
        "commentary",
    )
    assert message.parts == (Text(text="Hm.", annotations=()),)


def test_call_id_and_item_id_stay_separate() -> None:
    message = last_message(responses_call("call_1", id="fc_1", status="completed", namespace="crm"))
    (call,) = message.parts
    assert isinstance(call, ToolCall)
    assert (message.id, call.id, call.namespace, call.at) == ("fc_1", "call_1", "crm", "")


def test_namespace_equal_to_the_tool_name_is_removed_unless_declared() -> None:
    call = responses_call("call_1", "rates", namespace="rates")
    assert only_part(call).namespace is None
    assert (
        tool_calls_in(ANTHROPIC, translated_body(responses_request(USER_MESSAGE, call), RESPONSES, ANTHROPIC))[0][
            "name"
        ]
        == "rates"
    )
    group = {"type": "namespace", "name": "rates", "description": "", "tools": [responses_tool("rates")]}
    assert decode_request(call, tools=[group]).messages[0].parts[0].namespace == "rates"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("item", "hidden", "kinds", "encrypted"),
    [
        ({"summary": [], "encrypted_content": "gA"}, "omitted", [], "gA"),
        ({"summary": [{"type": "summary_text", "text": "S"}]}, None, ["summary"], None),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "T"}]}, None, ["full"], None),
    ],
)
def test_reasoning_keeps_summary_content_and_encrypted_content_separate(
    item: Any, hidden: str | None, kinds: list[str], encrypted: str | None
) -> None:
    part = only_part({"type": "reasoning", "id": "rs_1", **item})
    assert isinstance(part, Reasoning)
    assert part.hidden == hidden
    assert [getattr(text, "kind", None) for text in part.content] == kinds
    assert (part.signature and part.signature.data) == encrypted
    assert part.signature is None or part.signature.issuer == "openai"


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"type": "item_reference", "id": "rs_9"}, ItemRef),
        ({"id": "rs_9"}, ItemRef),
        ({"type": "additional_tools", "role": "developer", "tools": [responses_tool()]}, ToolChange),
        ({"type": "configuration_update", "reasoning": {"effort": "low"}}, SettingChange),
        ({"type": "compaction", "id": "cmp_1", "encrypted_content": "gA"}, OpaquePart),
        ({"type": "something_new", "x": 1}, OpaquePart),
        ({**SHELL, "environment": {"type": "container_reference", "container_id": "cntr_1"}}, OpaquePart),
        ({**SEARCH, "execution": "server"}, OpaquePart),
    ],
)
def test_other_items_decode_to_their_canonical_part(item: Any, kind: type) -> None:
    assert isinstance(only_part(item), kind)


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (SHELL, "shell", SHELL["action"]),
        (COMPUTER, "computer", {"actions": COMPUTER["actions"]}),
        (PATCH, "apply_patch", PATCH["operation"]),
        (APPROVAL, "ask", {"q": 1}),
        (SEARCH, "tool_search", SEARCH["arguments"]),
    ],
)
def test_native_client_call_decodes_to_a_tool_call(call: Any, name: str, arguments: Any) -> None:
    part = only_part(call)
    assert isinstance(part, ToolCall)
    assert (part.native, part.name, part.executor) == (call["type"], name, "client")
    assert json.loads(part.arguments) == arguments


def test_computer_actions_become_an_object_in_bodies_and_streams() -> None:
    response = translated_body(responses_response(COMPUTER), RESPONSES, ANTHROPIC, "response")
    wire = responses_stream(*responses_item_events(0, COMPUTER), output=[COMPUTER])
    frames = stream_frames(translate_stream_bytes(wire, RESPONSES, ANTHROPIC))
    arguments = "".join(frame["delta"]["partial_json"] for frame in frames if frame["type"] == "content_block_delta")
    assert json.loads(arguments) == response["content"][0]["input"] == {"actions": COMPUTER["actions"]}
    assert translated_body(responses_response(COMPUTER), RESPONSES, RESPONSES, "response") == responses_response(
        COMPUTER
    )
    assert stream_frames(translate_stream_bytes(wire, RESPONSES, RESPONSES)) == stream_frames(wire)


UNCHECKED_COMPUTER = {
    **COMPUTER,
    "pending_safety_checks": [{"id": "sc_1", "code": "x", "message": "m"}, {"id": "sc_2"}],
}


def test_acknowledged_safety_checks_may_be_dropped() -> None:
    screenshot = {**SCREENSHOT, "acknowledged_safety_checks": [{"id": "sc_2"}, {"id": "sc_1"}]}
    body = responses_request(USER_MESSAGE, UNCHECKED_COMPUTER, screenshot)
    assert translated_body(body, RESPONSES, RESPONSES) == body
    assert {f"/input/1/pending_safety_checks/{index}" for index in (0, 1)} <= loss_paths(body, RESPONSES, ANTHROPIC)


@pytest.mark.parametrize("acknowledged", [[], [{"id": "sc_1"}], [{"id": "sc_3"}, {"id": "sc_1"}]])
def test_unacknowledged_safety_checks_may_not_be_dropped(acknowledged: Any) -> None:
    screenshot = {**SCREENSHOT, "acknowledged_safety_checks": acknowledged}
    with pytest.raises(toolwire.LossyTranslationError, match="pending_safety_checks"):
        translated_body(responses_request(USER_MESSAGE, UNCHECKED_COMPUTER, screenshot), RESPONSES, ANTHROPIC)


@pytest.mark.parametrize("target", [name for name in ALL_PROTOCOLS if name != RESPONSES])
def test_stream_fails_before_a_call_with_unacknowledged_safety_checks(target: str) -> None:
    items = [responses_message("Hi."), UNCHECKED_COMPUTER, {**responses_message("Done."), "id": "msg_2"}]
    events = [event for index, item in enumerate(items) for event in responses_item_events(index, item)]
    stream = toolwire.translate_stream(responses_stream(*events, output=items), RESPONSES, target)
    wire = b"".join(stream)
    assert b"Hi." in wire
    assert b"Done." not in wire
    assert stream.error is not None
    assert "pending_safety_checks" in stream.error.message
    assert not stream.broken


def test_shell_output_is_readable_elsewhere_and_unchanged_in_the_same_protocol() -> None:
    body = responses_request(USER_MESSAGE, SHELL, SHELL_OUTPUT)
    assert translated_body(body, RESPONSES, RESPONSES) == body
    result = translated_body(body, RESPONSES, ANTHROPIC)["messages"][2]["content"][0]
    text = json.dumps(result["content"])
    assert all(word in text for word in ("a.txt", "no such file", "exit code 1"))


def test_screenshot_decodes_to_an_image() -> None:
    (media,) = only_part(COMPUTER, SCREENSHOT).content
    assert isinstance(media, Media)
    assert (media.kind, media.media_type) == ("image", "image/png")


@pytest.mark.parametrize(("state", "status"), [("failed", "error"), ("completed", "ok")])
def test_failed_patch_decodes_to_an_error(state: str, status: str) -> None:
    output = {"type": "apply_patch_call_output", "call_id": "call_1", "status": state, "output": "said"}
    assert only_part(PATCH, output).status == status


@pytest.mark.parametrize(("approve", "status"), [(True, "ok"), (False, "denied")])
def test_approval_response_decodes_to_a_result(approve: bool, status: str) -> None:
    response = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve}
    result = only_part(APPROVAL, response)
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.status) == ("mcpr_1", status)


def test_local_shell_output_is_matched_by_item_id() -> None:
    call = {
        "type": "local_shell_call",
        "id": "lsh_1",
        "call_id": "call_1",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    }
    body = responses_request(USER_MESSAGE, call, {"type": "local_shell_call_output", "id": "lsh_1", "output": "a.txt"})
    assert translated_body(body, RESPONSES, RESPONSES) == body
    result = translated_body(body, RESPONSES, ANTHROPIC)["messages"][2]["content"][0]
    assert result["tool_use_id"] == "call_1"


def test_pending_safety_checks_are_refused_and_empty_ones_are_no_loss() -> None:
    pending = {**COMPUTER, "pending_safety_checks": [{"id": "sc_1", "code": "x", "message": "y"}]}
    with pytest.raises(toolwire.LossyTranslationError, match="pending_safety_checks"):
        translated_body(responses_request(USER_MESSAGE, pending, SCREENSHOT), RESPONSES, ANTHROPIC)
    body = responses_request(USER_MESSAGE, COMPUTER, SCREENSHOT)
    assert not has_loss_at(loss_paths(body, RESPONSES, ANTHROPIC), "/input/1/pending_safety_checks")


def test_tools_loaded_by_a_search_are_declared_once() -> None:
    body = responses_request(USER_MESSAGE, SEARCH, SEARCH_OUTPUT)
    assert [tool["name"] for tool in translated_body(body, RESPONSES, ANTHROPIC)["tools"]] == ["rates"]
    declared = {**body, "tools": [responses_tool("rates", defer_loading=True), responses_tool()]}
    assert [tool["name"] for tool in translated_body(declared, RESPONSES, ANTHROPIC)["tools"]] == [
        "rates",
        "get_weather",
    ]


# ---- continuing a conversation


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
def test_each_kind_of_call_gets_its_own_kind_of_output(call: Any, output: Any, answer: Any) -> None:
    response = responses_response(call)
    following = toolwire.continue_request(
        responses_request(USER_MESSAGE), response, [{"id": "call_1", **output}], RESPONSES
    )
    assert following["input"] == [USER_MESSAGE, call, answer]


def test_caller_is_copied_to_the_result() -> None:
    call = responses_call("call_1", id="fc_1", caller={"type": "program", "caller_id": "call_0"})
    outputs = [{"id": "call_1", "output": "42"}]
    following = toolwire.continue_request(responses_request(USER_MESSAGE), responses_response(call), outputs, RESPONSES)
    assert following["input"][-1] == {**responses_output("call_1", "42"), "caller": call["caller"]}
