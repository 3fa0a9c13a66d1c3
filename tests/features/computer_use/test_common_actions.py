"""A client that uses the canonical actions, with every vendor's format."""

import json

import pytest
from msgspec.structs import replace

from tests.support.bodies.computer_use import (
    CLICK,
    COMPUTER_CALLS,
    COMPUTER_PROTOCOLS,
    HEIGHT,
    PENDING_SAFETY_CHECK,
    SCREENSHOT_BASE64,
    WIDTH,
    computer_call,
    computer_response,
)
from tests.support.protocols import CHAT, RESPONSES
from toolwire.canonical.content import Inline, Media, Message, ScreenObservation, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.encoding.computer import CANONICAL_ADAPTER, computer_tool, decode_computer_use
from toolwire.codec.interface import ResponseContext, Route, Target
from toolwire.protocols import PROTOCOLS
from toolwire.translation.pipeline import adapt_response


@pytest.mark.parametrize("upstream", [*COMPUTER_PROTOCOLS, CHAT])
def test_a_client_of_common_actions_works_with_every_vendor(upstream: str) -> None:
    screenshot = Media(kind="image", media_type="image/png", source=Inline(data=SCREENSHOT_BASE64))
    request = Request(
        origin="toolwire",
        model="m",
        tools=(computer_tool(WIDTH, HEIGHT),),
        messages=(Message(role="user", parts=(Text(text="Go"), screenshot)),),
    )
    codec = PROTOCOLS[upstream]
    encoded = codec.encode_request(request, Target())
    body = json.dumps(computer_response(upstream, *COMPUTER_CALLS[upstream])).encode()
    response = codec.decode_response(body, ResponseContext(request=request, mapping=encoded.mapping))
    restored = adapt_response(response, codec, None, ResponseContext(mapping=encoded.mapping))
    (candidate,) = restored.candidates
    calls = [part for message in candidate.messages for part in message.parts if isinstance(part, ToolCall)]
    assert {call.name for call in calls} == {"computer"}
    actions = [action for call in calls for action in json.loads(call.arguments)["actions"]]
    assert actions == json.loads(COMPUTER_CALLS[CHAT][0]["function"]["arguments"])["actions"]
    results = tuple(
        ToolResult(call_id=call.id, content=(screenshot,), screen=ScreenObservation(url="http://a/")) for call in calls
    )
    next_request = decode_computer_use(
        replace(request, messages=(*request.messages, *candidate.messages, Message(role="user", parts=results))),
        CANONICAL_ADAPTER,
    )
    body = json.loads(codec.encode_request(next_request, Target()).to_bytes())
    decoded = codec.decode_request(json.dumps(body).encode(), Route())
    ids = [part.id for message in decoded.messages for part in message.parts if isinstance(part, ToolCall)]
    upstream_calls = [
        part for message in response.candidates[0].messages for part in message.parts if isinstance(part, ToolCall)
    ]
    assert ids == [call.id for call in upstream_calls], "the upstream receives its own calls"


def test_a_client_of_common_actions_receives_and_acknowledges_safety_checks() -> None:
    request = Request(origin="toolwire", model="m", tools=(computer_tool(WIDTH, HEIGHT),))
    codec = PROTOCOLS[RESPONSES]
    encoded = codec.encode_request(request, Target())
    response = codec.decode_response(
        json.dumps(
            computer_response(RESPONSES, computer_call("call_1", CLICK, pending=[PENDING_SAFETY_CHECK]))
        ).encode(),
        ResponseContext(),
    )
    (message,) = adapt_response(response, codec, None, ResponseContext(mapping=encoded.mapping)).candidates[0].messages
    (call,) = message.parts
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments)["checks"] == [PENDING_SAFETY_CHECK]
    observation = ScreenObservation(acknowledged=True)
    result = Message(role="user", parts=(ToolResult(call_id=call.id, content=(), screen=observation),))
    next_request = decode_computer_use(replace(request, messages=(message, result)), CANONICAL_ADAPTER)
    items = json.loads(codec.encode_request(next_request, Target()).to_bytes())["input"]
    assert [item.get("acknowledged_safety_checks") for item in items] == [None, [PENDING_SAFETY_CHECK]]
