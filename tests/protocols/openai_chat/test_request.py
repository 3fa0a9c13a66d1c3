"""Chat requests: locations of fields, variants of spelling, and features that Chat lacks."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    CITY_ARGUMENTS,
    PNG_BASE64,
    USER_MESSAGE,
    anthropic_call,
    anthropic_request,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_request,
    chat_result,
    chat_tool,
    chat_turn,
    responses_request,
    responses_tool,
)
from tests.support.bodies.readers import message_roles, tool_calls_in, tool_results_in
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.translation import has_loss_at, loss_paths, translated_body
from toolwire.canonical.content import Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from toolwire.codec.interface import Route
from toolwire.protocols.openai_chat import CODEC

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}
THINKING = {"type": "thinking", "thinking": "Look it up.", "signature": "c2ln"}


def decoded(*messages: Any, **fields: Any) -> tuple[Message, ...]:
    return CODEC.decode_request(json.dumps(chat_request(*messages, **fields)).encode(), Route()).messages


def kinds(message: Message) -> list[type[Part]]:
    return [type(part) for part in message.parts]


# ---- decode


def test_tool_message_is_a_result_of_the_user() -> None:
    _, _, message = decoded(USER_MESSAGE, chat_assistant(chat_call("call_1")), chat_result("call_1", "18C"))
    assert message.role == "user"
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.at) == ("call_1", "")
    assert isinstance(result.content, tuple)
    assert result.content[0].at == "/content"


def test_assistant_parts_have_a_fixed_order() -> None:
    body = {
        "role": "assistant",
        "tool_calls": [chat_call("call_1")],
        "refusal": "No.",
        "content": [{"type": "text", "text": "Well."}],
        "reasoning_content": "Hm.",
    }
    (message,) = decoded(body)
    assert kinds(message) == [Reasoning, Text, Refusal, ToolCall]
    assert [part.at for part in message.parts] == ["/reasoning_content", "/content/0", "/refusal", "/tool_calls/0"]


@pytest.mark.parametrize("arguments", [CITY_ARGUMENTS, "", "{broken", '{"a": 1,  "a":2}'])
def test_arguments_keep_their_exact_text(arguments: str) -> None:
    (message,) = decoded(chat_assistant(chat_call("call_1", arguments=arguments)))
    assert isinstance(message.parts[0], ToolCall)
    assert message.parts[0].arguments == arguments


def test_object_arguments_keep_their_source_text() -> None:
    wire = (
        b'{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{"n": 1.0 }}}]}]}'
    )
    request = CODEC.decode_request(wire, Route())
    (call,) = request.messages[0].parts
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"n": 1.0 }'


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_decoded_once_from_either_field(name: str) -> None:
    (message,) = decoded({"role": "assistant", "content": "Well.", name: "Hm."})
    assert kinds(message) == [Reasoning, Text]
    (both,) = decoded({"role": "assistant", "content": "Well.", "reasoning": "Hm.", "reasoning_content": "Hm."})
    assert kinds(both) == [Reasoning, Text]


def test_reasoning_details_alone_are_decoded() -> None:
    details = [{"type": "reasoning.text", "text": "Hm."}, {"type": "reasoning.encrypted", "data": "x"}]
    (message,) = decoded({"role": "assistant", "content": "Well.", "reasoning_details": details})
    assert isinstance(reasoning := message.parts[0], Reasoning)
    assert [getattr(text, "text", None) for text in reasoning.content] == ["Hm."]


def test_empty_fields_are_ignored_and_restored() -> None:
    empty = {"role": "assistant", "content": "Well.", "refusal": "", "function_call": {"name": "", "arguments": ""}}
    (message,) = decoded(empty)
    assert kinds(message) == [Text]
    assert translated_body(chat_request(empty), CHAT, CHAT)["messages"] == [empty]


def test_legacy_function_result_is_paired_by_name() -> None:
    call_message = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "get_weather", "arguments": CITY_ARGUMENTS},
    }
    body = chat_request(USER_MESSAGE, call_message, {"role": "function", "name": "get_weather", "content": "18C"})
    translated = translated_body({**body, "functions": [chat_tool()["function"]]}, CHAT, ANTHROPIC)
    (call,) = tool_calls_in(ANTHROPIC, translated)
    assert tool_results_in(ANTHROPIC, translated) == [(call["id"], "18C")]
    assert [tool["name"] for tool in translated["tools"]] == ["get_weather"]


def test_tool_choice_any_means_required_and_is_restored() -> None:
    body = chat_request(tools=[chat_tool()], tool_choice="any")
    assert translated_body(body, CHAT, ANTHROPIC)["tool_choice"] == {"type": "any"}
    assert translated_body(body, CHAT, CHAT) == body


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_limit_are_decoded(field: str) -> None:
    body = chat_request(**{field: 77})
    assert translated_body(body, CHAT, ANTHROPIC)["max_tokens"] == 77
    assert translated_body(body, CHAT, CHAT) == body


# ---- encode


def test_system_text_is_a_string_or_a_list() -> None:
    blocks = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert translated_body(anthropic_request(system="One."), ANTHROPIC, CHAT)["messages"][0]["content"] == "One."
    (lead, _) = translated_body(anthropic_request(system=blocks), ANTHROPIC, CHAT)["messages"]
    assert lead == {"role": "system", "content": blocks}


def test_text_after_calls_is_moved_before_them_and_reported() -> None:
    blocks = [{"type": "text", "text": "First."}, anthropic_call("toolu_1"), {"type": "text", "text": "Then."}]
    body = anthropic_turn(blocks, [anthropic_result("toolu_1")])
    message = translated_body(body, ANTHROPIC, CHAT)["messages"][1]
    assert [part["text"] for part in message["content"]] == ["First.", "Then."]
    assert "/messages/1/content/2" in loss_paths(body, ANTHROPIC, CHAT)


def test_media_of_results_follow_with_a_label() -> None:
    results = [anthropic_result("toolu_1", [IMAGE]), anthropic_result("toolu_2", "18C")]
    body = anthropic_turn([anthropic_call("toolu_1"), anthropic_call("toolu_2")], results)
    translated = translated_body(body, ANTHROPIC, CHAT)
    assert message_roles(translated)[2:] == ["tool", "tool", "user"]
    label, image = translated["messages"][4]["content"]
    assert "toolu_1" in label["text"]
    assert image["type"] == "image_url"
    assert "see the next user message" in translated["messages"][2]["content"]
    assert "/messages/2/content/0/content/0" in loss_paths(body, ANTHROPIC, CHAT)


def test_media_summary_is_sent_if_configured() -> None:
    body = anthropic_turn([anthropic_call("toolu_1")], [anthropic_result("toolu_1", [IMAGE])])
    translated = translated_body(body, ANTHROPIC, CHAT, binary_results="summary")
    assert message_roles(translated) == ["user", "assistant", "tool"]
    assert "image/png" in translated["messages"][2]["content"]


@pytest.mark.parametrize(
    ("model", "sent"), [("gpt-4o", None), ("deepseek-chat", "Look it up."), ("moonshotai/Kimi-K2", "Look it up.")]
)
def test_reasoning_is_sent_only_to_models_that_require_it(model: str, sent: str | None) -> None:
    body = anthropic_turn([THINKING, anthropic_call("toolu_1")], [anthropic_result("toolu_1")])
    assert translated_body(body, ANTHROPIC, CHAT, model=model)["messages"][1].get("reasoning_content") == sent
    paths = loss_paths(body, ANTHROPIC, CHAT, model=model)
    assert ("/messages/1/content/0" in paths) == (sent is None)
    assert ("/messages/1/content/0/signature" in paths) == (sent is not None)


def test_missing_reasoning_is_sent_as_empty_if_required() -> None:
    body = anthropic_turn([anthropic_call("toolu_1")], [anthropic_result("toolu_1")])
    translation = toolwire.translate(body, source=ANTHROPIC, target=CHAT, kind="request", model="deepseek-chat")
    assert translation.value["messages"][1]["reasoning_content"] == ""
    assert [loss.kind for loss in translation.losses] == ["added"]


@pytest.mark.parametrize(
    ("thinking", "effort", "path"),
    [
        ({"type": "disabled"}, "none", None),
        ({"type": "enabled", "budget_tokens": 1024}, "low", "/thinking/budget_tokens"),
        ({"type": "enabled", "budget_tokens": 30000}, "high", "/thinking/budget_tokens"),
        ({"type": "adaptive"}, None, "/thinking/type"),
    ],
)
def test_thinking_is_sent_as_effort(thinking: Any, effort: str | None, path: str | None) -> None:
    body = anthropic_request(thinking=thinking)
    assert translated_body(body, ANTHROPIC, CHAT).get("reasoning_effort") == effort
    assert loss_paths(body, ANTHROPIC, CHAT) == ({path} if path else set())


@pytest.mark.parametrize(("model", "effort"), [("gpt-5.4", "none"), ("gpt-6-luna", "none"), ("gpt-5.1", "high")])
def test_effort_is_none_for_models_without_tools_while_reasoning(model: str, effort: str) -> None:
    body = responses_request(tools=[responses_tool()], reasoning={"effort": "high"})
    assert translated_body(body, RESPONSES, CHAT, model=model)["reasoning_effort"] == effort
    assert ("/reasoning/effort" in loss_paths(body, RESPONSES, CHAT, model=model)) == (effort == "none")


def test_output_schema_gets_a_name() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    body = anthropic_request(output_config={"format": {"type": "json_schema", "schema": schema}})
    translation = toolwire.translate(body, source=ANTHROPIC, target=CHAT, kind="request")
    assert translation.value["response_format"]["json_schema"] == {"name": "response", "schema": schema, "strict": True}
    assert [(loss.kind, loss.target) for loss in translation.losses] == [("added", "/response_format/json_schema/name")]


def test_fifth_stop_sequence_is_dropped_and_reported() -> None:
    body = anthropic_request(stop_sequences=list("abcdef"))
    assert translated_body(body, ANTHROPIC, CHAT)["stop"] == list("abcd")
    assert loss_paths(body, ANTHROPIC, CHAT) == {"/stop_sequences/4", "/stop_sequences/5"}


def test_tool_choice_is_dropped_without_tools() -> None:
    body = anthropic_request(tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert not {"tool_choice", "parallel_tool_calls"} & translated_body(body, ANTHROPIC, CHAT).keys()
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/tool_choice")


OPTIONAL = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(("schema", "strict"), [(OPTIONAL, True), (OPEN, False)])
def test_strict_is_dropped_for_unsupported_schema(schema: Any, strict: bool) -> None:
    body = anthropic_request(tools=[anthropic_tool(schema=schema, strict=True)])
    assert translated_body(body, ANTHROPIC, CHAT)["tools"][0]["function"]["strict"] is strict
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/tools/0/strict") is not strict


def test_cache_mark_loses_only_its_ttl() -> None:
    block = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = anthropic_request({"role": "user", "content": [block, {"type": "text", "text": "Short."}]}, model="gpt-5.6")
    part, _ = translated_body(body, ANTHROPIC, CHAT)["messages"][0]["content"]
    assert part == {"type": "text", "text": "Long.", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert loss_paths(body, ANTHROPIC, CHAT) == {"/messages/0/content/0/cache_control/ttl"}


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-4o", "o4-mini", "claude-opus-5-5"])
def test_cache_marks_are_sent_only_to_models_that_accept_them(model: str) -> None:
    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    body = anthropic_request(system=[block, {"type": "text", "text": "Be kind."}], model=model)
    assert "prompt_cache_breakpoint" not in str(translated_body(body, ANTHROPIC, CHAT))
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/system/0/cache_control")


def test_moving_cache_mark_does_not_change_the_form_of_a_message() -> None:
    block = {"type": "text", "text": "Fix it."}
    marked = anthropic_request({"role": "user", "content": [block | {"cache_control": {"type": "ephemeral"}}]})
    plain = anthropic_request({"role": "user", "content": [block]})
    for target in (CHAT, RESPONSES, "openrouter"):
        translations = [translated_body(body, ANTHROPIC, target, model="gpt-6") for body in (marked, plain)]
        messages = [body.get("messages") or body["input"] for body in translations]
        assert messages[0] == messages[1]
        assert has_loss_at(loss_paths(marked, ANTHROPIC, target, model="gpt-6"), "/messages/0/content/0/cache_control")


@pytest.mark.parametrize(("length", "is_kept"), [(40, True), (41, False)])
def test_long_ids_are_rewritten_in_call_and_result(length: int, is_kept: bool) -> None:
    id = "t" * length
    translated = translated_body(anthropic_turn([anthropic_call(id)], [anthropic_result(id)]), ANTHROPIC, CHAT)
    (call,) = tool_calls_in(CHAT, translated)
    assert (call["id"] == id) is is_kept
    assert len(call["id"] or "") <= 40
    assert tool_results_in(CHAT, translated) == [(call["id"], "18C")]


def test_usage_is_requested_for_streams() -> None:
    assert translated_body(anthropic_request(stream=True), ANTHROPIC, CHAT)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in translated_body(anthropic_request(stream=False), ANTHROPIC, CHAT)


def test_shared_openai_fields_are_translated() -> None:
    body = chat_request(prompt_cache_key="k", safety_identifier="s", metadata={"a": "b"}, store=True, user="u")
    translated = translated_body(body, CHAT, RESPONSES)
    assert (translated["prompt_cache_key"], translated["safety_identifier"], translated["metadata"]) == (
        "k",
        "s",
        {"a": "b"},
    )
    assert loss_paths(body, CHAT, RESPONSES) == set()


def test_wrapped_arguments_are_unwrapped() -> None:
    body = chat_turn([chat_call("call_1", arguments="{broken")], [chat_result("call_1")])
    back = translated_body(translated_body(body, CHAT, ANTHROPIC), ANTHROPIC, CHAT)
    assert back["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{broken"


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}, "file"),
        ({"type": "text", "media_type": "text/plain", "data": "Plain."}, "text"),
        ({"type": "url", "url": "https://example.com/a.pdf"}, "text"),
    ],
)
def test_document_is_sent_as_file_or_text(source: Any, part: str) -> None:
    body = anthropic_request({"role": "user", "content": [{"type": "document", "source": source, "title": "T"}]})
    content = translated_body(body, ANTHROPIC, CHAT)["messages"][0]["content"]
    kind = "text" if isinstance(content, str) else content[0]["type"]
    assert kind == part
    assert bool(loss_paths(body, ANTHROPIC, CHAT)) is (part == "text")


def test_nested_document_is_sent_as_parts_after_its_title() -> None:
    source = {"type": "content", "content": [{"type": "text", "text": "First."}, IMAGE]}
    document = {"type": "document", "title": "Parts", "source": source}
    body = anthropic_request({"role": "user", "content": [document]})
    content = translated_body(body, ANTHROPIC, CHAT)["messages"][0]["content"]
    assert [part.get("text", part["type"]) for part in content] == ["Parts", "First.", "image_url"]
    assert loss_paths(body, ANTHROPIC, CHAT) == {"/messages/0/content/0/source"}


def test_image_in_a_result_document_follows_the_results() -> None:
    source = {"type": "content", "content": [{"type": "text", "text": "First."}, IMAGE]}
    result = anthropic_result("toolu_1", [{"type": "document", "source": source}])
    body = anthropic_turn([anthropic_call("toolu_1")], [result])
    _, _, tool_message, user_message = translated_body(body, ANTHROPIC, CHAT)["messages"]
    assert [part["type"] for part in tool_message["content"]] == ["text", "text"]
    assert [part["type"] for part in user_message["content"]] == ["text", "image_url"]


def test_title_of_a_text_document_is_sent() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Rain."}
    body = anthropic_request({"role": "user", "content": [{"type": "document", "title": "Almanac", "source": source}]})
    assert translated_body(body, ANTHROPIC, CHAT)["messages"][0]["content"] == "Almanac\nRain."
    assert not has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/messages/0/content/0/title")


def test_programmatic_callers_are_dropped() -> None:
    tool = anthropic_tool(allowed_callers=["direct", "code_execution_20260521"])
    assert loss_paths(anthropic_request(USER_MESSAGE, tools=[tool]), ANTHROPIC, CHAT) == {"/tools/0/allowed_callers/1"}


def test_zero_limit_becomes_the_minimum() -> None:
    body = anthropic_request(USER_MESSAGE, max_tokens=0)
    assert translated_body(body, ANTHROPIC, CHAT)["max_completion_tokens"] == 1
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/max_tokens")


def test_added_mcp_tool_is_not_declared() -> None:
    added = {"type": "mcp_tool_reference", "server_name": "crm", "name": "find"}
    body = anthropic_request(USER_MESSAGE, {"role": "system", "content": [{"type": "tool_addition", "tool": added}]})
    (loss,) = toolwire.translate(body, ANTHROPIC, CHAT).losses
    assert (loss.kind, loss.path) == ("dropped", "/messages/1/content/0")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("not found", "not found"),
        ({"type": "web_fetch_result", "url": "u", "content": {"source": {"type": "text", "data": "18"}}}, "u\n18"),
        ({"type": "web_fetch_result", "url": "u", "content": {"source": {"type": "base64", "data": "AA=="}}}, "u"),
        ({"type": "text_editor_code_execution_str_replace_result", "lines": ["-x", "+y"]}, "-x\n+y"),
    ],
)
def test_server_result_is_sent_as_text(content: Any, text: str) -> None:
    result = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": content}
    body = anthropic_request(USER_MESSAGE, {"role": "assistant", "content": [result]}, USER_MESSAGE)
    assert translated_body(body, ANTHROPIC, CHAT)["messages"][1]["content"] == f"[mcp_tool_result: {text}]"


def test_failed_server_result_is_marked() -> None:
    result = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": "gone", "is_error": True}
    body = anthropic_request(USER_MESSAGE, {"role": "assistant", "content": [result]}, USER_MESSAGE)
    assert translated_body(body, ANTHROPIC, CHAT)["messages"][1]["content"] == "[mcp_tool_result: [tool error] gone]"


def test_forced_mcp_tool_is_rejected() -> None:
    server = {"type": "mcp", "server_label": "crm", "server_url": "https://example.com", "require_approval": "never"}
    body = responses_request(
        USER_MESSAGE, tools=[server], tool_choice={"type": "mcp", "server_label": "crm", "name": "find"}
    )
    with pytest.raises(toolwire.LossyTranslationError, match="/tools/0"):
        translated_body(body, RESPONSES, CHAT)


@pytest.mark.parametrize("stream", [True, False])
def test_obfuscation_option_is_translated_for_streams(stream: bool) -> None:
    options = {"include_obfuscation": False}
    body = responses_request(USER_MESSAGE, stream=stream, stream_options={**options, "other": 1})
    assert translated_body(body, RESPONSES, RESPONSES) == body
    sent_options = translated_body(body, RESPONSES, CHAT).get("stream_options")
    assert sent_options == ({"include_usage": True, **options} if stream else None)
    dropped = has_loss_at(loss_paths(body, RESPONSES, CHAT), "/stream_options/include_obfuscation")
    assert bool(dropped) is not stream
    back = translated_body(chat_request(USER_MESSAGE, stream=True, stream_options=options), CHAT, RESPONSES)
    assert back["stream_options"] == options


@pytest.mark.parametrize("target", ["openai-chat", "openrouter"])
def test_refusal_in_the_history_is_content(target: str) -> None:
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    body = {"model": "gpt-5", "input": [{"role": "user", "content": "q"}, refusal, {"role": "user", "content": "q"}]}
    translation = toolwire.translate(body, "openai-responses", target)
    assert translation.value["messages"][1] == {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert toolwire.check(translation.value, target) == []
    assert translation.losses == []
