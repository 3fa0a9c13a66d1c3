"""Repairs of what Messages clients send although the provider rejects it."""

import json
from typing import Any

import pytest

from toolwire.codec.interface import Route, Target
from toolwire.codec.losses import LossReport
from toolwire.protocols.anthropic import CODEC
from toolwire.protocols.anthropic.repairs import repair_request

USER = {"role": "user", "content": "q"}
UNSIGNED = {"type": "thinking", "thinking": "Look.", "signature": ""}
SIGNED = {"type": "thinking", "thinking": "Look.", "signature": "EqQB"}
ANSWER = {"type": "text", "text": "a"}


def repaired(model: str, *content: Any) -> tuple[Any, list[str]]:
    """Return the content of the assistant message after repair, and the paths of the losses."""
    body = {"model": model, "max_tokens": 9, "messages": [USER, {"role": "assistant", "content": list(content)}, USER]}
    request, report = CODEC.decode_request(json.dumps(body).encode(), Route()), LossReport()
    changed = repair_request(request, Target(), CODEC.wire_names, report)
    encoded = json.loads(CODEC.encode_request(changed, Target()).to_bytes())
    return encoded["messages"][1]["content"], [loss.path for loss in report.resolve(request, CODEC.wire_names)]


@pytest.mark.parametrize("unsigned", [UNSIGNED, {"type": "thinking", "thinking": "Look."}])
def test_thinking_without_a_signature_is_not_sent_to_claude(unsigned: Any) -> None:
    assert repaired("claude-opus-5-5", unsigned, SIGNED, ANSWER) == ([SIGNED, ANSWER], ["/messages/1/content/0"])


def test_thinking_without_a_signature_is_sent_to_other_models() -> None:
    assert repaired("kimi-k3", UNSIGNED, ANSWER) == ([UNSIGNED, ANSWER], [])


def test_message_of_unsigned_thinking_only_stays_in_place() -> None:
    assert repaired("claude-opus-5-5", UNSIGNED) == ([{"type": "text", "text": "(nothing)"}], ["/messages/1/content/0"])
