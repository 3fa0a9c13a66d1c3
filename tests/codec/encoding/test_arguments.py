"""Arguments of calls at targets that accept only JSON objects."""

import json

import pytest

from toolwire.canonical.content import Message, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.encoding.arguments import unwrap_invalid_arguments, wrap_invalid_arguments
from toolwire.codec.interface import Target
from toolwire.protocols import PROTOCOLS

OBJECT_TARGETS = ("anthropic", "gemini", "gemini-interactions", "ollama")


def encode_call(protocol: str, arguments: str) -> tuple[str, list[str]]:
    """Return a request with one call, and the reasons of the losses in its arguments."""
    call = Message(role="assistant", parts=(ToolCall(id="call_1", name="now", arguments=arguments),))
    result = Message(role="user", parts=(ToolResult(call_id="call_1", content=()),))
    request = Request(origin="toolwire", model="m", messages=(call, result))
    encoding = PROTOCOLS[protocol].encode_request(request, Target(model="m"))
    losses = encoding.report.resolve(request, {})
    return json.dumps(json.loads(encoding.to_bytes())), [loss.reason for loss in losses if "arguments" in loss.path]


@pytest.mark.parametrize("protocol", OBJECT_TARGETS)
def test_arguments_that_are_no_object_are_wrapped_and_reported(protocol: str) -> None:
    body, reasons = encode_call(protocol, "[1, 2]")
    assert '{"_raw": "[1, 2]"}' in body
    assert reasons == ["not a JSON object; sent as text under _raw"]


@pytest.mark.parametrize("protocol", OBJECT_TARGETS)
def test_lone_surrogates_in_arguments_are_replaced(protocol: str) -> None:
    body, reasons = encode_call(protocol, '{"text": "cut \ud83d"}')
    assert '{"text": "cut ?"}' in body
    assert reasons == []


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '"text"', '{"open": '])
def test_wrapped_arguments_are_unwrapped(text: str) -> None:
    assert unwrap_invalid_arguments(bytes(wrap_invalid_arguments(text)).decode()) == text


@pytest.mark.parametrize("text", ['{"_raw": 1}', '{"_raw": "a", "b": 1}', '{"_raw": "a"', '{"_rawest": "a"}', "{}"])
def test_other_arguments_are_not_unwrapped(text: str) -> None:
    assert unwrap_invalid_arguments(text) == text
