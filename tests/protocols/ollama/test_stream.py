"""Ollama streams: complete calls, timestamps and extras on each line, and errors in the middle."""

import json
import sys
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    anthropic_block,
    anthropic_call_block,
    anthropic_stream,
    anthropic_text_block,
    chat_chunk,
    chat_events,
    chat_fragment,
    chat_stream,
)
from tests.support.protocols import ANTHROPIC, CHAT
from tests.support.samples.fixture_files import fixture_folder
from tests.support.sdk.ollama import fold_stream
from tests.support.translation import translate_stream_bytes
from toolwire.canonical.events import Event, PartDeltas, separate_deltas
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

OLLAMA = "ollama"
ENVELOPE = {"model": "qwen3", "created_at": "2026-01-01T00:00:00Z"}


def line(message: Any, **fields: Any) -> Any:
    return {**ENVELOPE, "message": {"role": "assistant", "content": "", **message}, "done": False, **fields}


LAST = {**line({}), "done": True, "done_reason": "stop", "eval_count": 7}


def wire(*lines: Any) -> bytes:
    return b"".join(json.dumps(body).encode() + b"\n" for body in lines)


def lines(data: bytes) -> list[Any]:
    return [json.loads(row) for row in data.splitlines()]


def test_lines_round_trip_unchanged() -> None:
    stream_lines = [
        line({"thinking": "Well."}),
        line({"content": "Yes"}),
        line({"content": "."}),
        line({"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}),
        {**LAST, "created_at": "2026-01-01T00:00:02Z", "total_duration": 5},
    ]
    assert lines(translate_stream_bytes(wire(*stream_lines), OLLAMA, OLLAMA)) == stream_lines


def test_extras_of_lines_round_trip_and_are_reported_elsewhere() -> None:
    first, second = [{"token": "a", "logprob": -1}], [{"token": "b", "logprob": -2}]
    stream_lines = [
        line({"content": "a"}, logprobs=first, remote_host="h"),
        line({"content": "b", "mood": "fine"}, logprobs=second, remote_host="h"),
        {**LAST, "remote_host": "h"},
    ]
    assert lines(translate_stream_bytes(wire(*stream_lines), OLLAMA, OLLAMA)) == stream_lines
    stream = toolwire.translate_stream([wire(*stream_lines)], OLLAMA, CHAT)
    assert b"".join(stream)
    assert {"/logprobs/0", "/logprobs/1", "/remote_host", "/message/mood"} <= {loss.path for loss in stream.losses}


def test_a_foreign_call_is_sent_as_one_complete_line() -> None:
    fragments = [chat_fragment(0, '{"a"', id="call_1", name="f"), chat_fragment(0, ":1}")]
    encoded = lines(translate_stream_bytes(chat_stream({"content": "Hi"}, *fragments), CHAT, OLLAMA))
    assert [row["message"].get("tool_calls") for row in encoded] == [
        None,
        [{"id": "call_1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}],
        None,
    ]
    assert [row["done"] for row in encoded] == [False, False, True]


def test_interleaved_foreign_calls_are_sequenced() -> None:
    fragments = [
        chat_fragment(0, '{"a"', id="call_1", name="f"),
        chat_fragment(1, '{"b"', id="call_2", name="g"),
        chat_fragment(0, ":1}"),
        chat_fragment(1, ":2}"),
    ]
    calls = fold_stream(translate_stream_bytes(chat_stream(*fragments), CHAT, OLLAMA))["calls"]
    assert [(call["id"], call["arguments"]) for call in calls] == [("call_1", {"a": 1}), ("call_2", {"b": 2})]


def test_foreign_thinking_text_and_calls_are_encoded() -> None:
    thinking = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Well."},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    events = [*thinking, *anthropic_text_block(1, "Let ", "me see."), *anthropic_call_block(2, "toolu_1")]
    stream = toolwire.translate_stream([anthropic_stream(*events)], ANTHROPIC, OLLAMA)
    folded = fold_stream(b"".join(stream))
    assert (folded["reasoning"], folded["text"], folded["stop"]) == ("Well.", "Let me see.", "tool_use")
    assert folded["calls"] == [{"id": "toolu_1", "name": "get_weather", "arguments": {"city": "Paris"}}]
    assert folded["usage"]["output"] == 7
    assert "/content/0/signature" in {loss.path for loss in stream.losses}


def test_a_second_candidate_is_dropped_and_reported() -> None:
    second_chunk = {**chat_chunk({"content": "other"}), "choices": [{"index": 1, "delta": {"content": "other"}}]}
    stream = toolwire.translate_stream(
        [chat_events(chat_chunk({"content": "Hi"}), second_chunk, chat_chunk({}, "stop"))], CHAT, OLLAMA
    )
    assert fold_stream(b"".join(stream))["text"] == "Hi"
    assert "/choices/1" in {loss.path for loss in stream.losses}


@pytest.mark.parametrize("name", ["cut_after_text", "cut_in_line", "not_json", "nothing"])
def test_truncated_or_invalid_streams_are_broken(name: str) -> None:
    stream = toolwire.translate_stream([_broken(name)], OLLAMA, CHAT)
    assert b'"error"' in b"".join(stream)
    assert stream.broken


@pytest.mark.parametrize("name", ["error_midway", "error_first"])
def test_an_error_line_is_passed_on(name: str) -> None:
    stream = toolwire.translate_stream([_broken(name)], OLLAMA, OLLAMA)
    encoded = lines(b"".join(stream))
    assert encoded[-1] == lines(_broken(name))[-1]
    assert stream.error is not None
    assert not stream.broken


def _broken(name: str) -> bytes:
    return (fixture_folder(OLLAMA) / "broken_streams" / f"{name}.ndjson").read_bytes()


def test_lines_after_the_last_are_ignored() -> None:
    assert lines(translate_stream_bytes(wire(LAST, line({"content": "late"})), OLLAMA, OLLAMA)) == [LAST]


def text_line(content: str, **members: Any) -> bytes:
    """Return a line as the server writes it; `content` is JSON."""
    rest = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in members.items())
    return (
        f'{{"model":"qwen3:8b","created_at":"2026-01-01T00:00:00.5Z","message":{{"role":"assistant",'
        f'"content":{content}{rest}}},"done":false}}\n'
    ).encode()


LINES = [
    [text_line('" the"')] * 3,
    [text_line('"a\\n"'), text_line('"\\"b\\\\"'), text_line('"\\/\\b\\f\\r\\t"')],
    [text_line('"\\u003c"'), text_line('"c"'), text_line('"\\ud83d\\ude00"'), text_line('"ä"'), text_line('"d"')],
    [
        text_line('"e"'),
        text_line('""'),
        text_line('"f"', thinking="hm"),
        text_line('"g"'),
        text_line('"h"', tool_calls=[]),
    ],
    [
        text_line('"i"'),
        text_line('"j"').replace(b"assistant", b"tool"),
        text_line('"k"').replace(b'"done"', b'"eval_count":1,"done"'),
    ],
    [text_line('"l"'), text_line('"m"').replace(b"qwen3:8b", b"other"), text_line('"n"').replace(b"2026", b"2027")],
    [text_line('"o"'), text_line('"p\x01"')],
    [text_line('"q"'), text_line('"r\\x"')],
    [text_line('"s"'), text_line('"\\ud83d"')],
    [text_line('"t"'), text_line('"u"').replace(b"false", b"true"), text_line('"v"')],
]


@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("together", [False, True])
def test_lines_that_only_add_text_decode_as_all_lines(
    lines: list[bytes], together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = [b"".join(lines)] if together else lines

    def decode() -> list[Event]:
        decoder = PROTOCOLS["ollama"].stream_decoder(ResponseContext())
        first = decoder.feed(text_line('"Well"'))
        rest = [event for chunk in chunks for event in decoder.feed(chunk)]
        return separate_deltas([*first, *rest, *decoder.close()])

    fast, again = decode(), decode()
    module = sys.modules["toolwire.protocols.ollama.stream_decoder"]  # the package has a function of this name
    monkeypatch.setattr(module, "_match_text_line", lambda line: None)
    assert fast == again == decode()


def test_lines_that_only_add_text_are_not_decoded_one_by_one() -> None:
    decoder = PROTOCOLS["ollama"].stream_decoder(ResponseContext())
    decoder.feed(text_line('"Well"'))
    (deltas,) = decoder.feed(text_line('" the"') + text_line('"a\\n"'))
    assert isinstance(deltas, PartDeltas)
    assert (deltas.texts, deltas.wire) == ([" the", "a\n"], b'" the"\n"a\\n"')
