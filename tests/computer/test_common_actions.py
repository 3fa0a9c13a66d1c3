"""A client that runs common actions, on every form."""

import json

import pytest
from msgspec.structs import replace

from tests.computer.screens import (
    ASKED,
    CLICK,
    FORMS,
    HEIGHT,
    PENDING,
    PNG,
    WIDTH,
    answer,
    computer_call,
)
from tests.wire import CHAT, RESPONSES
from toolwire.canonical.content import Inline, Media, Message, ScreenSeen, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.computer import with_screens
from toolwire.codec.interface import Context, Route, Target
from toolwire.codec.raising import raise_response
from toolwire.codec.screen_function import COMMON, computer_tool
from toolwire.protocols import PROTOCOLS


@pytest.mark.parametrize("upstream", [*FORMS, CHAT])
def test_a_client_of_common_actions_works_on_every_form(upstream: str) -> None:
    seen = Media(kind="image", media_type="image/png", source=Inline(data=PNG))
    asked = Request(
        origin="toolwire",
        model="m",
        tools=(computer_tool(WIDTH, HEIGHT),),
        messages=(Message(role="user", parts=(Text(text="Go"), seen)),),
    )
    codec = PROTOCOLS[upstream]
    encoded = codec.encode_request(asked, Target())
    body = json.dumps(answer(upstream, *ASKED[upstream])).encode()
    given = codec.decode_response(body, Context(request=asked, undo=encoded.undo))
    told = raise_response(given, encoded.undo, COMMON, codec.names)
    (candidate,) = told.candidates
    calls = [part for message in candidate.messages for part in message.parts if isinstance(part, ToolCall)]
    assert {call.name for call in calls} == {"computer"}
    done = [action for call in calls for action in json.loads(call.arguments)["actions"]]
    assert done == json.loads(ASKED[CHAT][0]["function"]["arguments"])["actions"]
    results = tuple(ToolResult(call_id=call.id, content=(seen,), screen=ScreenSeen(url="http://a/")) for call in calls)
    following = with_screens(
        replace(asked, messages=(*asked.messages, *candidate.messages, Message(role="user", parts=results))), COMMON
    )
    sent = json.loads(codec.encode_request(following, Target()).to_bytes())
    again = codec.decode_request(json.dumps(sent).encode(), Route())
    ids = [part.id for message in again.messages for part in message.parts if isinstance(part, ToolCall)]
    own = [part for message in given.candidates[0].messages for part in message.parts if isinstance(part, ToolCall)]
    assert ids == [call.id for call in own], "the upstream sees its own calls again"


def test_it_is_told_of_safety_checks_and_its_agreement_goes_back() -> None:
    asked = Request(origin="toolwire", model="m", tools=(computer_tool(WIDTH, HEIGHT),))
    codec = PROTOCOLS[RESPONSES]
    encoded = codec.encode_request(asked, Target())
    given = codec.decode_response(
        json.dumps(answer(RESPONSES, computer_call("call_1", CLICK, pending=[PENDING]))).encode(), Context()
    )
    (message,) = raise_response(given, encoded.undo, COMMON, codec.names).candidates[0].messages
    (call,) = message.parts
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments)["checks"] == [PENDING]
    seen = ScreenSeen(acknowledged=True)
    result = Message(role="user", parts=(ToolResult(call_id=call.id, content=(), screen=seen),))
    following = with_screens(replace(asked, messages=(message, result)), COMMON)
    items = json.loads(codec.encode_request(following, Target()).to_bytes())["input"]
    assert [item.get("acknowledged_safety_checks") for item in items] == [None, [PENDING]]
