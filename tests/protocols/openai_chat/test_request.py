"""What is particular to Chat's requests: where things stand, how they are spelled, what becomes of what it lacks."""

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
THOUGHT = {"type": "thinking", "thinking": "Look it up.", "signature": "c2ln"}


def decoded(*messages: Any, **fields: Any) -> tuple[Message, ...]:
    return CODEC.decode_request(json.dumps(chat_request(*messages, **fields)).encode(), Route()).messages


def kinds(message: Message) -> list[type[Part]]:
    return [type(part) for part in message.parts]


# ---- decode


def test_a_tool_message_is_a_result_said_by_the_user() -> None:
    _, _, message = decoded(USER_MESSAGE, chat_assistant(chat_call("call_1")), chat_result("call_1", "18C"))
    assert message.role == "user"
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.at) == ("call_1", "")
    assert isinstance(result.content, tuple)
    assert result.content[0].at == "/content"


def test_the_parts_of_an_assistant_stand_in_one_order_whatever_the_fields_did() -> None:
    said = {
        "role": "assistant",
        "tool_calls": [chat_call("call_1")],
        "refusal": "No.",
        "content": [{"type": "text", "text": "Well."}],
        "reasoning_content": "Hm.",
    }
    (message,) = decoded(said)
    assert kinds(message) == [Reasoning, Text, Refusal, ToolCall]
    assert [part.at for part in message.parts] == ["/reasoning_content", "/content/0", "/refusal", "/tool_calls/0"]


@pytest.mark.parametrize("arguments", [CITY_ARGUMENTS, "", "{broken", '{"a": 1,  "a":2}'])
def test_arguments_are_the_text_as_it_was(arguments: str) -> None:
    (message,) = decoded(chat_assistant(chat_call("call_1", arguments=arguments)))
    assert isinstance(message.parts[0], ToolCall)
    assert message.parts[0].arguments == arguments


def test_arguments_that_are_an_object_are_its_source_text() -> None:
    wire = (
        b'{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{"n": 1.0 }}}]}]}'
    )
    request = CODEC.decode_request(wire, Route())
    (call,) = request.messages[0].parts
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"n": 1.0 }'


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_from_either_field_and_only_once(name: str) -> None:
    (message,) = decoded({"role": "assistant", "content": "Well.", name: "Hm."})
    assert kinds(message) == [Reasoning, Text]
    (both,) = decoded({"role": "assistant", "content": "Well.", "reasoning": "Hm.", "reasoning_content": "Hm."})
    assert kinds(both) == [Reasoning, Text]


def test_reasoning_details_alone_are_readable() -> None:
    details = [{"type": "reasoning.text", "text": "Hm."}, {"type": "reasoning.encrypted", "data": "x"}]
    (message,) = decoded({"role": "assistant", "content": "Well.", "reasoning_details": details})
    assert isinstance(thought := message.parts[0], Reasoning)
    assert [getattr(text, "text", None) for text in thought.content] == ["Hm."]


def test_fields_that_servers_write_empty_say_nothing() -> None:
    empty = {"role": "assistant", "content": "Well.", "refusal": "", "function_call": {"name": "", "arguments": ""}}
    (message,) = decoded(empty)
    assert kinds(message) == [Text]
    assert translated_body(chat_request(empty), CHAT, CHAT)["messages"] == [empty]


def test_a_function_of_old_is_paired_by_its_name() -> None:
    asked = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "get_weather", "arguments": CITY_ARGUMENTS},
    }
    body = chat_request(USER_MESSAGE, asked, {"role": "function", "name": "get_weather", "content": "18C"})
    made = translated_body({**body, "functions": [chat_tool()["function"]]}, CHAT, ANTHROPIC)
    (call,) = tool_calls_in(ANTHROPIC, made)
    assert tool_results_in(ANTHROPIC, made) == [(call["id"], "18C")]
    assert [tool["name"] for tool in made["tools"]] == ["get_weather"]


def test_any_is_required_and_comes_home_as_any() -> None:
    body = chat_request(tools=[chat_tool()], tool_choice="any")
    assert translated_body(body, CHAT, ANTHROPIC)["tool_choice"] == {"type": "any"}
    assert translated_body(body, CHAT, CHAT) == body


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_either_name_of_the_limit_is_the_limit(field: str) -> None:
    body = chat_request(**{field: 77})
    assert translated_body(body, CHAT, ANTHROPIC)["max_tokens"] == 77
    assert translated_body(body, CHAT, CHAT) == body


# ---- encode


def test_system_text_leads_as_a_string_or_as_a_list_of_several() -> None:
    blocks = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert translated_body(anthropic_request(system="One."), ANTHROPIC, CHAT)["messages"][0]["content"] == "One."
    (lead, _) = translated_body(anthropic_request(system=blocks), ANTHROPIC, CHAT)["messages"]
    assert lead == {"role": "system", "content": blocks}


def test_text_after_calls_is_told_before_them_and_named() -> None:
    said = [{"type": "text", "text": "First."}, anthropic_call("toolu_1"), {"type": "text", "text": "Then."}]
    body = anthropic_turn(said, [anthropic_result("toolu_1")])
    message = translated_body(body, ANTHROPIC, CHAT)["messages"][1]
    assert [part["text"] for part in message["content"]] == ["First.", "Then."]
    assert "/messages/1/content/2" in loss_paths(body, ANTHROPIC, CHAT)


def test_media_of_results_follow_all_results_under_a_label() -> None:
    answers = [anthropic_result("toolu_1", [IMAGE]), anthropic_result("toolu_2", "18C")]
    body = anthropic_turn([anthropic_call("toolu_1"), anthropic_call("toolu_2")], answers)
    made = translated_body(body, ANTHROPIC, CHAT)
    assert message_roles(made)[2:] == ["tool", "tool", "user"]
    label, image = made["messages"][4]["content"]
    assert "toolu_1" in label["text"]
    assert image["type"] == "image_url"
    assert "see the next user message" in made["messages"][2]["content"]
    assert "/messages/2/content/0/content/0" in loss_paths(body, ANTHROPIC, CHAT)


def test_a_summary_stands_in_for_media_where_it_is_asked_for() -> None:
    body = anthropic_turn([anthropic_call("toolu_1")], [anthropic_result("toolu_1", [IMAGE])])
    made = translated_body(body, ANTHROPIC, CHAT, binary_results="summary")
    assert message_roles(made) == ["user", "assistant", "tool"]
    assert "image/png" in made["messages"][2]["content"]


@pytest.mark.parametrize(
    ("model", "told"), [("gpt-4o", None), ("deepseek-chat", "Look it up."), ("moonshotai/Kimi-K2", "Look it up.")]
)
def test_reasoning_goes_back_only_to_models_that_want_it(model: str, told: str | None) -> None:
    body = anthropic_turn([THOUGHT, anthropic_call("toolu_1")], [anthropic_result("toolu_1")])
    assert translated_body(body, ANTHROPIC, CHAT, model=model)["messages"][1].get("reasoning_content") == told
    paths = loss_paths(body, ANTHROPIC, CHAT, model=model)
    assert ("/messages/1/content/0" in paths) == (told is None)
    assert ("/messages/1/content/0/signature" in paths) == (told is not None)


def test_a_model_that_wants_its_reasoning_gets_an_empty_one_rather_than_none() -> None:
    body = anthropic_turn([anthropic_call("toolu_1")], [anthropic_result("toolu_1")])
    made = toolwire.translate(body, source=ANTHROPIC, target=CHAT, kind="request", model="deepseek-chat")
    assert made.value["messages"][1]["reasoning_content"] == ""
    assert [loss.kind for loss in made.losses] == ["added"]


@pytest.mark.parametrize(
    ("thinking", "effort", "path"),
    [
        ({"type": "disabled"}, "none", None),
        ({"type": "enabled", "budget_tokens": 1024}, "low", "/thinking/budget_tokens"),
        ({"type": "enabled", "budget_tokens": 30000}, "high", "/thinking/budget_tokens"),
        ({"type": "adaptive"}, None, "/thinking/type"),
    ],
)
def test_thinking_is_told_as_an_effort(thinking: Any, effort: str | None, path: str | None) -> None:
    body = anthropic_request(thinking=thinking)
    assert translated_body(body, ANTHROPIC, CHAT).get("reasoning_effort") == effort
    assert loss_paths(body, ANTHROPIC, CHAT) == ({path} if path else set())


@pytest.mark.parametrize(("model", "effort"), [("gpt-5.4", "none"), ("gpt-6-luna", "none"), ("gpt-5.1", "high")])
def test_models_that_take_no_tools_while_thinking_do_not_think(model: str, effort: str) -> None:
    body = responses_request(tools=[responses_tool()], reasoning={"effort": "high"})
    assert translated_body(body, RESPONSES, CHAT, model=model)["reasoning_effort"] == effort
    assert ("/reasoning/effort" in loss_paths(body, RESPONSES, CHAT, model=model)) == (effort == "none")


def test_a_schema_gets_the_name_that_the_target_wants() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    body = anthropic_request(output_config={"format": {"type": "json_schema", "schema": schema}})
    made = toolwire.translate(body, source=ANTHROPIC, target=CHAT, kind="request")
    assert made.value["response_format"]["json_schema"] == {"name": "response", "schema": schema, "strict": True}
    assert [(loss.kind, loss.target) for loss in made.losses] == [("added", "/response_format/json_schema/name")]


def test_a_fifth_stop_sequence_is_dropped_by_name() -> None:
    body = anthropic_request(stop_sequences=list("abcdef"))
    assert translated_body(body, ANTHROPIC, CHAT)["stop"] == list("abcd")
    assert loss_paths(body, ANTHROPIC, CHAT) == {"/stop_sequences/4", "/stop_sequences/5"}


def test_without_tools_there_is_neither_choice_nor_switch() -> None:
    body = anthropic_request(tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert not {"tool_choice", "parallel_tool_calls"} & translated_body(body, ANTHROPIC, CHAT).keys()
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/tool_choice")


OPTIONAL = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(("schema", "strict"), [(OPTIONAL, True), (OPEN, False)])
def test_strict_is_given_up_where_the_schema_is_not_of_its_subset(schema: Any, strict: bool) -> None:
    body = anthropic_request(tools=[anthropic_tool(schema=schema, strict=True)])
    assert translated_body(body, ANTHROPIC, CHAT)["tools"][0]["function"]["strict"] is strict
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/tools/0/strict") is not strict


def test_a_cache_mark_keeps_its_place_and_loses_only_its_time() -> None:
    block = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = anthropic_request({"role": "user", "content": [block]})
    (part,) = translated_body(body, ANTHROPIC, CHAT)["messages"][0]["content"]
    assert part == {"type": "text", "text": "Long.", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert loss_paths(body, ANTHROPIC, CHAT) == {"/messages/0/content/0/cache_control/ttl"}


@pytest.mark.parametrize(("length", "same"), [(40, True), (41, False)])
def test_ids_pass_up_to_the_limit_and_both_sides_agree(length: int, same: bool) -> None:
    long = "t" * length
    made = translated_body(anthropic_turn([anthropic_call(long)], [anthropic_result(long)]), ANTHROPIC, CHAT)
    (call,) = tool_calls_in(CHAT, made)
    assert (call["id"] == long) is same
    assert len(call["id"] or "") <= 40
    assert tool_results_in(CHAT, made) == [(call["id"], "18C")]


def test_a_stream_is_asked_for_its_usage() -> None:
    assert translated_body(anthropic_request(stream=True), ANTHROPIC, CHAT)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in translated_body(anthropic_request(stream=False), ANTHROPIC, CHAT)


def test_fields_of_both_openai_protocols_cross_between_them() -> None:
    body = chat_request(prompt_cache_key="k", safety_identifier="s", metadata={"a": "b"}, store=True, user="u")
    made = translated_body(body, CHAT, RESPONSES)
    assert (made["prompt_cache_key"], made["safety_identifier"], made["metadata"]) == ("k", "s", {"a": "b"})
    assert loss_paths(body, CHAT, RESPONSES) == set()


def test_text_that_was_wrapped_for_another_protocol_comes_back_bare() -> None:
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
def test_a_document_is_a_file_or_is_told_as_text(source: Any, part: str) -> None:
    body = anthropic_request({"role": "user", "content": [{"type": "document", "source": source, "title": "T"}]})
    content = translated_body(body, ANTHROPIC, CHAT)["messages"][0]["content"]
    found = "text" if isinstance(content, str) else content[0]["type"]
    assert found == part
    assert bool(loss_paths(body, ANTHROPIC, CHAT)) is (part == "text")


def test_a_document_of_parts_is_told_part_by_part_under_its_name() -> None:
    source = {"type": "content", "content": [{"type": "text", "text": "First."}, IMAGE]}
    document = {"type": "document", "title": "Parts", "source": source}
    body = anthropic_request({"role": "user", "content": [document]})
    content = translated_body(body, ANTHROPIC, CHAT)["messages"][0]["content"]
    assert [part.get("text", part["type"]) for part in content] == ["Parts", "First.", "image_url"]
    assert loss_paths(body, ANTHROPIC, CHAT) == {"/messages/0/content/0/source"}


def test_the_image_in_a_document_of_a_result_is_shown_after_the_results() -> None:
    source = {"type": "content", "content": [{"type": "text", "text": "First."}, IMAGE]}
    result = anthropic_result("toolu_1", [{"type": "document", "source": source}])
    body = anthropic_turn([anthropic_call("toolu_1")], [result])
    _, _, answer, shown = translated_body(body, ANTHROPIC, CHAT)["messages"]
    assert [part["type"] for part in answer["content"]] == ["text", "text"]
    assert [part["type"] for part in shown["content"]] == ["text", "image_url"]


def test_the_title_of_a_document_that_is_told_is_told() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Rain."}
    body = anthropic_request({"role": "user", "content": [{"type": "document", "title": "Almanac", "source": source}]})
    assert translated_body(body, ANTHROPIC, CHAT)["messages"][0]["content"] == "Almanac\nRain."
    assert not has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/messages/0/content/0/title")


def test_of_those_who_may_call_only_programs_are_lost() -> None:
    tool = anthropic_tool(allowed_callers=["direct", "code_execution_20260521"])
    assert loss_paths(anthropic_request(USER_MESSAGE, tools=[tool]), ANTHROPIC, CHAT) == {"/tools/0/allowed_callers/1"}


def test_a_request_for_no_tokens_gets_the_least_that_the_target_gives() -> None:
    body = anthropic_request(USER_MESSAGE, max_tokens=0)
    assert translated_body(body, ANTHROPIC, CHAT)["max_completion_tokens"] == 1
    assert has_loss_at(loss_paths(body, ANTHROPIC, CHAT), "/max_tokens")


def test_a_server_s_tool_that_comes_later_is_not_declared() -> None:
    added = {"type": "mcp_tool_reference", "server_name": "crm", "name": "find"}
    body = anthropic_request(USER_MESSAGE, {"role": "system", "content": [{"type": "tool_addition", "tool": added}]})
    (loss,) = toolwire.translate(body, ANTHROPIC, CHAT).losses
    assert (loss.kind, loss.path) == ("dropped", "/messages/1/content/0")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("not found", "not found"),
        ({"type": "web_fetch_result", "url": "u", "content": {"source": {"type": "text", "data": "18"}}}, "u\n18"),
        ({"type": "web_fetch_result", "url": "u", "content": {"source": {"type": "base64", "data": "AA=="}}}, "u"),
        ({"type": "text_editor_code_execution_str_replace_result", "lines": ["-x", "+y"]}, "-x\n+y"),
    ],
)
def test_what_a_server_s_tool_found_is_readable(content: Any, told: str) -> None:
    found = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": content}
    body = anthropic_request(USER_MESSAGE, {"role": "assistant", "content": [found]}, USER_MESSAGE)
    assert translated_body(body, ANTHROPIC, CHAT)["messages"][1]["content"] == f"[mcp_tool_result: {told}]"


def test_a_failure_of_a_server_s_tool_is_told_as_one() -> None:
    found = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": "gone", "is_error": True}
    body = anthropic_request(USER_MESSAGE, {"role": "assistant", "content": [found]}, USER_MESSAGE)
    assert translated_body(body, ANTHROPIC, CHAT)["messages"][1]["content"] == "[mcp_tool_result: [tool error] gone]"


def test_a_server_that_the_choice_names_is_refused() -> None:
    server = {"type": "mcp", "server_label": "crm", "server_url": "https://example.com", "require_approval": "never"}
    body = responses_request(
        USER_MESSAGE, tools=[server], tool_choice={"type": "mcp", "server_label": "crm", "name": "find"}
    )
    with pytest.raises(toolwire.LossyTranslationError, match="/tools/0"):
        translated_body(body, RESPONSES, CHAT)


@pytest.mark.parametrize("stream", [True, False])
def test_obfuscation_crosses_between_both_openai_protocols_where_there_is_a_stream(stream: bool) -> None:
    options = {"include_obfuscation": False}
    body = responses_request(USER_MESSAGE, stream=stream, stream_options={**options, "other": 1})
    assert translated_body(body, RESPONSES, RESPONSES) == body
    asked = translated_body(body, RESPONSES, CHAT).get("stream_options")
    assert asked == ({"include_usage": True, **options} if stream else None)
    dropped = has_loss_at(loss_paths(body, RESPONSES, CHAT), "/stream_options/include_obfuscation")
    assert bool(dropped) is not stream
    back = translated_body(chat_request(USER_MESSAGE, stream=True, stream_options=options), CHAT, RESPONSES)
    assert back["stream_options"] == options
