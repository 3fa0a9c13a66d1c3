"""Estimates of token usage: each message is measured once, and the sum is that of the whole request."""

import msgspec
import pytest

from toolwire.canonical.content import Inline, Media, Message, Text, ToolCall
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.token_count import estimate_tokens
from toolwire.runtime.run.history import UsageEstimator

IMAGE = Media(kind="image", media_type="image/png", source=Inline(data="QUJD" * 1000))
MESSAGES = (
    Message(role="user", parts=(Text(text="gö"), IMAGE)),
    Message(role="assistant", parts=(ToolCall(id="1", name="f", arguments='{"a": 1}'),)),
    Message(role="user", parts=(Text(text="on" * 500),)),
    Message(role="assistant", parts=(Text(text="done"),)),
)


def request(messages: tuple[Message, ...], *, tools: int = 0) -> Request:
    declared = tuple(FunctionTool(name=f"tool_{number}") for number in range(tools))
    return Request(origin="", model="m", messages=messages, tools=declared or None)


@pytest.mark.parametrize(
    "turns",
    [
        [request(MESSAGES[:count], tools=2) for count in range(5)],
        [request(MESSAGES[:count], tools=count) for count in (4, 2, 3, 0, 4)],
        [request(MESSAGES), request(MESSAGES[2:]), request((*MESSAGES[:1], *MESSAGES[3:])), request(MESSAGES * 3)],
    ],
    ids=["grows", "tools change", "messages are left out"],
)
def test_the_estimate_is_that_of_the_whole_request(turns: list[Request]) -> None:
    response = Response(origin="", candidates=(Candidate(messages=MESSAGES[3:]),))
    estimator = UsageEstimator()
    for turn in turns:
        usage = estimator.estimate(turn, response)
        assert usage.input_tokens == estimate_tokens(msgspec.json.encode(turn))
        assert usage.output_tokens == estimate_tokens(msgspec.json.encode([MESSAGES[3:]]))
        assert usage.estimated
