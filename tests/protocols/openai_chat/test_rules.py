"""Every rule of the Chat Completions API, with a body that breaks only this rule and the server's error message."""

import inspect
import re
from typing import Any

import pytest

from toolwire.codec.validation import Finding
from toolwire.protocols.openai_chat import fields, rules
from toolwire.protocols.vendors import openai

USER = {"role": "user", "content": "Weather in Paris?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
OTHER_CALL = {**CALL, "id": "call_2"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "18C"}
OTHER_RESULT = {**RESULT, "tool_call_id": "call_2"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CLOSED = {**SCHEMA, "additionalProperties": False}
AUDIO = {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "mp3"}}
IMAGE = {"type": "image_url", "image_url": {"url": "https://a/b.png"}}


def function(**changes: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA, **changes}}


def body(*messages: Any, **changes: Any) -> dict[str, Any]:
    base = {"model": "a-model", "messages": [*(messages or (USER,))], "tools": [function()]}
    return {name: value for name, value in {**base, **changes}.items() if value is not ...}


def assistant(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, **({"tool_calls": [*calls]} if calls else {}), **fields}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*parts]}


def output(**changes: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": CLOSED, **changes}}


def unanswered(ids: str) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {ids}"
    )


ORPHAN = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
NO_TOOLS = "Invalid value for '{0}': '{0}' is only allowed when 'tools' are specified."
LONG = (
    "Invalid '{}': string too long. Expected a string with maximum length {}, but got a string with length {} instead."
)
MANY = (
    "Invalid '{}': array too long. Expected an array with maximum length {}, but got an array with length {} instead."
)
PATTERN = "Invalid '{}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
NOT_A_BLOCK = "Invalid 'messages[{}]'. Content blocks are expected to be either text or image_url type."
UNSUPPORTED = "Unsupported parameter: '{}' is not supported with this model."

# fmt: off
BAD: list[tuple[Any, str, str, str]] = [
    ("hello", "body", "", "We could not parse the JSON body of your request: expected an object."),
    # fields
    (body(model=...), "field-missing", "/model", "Missing required parameter: 'model'."),
    (body({"role": "user"}), "field-missing", "/messages/0/content",
     "Missing required parameter: 'messages[0].content'."),
    (body(tools=[{"type": "function", "name": "f", "parameters": {}}]), "field-missing", "/tools/0/function",
     "Missing required parameter: 'tools[0].function'."),
    (body(response_format={"type": "json_schema"}), "field-missing", "/response_format/json_schema",
     "Missing required parameter: 'response_format.json_schema'."),
    (body(n="two"), "field-type", "/n", "Invalid type for 'n': expected an integer, but got a string instead."),
    (body(USER, assistant({**CALL, "function": {"name": "f", "arguments": {}}}), RESULT),
     "field-type", "/messages/1/tool_calls/0/function/arguments",
     "Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string, but got an object instead."),
    (body({"role": "model", "content": "x"}), "field-word", "/messages/0/role",
     ("Invalid value: 'model'. Supported values are: 'assistant', 'developer', 'function', 'system', 'tool', and "
      "'user'.")),
    (body(user({**AUDIO, "input_audio": {"data": "QUJD", "format": "ogg"}})),
     "field-word", "/messages/0/content/0/input_audio/format",
     "Invalid value: 'ogg'. Supported values are: 'wav' and 'mp3'."),
    (body(thinking={"type": "enabled"}), "field-foreign", "/thinking",
     "Unrecognized request argument supplied: thinking"),
    (body(temperature=2.5), "field-range", "/temperature",
     "Invalid 'temperature': number above maximum value. Expected a value <= 2."),
    (body(n=0), "field-range", "/n", "Invalid 'n': number below minimum value. Expected a value >= 1."),
    (body(prompt_cache_key="k" * 65), "field-long", "/prompt_cache_key", LONG.format("prompt_cache_key", 64, 65)),
    (body(stop=list("abcde")), "field-long", "/stop", MANY.format("stop", 4, 5)),
    (body(metadata={str(n): "" for n in range(17)}), "field-long", "/metadata",
     "Invalid 'metadata': too many properties. Expected an object with at most 16 properties."),
    (body(tools=[function(name=f"f{n}") for n in range(129)]), "field-long", "/tools", MANY.format("tools", 128, 129)),
    (body(tools=[function(name="f" * 65)]), "field-long", "/tools/0/function/name",
     LONG.format("tools[0].function.name", 64, 65)),
    (body(USER, assistant({**CALL, "id": "c" * 41}), {**RESULT, "tool_call_id": "c" * 41}),
     "field-long", "/messages/1/tool_calls/0/id", LONG.format("messages[1].tool_calls[0].id", 40, 41)),
    (body(tools=[function(name="get.weather")]), "name-pattern", "/tools/0/function/name",
     PATTERN.format("tools[0].function.name")),
    (body(response_format=output(name="the answer")), "name-pattern", "/response_format/json_schema/name",
     PATTERN.format("response_format.json_schema.name")),
    (body(user({"type": "tool_result", "tool_use_id": "toolu_1"})), "tag-unknown", "/messages/0/content/0/type",
     "Invalid value: 'tool_result'. Supported values are: 'text', 'image_url', 'input_audio', 'file', and 'refusal'."),
    (body(tools=[{"type": "web_search"}]), "tag-unknown", "/tools/0/type",
     "Invalid value: 'web_search'. Supported values are: 'function' and 'custom'."),
    # messages
    (body(messages=[]), "messages-empty", "/messages", "[] is too short - 'messages'"),
    (body(USER, assistant()), "content-null", "/messages/1/content",
     "Invalid value for 'content': expected a string, got null."),
    (body(USER, assistant(content="", tool_calls=[])), "tool-calls-empty", "/messages/1/tool_calls",
     ("Invalid 'messages[1].tool_calls': empty array. "
      "Expected an array with minimum length 1, but got an empty array instead.")),
    (body(USER, assistant(CALL), {**RESULT, "content": [IMAGE]}), "part-role", "/messages/2",
     ("Invalid 'messages[2]'. Image URLs are only allowed for messages with role 'user', but this message with role "
      "'tool' contains an image URL.")),
    (body(USER, assistant(CALL), {**RESULT, "content": [AUDIO]}), "part-role", "/messages/2", NOT_A_BLOCK.format(2)),
    (body(user({"type": "file", "file": {"file_data": "data:video/mp4;base64,QUJD"}})),
     "file-type", "/messages/0/content/0/file/file_data",
     ("Invalid file data: 'messages[0].content[0].file.file_data'. Expected a base64-encoded data URL with an "
      "application/pdf MIME type, but got unsupported MIME type 'video/mp4'.")),
    # calls and results
    (body(USER, assistant(CALL)), "calls-unanswered", "/messages/1", unanswered("call_1")),
    (body(USER, assistant(CALL, OTHER_CALL), RESULT, USER), "calls-unanswered", "/messages/1", unanswered("call_2")),
    (body(USER, RESULT), "tool-message-orphan", "/messages/1", ORPHAN),
    (body(USER, assistant(CALL), RESULT, USER, OTHER_RESULT), "tool-message-orphan", "/messages/4", ORPHAN),
    (body(USER, assistant(CALL), RESULT, RESULT), "tool-message-orphan", "/messages/3/tool_call_id",
     "Invalid parameter: 'tool_call_id' of 'call_1' not found in 'tool_calls' of previous message."),
    # tools
    (body(tools=[]), "tools-empty", "/tools", "[] is too short - 'tools'"),
    (body(functions=[]), "functions-empty", "/functions", "[] is too short - 'functions'"),
    (body(tools=[function(parameters={"type": "string"})]), "schema-type", "/tools/0/function/parameters",
     ("Invalid schema for function 'get_weather': schema must be a JSON Schema of 'type: \"object\"', "
      "got 'type: \"string\"'.")),
    (body(tools=[function(parameters={**SCHEMA, "anyOf": [{"required": ["city"]}]})]),
     "schema-union", "/tools/0/function/parameters",
     ("Invalid schema for function 'get_weather': "
      "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.")),
    (body(tools=[function(parameters={"type": "object", "properties": {"tags": {"type": "array"}}})]),
     "schema-items", "/tools/0/function/parameters/properties/tags",
     "Invalid schema for function 'get_weather': In context=('properties', 'tags'), array schema missing items."),
    (body(tools=[function(strict=True)]), "strict-open", "/tools/0/function/parameters",
     ("Invalid schema for function 'get_weather': In context=(), "
      "'additionalProperties' is required to be supplied and to be false.")),
    (body(response_format=output(strict=True, schema={**CLOSED, "required": []})),
     "strict-optional", "/response_format/json_schema/schema",
     ("Invalid schema for response_format 'answer': In context=(), 'required' is required to be supplied and to be an "
      "array including every key in properties. Missing 'city'.")),
    (body(tools=[function(strict=True, parameters={**CLOSED, "properties": {"city": {"allOf": []}}})]),
     "strict-keyword", "/tools/0/function/parameters/properties/city",
     "Invalid schema for function 'get_weather': In context=('properties', 'city'), 'allOf' is not permitted."),
    (body(tools=..., tool_choice="auto"), "choice-without-tools", "/tool_choice", NO_TOOLS.format("tool_choice")),
    (body(tools=..., parallel_tool_calls=True), "choice-without-tools", "/parallel_tool_calls",
     NO_TOOLS.format("parallel_tool_calls")),
    (body(tool_choice="any"), "choice-value", "/tool_choice",
     "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'."),
    (body(tool_choice={"type": "tool", "name": "f"}), "choice-value", "/tool_choice/type",
     "Invalid value: 'tool'. Supported values are: 'function', 'allowed_tools', and 'custom'."),
    (body(tool_choice={"type": "function", "function": {"name": "lost"}}), "choice-unknown", "/tool_choice",
     "Invalid value for 'tool_choice': no tool named 'lost' was specified in the 'tools' parameter."),
    # settings
    (body(stream_options={"include_usage": True}), "stream-options", "/stream_options",
     "The 'stream_options' parameter is only allowed when 'stream' is enabled."),
    (body(top_logprobs=2), "top-logprobs", "/top_logprobs",
     "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."),
    (body(response_format={"type": "json_object"}), "json-mode", "/messages",
     "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."),
    (body(max_tokens=5, model="o3-mini"), "max-tokens-model", "/max_tokens",
     f"{UNSUPPORTED.format('max_tokens')} Use 'max_completion_tokens' instead."),
    (body(temperature=0.2, model="gpt-5-mini-2025-08-07"), "sampling-model", "/temperature",
     ("Unsupported value: 'temperature' does not support that value with this model. "
      "Only the default (1) value is supported.")),
    (body(stop="END", model="o4-mini"), "stop-model", "/stop", UNSUPPORTED.format("stop")),
    (body(web_search_options={}, model="gpt-4o"), "web-search-model", "/web_search_options",
     "Web search options not supported with this model."),
    (body(reasoning_effort="low", model="gpt-4o"), "effort-model", "/reasoning_effort",
     "Unrecognized request argument supplied: reasoning_effort"),
    (body(reasoning_effort="xhigh", model="gpt-5"), "effort-model", "/reasoning_effort",
     ("Unsupported value: 'reasoning_effort' does not support 'xhigh' with this model. "
      "Supported values are: 'minimal', 'low', 'medium', and 'high'.")),
    (body(reasoning_effort="low", model="gpt-6-luna"), "effort-with-tools", "/reasoning_effort",
     ("Function tools with reasoning_effort are not supported for gpt-6-luna in /v1/chat/completions. "
      "To use function tools, use /v1/responses or set reasoning_effort to 'none'.")),
    (body({"role": "system", "content": "x"}, USER, model="o1-mini"), "role-model", "/messages/0/role",
     "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
    (body(user(AUDIO), model="gpt-5-mini"), "audio-model", "/messages/0", NOT_A_BLOCK.format(0)),
]
# fmt: on


@pytest.mark.parametrize(("bad", "rule", "path", "message"), BAD, ids=[rule for _, rule, *_ in BAD])
def test_body_that_breaks_one_rule(bad: Any, rule: str, path: str, message: str) -> None:
    assert rules.check_request(bad) == [Finding(f"openai-chat.{rule}", path, message)]


WARNINGS: list[tuple[Any, str, str]] = [
    (body(service_tier="plaid"), "field-word", "/service_tier"),
    (body(user({"type": "hologram"})), "tag-unknown", "/messages/0/content/0/type"),
    (body(tools=[{"type": "teleport"}]), "tag-unknown", "/tools/0/type"),
    (body(tools=[function(), function()]), "tool-name-duplicate", "/tools/1"),
    (body(model="gpt-6-luna"), "effort-with-tools", "/reasoning_effort"),
]


@pytest.mark.parametrize(("unusual", "rule", "path"), WARNINGS)
def test_what_may_be_accepted_is_only_a_warning(unusual: Any, rule: str, path: str) -> None:
    findings = rules.check_request(unusual)
    assert [(finding.rule, finding.path, finding.level) for finding in findings] == [
        (f"openai-chat.{rule}", path, "warning")
    ]


CUSTOM = {
    "type": "custom",
    "custom": {
        "name": "run_sql",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}},
    },
}
GOOD: dict[str, Any] = {
    "minimal request": body(tools=...),
    "a new field": body(novelty={"any": "thing"}),
    "parallel calls, results in another order, a user after": body(
        USER, assistant(CALL, OTHER_CALL), OTHER_RESULT, {**RESULT, "content": [{"type": "text", "text": "18C"}]}, USER
    ),
    "calls without content": body(USER, {"role": "assistant", "tool_calls": [CALL]}, RESULT),
    "empty assistant message": body(USER, {"role": "assistant", "content": ""}, USER),
    "ids repeat between turns": body(USER, assistant(CALL), RESULT, USER, assistant(CALL), RESULT),
    "arguments that are not JSON": body(
        USER, assistant({**CALL, "function": {"name": "get_weather", "arguments": ""}}), RESULT
    ),
    "a custom tool": body(
        USER,
        assistant({"id": "call_1", "type": "custom", "custom": {"name": "run_sql", "input": "select 1"}}),
        RESULT,
        tools=[CUSTOM],
        tool_choice={"type": "custom", "custom": {"name": "run_sql"}},
    ),
    "allowed tools": body(
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "get_weather"}}],
            },
        }
    ),
    "strict tool and strict output": body(
        tools=[function(strict=True, parameters=CLOSED)], response_format=output(strict=True)
    ),
    "json mode": body(user({"type": "text", "text": "Answer in JSON."}), response_format={"type": "json_object"}),
    "audio for an audio model": body(user(AUDIO), model="gpt-4o-audio-preview"),
    "defaults for a reasoning model": body(temperature=1, max_completion_tokens=5, model="o3-mini", stop=["END"]),
    "legacy functions": body(
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "18C"},
        tools=...,
        functions=[{"name": "f", "parameters": SCHEMA}],
        function_call="auto",
    ),
}


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD.keys())
def test_body_that_the_server_accepts(good: Any) -> None:
    assert rules.check_request(good) == []


def test_compatible_server_gets_errors_only_for_pairing() -> None:
    unusual = body(
        USER, assistant({**CALL, "id": "c" * 50}), USER, thinking={"type": "enabled"}, tools=[{"function": {}}]
    )
    levels = {finding.rule: finding.level for finding in rules.check_request(unusual, compatible=True)}
    assert levels == {
        "openai-chat.field-foreign": "warning",
        "openai-chat.field-long": "warning",
        "openai-chat.field-missing": "warning",
        "openai-chat.calls-unanswered": "error",
    }


def test_model_argument_overrides_the_body() -> None:
    limited = body(max_tokens=5)
    assert rules.check_request(limited) == []
    assert [finding.path for finding in rules.check_request(limited, model="gpt-5")] == ["/max_tokens"]


def test_every_rule_has_a_case() -> None:
    source = inspect.getsource(rules) + inspect.getsource(fields) + inspect.getsource(openai)
    rule_names = set(re.findall(r'finding\(\s*"([a-z0-9-]+)"', source))
    computed_names = {
        *("field-type", "field-word", "messages-empty", "tools-empty", "functions-empty"),
        *("strict-open", "strict-optional", "strict-keyword"),
    }
    assert rule_names | computed_names == {rule for _, rule, *_ in [*BAD, *WARNINGS]}
