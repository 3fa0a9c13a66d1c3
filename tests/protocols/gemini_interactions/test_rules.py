"""Each rule of the Interactions API, with a request body that breaks only that rule."""

import inspect
import json
import re
from typing import Any

import pytest

from tests.support.assertions import non_empty
from tests.support.samples.fixture_files import FIXTURES
from toolwire.codec.validation import Finding
from toolwire.protocols.gemini_interactions import fields, rules

USER = {"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}
CALL = {"type": "function_call", "id": "c1", "name": "f", "arguments": {}}
RESULT = {"type": "function_result", "call_id": "c1", "result": "x"}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
SEARCH_RESULT = {"type": "google_search_result", "call_id": "g", "result": []}


def body(*steps: Any, **changes: Any) -> dict[str, Any]:
    request = {"model": "m", "input": [*(steps or (USER,))], "tools": [TOOL], **changes}
    return {name: value for name, value in request.items() if value is not ...}


def choice(value: Any) -> dict[str, Any]:
    return {"generation_config": {"tool_choice": value}}


BROKEN: list[tuple[str, Any, str]] = [
    ("body", [], ""),
    ("field-type", body(store="yes"), "/store"),
    ("field-word", body(service_tier="golden"), "/service_tier"),
    ("field-missing", body(USER, {"type": "function_call", "id": "c1", "arguments": {}}, RESULT), "/input/1/name"),
    ("field-unknown", body(tomorrow=1), "/tomorrow"),
    ("field-range", body(generation_config={"temperature": 3}), "/generation_config/temperature"),
    ("label", body(labels={"9": "x"}), "/labels/9"),
    ("content-type", body({"type": "user_input", "content": ["x"]}), "/input/0/content/0"),
    ("content-is-step", body({"type": "model_output", "content": [CALL]}), "/input/0/content/0"),
    ("content-unknown", body({"type": "user_input", "content": [{"type": "smell"}]}), "/input/0/content/0"),
    ("media-source", body({"type": "user_input", "content": [{"type": "image"}]}), "/input/0/content/0"),
    ("step-type", body({"content": []}), "/input/0"),
    ("step-is-content", body(USER, {"type": "text", "text": "x"}), "/input/1"),
    ("step-unknown", body({"type": "hologram"}), "/input/0"),
    ("signature", body(USER, {"type": "thought", "signature": "no base64!"}), "/input/1/signature"),
    ("tool-type", body(tools=[{"name": "f"}]), "/tools/0"),
    ("tool-unknown", body(tools=[{"type": "teleport"}]), "/tools/0"),
    ("tool-name", body(tools=[{**TOOL, "name": "1 f"}]), "/tools/0/name"),
    ("tool-name-duplicate", body(tools=[TOOL, TOOL]), "/tools/1"),
    ("input-type", body(input=USER), "/input"),
    ("model-missing", body(model=...), "/model"),
    ("model-and-agent", body(agent="a"), "/agent"),
    ("input-missing", body(input=...), "/input"),
    ("background-stream", body(background=True, stream=True), "/stream"),
    ("store-previous", body(store=False, previous_interaction_id="v1"), "/previous_interaction_id"),
    ("agent-config", body(model=..., agent="a", generation_config={}), "/generation_config"),
    ("call-missing", body(USER, RESULT), "/input/1/call_id"),
    ("result-missing", body(USER, CALL, USER), "/input/1"),
    (
        "safety-decision",
        body(
            USER,
            {**CALL, "arguments": {"safety_decision": {"decision": "require_confirmation", "explanation": "Buy?"}}},
            RESULT,
        ),
        "/input/2",
    ),
    ("built-in-call-missing", body(USER, SEARCH_RESULT), "/input/1/call_id"),
    ("choice-value", body(**choice("required")), "/generation_config/tool_choice"),
    ("choice-without-tools", body(tools=..., **choice("any")), "/generation_config/tool_choice"),
    (
        "choice-unknown",
        body(**choice({"allowed_tools": {"mode": "any", "tools": ["g"]}})),
        "/generation_config/tool_choice/allowed_tools/tools/0",
    ),
    (
        "choice-unknown",
        body(**choice({"allowed_tools": {"mode": "any", "tools": ["f", {}]}})),
        "/generation_config/tool_choice/allowed_tools/tools/1",
    ),
]


def findings(value: Any, **options: Any) -> list[Finding]:
    return rules.check_request(value, **options)


@pytest.mark.parametrize(("rule", "value", "path"), BROKEN, ids=[rule for rule, _, _ in BROKEN])
def test_each_body_breaks_only_its_rule(rule: str, value: Any, path: str) -> None:
    assert [(finding.rule, finding.path) for finding in findings(value)] == [(f"gemini-interactions.{rule}", path)]


def test_every_rule_has_a_broken_body() -> None:
    source = inspect.getsource(rules) + inspect.getsource(fields)
    rule_names = set(re.findall(r'_finding\(\s*"([\w-]+)"', source)) | {"field-type", "field-word", "field-missing"}
    assert rule_names == {rule for rule, _, _ in BROKEN}


def test_recorded_requests_have_no_errors() -> None:
    for path in non_empty(sorted((FIXTURES / "gemini_interactions" / "requests").glob("*.json"))):
        errors = [finding for finding in findings(json.loads(path.read_bytes())) if finding.level == "error"]
        assert errors == [], path.stem


def test_stored_calls_need_not_be_repeated() -> None:
    assert findings(body(RESULT, previous_interaction_id="v1")) == []


def test_results_are_allowed_in_user_input() -> None:
    assert findings(body(USER, CALL, {"type": "user_input", "content": [RESULT]})) == []


def test_trailing_calls_need_no_result() -> None:
    assert findings(body(USER, CALL)) == []


def test_compatible_servers_get_warnings() -> None:
    assert [finding.level for finding in findings(body(tools=[TOOL, TOOL]), compatible=True)] == ["warning"]
    assert [finding.level for finding in findings(body(USER, RESULT), compatible=True)] == ["error"]
