"""Arguments that are no object: the official client reads them as JSON while they grow, and must not fail."""

import json

import pytest

import toolwire as tw
from tests.support.protocols import ANTHROPIC, CHAT
from tests.support.sdk.streams import fold_body


def chat(pieces: list[str]) -> bytes:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    deltas = [{"role": "assistant", "tool_calls": [call]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    ends = [None] * len(deltas) + ["tool_calls"]
    choices = [
        {"index": 0, "delta": delta, "finish_reason": end} for delta, end in zip([*deltas, {}], ends, strict=True)
    ]
    envelope = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frames = [json.dumps({**envelope, "choices": [choice]}) for choice in choices]
    return "".join(f"data: {frame}\n\n" for frame in [*frames, "[DONE]"]).encode()


@pytest.mark.parametrize(
    ("pieces", "read"),
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
def test_the_official_client_reads_an_object(pieces: list[str], read: dict[str, object]) -> None:
    stream = tw.translate_stream([chat(pieces)], CHAT, ANTHROPIC)
    (block,) = fold_body(ANTHROPIC, b"".join(stream))["content"]
    assert block["input"] == read
    whole = "".join(pieces)
    odd = bool(whole.strip()) and whole != "null" and not whole.strip().endswith("}")
    assert [loss.reason for loss in stream.losses if loss.path.endswith("/arguments")] == (
        ["not a JSON object; sent as text under _raw"] if odd else []
    )


def test_an_object_is_told_as_it_grows() -> None:
    wire = b"".join(tw.translate_stream([chat(['{"a"', ":1", "}"])], CHAT, ANTHROPIC))
    assert wire.count(b"partial_json") == 3
