"""`check` against recorded truth: nothing that a provider took is called an error, every refusal is found."""

import re
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus import Exchange, exchanges
from toolwire.codec.check import Finding
from toolwire.protocols.anthropic import rules as anthropic
from toolwire.protocols.openai_chat import rules as openai_chat
from toolwire.protocols.openai_responses import rules as openai_responses

Check = Callable[[object], list[Finding]]

# Protocol, whether the server only imitates it, the check.
SERVERS: list[tuple[str, bool, Check]] = [
    ("anthropic", False, anthropic.check_request),
    ("openai-chat", False, openai_chat.check_request),
    ("openai-responses", False, openai_responses.check_request),
    ("openai-chat", True, partial(openai_chat.check_request, compatible=True)),
    ("openai-responses", True, partial(openai_responses.check_request, compatible=True)),
]

UNKNOWN_MODEL = "which model names exist is not in the body"
MODEL_WROTE_IT = "the server refused what its model wrote, not the request"

# Recorded refusals that no reading of the body can foresee, by what the server said.
UNFORESEEABLE = {
    r"^model: \S+$": UNKNOWN_MODEL,
    r"^The (requested )?model ['`][^'`]+['`] does not exist": UNKNOWN_MODEL,
    r"^Tool call validation failed": MODEL_WROTE_IT,
    r"^Tool choice is required, but model did not call a tool": MODEL_WROTE_IT,
    r"^Could not parse your authentication token": "authentication is in a header",
}


def recorded(protocol: str, compatible: bool) -> list[Exchange]:
    return [found for found in exchanges(protocol, compatible=compatible, kind="generate") if found.request is not None]


def refusal(exchange: Exchange) -> str:
    response = exchange.response
    return str(response["error"]["message"] if "error" in response else response["detail"])


def errors(check: Check, exchange: Exchange) -> list[Finding]:
    return [finding for finding in check(exchange.request) if finding.level == "error"]


@pytest.mark.parametrize(("protocol", "compatible", "check"), SERVERS)
def test_what_was_accepted_has_no_error(protocol: str, compatible: bool, check: Check) -> None:
    accepted = [found for found in recorded(protocol, compatible) if found.status < 400]
    assert {found.id: errors(check, found) for found in accepted if errors(check, found)} == {}


@pytest.mark.parametrize(("protocol", "compatible", "check"), SERVERS)
def test_what_was_refused_is_found_in_the_words_of_the_server(protocol: str, compatible: bool, check: Check) -> None:
    refused = [found for found in recorded(protocol, compatible) if 400 <= found.status < 500]
    missed = {
        found.id: refusal(found)
        for found in refused
        if not any(refusal(found).startswith(finding.message) for finding in errors(check, found))
        and not any(re.match(said, refusal(found)) for said in UNFORESEEABLE)
    }
    assert missed == {}


@pytest.mark.parametrize(("protocol", "compatible", "check"), SERVERS)
def test_what_cannot_be_foreseen_is_not_guessed(protocol: str, compatible: bool, check: Check) -> None:
    for found in recorded(protocol, compatible):
        if found.status >= 400 and any(re.match(said, refusal(found)) for said in UNFORESEEABLE):
            assert errors(check, found) == []


NAMES = (
    "model max_tokens messages input system instructions tools tool_choice thinking output_config response_format text "
    "reasoning role content type name id call_id tool_use_id tool_call_id tool_calls function arguments parameters "
    "input_schema properties items required strict source data citations cache_control caller output format schema "
    "is_error encrypted_content allowed_tools grammar custom temperature budget_tokens thread fallbacks metadata stop"
).split()  # noqa: SIM905
WORDS = (
    "user assistant system tool text image document tool_use tool_result server_tool_use web_search_tool_result function "
    "custom message function_call function_call_output reasoning item_reference object array enabled adaptive any json "
    "base64 json_schema json_object allowed_tools namespace mcp mcp_toolset call_1 claude-opus-4-6 gpt-5 required 1h"
).split()  # noqa: SIM905

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*WORDS, "", 10**400, float("inf")]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=8)
    ),
    max_leaves=60,
)
# Free values seldom get past the outermost list, so the lists that the rules walk are filled on purpose.
entries = st.lists(st.dictionaries(st.sampled_from(NAMES), anything, max_size=8), max_size=4)
bodies = anything | st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("messages", "input", "tools", "system"), entries | anything),
        **dict.fromkeys(NAMES[8:14], anything),
        "model": st.sampled_from(WORDS) | anything,
    },
)


@pytest.mark.parametrize("check", [anthropic.check_request, openai_chat.check_request, openai_responses.check_request])
@given(body=bodies)
def test_a_check_is_total(check: Check, body: object) -> None:
    for finding in check(body):
        assert finding.path == "" or finding.path.startswith("/")
        assert finding.message


@pytest.mark.parametrize("check", [anthropic.check_request, openai_chat.check_request, openai_responses.check_request])
def test_a_schema_may_be_as_deep_as_json_is(check: Check) -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(2000):
        schema = {"type": "object", "properties": {"a": schema}}
    function = {"name": "f", "parameters": schema, "input_schema": schema, "strict": True}
    declared = {**function, "type": "function", "function": function}
    assert check({"tools": [declared, function]})
