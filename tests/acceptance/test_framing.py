"""Streams, byte by byte (ST-20 to ST-23 and ST-28)."""

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


def without_escapes(wire: bytes) -> bytes:
    """Return the same stream with UTF-8 text instead of JSON escapes."""
    lines = wire.decode().split("\n")
    for at, line in enumerate(lines):
        head = "data: " if line.startswith("data: {") else ""
        if line[len(head) :].startswith("{"):
            end = "\r" if line.endswith("\r") else ""
            lines[at] = head + json.dumps(json.loads(line[len(head) :]), ensure_ascii=False) + end
    return "\n".join(lines).encode()


STREAMS = {protocol: without_escapes(wire) for protocol, wire in ESCAPED.items()}
TARGETS = {protocol: CHAT if protocol == ANTHROPIC else ANTHROPIC for protocol in ALL_PROTOCOLS}
SSE_PROTOCOLS = [protocol for protocol in ALL_PROTOCOLS if protocol != OLLAMA]


def fold_translated(wire: bytes | list[bytes], source: str) -> tuple[str, object]:
    folded = fold_stream(TARGETS[source], translate_stream_bytes(wire, source, TARGETS[source]))
    return folded["text"], folded["calls"][0]["arguments"]


@pytest.mark.parametrize("source", ALL_PROTOCOLS)
def test_st_20_characters_split_between_chunks_arrive_intact(source: str) -> None:
    wire = STREAMS[source]
    expected = translate_stream_bytes(wire, source, TARGETS[source])
    assert fold_translated(wire, source) == (CITY, {"city": CITY})
    offsets = [offset for offset, byte in enumerate(wire) if byte >= 0x80]
    assert offsets
    assert {translate_stream_bytes([wire[:offset], wire[offset:]], source, TARGETS[source]) for offset in offsets} == {
        expected
    }


def with_other_line_ends(wire: bytes) -> bytes:
    return wire.replace(b"\r\n", b"\n") if b"\r\n" in wire else wire.replace(b"\n", b"\r\n")


def with_two_data_lines(wire: bytes) -> bytes:
    return wire.replace(b'data: {"', b'data: {\ndata: "')


def with_comments(wire: bytes) -> bytes:
    end = b"\r\n\r\n" if b"\r" in wire else b"\n\n"
    return b": hello" + end + wire.replace(end, end + b": still here" + end)


@pytest.mark.parametrize("source", SSE_PROTOCOLS)
@pytest.mark.parametrize("spelling", [with_other_line_ends, with_two_data_lines, with_comments])
def test_st_21_frames_are_parsed_in_every_legal_spelling(source: str, spelling: Callable[[bytes], bytes]) -> None:
    wire = spelling(STREAMS[source])
    assert wire != STREAMS[source]
    assert fold_translated(wire, source) == (CITY, {"city": CITY})
    assert fold_translated([wire[at : at + 7] for at in range(0, len(wire), 7)], source) == (CITY, {"city": CITY})


@pytest.mark.parametrize("source", ALL_PROTOCOLS)
def test_st_22_a_frame_may_arrive_one_byte_at_a_time(source: str) -> None:
    """The failure was reported for a binary framing; SSE may be split anywhere."""
    wire = STREAMS[source]
    assert fold_translated([wire[at : at + 1] for at in range(len(wire))], source) == (CITY, {"city": CITY})


def count_function_calls(fragments: int) -> int:
    """Count the Python calls for a stream of fragments, which does not depend on the load of the machine."""
    pieces = [chat_fragment(0, "x" * 50) for _ in range(fragments)]
    wire = chat_stream(chat_fragment(0, '{"text":"', id="call_1", name="write"), *pieces, chat_fragment(0, '"}'))
    profile = Profile()
    profile.runcall(translate_stream_bytes, wire, CHAT, ANTHROPIC)
    return sum(entry.callcount for entry in profile.getstats())


def test_st_23_the_cost_of_long_arguments_grows_linearly() -> None:
    # Eight times the input: linear is 8, quadratic 64.
    assert count_function_calls(8_000) < 9 * count_function_calls(1_000)


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != RESPONSES])
def test_st_28_a_huge_or_broken_informational_frame_does_not_end_the_stream(target: str) -> None:
    message = responses_message("Well.")
    created = responses_response(status="in_progress", instructions="x" * 300_000)
    completed = responses_response(message)
    wire = responses_events(
        {"type": "response.created", "response": created},
        *responses_item_events(0, message),
        {"type": "response.completed", "response": completed},
    )
    assert fold_stream(target, translate_stream_bytes(wire, RESPONSES, target))["text"] == "Well."
    first, remaining = wire.split(b"\n\n", 1)
    broken = b'event: response.in_progress\ndata: {"type":"response.in_progress","response":{"instruc\n\n'
    assert (
        fold_stream(target, translate_stream_bytes(first + b"\n\n" + broken + remaining, RESPONSES, target))["text"]
        == "Well."
    )
