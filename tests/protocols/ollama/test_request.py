"""Requests of the Ollama protocol: features it lacks, and what its wire form leaves implicit."""

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
from toolwire.codec.interface import Route, Target
from toolwire.codec.models.info import ModelInfo
from toolwire.protocols import PROTOCOLS
from toolwire.protocols.ollama import CODEC

OLLAMA = "ollama"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}


def body(*messages: Any, **fields: Any) -> Any:
    return {"model": "qwen3", "messages": list(messages or (USER_MESSAGE,)), "stream": False, **fields}


def messages(request: Any) -> tuple[Message, ...]:
    return CODEC.decode_request(json.dumps(request).encode(), Route()).messages


def to_ollama(request: Any, source: str = CHAT) -> Any:
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
def test_media_types_are_detected_from_the_data(data: str, media_type: str | None) -> None:
    (_, media) = messages(body({"role": "user", "content": "See.", "images": [data]}))[0].parts
    assert isinstance(media, Media)
    assert media.media_type == media_type
    assert media.kind == ("audio" if media_type == "audio/wav" else "image")


def test_streaming_is_the_default() -> None:
    request = {"model": "qwen3", "messages": [USER_MESSAGE]}
    assert translated_body(request, OLLAMA, CHAT)["stream"] is True
    assert translated_body(request, OLLAMA, OLLAMA) == request
    assert translated_body(request, OLLAMA, OLLAMA, stream=False) == {**request, "stream": False}


def test_the_error_mark_makes_a_result_failed() -> None:
    failed_message = {"role": "tool", "content": "[tool error] offline", "tool_name": "f"}
    (result,) = messages(body(failed_message))[0].parts
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
def test_decode_errors_point_to_the_invalid_value(message: Any, path: str) -> None:
    with pytest.raises(toolwire.DecodeError) as error:
        messages(body(message))
    assert error.value.path == path


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT])
@pytest.mark.parametrize("fields", [{"messages": []}, {"messages": [], "keep_alive": 0}, {}])
def test_load_requests_are_not_translated(target: str, fields: Any) -> None:
    request = {"model": "qwen3", **fields}
    assert translated_body(request, OLLAMA, OLLAMA) == request
    with pytest.raises(toolwire.LossyTranslationError):
        translated_body(request, OLLAMA, target)


def test_a_negative_limit_means_no_limit() -> None:
    request = body(options={"num_predict": -1})
    assert "max_completion_tokens" not in translated_body(request, OLLAMA, CHAT)
    assert loss_paths(request, OLLAMA, CHAT) == {"/options/num_predict"}


# ---- encode


def test_each_text_is_a_message_with_the_images_after_it() -> None:
    content = [IMAGE, {"type": "text", "text": "one"}, {"type": "text", "text": "two"}, IMAGE]
    encoded = to_ollama(anthropic_request({"role": "user", "content": content}), ANTHROPIC)
    assert encoded["messages"] == [
        {"role": "user", "content": "one", "images": [PNG_BASE64]},
        {"role": "user", "content": "two", "images": [PNG_BASE64]},
    ]


def test_image_urls_are_sent_as_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    request = chat_request({"role": "user", "content": [image]})
    assert "https://example.com/a.png" in to_ollama(request)["messages"][0]["content"]
    assert loss_paths(request, CHAT, OLLAMA) == {"/messages/0/content/0"}


def test_system_messages_keep_their_position() -> None:
    encoded = to_ollama(
        chat_request(
            {"role": "developer", "content": "a"}, USER_MESSAGE, {"role": "system", "content": "b"}, USER_MESSAGE
        )
    )
    assert [message["role"] for message in encoded["messages"]] == ["system", "user", "system", "user"]
    assert to_ollama(anthropic_request(system="Be brief."), ANTHROPIC)["messages"][0]["content"] == "Be brief."


def test_results_have_tool_names_and_images() -> None:
    result = anthropic_result("a", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, IMAGE])
    encoded = to_ollama(anthropic_turn([anthropic_call("a", "screenshot", {})], [result]), ANTHROPIC)
    assert encoded["messages"][-1] == {
        "role": "tool",
        "content": "one\ntwo",
        "images": [PNG_BASE64],
        "tool_name": "screenshot",
        "tool_call_id": "a",
    }
    summary = toolwire.translate(
        anthropic_turn([anthropic_call("a")], [anthropic_result("a", [IMAGE])]),
        ANTHROPIC,
        OLLAMA,
        binary_results="summary",
    ).value["messages"][-1]
    assert "images" not in summary
    assert summary["content"].startswith("Binary content")


def test_invalid_arguments_are_wrapped_in_an_object() -> None:
    request = chat_request(USER_MESSAGE, chat_assistant(chat_call("a", arguments="[1")), chat_result("a"))
    assert to_ollama(request)["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"_raw": "[1"}
    assert loss_paths(request, CHAT, OLLAMA) == {"/messages/1/tool_calls/0/function/arguments"}
    exact = '{"b":12345678901234567890,"a":1.0}'
    call = chat_call("a", arguments=exact)
    translation = toolwire.translate(chat_request(USER_MESSAGE, chat_assistant(call), chat_result("a")), CHAT, OLLAMA)
    assert exact.encode() in translation.to_bytes()


def test_unsigned_reasoning_is_sent_back_and_signed_is_not() -> None:
    unsigned = chat_request(
        USER_MESSAGE, {"role": "assistant", "content": "4", "reasoning_content": "2+2"}, USER_MESSAGE
    )
    assert to_ollama(unsigned)["messages"][1] == {"role": "assistant", "content": "4", "thinking": "2+2"}
    signed = [{"type": "thinking", "thinking": "2+2", "signature": "c2ln"}, {"type": "text", "text": "4"}]
    request = anthropic_request(USER_MESSAGE, {"role": "assistant", "content": signed}, USER_MESSAGE)
    assert to_ollama(request, ANTHROPIC)["messages"][1] == {"role": "assistant", "content": "4"}
    assert loss_paths(request, ANTHROPIC, OLLAMA) == {"/messages/1/content/0"}


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
def test_tool_choice_limits_the_declared_tools(name: str) -> None:
    choice, expected = CHOICES[name]
    request = chat_request(tools=TOOLS, tool_choice=choice)
    encoded = to_ollama(request)
    assert "tool_choice" not in encoded
    assert [tool["function"]["name"] for tool in encoded.get("tools", ())] == (expected or [])
    assert (name == "auto") == (not loss_paths(request, CHAT, OLLAMA))


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
def test_efforts_become_thinking_levels(effort: str, think: Any, reported: bool) -> None:
    request = chat_request(reasoning_effort=effort)
    assert to_ollama(request)["think"] == think
    assert ("/reasoning_effort" in loss_paths(request, CHAT, OLLAMA)) == reported


def test_a_budget_enables_thinking_and_is_lost() -> None:
    request = anthropic_request(thinking={"type": "enabled", "budget_tokens": 2000})
    assert to_ollama(request, ANTHROPIC)["think"] is True
    assert loss_paths(request, ANTHROPIC, OLLAMA) == {"/thinking/budget_tokens"}


def test_sampling_becomes_options() -> None:
    request = chat_request(max_completion_tokens=9, temperature=0.5, top_p=0.9, seed=1, stop="END", n=2)
    encoded = to_ollama(request)
    assert encoded["options"] == {"num_predict": 9, "temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ["END"]}
    assert loss_paths(request, CHAT, OLLAMA) == {"/n"}
    assert encoded["stream"] is False


def test_output_schemas_become_the_format() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    response_format = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    request = chat_request(response_format=response_format)
    assert to_ollama(request)["format"] == schema
    assert loss_paths(request, CHAT, OLLAMA) == {"/response_format/json_schema/name"}
    assert to_ollama(chat_request(response_format={"type": "json_object"}))["format"] == "json"


def test_tool_schemas_are_reduced_to_supported_keywords() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x"}}, "additionalProperties": False}
    request = anthropic_request(tools=[anthropic_tool("f", schema)])
    parameters = {"type": "object", "properties": {"a": {"type": "string", "description": 'pattern: "^x"'}}}
    declared = {"name": "f", "description": "Weather.", "parameters": parameters}
    assert to_ollama(request, ANTHROPIC)["tools"] == [{"type": "function", "function": declared}]
    schema_path = "/tools/0/input_schema"
    assert loss_paths(request, ANTHROPIC, OLLAMA) == {
        f"{schema_path}/properties/a/pattern",
        f"{schema_path}/additionalProperties",
    }
    long_name = body(tools=[chat_tool("files.read " + "a" * 80)])
    assert translated_body(long_name, OLLAMA, OLLAMA) == long_name


def test_formats_change_only_where_the_grammar_compiler_fails() -> None:
    schema = {"type": "object", "properties": {"any": True, "text": {"type": "string", "minLength": 1}}}
    request = anthropic_request(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert to_ollama(request, ANTHROPIC)["format"]["properties"] == {**schema["properties"], "any": {}}  # type: ignore[dict-item]
    assert loss_paths(request, ANTHROPIC, OLLAMA) == {"/output_config/format/schema/properties/any"}


@pytest.mark.parametrize("media_type", ["audio/mpeg", "audio/wav"])
def test_audio_is_sent_only_to_models_that_accept_it(media_type: str) -> None:
    audio = {"inlineData": {"mimeType": media_type, "data": "SUQzBAAAAAAAAAAA"}}
    request = {"contents": [{"role": "user", "parts": [{"text": "Listen."}, audio]}]}
    translation = toolwire.translate(request, "gemini", OLLAMA)
    assert translation.value["messages"] == [{"role": "user", "content": "Listen."}]
    assert [(loss.kind, loss.path) for loss in translation.losses] == [("dropped", "/contents/0/parts/1")]
    decoded = PROTOCOLS["gemini"].decode_request(json.dumps(request).encode(), Route())
    encoded = CODEC.encode_request(decoded, Target(model_info=ModelInfo(audio=True)))
    assert json.loads(encoded.to_bytes())["messages"][0]["images"] == [audio["inlineData"]["data"]]
