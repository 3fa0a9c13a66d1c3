"""Requests of the Interactions protocol, decoded and encoded from other protocols."""

import json
from typing import Any

import pytest

import toolwire as tw
from toolwire.canonical.content import (
    Data,
    Inline,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    ReasoningText,
    Signature,
    Text,
    ToolCall,
    ToolResult,
    Url,
)
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.protocols import PROTOCOLS
from toolwire.protocols.gemini_interactions import CODEC

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
CALL = {"type": "function_call", "id": "c1", "name": "f", "arguments": {"n": 12345678901234567890}}


def decode(**body: Any) -> Request:
    return CODEC.decode_request(json.dumps({"model": "m", **body}, separators=(",", ":")).encode(), Route())


def encode(source: str, body: dict[str, Any], **target: Any) -> tuple[Any, EncodedBody, Request]:
    request = PROTOCOLS[source].decode_request(json.dumps(body).encode(), Route())
    encoding = CODEC.encode_request(request, Target(**target))
    return json.loads(encoding.to_bytes()), encoding, request


def losses(source: str, body: dict[str, Any], **target: Any) -> list[tuple[str, str]]:
    _, encoding, request = encode(source, body, **target)
    return [(loss.kind, loss.path) for loss in encoding.report.resolve(request, PROTOCOLS[source].wire_names)]


def anthropic(*messages: Any, **fields: Any) -> dict[str, Any]:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    return {"model": "m", "max_tokens": 64, "tools": tools, "messages": list(messages), **fields}


# ---- decode


@pytest.mark.parametrize("input_value", ["Hi", {"type": "text", "text": "Hi"}, [{"type": "text", "text": "Hi"}]])
def test_input_without_steps_is_one_user_message(input_value: Any) -> None:
    (message,) = decode(input=input_value).messages
    assert message.role == "user"
    assert [part.text for part in message.parts if isinstance(part, Text)] == ["Hi"]


def test_each_step_is_one_message() -> None:
    steps = [
        {"type": "user_input", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"type": "thought", "signature": "AAAA"},
        CALL,
        {"type": "function_result", "call_id": "c1", "result": "1"},
        {"type": "model_output", "content": []},
    ]
    roles = [message.role for message in decode(input=steps).messages]
    assert roles == ["user", "assistant", "assistant", "user", "assistant"]


def test_arguments_keep_their_json_text() -> None:
    ((call,),) = [message.parts for message in decode(input=[CALL]).messages]
    assert call == ToolCall(id="c1", name="f", arguments='{"n":12345678901234567890}', at="")


def test_thought_signatures_are_issued_by_google() -> None:
    thought = {"type": "thought", "signature": "AAAA", "summary": [{"type": "text", "text": "hm"}]}
    (part,) = decode(input=[thought]).messages[0].parts
    assert isinstance(part, Reasoning)
    assert part.content == (ReasoningText(kind="summary", text="hm", at="/summary/0"),)
    assert part.signature == Signature(issuer="google", data="AAAA", kind="signature", at="/signature")


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("x", Text(text="x", at="/result")),
        ({"a": 1}, None),
        ([{"type": "text", "text": "x"}], Text(text="x")),
        (
            [{"type": "image", "data": "AAAA", "mime_type": "image/png"}],
            Media(kind="image", source=Inline(data="AAAA"), media_type="image/png"),
        ),
    ],
)
def test_function_results_decode_to_content(result: Any, content: Any) -> None:
    step = {"type": "function_result", "call_id": "c1", "name": "f", "result": result, "is_error": True}
    (part,) = decode(input=[CALL, step]).messages[1].parts
    assert isinstance(part, ToolResult)
    assert (part.call_id, part.name, part.status) == ("c1", "f", "error")
    assert part.content is not None
    if content is None:
        assert isinstance(only := part.content[0], Data)
        assert bytes(only.json) == b'{"a":1}'
    else:
        assert part.content == (content,)


def test_a_result_list_without_types_is_data() -> None:
    step = {"type": "function_result", "call_id": "c1", "result": [1, {"temp": 2}]}
    (part,) = decode(input=[CALL, step]).messages[1].parts
    assert isinstance(part, ToolResult)
    assert part.content is not None
    assert isinstance(only := part.content[0], Data)
    assert bytes(only.json) == b'[1,{"temp":2}]'


def test_hosted_calls_are_server_side() -> None:
    call = {"type": "google_search_call", "id": "g", "arguments": {"queries": ["q"]}, "signature": "AAAA"}
    result = {"type": "google_search_result", "call_id": "g", "result": [{"search_suggestions": "s"}]}
    (decoded_call,), (decoded_result,) = (message.parts for message in decode(input=[call, result]).messages)
    assert isinstance(decoded_call, ToolCall)
    assert isinstance(decoded_result, ToolResult)
    assert (decoded_call.name, decoded_call.executor, decoded_call.native) == (
        "google_search",
        "server",
        "google_search_call",
    )
    assert decoded_call.signature is not None
    assert decoded_call.signature.data == "AAAA"
    assert (decoded_result.executor, decoded_result.native) == ("server", "google_search_result")
    assert decoded_result.content is not None
    assert isinstance(decoded_result.content[0], OpaquePart)


def test_tools_choice_and_settings_are_decoded() -> None:
    request = decode(
        input="x",
        tools=[TOOL, {"type": "google_search"}],
        generation_config={
            "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["f"]}},
            "thinking_level": "low",
            "thinking_summaries": "none",
            "max_output_tokens": 5,
            "stop_sequences": ["."],
        },
        response_format={"type": "text", "mime_type": "application/json", "schema": {"type": "object"}},
        previous_interaction_id="v1",
        store=True,
        background=False,
    )
    assert request.tools is not None
    assert [type(tool) for tool in request.tools] == [FunctionTool, NativeTool]
    assert request.tool_choice is not None
    assert (request.tool_choice.mode, [name.name for name in request.tool_choice.names]) == ("named", ["f"])
    assert request.thinking is not None
    assert (request.thinking.effort, request.thinking.visibility) == ("low", "omitted")
    assert request.sampling is not None
    assert (request.sampling.max_tokens, request.sampling.stop) == (5, (".",))
    assert request.output is not None
    assert request.output.kind == "json_schema"
    assert request.continuation == Continuation(kind="interaction", id="v1", store=True, background=False)


def test_citation_offsets_count_characters() -> None:
    annotation = {"type": "url_citation", "url": "https://a", "start_index": 3, "end_index": 8}
    step = {"type": "model_output", "content": [{"type": "text", "text": "Le café est", "annotations": [annotation]}]}
    (part,) = decode(input=[step]).messages[0].parts
    assert isinstance(part, Text)
    assert part.annotations is not None
    assert (part.annotations[0].start, part.annotations[0].end) == (3, 7)


def test_media_by_url_are_decoded() -> None:
    image = {"type": "image", "uri": "https://a/b.png", "resolution": "low"}
    (part,) = decode(input=[{"type": "user_input", "content": [image]}]).messages[0].parts
    assert isinstance(part, Media)
    assert part.source == Url(url="https://a/b.png")
    assert part.detail == "low"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"input": 5}, "/input"),
        ({"input": [{"type": "function_call", "id": "c"}]}, "/input/0/name"),
        ({"input": [{"no": "type"}]}, "/input/0/type"),
        ({"input": [{"type": "user_input", "content": 5}]}, "/input/0/content"),
        ({"input": [{"type": "model_output", "content": [{"type": "text"}]}]}, "/input/0/content/0/text"),
        ({"input": [CALL, {"type": "function_result", "result": [{"type": "text"}]}]}, "/input/1/result/0/text"),
        ({"input": "x", "tools": [{"type": "function"}]}, "/tools/0/name"),
        ({"input": "x", "generation_config": []}, "/generation_config"),
    ],
)
def test_decode_errors_point_to_the_invalid_value(body: dict[str, Any], path: str) -> None:
    with pytest.raises(tw.DecodeError) as error:
        decode(**body)
    assert error.value.path == path


# ---- encode from other protocols


def test_calls_and_results_become_steps() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "late", "is_error": True}
    value, _, _ = encode(
        "anthropic",
        anthropic(
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": [{"type": "text", "text": "Yes."}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
            system="Be brief.",
        ),
    )
    assert value["system_instruction"] == "Be brief."
    assert value["input"] == [
        {"type": "user_input", "content": [{"type": "text", "text": "Go"}]},
        {"type": "model_output", "content": [{"type": "text", "text": "Yes."}]},
        {"type": "function_call", "id": "toolu_1", "name": "f", "arguments": {"a": 1}},
        {"type": "function_result", "call_id": "toolu_1", "name": "f", "result": "late", "is_error": True},
        {"type": "user_input", "content": [{"type": "text", "text": "And?"}]},
    ]


def test_media_in_a_result_become_content_or_a_summary() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": source}]}
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    body = anthropic(
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    )
    value, _, _ = encode("anthropic", body)
    assert value["input"][2]["result"] == [{"type": "image", "data": "AAAA", "mime_type": "image/png"}]
    value, _, _ = encode("anthropic", body, binary_results="summary")
    assert value["input"][2]["result"] == "Binary content of type image/png was processed."


def test_foreign_thinking_is_not_sent() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    body = anthropic(
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "Yes."}]},
        {"role": "user", "content": "?"},
    )
    value, _, _ = encode("anthropic", body)
    assert [step["type"] for step in value["input"]] == ["user_input", "model_output", "user_input"]
    assert ("dropped", "/messages/1/content/0") in losses("anthropic", body)


def test_a_google_signature_on_a_call_becomes_a_thought_before_it() -> None:
    signature = Signature(issuer="google", data="AAAA", kind="signature")
    call = ToolCall(id="c1", name="f", arguments="{}", signature=signature)
    question = Message(role="user", parts=(Text(text="Go"),))
    request = Request(origin="gemini", messages=(question, Message(role="assistant", parts=(call,))))
    value = json.loads(CODEC.encode_request(request, Target()).to_bytes())
    assert value["input"][1:] == [
        {"type": "thought", "signature": "AAAA"},
        {"type": "function_call", "id": "c1", "name": "f", "arguments": {}},
    ]


def test_mid_conversation_system_text_becomes_a_reminder() -> None:
    messages = [
        {"role": "system", "content": "First."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "system", "content": "Second."},
        {"role": "user", "content": "?"},
    ]
    body = {"model": "m", "messages": messages}
    value, _, _ = encode("openai-chat", body)
    assert value["system_instruction"] == "First."
    reminder = {"type": "text", "text": "<system-reminder>\nSecond.\n</system-reminder>"}
    assert value["input"][2] == {"type": "user_input", "content": [reminder]}
    assert ("approximated", "/messages/3/role") in losses("openai-chat", body)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "any"}, "any"),
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"allowed_tools": {"mode": "any", "tools": ["f"]}}),
    ],
)
def test_tool_choices_are_encoded(choice: Any, expected: Any) -> None:
    value, _, _ = encode("anthropic", anthropic({"role": "user", "content": "Go"}, tool_choice=choice))
    assert value["generation_config"]["tool_choice"] == expected


def test_disabled_parallel_calls_are_a_loss() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    body = anthropic({"role": "user", "content": "Go"}, tool_choice=choice)
    assert ("dropped", "/tool_choice/disable_parallel_tool_use") in losses("anthropic", body)


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ({"type": "web_search_20250305", "name": "web_search"}, [{"type": "google_search"}]),
        ({"type": "web_fetch_20250910", "name": "web_fetch"}, [{"type": "url_context"}]),
        ({"type": "code_execution_20250825", "name": "code_execution"}, [{"type": "code_execution"}]),
    ],
)
def test_shared_hosted_tools_are_encoded(tool: Any, expected: Any) -> None:
    value, _, _ = encode("anthropic", anthropic({"role": "user", "content": "Go"}, tools=[tool]))
    assert value.get("tools") == expected


def test_invalid_arguments_are_wrapped_in_an_object() -> None:
    function = {"name": "f", "arguments": '{"a": '}
    call = {"id": "c", "type": "function", "function": function}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    body = {"model": "m", "messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}]}
    value, _, _ = encode("openai-chat", body)
    assert value["input"][1]["arguments"] == {"_raw": '{"a": '}
    assert ("approximated", "/messages/1/tool_calls/0/function/arguments") in losses("openai-chat", body)


def test_schemas_are_fitted_to_google() -> None:
    schema = {"type": "object", "properties": {"on": {"const": "yes"}}}
    expected = {"type": "object", "properties": {"on": {"enum": ["yes"]}}}
    output = {"format": {"type": "json_schema", "schema": schema}}
    body = anthropic({"role": "user", "content": "Hi"}, output_config=output)
    body["tools"][0]["input_schema"] = schema
    encoded, _, _ = encode("anthropic", body)
    assert encoded["tools"][0]["parameters"] == encoded["response_format"]["schema"] == expected
    assert losses("anthropic", body) == [
        ("approximated", f"/{location}/properties/on/const")
        for location in ("tools/0/input_schema", "output_config/format/schema")
    ]


def test_strict_functions_use_validated_mode() -> None:
    strict_tool = {"type": "function", "function": {"name": "f", "strict": True}}
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [strict_tool]}
    translation = tw.translate(body, "openai-chat", "gemini-interactions")
    assert translation.value["generation_config"] == {"tool_choice": "validated"}
    assert translation.losses == []
    loose_tool = {"type": "function", "function": {"name": "g"}}
    mixed = tw.translate({**body, "tools": [strict_tool, loose_tool]}, "openai-chat", "gemini-interactions")
    assert "generation_config" not in mixed.value
    assert [loss.path for loss in mixed.losses] == ["/tools/0/function/strict"]


def test_a_thinking_budget_is_reported_once() -> None:
    config = {"thinkingConfig": {"thinkingBudget": 2048}}
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": config}
    translation = tw.translate(body, "gemini", "gemini-interactions")
    assert [loss.path for loss in translation.losses] == ["/generationConfig/thinkingConfig/thinkingBudget"]


def test_a_text_document_is_sent_as_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Rain."}
    message = {"role": "user", "content": [{"type": "document", "source": source}]}
    translation = tw.translate(
        {"model": "m", "max_tokens": 9, "messages": [message]}, "anthropic", "gemini-interactions"
    )
    assert translation.value["input"] == [{"type": "user_input", "content": [{"type": "text", "text": "Rain."}]}]
    assert [(loss.kind, loss.path) for loss in translation.losses] == [("approximated", "/messages/0/content/0/source")]


@pytest.mark.parametrize(
    ("display", "expected"), [({}, "auto"), ({"display": "summarized"}, "auto"), ({"display": "omitted"}, "none")]
)
def test_enabled_thinking_requests_summaries_unless_omitted(display: dict[str, str], expected: str) -> None:
    message = {"role": "user", "content": "Hi"}
    body = {"model": "m", "max_tokens": 9, "messages": [message], "thinking": {"type": "adaptive", **display}}
    encoded = tw.translate(body, "anthropic", "gemini-interactions").value
    assert encoded["generation_config"]["thinking_summaries"] == expected


def test_a_safety_method_that_is_no_word_has_no_counterpart_in_gemini() -> None:
    setting = {"type": "dangerous_content", "threshold": "block_only_high", "method": ["severity"]}
    body = {"model": "m", "input": "Hi", "safety_settings": [setting]}
    translation = tw.translate(body, "gemini-interactions", "gemini")
    assert "safetySettings" not in translation.value
    assert [loss.path for loss in translation.losses] == ["/safety_settings/0"]
