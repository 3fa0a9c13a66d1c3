"""Answers that providers send as successes and nobody can use: errors that clients retry, never a finished answer."""

import json
from typing import Any

import pytest

from tests.gateway.running import PROTOCOL_NAMES, in_front_of, run, running
from tests.gateway.test_exchange import GOOD, STREAMED, Script, in_front
from tests.gateway.test_faults import STREAM, chunk, error_of, events_of, piece, whole
from tests.gateway.test_searching import answer, wired
from tests.upstream.sockets import answering, upstream
from toolwire.canonical.content import Text
from toolwire.canonical.events import ResponseEnd, ResponseFailed
from toolwire.codec.interface import Context
from toolwire.protocols import PROTOCOLS

MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
CHAT: dict[str, Any] = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}


def chat(*choices: dict[str, Any]) -> bytes:
    return json.dumps(CHAT | {"choices": list(choices)}).encode()


def choice(content: str | None) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": None}


def candidate(reason: str, **more: Any) -> bytes:
    return json.dumps({"candidates": [{"content": {}, "finishReason": reason, **more}]}).encode()


def sse(*frames: bytes) -> bytes:
    return b"".join(b"data: " + frame + b"\n\n" for frame in frames)


EMPTY_CHUNK = json.dumps(CHAT | {"object": "chat.completion.chunk", "choices": []}).encode()
DONE = b"data: [DONE]\n\n"
DEFECTS: dict[str, tuple[str, bytes, bytes, str]] = {
    "no choices": ("openai-chat", chat(), sse(EMPTY_CHUNK) + DONE, "is empty"),
    "no content": ("openai-chat", chat(choice(None)), chunk({"role": "assistant"}) + DONE, "is empty"),
    "empty content": ("openai-chat", chat(choice("")), chunk({"role": "assistant", "content": ""}) + DONE, "is empty"),
    "junk of Gemini": ("gemini", b'{"foo":1}', sse(b'{"foo":1}'), ""),
    "junk of Ollama": ("ollama", b'{"foo":1}', b'{"foo":1}\n', ""),
    **{
        reason: ("gemini", told := candidate(reason, finishMessage="Malformed: print("), sse(told), "Malformed: print(")
        for reason in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE")
    },
}
CASES = [
    pytest.param(name, client, id=f"{name}-{client}")
    for name, (protocol, *_) in DEFECTS.items()
    for client in PROTOCOL_NAMES
    if client != protocol
]


@MODES
@pytest.mark.parametrize(("defect", "client"), CASES)
def test_s_14_f_7_an_answer_that_nobody_can_use_is_an_error(defect: str, client: str, stream: bool) -> None:
    """S-14 and F-7: it looked like an answer that ended well, so that agents stopped there."""
    protocol, body, frames, why = DEFECTS[defect]
    sent = STREAM + piece(frames) + b"0\r\n\r\n" if stream else whole("200 OK", body)

    async def work() -> None:
        async with upstream(answering(sent)) as origin, running(in_front_of(origin, protocol, timeout=60)) as gateway:
            got = await gateway.ask(client, stream=stream)
            data = await got.read(100_000)
        error = error_of(client, got.status, data)
        assert (got.status, error.kind) == (502, "server"), data
        assert why in error.message

    run(work())


@pytest.mark.parametrize("client", [name for name in PROTOCOL_NAMES if name != "gemini"])
def test_f_7_a_stream_that_ends_with_a_broken_call_ends_with_an_error(client: str) -> None:
    """F-7: what was said before is passed on."""
    said = b'{"candidates":[{"content":{"role":"model","parts":[{"text":"It is sunny"}]}}]}'
    frames = sse(said, candidate("MALFORMED_FUNCTION_CALL", finishMessage="Malformed: print("))

    async def work() -> None:
        sent = STREAM + piece(frames) + b"0\r\n\r\n"
        async with upstream(answering(sent)) as origin, running(in_front_of(origin, "gemini", timeout=60)) as gateway:
            wire = await (await gateway.ask(client, stream=True)).read(100_000)
        events = events_of(client, wire)
        assert b"sunny" in wire
        assert not any(isinstance(event, ResponseEnd) for event in events)
        (failed,) = [event for event in events if isinstance(event, ResponseFailed)]
        assert "Malformed: print(" in failed.error.message
        assert failed.error.kind == ("other" if client == "ollama" else "server")  # Ollama has no words for kinds

    run(work())


@MODES
def test_s_14_the_next_provider_is_asked_in_place_of_an_empty_answer(stream: bool) -> None:
    """S-14: and the same one is not asked again."""

    async def work() -> None:
        empty = STREAM + piece(sse(EMPTY_CHUNK) + DONE) + b"0\r\n\r\n" if stream else whole("200 OK", chat())
        first, second = Script(empty), Script(STREAMED if stream else GOOD)
        async with in_front(first, second) as gateway:
            got = await gateway.ask("anthropic", stream=stream)
            assert got.status == 200, await got.read(10_000)
        assert (len(first.asked), len(second.asked)) == (1, 1)

    run(work())


FINISHED: dict[str, tuple[str, bytes, bytes]] = {
    "stopped without content": (
        "openai-chat",
        chat(choice(None) | {"finish_reason": "stop"}),
        chunk({"role": "assistant"}) + chunk({}, "stop") + DONE,
    ),
    "content without a stop": ("openai-chat", chat(choice("It is sunny")), chunk({"content": "It is sunny"}) + DONE),
    "blocked prompt": (
        "gemini",
        told := b'{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":3}}',
        sse(told),
    ),
    "empty turn": ("gemini", stopped := candidate("STOP"), sse(stopped)),
}


@MODES
@pytest.mark.parametrize("finished", FINISHED)
@pytest.mark.parametrize("client", ["anthropic", "openai-responses", "ollama"])
def test_an_answer_that_says_little_is_one(client: str, finished: str, stream: bool) -> None:
    protocol, body, frames = FINISHED[finished]
    sent = STREAM + piece(frames) + b"0\r\n\r\n" if stream else whole("200 OK", body)

    async def work() -> None:
        async with upstream(answering(sent)) as origin, running(in_front_of(origin, protocol, timeout=60)) as gateway:
            got = await gateway.ask(client, stream=stream)
            data = await got.read(100_000)
        assert got.status == 200, data
        if stream:
            ends = [event for event in events_of(client, data) if isinstance(event, ResponseEnd | ResponseFailed)]
            assert [type(event) for event in ends] == [ResponseEnd]
        else:
            assert PROTOCOLS[client].decode_response(data, Context()).error is None

    run(work())


@MODES
def test_between_equal_protocols_an_answer_passes_as_it_is(stream: bool) -> None:
    """Home is exact: clients of Gemini know its words."""
    told = candidate("MALFORMED_FUNCTION_CALL", finishMessage="Malformed")
    sent = STREAM + piece(sse(told)) + b"0\r\n\r\n" if stream else whole("200 OK", told)

    async def work() -> None:
        async with upstream(answering(sent)) as origin, running(in_front_of(origin, "gemini", timeout=60)) as gateway:
            got = await gateway.ask("gemini", stream=stream)
            assert (got.status, b"MALFORMED_FUNCTION_CALL" in await got.read(10_000)) == (200, True)

    run(work())


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize("protocol", ["openai-responses", "anthropic", "openai-chat"])
def test_f_14_a_connection_that_is_cut_after_the_end_changes_nothing(protocol: str, client: str) -> None:
    """F-14: a Responses client got `response.completed` and then `response.failed`."""

    async def work() -> None:
        sent = wired(protocol, answer(Text(text="It is sunny"), reason="end_turn"), stream=True)
        cut = answering(sent.removesuffix(b"0\r\n\r\n"), keep=False)
        async with upstream(cut) as origin, running(in_front_of(origin, protocol, timeout=60)) as gateway:
            wire = await (await gateway.ask(client, stream=True)).read(100_000)
        ends = [event for event in events_of(client, wire) if isinstance(event, ResponseEnd | ResponseFailed)]
        assert [type(event) for event in ends] == [ResponseEnd]
        assert b"fail" not in wire
        assert b"error" not in wire.replace(b'"error":null', b"")

    run(work())
