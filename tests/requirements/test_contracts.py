"""The function tables of seed 004, the contract of seed 003, the rules of seed 000, and the next request."""

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

STANDARD = [chat_tool("get_weather"), chat_tool("get_time", {"type": "object", "properties": {}})]
PARIS: dict[str, Any] = {"id": "call_1", "name": "get_weather", "arguments": '{"city":"Paris"}'}
ROME: dict[str, Any] = {"id": "call_2", "name": "get_weather", "arguments": '{"city":"Rome"}'}
ANSWERS = {
    protocol: response_body(protocol, "I'll look.", ("call_1", "Paris"), ("call_2", "Rome"))
    for protocol in ALL_PROTOCOLS
}


# The first table: provider_format_tools.


def test_format_tools_openai_is_a_pass_through() -> None:
    assert toolwire.format_tools(STANDARD, CHAT) == STANDARD


def test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper() -> None:
    made = toolwire.format_tools(STANDARD, ANTHROPIC)
    assert made == [
        {"name": "get_weather", "description": "Weather.", "input_schema": CITY_SCHEMA},
        {"name": "get_time", "description": "Weather.", "input_schema": {"type": "object", "properties": {}}},
    ]


def test_format_tools_responses_flattens_the_wrapper() -> None:
    (made, _) = toolwire.format_tools(STANDARD, RESPONSES)
    assert made == responses_tool("get_weather")


@pytest.mark.parametrize("protocol", [OLLAMA, OPENROUTER])
def test_format_tools_ollama_and_openrouter_is_a_pass_through(protocol: str) -> None:
    assert toolwire.format_tools(STANDARD, protocol) == STANDARD


def test_format_tools_gemini_declares_functions_with_their_json_schema() -> None:
    (made,) = toolwire.format_tools(STANDARD, GEMINI)
    empty = {"type": "object", "properties": {}}
    assert made == {"functionDeclarations": [gemini_tool("get_weather"), gemini_tool("get_time", empty)]}
    assert toolwire.format_tools(STANDARD, INTERACTIONS)[0] == interactions_tool("get_weather")


# The second table: provider_parse_tool_calls.


def parsed(response: Any, protocol: str) -> list[dict[str, Any]]:
    found = toolwire.parse_tool_calls(response, protocol)
    return [{key: call[key] for key in ("id", "name", "arguments")} for call in found]


def same(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls with their arguments as what they say, after a look that they are text."""
    assert all(isinstance(call["arguments"], str) for call in found)
    return [{**call, "arguments": json.loads(call["arguments"])} for call in found]


def test_parse_tool_calls_openai_reads_the_first_choice() -> None:
    assert same(parsed(ANSWERS[CHAT], CHAT)) == same([PARIS, ROME])


def test_parse_tool_calls_openrouter_is_as_openai() -> None:
    assert parsed(ANSWERS[OPENROUTER], OPENROUTER) == parsed(ANSWERS[CHAT], CHAT)


def test_parse_tool_calls_ollama_makes_ids_and_gives_arguments_as_text() -> None:
    found = parsed(ollama_response(ollama_assistant(ollama_call(), ollama_call())), OLLAMA)
    assert len({call["id"] for call in found} - {None, ""}) == 2
    assert [{**call, "id": None} for call in same(found)] == [{**call, "id": None} for call in same([PARIS, PARIS])]
    assert same(parsed(ANSWERS[OLLAMA], OLLAMA)) == same([PARIS, ROME])  # a newer server issues its own


def test_parse_tool_calls_gemini_reads_function_call_parts() -> None:
    assert same(parsed(ANSWERS[GEMINI], GEMINI)) == same([PARIS, ROME])
    assert same(parsed(ANSWERS[INTERACTIONS], INTERACTIONS)) == same([PARIS, ROME])
    older = parsed(gemini_response({"text": "Hm."}, gemini_call(), gemini_call()), GEMINI)
    assert len({call["id"] for call in older} - {None, ""}) == 2


def test_parse_tool_calls_anthropic_reads_tool_use_blocks_and_gives_arguments_as_text() -> None:
    assert same(parsed(ANSWERS[ANTHROPIC], ANTHROPIC)) == same([PARIS, ROME])


def test_parse_tool_calls_responses_pairs_by_call_id_not_by_item_id() -> None:
    assert same(parsed(ANSWERS[RESPONSES], RESPONSES)) == same([PARIS, ROME])


# The third table: provider_format_tool_result.


def test_format_tool_result_openai() -> None:
    made = toolwire.format_tool_result("call_1", "get_weather", "18C", CHAT)
    assert made == {"role": "tool", "tool_call_id": "call_1", "content": "18C"}


def test_format_tool_result_anthropic() -> None:
    made = toolwire.format_tool_result("call_1", "get_weather", "18C", ANTHROPIC)
    block = {"type": "tool_result", "tool_use_id": "call_1", "content": "18C"}
    assert made == {"role": "user", "content": [block]}


def test_format_tool_result_responses() -> None:
    made = toolwire.format_tool_result("call_1", "get_weather", "18C", RESPONSES)
    assert {key: made[key] for key in ("type", "call_id", "output")} == responses_output("call_1")


def test_format_tool_result_ollama_goes_by_name() -> None:
    """The seed's form for a call that has no id, or a made one; an id that was issued is said besides."""
    seeds = {"role": "tool", "tool_name": "add", "content": "23775"}
    assert toolwire.format_tool_result("", "add", "23775", OLLAMA) == seeds
    (call,) = toolwire.parse_tool_calls(ollama_response(ollama_assistant(ollama_call(name="add"))), OLLAMA)
    assert toolwire.format_tool_result(call["id"], "add", "23775", OLLAMA) == seeds
    assert toolwire.format_tool_result("call_1", "add", "23775", OLLAMA) == {**seeds, "tool_call_id": "call_1"}


def test_format_tool_result_openrouter_is_as_openai() -> None:
    made = toolwire.format_tool_result("call_1", "get_weather", "18C", OPENROUTER)
    assert made == {"role": "tool", "tool_call_id": "call_1", "content": "18C"}


def test_format_tool_result_gemini_comes_from_the_user_with_the_id_of_the_call() -> None:
    made = toolwire.format_tool_result("call_1", "get_weather", "18C", GEMINI)
    assert made == {"role": "user", "parts": [gemini_result("call_1")]}
    assert toolwire.format_tool_result("", "get_weather", "18C", GEMINI) == {"role": "user", "parts": [gemini_result()]}
    assert toolwire.format_tool_result("call_1", "get_weather", "18C", INTERACTIONS) == interactions_result("call_1")


# The adapter contract: parseModelToolCalls and buildToolResultMessages.


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_parse_model_tool_calls_gives_what_the_contract_asks(protocol: str) -> None:
    for call in non_empty(toolwire.parse_tool_calls(ANSWERS[protocol], protocol)):
        assert call.keys() == {"id", "name", "arguments", "shape", "complete"}
        assert (call["shape"], call["complete"]) == ("json", True)
        assert isinstance(json.loads(call["arguments"]), dict)


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_parse_model_tool_calls_finds_none_in_an_answer_of_text(protocol: str) -> None:
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
def test_build_tool_result_messages_gives_the_continuation(protocol: str) -> None:
    asked = toolwire.parse_tool_calls(ANSWERS[protocol], protocol)
    assert toolwire.format_tool_results(asked, OUTPUTS, protocol) == CONTINUATIONS[protocol]


def as_body(protocol: str, continuation: Any) -> Any:
    return {{RESPONSES: "input", INTERACTIONS: "input", GEMINI: "contents"}.get(protocol, "messages"): continuation}


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
@pytest.mark.parametrize("output", [{"temperature": 25}, [1, 2], 25, True, None, {"n": 10**30}])
def test_outputs_that_are_not_strings_become_json_text(protocol: str, output: Any) -> None:
    made = toolwire.format_tool_results([PARIS], [{"id": "call_1", "output": output}], protocol)
    ((answered, text),) = tool_results_in(protocol, as_body(protocol, made))
    assert answered == "call_1"
    assert json.loads(text) == output
    single = toolwire.format_tool_result("call_1", "get_weather", output, protocol)
    assert tool_results_in(protocol, as_body(protocol, [single])) == [("call_1", text)]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
@pytest.mark.parametrize("call_id", ["call_xxx", "toolu_abc", "tool-use-12345", "functions.get:0"])
def test_the_models_own_id_is_attached_back_exactly(protocol: str, call_id: str) -> None:
    made = toolwire.format_tool_results([{**PARIS, "id": call_id}], [{"id": call_id, "output": "18C"}], protocol)
    assert tool_results_in(protocol, as_body(protocol, made)) == [(call_id, "18C")]


FAILED = {"id": "call_1", "name": "get_weather", "response": {"error": "No such city."}}


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_an_error_is_told(protocol: str) -> None:
    failed = [{"id": "call_1", "output": "No such city.", "is_error": True}]
    made = toolwire.format_tool_results([PARIS], failed, protocol)
    told = {
        ANTHROPIC: {"role": "user", "content": [anthropic_result("call_1", "No such city.", is_error=True)]},
        CHAT: chat_result("call_1", "[tool error] No such city."),
        RESPONSES: {**responses_output("call_1", "[tool error] No such city."), "status": "incomplete"},
        GEMINI: {"role": "user", "parts": [{"functionResponse": FAILED}]},
        INTERACTIONS: interactions_result("call_1", "No such city.", is_error=True),
        OLLAMA: ollama_result("call_1", "[tool error] No such city."),
        OPENROUTER: chat_result("call_1", "[tool error] No such city."),
    }
    assert made == [told[protocol]]
    assert toolwire.format_tool_result("call_1", "get_weather", "No such city.", protocol, is_error=True) == made[0]


# The next request: everything that the provider wants back, then the results.


def test_continue_request_responses_keeps_the_whole_output_with_its_reasoning() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    output = [
        reasoning,
        responses_message("I'll look."),
        responses_call("call_1", id="fc_1", status="completed"),
    ]
    request = responses_request(USER_MESSAGE, tools=[responses_tool()], store=False)
    answered = [{"id": "call_1", "output": {"temperature": 25}}]
    made = toolwire.continue_request(request, responses_response(*output), answered, RESPONSES)
    assert made["input"][:-1] == [USER_MESSAGE, *output]
    last = made["input"][-1]
    assert (last["type"], last["call_id"]) == ("function_call_output", "call_1")
    assert json.loads(last["output"]) == {"temperature": 25}
    assert {key: made[key] for key in ("model", "tools", "store")} == {
        key: request[key] for key in ("model", "tools", "store")
    }


def test_continue_request_responses_turns_a_string_input_into_items() -> None:
    request = {"model": "gpt-5", "input": "Weather in Paris?"}
    answer = responses_response(responses_call("call_1", id="fc_1"))
    made = toolwire.continue_request(request, answer, [{"id": "call_1", "output": "18C"}], RESPONSES)
    first, *rest = made["input"]
    assert (first["role"], "Weather in Paris?" in json.dumps(first["content"])) == ("user", True)
    assert rest == [responses_call("call_1", id="fc_1"), responses_output("call_1")]


def test_continue_request_anthropic_keeps_the_blocks_and_answers_in_call_order() -> None:
    content = [
        {"type": "thinking", "thinking": "", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "Emw"},
        {"type": "text", "text": "I'll look."},
        anthropic_call("call_1"),
        anthropic_call("call_2", arguments={"city": "Rome"}),
    ]
    request = anthropic_request(tools=[anthropic_tool()])
    made = toolwire.continue_request(request, anthropic_response(*content), OUTPUTS, ANTHROPIC)
    assert made == {
        **request,
        "messages": [USER_MESSAGE, {"role": "assistant", "content": content}, *CONTINUATIONS[ANTHROPIC]],
    }


def test_continue_request_chat_appends_the_message_and_tool_messages() -> None:
    request = chat_request(tools=[chat_tool()])
    made = toolwire.continue_request(request, ANSWERS[CHAT], OUTPUTS, CHAT)
    message = ANSWERS[CHAT]["choices"][0]["message"]
    assert made == {**request, "messages": [USER_MESSAGE, message, *CONTINUATIONS[CHAT]]}


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_continue_request_leaves_what_it_was_given_alone(protocol: str) -> None:
    request = request_with_tools(protocol, {"get_weather": None})
    before = json.dumps([request, ANSWERS[protocol]])
    toolwire.continue_request(request, ANSWERS[protocol], OUTPUTS, protocol)
    assert json.dumps([request, ANSWERS[protocol]]) == before


def test_continue_request_gemini_keeps_ids_and_signatures_of_the_model() -> None:
    signed = {**gemini_call("call_1"), "thoughtSignature": "c2lnMQ=="}
    said = [{"text": "Hm.", "thought": True}, signed, gemini_call("call_2", arguments={"city": "Rome"})]
    request = request_with_tools(GEMINI, {"get_weather": None})
    made = toolwire.continue_request(request, gemini_response(*said), OUTPUTS, GEMINI)
    assert made == {
        **request,
        "contents": [*request["contents"], {"role": "model", "parts": said}, *CONTINUATIONS[GEMINI]],
    }


def test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings() -> None:
    """Kept by the provider or not: the current turn's tools, system text and settings are said again."""
    thought = {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]}
    steps = [thought, interactions_call("call_1"), interactions_call("call_2", arguments={"city": "Rome"})]
    settings = {"system_instruction": "Be brief.", "generation_config": {"temperature": 1}}
    request = request_with_tools(INTERACTIONS, {"get_weather": None}, previous_interaction_id="v1_0", **settings)
    made = toolwire.continue_request(request, interactions_response(*steps), OUTPUTS, INTERACTIONS)
    assert made == {**request, "input": [*request["input"], *steps, *CONTINUATIONS[INTERACTIONS]]}


def test_continue_request_ollama_answers_calls_without_ids_by_name_and_order() -> None:
    message = ollama_assistant(ollama_call(), ollama_call(arguments={"city": "Rome"}), thinking="Hm.")
    response = ollama_response(message)
    asked = toolwire.parse_tool_calls(response, OLLAMA)
    outputs = [{"id": asked[1]["id"], "output": "24C"}, {"id": asked[0]["id"], "output": "18C"}]
    request = request_with_tools(OLLAMA, {"get_weather": None})
    made = toolwire.continue_request(request, response, outputs, OLLAMA)
    answers = [ollama_result(), ollama_result(content="24C")]
    assert made == {**request, "messages": [*request["messages"], message, *answers]}


# The rules of seed 000. Where today's wire takes more, the seed's form is an option.

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}
PICTURES = {
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
def test_binary_results_can_be_summed_up_in_text(source: str, target: str) -> None:
    made = translated_body(PICTURES[source], source, target, binary_results="summary")
    assert tool_results_in(target, made) == [("call_1", "Binary content of type image/png was processed.")]
    assert PNG_BASE64 not in json.dumps(made)


@pytest.mark.parametrize("source", [ANTHROPIC, RESPONSES])
def test_binary_results_stand_beside_the_result_for_older_models_of_gemini(source: str) -> None:
    """The form of seed 000; from Gemini 3 on the image is inside the result."""
    image = {"inlineData": {"mimeType": "image/png", "data": PNG_BASE64}}
    older = translated_body(PICTURES[source], source, GEMINI, model="gemini-2.5-pro")["contents"][-1]["parts"]
    assert older == [{"functionResponse": {"id": "call_1", "name": "get_weather", "response": {}}}, image]
    (newer,) = translated_body(PICTURES[source], source, GEMINI, model="gemini-3-pro")["contents"][-1]["parts"]
    assert newer["functionResponse"]["parts"] == [image]
    said = gemini_turn([gemini_call("call_1")], [*older[:1], image])
    for target in (ANTHROPIC, RESPONSES, INTERACTIONS, OPENROUTER):
        assert PNG_BASE64 in json.dumps(translated_body(said, GEMINI, target))


def test_system_text_goes_where_each_protocol_has_it() -> None:
    body = anthropic_request(system="Be brief.")
    assert translated_body(body, ANTHROPIC, RESPONSES)["instructions"] == "Be brief."
    chat = translated_body(body, ANTHROPIC, CHAT)
    assert chat["messages"][0] == {"role": "system", "content": "Be brief."}
    for made, source in ((chat, CHAT), (responses_request(instructions="Be brief."), RESPONSES)):
        assert translated_body(made, source, ANTHROPIC)["system"] == "Be brief."
    assert translated_body(body, ANTHROPIC, GEMINI)["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert translated_body(body, ANTHROPIC, INTERACTIONS)["system_instruction"] == "Be brief."
    for target in (OLLAMA, OPENROUTER):
        assert translated_body(body, ANTHROPIC, target)["messages"][0] == {"role": "system", "content": "Be brief."}


def test_the_config_of_geminis_sdks_is_read_and_only_contents_are_written() -> None:
    """Seed 000 has tools and system text under `config`, an argument of the SDKs; on the wire they stand beside."""
    wire = request_with_tools(GEMINI, {"get_weather": None}, systemInstruction={"parts": [{"text": "Be brief."}]})
    config = {name: wire[name] for name in ("tools", "systemInstruction")}
    sdk = {"contents": wire["contents"], "config": config}
    for target in ALL_PROTOCOLS:
        if target != GEMINI:
            assert translated_body(sdk, GEMINI, target) == translated_body(wire, GEMINI, target)
            made = translated_body(translated_body(sdk, GEMINI, target), target, GEMINI)
            assert not {"messages", "input", "config"} & made.keys()
            assert {name: made[name] for name in config} == config


def test_parameters_keep_their_names() -> None:
    """Seed 000: `read_file` wants `absolute_path`, `write_file` wants `file_path`."""
    named = {"read_file": "absolute_path", "write_file": "file_path"}
    schemas = {
        tool: {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
        for tool, name in named.items()
    }
    for source, target in ALL_PAIRS:
        assert declared_schemas(target, translated_body(request_with_tools(source, schemas), source, target)) == schemas


def test_tools_that_are_not_functions_stay_with_responses_and_are_reported_to_chat() -> None:
    body = responses_request(tools=[{"type": "local_shell"}, {"type": "web_search"}, responses_tool()])
    assert translated_body(body, RESPONSES, RESPONSES) == body
    assert translated_body(body, RESPONSES, CHAT)["tools"] == [
        {"type": "function", "function": {**chat_tool()["function"], "strict": False}}
    ]
    paths = loss_paths(body, RESPONSES, CHAT)
    assert has_loss_at(paths, "/tools/0")
    assert has_loss_at(paths, "/tools/1")
