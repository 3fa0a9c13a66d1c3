"""Each rule of the Gemini API, with request bodies that break only that rule."""

import inspect
import re
from typing import Any

import pytest

from tests.support.samples.fixture_files import fixtures
from toolwire.protocols.gemini import fields, rules

HELLO = {"role": "user", "parts": [{"text": "Hello"}]}
CALL_PART: dict[str, Any] = {"functionCall": {"name": "f", "args": {}}}
CALL = {"role": "model", "parts": [CALL_PART]}
RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}
TOOLS = [{"functionDeclarations": [{"name": "f"}]}]


def part(**fields: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [fields]}]}


def body(*contents: Any, **fields: Any) -> dict[str, Any]:
    return {"contents": [*(contents or (HELLO,))], "tools": TOOLS, **fields}


def calling(**config: Any) -> dict[str, Any]:
    return {"functionCallingConfig": config}


CONFIRM = {"decision": "require_confirmation", "explanation": "It buys something."}
BROKEN: dict[str, list[Any]] = {
    "body": [[]],
    "field-unknown": [body(max_tokens=1), part(text="a", b=1), body(generationConfig={"max_tokens": 1})],
    "field-missing": [{}, part(functionCall={"args": {}})],
    "field-type": [body(labels=1), part(functionCall={"name": "f", "args": "{}"})],
    "field-word": [
        body(HELLO, CALL, {"role": "user", "parts": [{"functionResponse": {"name": "f", "scheduling": "X"}}]})
    ],
    "part-data": [part(text="a", inlineData={}), {"contents": [{"parts": [{}]}]}],
    "name-empty": [body(HELLO, CALL, {"parts": [{"functionResponse": {"name": "", "response": {}}}]})],
    "tool-name": [{**body(), "tools": [{"functionDeclarations": [{"name": "1 f"}]}]}],
    "tool-twice": [{**body(), "tools": [{"functionDeclarations": [{"name": "f"}, {"name": "f"}]}]}],
    "schema-twice": [
        {**body(), "tools": [{"functionDeclarations": [{"name": "f", "parameters": {}, "parametersJsonSchema": {}}]}]},
        body(generationConfig={"responseSchema": {}, "responseJsonSchema": {}}),
    ],
    "choice-mode": [body(toolConfig=calling(mode="SOME"))],
    "choice-without-functions": [{"contents": [HELLO], "toolConfig": calling(mode="ANY")}],
    "choice-names": [body(toolConfig=calling(mode="AUTO", allowedFunctionNames=["f"]))],
    "temperature": [body(generationConfig={"temperature": 3})],
    "thinking-twice": [body(generationConfig={"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 1}})],
    "contents-empty": [{"contents": []}],
    "role": [body({"role": "assistant", "parts": [{"text": "a"}]})],
    "cache-and-more": [body(cachedContent="cachedContents/a")],
    "result-without-call": [body(HELLO, RESULT)],
    "result-count": [body(HELLO, {"role": "model", "parts": [CALL_PART, CALL_PART]}, RESULT)],
    "call-after-model": [body(HELLO, {"role": "model", "parts": [{"text": "a"}]}, CALL)],
    "signature-missing": [body(HELLO, CALL, RESULT, model="gemini-3-pro")],
    "safety-decision": [
        body(
            HELLO,
            {"role": "model", "parts": [{"functionCall": {"name": "click", "args": {"safety_decision": CONFIRM}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "click", "response": {"url": "http://a/"}}}]},
        )
    ],
    "result-id": [
        body(
            HELLO,
            {"role": "model", "parts": [{"functionCall": {"id": "a", "name": "f"}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "b", "name": "f", "response": {}}}]},
        )
    ],
}


@pytest.mark.parametrize(("rule", "broken"), [(rule, body) for rule, bodies in BROKEN.items() for body in bodies])
def test_each_body_breaks_only_its_rule(rule: str, broken: Any) -> None:
    assert {finding.rule for finding in rules.check_request(broken)} == {f"gemini.{rule}"}


def test_every_rule_has_a_broken_body() -> None:
    source = inspect.getsource(rules) + inspect.getsource(fields)
    assert set(re.findall(r'_finding\(\s*"([a-z-]+)"', source)) == set(BROKEN)


@pytest.mark.parametrize(("name", "case"), [pytest.param(*pair, id=pair[0]) for pair in fixtures("gemini", "rejected")])
def test_recorded_rejections_are_found_with_the_servers_message(name: str, case: Any) -> None:
    errors = [finding for finding in rules.check_request(case["request"]) if finding.level == "error"]
    assert errors
    assert case["said"] is None or case["said"] in {finding.message for finding in errors}


def test_signatures_are_required_only_after_the_last_user_text() -> None:
    signed = {"role": "model", "parts": [{**CALL_PART, "thoughtSignature": "YQ=="}]}
    assert rules.check_request(body(HELLO, CALL, RESULT, HELLO), model="gemini-3-pro") == []
    assert rules.check_request(body(HELLO, signed, RESULT), model="gemini-3-pro") == []
    assert rules.check_request(body(HELLO, CALL, RESULT), model="gemini-2.5-pro") == []
    assert [finding.level for finding in rules.check_request(body(HELLO, CALL, RESULT), model="gemini-3-pro")] == [
        "error"
    ]


def test_field_names_are_accepted_in_both_spellings() -> None:
    snake = {
        "contents": [{"role": "model", "parts": [{"function_call": {"name": "f"}, "thought_signature": "YQ=="}]}],
        "generation_config": {"top_k": 1, "thinking_config": {"thinking_budget": 0}},
        "tools": {"function_declarations": [{"name": "f", "parameters_json_schema": {}}]},
    }
    assert rules.check_request(snake) == []
