"""Repairs of requests that Gemini clients send."""

from typing import Any

import msgspec
import pytest

from toolwire.codec.interface import Route, Target
from toolwire.codec.losses import LossReport
from toolwire.protocols.gemini import CODEC

QUESTION = {"role": "user", "parts": [{"text": "Rain?"}]}
RESULT = {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "look", "response": {"output": "no"}}}]}
PLACEHOLDER = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="


def call(**fields: Any) -> dict[str, Any]:
    return {"functionCall": {"id": "c", "name": "look", "args": {}}, **fields}


def repair(*contents: dict[str, Any], model: str = "gemini-3-pro") -> tuple[list[list[str | None]], list[str]]:
    """Return the signatures of the calls in each content, and what is reported as added."""
    assert CODEC.repair_request is not None
    request = CODEC.decode_request(msgspec.json.encode({"contents": contents}), Route(model=model))
    target, report = Target(model=model), LossReport()
    repaired = CODEC.repair_request(request, target, CODEC.wire_names, report)
    body = msgspec.json.decode(CODEC.encode_request(repaired, target).to_bytes())
    signatures = [
        [part.get("thoughtSignature") for part in content["parts"] if "functionCall" in part]
        for content in body["contents"]
    ]
    assert (repaired is request) == (not report)
    return signatures, [str(loss.target) for loss in report.resolve(request, CODEC.wire_names)]


def test_first_call_of_each_step_of_the_current_turn_gets_a_placeholder() -> None:
    step = {"role": "model", "parts": [{"text": "So."}, call(), call()]}
    signed = {"role": "model", "parts": [call(thoughtSignature="CiQB")]}
    signatures, added = repair(QUESTION, step, RESULT, QUESTION, step, RESULT, signed, RESULT)
    assert signatures == [[], [None, None], [], [], [PLACEHOLDER, None], [], ["CiQB"], []]
    assert added == ["/contents/4/parts/1/thoughtSignature"]


@pytest.mark.parametrize("name", ["thoughtSignature", "thought_signature"])
def test_placeholder_of_the_client_is_kept(name: str) -> None:
    _, added = repair(QUESTION, {"role": "model", "parts": [call(**{name: PLACEHOLDER})]}, RESULT)
    assert added == []


def test_models_that_sign_nothing_need_no_placeholder() -> None:
    signatures, added = repair(QUESTION, {"role": "model", "parts": [call()]}, RESULT, model="gemini-2.5-flash")
    assert (signatures, added) == ([[], [None], []], [])
