"""Each rule of the Ollama server, with a request body that breaks only that rule and the server's message."""

from typing import Any

import pytest

from tests.support.samples.fixture_files import fixtures
from toolwire.protocols.ollama.rules import check_request

USER = {"role": "user", "content": "Hi"}
CALL = {"function": {"name": "f", "arguments": {}}}
CALL_MESSAGE = {"role": "assistant", "content": "", "tool_calls": [CALL]}
GO_TYPE = "json: cannot unmarshal {} into Go struct field ChatRequest.{} of type {}"


def body(*messages: Any, **changes: Any) -> Any:
    base = {"model": "qwen3", "messages": [*(messages or (USER,))], **changes}
    return {name: value for name, value in base.items() if value is not ...}


def tool(properties: Any, **changes: Any) -> Any:
    parameters = {"type": "object", "properties": properties, **changes}
    return body(tools=[{"type": "function", "function": {"name": "f", "parameters": parameters}}])


BROKEN: list[tuple[Any, str, str, str]] = [
    ([], "body", "", "missing request body"),
    (body(model=...), "model", "/model", "model is required"),
    (
        body(think="x"),
        "think",
        "/think",
        'invalid think value: "x" (must be "high", "medium", "low", "max", true, or false)',
    ),
    (body(think=1), "think", "/think", "think must be a boolean or a string"),
    (body(top_logprobs=21), "top-logprobs", "/top_logprobs", "top_logprobs must be between 0 and 20"),
    (
        body(format="yaml"),
        "format",
        "/format",
        'invalid format: "yaml"; expected "json" or a valid JSON Schema object',
    ),
    (
        body({"role": "user", "content": []}),
        "field-type",
        "/messages/0/content",
        GO_TYPE.format("array", "messages.content", "string"),
    ),
    (
        body({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}),
        "field-type",
        "/messages/0/tool_calls/0/function/arguments",
        GO_TYPE.format("string", "messages.tool_calls.function.arguments", "object"),
    ),
    (body(options={"top_k": "x"}), "option-type", "/options/top_k", 'option "top_k" must be of type integer'),
    (body(options={"stop": "x"}), "option-type", "/options/stop", 'option "stop" must be of type array'),
    (
        body({"role": "user", "content": "", "images": ["data:image/png;base64,AAAA"]}),
        "image-base64",
        "/messages/0/images/0",
        "illegal base64 data at input byte 4",
    ),
    (
        body({"role": "user", "content": "", "images": [1]}),
        "image-type",
        "/messages/0/images/0",
        GO_TYPE.format("number", "messages.images", "[]uint8"),
    ),
    (
        tool({"a": True}),
        "property-type",
        "/tools/0/function/parameters/properties/a",
        GO_TYPE.format("bool", "tools.function.parameters.properties.a", "api.ToolProperty"),
    ),
]

WARNED: list[tuple[Any, str, str]] = [
    (body({"role": "wizard", "content": ""}), "role-unknown", "/messages/0/role"),
    (body({"role": "tool", "content": "x", "tool_name": "f"}), "result-without-call", "/messages/0"),
    (body(CALL_MESSAGE, {"role": "tool", "content": "x"}), "result-nameless", "/messages/1"),
    (
        body({**CALL_MESSAGE, "tool_calls": [CALL, CALL]}, {"role": "tool", "content": "x", "tool_name": "f"}),
        "result-ambiguous",
        "/messages/1",
    ),
    (
        tool({"a": {"type": "string", "pattern": "^x"}}),
        "schema-keyword",
        "/tools/0/function/parameters/properties/a/pattern",
    ),
    (tool({}, additionalProperties=False), "schema-keyword", "/tools/0/function/parameters/additionalProperties"),
]


@pytest.mark.parametrize(("request_body", "rule", "path", "message"), BROKEN)
def test_each_broken_rule_is_found_with_the_servers_message(
    request_body: Any, rule: str, path: str, message: str
) -> None:
    (finding,) = [finding for finding in check_request(request_body) if finding.level == "error"]
    assert (finding.rule, finding.path, finding.message) == (f"ollama.{rule}", path, message)


@pytest.mark.parametrize(("request_body", "rule", "path"), WARNED)
def test_each_doubtful_request_gets_one_warning(request_body: Any, rule: str, path: str) -> None:
    (finding,) = check_request(request_body)
    assert (finding.rule, finding.path, finding.level) == (f"ollama.{rule}", path, "warning")


def test_accepted_requests_have_no_errors() -> None:
    errors = {
        name: [finding for finding in check_request(request) if finding.level == "error"]
        for name, request in _accepted()
    }
    assert {name: findings for name, findings in errors.items() if findings} == {}


def _accepted() -> list[tuple[str, Any]]:
    return fixtures("ollama", "requests")


@pytest.mark.parametrize(("name", "rejected"), fixtures("ollama", "rejected"))
def test_recorded_rejections_are_found(name: str, rejected: Any) -> None:
    errors = [finding.message for finding in check_request(rejected["request"]) if finding.level == "error"]
    assert errors
    assert rejected["said"] is None or rejected["said"] in errors
