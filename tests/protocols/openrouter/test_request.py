"""Requests of OpenRouter: its additions to Chat, translated in both directions."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.assertions import non_empty
from tests.support.openrouter_translation import OPENROUTER, decode_request_body, get_codec, translate_request
from toolwire.canonical.content import Message, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import CacheMark, NativeTool
from toolwire.codec.interface import Route, Target

USER_MESSAGE = {"role": "user", "content": "Paris?"}
RESULT = {"role": "tool", "tool_call_id": "toolu_1", "content": "18C"}
CALL = {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
SIGNED = {
    "type": "reasoning.text",
    "text": "Look.",
    "signature": "c2ln/+==",
    "format": "anthropic-claude-v1",
    "index": 0,
}
REDACTED = {"type": "reasoning.encrypted", "data": "cmVk/+==", "format": "anthropic-claude-v1", "index": 1}
SUMMARY = {"type": "reasoning.summary", "summary": "Look.", "format": "openai-responses-v1", "index": 0}
ENCRYPTED = {
    "type": "reasoning.encrypted",
    "data": "gAAA/+==",
    "id": "rs_1",
    "format": "openai-responses-v1",
    "index": 1,
}
GOOGLE_SIGNED = {"type": "reasoning.text", "signature": "Z29v/+==", "format": "google-gemini-v1", "index": 0}
XAI_ENCRYPTED = {
    "type": "reasoning.encrypted",
    "data": "eGFp/+==",
    "id": "rs_2",
    "format": "xai-responses-v1",
    "index": 0,
}

ANTHROPIC_REQUEST = {
    "model": "claude-opus-5-5",
    "max_tokens": 4096,
    "thinking": {"type": "enabled", "budget_tokens": 2048},
    "messages": [
        {"role": "user", "content": "Paris?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Look.", "signature": "c2ln/+=="},
                {"type": "redacted_thinking", "data": "cmVk/+=="},
                {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [
                        {"type": "text", "text": "a map"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
                    ],
                }
            ],
        },
    ],
    "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}],
}


def conversation(details: list[Any], **message: Any) -> dict[str, Any]:
    reply = {"role": "assistant", "content": "", "reasoning_details": details, "tool_calls": [CALL], **message}
    return {"model": "m", "messages": [USER_MESSAGE, reply, RESULT], "tools": [TOOL]}


def decoded_reasoning(details: list[Any], **message: Any) -> list[Reasoning]:
    reply = decode_request_body(conversation(details, **message)).messages[1]
    return [part for part in reply.parts if isinstance(part, Reasoning)]


@pytest.mark.parametrize(
    ("entry", "signature"),
    [
        (SIGNED, ("anthropic", "signature", "c2ln/+==")),
        (REDACTED, ("anthropic", "encrypted", "cmVk/+==")),
        (ENCRYPTED, ("openai", "encrypted", "gAAA/+==")),
        (GOOGLE_SIGNED, ("google", "signature", "Z29v/+==")),
        (XAI_ENCRYPTED, ("xai", "encrypted", "eGFp/+==")),
        ({**ENCRYPTED, "format": "azure-openai-responses-v1"}, ("azure-openai", "encrypted", "gAAA/+==")),
        ({**ENCRYPTED, "format": "unknown-format-v1"}, ("openrouter", "encrypted", "gAAA/+==")),
        ({**SIGNED, "format": None}, ("openrouter", "signature", "c2ln/+==")),
    ],
)
def test_entry_format_names_the_issuer_of_its_signature(entry: dict[str, Any], signature: tuple[str, str, str]) -> None:
    (reasoning,) = decoded_reasoning([entry])
    assert reasoning.signature is not None
    assert (reasoning.signature.issuer, reasoning.signature.kind, reasoning.signature.data) == signature


def test_each_entry_is_a_part_and_repeated_plain_text_is_skipped() -> None:
    first, second = decoded_reasoning([SUMMARY, ENCRYPTED], reasoning="Look.")
    assert [block.text for block in first.content if isinstance(block, ReasoningText)] == ["Look."]
    assert (second.content, second.hidden, second.id) == ((), "omitted", "rs_1")


def test_invalid_reasoning_details_pass_through_unchanged() -> None:
    values: tuple[Any, ...] = ("text", [1], [{}], {"type": "reasoning.text"}, [SIGNED, {"text": "no type"}])
    for details in non_empty(values):
        body = conversation([])
        body["messages"][1]["reasoning_details"] = details
        assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})


def test_claude_history_reaches_anthropic_with_unchanged_signatures() -> None:
    translated, _ = translate_request(
        conversation([SIGNED, REDACTED], reasoning="Look."), OPENROUTER, "anthropic", model="claude-opus-5-5"
    )
    assert translated["messages"][1]["content"][:2] == [
        {"type": "thinking", "thinking": "Look.", "signature": "c2ln/+=="},
        {"type": "redacted_thinking", "data": "cmVk/+=="},
    ]


def test_openai_history_reaches_responses_with_its_encrypted_item() -> None:
    translated, losses = translate_request(conversation([SUMMARY, ENCRYPTED]), OPENROUTER, "openai-responses")
    (item,) = [item for item in translated["input"] if item.get("type") == "reasoning"]
    assert item["encrypted_content"] == "gAAA/+=="
    assert "/messages/1/reasoning_details/0" in losses


@pytest.mark.parametrize("entry", [ENCRYPTED, GOOGLE_SIGNED, XAI_ENCRYPTED, {**SIGNED, "format": "unknown"}])
def test_reasoning_of_other_issuers_is_not_sent_to_anthropic(entry: dict[str, Any]) -> None:
    translated, losses = translate_request(conversation([entry]), OPENROUTER, "anthropic")
    assert [block["type"] for block in translated["messages"][1]["content"]] == ["tool_use"]
    assert losses["/messages/1/reasoning_details/0"] == "dropped"


def test_anthropic_history_keeps_its_signatures_in_a_round_trip() -> None:
    translated, losses = translate_request(ANTHROPIC_REQUEST, "anthropic", OPENROUTER)
    reply = translated["messages"][1]
    assert reply["reasoning_details"] == [SIGNED, REDACTED]
    assert reply["tool_calls"][0]["id"] == "toolu_1"
    assert translated["reasoning"] == {"max_tokens": 2048}
    assert losses == {}
    back, _ = translate_request(translated, OPENROUTER, "anthropic")
    assert back["messages"][1:] == ANTHROPIC_REQUEST["messages"][1:]  # type: ignore[index]


def test_media_stay_in_their_result() -> None:
    translated, _ = translate_request(ANTHROPIC_REQUEST, "anthropic", OPENROUTER)
    assert translated["messages"][2]["content"] == [
        {"type": "text", "text": "a map"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
    ]
    assert len(translated["messages"]) == 3


def test_binary_results_are_summarized_on_request() -> None:
    translated, losses = translate_request(ANTHROPIC_REQUEST, "anthropic", OPENROUTER, binary_results="summary")
    texts = [part["text"] for part in translated["messages"][2]["content"]]
    assert texts == ["a map", "Binary content of type image/png was processed."]
    assert losses["/messages/2/content/0/content/1"] == "approximated"


def test_encrypted_item_of_responses_keeps_its_id() -> None:
    body = {
        "model": "gpt-5.2",
        "input": [
            {"role": "user", "content": "Paris?"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}],
             "encrypted_content": "gAAA/+=="},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "18C"},
        ],
    }  # fmt: skip
    translated, losses = translate_request(body, "openai-responses", OPENROUTER)
    assert translated["messages"][1]["reasoning_details"] == [SUMMARY, ENCRYPTED]
    assert "/input/1/id" not in losses


def test_separate_summary_precedes_its_encrypted_entry() -> None:
    parts = (
        Reasoning(content=(ReasoningText(kind="summary", text="Look."),)),
        Reasoning(signature=Signature(issuer="openai", data="gAAA/+==", kind="encrypted"), id="rs_1"),
        Text(text="18C"),
    )
    reply = _encode_reply(*parts)
    assert reply["reasoning_details"] == [SUMMARY, ENCRYPTED]


def test_signatures_of_calls_and_texts_become_entries() -> None:
    signature = Signature(issuer="google", data="Z29v/+==", kind="signature")
    call = ToolCall(id="call_1", name="get_weather", arguments="{}", signature=signature)
    reply = _encode_reply(Text(text="Look.", signature=signature), call)
    assert reply["reasoning_details"] == [
        GOOGLE_SIGNED,
        {"type": "reasoning.encrypted", "data": "Z29v/+==", "id": "call_1", "format": "google-gemini-v1", "index": 1},
    ]


def test_unsigned_reasoning_is_sent_only_to_models_that_require_it() -> None:
    reasoning = Reasoning(content=(ReasoningText(kind="full", text="Look."),))
    assert "reasoning" not in _encode_reply(reasoning, Text(text="18C"))
    assert _encode_reply(reasoning, Text(text="18C"), model="deepseek/deepseek-v3.2")["reasoning"] == "Look."


def _encode_reply(*parts: Any, model: str = "m") -> Any:
    question = Message(role="user", parts=(Text(text="Paris?"),))
    request = Request(origin="", model=model, messages=(question, Message(role="assistant", parts=parts)))
    return get_codec(OPENROUTER).encode_request(request, Target()).body["messages"][1]


@pytest.mark.parametrize(
    ("reasoning", "expected"),
    [
        ({"effort": "high"}, {"effort": "high"}),
        ({"max_tokens": 2000}, {"budget_tokens": 2000}),
        ({"enabled": True}, {"enabled": True}),
        ({"effort": "low", "exclude": True}, {"effort": "low", "visibility": "omitted"}),
        ({"effort": "low", "exclude": False}, {"effort": "low", "visibility": "full"}),
        ({"effort": "low", "summary": "auto"}, {"effort": "low", "visibility": "summary"}),
    ],
)
def test_reasoning_object_decodes_to_thinking_and_back(reasoning: Any, expected: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [USER_MESSAGE], "reasoning": reasoning}
    thinking = decode_request_body(body).thinking
    assert thinking is not None
    fields = ("effort", "budget_tokens", "enabled", "visibility")
    decoded = {name: value for name in fields if (value := getattr(thinking, name)) is not None}
    assert decoded == expected
    foreign_request = Request(origin="", thinking=thinking)
    assert get_codec(OPENROUTER).encode_request(foreign_request, Target()).body["reasoning"] == reasoning
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})


def test_effort_wins_over_budget() -> None:
    body = {**ANTHROPIC_REQUEST, "output_config": {"effort": "low"}}
    translated, losses = translate_request(body, "anthropic", OPENROUTER)
    assert translated["reasoning"] == {"effort": "low"}
    assert losses["/thinking/budget_tokens"] == "approximated"


def test_cache_control_decodes_to_cache_marks() -> None:
    marked_text = {"type": "text", "text": "A manual.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": [marked_text]}],
        "cache_control": {"type": "ephemeral"},
    }
    decoded = decode_request_body(body)
    (text,) = decoded.messages[0].parts
    assert isinstance(text, Text)
    assert text.cache is not None
    assert text.cache.ttl == "1h"
    assert decoded.cache == CacheMark(at="/cache_control")
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})
    translated, _ = translate_request(body, OPENROUTER, "anthropic")
    assert translated["messages"][0]["content"][0] == marked_text
    again, _ = translate_request(translated, "anthropic", OPENROUTER)
    # Without the mark, which moves with every turn, the message would be a string.
    assert (again["messages"][0]["content"], again["cache_control"]) == ("A manual.", {"type": "ephemeral"})


def test_cache_mark_with_an_openai_ttl_becomes_a_breakpoint() -> None:
    text = Text(text="A manual.", cache=CacheMark(ttl="12h"))
    request = Request(origin="", model="m", messages=(Message(role="user", parts=(text,)),))
    translated = get_codec(OPENROUTER).encode_request(request, Target()).to_bytes().decode()
    assert '"prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}' in translated


def test_cache_mark_of_a_result_is_sent_as_the_mark_of_the_request() -> None:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "18C", "cache_control": {"type": "ephemeral"}}
    body = {**ANTHROPIC_REQUEST, "messages": [*ANTHROPIC_REQUEST["messages"][:2], {"role": "user", "content": [block]}]}  # type: ignore[index]
    translated, losses = translate_request(body, "anthropic", OPENROUTER)
    assert (translated["messages"][2]["content"], translated["cache_control"]) == ("18C", {"type": "ephemeral"})
    assert losses == {"/messages/2/content/0/cache_control": "approximated"}


def test_server_tools_are_native_and_mapped_to_their_counterparts() -> None:
    body = {"model": "m", "messages": [USER_MESSAGE], "tools": [{"type": "openrouter:web_search"}]}
    (tool,) = decode_request_body(body).tools or ()
    assert isinstance(tool, NativeTool)
    assert (tool.protocol, tool.kind, tool.hosted and tool.hosted.kind) == ("openai-chat", "web_search", "web_search")
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2, "blocked_domains": ["example.org"]}
    translated, losses = translate_request({**ANTHROPIC_REQUEST, "tools": [search]}, "anthropic", OPENROUTER)
    parameters = {"max_uses": 2, "excluded_domains": ["example.org"]}
    assert translated["tools"] == [{"type": "openrouter:web_search", "parameters": parameters}]
    assert losses == {}


def test_forced_server_tool_decodes_to_a_tool_choice() -> None:
    forced = {"type": "openrouter:web_search"}
    body = {
        "model": "m",
        "messages": [USER_MESSAGE],
        "tools": [forced],
        "tool_choice": forced,
        "parallel_tool_calls": False,
    }
    choice = decode_request_body(body).tool_choice
    assert choice is not None
    assert (choice.mode, choice.names[0].name, choice.parallel) == ("named", "web_search", False)
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})


def test_free_text_tools_become_functions() -> None:
    body = {
        "model": "gpt-5.2",
        "input": [
            {"role": "user", "content": "Go."},
            {"type": "custom_tool_call", "call_id": "call_1", "name": "shell", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "a.txt"},
        ],
        "tools": [{"type": "custom", "name": "shell"}],
        "tool_choice": {"type": "custom", "name": "shell"},
    }
    translated, losses = translate_request(body, "openai-responses", OPENROUTER)
    assert [tool["type"] for tool in translated["tools"]] == ["function"]
    assert translated["tool_choice"] == {"type": "function", "function": {"name": "shell"}}
    assert translated["messages"][1]["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"input":"ls"}'}
    assert losses["/tools/0"] == "approximated"


def test_first_of_several_models_is_the_model() -> None:
    body = {"models": ["a/b", "c/d"], "messages": [USER_MESSAGE]}
    assert decode_request_body(body).model == "a/b"
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})
    _, losses = translate_request(body, OPENROUTER, "anthropic")
    assert losses["/models/1"] == "dropped"


def test_routing_fields_are_reported_in_other_protocols() -> None:
    body = {
        "model": "m",
        "messages": [USER_MESSAGE],
        "provider": {"order": ["x"]},
        "plugins": [{"id": "moderation"}],
        "preset": "p",
    }
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})
    assert translate_request(body, "openai-chat", OPENROUTER) == (body, {})
    for target in ("openai-chat", "anthropic"):
        _, losses = translate_request(body, OPENROUTER, target)
        assert {"/provider", "/plugins/0", "/preset"} <= losses.keys()


def test_route_path_and_decode_errors_name_openrouter() -> None:
    assert (
        get_codec(OPENROUTER).encode_request(decode_request_body({"messages": []}), Target()).route.path
        == "/api/v1/chat/completions"
    )
    with pytest.raises(DecodeError, match=r"^openrouter: /messages: "):
        get_codec(OPENROUTER).decode_request(b'{"messages":1}', Route())


@pytest.mark.parametrize("source", ["anthropic", "openai-chat", OPENROUTER])
@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({}, ()),
        ({"site": "https://a.example"}, (("HTTP-Referer", "https://a.example"),)),
        (
            {"site": "https://a.example", "title": "An agent"},
            (("HTTP-Referer", "https://a.example"), ("X-Title", "An agent"), ("X-OpenRouter-Title", "An agent")),
        ),
    ],
)
def test_application_is_named_in_headers_only(source: str, options: Any, headers: Any) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [USER_MESSAGE]}
    translated = tw.translate(body, source, OPENROUTER, **options)
    assert translated.route.headers == headers
    assert translated.value == tw.translate(body, source, OPENROUTER).value
    assert tw.translate(body, source, "openai-chat", **options).route.headers == ()


def reasoning_request(model: str, *items: Any) -> dict[str, Any]:
    return {"model": model, "input": [USER_MESSAGE, *items, USER_MESSAGE]}


def test_reasoning_before_an_item_that_is_dropped_is_reported() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    image = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="}
    body, losses = translate_request(
        reasoning_request("openai/gpt-5", reasoning, image), "openai-responses", OPENROUTER
    )
    assert [message["role"] for message in body["messages"]] == ["user", "user"]
    assert losses == {"/input/1": "dropped", "/input/2": "dropped"}


def test_id_of_unsigned_reasoning_is_reported() -> None:
    reasoning = {"type": "reasoning", "id": "rs-a", "summary": [{"type": "summary_text", "text": "Look."}]}
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    request = reasoning_request("deepseek/deepseek-v3.2", reasoning, call, result)
    body, losses = translate_request(request, "openai-responses", OPENROUTER)
    assert body["messages"][1]["reasoning"] == "Look."
    assert losses["/input/1/id"] == "dropped"


def test_reasoning_between_text_and_calls_is_reported_as_moved() -> None:
    content = [
        {"type": "thinking", "thinking": "a", "signature": "s1"},
        {"type": "text", "text": "Now."},
        {"type": "thinking", "thinking": "b", "signature": "s2"},
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}},
    ]
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "18C"}]}
    messages = [USER_MESSAGE, {"role": "assistant", "content": content}, result]
    body, losses = translate_request({"model": "m", "max_tokens": 9, "messages": messages}, "anthropic", OPENROUTER)
    assert [entry["text"] for entry in body["messages"][1]["reasoning_details"]] == ["a", "b"]
    assert losses == {"/messages/1/content/2": "approximated"}


@pytest.mark.parametrize(
    ("model", "is_sent"),
    [("anthropic/claude-opus-5.5", False), ("google/gemini-3-pro", True), ("openrouter/auto", True)],
)
def test_signatures_are_sent_only_to_models_of_their_vendor(model: str, is_sent: bool) -> None:
    call = {"functionCall": {"id": "c1", "name": "f", "args": {}}, "thoughtSignature": "Z29v/+=="}
    result = {"functionResponse": {"id": "c1", "name": "f", "response": {"output": "x"}}}
    contents = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [result]},
    ]
    body, losses = translate_request({"contents": contents}, "gemini", OPENROUTER, model=model)
    assert ("reasoning_details" in body["messages"][1]) is is_sent
    assert ("/contents/1/parts/0/thoughtSignature" in losses) is not is_sent


def test_choice_of_some_tools_is_not_served_from_the_cache_of_all() -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("get_time", "get_date")]
    request: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_time"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    for body, count in ((request, 2), (request | {"tool_choice": choice}, 1), (request, 2)):
        assert len(tw.translate(body, "openai-chat", "openrouter").value["tools"]) == count
