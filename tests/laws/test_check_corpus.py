"""`check` against recorded traffic: accepted requests have no errors, and every refusal is predicted."""

import copy
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.assertions import non_empty
from tests.support.samples import recorded_bodies
from tests.support.samples.corpus import Recording, needs_recordings, recordings
from tests.support.samples.fixture_files import fixture
from toolwire.codec.validation import Finding, word_set
from toolwire.protocols import PROTOCOLS

Check = Callable[[object], list[Finding]]

# The protocol, whether the server is only compatible with it, and the check.
SERVERS: list[tuple[str, bool, Check]] = [
    *((name, False, codec.check_request) for name, codec in PROTOCOLS.items()),
    ("openai-chat", True, partial(PROTOCOLS["openai-chat"].check_request, compatible=True)),
    ("openai-responses", True, partial(PROTOCOLS["openai-responses"].check_request, compatible=True)),
]

UNKNOWN_MODEL = "which model names exist is not in the body"
MODEL_OUTPUT = "the server refused what its model wrote, not the request"

# Recorded refusals that the body does not predict, by the message of the server.
UNPREDICTABLE = {
    r"^model: \S+$": UNKNOWN_MODEL,
    r"^The (requested )?model ['`][^'`]+['`] does not exist": UNKNOWN_MODEL,
    r"^Tool call validation failed": MODEL_OUTPUT,
    r"^Tool choice is required, but model did not call a tool": MODEL_OUTPUT,
    r"^Could not parse your authentication token": "authentication is in a header",
    r"^Publisher Model `\S+` not found": UNKNOWN_MODEL,
    r"^Cannot fetch content from the provided URL": "the content of a URL is not in the body",
}


def recorded_requests(protocol: str, compatible: bool) -> list[Recording]:
    exchanges = [
        exchange
        for exchange in recordings(protocol, compatible=compatible, kind="generate")
        if exchange.request is not None
    ]
    if not exchanges:
        pytest.skip("no recorded traffic of this server")
    return exchanges


def error_message(exchange: Recording) -> str:
    response = exchange.response
    return str(response["error"]["message"] if "error" in response else response["detail"])


def errors(check: Check, exchange: Recording) -> list[Finding]:
    return [finding for finding in check(exchange.request) if finding.level == "error"]


@needs_recordings
@pytest.mark.parametrize(("protocol", "compatible", "check"), SERVERS)
def test_accepted_requests_have_no_finding_of_kind_error(protocol: str, compatible: bool, check: Check) -> None:
    accepted = [exchange for exchange in recorded_requests(protocol, compatible) if exchange.status < 400]
    assert {exchange.id: errors(check, exchange) for exchange in accepted if errors(check, exchange)} == {}


@needs_recordings
@pytest.mark.parametrize(("protocol", "compatible", "check"), SERVERS)
def test_refused_requests_are_found_with_the_reason_of_the_server(
    protocol: str, compatible: bool, check: Check
) -> None:
    refused = [exchange for exchange in recorded_requests(protocol, compatible) if 400 <= exchange.status < 500]
    missed = {
        exchange.id: error_message(exchange)
        for exchange in refused
        if not any(error_message(exchange).startswith(finding.message) for finding in errors(check, exchange))
        and not any(re.match(pattern, error_message(exchange)) for pattern in UNPREDICTABLE)
    }
    assert missed == {}


@needs_recordings
@pytest.mark.parametrize(("protocol", "compatible", "check"), SERVERS)
def test_unpredictable_refusals_are_not_guessed(protocol: str, compatible: bool, check: Check) -> None:
    for exchange in non_empty(recorded_requests(protocol, compatible)):
        if exchange.status >= 400 and any(re.match(pattern, error_message(exchange)) for pattern in UNPREDICTABLE):
            assert errors(check, exchange) == []


NAMES = sorted(
    word_set(
        "role content type name id call_id tool_use_id tool_call_id tool_calls function arguments parameters text stop "
        "input_schema properties items required strict source data citations cache_control caller output format schema "
        "is_error encrypted_content allowed_tools grammar custom temperature budget_tokens thread fallbacks metadata"
    )
)
WORDS = sorted(
    word_set(
        "user assistant system tool text image document tool_use tool_result server_tool_use web_search_tool_result "
        "function custom message function_call function_call_output reasoning item_reference object array enabled any "
        "json base64 json_schema json_object allowed_tools namespace mcp mcp_toolset call_1 claude-opus-4-6 gpt-5 1h"
    )
)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*WORDS, "", "{at}", -1, 0, 10**400]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=20,
)

# The largest fixtures of the protocols without a sample here.
FULL = {"gemini": "full", "gemini-interactions": "full", "ollama": "full", "openrouter": "thinking_with_tools"}

SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}, "required": ["a"]}
CALL = {"id": "call_1", "name": "f", "arguments": "{}", "input": {}, "caller": {"type": "direct"}}
TURN = [{"type": "text", "text": "x", "citations": [], "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
# Random values seldom get past the outermost list, so each check gets a valid body with some values replaced.
SAMPLES: list[tuple[Check, dict[str, Any]]] = [
    (
        PROTOCOLS["anthropic"].check_request,
        {
            "model": "claude-opus-4-6",
            "max_tokens": 4096,
            "system": TURN,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
            "tools": [{"name": "f", "input_schema": SCHEMA, "strict": True, "allowed_callers": ["direct"]}],
            "tool_choice": {"type": "tool", "name": "f"},
            "stop_sequences": ["END"],
            "messages": [
                {"role": "user", "content": TURN},
                {"role": "assistant", "content": [{**CALL, "type": "tool_use"}, {**CALL, "type": "server_tool_use"}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": TURN}]},
                {"role": "system", "content": "x"},
                {"role": "assistant", "content": TURN},
            ],
        },
    ),
    (
        PROTOCOLS["openai-chat"].check_request,
        {
            "model": "gpt-5",
            "temperature": 1,
            "metadata": {"a": "b"},
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
            "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "function"}]}},
            "messages": [
                {"role": "user", "content": TURN},
                {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": CALL}]},
                {"role": "tool", "tool_call_id": "call_1", "content": TURN},
            ],
        },
    ),
    (
        PROTOCOLS["openai-responses"].check_request,
        {
            "model": "gpt-5",
            "temperature": 1,
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}},
            "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}, {"type": "mcp"}],
            "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]},
            "input": [
                {"role": "user", "content": TURN},
                {"type": "reasoning", "id": "rs_1", "summary": [], "content": [], "encrypted_content": "x"},
                {**CALL, "type": "function_call", "call_id": "call_1"},
                {"type": "function_call_output", "call_id": "call_1", "output": TURN},
                {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
            ],
        },
    ),
    *((PROTOCOLS[name].check_request, fixture(name, "requests", full)) for name, full in FULL.items()),
]
CHECKS = [check for check, _ in SAMPLES]


def positions(value: Any) -> list[tuple[Any, Any]]:
    """Return every container in a value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [position for key in keys for position in ((value, key), *positions(value[key]))]


@pytest.mark.parametrize("check", CHECKS)
@given(body=anything)
def test_checks_accept_any_json(check: Check, body: object) -> None:
    for finding in check(body):
        assert finding.path == "" or finding.path.startswith("/")
        assert finding.message


@pytest.mark.parametrize(("check", "sample"), SAMPLES)
@settings(max_examples=recorded_bodies.example_count(200))
@given(data=st.data())
def test_checks_accept_any_json_at_any_position(check: Check, sample: dict[str, Any], data: st.DataObject) -> None:
    body = copy.deepcopy(sample)
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(positions(body)))
        container[key] = data.draw(anything)
    for finding in check(body):
        assert finding.path == "" or finding.path.startswith("/")
        assert finding.message


@pytest.mark.parametrize("check", CHECKS)
def test_checks_accept_deeply_nested_schemas(check: Check) -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(900):
        schema = {"type": "object", "properties": {"a": schema}}
    function = {"name": "f", "parameters": schema, "input_schema": schema, "strict": True}
    declared = {**function, "type": "function", "function": function}
    assert check({"tools": [declared, function, {"functionDeclarations": [function]}]})
