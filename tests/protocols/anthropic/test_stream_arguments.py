"""Streamed arguments that are not an object: the official client parses them as partial JSON and must not fail."""

import json

import pytest

import toolwire as tw
from tests.support.protocols import ANTHROPIC, CHAT
from tests.support.sdk.streams import fold_body


def chat_call_stream(pieces: list[str]) -> bytes:
    """Return a Chat stream of one call whose arguments arrive in these pieces."""
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    deltas = [{"role": "assistant", "tool_calls": [call]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    finish_reasons = [None] * len(deltas) + ["tool_calls"]
    choices = [
        {"index": 0, "delta": delta, "finish_reason": finish_reason}
        for delta, finish_reason in zip([*deltas, {}], finish_reasons, strict=True)
    ]
    envelope = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frames = [json.dumps({**envelope, "choices": [choice]}) for choice in choices]
    return "".join(f"data: {frame}\n\n" for frame in [*frames, "[DONE]"]).encode()


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["hel", "lo"], {"_raw": "hello"}),
        (["[1,", "2]"], {"_raw": "[1,2]"}),
        (["12"], {"_raw": "12"}),
        ([" ", "\n", '{"a"', ":1}"], {"a": 1}),
        (["nu", "ll"], {}),
        ([" "], {}),
        ([], {}),
        (['{"a":1,', '"b":"c'], {"a": 1}),
    ],
)
def test_official_client_receives_an_object(pieces: list[str], expected: dict[str, object]) -> None:
    stream = tw.translate_stream([chat_call_stream(pieces)], CHAT, ANTHROPIC)
    (block,) = fold_body(ANTHROPIC, b"".join(stream))["content"]
    assert block["input"] == expected
    arguments = "".join(pieces)
    is_invalid = bool(arguments.strip()) and arguments != "null" and not arguments.strip().endswith("}")
    null_reasons = ["null sent as an empty object"] if arguments == "null" else []
    invalid_reasons = ["not a JSON object; sent as text under _raw"] if is_invalid else []
    reasons = [loss.reason for loss in stream.losses if loss.path.endswith("/arguments")]
    assert reasons == invalid_reasons + null_reasons


def test_object_is_streamed_piece_by_piece() -> None:
    wire = b"".join(tw.translate_stream([chat_call_stream(['{"a"', ":1", "}"])], CHAT, ANTHROPIC))
    assert wire.count(b"partial_json") == 3
