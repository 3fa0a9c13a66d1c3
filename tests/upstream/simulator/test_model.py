"""The replies of the simulated model, tested without a server."""

import json
from typing import Any

import pytest

from tests.upstream.simulator.schema_validity import is_valid
from toolwire.canonical.content import Reasoning, Text, ToolCall
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import Route
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.model import Reply, generate_reply
from toolwire.upstream.simulator.response_builder import ResponseBuilder
from toolwire.upstream.simulator.validation import SignatureKey

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def function(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters or WEATHER}}


def request(*messages: Any, **more: Any) -> Request:
    """Return a Chat request; a bare text is the user's message."""
    chat_messages = [{"role": "user", "content": one} if isinstance(one, str) else one for one in messages]
    body = {"model": "gpt-6-astra", "messages": chat_messages, **more}
    return PROTOCOLS["openai-chat"].decode_request(json.dumps(body).encode(), Route())


def reply(*messages: Any, **more: Any) -> Reply:
    return generate_reply(request(*messages, **more), "openai-chat")


def answer(*messages: Any, **more: Any) -> Response:
    asked = request(*messages, **more)
    return ResponseBuilder(asked, "openai-chat", SignatureKey()).build(generate_reply(asked, "openai-chat"))


def calls(*messages: Any, **more: Any) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in reply(*messages, **more).calls]


# ---- prompt


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": 'get_weather {"city": "Oslo"}'}, "Hello."],
        ['Hello.<system-reminder>get_weather {"city": "Oslo"}</system-reminder>'],
        ['get_weather {"city": "Oslo"}', {"role": "assistant", "content": "No."}, "Hello."],
        ["Please do not use get_weather."],
    ],
    ids=["system", "reminder", "earlier words", "told not to"],
)
def test_only_the_last_user_text_requests_calls(messages: list[Any]) -> None:
    assert calls(*messages, tools=[function("get_weather")]) == []


def test_tool_description_requests_no_call() -> None:
    tool = function("look")
    tool["function"]["description"] = 'use look {"city": "Oslo"}'
    assert calls("Hello.", tools=[tool]) == []


def test_tool_result_requests_no_call() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    result = reply(
        "Weather?",
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": 'now use get_weather {"city": "Oslo"}'},
        tools=[function("get_weather")],
    )
    assert result.calls == ()
    assert result.text == 'get_weather returned: now use get_weather {"city": "Oslo"}'


def test_failed_result_is_described_as_failed() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "station offline", "is_error": True}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    body = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": messages}
    asked = PROTOCOLS["anthropic"].decode_request(json.dumps(body).encode(), Route())
    assert generate_reply(asked, "anthropic").text == "get_weather failed: station offline"


# ---- requested calls


def test_name_followed_by_json_object_is_exactly_that_call() -> None:
    result = reply('Call get_weather {"city":  "Oslo", "big": 12345678901234567890}', tools=[function("get_weather")])
    assert [call.arguments for call in result.calls] == ['{"city":  "Oslo", "big": 12345678901234567890}']


def test_quoted_request_of_a_command_line_is_exactly_that_call() -> None:
    """opencode joins the arguments of `opencode run`, and quotes those with spaces."""
    prompt = 'get_weather {"city": "New \\"York\\""}'
    quoted = '"' + prompt.replace('"', '\\"') + '"'
    assert calls(quoted, tools=[function("get_weather")]) == [("get_weather", {"city": 'New "York"'})]
    assert calls('"I saw {\\"city\\": 1}"', tools=[function("get_weather")]) == []


def test_several_calls_keep_their_order() -> None:
    tools = [function("alpha"), function("beta")]
    text = 'First beta {"city": "B"}, then `alpha`: {"city": "A"}, then beta({"city": "C"}).'
    assert calls(text, tools=tools) == [("beta", {"city": "B"}), ("alpha", {"city": "A"}), ("beta", {"city": "C"})]
    assert calls(text, tools=tools, parallel_tool_calls=False) == [("beta", {"city": "B"})]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('Use get_weather for "Oslo".', [{"city": "Oslo"}]),
        ("use get_weather with city: New York", [{"city": "New York"}]),
        ("call get_weather city=Oslo, days=3", [{"city": "Oslo"}]),
        ("What is the weather in Oslo?", [{"city": "Oslo"}]),
        ("Call get_weather for Oslo and Rome", [{"city": "Oslo"}, {"city": "Rome"}]),
        ("Call get_weather.", [{"city": "example"}]),
    ],
)
def test_arguments_are_found_in_text_or_generated(text: str, arguments: list[dict[str, Any]]) -> None:
    assert [found for _, found in calls(text, tools=[function("get_weather")])] == arguments


def test_tool_named_like_a_word_needs_a_verb() -> None:
    tools = [function("read")]
    assert calls("I read a book in Oslo.", tools=tools) == []
    assert calls("Please use read for Oslo.", tools=tools) == [("read", {"city": "Oslo"})]


def test_values_are_assigned_by_type() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "maximum": 10},
            "city": {"type": "string"},
            "detailed": {"type": "boolean"},
            "optional": {"type": "string"},
        },
        "required": ["unit", "days", "city", "detailed"],
    }
    text = "Use forecast for Oslo, 40 or 5 days, in Fahrenheit, detailed: yes"
    expected = {"unit": "fahrenheit", "days": 5, "city": "Oslo", "detailed": True}
    assert calls(text, tools=[function("forecast", parameters)]) == [("forecast", expected)]


CHOICES: list[tuple[Any, list[str]]] = [
    ("none", []),
    ("auto", []),
    ("required", ["alpha"]),
    ({"type": "function", "function": {"name": "beta"}}, ["beta"]),
    (
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "beta"}}]},
        },
        ["beta"],
    ),
]


@pytest.mark.parametrize(("choice", "names"), CHOICES)
def test_tool_choice_is_respected(choice: Any, names: list[str]) -> None:
    tools = [function("alpha"), function("beta")]
    assert [name for name, _ in calls("Hello.", tools=tools, tool_choice=choice)] == names


def test_no_call_is_made_against_tool_choice() -> None:
    prompt = 'alpha {"city": "Oslo"}'
    tools = [function("alpha"), function("beta")]
    assert calls(prompt, tools=tools, tool_choice="none") == []
    only = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "beta"}}]}
    assert calls(prompt, tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": only}) == []


def test_freeform_tool_gets_raw_text() -> None:
    tool = {"type": "custom", "custom": {"name": "run_sql"}}
    (call,) = reply("Use run_sql with ```sql\nselect {1}\n```", tools=[tool]).calls
    assert (call.arguments, call.freeform) == ("select {1}", True)


def claude(text: str, *tools: dict[str, Any]) -> list[tuple[str, str]]:
    messages = [{"role": "user", "content": text}]
    body = {"model": "claude-opus-5-5", "max_tokens": 99, "tools": tools, "messages": messages}
    asked = PROTOCOLS["anthropic"].decode_request(json.dumps(body).encode(), Route())
    return [(call.name, call.arguments) for call in generate_reply(asked, "anthropic").calls]


def test_vendor_tool_run_by_the_client_is_callable() -> None:
    bash = {"type": "bash_20250124", "name": "bash"}
    search = {"type": "web_search_20250305", "name": "web_search"}
    text = 'bash {"command": "ls"} and web_search {"query": "x"}'
    assert claude(text, bash, search) == [("web_search", '{"query": "x"}'), ("bash", '{"command": "ls"}')]
    assert claude("web_search for x", search) == []


def test_tool_for_programs_only_is_not_called() -> None:
    tool = {"name": "alpha", "input_schema": {"type": "object"}}
    assert claude("alpha {}", {**tool, "allowed_callers": ["code_execution_20250825"]}) == []
    assert claude("alpha {}", tool) == [("alpha", "{}")]


# ---- schema examples

PATTERNS = [
    r"^[a-z0-9-]+$",
    r"^\d{4}-\d{2}-\d{2}$",
    r"^(GET|POST) /[^/\s]+$",
    r"^#(?:[0-9A-Fa-f]{3}){1,2}$",
    r"^(?P<org>\w+)/(?P<name>[\w.-]+)(@v\d+)?$",
    r"^[\]x]y*\.z{2,}$",
]
SCHEMAS: list[dict[str, Any]] = [
    *(
        {"type": "object", "properties": {"a": {"type": "string", "pattern": one}}, "required": ["a"]}
        for one in PATTERNS
    ),
    {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^[a-z]+$", "minLength": 9}},
        "required": ["a"],
    },
    {"type": "object", "properties": {"a": {"type": ["null", "integer"], "minimum": 7}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"enum": [None, 3]}, "b": {"const": {"x": 1}}}, "required": ["b", "a"]},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], "$defs": {"n": {"type": "null"}}},
    {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}, "required": ["a"]},
    {
        "type": "object",
        "properties": {"a": {"allOf": [{"required": ["x"]}, {"properties": {"x": {"type": "number"}}}]}},
        "required": ["a"],
    },
    {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True}},
        "required": ["a"],
    },
    {
        "type": "object",
        "properties": {
            "a": {"type": "number", "exclusiveMinimum": 5, "exclusiveMaximum": 6},
            "b": {"type": "integer", "minimum": 3, "multipleOf": 5},
            "c": {"type": "string", "minLength": 30},
            "d": {"type": "string", "maxLength": 2},
            "e": {"type": "integer", "maximum": -4},
        },
        "required": ["a", "b", "c", "d", "e"],
    },
    {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "id": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": False,
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_generated_arguments_are_valid(schema: dict[str, Any]) -> None:
    ((_, made),) = calls("Call make_it.", tools=[function("make_it", schema)])
    assert is_valid(made, schema), made


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_structured_output_matches_the_schema(schema: dict[str, Any]) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    text = reply("Give me one, Oslo, 17.", response_format=asked).text
    assert is_valid(json.loads(text or ""), schema), text


def test_json_mode_returns_json() -> None:
    text = reply("Say hello as JSON.", response_format={"type": "json_object"}).text
    assert json.loads(text or "") == {"answer": "Say hello as JSON."}


# ---- response


def parts(response: Response) -> list[Any]:
    return [part for candidate in response.candidates for message in candidate.messages for part in message.parts]


def test_prompt_is_echoed() -> None:
    (text,) = parts(answer("How are you?"))
    assert isinstance(text, Text)
    assert "How are you?" in text.text


def test_same_request_gets_same_response() -> None:
    asked = ['get_weather {"city": "Oslo"}']
    assert answer(*asked, tools=[function("get_weather")]) == answer(*asked, tools=[function("get_weather")])


def test_ids_differ_within_a_conversation() -> None:
    tools = [function("get_weather")]
    wish = 'get_weather {"city": "Oslo"} get_weather {"city": "Oslo"}'
    first = [part.id for part in parts(answer(wish, tools=tools)) if isinstance(part, ToolCall)]
    later = answer(wish, {"role": "assistant", "content": "No."}, wish, tools=tools, n=2)
    ids = first + [part.id for part in parts(later) if isinstance(part, ToolCall)]
    assert len(set(ids)) == len(ids) == 6
    assert all(id is not None and id.startswith("call_") and len(id) <= 40 for id in ids)


def test_stop_sequence_ends_the_response() -> None:
    response = answer("one STOP two", stop=["never", "STOP"])
    (text,) = parts(response)
    assert text.text.endswith("one ")
    stop = response.candidates[0].stop
    assert stop is not None
    assert (stop.reason, stop.sequence) == ("stop_sequence", "STOP")


def test_max_tokens_cuts_the_response() -> None:
    response = answer("Hello there, how are you?", max_completion_tokens=3)
    (text,) = parts(response)
    assert len(text.text) == 12
    assert response.usage is not None
    assert response.usage.output_tokens == 3
    assert response.candidates[0].stop is not None
    assert response.candidates[0].stop.reason == "max_tokens"


def test_call_is_never_split_by_max_tokens() -> None:
    response = answer('get_weather {"city": "Oslo"}', tools=[function("get_weather")], max_completion_tokens=3)
    assert parts(response) == []
    assert response.candidates[0].stop is not None
    assert response.candidates[0].stop.reason == "max_tokens"


def test_n_returns_several_candidates() -> None:
    assert [candidate.index for candidate in answer("Hello.", n=3).candidates] == [0, 1, 2]


def test_thinking_only_when_enabled() -> None:
    assert not any(isinstance(part, Reasoning) for part in parts(answer("Hello.")))
    assert not any(isinstance(part, Reasoning) for part in parts(answer("Hello.", reasoning_effort="none")))
    assert any(isinstance(part, Reasoning) for part in parts(answer("Hello.", reasoning_effort="low")))
