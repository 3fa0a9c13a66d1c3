"""The function tables of seed 004, the contract of seed 003, the rules of seed 000, and the next request."""

import json
from typing import Any

import pytest

import toolwire
from tests.bodies import (
    GO,
    PNG,
    SCHEMA,
    anthropic_call,
    anthropic_request,
    anthropic_response,
    anthropic_result,
    anthropic_tool,
    anthropic_turn,
    chat_assistant,
    chat_call,
    chat_request,
    chat_response,
    chat_result,
    chat_tool,
    responses_call,
    responses_message,
    responses_output,
    responses_request,
    responses_response,
    responses_tool,
    responses_turn,
)
from tests.wire import ANTHROPIC, CHAT, PROTOCOLS, RESPONSES, lost, named, results, translated

STANDARD = [chat_tool("get_weather"), chat_tool("get_time", {"type": "object", "properties": {}})]
PARIS: dict[str, Any] = {"id": "call_1", "name": "get_weather", "arguments": '{"city":"Paris"}'}
ROME: dict[str, Any] = {"id": "call_2", "name": "get_weather", "arguments": '{"city":"Rome"}'}
ANSWERS = {
    ANTHROPIC: anthropic_response(
        {"type": "text", "text": "I'll look."},
        anthropic_call("call_1"),
        anthropic_call("call_2", arguments={"city": "Rome"}),
    ),
    CHAT: chat_response(chat_assistant(chat_call("call_1"), chat_call("call_2", arguments=ROME["arguments"]))),
    RESPONSES: responses_response(
        responses_message("I'll look."),
        responses_call("call_1", id="fc_1"),
        responses_call("call_2", arguments=ROME["arguments"], id="fc_2"),
    ),
}


# The first table: provider_format_tools.


def test_format_tools_openai_is_a_pass_through() -> None:
    assert toolwire.format_tools(STANDARD, CHAT) == STANDARD


def test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper() -> None:
    made = toolwire.format_tools(STANDARD, ANTHROPIC)
    assert made == [
        {"name": "get_weather", "description": "Weather.", "input_schema": SCHEMA},
        {"name": "get_time", "description": "Weather.", "input_schema": {"type": "object", "properties": {}}},
    ]


def test_format_tools_responses_flattens_the_wrapper() -> None:
    (made, _) = toolwire.format_tools(STANDARD, RESPONSES)
    assert made == responses_tool("get_weather")


# The second table: provider_parse_tool_calls.


def parsed(response: Any, protocol: str) -> list[dict[str, Any]]:
    found = toolwire.parse_tool_calls(response, protocol)
    return [{key: call[key] for key in ("id", "name", "arguments")} for call in found]


def test_parse_tool_calls_openai_reads_the_first_choice() -> None:
    assert parsed(ANSWERS[CHAT], CHAT) == [PARIS, ROME]


def test_parse_tool_calls_anthropic_reads_tool_use_blocks_and_gives_arguments_as_text() -> None:
    found = parsed(ANSWERS[ANTHROPIC], ANTHROPIC)
    assert all(isinstance(call["arguments"], str) for call in found)
    assert [{**call, "arguments": json.loads(call["arguments"])} for call in found] == [
        {**call, "arguments": json.loads(call["arguments"])} for call in (PARIS, ROME)
    ]


def test_parse_tool_calls_responses_pairs_by_call_id_not_by_item_id() -> None:
    assert parsed(ANSWERS[RESPONSES], RESPONSES) == [PARIS, ROME]


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


# The adapter contract: parseModelToolCalls and buildToolResultMessages.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_parse_model_tool_calls_gives_what_the_contract_asks(protocol: str) -> None:
    for call in toolwire.parse_tool_calls(ANSWERS[protocol], protocol):
        assert call.keys() == {"id", "name", "arguments", "shape", "complete"}
        assert (call["shape"], call["complete"]) == ("json", True)
        assert isinstance(json.loads(call["arguments"]), dict)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_parse_model_tool_calls_finds_none_in_an_answer_of_text(protocol: str) -> None:
    said = {
        ANTHROPIC: anthropic_response({"type": "text", "text": "Sunny."}, stop_reason="end_turn"),
        CHAT: chat_response({"role": "assistant", "content": "Sunny."}, "stop"),
        RESPONSES: responses_response(responses_message("Sunny.")),
    }
    assert toolwire.parse_tool_calls(said[protocol], protocol) == []


OUTPUTS = [{"id": "call_2", "output": "24C"}, {"id": "call_1", "output": "18C"}]
CONTINUATIONS = {
    ANTHROPIC: [{"role": "user", "content": [anthropic_result("call_1"), anthropic_result("call_2", "24C")]}],
    CHAT: [chat_result("call_1"), chat_result("call_2", "24C")],
    RESPONSES: [responses_output("call_1"), responses_output("call_2", "24C")],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_build_tool_result_messages_gives_the_continuation(protocol: str) -> None:
    asked = toolwire.parse_tool_calls(ANSWERS[protocol], protocol)
    assert toolwire.format_tool_results(asked, OUTPUTS, protocol) == CONTINUATIONS[protocol]


def as_body(protocol: str, continuation: Any) -> Any:
    return continuation if protocol == RESPONSES else {"messages": continuation}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("output", [{"temperature": 25}, [1, 2], 25, True, None, {"n": 10**30}])
def test_outputs_that_are_not_strings_become_json_text(protocol: str, output: Any) -> None:
    made = toolwire.format_tool_results([PARIS], [{"id": "call_1", "output": output}], protocol)
    ((answered, text),) = results(protocol, as_body(protocol, made))
    assert answered == "call_1"
    assert json.loads(text) == output
    single = toolwire.format_tool_result("call_1", "get_weather", output, protocol)
    assert results(protocol, as_body(protocol, [single])) == [("call_1", text)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("call_id", ["call_xxx", "toolu_abc", "tool-use-12345", "functions.get:0"])
def test_the_models_own_id_is_attached_back_exactly(protocol: str, call_id: str) -> None:
    made = toolwire.format_tool_results([{**PARIS, "id": call_id}], [{"id": call_id, "output": "18C"}], protocol)
    assert results(protocol, as_body(protocol, made)) == [(call_id, "18C")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_error_is_told(protocol: str) -> None:
    failed = [{"id": "call_1", "output": "No such city.", "is_error": True}]
    made = toolwire.format_tool_results([PARIS], failed, protocol)
    ((_, text),) = results(protocol, as_body(protocol, made))
    assert "No such city." in text
    if protocol == ANTHROPIC:
        assert made == [{"role": "user", "content": [anthropic_result("call_1", "No such city.", is_error=True)]}]
    else:
        assert text != "No such city."


# The next request: everything that the provider wants back, then the results.


def test_continue_request_responses_keeps_the_whole_output_with_its_reasoning() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    output = [
        reasoning,
        responses_message("I'll look."),
        responses_call("call_1", id="fc_1", status="completed"),
    ]
    request = responses_request(GO, tools=[responses_tool()], store=False)
    answered = [{"id": "call_1", "output": {"temperature": 25}}]
    made = toolwire.continue_request(request, responses_response(*output), answered, RESPONSES)
    assert made["input"][:-1] == [GO, *output]
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
        "messages": [GO, {"role": "assistant", "content": content}, *CONTINUATIONS[ANTHROPIC]],
    }


def test_continue_request_chat_appends_the_message_and_tool_messages() -> None:
    request = chat_request(tools=[chat_tool()])
    made = toolwire.continue_request(request, ANSWERS[CHAT], OUTPUTS, CHAT)
    message = ANSWERS[CHAT]["choices"][0]["message"]
    assert made == {**request, "messages": [GO, message, *CONTINUATIONS[CHAT]]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_continue_request_leaves_what_it_was_given_alone(protocol: str) -> None:
    requests = {ANTHROPIC: anthropic_request(), CHAT: chat_request(), RESPONSES: responses_request()}
    before = json.dumps([requests[protocol], ANSWERS[protocol]])
    toolwire.continue_request(requests[protocol], ANSWERS[protocol], OUTPUTS, protocol)
    assert json.dumps([requests[protocol], ANSWERS[protocol]]) == before


# The rules of seed 000. Where today's wire takes more, the seed's form is an option.

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
PICTURES = {
    ANTHROPIC: anthropic_turn([anthropic_call("call_1")], [anthropic_result("call_1", [IMAGE])]),
    RESPONSES: responses_turn(
        [responses_call("call_1")],
        [responses_output("call_1", [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}])],
    ),
}


@pytest.mark.parametrize(
    ("source", "target"),
    [(ANTHROPIC, CHAT), (ANTHROPIC, RESPONSES), (RESPONSES, ANTHROPIC), (RESPONSES, CHAT)],
)
def test_binary_results_can_be_summed_up_in_text(source: str, target: str) -> None:
    made = translated(PICTURES[source], source, target, binary_results="summary")
    assert results(target, made) == [("call_1", "Binary content of type image/png was processed.")]
    assert PNG not in json.dumps(made)


def test_system_text_goes_where_each_protocol_has_it() -> None:
    body = anthropic_request(system="Be brief.")
    assert translated(body, ANTHROPIC, RESPONSES)["instructions"] == "Be brief."
    chat = translated(body, ANTHROPIC, CHAT)
    assert chat["messages"][0] == {"role": "system", "content": "Be brief."}
    for made, source in ((chat, CHAT), (responses_request(instructions="Be brief."), RESPONSES)):
        assert translated(made, source, ANTHROPIC)["system"] == "Be brief."


def test_tools_that_are_not_functions_stay_with_responses_and_are_reported_to_chat() -> None:
    body = responses_request(tools=[{"type": "local_shell"}, {"type": "web_search"}, responses_tool()])
    assert translated(body, RESPONSES, RESPONSES) == body
    assert translated(body, RESPONSES, CHAT)["tools"] == [
        {"type": "function", "function": {**chat_tool()["function"], "strict": False}}
    ]
    paths = lost(body, RESPONSES, CHAT)
    assert named(paths, "/tools/0")
    assert named(paths, "/tools/1")
