"""Tests of the functions for one tool cycle: format tools, parse calls, format results, continue the request."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.assertions import non_empty
from tests.support.bodies.google import (
    gemini_call,
    gemini_response,
    gemini_result,
    gemini_tool,
    gemini_turn,
    interactions_call,
    interactions_response,
    interactions_result,
    interactions_tool,
)
from tests.support.bodies.minimal import (
    CITY_SCHEMA,
    PNG_BASE64,
    USER_MESSAGE,
    anthropic_call,
    anthropic_request,
    anthropic_response,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
    chat_request,
    chat_result,
    chat_tool,
    request_with_tools,
    response_body,
    responses_call,
    responses_message,
    responses_output,
    responses_request,
    responses_response,
    responses_tool,
    responses_turn,
)
from tests.support.bodies.ollama import ollama_assistant, ollama_call, ollama_response, ollama_result
from tests.support.bodies.readers import declared_schemas, tool_results_in
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
from tests.support.translation import has_loss_at, loss_paths, translated_body

CHAT_TOOLS = [chat_tool("get_weather"), chat_tool("get_time", {"type": "object", "properties": {}})]
PARIS: dict[str, Any] = {"id": "call_1", "name": "get_weather", "arguments": '{"city":"Paris"}'}
ROME: dict[str, Any] = {"id": "call_2", "name": "get_weather", "arguments": '{"city":"Rome"}'}
RESPONSES_WITH_CALLS = {
    protocol: response_body(protocol, "I'll look.", ("call_1", "Paris"), ("call_2", "Rome"))
    for protocol in ALL_PROTOCOLS
}


# format_tools


def test_format_tools_openai_is_a_pass_through() -> None:
    assert toolwire.format_tools(CHAT_TOOLS, CHAT) == CHAT_TOOLS


def test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper() -> None:
    tools = toolwire.format_tools(CHAT_TOOLS, ANTHROPIC)
    assert tools == [
        {"name": "get_weather", "description": "Weather.", "input_schema": CITY_SCHEMA},
        {"name": "get_time", "description": "Weather.", "input_schema": {"type": "object", "properties": {}}},
    ]


def test_format_tools_responses_flattens_the_wrapper() -> None:
    (tool, _) = toolwire.format_tools(CHAT_TOOLS, RESPONSES)
    assert tool == responses_tool("get_weather")


@pytest.mark.parametrize("protocol", [OLLAMA, OPENROUTER])
def test_format_tools_ollama_and_openrouter_is_a_pass_through(protocol: str) -> None:
    assert toolwire.format_tools(CHAT_TOOLS, protocol) == CHAT_TOOLS


def test_format_tools_gemini_declares_functions_with_their_json_schema() -> None:
    (tool,) = toolwire.format_tools(CHAT_TOOLS, GEMINI)
    empty = {"type": "object", "properties": {}}
    assert tool == {"functionDeclarations": [gemini_tool("get_weather"), gemini_tool("get_time", empty)]}
    assert toolwire.format_tools(CHAT_TOOLS, INTERACTIONS)[0] == interactions_tool("get_weather")


# parse_tool_calls


def parse_calls(response: Any, protocol: str) -> list[dict[str, Any]]:
    calls = toolwire.parse_tool_calls(response, protocol)
    return [{key: call[key] for key in ("id", "name", "arguments")} for call in calls]


def decode_arguments(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decode the arguments of calls, after checking that they are JSON text."""
    assert all(isinstance(call["arguments"], str) for call in calls)
    return [{**call, "arguments": json.loads(call["arguments"])} for call in calls]


def test_parse_tool_calls_openai_reads_the_first_choice() -> None:
    assert decode_arguments(parse_calls(RESPONSES_WITH_CALLS[CHAT], CHAT)) == decode_arguments([PARIS, ROME])


def test_parse_tool_calls_openrouter_matches_openai() -> None:
    assert parse_calls(RESPONSES_WITH_CALLS[OPENROUTER], OPENROUTER) == parse_calls(RESPONSES_WITH_CALLS[CHAT], CHAT)


def test_parse_tool_calls_ollama_generates_ids_and_returns_arguments_as_text() -> None:
    calls = parse_calls(ollama_response(ollama_assistant(ollama_call(), ollama_call())), OLLAMA)
    assert len({call["id"] for call in calls} - {None, ""}) == 2
    assert [{**call, "id": None} for call in decode_arguments(calls)] == [
        {**call, "id": None} for call in decode_arguments([PARIS, PARIS])
    ]
    assert decode_arguments(parse_calls(RESPONSES_WITH_CALLS[OLLAMA], OLLAMA)) == decode_arguments(
        [PARIS, ROME]
    )  # newer servers issue ids


def test_parse_tool_calls_gemini_reads_function_call_parts() -> None:
    assert decode_arguments(parse_calls(RESPONSES_WITH_CALLS[GEMINI], GEMINI)) == decode_arguments([PARIS, ROME])
    assert decode_arguments(parse_calls(RESPONSES_WITH_CALLS[INTERACTIONS], INTERACTIONS)) == decode_arguments(
        [PARIS, ROME]
    )
    older = parse_calls(gemini_response({"text": "Hm."}, gemini_call(), gemini_call()), GEMINI)
    assert len({call["id"] for call in older} - {None, ""}) == 2


def test_parse_tool_calls_anthropic_reads_tool_use_blocks_and_returns_arguments_as_text() -> None:
    assert decode_arguments(parse_calls(RESPONSES_WITH_CALLS[ANTHROPIC], ANTHROPIC)) == decode_arguments([PARIS, ROME])


def test_parse_tool_calls_responses_pairs_by_call_id_not_by_item_id() -> None:
    assert decode_arguments(parse_calls(RESPONSES_WITH_CALLS[RESPONSES], RESPONSES)) == decode_arguments([PARIS, ROME])


# format_tool_result


def test_format_tool_result_openai() -> None:
    result = toolwire.format_tool_result("call_1", "get_weather", "18C", CHAT)
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "18C"}


def test_format_tool_result_anthropic() -> None:
    result = toolwire.format_tool_result("call_1", "get_weather", "18C", ANTHROPIC)
    block = {"type": "tool_result", "tool_use_id": "call_1", "content": "18C"}
    assert result == {"role": "user", "content": [block]}


def test_format_tool_result_responses() -> None:
    result = toolwire.format_tool_result("call_1", "get_weather", "18C", RESPONSES)
    assert {key: result[key] for key in ("type", "call_id", "output")} == responses_output("call_1")


def test_format_tool_result_ollama_is_paired_by_name() -> None:
    """Ollama pairs by `tool_name`; an id is sent only if the server issued it."""
    result = {"role": "tool", "tool_name": "add", "content": "23775"}
    assert toolwire.format_tool_result("", "add", "23775", OLLAMA) == result
    (call,) = toolwire.parse_tool_calls(ollama_response(ollama_assistant(ollama_call(name="add"))), OLLAMA)
    assert toolwire.format_tool_result(call["id"], "add", "23775", OLLAMA) == result
    assert toolwire.format_tool_result("call_1", "add", "23775", OLLAMA) == {**result, "tool_call_id": "call_1"}


def test_format_tool_result_openrouter_matches_openai() -> None:
    result = toolwire.format_tool_result("call_1", "get_weather", "18C", OPENROUTER)
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "18C"}


def test_format_tool_result_gemini_comes_from_the_user_with_the_id_of_the_call() -> None:
    result = toolwire.format_tool_result("call_1", "get_weather", "18C", GEMINI)
    assert result == {"role": "user", "parts": [gemini_result("call_1")]}
    assert toolwire.format_tool_result("", "get_weather", "18C", GEMINI) == {"role": "user", "parts": [gemini_result()]}
    assert toolwire.format_tool_result("call_1", "get_weather", "18C", INTERACTIONS) == interactions_result("call_1")


# parse_tool_calls and format_tool_results, as an adapter uses them


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_parse_tool_calls_returns_the_fields_of_the_contract(protocol: str) -> None:
    for call in non_empty(toolwire.parse_tool_calls(RESPONSES_WITH_CALLS[protocol], protocol)):
        assert call.keys() == {"id", "name", "arguments", "shape", "complete"}
        assert (call["shape"], call["complete"]) == ("json", True)
        assert isinstance(json.loads(call["arguments"]), dict)


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_parse_tool_calls_returns_nothing_for_a_text_response(protocol: str) -> None:
    assert toolwire.parse_tool_calls(response_body(protocol, "Sunny."), protocol) == []


OUTPUTS = [{"id": "call_2", "output": "24C"}, {"id": "call_1", "output": "18C"}]
CONTINUATIONS = {
    ANTHROPIC: [{"role": "user", "content": [anthropic_result("call_1"), anthropic_result("call_2", "24C")]}],
    CHAT: [chat_result("call_1"), chat_result("call_2", "24C")],
    RESPONSES: [responses_output("call_1"), responses_output("call_2", "24C")],
    GEMINI: [{"role": "user", "parts": [gemini_result("call_1"), gemini_result("call_2", "24C")]}],
    INTERACTIONS: [interactions_result("call_1"), interactions_result("call_2", "24C")],
    OLLAMA: [ollama_result("call_1"), ollama_result("call_2", "24C")],
    OPENROUTER: [chat_result("call_1"), chat_result("call_2", "24C")],
}


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_format_tool_results_returns_the_continuation(protocol: str) -> None:
    calls = toolwire.parse_tool_calls(RESPONSES_WITH_CALLS[protocol], protocol)
    assert toolwire.format_tool_results(calls, OUTPUTS, protocol) == CONTINUATIONS[protocol]


def as_body(protocol: str, continuation: Any) -> Any:
    return {{RESPONSES: "input", INTERACTIONS: "input", GEMINI: "contents"}.get(protocol, "messages"): continuation}


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
@pytest.mark.parametrize("output", [{"temperature": 25}, [1, 2], 25, True, None, {"n": 10**30}])
def test_outputs_that_are_not_strings_become_json_text(protocol: str, output: Any) -> None:
    messages = toolwire.format_tool_results([PARIS], [{"id": "call_1", "output": output}], protocol)
    ((call_id, text),) = tool_results_in(protocol, as_body(protocol, messages))
    assert call_id == "call_1"
    assert json.loads(text) == output
    single = toolwire.format_tool_result("call_1", "get_weather", output, protocol)
    assert tool_results_in(protocol, as_body(protocol, [single])) == [("call_1", text)]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
@pytest.mark.parametrize("call_id", ["call_xxx", "toolu_abc", "tool-use-12345", "functions.get:0"])
def test_results_carry_the_exact_id_of_their_call(protocol: str, call_id: str) -> None:
    messages = toolwire.format_tool_results([{**PARIS, "id": call_id}], [{"id": call_id, "output": "18C"}], protocol)
    assert tool_results_in(protocol, as_body(protocol, messages)) == [(call_id, "18C")]


FAILED = {"id": "call_1", "name": "get_weather", "response": {"error": "No such city."}}


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_an_error_result_is_marked_as_an_error(protocol: str) -> None:
    failed = [{"id": "call_1", "output": "No such city.", "is_error": True}]
    messages = toolwire.format_tool_results([PARIS], failed, protocol)
    expected = {
        ANTHROPIC: {"role": "user", "content": [anthropic_result("call_1", "No such city.", is_error=True)]},
        CHAT: chat_result("call_1", "[tool error] No such city."),
        RESPONSES: {**responses_output("call_1", "[tool error] No such city."), "status": "incomplete"},
        GEMINI: {"role": "user", "parts": [{"functionResponse": FAILED}]},
        INTERACTIONS: interactions_result("call_1", "No such city.", is_error=True),
        OLLAMA: ollama_result("call_1", "[tool error] No such city."),
        OPENROUTER: chat_result("call_1", "[tool error] No such city."),
    }
    assert messages == [expected[protocol]]
    assert toolwire.format_tool_result("call_1", "get_weather", "No such city.", protocol, is_error=True) == messages[0]


# continue_request: the output of the provider, then the results


def test_continue_request_responses_keeps_all_output_items_with_reasoning() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    output = [
        reasoning,
        responses_message("I'll look."),
        responses_call("call_1", id="fc_1", status="completed"),
    ]
    request = responses_request(USER_MESSAGE, tools=[responses_tool()], store=False)
    outputs = [{"id": "call_1", "output": {"temperature": 25}}]
    following = toolwire.continue_request(request, responses_response(*output), outputs, RESPONSES)
    assert following["input"][:-1] == [USER_MESSAGE, *output]
    last = following["input"][-1]
    assert (last["type"], last["call_id"]) == ("function_call_output", "call_1")
    assert json.loads(last["output"]) == {"temperature": 25}
    assert {key: following[key] for key in ("model", "tools", "store")} == {
        key: request[key] for key in ("model", "tools", "store")
    }


def test_continue_request_responses_turns_a_string_input_into_items() -> None:
    request = {"model": "gpt-5", "input": "Weather in Paris?"}
    response = responses_response(responses_call("call_1", id="fc_1"))
    following = toolwire.continue_request(request, response, [{"id": "call_1", "output": "18C"}], RESPONSES)
    first, *items = following["input"]
    assert (first["role"], "Weather in Paris?" in json.dumps(first["content"])) == ("user", True)
    assert items == [responses_call("call_1", id="fc_1"), responses_output("call_1")]


def test_continue_request_anthropic_keeps_the_blocks_and_answers_in_call_order() -> None:
    content = [
        {"type": "thinking", "thinking": "", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "Emw"},
        {"type": "text", "text": "I'll look."},
        anthropic_call("call_1"),
        anthropic_call("call_2", arguments={"city": "Rome"}),
    ]
    request = anthropic_request(tools=[anthropic_tool()])
    following = toolwire.continue_request(request, anthropic_response(*content), OUTPUTS, ANTHROPIC)
    assert following == {
        **request,
        "messages": [USER_MESSAGE, {"role": "assistant", "content": content}, *CONTINUATIONS[ANTHROPIC]],
    }


def test_continue_request_chat_appends_the_message_and_tool_messages() -> None:
    request = chat_request(tools=[chat_tool()])
    following = toolwire.continue_request(request, RESPONSES_WITH_CALLS[CHAT], OUTPUTS, CHAT)
    message = RESPONSES_WITH_CALLS[CHAT]["choices"][0]["message"]
    assert following == {**request, "messages": [USER_MESSAGE, message, *CONTINUATIONS[CHAT]]}


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_continue_request_does_not_modify_its_arguments(protocol: str) -> None:
    request = request_with_tools(protocol, {"get_weather": None})
    before = json.dumps([request, RESPONSES_WITH_CALLS[protocol]])
    toolwire.continue_request(request, RESPONSES_WITH_CALLS[protocol], OUTPUTS, protocol)
    assert json.dumps([request, RESPONSES_WITH_CALLS[protocol]]) == before


def test_continue_request_gemini_keeps_ids_and_signatures_of_the_model() -> None:
    signed = {**gemini_call("call_1"), "thoughtSignature": "c2lnMQ=="}
    parts = [{"text": "Hm.", "thought": True}, signed, gemini_call("call_2", arguments={"city": "Rome"})]
    request = request_with_tools(GEMINI, {"get_weather": None})
    following = toolwire.continue_request(request, gemini_response(*parts), OUTPUTS, GEMINI)
    assert following == {
        **request,
        "contents": [*request["contents"], {"role": "model", "parts": parts}, *CONTINUATIONS[GEMINI]],
    }


def test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings() -> None:
    """Tools, system text and settings are repeated, whether or not the provider stores the conversation."""
    thought = {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]}
    steps = [thought, interactions_call("call_1"), interactions_call("call_2", arguments={"city": "Rome"})]
    settings = {"system_instruction": "Be brief.", "generation_config": {"temperature": 1}}
    request = request_with_tools(INTERACTIONS, {"get_weather": None}, previous_interaction_id="v1_0", **settings)
    following = toolwire.continue_request(request, interactions_response(*steps), OUTPUTS, INTERACTIONS)
    assert following == {**request, "input": [*request["input"], *steps, *CONTINUATIONS[INTERACTIONS]]}


def test_continue_request_ollama_answers_calls_without_ids_by_name_and_order() -> None:
    message = ollama_assistant(ollama_call(), ollama_call(arguments={"city": "Rome"}), thinking="Hm.")
    response = ollama_response(message)
    calls = toolwire.parse_tool_calls(response, OLLAMA)
    outputs = [{"id": calls[1]["id"], "output": "24C"}, {"id": calls[0]["id"], "output": "18C"}]
    request = request_with_tools(OLLAMA, {"get_weather": None})
    following = toolwire.continue_request(request, response, outputs, OLLAMA)
    results = [ollama_result(), ollama_result(content="24C")]
    assert following == {**request, "messages": [*request["messages"], message, *results]}


# Media, system text and tools that only some protocols support.

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}
IMAGE_RESULTS = {
    ANTHROPIC: anthropic_turn([anthropic_call("call_1")], [anthropic_result("call_1", [IMAGE])]),
    RESPONSES: responses_turn(
        [responses_call("call_1")],
        [responses_output("call_1", [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG_BASE64}"}])],
    ),
}


@pytest.mark.parametrize(
    ("source", "target"),
    [(source, target) for source in (ANTHROPIC, RESPONSES) for target in ALL_PROTOCOLS if target != source],
)
def test_binary_results_can_be_summarized_as_text(source: str, target: str) -> None:
    translated = translated_body(IMAGE_RESULTS[source], source, target, binary_results="summary")
    assert tool_results_in(target, translated) == [("call_1", "Binary content of type image/png was processed.")]
    assert PNG_BASE64 not in json.dumps(translated)


@pytest.mark.parametrize("source", [ANTHROPIC, RESPONSES])
def test_binary_results_stand_beside_the_result_for_older_gemini_models(source: str) -> None:
    """From Gemini 3 on, the image is inside the result."""
    image = {"inlineData": {"mimeType": "image/png", "data": PNG_BASE64}}
    older = translated_body(IMAGE_RESULTS[source], source, GEMINI, model="gemini-2.5-pro")["contents"][-1]["parts"]
    assert older == [{"functionResponse": {"id": "call_1", "name": "get_weather", "response": {}}}, image]
    (newer,) = translated_body(IMAGE_RESULTS[source], source, GEMINI, model="gemini-3-pro")["contents"][-1]["parts"]
    assert newer["functionResponse"]["parts"] == [image]
    turn = gemini_turn([gemini_call("call_1")], [*older[:1], image])
    for target in (ANTHROPIC, RESPONSES, INTERACTIONS, OPENROUTER):
        assert PNG_BASE64 in json.dumps(translated_body(turn, GEMINI, target))


def test_system_text_moves_to_the_system_field_of_each_protocol() -> None:
    body = anthropic_request(system="Be brief.")
    assert translated_body(body, ANTHROPIC, RESPONSES)["instructions"] == "Be brief."
    chat = translated_body(body, ANTHROPIC, CHAT)
    assert chat["messages"][0] == {"role": "system", "content": "Be brief."}
    for request, source in ((chat, CHAT), (responses_request(instructions="Be brief."), RESPONSES)):
        assert translated_body(request, source, ANTHROPIC)["system"] == "Be brief."
    assert translated_body(body, ANTHROPIC, GEMINI)["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert translated_body(body, ANTHROPIC, INTERACTIONS)["system_instruction"] == "Be brief."
    for target in (OLLAMA, OPENROUTER):
        assert translated_body(body, ANTHROPIC, target)["messages"][0] == {"role": "system", "content": "Be brief."}


def test_config_of_the_gemini_sdks_is_decoded_but_never_encoded() -> None:
    """Gemini's SDKs take tools and system text in `config`; on the wire they stand at the top level."""
    wire = request_with_tools(GEMINI, {"get_weather": None}, systemInstruction={"parts": [{"text": "Be brief."}]})
    config = {name: wire[name] for name in ("tools", "systemInstruction")}
    sdk = {"contents": wire["contents"], "config": config}
    for target in ALL_PROTOCOLS:
        if target != GEMINI:
            assert translated_body(sdk, GEMINI, target) == translated_body(wire, GEMINI, target)
            translated = translated_body(translated_body(sdk, GEMINI, target), target, GEMINI)
            assert not {"messages", "input", "config"} & translated.keys()
            assert {name: translated[name] for name in config} == config


def test_parameters_keep_their_names() -> None:
    """Two tools may name the same thing differently."""
    parameters = {"read_file": "absolute_path", "write_file": "file_path"}
    schemas = {
        tool: {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
        for tool, name in parameters.items()
    }
    for source, target in ALL_PAIRS:
        assert declared_schemas(target, translated_body(request_with_tools(source, schemas), source, target)) == schemas


def test_tools_that_are_not_functions_stay_with_responses_and_are_reported_to_chat() -> None:
    """The client runs `local_shell` itself, so Chat gets it as a function; the provider would run the web search."""
    body = responses_request(tools=[{"type": "local_shell"}, {"type": "web_search"}, responses_tool()])
    assert translated_body(body, RESPONSES, RESPONSES) == body
    shell, *others = translated_body(body, RESPONSES, CHAT)["tools"]
    assert (shell["type"], shell["function"]["name"]) == ("function", "local_shell")
    assert others == [{"type": "function", "function": {**chat_tool()["function"], "strict": False}}]
    paths = loss_paths(body, RESPONSES, CHAT)
    assert has_loss_at(paths, "/tools/0")
    assert has_loss_at(paths, "/tools/1")
