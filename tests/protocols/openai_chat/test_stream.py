"""Chat streams: deviations of servers, and what clients rely on."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    CITY_ARGUMENTS,
    anthropic_block,
    anthropic_call_block,
    anthropic_events,
    anthropic_stream,
    anthropic_text_block,
    chat_chunk,
    chat_events,
    chat_fragment,
    chat_request,
    chat_stream,
)
from tests.support.bodies.readers import stream_frames
from tests.support.protocols import ANTHROPIC, CHAT
from tests.support.translation import translate_stream_bytes
from toolwire.canonical.content import Part, Reasoning, ReasoningText, Refusal, Text, ToolCall
from toolwire.canonical.events import PartEnd, PartStart
from toolwire.canonical.fold import fold
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Response
from toolwire.codec.encoding.turns import is_derived_id
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.openai_chat import CODEC

OPEN = {"id": "a", "name": "f"}


def events(wire: bytes) -> list[Any]:
    decoder = CODEC.stream_decoder(ResponseContext())
    return decoder.feed(wire) + decoder.close()


def fold_stream(*deltas: Any, finish_reason: str = "tool_calls") -> Response:
    return fold(events(chat_stream(*deltas, finish_reason=finish_reason)))


def parts(response: Response) -> tuple[Part, ...]:
    return response.candidates[0].messages[0].parts


def decode_calls(*deltas: Any) -> list[tuple[str | None, str, str]]:
    """Return id, name and arguments of each call; a derived id is None."""
    calls = [part for part in parts(fold_stream(*deltas)) if isinstance(part, ToolCall)]
    assert len({part.id for part in calls}) == len(calls)
    return [
        (None if part.id is None or is_derived_id(part.id) else part.id, part.name, part.arguments) for part in calls
    ]


def frag(index: int | None, text: str | None = None, **fields: Any) -> Any:
    return chat_fragment(index, text, **fields)


def _value(extras: Extras | None, name: str) -> Any:
    assert extras is not None
    return json.loads(bytes(extras["openai-chat"][name]))


# ---- decode

FRAGMENTS: dict[str, tuple[list[Any], list[tuple[str | None, str, str]]]] = {
    "as specified": (
        [frag(0, "", **OPEN), frag(0, '{"x":'), frag(0, "1}"), frag(1, "{}", id="b", name="g")],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    "interleaved": (
        [frag(0, "[", **OPEN), frag(1, "[", id="b", name="g"), frag(0, "1]"), frag(1, "2]")],
        [("a", "f", "[1]"), ("b", "g", "[2]")],
    ),
    "one index, new id": (
        [frag(0, "{}", **OPEN), frag(0, "{}", id="b", name="f")],
        [("a", "f", "{}"), ("b", "f", "{}")],
    ),
    "one index, new name": ([frag(0, "{}", name="f"), frag(0, "{}", name="g")], [(None, "f", "{}"), (None, "g", "{}")]),
    "one index, complete, then the name again": (
        [frag(0, "{}", name="f"), frag(0, '{"x":1}', name="f")],
        [(None, "f", "{}"), (None, "f", '{"x":1}')],
    ),
    "id and name on every fragment": ([frag(0, "[", **OPEN), frag(0, "1]", **OPEN)], [("a", "f", "[1]")]),
    "name again before it is complete": ([frag(0, "[", name="f"), frag(0, "1]", name="f")], [(None, "f", "[1]")]),
    "an empty id is none": ([frag(0, "[", **OPEN), frag(0, "1]", id="")], [("a", "f", "[1]")]),
    "no index": (
        [frag(None, "[", **OPEN), frag(None, "1]"), frag(None, "{}", id="b", name="f")],
        [("a", "f", "[1]"), ("b", "f", "{}")],
    ),
    "no index, and back by id": (
        [frag(None, "[", **OPEN), frag(None, "{}", id="b", name="g"), frag(None, "1]", id="a")],
        [("a", "f", "[1]"), ("b", "g", "{}")],
    ),
    "late name": ([frag(0, "[", id="a"), frag(0, "1", name="f"), frag(0, "]")], [("a", "f", "[1]")]),
    "no name at all": ([frag(0, "{}", id="a")], [("a", "unnamed", "{}")]),
    "empty fragment": ([{"tool_calls": [{"index": 0, "id": "", "function": {"name": "", "arguments": ""}}]}], []),
    "arguments as an object": (
        [{"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": {"x": 1}}}]}],
        [(None, "f", '{"x": 1}')],
    ),
    "arguments null": (
        [{"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": None}}]}],
        [("a", "f", "")],
    ),
    "indices with a gap": (
        [frag(3, "{}", **OPEN), frag(7, "{}", id="b", name="g")],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "legacy function_call": (
        [{"function_call": {"name": "f", "arguments": "["}}, {"function_call": {"arguments": "]"}}],
        [(None, "f", "[]")],
    ),
}


@pytest.mark.parametrize(("deltas", "expected"), FRAGMENTS.values(), ids=FRAGMENTS.keys())
def test_fragments_are_assigned_to_their_call(deltas: list[Any], expected: list[Any]) -> None:
    assert decode_calls(*deltas) == expected


def test_custom_call_streams_its_input() -> None:
    start = {"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "sql", "input": "select"}}]}
    (call,) = parts(fold_stream(start, {"tool_calls": [{"index": 0, "custom": {"input": ' "1'}}]}))
    assert isinstance(call, ToolCall)
    assert (call.shape, call.arguments) == ("freeform", 'select "1')


def test_complete_call_ends_when_the_next_starts() -> None:
    def order(first: str) -> list[tuple[type, int]]:
        wire = chat_stream(frag(0, first, **OPEN), frag(1, "{}", id="b", name="g"))
        return [(type(event), event.index) for event in events(wire) if isinstance(event, PartStart | PartEnd)]

    assert order("{}") == [(PartStart, 0), (PartEnd, 0), (PartStart, 1), (PartEnd, 1)]
    assert order("{") == [(PartStart, 0), (PartStart, 1), (PartEnd, 0), (PartEnd, 1)]


def test_truncated_call_is_incomplete() -> None:
    (call,) = parts(fold_stream(frag(0, '{"x":', **OPEN), finish_reason="length"))
    assert isinstance(call, ToolCall)
    assert (call.arguments, call.complete) == ('{"x":', False)


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning_content": "H"}, {"reasoning_content": "m."}],
        [{"reasoning": "H"}, {"reasoning": "m."}],
        [{"reasoning": "H", "reasoning_content": "H"}, {"reasoning": "m.", "reasoning_content": "m."}],
        [{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": t}]}]} for t in ("H", "m.")],
        [{"reasoning_details": [{"type": "reasoning.text", "text": t, "index": 0}]} for t in ("H", "m.")],
    ],
)
def test_reasoning_of_any_field_is_one_part(deltas: list[Any]) -> None:
    reasoning, text = parts(fold_stream(*deltas, {"content": "Sunny."}, finish_reason="stop"))
    assert isinstance(reasoning, Reasoning)
    assert [block.text for block in reasoning.content if isinstance(block, ReasoningText)] == ["Hm."]
    assert isinstance(text, Text)
    assert text.text == "Sunny."


def test_refusal_is_a_part_and_the_stop_reason() -> None:
    response = fold_stream({"refusal": "N"}, {"refusal": "o."}, finish_reason="stop")
    (part,) = parts(response)
    assert isinstance(part, Refusal)
    assert part.text == "No."
    assert response.candidates[0].stop is not None
    assert response.candidates[0].stop.reason == "refusal"


def test_extras_are_merged() -> None:
    first = {**chat_chunk({"role": "assistant", "content": "a"}), "system_fingerprint": "fp"}
    first["choices"][0]["logprobs"] = {"content": [{"token": "a"}], "refusal": None}
    second = chat_chunk({"content": "b", "audio": {"id": "x", "data": "AA"}})
    second["choices"][0]["logprobs"] = {"content": [{"token": "b"}], "refusal": None}
    third = chat_chunk({"audio": {"data": "BB"}}, "stop")
    wire = chat_events(first, second, third)
    response = fold(events(wire))
    candidate = response.candidates[0]
    assert _value(response.extras, "system_fingerprint") == "fp"
    tokens = _value(candidate.extras, "logprobs")["content"]
    assert [token["token"] for token in tokens] == ["a", "b"]
    assert _value(candidate.messages[0].extras, "audio") == {"id": "x", "data": "AABB"}
    assert fold(events(translate_stream_bytes(wire, CHAT, CHAT))) == response


STOP = chat_chunk({}, "stop")
CONTENT = chat_chunk({"role": "assistant", "content": "Hi"})


@pytest.mark.parametrize(
    ("wire", "fails"),
    [
        (chat_events(CONTENT, STOP), False),
        (chat_events(CONTENT, STOP, done=False), False),
        (chat_events(CONTENT), False),
        (chat_events(CONTENT, done=False), True),
        (chat_events(CONTENT, STOP, done=False) + b'data: {"id": "cu', False),
        (chat_events(CONTENT, done=False) + b'data: {"id": "cu', True),
        (chat_events(chat_chunk(frag(0, '{"x":', **OPEN))), True),
        (chat_events(CONTENT, {"error": {"message": "Gone", "code": 502}}), True),
        (chat_events(CONTENT, {**chat_chunk({}), "error": None}, STOP), False),
        (b"data: [DONE]\n\n", True),
        (b"", True),
        (b"data: not json\n\n", True),
    ],
)
def test_end_of_stream(wire: bytes, fails: bool) -> None:
    assert (fold(events(wire)).error is not None) is fails


def test_usage_is_decoded_from_the_finish_chunk_or_after_it() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}
    early = chat_events(CONTENT, {**STOP, "usage": usage})
    late = chat_events(CONTENT, STOP, {**STOP, "choices": [], "usage": usage})
    assert fold(events(early)).usage == fold(events(late)).usage is not None


def test_filter_chunk_does_not_set_id_and_model() -> None:
    filtered = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{}]}
    response = fold(events(chat_events(filtered, CONTENT, STOP)))
    assert (response.id, response.model) == ("chatcmpl-1", "gpt-4o")
    assert _value(response.extras, "prompt_filter_results") == [{}]


def test_choices_may_alternate() -> None:
    def chunk(index: int, delta: Any, finish: str | None = None) -> Any:
        body = chat_chunk(delta, finish)
        body["choices"][0]["index"] = index
        return body

    wire = chat_events(
        chunk(1, {"role": "assistant", "content": "B"}),
        chunk(0, {"role": "assistant", "content": "A"}),
        chunk(1, {"content": "b"}, "stop"),
        chunk(0, {"content": "a"}, "stop"),
    )
    response = fold(events(wire))
    assert [
        candidate.messages[0].parts[0].text
        for candidate in response.candidates
        if isinstance(candidate.messages[0].parts[0], Text)
    ] == ["Aa", "Bb"]
    encoded = stream_frames(CODEC.stream_encoder(ResponseContext()).encode(events(wire)))
    assert encoded[0]["choices"][0]["index"] == 0


# ---- encode

THINKING = anthropic_block(
    0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "Hm."}
)


def deltas(wire: bytes) -> list[Any]:
    return [choice["delta"] for frame in stream_frames(wire) for choice in frame["choices"]]


def test_chunks_of_a_response() -> None:
    source = anthropic_stream(
        *THINKING,
        *anthropic_text_block(1, "Well", "."),
        *anthropic_call_block(2, "toolu_1", '{"city":', '"Paris"}'),
        *anthropic_call_block(3, "toolu_2"),
    )
    wire = translate_stream_bytes(source, ANTHROPIC, CHAT)

    def opening(index: int, id: str) -> Any:
        function = {"name": "get_weather", "arguments": ""}
        return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}

    def more(index: int, text: str) -> Any:
        return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    assert deltas(wire) == [
        {"role": "assistant", "content": None},
        {"reasoning_content": "Hm."},
        {"content": "Well"},
        {"content": "."},
        opening(0, "toolu_1"),
        more(0, '{"city":'),
        more(0, '"Paris"}'),
        opening(1, "toolu_2"),
        more(1, CITY_ARGUMENTS),
        {},
    ]
    chunks = stream_frames(wire)
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks} == {
        ("chatcmpl-msg_1", "chat.completion.chunk", "claude-sonnet-4-5")
    }
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]] == [None] * 9 + ["tool_calls"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 7
    assert wire.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("request_fields", "has_usage"),
    [
        ({}, False),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {"include_usage": True}}, True),
    ],
)
def test_usage_is_sent_only_if_requested(request_fields: Any, has_usage: bool) -> None:
    source = anthropic_stream(*anthropic_text_block(0, "Hi"), stop_reason="end_turn")
    chunks = stream_frames(translate_stream_bytes(source, ANTHROPIC, CHAT, chat_request(stream=True, **request_fields)))
    assert bool(chunks[-1].get("usage")) is has_usage
    assert all(chunk.get("usage", "absent") == (None if has_usage else "absent") for chunk in chunks[:-1])


def test_call_without_arguments_gets_an_empty_object() -> None:
    start = {"type": "tool_use", "id": "toolu_1", "name": "ping", "input": {}}
    wire = translate_stream_bytes(anthropic_stream(*anthropic_block(0, start)), ANTHROPIC, CHAT)
    pieces = [call["function"]["arguments"] for delta in deltas(wire) for call in delta.get("tool_calls", ())]
    assert "".join(pieces) == "{}"


def test_citations_are_sent_in_one_chunk_before_the_end() -> None:
    def note(url: str) -> Any:
        cited = {"type": "web_search_result_location", "url": url, "title": "T", "cited_text": "q"}
        return {"type": "citations_delta", "citation": cited}

    blocks = [
        *anthropic_text_block(0, "It is "),
        *anthropic_block(
            1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "sunny."}, note("u1"), note("u2")
        ),
    ]
    wire = translate_stream_bytes(anthropic_stream(*blocks, stop_reason="end_turn"), ANTHROPIC, CHAT)
    (annotations,) = [delta["annotations"] for delta in deltas(wire) if "annotations" in delta]
    assert [annotation["url_citation"]["url"] for annotation in annotations] == ["u1", "u2"]
    assert {
        (annotation["url_citation"]["start_index"], annotation["url_citation"]["end_index"])
        for annotation in annotations
    } == {(6, 12)}


def test_ping_is_a_comment() -> None:
    wire = translate_stream_bytes(anthropic_stream({"type": "ping"}, *anthropic_text_block(0, "Hi")), ANTHROPIC, CHAT)
    assert b"\n\n: ping\n\n" in wire


def test_failure_is_an_error_chunk_without_done() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}
    source = anthropic_stream(*anthropic_text_block(0, "Hi")).split(b"event: message_delta")[0] + anthropic_events(
        error
    )
    stream = toolwire.translate_stream([source], source=ANTHROPIC, target=CHAT)
    wire = b"".join(stream)
    assert stream_frames(wire)[-1]["error"]["message"] == "Busy"
    assert b"[DONE]" not in wire
    assert stream.error is not None


@pytest.mark.parametrize("done", [True, False])
def test_encoder_closed_early_sends_an_error(done: bool) -> None:
    encoder = CODEC.stream_encoder(ResponseContext())
    wire = encoder.encode(events(chat_events(CONTENT, STOP)) if done else [])
    assert (b"[DONE]" in wire) is done
    assert (b'"error"' in encoder.close()) is not done


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_frame_that_cannot_be_read_behind_the_end_hides_no_usage_however_the_bytes_are_split(size: int) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    finished = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    wire = b"data: %b\n\ndata:\n\ndata: %b\n\n" % (
        json.dumps(finished).encode(),
        json.dumps({"id": "c", "choices": [], "usage": usage}).encode(),
    )
    decoder = CODEC.stream_decoder(ResponseContext())
    pieces = [wire[at : at + size] for at in range(0, len(wire), size)]
    response = fold([event for piece in pieces for event in decoder.feed(piece)] + decoder.close())
    assert response.error is None
    assert response.usage is not None
    assert response.usage.output_tokens == 4
