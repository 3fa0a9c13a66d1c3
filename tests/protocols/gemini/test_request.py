"""What is particular to Gemini's requests: spelling, the SDKs' form, bags of tools, where media of results stand."""

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


def parts(*said: Any) -> tuple[Any, ...]:
    return decoded({"contents": [{"role": "user", "parts": list(said)}]}).messages[0].parts


def result(response: Any, **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": "f", "response": response, **fields}}


def choice(config: Any) -> Any:
    tools = [{"functionDeclarations": [{"name": "f"}]}]
    return decoded({"contents": [HELLO], "tools": tools, "toolConfig": {"functionCallingConfig": config}}).tool_choice


def test_model_and_stream_are_in_the_address() -> None:
    request = decoded({"contents": [HELLO]}, model="gemini-3-pro", stream=True)
    assert (request.model, request.stream) == ("gemini-3-pro", True)
    made = CODEC.encode_request(request, Target())
    assert made.route.path == "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert made.body.keys() == {"contents"}
    chat = {"model": "gemini-3-pro", "messages": [{"role": "user", "content": "Hello"}]}
    route = tw.translate(chat, "openai-chat", "gemini").route
    assert (route.path, route.model) == ("/v1beta/models/gemini-3-pro:generateContent", "gemini-3-pro")


@pytest.mark.parametrize("model", ["models/a", "tunedModels/b", "publishers/google/models/c"])
def test_a_model_with_its_own_path_keeps_it(model: str) -> None:
    made = CODEC.encode_request(decoded({"contents": [HELLO]}, model=model), Target())
    assert made.route.path == f"/v1beta/{model}:generateContent"


def test_snake_case_is_read_as_camel_case() -> None:
    call = {"name": "f", "args": {}, "id": "a"}
    snake = decoded({"contents": [{"role": "model", "parts": [{"function_call": call, "thought_signature": "YQ=="}]}]})
    camel = decoded({"contents": [{"role": "model", "parts": [{"functionCall": call, "thoughtSignature": "YQ=="}]}]})
    (one,), (other,) = snake.messages[0].parts, camel.messages[0].parts
    assert isinstance(one, ToolCall)
    assert isinstance(other, ToolCall)
    assert (one.id, one.name, one.arguments, one.signature) == (other.id, other.name, other.arguments, other.signature)


def test_losses_are_named_as_their_source_spells_them() -> None:
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


def test_a_value_of_the_wrong_type_is_refused_at_its_own_place() -> None:
    with pytest.raises(tw.DecodeError) as caught:
        decoded({"contents": [{"role": "user", "parts": [{"function_call": "f"}]}]})
    assert caught.value.path == "/contents/0/parts/0/function_call"


@pytest.mark.parametrize("contents", ["Hello", ["Hello"], [{"text": "Hello"}], HELLO, [HELLO]])
def test_the_sdks_take_contents_of_many_forms(contents: Any) -> None:
    body = {"model": "m", "contents": contents, "config": {"temperature": 1}}
    request = decoded(body)
    assert request.model == "m"
    (text,) = request.messages[0].parts
    assert isinstance(text, Text)
    assert text.text == "Hello"
    assert tw.translate(body, "gemini", "gemini").value == body


def test_the_config_of_the_sdks_is_the_same_as_the_body() -> None:
    config = {
        "system_instruction": "Be brief.",
        "temperature": 0.5,
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": CITY}]}],
        "thinking_config": {"thinking_level": "LOW"},
    }
    rest = {
        "contents": [HELLO],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": CITY}]}],
        "generationConfig": {"temperature": 0.5, "thinkingConfig": {"thinkingLevel": "LOW"}},
    }
    told = tw.translate({"model": "m", "contents": "Hello", "config": config}, "gemini", "openai-chat").value
    assert told == tw.translate(rest, "gemini", "openai-chat", model="m").value
    losses = tw.translate(
        {"model": "m", "contents": "Hello", "config": {"top_k": 4, "http_options": {}}}, "gemini", "openai-chat"
    ).losses
    assert {loss.path for loss in losses} == {"/config/top_k", "/config/http_options"}


def test_a_bag_of_tools_is_taken_apart_and_put_together() -> None:
    body = {
        "contents": [HELLO],
        "tools": [{"functionDeclarations": [{"name": "f"}], "googleSearch": {}}, {"urlContext": {}}, {}],
    }
    tools = decoded(body).tools
    assert tools is not None
    assert [type(tool) for tool in tools] == [FunctionTool, NativeTool, NativeTool]
    assert [tool.kind for tool in tools if isinstance(tool, NativeTool)] == ["web_search", "web_fetch"]
    assert tw.translate(body, "gemini", "gemini").value == body


@pytest.mark.parametrize("words", [("OBJECT", "STRING"), (6, 1), ("object", "string")])
def test_types_in_capitals_or_numbers_are_json_schema_to_others(words: tuple[Any, Any]) -> None:
    schema = {"type": words[0], "properties": {"type": {"type": words[1], "enum": ["OBJECT"]}}}
    body = {"contents": [HELLO], "tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]}
    told = tw.translate(body, "gemini", "openai-chat", model="m").value["tools"][0]["function"]["parameters"]
    assert told == {"type": "object", "properties": {"type": {"type": "string", "enum": ["OBJECT"]}}}
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
def test_modes(config: Any, mode: Any, names: list[str], required: bool) -> None:
    found = choice(config)
    assert (found.mode, [one.name for one in found.names], found.required) == (mode, names, required)


def test_validated_is_a_loss_to_others_and_what_all_strict_functions_become() -> None:
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
    made = tw.translate(chat, "openai-chat", "gemini")
    assert made.value["toolConfig"]["functionCallingConfig"] == {"mode": "VALIDATED"}
    assert made.losses == []


@pytest.mark.parametrize(
    ("response", "status", "content"),
    [
        ({"output": "18C"}, "ok", Text(text="18C")),
        ({"result": "18C"}, "ok", Text(text="18C")),
        ({"error": "gone"}, "error", Text(text="gone")),
        ({}, "ok", None),
    ],
)
def test_results_by_convention(response: Any, status: str, content: Any) -> None:
    (found,) = parts(result(response))
    assert isinstance(found, ToolResult)
    assert found.status == status
    texts = [part.text for part in found.content or () if isinstance(part, Text)]
    assert texts == ([] if content is None else [content.text])


@pytest.mark.parametrize("response", [{"a": 1}, {"output": [1]}, {"output": "a", "b": 2}, {"error": None}])
def test_other_objects_are_kept_whole(response: Any) -> None:
    (found,) = parts(result(response))
    assert isinstance(found, ToolResult)
    (data,) = found.content or ()
    assert isinstance(data, Data)
    assert json.loads(bytes(data.json)) == response


def test_big_integers_and_order_survive() -> None:
    args = '{"b":12345678901234567890123,"a":1.0,"b":2}'
    body = '{"contents":[{"parts":[{"functionCall":{"name":"f","args":%s}}],"role":"model"}]}' % args  # noqa: UP031
    request = CODEC.decode_request(body.encode(), Route())
    (call,) = request.messages[0].parts
    assert isinstance(call, ToolCall)
    assert call.arguments == args
    assert CODEC.encode_request(request, Target()).to_bytes().decode() == body


def test_media_beside_a_result_are_its_own() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "aaaa"}}
    first, second, text = parts(result({"output": "a"}), image, result({"output": "b"}), {"text": "and?"})
    assert isinstance(first, ToolResult)
    assert isinstance(second, ToolResult)
    assert [type(part) for part in first.content or ()] == [Text, Media]
    assert [type(part) for part in second.content or ()] == [Text]
    assert isinstance(text, Text)


def test_a_loss_in_media_beside_a_result_is_at_the_media() -> None:
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


def test_thoughts_are_reasoning_and_their_flag_comes_home() -> None:
    body = {
        "contents": [
            HELLO,
            {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "", "thought": True}]},
        ]
    }
    found = decoded(body).messages[1].parts
    assert all(isinstance(part, Reasoning) for part in found)
    assert tw.translate(body, "gemini", "gemini").value == body


def test_reasoning_of_others_is_not_sent() -> None:
    thinking = {"type": "thinking", "thinking": "secret plan", "signature": "c2ln"}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "Done."}]},
        {"role": "user", "content": "More"},
    ]
    made = tw.translate({"model": "m", "max_tokens": 9, "messages": messages}, "anthropic", "gemini")
    assert "secret plan" not in made.to_bytes().decode()
    assert "/messages/1/content/0" in {loss.path for loss in made.losses}


def test_an_encoded_message_of_no_protocol_is_completed() -> None:
    call = ToolCall(id=None, name="f", arguments="")
    answer = ToolResult(call_id=None, name="f", content=(Text(text="ok"),))
    request = Request(
        origin="",
        messages=(
            Message(role="user", parts=(Text(text="Go"),)),
            Message(role="assistant", parts=(call,)),
            Message(role="user", parts=(answer,)),
        ),
    )
    body = json.loads(CODEC.encode_request(request, Target()).to_bytes())
    assert body["contents"][1]["parts"][0]["functionCall"] == {"name": "f", "args": {}}
    assert body["contents"][2]["parts"] == [{"functionResponse": {"name": "f", "response": {"output": "ok"}}}]


def test_summaries_in_place_of_binary_results() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [image]}]},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    made = tw.translate(body, "anthropic", "gemini", binary_results="summary").value
    response = made["contents"][2]["parts"][0]["functionResponse"]
    assert response["response"] == {"output": "Binary content of type image/png was processed."}
    assert "parts" not in response


def test_hosted_tools_as_functions() -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go"}], "tools": tools}
    made = tw.translate(body, "anthropic", "gemini", hosted_tools="function").value
    assert made["tools"][0]["functionDeclarations"][0]["name"] == "google_web_search"
    both: list[Any] = [{"googleSearch": {}, "codeExecution": {}}]
    back = tw.translate({"contents": [HELLO], "tools": both}, "gemini", "openai-chat", model="m")
    assert "tools" not in back.value
    assert "/tools/0/googleSearch" in {loss.path for loss in back.losses}
    with pytest.raises(tw.LossyTranslationError, match="/tools/0/googleSearch"):
        tw.translate({"contents": [HELLO], "tools": [{"googleSearch": {}}]}, "gemini", "openai-chat", model="m")


@pytest.mark.parametrize(
    ("model", "field", "told"),
    [
        ("gemini-2.0-flash", "responseSchema", {"type": "string", "nullable": True}),
        ("gemini-2.5-pro", "responseJsonSchema", {"type": ["string", "null"]}),
    ],
)
def test_a_format_is_told_in_the_schemas_of_the_model(model: str, field: str, told: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}
    output = {"format": {"type": "json_schema", "schema": schema}}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "output_config": output}
    made = tw.translate(body, "anthropic", "gemini", model=model)
    assert made.value["generationConfig"][field] == {**schema, "properties": {"a": told}}
    changed = ["/output_config/format/schema/properties/a/type/0", "/output_config/format/schema/properties/a/type/1"]
    assert [loss.path for loss in made.losses] == (changed if field == "responseSchema" else [])


def test_older_types_in_a_json_schema_are_read_as_gemini_reads_them() -> None:
    schema = {"type": "OBJECT", "properties": {"score": {"type": "INTEGER"}}, "required": ["score"]}
    config = {"responseMimeType": "application/json", "responseJsonSchema": schema}
    body = {"contents": [HELLO], "generationConfig": config}
    made = tw.translate(body, "gemini", "openai-responses", model="m").value
    told = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
    assert made["text"]["format"]["schema"] == told
    assert tw.translate(body, "gemini", "gemini", model="m").value == body


def test_where_there_is_no_thinking_no_thoughts_are_asked_for() -> None:
    body = {"model": "m", "input": "Hello", "reasoning": {"effort": "none", "summary": "auto"}}
    made = tw.translate(body, "openai-responses", "gemini")
    assert made.value["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 0}
    assert [(loss.kind, loss.path) for loss in made.losses] == [("dropped", "/reasoning/summary")]


def test_the_limit_and_the_tier_are_ones_that_the_target_has() -> None:
    said = {"role": "user", "content": "Hello"}
    body = {"model": "m", "max_tokens": 0, "service_tier": "standard_only", "messages": [said]}
    made = tw.translate(body, "anthropic", "gemini")
    assert made.value["generationConfig"] == {"maxOutputTokens": 1}
    assert made.value["serviceTier"] == "standard"
    told = {(loss.kind, loss.path) for loss in made.losses}
    assert told == {("approximated", "/max_tokens"), ("approximated", "/service_tier")}


@pytest.mark.parametrize("names", [(), ("f",)])
@pytest.mark.parametrize("target", ["gemini-interactions", "anthropic"])
def test_that_calls_are_held_to_their_schemas_is_a_mode_of_both_of_googles(names: tuple[str, ...], target: str) -> None:
    calling = {"mode": "VALIDATED", **({"allowedFunctionNames": list(names)} if names else {})}
    tools = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]
    body = {"contents": [HELLO], "tools": tools, "toolConfig": {"functionCallingConfig": calling}}
    made = tw.translate(body, "gemini", target)
    place = "/toolConfig/functionCallingConfig/mode"
    assert (place in {loss.path for loss in made.losses}) is (target == "anthropic")
    if target == "gemini-interactions":
        assert tw.translate(made.value, target, "gemini").value["toolConfig"] == body["toolConfig"]


@pytest.mark.parametrize("target", ["gemini", "gemini-interactions"])
def test_a_file_of_another_provider_in_a_result_is_a_line(target: str) -> None:
    image = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "shot", "input": {}}
    found = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}
    messages = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [found]},
    ]
    made = tw.translate({"model": "m", "max_tokens": 9, "messages": messages}, "anthropic", target)
    assert "Binary content of type image was processed." in json.dumps(made.value)
    assert ("dropped", "/messages/2/content/0/content/0") in {(loss.kind, loss.path) for loss in made.losses}


@pytest.mark.parametrize("data", ["__77774=", "-_-_", "ab-c"])
@pytest.mark.parametrize("where", ["part", "result", "thought"])
def test_bytes_as_googles_sdk_for_python_writes_them_are_read_by_others(data: str, where: str) -> None:
    """It has the alphabet of base64 that is for addresses; the others' APIs refuse it."""
    blob = {"inlineData": {"mimeType": "image/png", "data": data}}
    said = {"part": blob, "result": result({}, parts=[blob]), "thought": blob | {"thought": True}}[where]
    called = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
    role = "model" if where == "thought" else "user"
    body = {"contents": [HELLO, *([called] if where == "result" else []), {"role": role, "parts": [said]}]}
    assert tw.translate(body, "gemini", "gemini").value == body
    if where != "thought":
        usual = data.replace("-", "+").replace("_", "/")
        for target in ("anthropic", "openai-responses", "openai-chat", "ollama", "gemini-interactions"):
            sent = json.dumps(tw.translate(body, "gemini", target, model="m").value)
            assert (usual in sent, data in sent) == (True, False)


@pytest.mark.parametrize("data", ["a-b+", "a-b"])
def test_what_is_no_base64_stays_as_it_is(data: str) -> None:
    body = {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]}]}
    assert tw.translate(body, "gemini", "gemini").value == body
    assert data in json.dumps(tw.translate(body, "gemini", "anthropic", model="m").value)
