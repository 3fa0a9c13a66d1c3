"""Scripted faults of the simulator: each breaks the response at its point, in every protocol."""

import json
from typing import Any

import httpx
import pytest

from tests.support.codecs import decode_events
from tests.support.gateway.in_process import question_request
from tests.support.servers.asgi import serve_app
from toolwire.canonical.content import Message, Reasoning, ReasoningText, Text, ToolCall
from toolwire.canonical.events import CandidateEnd, Event, PartDelta, PartEnd, ResponseFailed
from toolwire.canonical.response import Candidate, Response, Stop
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.faults import FaultPoint, split_events
from toolwire.upstream.simulator.response_builder import chunk_response
from toolwire.upstream.simulator.script import parse_script

CONTENT = """
text = "One two three"
calls = [{name = "weather", arguments = {city = "Oslo"}}, {name = "weather", arguments = {city = "Rome"}}]
"""
EVERY_PROTOCOL = pytest.mark.parametrize("protocol", list(PROTOCOLS))


def events_of(*parts: Any) -> list[Event]:
    message = Message(role="assistant", parts=parts)
    response = Response(
        origin="anthropic", candidates=(Candidate(index=0, messages=(message,), stop=Stop(reason="tool_use")),)
    )
    return [event for group in chunk_response(response) for event in group]


CALL = ToolCall(id="c1", name="weather", arguments='{"city": "Oslo"}')
EVENTS = events_of(
    Reasoning(content=(ReasoningText(kind="full", text="I think so"),)), Text(text="One two"), CALL, CALL
)


@pytest.mark.parametrize(
    ("point", "last_text"), [("thinking", "I"), ("text", "One"), ("arguments", '{"city":')], ids=str
)
def test_response_is_split_within_a_part(point: FaultPoint, last_text: str) -> None:
    before, interrupted = split_events(EVENTS, point)
    last = before[-1]
    assert isinstance(last, PartDelta)
    assert last.text == last_text
    assert isinstance(interrupted[-1], PartEnd)


def test_response_is_split_between_calls_and_after_the_stop() -> None:
    before, interrupted = split_events(EVENTS, "calls")
    assert sum(isinstance(event, PartEnd) for event in before) == 3
    assert sum(isinstance(event, PartEnd) for event in interrupted) == 1
    before, _ = split_events(EVENTS, "stop")
    assert isinstance(before[-1], CandidateEnd)


def test_response_without_the_part_breaks_after_its_stop() -> None:
    assert split_events(events_of(Text(text="One two")), "arguments") == split_events(
        events_of(Text(text="One two")), "stop"
    )


def send(protocol: str, fault: str, *, stream: bool) -> httpx.Response:
    script = parse_script(f"[[turns]]\nrepeat = 0\nfault = {fault}\n{CONTENT}".encode(), "script")
    path, body = question_request(protocol, stream=stream)
    with serve_app(Simulator([protocol], script=script)) as url, httpx.Client(timeout=60) as client:
        return client.post(url + path, content=body)


@EVERY_PROTOCOL
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("point", ["connection", "head", "text", "arguments", "calls", "stop"])
def test_closed_connection_is_an_incomplete_response(protocol: str, point: str, stream: bool) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        send(protocol, f'{{at = "{point}"}}', stream=stream)


@EVERY_PROTOCOL
def test_error_within_a_stream_is_that_of_the_protocol(protocol: str) -> None:
    answer = send(protocol, '{at = "text", kind = "error"}', stream=True)
    last = decode_events(protocol, answer.content)[-1]
    assert isinstance(last, ResponseFailed)
    assert not last.broken
    assert "The script says so." in last.error.message


@EVERY_PROTOCOL
@pytest.mark.parametrize("kind", ["end", "garbage"])
def test_stream_that_ends_early_or_in_garbage_is_broken(protocol: str, kind: str) -> None:
    answer = send(protocol, f'{{at = "text", kind = "{kind}"}}', stream=True)
    assert answer.status_code == 200
    last = decode_events(protocol, answer.content)[-1]
    assert isinstance(last, ResponseFailed)
    assert last.broken


@EVERY_PROTOCOL
def test_error_in_place_of_the_response_has_a_status(protocol: str) -> None:
    assert send(protocol, '{at = "connection", kind = "error"}', stream=True).status_code == 500


@EVERY_PROTOCOL
def test_complete_body_ends_early(protocol: str) -> None:
    answer = send(protocol, '{at = "text", kind = "end"}', stream=False)
    with pytest.raises(json.JSONDecodeError):
        answer.json()


def test_silence_lasts_until_the_client_leaves() -> None:
    script = parse_script(f'[[turns]]\nfault = {{at = "text", kind = "silence"}}\n{CONTENT}'.encode(), "script")
    path, body = question_request("openai-chat", stream=True)
    with (
        serve_app(Simulator(["openai-chat"], script=script)) as url,
        httpx.Client(timeout=60) as client,
        client.stream("POST", url + path, content=body) as answer,
    ):
        received = b""
        for chunk in answer.iter_bytes():
            received += chunk
            if b"One" in received:
                break
    assert b"three" not in received
