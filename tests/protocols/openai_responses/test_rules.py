"""Each rule of the Responses API with a request that breaks only that rule, and the server's message."""

import inspect
import re
from typing import Any

import pytest

from toolwire.codec.validation import Finding
from toolwire.protocols.openai_responses import fields, rules
from toolwire.protocols.vendors import openai

USER = {"role": "user", "content": "Weather in Paris?"}
REPLY = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "18C"}]}
CALL = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city":"Paris"}'}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "18C"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FB"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CLOSED = {**SCHEMA, "additionalProperties": False}
SCREEN_CALL = {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "actions": [{"type": "screenshot"}]}
SCREENSHOT = {
    "type": "computer_call_output",
    "call_id": "call_1",
    "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"},
}
APPROVAL = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


def function(**changes: Any) -> dict[str, Any]:
    return {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False, **changes}


def body(*items: Any, **changes: Any) -> dict[str, Any]:
    base = {"model": "a-model", "input": [*(items or (USER,))], "tools": [function()]}
    return {name: value for name, value in {**base, **changes}.items() if value is not ...}


def user(*parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [*parts]}


def json_format(**changes: Any) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "name": "answer", "schema": CLOSED, **changes}}


TOO_LONG = (
    "Invalid '{}': string too long. Expected a string with maximum length {}, but got a string with length {} instead."
)
TOO_MANY = (
    "Invalid '{}': array too long. Expected an array with maximum length {}, but got an array with length {} instead."
)
UNPAIRED = "Item 'rs_1' of type 'reasoning' was provided without its required following item."
MISSING = "Missing required parameter: '{}'."
UNSUPPORTED = "Unsupported parameter: '{}' is not supported with this model."
EMPTY = "Expected {0} with minimum length 1, but got an empty {1} instead."

# fmt: off
INVALID: list[tuple[Any, str, str, str]] = [
    (None, "body", "", "We could not parse the JSON body of your request: expected an object."),
    # fields
    (body(input=...), "input-missing", "/input",
     "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided."),
    (body(model=...), "model-missing", "/model", MISSING.format("model")),
    (body({"type": "function_call_output", "call_id": "call_1"}, previous_response_id="resp_1"),
     "field-missing", "/input/0/output", MISSING.format("input[0].output")),
    (body(tools=[{"type": "function", "function": {"name": "f"}}]), "field-missing", "/tools/0/name",
     MISSING.format("tools[0].name")),
    (body(tools=[{"type": "code_interpreter"}]), "field-missing", "/tools/0/container",
     MISSING.format("tools[0].container")),
    (body(tool_choice={"type": "function", "function": {"name": "get_weather"}}), "field-missing", "/tool_choice/name",
     MISSING.format("tool_choice.name")),
    (body(CALL, {**OUTPUT, "output": {"temperature": 18}}), "field-type", "/input/1/output",
     "Invalid type for 'input[1].output': expected a string or an array, but got an object instead."),
    (body({"role": "tool", "content": "x"}), "field-word", "/input/0/role",
     "Invalid value: 'tool'. Supported values are: 'user', 'assistant', 'system', and 'developer'."),
    (body(stop=["END"]), "field-foreign", "/stop", "Unknown parameter: 'stop'."),
    (body(response_format={"type": "text"}), "field-moved", "/response_format",
     ("Unsupported parameter: 'response_format'. In the Responses API, this parameter has moved to 'text.format'. "
      "Try again with the new parameter.")),
    (body(max_output_tokens=10), "field-range", "/max_output_tokens",
     "Invalid 'max_output_tokens': number below minimum value. Expected a value >= 16."),
    (body(top_p=1.5), "field-range", "/top_p", "Invalid 'top_p': number above maximum value. Expected a value <= 1."),
    (body({**OUTPUT, "call_id": "c" * 65}, previous_response_id="resp_1"), "field-long", "/input/0/call_id",
     TOO_LONG.format("input[0].call_id", 64, 65)),
    (body(tools=[function(name=f"f{n}") for n in range(129)]), "field-long", "/tools",
     TOO_MANY.format("tools", 128, 129)),
    (body(text=json_format(name="n" * 65)), "field-long", "/text/format/name",
     TOO_LONG.format("text.format.name", 64, 65)),
    (body(tools=[function(name="get.weather")]), "name-pattern", "/tools/0/name",
     ("Invalid 'tools[0].name': string does not match pattern. "
      "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.")),
    (body({**OUTPUT, "call_id": ""}), "call-id-empty", "/input/0/call_id",
     "Invalid 'input[0].call_id': empty string. " + EMPTY.format("a string", "string")),
    # items
    (body(user({"type": "text", "text": "x"})), "tag-unknown", "/input/0/content/0/type",
     ("Invalid value: 'text'. Supported values are: 'input_text', 'input_image', 'input_file', 'input_audio', "
      "'output_text', 'refusal', 'computer_screenshot', and 'summary_text'.")),
    (body({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}),
     "part-place", "/input/0/content/0/type",
     "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'."),
    (body({**REPLY, "id": "toolu_1"}), "item-id", "/input/0/id",
     "Invalid 'input[0].id': 'toolu_1'. Expected an ID that begins with 'msg'."),
    (body({**REPLY, "id": "msg:1"}), "item-id", "/input/0/id",
     ("Invalid 'input[0].id': 'msg:1'. Expected an ID that contains letters, numbers, underscores, or dashes, but this "
      "value contained additional characters.")),
    (body(REPLY, REPLY), "item-duplicate", "/input/1",
     "Duplicate item found with id msg_1. Remove duplicate items from your input and try again."),
    (body({**REASONING, "content": [{"type": "reasoning_text", "text": "hm"}]}, REPLY),
     "reasoning-content", "/input/0/content", TOO_MANY.format("input[0].content", 0, 1)),
    (body(USER, REASONING), "reasoning-unpaired", "/input/1", UNPAIRED),
    (body(REASONING, USER), "reasoning-unpaired", "/input/0", UNPAIRED),
    (body(REASONING, {"role": "assistant", "content": "42"}, USER), "reasoning-unpaired", "/input/0", UNPAIRED),
    (body({"type": "compaction_trigger"}, USER), "trigger-last", "/input/0",
     "A compaction_trigger must be the last item of the input."),
    (body(APPROVAL), "approval-unknown", "/input/0", "No approval request found with id mcpr_1."),
    (body(user({"type": "input_file", "file_data": "data:audio/mpeg;base64,QUJD"})),
     "file-type", "/input/0/content/0/file_data",
     ("Invalid file data: 'input[0].content[0].file_data'. Expected a base64-encoded data URL with a valid file MIME "
      "type (e.g. 'data:text/plain;base64,SGVsbG8sIFdvcmxkIQ=='), but got unsupported MIME type 'audio/mpeg'.")),
    (body(user({"type": "input_file", "file_url": "https://a/b.mp3"})),
     "file-url-type", "/input/0/content/0/file_url",
     "The file type you uploaded is not supported. Please try again with a pdf"),
    # calls and outputs
    (body(CALL), "output-missing", "/input/0", "No tool output found for function call call_1."),
    (body({"type": "custom_tool_call", "call_id": "call_2", "name": "sql", "input": "x"}), "output-missing", "/input/0",
     "No tool output found for custom tool call call_2."),
    (body({"type": "tool_search_call", "call_id": "call_3", "execution": "client"}), "output-missing", "/input/0",
     "No tool output found for tool search call call_3."),
    (body(OUTPUT), "call-missing", "/input/0", "No tool call found for function call output with call_id call_1."),
    (body(SCREEN_CALL, {**SCREENSHOT, "output": {"type": "computer_screenshot"}}), "computer-screenshot",
     "/input/1/output/image_url", "Missing required parameter: 'input[1].output.image_url'."),
    (body({**SCREEN_CALL, "pending_safety_checks": [{"id": "cu_sc_1"}, {"id": "cu_sc_2"}]},
          {**SCREENSHOT, "acknowledged_safety_checks": [{"id": "cu_sc_1"}]}), "computer-safety", "/input/1",
     "Computer tool has unacknowledged safety check for ['cu_sc_2']"),
    (body(tools=[{"type": "computer_use_preview", "display_height": 1, "environment": "browser"}]), "computer-display",
     "/tools/0/display_width", "Missing required parameter: 'tools[0].display_width'."),
    # tools
    (body(tools=[{"type": "mcp", "server_label": "wiki"}]), "mcp-address", "/tools/0",
     "Missing required parameter: one of 'tools[0].server_url', 'tools[0].connector_id' or 'tools[0].tunnel_id'."),
    (body(tools=[{"type": "namespace", "name": "crm", "description": "", "tools": []}]),
     "namespace-empty", "/tools/0/tools",
     "Invalid 'tools[0].tools': empty array. " + EMPTY.format("an array", "array")),
    (body(tools=[{"type": "tool_search"}], model="gpt-5-mini"), "tool-model", "/tools/0",
     "Hosted tool 'tool_search' is not supported with gpt-5-mini."),
    (body(tools=[function(parameters={"properties": {}})]), "schema-type", "/tools/0/parameters",
     ("Invalid schema for function 'get_weather': schema must be a JSON Schema of 'type: \"object\"', "
      "got 'type: \"None\"'.")),
    (body(tools=[function(parameters={**SCHEMA, "oneOf": [{}]})]), "schema-union", "/tools/0/parameters",
     ("Invalid schema for function 'get_weather': "
      "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.")),
    (body(tools=[function(parameters={"type": "object", "properties": {"tags": {"type": "array"}}})]),
     "schema-items", "/tools/0/parameters/properties/tags",
     "Invalid schema for function 'get_weather': In context=('properties', 'tags'), array schema missing items."),
    (body({"type": "additional_tools", "role": "developer", "tools": [function(strict=True)]}),
     "strict-open", "/input/0/tools/0/parameters",
     ("Invalid schema for function 'get_weather': In context=(), "
      "'additionalProperties' is required to be supplied and to be false.")),
    (body(text=json_format(strict=True, schema={**CLOSED, "required": []})), "strict-optional", "/text/format/schema",
     ("Invalid schema for response_format 'answer': In context=(), 'required' is required to be supplied and to be an "
      "array including every key in properties. Missing 'city'.")),
    (body(tools=[function(strict=True, parameters={**CLOSED, "properties": {"city": {"oneOf": []}}})]),
     "strict-keyword", "/tools/0/parameters/properties/city",
     "Invalid schema for function 'get_weather': In context=('properties', 'city'), 'oneOf' is not permitted."),
    (body(tools=..., tool_choice="required"), "choice-without-tools", "/tool_choice",
     "Tool choice 'required' must be specified with 'tools' parameter."),
    (body(tool_choice="any"), "choice-value", "/tool_choice",
     "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'."),
    (body(tool_choice={"type": "tool", "name": "get_weather"}), "choice-value", "/tool_choice/type",
     "Invalid value: 'tool'. Supported values are: 'allowed_tools', 'function', 'mcp', and 'custom'."),
    (body(tool_choice={"type": "function", "name": "lost"}), "choice-unknown", "/tool_choice",
     "Tool choice 'function' not found in 'tools' parameter."),
    # settings
    (body(previous_response_id="resp_1", conversation="conv_1"), "state-twice", "/conversation",
     ("Mutually exclusive parameters. "
      "Ensure you are only providing one of: 'previous_response_id' or 'conversation'.")),
    (body(text={"format": {"type": "json_object"}}), "json-mode", "/input",
     "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'."),
    (body(temperature=0.2, model="gpt-5"), "sampling-model", "/temperature", UNSUPPORTED.format("temperature")),
    (body(reasoning={"effort": "low"}, model="gpt-4o"), "effort-model", "/reasoning/effort",
     UNSUPPORTED.format("reasoning.effort")),
    (body(reasoning={"effort": "none"}, model="gpt-5"), "effort-model", "/reasoning/effort",
     ("Unsupported value: 'none' is not supported with the 'gpt-5' model. "
      "Supported values are: 'minimal', 'low', 'medium', and 'high'.")),
]
# fmt: on


@pytest.mark.parametrize(("invalid", "rule", "path", "message"), INVALID, ids=[rule for _, rule, *_ in INVALID])
def test_request_that_breaks_one_rule_gets_its_message(invalid: Any, rule: str, path: str, message: str) -> None:
    assert rules.check_request(invalid) == [Finding(f"openai-responses.{rule}", path, message)]


UNUSUAL: list[tuple[Any, str, str]] = [
    (body(truncation="clever"), "field-word", "/truncation"),
    (body({"type": "hologram"}), "tag-unknown", "/input/0/type"),
    (body(tools=[{"type": "teleport"}]), "tag-unknown", "/tools/0/type"),
    (body({"type": "web_search_call", "id": "search_1"}), "item-id", "/input/0/id"),
    (body(tools=[function(), function()]), "tool-name-duplicate", "/tools/1"),
    (
        body(tools=[function(allowed_callers=["programmatic"])]),
        "callers-without-programs",
        "/tools/0/allowed_callers",
    ),
    (body(CALL, OUTPUT, CALL), "call-id-duplicate", "/input/2"),
    (body(CALL, OUTPUT, OUTPUT), "output-duplicate", "/input/2"),
]


@pytest.mark.parametrize(("unusual", "rule", "path"), UNUSUAL)
def test_unusual_request_gets_only_a_warning(unusual: Any, rule: str, path: str) -> None:
    findings = [(finding.rule, finding.path, finding.level) for finding in rules.check_request(unusual)]
    assert findings == [(f"openai-responses.{rule}", path, "warning")]


LOCAL_SHELL = {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "action": {"type": "exec"}}
SEARCH = {"type": "tool_search_call", "call_id": "call_1", "execution": "client"}
CHOSEN_TOOLS = [{"type": "function", "name": "get_weather"}]
# fmt: off
VALID: dict[str, Any] = {
    "the smallest": body(input="hello", tools=...),
    "a new field": body(novelty={"any": "thing"}),
    "a stored prompt": {"prompt": {"id": "pmpt_1"}},
    "an output far after its call": body(USER, CALL, REPLY, USER, OUTPUT),
    "an output of parts": body(CALL, {**OUTPUT, "output": [
        {"type": "input_text", "text": "24C"}, {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}]}),
    "an output for a call that the server stores": body(OUTPUT, previous_response_id="resp_1"),
    "an output for a call that is only referred to": body({"type": "item_reference", "id": "fc_1"}, OUTPUT),
    "an async call without its output": body({**CALL, "async": True}, REPLY),
    "a hosted tool search": body({"type": "tool_search_call", "call_id": "call_1", "execution": "server"}),
    "a client's tool search, answered by a function's output": body(SEARCH, OUTPUT),
    "a local shell's output, by the id of the item": body(
        LOCAL_SHELL, {"type": "local_shell_call_output", "id": "lsh_1", "output": "ok"}),
    "stored reasoning with its call": body(REASONING, {**CALL, "id": "fc_1"}, OUTPUT),
    "reasoning that is not stored, with a message that has no id": body(
        REASONING, {"role": "assistant", "content": "42"}, USER, store=False),
    "two reasoning items before one call": body(REASONING, {**REASONING, "id": "rs_2"}, {**CALL, "id": "fc_1"}, OUTPUT),
    "an answered approval": body({"type": "mcp_approval_request", "id": "mcpr_1", "name": "ask", "arguments": "{}",
                                  "server_label": "wiki"}, APPROVAL),
    "a namespace and a grammar": body(tools=[
        {"type": "namespace", "name": "crm", "description": "", "tools": [function()]},
        {"type": "custom", "name": "sql", "format": {"type": "grammar", "syntax": "lark", "definition": "start: W"}}]),
    "tools that come with the input": body(
        USER, {"type": "additional_tools", "role": "developer", "tools": [function()]},
        tools=..., tool_choice=CHOSEN_TOOLS[0]),
    "allowed tools": body(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": CHOSEN_TOOLS}),
    "a strict tool and a strict answer": body(
        tools=[function(strict=True, parameters=CLOSED)], text=json_format(strict=True)),
    "json mode": body(instructions="Answer in JSON.", text={"format": {"type": "json_object"}}),
    "sampling for a model that samples": body(temperature=0.2, model="gpt-5.6-sol"),
}
# fmt: on


@pytest.mark.parametrize("valid", VALID.values(), ids=VALID.keys())
def test_valid_request_has_no_findings(valid: Any) -> None:
    assert rules.check_request(valid) == []


def test_compatible_servers_only_enforce_call_and_output_pairs() -> None:
    invalid = body(USER, {**REASONING, "id": "8a7f"}, CALL, stop=["END"])
    levels = {finding.rule: finding.level for finding in rules.check_request(invalid, compatible=True)}
    assert levels == {
        "openai-responses.field-foreign": "warning",
        "openai-responses.item-id": "warning",
        "openai-responses.reasoning-unpaired": "warning",
        "openai-responses.output-missing": "error",
    }


def test_model_argument_overrides_the_body() -> None:
    sampled = body(temperature=0.2)
    assert rules.check_request(sampled) == []
    assert [finding.path for finding in rules.check_request(sampled, model="o3")] == ["/temperature"]


def test_every_rule_has_a_case() -> None:
    source = inspect.getsource(rules) + inspect.getsource(fields)
    source += inspect.getsource(rules) + inspect.getsource(openai)
    literal_rules = set(re.findall(r'finding\(\s*"([a-z0-9-]+)"', source))
    computed_rules = {"field-type", "field-word", "strict-open", "strict-optional", "strict-keyword"}
    assert literal_rules | computed_rules == {rule for _, rule, *_ in [*INVALID, *UNUSUAL]}
