"""Responses sent as successes that no client can use become errors that clients retry."""

import json
from typing import Any

import pytest

from tests.support.codecs import decode_error, decode_events
from tests.support.gateway.emulated_exchange import canonical_response, encode_http_response
from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    one_provider_config,
    run_async,
    run_gateway,
    run_gateway_with,
)
from tests.support.servers.http_responses import (
    CHAT_RESPONSE,
    CHAT_STREAM,
    SSE_HEAD,
    chat_sse_event,
    http_response,
    transfer_chunk,
)
from tests.support.servers.upstream import ScriptedUpstream, reply_with, serve_upstream
from toolwire.canonical.content import Text
from toolwire.canonical.events import ResponseEnd, ResponseFailed
from toolwire.codec.interface import ResponseContext
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
    "no choices": ("openai-chat", chat(), sse(EMPTY_CHUNK) + DONE, "empty response"),
    "no content": ("openai-chat", chat(choice(None)), chat_sse_event({"role": "assistant"}) + DONE, "empty response"),
    "empty content": (
        "openai-chat",
        chat(choice("")),
        chat_sse_event({"role": "assistant", "content": ""}) + DONE,
        "empty response",
    ),
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
def test_unusable_response_is_an_error(defect: str, client: str, stream: bool) -> None:
    """It looked like a normal end, so agents stopped there."""
    protocol, body, frames, message = DEFECTS[defect]
    upstream_bytes = SSE_HEAD + transfer_chunk(frames) + b"0\r\n\r\n" if stream else http_response("200 OK", body)

    async def work() -> None:
        async with (
            serve_upstream(ScriptedUpstream(upstream_bytes)) as origin,
            run_gateway(one_provider_config(origin, protocol, timeout=60)) as gateway,
        ):
            response = await gateway.send_question(client, stream=stream)
            data = await response.read(100_000)
        error = decode_error(client, response.status, data)
        assert (response.status, error.kind) == (502, "server"), data
        assert message in error.message

    run_async(work())


@pytest.mark.parametrize("client", [name for name in PROTOCOL_NAMES if name != "gemini"])
def test_stream_with_a_truncated_call_ends_with_an_error(client: str) -> None:
    """Earlier content is passed on."""
    text = b'{"candidates":[{"content":{"role":"model","parts":[{"text":"It is sunny"}]}}]}'
    frames = sse(text, candidate("MALFORMED_FUNCTION_CALL", finishMessage="Malformed: print("))

    async def work() -> None:
        upstream_bytes = SSE_HEAD + transfer_chunk(frames) + b"0\r\n\r\n"
        async with (
            serve_upstream(reply_with(upstream_bytes)) as origin,
            run_gateway(one_provider_config(origin, "gemini", timeout=60)) as gateway,
        ):
            wire = await (await gateway.send_question(client, stream=True)).read(100_000)
        events = decode_events(client, wire)
        assert b"sunny" in wire
        assert not any(isinstance(event, ResponseEnd) for event in events)
        (failed,) = [event for event in events if isinstance(event, ResponseFailed)]
        assert "Malformed: print(" in failed.error.message
        assert failed.error.kind == ("other" if client == "ollama" else "server")  # Ollama has no error kinds

    run_async(work())


@MODES
def test_empty_response_fails_over(stream: bool) -> None:
    """The same provider is not retried."""

    async def work() -> None:
        empty = (
            SSE_HEAD + transfer_chunk(sse(EMPTY_CHUNK) + DONE) + b"0\r\n\r\n"
            if stream
            else http_response("200 OK", chat())
        )
        first, second = ScriptedUpstream(empty), ScriptedUpstream(CHAT_STREAM if stream else CHAT_RESPONSE)
        async with run_gateway_with(first, second) as gateway:
            response = await gateway.send_question("anthropic", stream=stream)
            assert response.status == 200, await response.read(10_000)
        assert (len(first.requests), len(second.requests)) == (1, 1)

    run_async(work())


FINISHED: dict[str, tuple[str, bytes, bytes]] = {
    "stopped without content": (
        "openai-chat",
        chat(choice(None) | {"finish_reason": "stop"}),
        chat_sse_event({"role": "assistant"}) + chat_sse_event({}, "stop") + DONE,
    ),
    "content without a stop": (
        "openai-chat",
        chat(choice("It is sunny")),
        chat_sse_event({"content": "It is sunny"}) + DONE,
    ),
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
def test_short_response_is_valid(client: str, finished: str, stream: bool) -> None:
    protocol, body, frames = FINISHED[finished]
    upstream_bytes = SSE_HEAD + transfer_chunk(frames) + b"0\r\n\r\n" if stream else http_response("200 OK", body)

    async def work() -> None:
        async with (
            serve_upstream(reply_with(upstream_bytes)) as origin,
            run_gateway(one_provider_config(origin, protocol, timeout=60)) as gateway,
        ):
            response = await gateway.send_question(client, stream=stream)
            data = await response.read(100_000)
        assert response.status == 200, data
        if stream:
            ends = [event for event in decode_events(client, data) if isinstance(event, ResponseEnd | ResponseFailed)]
            assert [type(event) for event in ends] == [ResponseEnd]
        else:
            assert PROTOCOLS[client].decode_response(data, ResponseContext()).error is None

    run_async(work())


@MODES
def test_unusable_response_passes_through_between_equal_protocols(stream: bool) -> None:
    """Same-protocol responses are exact: Gemini clients know these stop reasons."""
    body = candidate("MALFORMED_FUNCTION_CALL", finishMessage="Malformed")
    upstream_bytes = SSE_HEAD + transfer_chunk(sse(body)) + b"0\r\n\r\n" if stream else http_response("200 OK", body)

    async def work() -> None:
        async with (
            serve_upstream(reply_with(upstream_bytes)) as origin,
            run_gateway(one_provider_config(origin, "gemini", timeout=60)) as gateway,
        ):
            response = await gateway.send_question("gemini", stream=stream)
            assert (response.status, b"MALFORMED_FUNCTION_CALL" in await response.read(10_000)) == (200, True)

    run_async(work())


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize("protocol", ["openai-responses", "anthropic", "openai-chat"])
def test_cut_after_the_end_changes_nothing(protocol: str, client: str) -> None:
    """A Responses client got `response.completed` and then `response.failed`."""

    async def work() -> None:
        upstream_bytes = encode_http_response(
            protocol, canonical_response(Text(text="It is sunny"), reason="end_turn"), stream=True
        )
        cut = reply_with(upstream_bytes.removesuffix(b"0\r\n\r\n"), keep_open=False)
        async with (
            serve_upstream(cut) as origin,
            run_gateway(one_provider_config(origin, protocol, timeout=60)) as gateway,
        ):
            wire = await (await gateway.send_question(client, stream=True)).read(100_000)
        ends = [event for event in decode_events(client, wire) if isinstance(event, ResponseEnd | ResponseFailed)]
        assert [type(event) for event in ends] == [ResponseEnd]
        assert b"fail" not in wire
        assert b"error" not in wire.replace(b'"error":null', b"")

    run_async(work())
