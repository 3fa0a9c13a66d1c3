"""OpenRouter requests: what it adds to Chat becomes what others know, and the other way round."""

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

ASKED = {"role": "user", "content": "Paris?"}
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
SEALED = {"type": "reasoning.encrypted", "data": "gAAA/+==", "id": "rs_1", "format": "openai-responses-v1", "index": 1}
GOOGLE = {"type": "reasoning.text", "signature": "Z29v/+==", "format": "google-gemini-v1", "index": 0}
XAI = {"type": "reasoning.encrypted", "data": "eGFp/+==", "id": "rs_2", "format": "xai-responses-v1", "index": 0}

ANTHROPIC = {
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
    said = {"role": "assistant", "content": "", "reasoning_details": details, "tool_calls": [CALL], **message}
    return {"model": "m", "messages": [ASKED, said, RESULT], "tools": [TOOL]}


def thoughts(details: list[Any], **message: Any) -> list[Reasoning]:
    said = decode_request_body(conversation(details, **message)).messages[1]
    return [part for part in said.parts if isinstance(part, Reasoning)]


@pytest.mark.parametrize(
    ("entry", "seal"),
    [
        (SIGNED, ("anthropic", "signature", "c2ln/+==")),
        (REDACTED, ("anthropic", "encrypted", "cmVk/+==")),
        (SEALED, ("openai", "encrypted", "gAAA/+==")),
        (GOOGLE, ("google", "signature", "Z29v/+==")),
        (XAI, ("xai", "encrypted", "eGFp/+==")),
        ({**SEALED, "format": "azure-openai-responses-v1"}, ("azure-openai", "encrypted", "gAAA/+==")),
        ({**SEALED, "format": "of-tomorrow-v1"}, ("openrouter", "encrypted", "gAAA/+==")),
        ({**SIGNED, "format": None}, ("openrouter", "signature", "c2ln/+==")),
    ],
)
def test_each_proof_is_its_issuers(entry: dict[str, Any], seal: tuple[str, str, str]) -> None:
    (thought,) = thoughts([entry])
    assert thought.signature is not None
    assert (thought.signature.issuer, thought.signature.kind, thought.signature.data) == seal


def test_each_entry_is_a_part_and_the_plain_text_that_repeats_them_is_none() -> None:
    first, second = thoughts([SUMMARY, SEALED], reasoning="Look.")
    assert [one.text for one in first.content if isinstance(one, ReasoningText)] == ["Look."]
    assert (second.content, second.hidden, second.id) == ((), "omitted", "rs_1")


def test_entries_that_are_no_list_of_entries_come_home() -> None:
    kinds: tuple[Any, ...] = ("text", [1], [{}], {"type": "reasoning.text"}, [SIGNED, {"text": "no type"}])
    for details in non_empty(kinds):
        body = conversation([])
        body["messages"][1]["reasoning_details"] = details
        assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})


def test_a_claude_history_reaches_anthropic_with_its_proofs_byte_for_byte() -> None:
    made, _ = translate_request(
        conversation([SIGNED, REDACTED], reasoning="Look."), OPENROUTER, "anthropic", model="claude-opus-5-5"
    )
    assert made["messages"][1]["content"][:2] == [
        {"type": "thinking", "thinking": "Look.", "signature": "c2ln/+=="},
        {"type": "redacted_thinking", "data": "cmVk/+=="},
    ]


def test_an_openai_history_reaches_responses_with_its_encrypted_item() -> None:
    made, losses = translate_request(conversation([SUMMARY, SEALED]), OPENROUTER, "openai-responses")
    (item,) = [item for item in made["input"] if item.get("type") == "reasoning"]
    assert item["encrypted_content"] == "gAAA/+=="
    assert "/messages/1/reasoning_details/0" in losses


@pytest.mark.parametrize("entry", [SEALED, GOOGLE, XAI, {**SIGNED, "format": "unknown"}])
def test_nothing_that_anthropic_did_not_sign_is_sent_to_it(entry: dict[str, Any]) -> None:
    made, losses = translate_request(conversation([entry]), OPENROUTER, "anthropic")
    assert [block["type"] for block in made["messages"][1]["content"]] == ["tool_use"]
    assert losses["/messages/1/reasoning_details/0"] == "dropped"


def test_an_anthropic_history_is_told_with_its_proofs_and_comes_back() -> None:
    made, losses = translate_request(ANTHROPIC, "anthropic", OPENROUTER)
    said = made["messages"][1]
    assert said["reasoning_details"] == [SIGNED, REDACTED]
    assert said["tool_calls"][0]["id"] == "toolu_1"
    assert made["reasoning"] == {"max_tokens": 2048}
    assert losses == {}
    back, _ = translate_request(made, OPENROUTER, "anthropic")
    assert back["messages"][1:] == ANTHROPIC["messages"][1:]  # type: ignore[index]


def test_media_stay_in_their_result() -> None:
    made, _ = translate_request(ANTHROPIC, "anthropic", OPENROUTER)
    assert made["messages"][2]["content"] == [
        {"type": "text", "text": "a map"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
    ]
    assert len(made["messages"]) == 3


def test_binary_results_are_summed_up_where_that_is_asked_for() -> None:
    made, losses = translate_request(ANTHROPIC, "anthropic", OPENROUTER, binary_results="summary")
    said = [part["text"] for part in made["messages"][2]["content"]]
    assert said == ["a map", "Binary content of type image/png was processed."]
    assert losses["/messages/2/content/0/content/1"] == "approximated"


def test_an_encrypted_item_of_responses_is_told_with_its_name() -> None:
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
    made, losses = translate_request(body, "openai-responses", OPENROUTER)
    assert made["messages"][1]["reasoning_details"] == [SUMMARY, SEALED]
    assert "/input/1/id" not in losses


def test_a_summary_that_came_as_an_item_of_its_own_stands_before_its_proof_again() -> None:
    parts = (
        Reasoning(content=(ReasoningText(kind="summary", text="Look."),)),
        Reasoning(signature=Signature(issuer="openai", data="gAAA/+==", kind="encrypted"), id="rs_1"),
        Text(text="18C"),
    )
    said = _encoded(*parts)
    assert said["reasoning_details"] == [SUMMARY, SEALED]


def test_proofs_on_calls_and_texts_are_entries() -> None:
    seal = Signature(issuer="google", data="Z29v/+==", kind="signature")
    call = ToolCall(id="call_1", name="get_weather", arguments="{}", signature=seal)
    said = _encoded(Text(text="Look.", signature=seal), call)
    assert said["reasoning_details"] == [
        GOOGLE,
        {"type": "reasoning.encrypted", "data": "Z29v/+==", "id": "call_1", "format": "google-gemini-v1", "index": 1},
    ]


def test_reasoning_that_nobody_sealed_goes_only_to_models_that_want_it_back() -> None:
    thought = Reasoning(content=(ReasoningText(kind="full", text="Look."),))
    assert "reasoning" not in _encoded(thought, Text(text="18C"))
    assert _encoded(thought, Text(text="18C"), model="deepseek/deepseek-v3.2")["reasoning"] == "Look."


def _encoded(*parts: Any, model: str = "m") -> Any:
    asked = Message(role="user", parts=(Text(text="Paris?"),))
    whole = Request(origin="", model=model, messages=(asked, Message(role="assistant", parts=parts)))
    return get_codec(OPENROUTER).encode_request(whole, Target()).body["messages"][1]


@pytest.mark.parametrize(
    ("reasoning", "said"),
    [
        ({"effort": "high"}, {"effort": "high"}),
        ({"max_tokens": 2000}, {"budget_tokens": 2000}),
        ({"enabled": True}, {"enabled": True}),
        ({"effort": "low", "exclude": True}, {"effort": "low", "visibility": "omitted"}),
        ({"effort": "low", "exclude": False}, {"effort": "low", "visibility": "full"}),
        ({"effort": "low", "summary": "auto"}, {"effort": "low", "visibility": "summary"}),
    ],
)
def test_the_reasoning_object_is_how_to_think(reasoning: Any, said: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [ASKED], "reasoning": reasoning}
    thinking = decode_request_body(body).thinking
    assert thinking is not None
    fields = ("effort", "budget_tokens", "enabled", "visibility")
    found = {name: value for name in fields if (value := getattr(thinking, name)) is not None}
    assert found == said
    other = Request(origin="", thinking=thinking)
    assert get_codec(OPENROUTER).encode_request(other, Target()).body["reasoning"] == reasoning
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})


def test_an_effort_wins_over_a_budget_since_only_one_is_taken() -> None:
    body = {**ANTHROPIC, "output_config": {"effort": "low"}}
    made, losses = translate_request(body, "anthropic", OPENROUTER)
    assert made["reasoning"] == {"effort": "low"}
    assert losses["/thinking/budget_tokens"] == "approximated"


def test_cache_marks_in_anthropics_way_are_marks() -> None:
    marked = {"type": "text", "text": "A manual.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [marked]}], "cache_control": {"type": "ephemeral"}}
    found = decode_request_body(body)
    (text,) = found.messages[0].parts
    assert isinstance(text, Text)
    assert text.cache is not None
    assert text.cache.ttl == "1h"
    assert found.cache == CacheMark(at="/cache_control")
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})
    made, _ = translate_request(body, OPENROUTER, "anthropic")
    assert made["messages"][0]["content"][0] == marked
    again, _ = translate_request(made, "anthropic", OPENROUTER)
    assert again["messages"][0]["content"] == [marked]


def test_a_mark_for_a_time_that_only_openai_has_is_written_openais_way() -> None:
    text = Text(text="A manual.", cache=CacheMark(ttl="12h"))
    whole = Request(origin="", model="m", messages=(Message(role="user", parts=(text,)),))
    made = get_codec(OPENROUTER).encode_request(whole, Target()).to_bytes().decode()
    assert '"prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}' in made


def test_a_mark_on_a_result_stands_on_its_text() -> None:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "18C", "cache_control": {"type": "ephemeral"}}
    body = {**ANTHROPIC, "messages": [*ANTHROPIC["messages"][:2], {"role": "user", "content": [block]}]}  # type: ignore[index]
    made, losses = translate_request(body, "anthropic", OPENROUTER)
    assert made["messages"][2]["content"] == [{"type": "text", "text": "18C", "cache_control": {"type": "ephemeral"}}]
    assert losses == {}


def test_server_tools_are_native_and_map_to_what_does_the_same() -> None:
    body = {"model": "m", "messages": [ASKED], "tools": [{"type": "openrouter:web_search"}]}
    (tool,) = decode_request_body(body).tools or ()
    assert isinstance(tool, NativeTool)
    assert (tool.protocol, tool.kind, tool.hosted and tool.hosted.kind) == ("openai-chat", "web_search", "web_search")
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2, "blocked_domains": ["example.org"]}
    made, losses = translate_request({**ANTHROPIC, "tools": [search]}, "anthropic", OPENROUTER)
    parameters = {"max_uses": 2, "excluded_domains": ["example.org"]}
    assert made["tools"] == [{"type": "openrouter:web_search", "parameters": parameters}]
    assert losses == {}


def test_a_forced_server_tool_is_a_choice() -> None:
    forced = {"type": "openrouter:web_search"}
    body = {"model": "m", "messages": [ASKED], "tools": [forced], "tool_choice": forced, "parallel_tool_calls": False}
    choice = decode_request_body(body).tool_choice
    assert choice is not None
    assert (choice.mode, choice.names[0].name, choice.parallel) == ("named", "web_search", False)
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})


def test_free_text_tools_are_lowered_since_there_are_only_functions() -> None:
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
    made, losses = translate_request(body, "openai-responses", OPENROUTER)
    assert [tool["type"] for tool in made["tools"]] == ["function"]
    assert made["tool_choice"] == {"type": "function", "function": {"name": "shell"}}
    assert made["messages"][1]["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"input":"ls"}'}
    assert losses["/tools/0"] == "approximated"


def test_the_first_of_several_models_is_the_model() -> None:
    body = {"models": ["a/b", "c/d"], "messages": [ASKED]}
    assert decode_request_body(body).model == "a/b"
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})
    _, losses = translate_request(body, OPENROUTER, "anthropic")
    assert losses["/models/1"] == "dropped"


def test_routing_is_a_loss_elsewhere_also_in_chat() -> None:
    body = {
        "model": "m",
        "messages": [ASKED],
        "provider": {"order": ["x"]},
        "plugins": [{"id": "moderation"}],
        "preset": "p",
    }
    assert translate_request(body, OPENROUTER, OPENROUTER) == (body, {})
    assert translate_request(body, "openai-chat", OPENROUTER) == (body, {})
    for target in ("openai-chat", "anthropic"):
        _, losses = translate_request(body, OPENROUTER, target)
        assert {"/provider", "/plugins/0", "/preset"} <= losses.keys()


def test_where_it_goes_and_whose_fault_a_body_is() -> None:
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
def test_the_application_is_named_in_headers_only(source: str, options: Any, headers: Any) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [ASKED]}
    made = tw.translate(body, source, OPENROUTER, **options)
    assert made.route.headers == headers
    assert made.value == tw.translate(body, source, OPENROUTER).value
    assert tw.translate(body, source, "openai-chat", **options).route.headers == ()
