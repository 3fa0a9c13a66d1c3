"""What is particular to Ollama's requests: what it has no words for, and what its spelling hides."""

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
    chat_assistant,
    chat_call,
    chat_request,
    chat_result,
    chat_tool,
)
from tests.support.protocols import ANTHROPIC, CHAT
from tests.support.translation import loss_paths, translated_body
from toolwire.canonical.content import Media, Message, ToolResult
from toolwire.codec.interface import Route
from toolwire.protocols.ollama import CODEC

OLLAMA = "ollama"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}


def body(*messages: Any, **fields: Any) -> Any:
    return {"model": "qwen3", "messages": list(messages or (USER_MESSAGE,)), "stream": False, **fields}


def messages(request: Any) -> tuple[Message, ...]:
    return CODEC.decode_request(json.dumps(request).encode(), Route()).messages


def sent(request: Any, source: str = CHAT) -> Any:
    return translated_body(request, source, OLLAMA)


# ---- decode


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG_BASE64, "image/png"),
        ("/9j/4AAQSkZJRgABAQEASABIAAD", "image/jpeg"),
        ("R0lGODlhAQABAIAAAAAAAP///yH5", "image/gif"),
        ("UklGRiQAAABXRUJQVlA4IBgAAAAw", "image/webp"),
        ("UklGRiQAAABXQVZFZm10IBAAAAAB", "audio/wav"),
        ("bm90IGEgcGljdHVyZQ==", None),
        ("no base64", None),
    ],
)
def test_the_bytes_of_an_image_tell_its_media_type(data: str, media_type: str | None) -> None:
    (_, media) = messages(body({"role": "user", "content": "See.", "images": [data]}))[0].parts
    assert isinstance(media, Media)
    assert media.media_type == media_type
    assert media.kind == ("audio" if media_type == "audio/wav" else "image")


def test_without_a_word_about_it_the_server_streams() -> None:
    asked = {"model": "qwen3", "messages": [USER_MESSAGE]}
    assert translated_body(asked, OLLAMA, CHAT)["stream"] is True
    assert translated_body(asked, OLLAMA, OLLAMA) == asked
    assert translated_body(asked, OLLAMA, OLLAMA, stream=False) == {**asked, "stream": False}


def test_a_result_that_failed_is_told_by_its_mark() -> None:
    failed = {"role": "tool", "content": "[tool error] offline", "tool_name": "f"}
    (result,) = messages(body(failed))[0].parts
    assert isinstance(result, ToolResult)
    assert result.status == "error"


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"content": "no role"}, "/messages/0/role"),
        ({"role": "wizard", "content": ""}, "/messages/0/role"),
        ({"role": "user", "content": [{"type": "text", "text": "parts"}]}, "/messages/0/content"),
        ({"role": "user", "content": "", "images": [{}]}, "/messages/0/images/0"),
        ({"role": "assistant", "tool_calls": [{}]}, "/messages/0/tool_calls/0/function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            "/messages/0/tool_calls/0/function/arguments",
        ),
    ],
)
def test_what_the_server_could_not_read_is_refused_by_its_place(message: Any, path: str) -> None:
    with pytest.raises(toolwire.DecodeError) as refusal:
        messages(body(message))
    assert refusal.value.path == path


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT])
@pytest.mark.parametrize("order", [{"messages": []}, {"messages": [], "keep_alive": 0}, {}])
def test_the_order_to_load_a_model_goes_nowhere_else(target: str, order: Any) -> None:
    asked = {"model": "qwen3", **order}
    assert translated_body(asked, OLLAMA, OLLAMA) == asked
    with pytest.raises(toolwire.LossyTranslationError):
        translated_body(asked, OLLAMA, target)


def test_a_limit_below_zero_is_no_limit() -> None:
    asked = body(options={"num_predict": -1})
    assert "max_completion_tokens" not in translated_body(asked, OLLAMA, CHAT)
    assert loss_paths(asked, OLLAMA, CHAT) == {"/options/num_predict"}


# ---- encode


def test_each_text_gets_a_message_and_images_go_with_the_text_before_them() -> None:
    said = [IMAGE, {"type": "text", "text": "one"}, {"type": "text", "text": "two"}, IMAGE]
    made = sent(anthropic_request({"role": "user", "content": said}), ANTHROPIC)
    assert made["messages"] == [
        {"role": "user", "content": "one", "images": [PNG_BASE64]},
        {"role": "user", "content": "two", "images": [PNG_BASE64]},
    ]


def test_an_address_is_told_since_only_bytes_can_be_shown() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    asked = chat_request({"role": "user", "content": [image]})
    assert "https://example.com/a.png" in sent(asked)["messages"][0]["content"]
    assert loss_paths(asked, CHAT, OLLAMA) == {"/messages/0/content/0"}


def test_system_text_leads_and_keeps_its_place() -> None:
    made = sent(
        chat_request(
            {"role": "developer", "content": "a"}, USER_MESSAGE, {"role": "system", "content": "b"}, USER_MESSAGE
        )
    )
    assert [message["role"] for message in made["messages"]] == ["system", "user", "system", "user"]
    assert sent(anthropic_request(system="Be brief."), ANTHROPIC)["messages"][0]["content"] == "Be brief."


def test_results_say_which_tool_they_are_of_and_show_their_images() -> None:
    result = anthropic_result("a", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, IMAGE])
    made = sent(anthropic_turn([anthropic_call("a", "screenshot", {})], [result]), ANTHROPIC)
    assert made["messages"][-1] == {
        "role": "tool",
        "content": "one\ntwo",
        "images": [PNG_BASE64],
        "tool_name": "screenshot",
        "tool_call_id": "a",
    }
    short = toolwire.translate(
        anthropic_turn([anthropic_call("a")], [anthropic_result("a", [IMAGE])]),
        ANTHROPIC,
        OLLAMA,
        binary_results="summary",
    ).value["messages"][-1]
    assert "images" not in short
    assert short["content"].startswith("Binary content")


def test_arguments_are_an_object_whatever_the_model_wrote() -> None:
    asked = chat_request(USER_MESSAGE, chat_assistant(chat_call("a", arguments="[1")), chat_result("a"))
    assert sent(asked)["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"_raw": "[1"}
    assert loss_paths(asked, CHAT, OLLAMA) == {"/messages/1/tool_calls/0/function/arguments"}
    exact = '{"b":12345678901234567890,"a":1.0}'
    call = chat_call("a", arguments=exact)
    made = toolwire.translate(chat_request(USER_MESSAGE, chat_assistant(call), chat_result("a")), CHAT, OLLAMA)
    assert exact.encode() in made.to_bytes()


def test_reasoning_goes_back_unless_another_provider_sealed_it() -> None:
    plain = chat_request(USER_MESSAGE, {"role": "assistant", "content": "4", "reasoning_content": "2+2"}, USER_MESSAGE)
    assert sent(plain)["messages"][1] == {"role": "assistant", "content": "4", "thinking": "2+2"}
    sealed = [{"type": "thinking", "thinking": "2+2", "signature": "c2ln"}, {"type": "text", "text": "4"}]
    asked = anthropic_request(USER_MESSAGE, {"role": "assistant", "content": sealed}, USER_MESSAGE)
    assert sent(asked, ANTHROPIC)["messages"][1] == {"role": "assistant", "content": "4"}
    assert loss_paths(asked, ANTHROPIC, OLLAMA) == {"/messages/1/content/0"}


TOOLS = [chat_tool("f"), chat_tool("g")]
CHOICES: dict[str, tuple[Any, list[str] | None]] = {
    "auto": ("auto", ["f", "g"]),
    "none": ("none", None),
    "required": ("required", ["f", "g"]),
    "named": ({"type": "function", "function": {"name": "g"}}, ["g"]),
    "allowed": (
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
        },
        ["f"],
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_kept_by_what_is_offered(name: str) -> None:
    choice, offered = CHOICES[name]
    asked = chat_request(tools=TOOLS, tool_choice=choice)
    made = sent(asked)
    assert "tool_choice" not in made
    assert [tool["function"]["name"] for tool in made.get("tools", ())] == (offered or [])
    assert (name == "auto") == (not loss_paths(asked, CHAT, OLLAMA))


@pytest.mark.parametrize(
    ("effort", "think", "reported"),
    [
        ("none", False, False),
        ("minimal", "low", True),
        ("low", "low", False),
        ("high", "high", False),
        ("max", "max", False),
        ("xhigh", "max", True),
        ("odd", True, True),
    ],
)
def test_an_effort_is_told_as_a_level(effort: str, think: Any, reported: bool) -> None:
    asked = chat_request(reasoning_effort=effort)
    assert sent(asked)["think"] == think
    assert ("/reasoning_effort" in loss_paths(asked, CHAT, OLLAMA)) == reported


def test_a_budget_only_says_that_the_model_thinks() -> None:
    asked = anthropic_request(thinking={"type": "enabled", "budget_tokens": 2000})
    assert sent(asked, ANTHROPIC)["think"] is True
    assert loss_paths(asked, ANTHROPIC, OLLAMA) == {"/thinking/budget_tokens"}


def test_sampling_is_told_as_options() -> None:
    asked = chat_request(max_completion_tokens=9, temperature=0.5, top_p=0.9, seed=1, stop="END", n=2)
    made = sent(asked)
    assert made["options"] == {"num_predict": 9, "temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ["END"]}
    assert loss_paths(asked, CHAT, OLLAMA) == {"/n"}
    assert made["stream"] is False


def test_a_schema_is_a_format() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    named = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    asked = chat_request(response_format=named)
    assert sent(asked)["format"] == schema
    assert loss_paths(asked, CHAT, OLLAMA) == {"/response_format/json_schema/name"}
    assert sent(chat_request(response_format={"type": "json_object"}))["format"] == "json"


def test_tools_are_declared_under_any_name_with_what_the_server_reads_of_their_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x"}}, "additionalProperties": False}
    request = anthropic_request(tools=[anthropic_tool("f", schema)])
    read = {"type": "object", "properties": {"a": {"type": "string", "description": 'pattern: "^x"'}}}
    declared = {"name": "f", "description": "Weather.", "parameters": read}
    assert sent(request, ANTHROPIC)["tools"] == [{"type": "function", "function": declared}]
    below = "/tools/0/input_schema"
    assert loss_paths(request, ANTHROPIC, OLLAMA) == {f"{below}/properties/a/pattern", f"{below}/additionalProperties"}
    long = body(tools=[chat_tool("files.read " + "a" * 80)])
    assert translated_body(long, OLLAMA, OLLAMA) == long


def test_a_format_is_changed_only_where_no_grammar_can_be_made_of_it() -> None:
    schema = {"type": "object", "properties": {"any": True, "text": {"type": "string", "minLength": 1}}}
    request = anthropic_request(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert sent(request, ANTHROPIC)["format"]["properties"] == {**schema["properties"], "any": {}}  # type: ignore[dict-item]
    assert loss_paths(request, ANTHROPIC, OLLAMA) == {"/output_config/format/schema/properties/any"}
