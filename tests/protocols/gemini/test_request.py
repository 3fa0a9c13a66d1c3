"""Requests of the Gemini protocol: field spelling, SDK forms, tool bags and media of results."""

import json
from typing import Any

import pytest

import toolwire as tw
from toolwire.canonical.content import Data, Media, Message, Reasoning, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.interface import Route, Target
from toolwire.protocols.gemini import CODEC

HELLO = {"role": "user", "parts": [{"text": "Hello"}]}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}


def decoded(body: Any, **route: Any) -> Request:
    return CODEC.decode_request(json.dumps(body).encode(), Route(**route))


def parts(*wire_parts: Any) -> tuple[Any, ...]:
    return decoded({"contents": [{"role": "user", "parts": list(wire_parts)}]}).messages[0].parts


def result(response: Any, **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": "f", "response": response, **fields}}


def choice(config: Any) -> Any:
    tools = [{"functionDeclarations": [{"name": "f"}]}]
    return decoded({"contents": [HELLO], "tools": tools, "toolConfig": {"functionCallingConfig": config}}).tool_choice


def test_model_and_streaming_are_in_the_path() -> None:
    request = decoded({"contents": [HELLO]}, model="gemini-3-pro", stream=True)
    assert (request.model, request.stream) == ("gemini-3-pro", True)
    encoded = CODEC.encode_request(request, Target())
    assert encoded.route.path == "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert encoded.body.keys() == {"contents"}
    chat = {"model": "gemini-3-pro", "messages": [{"role": "user", "content": "Hello"}]}
    route = tw.translate(chat, "openai-chat", "gemini").route
    assert (route.path, route.model) == ("/v1beta/models/gemini-3-pro:generateContent", "gemini-3-pro")


@pytest.mark.parametrize("model", ["models/a", "tunedModels/b", "publishers/google/models/c"])
def test_a_full_resource_name_is_used_as_the_path(model: str) -> None:
    encoded = CODEC.encode_request(decoded({"contents": [HELLO]}, model=model), Target())
    assert encoded.route.path == f"/v1beta/{model}:generateContent"


def test_snake_case_decodes_like_camel_case() -> None:
    call = {"name": "f", "args": {}, "id": "a"}
    snake = decoded({"contents": [{"role": "model", "parts": [{"function_call": call, "thought_signature": "YQ=="}]}]})
    camel = decoded({"contents": [{"role": "model", "parts": [{"functionCall": call, "thoughtSignature": "YQ=="}]}]})
    (snake_call,), (camel_call,) = snake.messages[0].parts, camel.messages[0].parts
    assert isinstance(snake_call, ToolCall)
    assert isinstance(camel_call, ToolCall)
    assert (snake_call.id, snake_call.name) == (camel_call.id, camel_call.name)
    assert (snake_call.arguments, snake_call.signature) == (camel_call.arguments, camel_call.signature)


def test_loss_paths_use_the_spelling_of_the_source() -> None:
    body = {
        "contents": [HELLO, {"role": "model", "parts": [{"text": "Hi", "thought_signature": "YQ=="}]}, HELLO],
        "generation_config": {"top_k": 3, "thinking_config": {"include_thoughts": True, "odd": 1}},
    }
    losses = {loss.path for loss in tw.translate(body, "gemini", "openai-chat", model="m").losses}
    assert {
        "/contents/1/parts/0/thought_signature",
        "/generation_config/top_k",
        "/generation_config/thinking_config/odd",
    } <= losses


def test_a_wrong_type_in_snake_case_is_reported_with_its_path() -> None:
    with pytest.raises(tw.DecodeError) as caught:
        decoded({"contents": [{"role": "user", "parts": [{"function_call": "f"}]}]})
    assert caught.value.path == "/contents/0/parts/0/function_call"


@pytest.mark.parametrize("contents", ["Hello", ["Hello"], [{"text": "Hello"}], HELLO, [HELLO]])
def test_contents_are_accepted_in_all_forms_of_the_sdks(contents: Any) -> None:
    body = {"model": "m", "contents": contents, "config": {"temperature": 1}}
    request = decoded(body)
    assert request.model == "m"
    (text,) = request.messages[0].parts
    assert isinstance(text, Text)
    assert text.text == "Hello"
    assert tw.translate(body, "gemini", "gemini").value == body


def test_sdk_config_translates_like_the_request_body() -> None:
    config = {
        "system_instruction": "Be brief.",
        "temperature": 0.5,
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": CITY}]}],
        "thinking_config": {"thinking_level": "LOW"},
    }
    body = {
        "contents": [HELLO],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": CITY}]}],
        "generationConfig": {"temperature": 0.5, "thinkingConfig": {"thinkingLevel": "LOW"}},
    }
    from_config = tw.translate({"model": "m", "contents": "Hello", "config": config}, "gemini", "openai-chat").value
    assert from_config == tw.translate(body, "gemini", "openai-chat", model="m").value
    losses = tw.translate(
        {"model": "m", "contents": "Hello", "config": {"top_k": 4, "http_options": {}}}, "gemini", "openai-chat"
    ).losses
    assert {loss.path for loss in losses} == {"/config/top_k", "/config/http_options"}


def test_tool_bags_are_split_and_restored() -> None:
    body = {
        "contents": [HELLO],
        "tools": [{"functionDeclarations": [{"name": "f"}], "googleSearch": {}}, {"urlContext": {}}, {}],
    }
    tools = decoded(body).tools
    assert tools is not None
    assert [type(tool) for tool in tools] == [FunctionTool, NativeTool, NativeTool]
    assert [tool.kind for tool in tools if isinstance(tool, NativeTool)] == ["web_search", "web_fetch"]
    assert tw.translate(body, "gemini", "gemini").value == body


@pytest.mark.parametrize("types", [("OBJECT", "STRING"), (6, 1), ("object", "string")])
def test_openapi_types_become_json_schema_types(types: tuple[Any, Any]) -> None:
    schema = {"type": types[0], "properties": {"type": {"type": types[1], "enum": ["OBJECT"]}}}
    body = {"contents": [HELLO], "tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]}
    parameters = tw.translate(body, "gemini", "openai-chat", model="m").value["tools"][0]["function"]["parameters"]
    assert parameters == {"type": "object", "properties": {"type": {"type": "string", "enum": ["OBJECT"]}}}
    assert tw.translate(body, "gemini", "gemini").value == body


@pytest.mark.parametrize(
    ("config", "mode", "names", "required"),
    [
        ({"mode": "AUTO"}, "auto", [], False),
        ({"mode": "NONE"}, "none", [], False),
        ({"mode": "ANY"}, "required", [], False),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, "named", ["f"], False),
        ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, "allowed", ["f", "g"], True),
        ({"mode": "VALIDATED"}, "auto", [], False),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["f"]}, "allowed", ["f"], False),
        ({}, None, [], False),
    ],
)
def test_function_calling_modes_decode_to_tool_choices(
    config: Any, mode: Any, names: list[str], required: bool
) -> None:
    tool_choice = choice(config)
    assert (tool_choice.mode, [tool_ref.name for tool_ref in tool_choice.names], tool_choice.required) == (
        mode,
        names,
        required,
    )


def test_validated_mode_is_lost_elsewhere_and_used_for_strict_functions() -> None:
    tools = [{"functionDeclarations": [{"name": "f"}]}]
    config = {"functionCallingConfig": {"mode": "VALIDATED"}}
    losses = tw.translate({"contents": [HELLO], "tools": tools, "toolConfig": config}, "gemini", "anthropic").losses
    assert "/toolConfig/functionCallingConfig/mode" in {loss.path for loss in losses}
    function = {
        "name": "f",
        "strict": True,
        "parameters": {**CITY, "required": ["city"], "additionalProperties": False},
    }
    chat = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"type": "function", "function": function}],
    }
    translation = tw.translate(chat, "openai-chat", "gemini")
    assert translation.value["toolConfig"]["functionCallingConfig"] == {"mode": "VALIDATED"}
    assert translation.losses == []


@pytest.mark.parametrize(
    ("response", "status", "content"),
    [
        ({"output": "18C"}, "ok", Text(text="18C")),
        ({"result": "18C"}, "ok", Text(text="18C")),
        ({"error": "gone"}, "error", Text(text="gone")),
        ({}, "ok", None),
    ],
)
def test_results_under_conventional_keys_decode_to_text(response: Any, status: str, content: Any) -> None:
    (tool_result,) = parts(result(response))
    assert isinstance(tool_result, ToolResult)
    assert tool_result.status == status
    texts = [part.text for part in tool_result.content or () if isinstance(part, Text)]
    assert texts == ([] if content is None else [content.text])


@pytest.mark.parametrize("response", [{"a": 1}, {"output": [1]}, {"output": "a", "b": 2}, {"error": None}])
def test_other_result_objects_stay_json(response: Any) -> None:
    (tool_result,) = parts(result(response))
    assert isinstance(tool_result, ToolResult)
    (data,) = tool_result.content or ()
    assert isinstance(data, Data)
    assert json.loads(bytes(data.json)) == response


def test_big_integers_and_key_order_are_preserved() -> None:
    args = '{"b":12345678901234567890123,"a":1.0,"b":2}'
    body = '{"contents":[{"parts":[{"functionCall":{"name":"f","args":%s}}],"role":"model"}]}' % args  # noqa: UP031
    request = CODEC.decode_request(body.encode(), Route())
    (call,) = request.messages[0].parts
    assert isinstance(call, ToolCall)
    assert call.arguments == args
    assert CODEC.encode_request(request, Target()).to_bytes().decode() == body


def test_media_after_a_result_belong_to_it() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "aaaa"}}
    first, second, text = parts(result({"output": "a"}), image, result({"output": "b"}), {"text": "and?"})
    assert isinstance(first, ToolResult)
    assert isinstance(second, ToolResult)
    assert [type(part) for part in first.content or ()] == [Text, Media]
    assert [type(part) for part in second.content or ()] == [Text]
    assert isinstance(text, Text)


def test_losses_in_media_after_a_result_point_to_the_media() -> None:
    history = [
        HELLO,
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {
            "role": "user",
            "parts": [
                result({"output": "a"}),
                {"inlineData": {"mimeType": "image/png", "data": "aaaa"}, "mediaResolution": {"level": "HIGH"}},
            ],
        },
    ]
    losses = tw.translate({"contents": history}, "gemini", "anthropic", model="m").losses
    assert "/contents/2/parts/1/mediaResolution/level" in {loss.path for loss in losses}


def test_thoughts_decode_to_reasoning_and_round_trip() -> None:
    body = {
        "contents": [
            HELLO,
            {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "", "thought": True}]},
        ]
    }
    decoded_parts = decoded(body).messages[1].parts
    assert all(isinstance(part, Reasoning) for part in decoded_parts)
    assert tw.translate(body, "gemini", "gemini").value == body


def test_foreign_reasoning_is_not_sent() -> None:
    thinking = {"type": "thinking", "thinking": "secret plan", "signature": "c2ln"}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "Done."}]},
        {"role": "user", "content": "More"},
    ]
    translation = tw.translate({"model": "m", "max_tokens": 9, "messages": messages}, "anthropic", "gemini")
    assert "secret plan" not in translation.to_bytes().decode()
    assert "/messages/1/content/0" in {loss.path for loss in translation.losses}


def test_a_request_without_origin_is_completed() -> None:
    call = ToolCall(id=None, name="f", arguments="")
    result = ToolResult(call_id=None, name="f", content=(Text(text="ok"),))
    request = Request(
        origin="",
        messages=(
            Message(role="user", parts=(Text(text="Go"),)),
            Message(role="assistant", parts=(call,)),
            Message(role="user", parts=(result,)),
        ),
    )
    body = json.loads(CODEC.encode_request(request, Target()).to_bytes())
    assert body["contents"][1]["parts"][0]["functionCall"] == {"name": "f", "args": {}}
    assert body["contents"][2]["parts"] == [{"functionResponse": {"name": "f", "response": {"output": "ok"}}}]


def test_binary_results_can_be_replaced_by_summaries() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [image]}]},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    encoded = tw.translate(body, "anthropic", "gemini", binary_results="summary").value
    response = encoded["contents"][2]["parts"][0]["functionResponse"]
    assert response["response"] == {"output": "Binary content of type image/png was processed."}
    assert "parts" not in response


def test_hosted_tools_become_functions_or_losses() -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go"}], "tools": tools}
    encoded = tw.translate(body, "anthropic", "gemini", hosted_tools="function").value
    assert encoded["tools"][0]["functionDeclarations"][0]["name"] == "google_web_search"
    hosted_tools: list[Any] = [{"googleSearch": {}, "codeExecution": {}}]
    translation = tw.translate({"contents": [HELLO], "tools": hosted_tools}, "gemini", "openai-chat", model="m")
    assert "tools" not in translation.value
    assert "/tools/0/googleSearch" in {loss.path for loss in translation.losses}
    with pytest.raises(tw.LossyTranslationError, match="/tools/0/googleSearch"):
        tw.translate({"contents": [HELLO], "tools": [{"googleSearch": {}}]}, "gemini", "openai-chat", model="m")


@pytest.mark.parametrize(
    ("model", "field", "expected"),
    [
        ("gemini-2.0-flash", "responseSchema", {"type": "string", "nullable": True}),
        ("gemini-2.5-pro", "responseJsonSchema", {"type": ["string", "null"]}),
    ],
)
def test_output_schemas_use_the_dialect_of_the_model(model: str, field: str, expected: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}
    output = {"format": {"type": "json_schema", "schema": schema}}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "output_config": output}
    translation = tw.translate(body, "anthropic", "gemini", model=model)
    assert translation.value["generationConfig"][field] == {**schema, "properties": {"a": expected}}
    changed = ["/output_config/format/schema/properties/a/type/0", "/output_config/format/schema/properties/a/type/1"]
    assert [loss.path for loss in translation.losses] == (changed if field == "responseSchema" else [])


def test_openapi_types_in_a_json_schema_are_converted() -> None:
    schema = {"type": "OBJECT", "properties": {"score": {"type": "INTEGER"}}, "required": ["score"]}
    config = {"responseMimeType": "application/json", "responseJsonSchema": schema}
    body = {"contents": [HELLO], "generationConfig": config}
    encoded = tw.translate(body, "gemini", "openai-responses", model="m").value
    expected = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
    assert encoded["text"]["format"]["schema"] == expected
    assert tw.translate(body, "gemini", "gemini", model="m").value == body


def test_disabled_thinking_requests_no_thoughts() -> None:
    body = {"model": "m", "input": "Hello", "reasoning": {"effort": "none", "summary": "auto"}}
    translation = tw.translate(body, "openai-responses", "gemini")
    assert translation.value["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 0}
    assert [(loss.kind, loss.path) for loss in translation.losses] == [("dropped", "/reasoning/summary")]


def test_limit_and_tier_are_mapped_to_supported_values() -> None:
    message = {"role": "user", "content": "Hello"}
    body = {"model": "m", "max_tokens": 0, "service_tier": "standard_only", "messages": [message]}
    translation = tw.translate(body, "anthropic", "gemini")
    assert translation.value["generationConfig"] == {"maxOutputTokens": 1}
    assert translation.value["serviceTier"] == "standard"
    losses = {(loss.kind, loss.path) for loss in translation.losses}
    assert losses == {("approximated", "/max_tokens"), ("approximated", "/service_tier")}


@pytest.mark.parametrize("names", [(), ("f",)])
@pytest.mark.parametrize("target", ["gemini-interactions", "anthropic"])
def test_validated_mode_passes_between_googles_protocols(names: tuple[str, ...], target: str) -> None:
    calling = {"mode": "VALIDATED", **({"allowedFunctionNames": list(names)} if names else {})}
    tools = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]
    body = {"contents": [HELLO], "tools": tools, "toolConfig": {"functionCallingConfig": calling}}
    translation = tw.translate(body, "gemini", target)
    path = "/toolConfig/functionCallingConfig/mode"
    assert (path in {loss.path for loss in translation.losses}) is (target == "anthropic")
    if target == "gemini-interactions":
        assert tw.translate(translation.value, target, "gemini").value["toolConfig"] == body["toolConfig"]


@pytest.mark.parametrize("target", ["gemini", "gemini-interactions"])
def test_a_foreign_file_in_a_result_becomes_a_summary(target: str) -> None:
    image = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "shot", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}
    messages = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    translation = tw.translate({"model": "m", "max_tokens": 9, "messages": messages}, "anthropic", target)
    assert "Binary content of type image was processed." in json.dumps(translation.value)
    assert ("dropped", "/messages/2/content/0/content/0") in {(loss.kind, loss.path) for loss in translation.losses}


@pytest.mark.parametrize("data", ["__77774=", "-_-_", "ab-c"])
@pytest.mark.parametrize("location", ["part", "result", "thought"])
def test_url_safe_base64_is_converted_for_other_providers(data: str, location: str) -> None:
    """The SDK writes URL-safe base64, which other providers reject."""
    blob = {"inlineData": {"mimeType": "image/png", "data": data}}
    part = {"part": blob, "result": result({}, parts=[blob]), "thought": blob | {"thought": True}}[location]
    call = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
    role = "model" if location == "thought" else "user"
    body = {"contents": [HELLO, *([call] if location == "result" else []), {"role": role, "parts": [part]}]}
    assert tw.translate(body, "gemini", "gemini").value == body
    if location != "thought":
        standard = data.replace("-", "+").replace("_", "/")
        for target in ("anthropic", "openai-responses", "openai-chat", "ollama", "gemini-interactions"):
            sent = json.dumps(tw.translate(body, "gemini", target, model="m").value)
            assert (standard in sent, data in sent) == (True, False)


@pytest.mark.parametrize("data", ["a-b+", "a-b"])
def test_invalid_base64_is_passed_through(data: str) -> None:
    body = {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]}]}
    assert tw.translate(body, "gemini", "gemini").value == body
    assert data in json.dumps(tw.translate(body, "gemini", "anthropic", model="m").value)


@pytest.mark.parametrize("model", ["#", "a b", "models/../x", "x?key=1"])
def test_a_model_in_the_body_that_fits_no_path_is_refused_with_its_place(model: str) -> None:
    with pytest.raises(tw.DecodeError) as refused:
        decoded({"model": model, "contents": [HELLO]})
    assert refused.value.path == "/model"
    assert decoded({"model": model, "contents": [HELLO]}, model="gemini-3-pro").model == "gemini-3-pro"


def test_at_most_five_stop_sequences_are_sent() -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "stop_sequences": list("abcdef"),
        "messages": [{"role": "user", "content": "q"}],
    }
    translation = tw.translate(body, "anthropic", "gemini")
    assert translation.value["generationConfig"]["stopSequences"] == list("abcde")
    assert [(loss.kind, loss.path) for loss in translation.losses] == [("dropped", "/stop_sequences/5")]
    own = {"contents": [HELLO], "generationConfig": {"stopSequences": list("abcdef")}}
    assert tw.translate(own, "gemini", "gemini").value == own


@pytest.mark.parametrize(
    "url", ["https://www.youtube.com/watch?v=a", "https://youtu.be/a", "https://m.youtube.com/shorts/a"]
)
def test_youtube_url_is_a_video(url: str) -> None:
    (media,) = parts({"fileData": {"fileUri": url}})
    assert (media.kind, media.media_type) == ("video", None)
    body = {"contents": [{"role": "user", "parts": [{"text": "Watch."}, {"fileData": {"fileUri": url}}]}]}
    for target in ("anthropic", "openai-chat", "openai-responses"):
        translation = tw.translate(body, "gemini", target)
        assert url.encode() not in translation.to_bytes()
        assert ("dropped", "/contents/0/parts/1") in [(loss.kind, loss.path) for loss in translation.losses]
    assert tw.translate(body, "gemini", "gemini").value == body


def test_other_url_without_media_type_is_a_document() -> None:
    (media,) = parts({"fileData": {"fileUri": "https://example.com/youtube.com/a"}})
    assert media.kind == "document"


@pytest.mark.parametrize(
    ("target", "member"), [("gemini", "contents"), ("gemini-interactions", "input"), ("anthropic", "messages")]
)
def test_request_of_instructions_only_gets_a_user_turn(target: str, member: str) -> None:
    translation = tw.translate({"model": "m", "instructions": "Greet me."}, "openai-responses", target)
    (turn,) = translation.value[member]
    assert "(nothing)" in json.dumps(turn)
    assert ("added", f"/{member}/0") in [(loss.kind, loss.target) for loss in translation.losses]
