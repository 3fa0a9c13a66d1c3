"""Tool names and custom (grammar) tools (NA-1 to NA-4, CU-1 to CU-5)."""

import json
import re
from typing import Any

import pytest

from tests.support.bodies.minimal import (
    USER_MESSAGE,
    anthropic_call,
    anthropic_call_block,
    anthropic_request,
    anthropic_response,
    anthropic_result,
    anthropic_stream,
    anthropic_tool,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_request,
    chat_response,
    chat_result,
    chat_tool,
    chat_turn,
    request_with_tools,
    response_body,
    responses_item_events,
    responses_request,
    responses_stream,
    responses_tool,
)
from tests.support.bodies.readers import declared_names as result_names
from tests.support.bodies.readers import (
    declared_schemas,
    responses_items,
    stream_frames,
    tool_calls_in,
    tool_results_in,
)
from tests.support.protocols import (
    ALL_PAIRS,
    ALL_PROTOCOLS,
    ANTHROPIC,
    CHAT,
    GEMINI,
    INTERACTIONS,
    OLLAMA,
    OPENROUTER,
    RESPONSES,
)
from tests.support.sdk.validation import fold_body, fold_stream
from tests.support.translation import translate_stream_bytes, translated_body

LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LONG_NAME = "mcp__a_server_with_a_long_name__" + "read_the_whole_repository_" * 3
GRAMMAR = {"syntax": "lark", "definition": 'start: "*** Begin Patch" LINE+'}
PATCH: dict[str, Any] = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Applies a patch.",
    "format": {"type": "grammar", **GRAMMAR},
}
NESTED_PATCH: dict[str, Any] = {
    "type": "custom",
    "custom": {
        "name": "apply_patch",
        "description": "Applies a patch.",
        "format": {"type": "grammar", "grammar": GRAMMAR},
    },
}
RAW_INPUT = '*** Begin Patch\n+say "hi"\\n\n*** End Patch'
CUSTOM_ITEM: dict[str, Any] = {
    "type": "custom_tool_call",
    "call_id": "call_1",
    "name": "apply_patch",
    "input": RAW_INPUT,
}
CUSTOM_OUTPUT: dict[str, Any] = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done."}
CHAT_CUSTOM: dict[str, Any] = {
    "id": "call_1",
    "type": "custom",
    "custom": {"name": "apply_patch", "input": RAW_INPUT},
}


@pytest.mark.parametrize("source", [ANTHROPIC, RESPONSES])
def test_na_1_a_long_name_is_shortened_deterministically_and_restored(source: str) -> None:
    long, other = LONG_NAME + "a", LONG_NAME + "b"
    declare = anthropic_tool if source == ANTHROPIC else responses_tool
    request = anthropic_request if source == ANTHROPIC else responses_request
    body = request(USER_MESSAGE, tools=[declare(long), declare(other)])
    short = list(declared_schemas(CHAT, translated_body(body, source, CHAT)))
    assert all(LEGAL_NAME.fullmatch(name) for name in short)
    assert len(set(short)) == 2
    assert list(declared_schemas(CHAT, translated_body(body, source, CHAT))) == short
    response = chat_response(chat_assistant(chat_call("call_1", short[1])))
    restored = translated_body(response, CHAT, source, "response", request=body)
    assert [call["name"] for call in tool_calls_in(source, restored)] == [other]


def test_na_2_a_reference_to_a_tool_uses_its_short_name() -> None:
    result = anthropic_result("toolu_1", [{"type": "tool_reference", "tool_name": LONG_NAME}])
    deferred = [anthropic_tool("search"), {**anthropic_tool(LONG_NAME), "defer_loading": True}]
    body = anthropic_turn([anthropic_call("toolu_1", "search")], [result], tools=deferred)
    translated = translated_body(body, ANTHROPIC, CHAT)
    short = list(declared_schemas(CHAT, translated))[1]
    assert LEGAL_NAME.fullmatch(short)
    assert short in tool_results_in(CHAT, translated)[0][1]
    assert LONG_NAME not in json.dumps(translated["messages"])


GEMINI_LEGAL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
UNUSUAL_NAMES = ["fs.read", "fs/read", "fs_read", "fs read", "1st/tool", "1st tool", "café"]


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_na_3_names_with_illegal_characters_do_not_collide(source: str, target: str) -> None:
    request = request_with_tools(source, dict.fromkeys(UNUSUAL_NAMES))
    translated = translated_body(request, source, target)
    names = list(declared_schemas(target, translated))
    assert len(set(names)) == len(UNUSUAL_NAMES)
    assert names[2] == "fs_read"
    legal = {GEMINI: GEMINI_LEGAL_NAME, INTERACTIONS: GEMINI_LEGAL_NAME, OLLAMA: re.compile(".+")}.get(
        target, LEGAL_NAME
    )
    assert [name for name in names if not legal.fullmatch(name)] == []
    for name, alias in zip(UNUSUAL_NAMES, names, strict=True):
        body = json.loads(json.dumps(response_body(target, "", ("call_1", "Paris"))).replace("get_weather", alias))
        restored = translated_body(body, target, source, "response", request=request)
        assert [call["name"] for call in tool_calls_in(source, restored)] == [name]


@pytest.mark.parametrize("name", ["no such tool!", "a/b", "x" * 200])
@pytest.mark.parametrize("target", [ANTHROPIC, RESPONSES, GEMINI, INTERACTIONS])
def test_na_4_names_in_the_history_are_made_legal_too(name: str, target: str) -> None:
    body = chat_turn([chat_call("call_1", name)], [chat_result("call_1")], tools=[chat_tool()])
    translated = translated_body(body, CHAT, target)
    (call,) = tool_calls_in(target, translated)
    assert (GEMINI_LEGAL_NAME if target in (GEMINI, INTERACTIONS) else LEGAL_NAME).fullmatch(call["name"])
    if target in (GEMINI, INTERACTIONS):
        assert result_names(target, translated) == [call["name"]]


def test_cu_1_the_flat_and_the_nested_form_are_one_tool() -> None:
    assert translated_body(responses_request(tools=[PATCH]), RESPONSES, CHAT)["tools"] == [NESTED_PATCH]
    assert translated_body(chat_request(tools=[NESTED_PATCH]), CHAT, RESPONSES)["tools"] == [PATCH]
    body = responses_request(USER_MESSAGE, CUSTOM_ITEM, CUSTOM_OUTPUT, tools=[PATCH])
    translated = translated_body(body, RESPONSES, CHAT)
    assert translated["messages"][1]["tool_calls"] == [CHAT_CUSTOM]
    assert tool_results_in(CHAT, translated) == [("call_1", "Done.")]


CUSTOM_REQUEST = responses_request(USER_MESSAGE, tools=[PATCH])


def test_a_custom_tool_without_a_description_gets_none() -> None:
    body = {"model": "m", "input": "Go", "tools": [{"type": "custom", "name": "bare"}]}
    (tool,) = translated_body(body, RESPONSES, ANTHROPIC)["tools"]
    assert tool.keys() == {"name", "input_schema"}


def test_cu_2_a_custom_tool_becomes_a_function_and_its_call_is_restored() -> None:
    tool = translated_body(CUSTOM_REQUEST, RESPONSES, ANTHROPIC)["tools"][0]
    assert tool["input_schema"]["properties"]["input"]["type"] == "string"
    assert tool["input_schema"]["required"] == ["input"]
    assert GRAMMAR["definition"] in tool["description"]
    response = anthropic_response(anthropic_call("call_1", "apply_patch", {"input": RAW_INPUT}))
    (item,) = responses_items(translated_body(response, ANTHROPIC, RESPONSES, "response", request=CUSTOM_REQUEST))
    assert (item["type"], item["call_id"], item["name"], item["input"]) == (
        "custom_tool_call",
        "call_1",
        "apply_patch",
        RAW_INPUT,
    )
    text = json.dumps({"input": RAW_INPUT})
    wire = anthropic_stream(*anthropic_call_block(0, "call_1", *text, name="apply_patch"))
    translated = translate_stream_bytes(wire, ANTHROPIC, RESPONSES, CUSTOM_REQUEST)
    deltas = [
        frame["delta"]
        for frame in stream_frames(translated)
        if frame["type"] == "response.custom_tool_call_input.delta"
    ]
    assert "".join(deltas) == RAW_INPUT
    assert len(deltas) > 1
    (output_item,) = fold_body(RESPONSES, translated)["output"]
    assert (output_item["type"], output_item["input"]) == ("custom_tool_call", RAW_INPUT)


@pytest.mark.parametrize(
    ("source", "body"),
    [
        (RESPONSES, responses_request(USER_MESSAGE, CUSTOM_ITEM, CUSTOM_OUTPUT, tools=[PATCH])),
        (
            CHAT,
            chat_request(
                USER_MESSAGE, chat_assistant(CHAT_CUSTOM), chat_result("call_1", "Done."), tools=[NESTED_PATCH]
            ),
        ),
    ],
)
def test_cu_3_custom_tools_become_functions_on_every_path(source: str, body: dict[str, Any]) -> None:
    for target in (ANTHROPIC, GEMINI, INTERACTIONS, OLLAMA):
        translated = translated_body(body, source, target)
        assert declared_schemas(target, translated)["apply_patch"]["required"] == ["input"]
        assert tool_calls_in(target, translated) == [
            {"id": "call_1", "name": "apply_patch", "arguments": {"input": RAW_INPUT}}
        ]
        assert tool_results_in(target, translated) == [("call_1", "Done.")]


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != RESPONSES])
def test_cu_4_a_custom_call_in_a_stream_does_not_vanish(target: str) -> None:
    item = {**CUSTOM_ITEM, "id": "ctc_1", "status": "completed"}
    wire = responses_stream(*responses_item_events(0, item), output=[item])
    client = chat_request(tools=[NESTED_PATCH]) if target == CHAT else None
    (call,) = fold_stream(target, translate_stream_bytes(wire, RESPONSES, target, client), tolerant=target == CHAT)[
        "calls"
    ]
    assert (call["id"], call["name"]) == ("call_1", "apply_patch")
    assert call["arguments"] == (RAW_INPUT if target == CHAT else {"input": RAW_INPUT})


def test_cu_5_custom_outputs_keep_their_form() -> None:
    parts = [{"type": "input_text", "text": "Done. "}, {"type": "input_text", "text": "Twice."}]
    with_parts = responses_request(USER_MESSAGE, CUSTOM_ITEM, {**CUSTOM_OUTPUT, "output": parts}, tools=[PATCH])
    assert translated_body(with_parts, RESPONSES, RESPONSES) == with_parts
    with_text = responses_request(USER_MESSAGE, CUSTOM_ITEM, CUSTOM_OUTPUT, tools=[PATCH])
    assert translated_body(with_text, RESPONSES, RESPONSES) == with_text
    for target in (ANTHROPIC, CHAT, OPENROUTER):
        assert tool_results_in(target, translated_body(with_parts, RESPONSES, target)) == [("call_1", "Done. Twice.")]
