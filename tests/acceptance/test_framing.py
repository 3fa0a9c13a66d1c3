"""Streams, byte by byte: ST-20 to ST-23 and ST-28."""

import json
from collections.abc import Callable
from cProfile import Profile

import pytest

from tests.support.bodies.minimal import (
    chat_fragment,
    chat_stream,
    response_stream,
    responses_call,
    responses_events,
    responses_item_events,
    responses_message,
    responses_response,
)
from tests.support.protocols import ALL_PROTOCOLS, ANTHROPIC, CHAT, OLLAMA, RESPONSES
from tests.support.sdk.validation import fold_stream
from tests.support.translation import translate_stream_bytes

CITY = "Zürich 🚀"
ARGUMENTS = json.dumps({"city": CITY}, ensure_ascii=False)
CALL = responses_call("call_1", arguments=ARGUMENTS, id="fc_1", status="completed")
ESCAPED = {protocol: response_stream(protocol, CITY, ("call_1", CITY)) for protocol in ALL_PROTOCOLS}


def in_utf_8(wire: bytes) -> bytes:
    """The same stream with its text in UTF-8 instead of JSON escapes."""
    lines = wire.decode().split("\n")
    for at, line in enumerate(lines):
        head = "data: " if line.startswith("data: {") else ""
        if line[len(head) :].startswith("{"):
            end = "\r" if line.endswith("\r") else ""
            lines[at] = head + json.dumps(json.loads(line[len(head) :]), ensure_ascii=False) + end
    return "\n".join(lines).encode()


STREAMS = {protocol: in_utf_8(wire) for protocol, wire in ESCAPED.items()}
OTHER = {protocol: CHAT if protocol == ANTHROPIC else ANTHROPIC for protocol in ALL_PROTOCOLS}
EVENTS = [protocol for protocol in ALL_PROTOCOLS if protocol != OLLAMA]


def said(wire: bytes | list[bytes], source: str) -> tuple[str, object]:
    folded = fold_stream(OTHER[source], translate_stream_bytes(wire, source, OTHER[source]))
    return folded["text"], folded["calls"][0]["arguments"]


@pytest.mark.parametrize("source", ALL_PROTOCOLS)
def test_st_20_characters_split_between_chunks_arrive_intact(source: str) -> None:
    wire = STREAMS[source]
    full_body = translate_stream_bytes(wire, source, OTHER[source])
    assert said(wire, source) == (CITY, {"city": CITY})
    cuts = [at for at, byte in enumerate(wire) if byte >= 0x80]
    assert cuts
    assert {translate_stream_bytes([wire[:at], wire[at:]], source, OTHER[source]) for at in cuts} == {full_body}


def with_other_line_ends(wire: bytes) -> bytes:
    return wire.replace(b"\r\n", b"\n") if b"\r\n" in wire else wire.replace(b"\n", b"\r\n")


def with_two_data_lines(wire: bytes) -> bytes:
    return wire.replace(b'data: {"', b'data: {\ndata: "')


def with_comments(wire: bytes) -> bytes:
    end = b"\r\n\r\n" if b"\r" in wire else b"\n\n"
    return b": hello" + end + wire.replace(end, end + b": still here" + end)


@pytest.mark.parametrize("source", EVENTS)
@pytest.mark.parametrize("spelling", [with_other_line_ends, with_two_data_lines, with_comments])
def test_st_21_frames_are_parsed_in_every_legal_spelling(source: str, spelling: Callable[[bytes], bytes]) -> None:
    wire = spelling(STREAMS[source])
    assert wire != STREAMS[source]
    assert said(wire, source) == (CITY, {"city": CITY})
    assert said([wire[at : at + 7] for at in range(0, len(wire), 7)], source) == (CITY, {"city": CITY})


@pytest.mark.parametrize("source", ALL_PROTOCOLS)
def test_st_22_a_frame_may_arrive_one_byte_at_a_time(source: str) -> None:
    """The report is about the prelude of a binary framing; ours has only bytes, which may be cut anywhere."""
    wire = STREAMS[source]
    assert said([wire[at : at + 1] for at in range(len(wire))], source) == (CITY, {"city": CITY})


def calls_made(fragments: int) -> int:
    """How many functions a stream of so many fragments costs: counted, so that a busy machine can't change it."""
    pieces = [chat_fragment(0, "x" * 50) for _ in range(fragments)]
    wire = chat_stream(chat_fragment(0, '{"text":"', id="call_1", name="write"), *pieces, chat_fragment(0, '"}'))
    profile = Profile()
    profile.runcall(translate_stream_bytes, wire, CHAT, ANTHROPIC)
    return sum(entry.callcount for entry in profile.getstats())


def test_st_23_the_cost_of_long_arguments_grows_linearly() -> None:
    # Eight times the input: linear is 8, quadratic 64.
    assert calls_made(8_000) < 9 * calls_made(1_000)


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != RESPONSES])
def test_st_28_a_huge_or_broken_informational_frame_does_not_end_the_stream(target: str) -> None:
    message = responses_message("Well.")
    opened = responses_response(status="in_progress", instructions="x" * 300_000)
    closed = responses_response(message)
    wire = responses_events(
        {"type": "response.created", "response": opened},
        *responses_item_events(0, message),
        {"type": "response.completed", "response": closed},
    )
    assert fold_stream(target, translate_stream_bytes(wire, RESPONSES, target))["text"] == "Well."
    first, rest = wire.split(b"\n\n", 1)
    broken = b'event: response.in_progress\ndata: {"type":"response.in_progress","response":{"instruc\n\n'
    assert (
        fold_stream(target, translate_stream_bytes(first + b"\n\n" + broken + rest, RESPONSES, target))["text"]
        == "Well."
    )
